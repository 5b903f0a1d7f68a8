// Fields of a request's page that are refused while somebody types.
"use strict";

(() => {
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
