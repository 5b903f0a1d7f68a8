// Turns notifications on in this browser: subscribes at its push service and sends the subscription to the server.
"use strict";

(() => {
  const form = document.querySelector("[data-push]"), can = form && "PushManager" in window && "Notification" in window && navigator.serviceWorker;
  if (!can) return;
  form.hidden = false;
  document.querySelector("[data-no-push]").hidden = true;
  form.elements.name.value = (navigator.userAgentData ? `${navigator.userAgentData.platform}` : navigator.platform) || "";
  const fault = form.querySelector("[data-push-fault]");
  const tell = (words) => { fault.textContent = words; fault.hidden = false; };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      if (await Notification.requestPermission() !== "granted") { tell(fault.dataset.pushDenied); return; }
      const { pushManager } = await navigator.serviceWorker.ready, before = await pushManager.getSubscription();
      if (before) await before.unsubscribe();  // it may be for another server key
      const { endpoint, keys } = (await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: form.dataset.push })).toJSON();
      Object.entries({ endpoint, ...keys }).forEach(([name, value]) => { if (form.elements[name]) form.elements[name].value = value; });
      form.submit();
    } catch { tell(fault.dataset.pushFault); }
  });
})();
