// Makes the inbox installable, and says so where there is no connection.
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
