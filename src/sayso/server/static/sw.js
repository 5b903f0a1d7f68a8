// Makes the inbox installable, says so where there is no connection, and shows what the server pushes (push.py).
// It keeps these files of one version and nothing else: what waits must not stay on a device.
"use strict";

const BASE = new URL("./", location.href).href;  // the folder of this version, /static/DIGEST/
const OFFLINE = `${BASE}offline.html`, KEPT = [OFFLINE, `${BASE}app.css`, `${BASE}icon.svg`];

const CACHE = `sayso ${BASE}`;

addEventListener("install", (event) => event.waitUntil((async () => {
  await (await caches.open(CACHE)).addAll(KEPT);
  await skipWaiting();
})()));
addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith("sayso ") && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  // The browser itself asks for a page: what this worker asks for has other headers, and passes for one of our pages.
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
addEventListener("push", (event) => event.waitUntil((async () => {
  const about = event.data.json(), before = await registration.getNotifications({ tag: about.request || "sayso" });
  const isNews = !about.is_over && !before.some(({ data }) => data && data.id === about.id);
  await show(about.title, about, {
    silent: !isNews, renotify: isNews, actions: about.approve ? [{ action: "approve", title: "Approve" }] : [],
  });
})()));

// In the session of this browser, of what this notification showed; who is signed out gets the page.
const approve = async (about) => {
  const me = await fetch(page("api/v1/me"));
  if (me.status === 401) return open(about);
  const body = new URLSearchParams({ csrf: (await me.json()).csrf, seen: about.approve });
  const answer = await fetch(page(`notified/${about.request}/approve`), { method: "POST", body });
  if (answer.status === 401) return open(about);
  const undo = answer.ok ? await answer.text() : "";
  const said = answer.ok ? `Approved${undo && `; it can be undone for ${undo} s`}` : "Not approved: open it to see why";
  return show(`${said} · ${about.title}`, about, { silent: true });
};
addEventListener("notificationclick", (event) => {
  const { notification: { data }, action } = event;
  event.notification.close();
  event.waitUntil(action !== "approve" ? open(data) : approve(data).catch(() => show(`Not known whether it was approved: open it · ${data.title}`, data)));
});
