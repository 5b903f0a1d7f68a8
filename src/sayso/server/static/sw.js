// Service worker: makes the inbox installable, shows a page when offline, and shows push notifications (push.py).
// It caches only the static files below, of one version: requests must not stay on a device.
"use strict";

const BASE = new URL("./", location.href).href;  // the directory of this version, /static/DIGEST/
const OFFLINE = `${BASE}offline.html`, KEPT = [OFFLINE, `${BASE}app.css`, `${BASE}icon.svg`];

const CACHE = `sayso ${BASE}`;

addEventListener("install", (event) => event.waitUntil((async () => {
  await (await caches.open(CACHE)).addAll(KEPT);
  await skipWaiting();
})()));
addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith("sayso ") && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  // Let the browser request pages itself: a request by this worker has other headers, and looks same-origin.
  if (registration.navigationPreload) await registration.navigationPreload.enable();
})()));

const offline = async () => {
  const kept = await caches.match(OFFLINE), headers = new Headers(kept.headers);
  headers.set("cache-control", "no-store");
  ["content-encoding", "content-length", "etag"].forEach((name) => headers.delete(name));
  return new Response((await kept.text()).replaceAll("static:", BASE), { status: 503, headers });
};
addEventListener("fetch", (event) => {
  const { request } = event;
  if (KEPT.includes(request.url)) event.respondWith(caches.match(request.url).then((kept) => kept || fetch(request)));
  else if (request.mode === "navigate" && request.method === "GET" && registration.navigationPreload) {
    event.respondWith(Promise.resolve(event.preloadResponse).then((page) => page || fetch(request)).catch(offline));
  }
});

// -- notifications ----------------------------------------------------------------------------------------------
const page = (path) => new URL(path, registration.scope).href;
const show = (title, about, more = {}) => registration.showNotification(title, {
  body: about.body, tag: about.request || "sayso", data: about, icon: `${BASE}icon-192.png`, ...more,
});
const open = async (about) => {
  const address = page(about.request ? `r/${about.request}` : ""), tabs = await clients.matchAll({ type: "window" });
  const there = tabs.find((tab) => tab.url === address);
  return there ? there.focus() : clients.openWindow(address);
};
// The server writes the texts in the reader's language (push.py). A message may be older than its version of the server.
const ENGLISH = {
  approve: "Approve", reject: "Reject", why: "Why", approved: "Approved", rejected: "Rejected",
  undo: "Approved; it can be undone for {count} s", not_approved: "Not approved: open it to see why",
  not_rejected: "Not rejected: open it to see why", lost: "Not known whether it was decided: open it",
};
const wordsOf = (about) => ({ ...ENGLISH, ...about.words });
// The reason of a rejection is typed where the browser has a field for it; else the program is told that there is none.
const actionsOf = (words) => [
  { action: "approve", title: words.approve },
  { action: "reject", title: words.reject, ...("reply" in NotificationEvent.prototype ? { type: "text", placeholder: words.why } : {}) },
];
addEventListener("push", (event) => event.waitUntil((async () => {
  const about = event.data.json(), before = await registration.getNotifications({ tag: about.request || "sayso" });
  const isNews = !about.is_over && !before.some(({ data }) => data && data.id === about.id);
  await show(about.title, about, {
    silent: !isNews, renotify: isNews, actions: about.approve ? actionsOf(wordsOf(about)) : [],
  });
})()));

// Decide exactly what the notification showed, in this browser's session. Open the page instead if its person has signed
// out, even if somebody else has signed in since.
const DECIDED = { approve: "approved", reject: "rejected" };
const decide = async (about, verb, note) => {
  const me = await fetch(page("api/v1/me"));
  if (me.status === 401) return open(about);
  const { issuer, name, csrf } = await me.json();
  if (about.for !== `${issuer}:${name}`) return open(about);
  const body = new URLSearchParams({ csrf, seen: about.approve, note });
  const answer = await fetch(page(`notified/${about.request}/${verb}`), { method: "POST", body });
  if (answer.status === 401) return open(about);
  const undo = answer.ok ? await answer.text() : "", words = wordsOf(about), done = DECIDED[verb];
  const text = !answer.ok ? words[`not_${done}`] : undo ? words.undo.replace("{count}", undo) : words[done];
  return show(`${text} · ${about.title}`, about, { silent: true });
};
addEventListener("notificationclick", (event) => {
  const { notification: { data }, action, reply } = event;
  event.notification.close();
  event.waitUntil(!(action in DECIDED) ? open(data) : decide(data, action, reply || "").catch(() => show(`${wordsOf(data).lost} · ${data.title}`, data)));
});
