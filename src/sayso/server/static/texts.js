// Long texts: the lines in which two differ; and in a box that scrolls, that there is more, and a search. Enter goes to the
// next place.
"use strict";

// Return the lines of a text that differ, with `around` lines of context, as pairs of sign and line.
sayso.differing = (was, is, around) => {
  const one = was ? was.split("\n") : [], other = is ? is.split("\n") : [];
  let head = 0, tail = 0;
  while (head < Math.min(one.length, other.length) && one[head] === other[head]) head += 1;
  while (tail < Math.min(one.length, other.length) - head && one.at(-1 - tail) === other.at(-1 - tail)) tail += 1;
  const old = one.slice(head, one.length - tail), now = other.slice(head, other.length - tail), steps = [];
  // Table of the longest common subsequence. Skipped for very long texts, because this runs on each keystroke.
  const common = old.length * now.length > 250_000 ? null : Array.from(old, () => new Uint16Array(now.length + 1));
  if (common) common.push(new Uint16Array(now.length + 1));
  for (let i = old.length - 1; common && i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      common[i][j] = old[i] === now[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  for (let i = 0, j = 0; i < old.length || j < now.length;) {
    if (common && i < old.length && j < now.length && old[i] === now[j]) { steps.push([" ", old[i]]); i += 1; j += 1; }
    else if (j === now.length || i < old.length && (!common || common[i + 1][j] >= common[i][j + 1])) steps.push(["-", old[i++]]);
    else steps.push(["+", now[j++]]);
  }
  const same = (lines) => lines.map((line) => [" ", line]);
  const every = [...same(one.slice(0, head)), ...steps, ...same(other.slice(other.length - tail))];
  const isNear = every.map((_, at) => every.slice(Math.max(0, at - around), at + around + 1).some(([sign]) => sign !== " "));
  return every.flatMap((line, at) => isNear[at] ? [line] : at && !isNear[at - 1] ? [] : [["…", ""]]);
};

sayso.page(() => sayso.afterPaint(() => {
  document.querySelectorAll("[data-find] [data-whole]").forEach((button) => {
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
}));
