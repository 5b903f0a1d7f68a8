// Live updates of open pages: one event stream for all tabs of a browser, whose events the tabs pass on to each other.
// The tab that holds a lock has the stream; when it closes or navigates away, the next one takes over.
"use strict";

// A page without live updates, such as that of a decided request, may have been the first one of the document.
let isLive = false;
sayso.page(() => {
  const one = (selector) => document.querySelector(selector);
  if (isLive || !one("[data-stream]")) return;
  isLive = true;
  const SILENT = 50_000, AGAIN = 3_000, me = { id: `${Date.now()} ${Math.random()}` };
  let box, address;
  const look = () => {
    box = one("[data-stream]");
    address = box ? new URL(box.dataset.stream, location.href) : address;
    for (const what of ["since", "rows"]) me[what] = (box && address.searchParams.get(what) || "").split(",").filter(Boolean);
  };
  look();

  // -- applying updates to this page -------------------------------------------------------------------------
  let heard = Date.now(), last = "", shown = "live";
  const show = (state) => {
    shown = state;
    if (!box) return;  // a page without live updates took this one's place
    box.querySelector("[data-not-live]").hidden = state !== "lost";
    box.querySelector("[data-signed-out]").hidden = state !== "signed-out";
  };
  const apply = (text) => {
    if (text === last) return;
    last = text;
    const told = new DOMParser().parseFromString(text, "text/html");
    [...told.body.children].forEach((part) => {
      const old = part.id && document.getElementById(part.id);
      if (old && !old.isEqualNode(part)) old.replaceWith(document.adoptNode(part));
    });
    const news = me.since.length && told.body.querySelector(`[data-news="${CSS.escape(me.since[0])}"]`);
    const place = one("#news");
    if (news && place && place.innerHTML !== news.innerHTML) {
      const hadFocus = place.contains(document.activeElement);
      place.replaceChildren(...news.childNodes);
      if (hadFocus && one("#news-link")) one("#news-link").focus();
    }
    document.dispatchEvent(new Event("sayso:told"));
  };
  const take = (said) => {
    heard = Date.now();
    show(said.state);
    if (said.part) apply(said.part);
  };

  // -- coordination between tabs ------------------------------------------------------------------------------
  // Without the Web Locks API, which many browsers offer only over https, each tab has a stream of its own.
  const isShared = "locks" in navigator && "BroadcastChannel" in window;
  const name = `sayso live ${address.pathname}`, channel = isShared ? new BroadcastChannel(name) : null;
  const post = (message) => { if (channel) channel.postMessage(message); };
  const tabs = new Map([[me.id, me]]);
  let source = null, asked = "", state = "live", part = "", soon = 0;
  const publish = (now, text = "") => {
    state = now;
    part = text || part;
    post({ state, part });
    take({ state, part });
  };

  // -- the stream, in the tab that holds the lock ---------------------------------------------------------------
  const wanted = () => {
    const all = [...tabs.values()], query = new URLSearchParams();
    for (const what of ["since", "rows"]) {
      const each = [...new Set(all.flatMap((tab) => tab[what]))].slice(-200);
      if (each.length) query.set(what, each.join(","));
    }
    return `${address.pathname}?${query}`;
  };
  const connect = () => {
    if (source) source.close();
    asked = wanted();
    const mine = source = new EventSource(asked);
    mine.onopen = () => publish("live");
    mine.onmessage = (event) => publish("live", event.data);
    mine.addEventListener("ping", () => publish("live"));
    mine.addEventListener("signed-out", () => { mine.close(); publish("signed-out"); });
    mine.onerror = async () => {
      if (mine !== source) return;
      publish("lost");
      if (mine.readyState !== EventSource.CLOSED) return;  // EventSource reconnects by itself
      const status = await fetch(asked).then((answer) => { answer.body.cancel(); return answer.status; }).catch(() => 0);
      if (mine !== source) return;
      if (status === 401) publish("signed-out");
      else setTimeout(() => { if (mine === source) connect(); }, AGAIN);
    };
  };
  const connectSoon = () => { clearTimeout(soon); soon = setTimeout(() => { if (source && wanted() !== asked) connect(); }, 50); };
  const lead = () => {
    connect();
    post({ who: true });
    addEventListener("online", connect);
    return new Promise(() => { /* never resolves, so that the lock is held as long as the page lives */ });
  };

  if (channel) channel.onmessage = ({ data }) => {
    if (data.who) post({ join: me });
    else if (data.leave) tabs.delete(data.leave);
    else if (data.join && source) {
      tabs.set(data.join.id, data.join);
      if (part || state !== "live") post({ state, part });
      connectSoon();
    } else if (data.state) take(data);
  };
  post({ join: me });
  let isFirst = true;
  sayso.page(() => {
    if (isFirst) { isFirst = false; return; }
    last = "";
    look();
    show(shown);
    post({ join: me });
    connectSoon();
  });
  addEventListener("pagehide", () => post({ leave: me.id }));
  addEventListener("offline", () => take({ state: "lost" }));
  setInterval(() => {
    if (Date.now() - heard < SILENT || shown === "signed-out") return;
    show("lost");
    if (source) connect();
    else queue({ steal: true });  // the tab with the lock is silent: probably frozen, like background tabs on phones
  }, 5_000);
  const queue = (how) => navigator.locks.request(name, how, lead).catch(() => {
    if (!source) return;
    removeEventListener("online", connect);
    source.close();
    source = null;
    queue({});
  });
  if (isShared) queue({});
  else lead();
});
