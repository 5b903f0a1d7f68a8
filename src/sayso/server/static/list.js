// In a list the whole row opens what it is about. Links and boxes in it keep their own meaning, and its text can be selected.
"use strict";

sayso.page((signal) => {
  let from = null;
  addEventListener("pointerdown", (event) => { from = event; }, { signal });
  for (const kind of ["click", "auxclick"]) {
    addEventListener(kind, (event) => {
      const link = event.target.closest(".row")?.querySelector(".what"), isMiddle = event.button === 1;
      if (!link || event.defaultPrevented || event.button > 1 || event.target.closest("a, button, input, label, summary")) return;
      if (from && Math.hypot(event.clientX - from.clientX, event.clientY - from.clientY) > 4) return;  // it selected a text
      const { ctrlKey, metaKey, shiftKey } = isMiddle ? { ctrlKey: true, metaKey: true } : event;  // in a tab of its own
      link.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey, metaKey, shiftKey }));
    }, { signal });
  }
});
