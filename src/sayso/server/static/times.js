// Times: countdowns, and points in time in the reader's time zone and language.
"use strict";

(() => {
  const { say } = sayso;
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // -- countdowns ------------------------------------------------------------------------------------------
  const units = [
    [(count) => say("%(count)sd", { count }), 86400], [(count) => say("%(count)sh", { count }), 3600],
    [(count) => say("%(count)sm", { count }), 60], [(count) => say("%(count)ss", { count }), 1],
  ];
  const left = (seconds) => {
    if (seconds <= 0) return say("expired");
    const first = units.findIndex(([, size]) => seconds >= size);
    let rest = seconds;
    const parts = units.slice(first, first + 2).map(([unit, size]) => {
      const count = Math.floor(rest / size);
      rest -= count * size;
      return count ? unit(count) : "";
    });
    return say("in %(span)s", { span: parts.filter(Boolean).join(" ") });
  };
  const tick = () => all("time[data-countdown]").forEach((part) => {
    const seconds = Math.round((Date.parse(part.dateTime) - Date.now()) / 1000);
    const live = part.closest("[aria-live]");
    // Screen readers announce it only at five minutes, at one and at the end, not every second.
    if (live) live.setAttribute("aria-live", [300, 60, 0].includes(seconds) ? "polite" : "off");
    part.textContent = left(seconds);
    part.classList.toggle("soon", seconds < 900);
  });

  // -- times of sayso: in the reader's time zone; the title also has UTC ---------------------------------------
  const tag = document.documentElement.lang, spoken = navigator.languages.find((one) => one.split("-")[0] === tag.split("-")[0]) || tag;
  const made = new Map();  // making a formatter takes 10 ms
  const format = (at, options) => {
    const key = JSON.stringify(options);
    if (!made.has(key)) made.set(key, new Intl.DateTimeFormat(spoken, options));
    return made.get(key).format(at);
  };
  const localize = (part) => {
    const at = new Date(part.dateTime);
    if (isNaN(at)) return;
    const local = format(at, { dateStyle: "medium", timeStyle: "medium" });
    if ("clock" in part.dataset) part.textContent = local;
    else part.title = `${local} (${part.dateTime})`;
  };

  // -- times among the arguments, which stay as they are: the day of the week, and the reader's time -----------------
  // A string counts as a whole, so that a time in the middle of a text is none. One without a zone is no point in time.
  const VALUE = /"(?:[^"\\]|\\.)*"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:?\d\d)?(?:\[[^\]]+\])?)?/g;
  const MOMENT = /^"?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)\d*(?:Z|([+-])(\d\d):?(\d\d))(?:\[[^\]]+\])?"?$/;
  const small = (textContent, className = "") => Object.assign(document.createElement("small"), { textContent, className });
  const weekday = (text) => {
    const [found, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)(?![^T])/.exec(text) || [];
    return found ? [small(format(Date.UTC(year, month - 1, day), { weekday: "long", timeZone: "UTC" }), "weekday")] : [];
  };
  const forReader = (text, words) => {
    const [, day, time, sign, hours, minutes] = MOMENT.exec(text) || [];
    const ahead = Number(`${sign || "+"}1`) * (Number(hours || 0) * 60 + Number(minutes || 0)), at = new Date(Date.parse(`${day}T${time}Z`) - ahead * 60_000);
    if (isNaN(at) || -at.getTimezoneOffset() === ahead) return [];
    const when = format(at, {
      weekday: "short", year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit",
      second: at.getSeconds() ? "2-digit" : undefined, timeZoneName: "short",
    });
    return [small(words.replace("{when}", when), "local")];
  };
  const explain = (part, words) => {
    const whole = part.textContent.trim(), walk = document.createTreeWalker(part, NodeFilter.SHOW_TEXT), nodes = [];
    while (walk.nextNode()) nodes.push(walk.currentNode);
    nodes.forEach((node) => [...node.data.matchAll(VALUE)].reverse().forEach(({ 0: text, index }) => {
      const found = [...(text === whole ? weekday(text) : []), ...forReader(text, words)];
      if (found.length) node.splitText(index + text.length).before(...found.flatMap((each, at) => at ? [" ", small("·"), " ", each] : [" ", each]));
    }));
  };

  // A moment that is typed without an offset is in the reader's time zone; without scripts it is UTC, as the hint says.
  const typedHere = (box, signal) => {
    box.placeholder = box.placeholder.replace(" (UTC)", "");
    box.form.addEventListener("formdata", ({ formData }) => {
      const [, day, time] = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)$/.exec(box.value.trim()) || [];
      const at = new Date(`${day}T${time}`);
      if (!isNaN(at)) formData.set(box.name, at.toISOString());
    }, { signal });
  };

  // A moment in a form is typed as text, which shows its offset. A picker beside it writes it, and shows what is written: the
  // offset that stands there stays, and without one it is that of the reader's zone. It has no name, so it is not sent, but a
  // form with a date that lacks its time is not sent either.
  const WRITTEN = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::\d\d(?:\.\d+)?)?(Z|[+-]\d\d:?\d\d|)$/;
  const offset = (at) => {
    const ahead = -at.getTimezoneOffset(), two = (count) => String(Math.floor(Math.abs(count))).padStart(2, "0");
    return `${ahead < 0 ? "-" : "+"}${two(ahead / 60)}:${two(ahead % 60)}`;
  };
  const addPicker = (box, signal) => {
    if (box.value.endsWith("]")) return;  // a named zone, to which the offset in front of it belongs
    const name = box.labels[0]?.textContent.trim() || "", ariaLabel = say("%(name)s: choose a date and time", { name });
    const picker = Object.assign(document.createElement("input"), { type: "datetime-local", max: "9999-12-31T23:59", ariaLabel });
    const read = () => WRITTEN.exec(box.value.trim()) || [];
    const follow = ({ target } = {}) => {
      const [, day, time] = read(), value = day ? `${day}T${time}` : "";
      if (target !== picker && picker.value !== value && (target === box || !picker.validity.badInput)) picker.value = value;
    };
    picker.addEventListener("input", () => {
      if (picker.validity.badInput) return;  // a part of it is missing
      box.value = picker.value && `${picker.value}:00${read()[3] ?? offset(new Date(picker.value))}`;
      box.dispatchEvent(new Event("input", { bubbles: true }));
    });
    const pair = Object.assign(document.createElement("span"), { className: "moment" });
    box.replaceWith(pair);
    pair.append(box, picker);
    document.addEventListener("input", follow, { signal });
    addEventListener("pageshow", follow, { signal });
    sayso.afterPaint(follow);  // after a draft is restored
  };

  sayso.page((signal) => {
    all("[data-moment]").forEach((box) => addPicker(box, signal));
    if (one("time[data-countdown]")) {
      tick();
      const ticking = setInterval(tick, 1000);
      signal.addEventListener("abort", () => clearInterval(ticking));
    }
    all("time[datetime][title][data-clock]").forEach(localize);
    all("[data-typed-here]").forEach((box) => typedHere(box, signal));
    sayso.afterPaint(() => {
      all("time[datetime][title]:not([data-clock])").forEach(localize);
      all("[data-local] :is(.is-code, .is-list) > [data-as-is], [data-local] [data-value]").forEach((part) => {
        explain(part, part.closest("[data-local]").dataset.local);
      });
    });
  });
})();
