// Opens the next request in the same document: the decision is sent and the answer's body takes the place of this one, so
// that styles and scripts are not loaded again. Without this script, and whenever it is unsure, the browser loads pages.
// Also what the other scripts share: the texts, and what runs for each page.
"use strict";

const sayso = (() => {
  const starts = [];
  let life = new AbortController(), here = location.pathname + location.search, isSending = false, loading = null;

  // Run a script now, and again for each page that takes this one's place. The signal is aborted when its page ends:
  // listeners on the document and the window must take it.
  const page = (start) => { starts.push(start); start(life.signal); };
  // Measuring the layout delays the first paint. A hidden tab does not paint.
  const afterPaint = (work) => document.hidden ? setTimeout(work) : requestAnimationFrame(() => setTimeout(work));

  // Texts: English here, translated by the #words of the page. No page in another language takes this one's place.
  const words = JSON.parse(document.querySelector("#words")?.textContent || "{}"), isRtl = document.documentElement.dir === "rtl";
  const filled = (text, values) => text.replace(/%\((\w+)\)s|%%/g, (_, name) => (
    !name ? "%" : isRtl && typeof values[name] === "string" ? `\u2068${values[name]}\u2069` : values[name]
  ));
  const say = (text, values = {}) => filled(words[text] || text, values);
  const sayN = (one, many, num) => {
    const { forms = [one, many], at } = words[one] || {};
    return filled(forms[at ? at[num < at.length ? num : 100 + num % 100] : Number(num !== 1)], { num });
  };

  const filesOf = (root) => [...root.querySelectorAll("script[src], link[rel=stylesheet]")].map((part) => part.getAttribute("src") || part.getAttribute("href"));
  const isOurs = (found) => {
    const loaded = filesOf(document), needed = filesOf(found);  // other addresses: the server has another version by now
    if (found.documentElement.lang !== document.documentElement.lang) return false;  // and maybe another direction
    return needed.length > 0 && needed.every((file) => loaded.includes(file)) && found.querySelector("#main") !== null;
  };
  // Screen readers do not notice that the page is another one. This element is there from the start and stays, as new live
  // regions are not announced.
  const announcer = Object.assign(document.createElement("p"), { className: "hidden" });
  announcer.setAttribute("role", "status");
  document.body.prepend(announcer);

  const replace = (found) => {
    life.abort();
    life = new AbortController();
    // They are elements here, as the parser runs no scripts, and would be fields of the form.
    found.querySelectorAll("noscript").forEach((part) => part.remove());
    document.title = found.title;
    [...document.body.children].forEach((part) => { if (part !== announcer) part.remove(); });
    document.body.append(...found.body.childNodes);
    scrollTo(0, 0);
    starts.forEach((start) => start(life.signal));
    dispatchEvent(new Event("pageshow"));
    const done = document.querySelector("[data-done] strong");
    announcer.textContent = done ? `${done.textContent}. ${document.title}` : document.title;
  };
  const open = async (address, body) => {
    if (isSending) return;  // one decision at a time
    loading?.abort();
    const { signal } = loading = new AbortController();
    isSending = Boolean(body);
    document.body.ariaBusy = "true";
    try {
      const answer = await fetch(address, { method: body ? "POST" : "GET", body, headers: { accept: "text/html" }, signal });
      const found = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (signal.aborted) return;  // another key was pressed since
      document.body.ariaBusy = null;
      const hasMoved = !body || answer.redirected;  // else it is a refusal: a reload shows the request again
      if (isOurs(found)) {
        const { hash } = new URL(address, location);  // an answer's address has none; browsers keep it over a redirect
        if (hasMoved) history.pushState(null, "", answer.url + hash);
        else history.replaceState(null, "");
        here = location.pathname + location.search;
        replace(found);
        if (hash) document.querySelector(hash)?.scrollIntoView({ block: "center" });
      } else if (hasMoved) location.assign(answer.url);
      else location.reload();
    } catch { if (!signal.aborted) location.reload(); }  // nobody knows whether it arrived: the page shows it
    if (body) isSending = false;
  };

  // On the window, so that listeners on the document come first; they may ask before a risky decision is sent.
  addEventListener("submit", (event) => {
    const form = event.target, button = event.submitter;
    if (event.defaultPrevented || !button?.matches("[data-request] :is([data-decides], [data-key])")) return;
    event.preventDefault();
    open(button.hasAttribute("formaction") ? button.formAction : form.getAttribute("action"), new URLSearchParams(new FormData(form, button)));
  });
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-queued]");
    if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open(link.href);
  });
  addEventListener("popstate", () => { if (location.pathname + location.search !== here) location.reload(); });
  return { page, afterPaint, say, sayN };
})();
