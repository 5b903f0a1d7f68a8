// Keys, countdowns, the live list of changes and a guard for half-filled forms. Every page works without it.
"use strict";

(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);
  const rows = () => all("[data-row]");

  // -- what only makes sense with scripts ------------------------------------------------------------------
  all("[data-scripted], .keys-hint").forEach((part) => { part.hidden = false; });
  const atOnce = one("form[data-send-at-once]");
  if (atOnce) atOnce.requestSubmit();

  // A click that was meant for what stood here before must not decide.
  const inert = all("[data-decides]").filter((button) => !button.disabled);
  inert.forEach((button) => { button.disabled = true; });
  setTimeout(() => inert.forEach((button) => { button.disabled = false; }), 500);

  // -- countdowns ------------------------------------------------------------------------------------------
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const left = (seconds) => {
    if (seconds <= 0) return "expired";
    const first = units.findIndex(([, size]) => seconds >= size);
    let rest = seconds;
    const parts = units.slice(first, first + 2).map(([unit, size]) => {
      const count = Math.floor(rest / size);
      rest -= count * size;
      return count ? count + unit : "";
    });
    return "in " + parts.filter(Boolean).join(" ");
  };
  const tick = () => all("time[data-countdown]").forEach((part) => {
    const seconds = Math.round((Date.parse(part.dateTime) - Date.now()) / 1000);
    const live = part.closest("[aria-live]");
    // Read aloud at five minutes and at one only, not every second.
    if (live) live.setAttribute("aria-live", [300, 60, 0].includes(seconds) ? "polite" : "off");
    part.textContent = left(seconds);
  });
  if (one("time[data-countdown]")) { tick(); setInterval(tick, 1000); }

  // -- live updates ----------------------------------------------------------------------------------------
  document.addEventListener("htmx:sse:after:message", () => {
    const count = one("#pending").dataset.pending;
    document.title = document.title.replace(/^Inbox \(\d+\)/, `Inbox (${count})`);
    // What was decided elsewhere cannot be selected any more; its row stays where it is, and says who it was.
    all(".row:has(.gone) [name=id]").forEach((box) => {
      if (one(".state-pending", box.closest("[data-row]"))) return;
      box.checked = false;
      box.disabled = true;
    });
  });

  const notLive = one("[data-not-live]");
  const tell = (isLive) => { if (notLive) notLive.hidden = isLive; };
  // The first connection fails as any request does, a later one as a stream's.
  ["htmx:error", "htmx:response:error", "htmx:sse:error"].forEach((fault) => {
    document.addEventListener(fault, () => tell(false));
  });
  document.addEventListener("htmx:sse:after:connection", () => tell(true));

  // -- what was changed in the form ------------------------------------------------------------------------
  const form = one("form[data-decide]");
  const fieldsOf = (root) => all("input:not([type=hidden]), select, textarea", root);
  const fields = form ? fieldsOf(form) : [];
  const label = (field) => {
    const named = one(`label[for="${CSS.escape(field.id)}"]`);
    return named && named.textContent.trim() ? named.firstChild.textContent.trim() : field.name;
  };
  const shown = (field) => field.tagName === "SELECT" ? field.selectedOptions[0].text : field.value;
  // What is proposed is what the page was sent with, or says of a field; not what stands there as this runs, for
  // whoever is quick has written by then, and browsers fill in what they remember.
  const sent = form ? form.cloneNode(true) : null;
  if (sent) sent.reset();
  const rendered = sent ? fieldsOf(sent).map((field) => field.value) : [];
  const before = new Map();
  if (sent) fieldsOf(sent).forEach((field, place) => {
    if ("proposed" in field.dataset) field.value = field.dataset.proposed;
    before.set(fields[place], [field.value, shown(field)]);
  });
  const isChanged = (field) => field.value !== before.get(field)[0];
  // A value given where there was none is one change, though two fields say so.
  const isTwice = (field) => {
    const value = field.name.endsWith(".way") && form.elements[field.name.slice(0, -4)];
    return value && isChanged(value);
  };
  const edited = () => fields.filter((field) => field.name !== "note" && isChanged(field) && !isTwice(field));
  const isDirty = () => fields.some(isChanged);
  const show = () => {
    const found = edited(), box = one("[data-live-diff]", form), approve = one("[data-approve]", form);
    if (!box || !approve) return;
    all("[data-previewed]", form).forEach((part) => part.remove());  // it is of what was sent, and that was changed
    box.hidden = !found.length;
    one("ul", box).replaceChildren(...found.map((field) => {
      const item = document.createElement("li");
      item.textContent = `${label(field)}: ${before.get(field)[1] || "(nothing)"} → ${shown(field) || "(nothing)"}`;
      return item;
    }));
    approve.textContent = found.length ? `Approve with ${found.length} change${found.length > 1 ? "s" : ""}` : "Approve";
  };
  let isSent = false;
  if (form) {
    form.addEventListener("input", (event) => {
      const way = form.elements[`${event.target.name}.way`];
      if (way && way.value !== "value") way.value = "value";  // whoever writes a value means it
      const value = event.target.name.endsWith(".way") && form.elements[event.target.name.slice(0, -4)];
      if (value && event.target.value !== "value") value.value = before.get(value)[0];  // and who takes it back, that
      show();
    });
    form.addEventListener("submit", () => { isSent = true; });
    const isAsRendered = () => fields.every((field, place) => field.value === rendered[place]);
    addEventListener("pageshow", () => { if (!isAsRendered() || !one("[data-previewed]", form)) show(); });
    addEventListener("beforeunload", (event) => { if (isDirty() && !isSent) event.preventDefault(); });
  }

  // -- select all ------------------------------------------------------------------------------------------
  const every = one("[data-all]");
  if (every) every.addEventListener("change", () => {
    all("[name=id]:not(:disabled)").forEach((box) => { box.checked = every.checked; });
  });

  // -- keys ------------------------------------------------------------------------------------------------
  const dialog = one("#keys"), toggle = one("#keys-on");
  const isOn = () => localStorage.getItem("sayso-keys") !== "off";
  toggle.checked = isOn();
  toggle.addEventListener("change", () => localStorage.setItem("sayso-keys", toggle.checked ? "on" : "off"));
  one("#keys-open").addEventListener("click", () => dialog.showModal());

  let at = -1, prefix = 0;
  const go = (step) => {
    const list = rows();
    if (!list.length) return;
    at = Math.min(Math.max(at + step, 0), list.length - 1);
    list.forEach((row, place) => row.classList.toggle("at", place === at));
    one("a", list[at]).focus();
    list[at].scrollIntoView({ block: "nearest" });
  };
  const press = (key) => {
    const button = one(`[data-key="${key}"]`);
    if (!button || button.disabled) return;
    if (key === "a" && button.dataset.risk && !confirm(`Risk ${button.dataset.risk}. Approve?`)) return;
    button.focus();
    button.click();
  };
  // In the list a key decides nothing: it leads to the page that lists in full what is selected, and asks.
  const ask = (verb) => {
    const list = one("form[data-list]"), here = rows()[at] && one("[name=id]:not(:disabled)", rows()[at]);
    if (!list) return;
    if (!one("[name=id]:checked", list) && here) here.checked = true;
    if (one("[name=id]:checked", list)) list.requestSubmit(one(`button[value=${verb}]`, list));
  };
  const deeds = {
    j: () => go(1), k: () => go(-1), "?": () => dialog.showModal(),
    x: () => { const box = rows()[at] && one("[name=id]:not(:disabled)", rows()[at]); if (box) box.checked = !box.checked; },
    e: () => { if (fields.length) fields[0].focus(); },
    a: () => one('[data-key="a"]') ? press("a") : ask("approve"),
    r: () => one('[data-key="r"]') ? press("r") : ask("reject"),
    f: () => { const note = one("#note"); if (note && !note.value.trim()) note.focus(); else press("f"); },
  };
  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || !isOn()) return;
    if (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && target.type !== "checkbox") return;
    if (Date.now() - prefix < 1500) {
      prefix = 0;
      const link = one(`[data-go="${event.key}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { prefix = Date.now(); return; }
    const deed = deeds[event.key];
    if (deed) { event.preventDefault(); deed(); }
  });
})();
