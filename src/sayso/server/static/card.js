// On the page of a request: the terms of a grant, and fields that are refused while somebody types.
"use strict";

sayso.page((signal) => {
  const one = (selector, root = document) => root.querySelector(selector);

  // Count earlier calls that a grant would match, when its form is opened and after each change of its terms.
  const grant = one("[data-grant]"), counter = one("[data-count-earlier]");
  if (grant) {
    let asked = 0, later = 0, isTyped = false;
    const look = async (isFirst) => {
      const mine = asked += 1, body = new URLSearchParams(new FormData(counter.form)), picture = one("[data-picture]", grant);
      if (!picture.textContent.trim()) picture.textContent = sayso.say("Counting…");
      const text = await fetch(counter.formAction, { method: "POST", body }).then((answer) => answer.text()).catch(() => "");
      if (mine !== asked) return;
      const found = new DOMParser().parseFromString(text, "text/html"), seen = one("[data-picture]", found);
      const why = one(".refusal[role=alert]", found);
      const terms = one("[data-terms]", grant), proposed = one("[data-terms]", found);
      if (isFirst && !isTyped && seen && seen.textContent.trim() && !terms.isEqualNode(proposed)) terms.replaceChildren(...proposed.children);
      picture.replaceChildren(...(why ? [why] : seen ? seen.children : []));
    };
    counter.hidden = true;
    grant.addEventListener("toggle", () => { if (grant.open && !one(".picture", grant)) look(true); });
    grant.addEventListener("input", () => {
      isTyped = true;  // maybe even before the first look, which would replace what is typed
      asked += 1;  // ignore a pending response, which is for earlier terms
      clearTimeout(later);
      later = setTimeout(look, 300);
    });
  }

  // The bound of a grant is at most the call's own number. An edit may raise that; then the server alone compares them.
  const LONGEST = 16;  // longer numbers are not exact
  const check = (field) => {
    const { value, dataset: { most } } = field, isEdited = one("#call .is-edited") !== null;
    const isOver = !isEdited && value.length < LONGEST && most.length < LONGEST && Number(value) > Number(most);
    field.setCustomValidity(isOver ? one("small", field.parentElement).textContent : "");
  };
  document.addEventListener("input", () => document.querySelectorAll("[data-most]").forEach(check), { signal });
  // A browser says nothing of a refused field in a part that is folded.
  document.addEventListener("invalid", ({ target }) => { const part = target.closest("details"); if (part) part.open = true; }, { capture: true, signal });
});
