// Times of the reader beside the arguments of a request, and fields that are refused while somebody types.
"use strict";

(() => {
  // The reader's time beside a point in time with another zone; the value stays as it is. One without a zone gets none.
  const MOMENT = /^"?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)\d*(?:Z|([+-])(\d\d):?(\d\d))(?:\[[^\]]+\])?"?$/;
  const localize = (part, words) => {
    const [, day, time, sign, hours, minutes] = MOMENT.exec(part.firstChild?.textContent.trim() || "") || [];
    const ahead = Number(`${sign || "+"}1`) * (Number(hours || 0) * 60 + Number(minutes || 0)), at = new Date(Date.parse(`${day}T${time}Z`) - ahead * 60_000);
    if (isNaN(at) || -at.getTimezoneOffset() === ahead) return;
    const tag = document.documentElement.lang, spoken = navigator.languages.find((one) => one.split("-")[0] === tag.split("-")[0]) || tag;
    const when = at.toLocaleString(spoken, {
      weekday: "short", year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit",
      second: at.getSeconds() ? "2-digit" : undefined, timeZoneName: "short",
    });
    part.append(" ", Object.assign(document.createElement("small"), { className: "local", textContent: words.replace("{when}", when) }));
  };
  // After the paint, and so after app.js has added the day of the week.
  sayso.page(() => sayso.afterPaint(() => document.querySelectorAll("[data-local]").forEach((box) => {
    box.querySelectorAll(".is-code > [data-as-is]").forEach((part) => localize(part, box.dataset.local));
  })));

  // The bound of a grant is at most the call's own number. An edit may raise that; then the server alone compares them.
  const LONGEST = 16;  // longer numbers are not exact
  const check = (field) => {
    const { value, dataset: { most } } = field, isEdited = document.querySelector("#call .is-edited") !== null;
    const isOver = !isEdited && value.length < LONGEST && most.length < LONGEST && Number(value) > Number(most);
    field.setCustomValidity(isOver ? field.parentElement.querySelector("small").textContent : "");
  };
  document.addEventListener("input", () => document.querySelectorAll("[data-most]").forEach(check));
  // A browser says nothing of a refused field in a part that is folded.
  document.addEventListener("invalid", ({ target }) => { const part = target.closest("details"); if (part) part.open = true; }, true);
})();
