// A long text that scrolls in a box of its own: says that there is more, and finds words in it. Enter goes to the next.
"use strict";

(() => {
  document.querySelectorAll("[data-whole]").forEach((button) => {
    const box = button.parentElement.previousElementSibling;
    const left = () => box.scrollHeight - box.clientHeight - box.scrollTop;
    if (left() <= 1) return;
    button.parentElement.hidden = button.hidden = false;
    button.addEventListener("click", () => { box.style.maxHeight = "none"; button.hidden = true; box.focus(); });
    box.addEventListener("scroll", () => { button.hidden = left() <= 1; });
  });
  if (!CSS.highlights) return;  // an older browser still has its own search
  const MOST = 2_000;
  const plain = (words) => words.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
  // Return the places of the words in a box, of which code is many elements.
  const rangesOf = (box, words) => {
    const nodes = [], walk = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    let text = "";
    while (walk.nextNode()) { nodes.push([text.length, walk.currentNode]); text += walk.currentNode.data; }
    const found = [];
    for (const { 0: hit, index } of words ? text.matchAll(new RegExp(plain(words), "giu")) : []) {
      const first = nodes.findLast(([start]) => start <= index), last = nodes.findLast(([start]) => start < index + hit.length);
      const range = document.createRange();
      range.setStart(first[1], index - first[0]);
      range.setEnd(last[1], index + hit.length - last[0]);
      found.push(range);
      if (found.length === MOST) break;
    }
    return found;
  };
  document.querySelectorAll("[data-find]").forEach((bar) => {
    const box = bar.previousElementSibling, field = bar.querySelector("input"), count = bar.querySelector("output");
    if (box.scrollHeight <= box.clientHeight + 1) return;  // all of it is in sight
    let found = [], at = 0;
    const show = () => {
      CSS.highlights.set("found", new Highlight(...found));
      CSS.highlights.set("found-now", new Highlight(...found.slice(at, at + 1)));
      const whole = `${found.length.toLocaleString(document.documentElement.lang)}${found.length === MOST ? "+" : ""}`;
      count.value = found.length ? bar.dataset.of.replace("{part}", at + 1).replace("{whole}", whole) : field.value ? bar.dataset.none : "";
      if (!found.length) return;
      const hit = found[at].getBoundingClientRect(), frame = box.getBoundingClientRect();
      if (hit.top < frame.top || hit.bottom > frame.bottom) box.scrollTop += hit.top - frame.top - box.clientHeight / 2;
      if (hit.left < frame.left || hit.right > frame.right) box.scrollLeft += hit.left - frame.left - box.clientWidth / 2;
    };
    field.addEventListener("input", () => { found = rangesOf(box, field.value); at = 0; show(); });
    field.addEventListener("focus", () => { if (field.value) show(); });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      event.stopPropagation();  // Ctrl+Enter decides only where a decision is written
      if (found.length) at = (at + (event.shiftKey ? found.length - 1 : 1)) % found.length;
      show();
    });
    bar.hidden = false;
  });
})();
