// Where several calls are decided: totals of those that are ticked, and a question about risk that names the risky ones.
"use strict";

sayso.page((signal) => {
  // Back and a reload would send a form again, so the page of its results takes the address of one that shows the same.
  const results = document.querySelector("[data-address]");
  if (results) history.replaceState(null, "", results.dataset.address);
  const form = document.querySelector("[data-ticks]"), LISTED = 5;
  if (!form) return;
  const [group, point] = [form.dataset.separators[1], form.dataset.separators[5]];
  const filled = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const all = (selector, root = form) => [...root.querySelectorAll(selector)];
  // Numbers are added exactly, as integers of the smallest decimal, and written as the server writes amounts.
  const money = (amounts) => {
    const parts = amounts.map((text) => text.split(".")), places = Math.max(...parts.map(([, decimals = ""]) => decimals.length));
    const sum = parts.reduce((sum, [whole, decimals = ""]) => sum + BigInt(whole + decimals.padEnd(places, "0")), 0n);
    const digits = `${sum < 0n ? -sum : sum}`.padStart(places + 1, "0"), decimals = digits.slice(digits.length - places);
    const whole = digits.slice(0, digits.length - places).replace(/\B(?=(\d{3})+$)/g, group);
    return (sum < 0n ? "-" : "") + whole + (places ? point + decimals.padEnd(2, "0") : "");
  };
  const totalsOf = (cells) => {
    const amounts = (unit) => cells.filter((cell) => cell.dataset.unit === unit).map((cell) => cell.dataset.amount);
    return [...new Set(cells.map((cell) => cell.dataset.unit))].map((unit) => `${money(amounts(unit))} ${unit}`.trim());
  };
  const show = () => {
    const sums = [];
    all("table:has(tfoot)").forEach((table) => {
      const rows = all("tbody [data-row]", table), ticked = rows.filter((row) => row.querySelector("[name=item]:checked"));
      const head = table.querySelector("[data-of]");
      head.dataset.whole ??= head.textContent;
      head.textContent = ticked.length === rows.length ? head.dataset.whole : filled(head.dataset.of, { part: ticked.length, whole: rows.length });
      all("[data-total]", table).forEach((place) => {
        const totals = totalsOf(ticked.flatMap((row) => all(`[data-column="${place.dataset.total}"]`, row)));
        place.replaceChildren(...totals.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
        if (totals.length) sums.push(filled(form.dataset.inTotal, { name: place.dataset.name, totals: totals.join(" + ") }));
      });
    });
    const button = form.querySelector("button[value=approve]"), risky = all("[data-high]:checked"), unread = all("[data-unread]:checked");
    if (!button) return;
    delete button.dataset.risk;
    delete button.dataset.question;
    if (risky.length) button.dataset.risk = [...new Set(risky.map((box) => box.dataset.high))].join(", ");
    else if (unread.length) button.dataset.question = sayso.sayN("%(num)s text is not like the others. Approve?", "%(num)s texts are not like the others. Approve?", unread.length);
    else return;
    const named = [...new Set([...risky, ...unread])], lines = named.slice(0, LISTED).map((box) => box.dataset.line), more = named.length - lines.length;
    if (more) lines.push(filled(form.dataset.more, { count: more }));
    button.dataset.what = [button.firstChild.textContent, ...lines, ...sums].join("\n");
  };
  // The buttons show how many requests are ticked.
  const tally = () => {
    const ticks = all("[name=item]"), ticked = ticks.filter((box) => box.checked).length;
    all("[data-counts]").forEach((button) => {
      const count = ticked === ticks.length ? `${ticked}` : sayso.say("%(part)s of %(whole)s", { part: ticked, whole: ticks.length });
      button.firstChild.textContent = button.dataset.counts.replace("{}", count);
      if (!ticked) delete button.dataset.soonLive;  // or the end of the first half second would enable it
      if (!("soonLive" in button.dataset)) button.disabled = !ticked;
    });
    all("[data-all-of]").forEach((box) => {
      const own = all("[name=item]", box.closest("table"));
      box.checked = own.length > 0 && own.every((tick) => tick.checked);
    });
    show();
  };
  document.addEventListener("change", ({ target }) => {
    if (target.name === "item") delete target.dataset.unread;
    if ("allOf" in target.dataset) all("[name=item]", target.closest("table")).forEach((tick) => {
      // Whoever ticks a call by itself has its text before them; nobody has read all that are ticked at once.
      if ("unlike" in tick.dataset && target.checked && !tick.checked) tick.dataset.unread = "";
      tick.checked = target.checked;
    });
    tally();
    const ticks = Object.fromEntries(all("[name=item]").map((tick) => [tick.value, tick.checked]));
    history.replaceState({ ...history.state, ticks }, "");
  }, { signal });
  // After Back, browsers tick rows by their number, and other calls may have these numbers by now.
  const restore = () => {
    all("[name=item]").forEach((tick) => {
      tick.checked = history.state?.ticks?.[tick.value] ?? tick.defaultChecked;
      if ("unlike" in tick.dataset && tick.checked) tick.dataset.unread = "";
    });
    tally();
  };
  addEventListener("pageshow", restore, { signal });
  restore();
});
