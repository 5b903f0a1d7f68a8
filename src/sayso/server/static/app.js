// Keyboard shortcuts, previews of edits, drafts, and what becomes of a page when its request changes elsewhere. Every page works without this script.
"use strict";

sayso.page((signal) => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);
  const rows = () => all("[data-row]");

  const { say, sayN } = sayso;

  // -- parts of pages that need scripts --------------------------------------------------------------------
  all("[data-scripted], .keys-hint").forEach((part) => { part.hidden = false; });
  // Scroll the current tab into view if not all tabs fit.
  const menu = one(".top nav");
  sayso.afterPaint(() => {
    const [openPage, menuBox] = [one(".top nav [aria-current]"), menu].map((part) => part?.getBoundingClientRect());
    if (openPage) menu.scrollLeft += Math.max(openPage.right - menuBox.right + 24, 0) || Math.min(openPage.left - menuBox.left, 0);
  });
  menu?.addEventListener("focusin", (event) => event.target.scrollIntoView({ block: "nearest", inline: "nearest" }));  // browsers leave half of it out of sight
  one("form[data-send-at-once]")?.requestSubmit();

  // Disable decisions for 500 ms, so that a click meant for the previous page does not decide on this one.
  const inert = all("[data-decides]").filter((button) => !button.disabled);
  inert.forEach((button) => { button.disabled = true; button.dataset.soonLive = ""; });
  const live = setTimeout(() => all("[data-soon-live]").forEach((button) => {
    button.disabled = false;
    delete button.dataset.soonLive;
  }), 500);
  signal.addEventListener("abort", () => clearTimeout(live));  // it would enable those of the next page too early

  // -- the service worker, for installing and for a lost connection (sw.js) ------------------------------------
  const script = document.currentScript, scope = one(".brand");  // no script if this page took another's place
  if (navigator.serviceWorker && scope && script) {
    const worker = new URL("sw.js", script.src);
    addEventListener("load", () => navigator.serviceWorker.register(worker, { scope: scope.href }).catch(() => { /* optional */ }));
  }

  // -- live updates ----------------------------------------------------------------------------------------
  const stateBefore = (one("[data-request] .lead .state") || {}).textContent?.trim();
  const holder = () => one("[data-request] .lead .end")?.dataset.claimed, holderBefore = holder();
  let isSent = false;  // a form was submitted, so this page is about to be replaced
  document.addEventListener("submit", (event) => {
    const button = event.submitter, { risk, question } = button?.dataset ?? {};  // each risky approval asks: single, bulk or with a grant
    // With ticked terms of a grant, the server refuses a plain approval, so nothing is to be asked.
    const isRefused = button?.matches("[data-approve]") && one("[data-grant] [type=checkbox]:checked", form);
    if ((risk || question) && !isRefused && !event.target.elements.sure) {
      event.preventDefault();
      if (event.target !== form || fits()) askOnce(button, risk, question);
    }
    // A dialog's form sends nothing, nor does the first button of a form that decides.
    if ((button?.getAttribute("formmethod") || event.target.getAttribute("method")) !== "dialog") isSent = !event.defaultPrevented;
  }, { signal });
  // The confirmation must be a separate press: a double click or a held key must not confirm.
  const sure = one("#sure"), yes = one("#sure-yes");
  let asker = null, opening = 0;
  const askOnce = (button, risk, question) => {
    asker = button;
    const isGrant = button.getAttribute("formaction")?.endsWith("/grant"), span = isGrant && one("#lasts option:checked").textContent;
    one("#sure-title").textContent = question || (!isGrant ? say("Risk %(risk)s. Approve?", { risk })
      : say("Risk %(risk)s. Approve, and %(count)s more like it for %(span)s?", { risk, span, count: one("#count").value }));
    const card = button.form === form && one("#call dl.arguments");
    // The line of a list has no line ends and is shortened: the question shows the arguments as the card does, edits included.
    if (card) {
      markCard(edited());
      const copy = card.cloneNode(true);
      all(".find", copy).forEach((part) => part.remove());
      const warnings = all("[data-warnings] li").map((item) => Object.assign(marked("p", item.textContent), { className: "warn" }));
      const free = isGrant ? all("[name=without]:checked", form).map((box) => box.value).join(", ") : "";
      const talk = all(".talk li"), [who, words] = talk.length ? ["strong", ".words"].map((part) => one(part, talk.at(-1)).textContent) : [];
      if (talk.length) warnings.push(
        marked("p", sayN("Reviewers wrote %(num)s comment on it", "Reviewers wrote %(num)s comments on it", talk.length)),
        marked("p", `${who}: ${words.length > 300 ? `${words.slice(0, 300)}…` : words}`),
      );
      if (free) warnings.push(marked("p", say("In the calls after this one, these may be anything: %(names)s", { names: free })));
      one("#sure-what").replaceChildren(...warnings, marked("p", one(".lead h1").textContent), copy);
    } else one("#sure-what").textContent = button.dataset.what || button.firstChild.textContent;
    const changes = button.form === form ? edited() : [], list = one("#sure-changes");
    list.replaceChildren(...changes.map((field) => {
      const item = marked("li", `${label(field)}: `);
      item.append(...told(field));
      return item;
    }));
    list.parentElement.hidden = !changes.length;
    yes.disabled = true;
    sure.returnValue = "";
    sure.showModal();
    one("#sure-title").focus();
    clearTimeout(opening);
    opening = setTimeout(() => { yes.disabled = false; if (sure.open) yes.focus(); }, 500);
  };
  sure.addEventListener("close", () => {
    if (sure.returnValue !== "yes" || !asker) return;
    const told = Object.assign(document.createElement("input"), { type: "hidden", name: "sure", value: "yes" });
    asker.form.append(told);
    asker.form.requestSubmit(asker);
    told.remove();  // already in the submitted data; if it stayed, a later submit after Back would count as confirmed
  });
  sure.addEventListener("keydown", (event) => { if (event.repeat && event.key !== "Tab") event.preventDefault(); });
  const comment = one("#comment");
  const isWritten = () => isSent || comment !== null && comment.value.trim() !== "" || one("form[data-decide]") !== null && fields.some(isChanged);
  // Disable decisions because somebody else claimed or decided the request; keep what was written.
  const shut = (words) => {
    let why = one('[data-why-not="live"]', form);
    if (!why) {
      all("[data-why-not]", form).forEach((old) => { old.hidden = true; });  // it describes the state when the page was rendered
      why = Object.assign(document.createElement("p"), { className: "why-not" });
      why.dataset.whyNot = "live";
      one(".bar", form).prepend(why);
    }
    if (why.textContent !== words) why.textContent = words;
    all("[data-decides]", form).forEach((button) => {
      if (!button.disabled || "soonLive" in button.dataset) button.dataset.shut = "";
      button.disabled = true;
      delete button.dataset.soonLive;
    });
  };
  const reopen = () => {
    all('[data-why-not="live"]', form).forEach((why) => why.remove());
    all("[data-why-not]", form).forEach((why) => { why.hidden = false; });
    all("[data-shut]", form).forEach((button) => { button.disabled = false; delete button.dataset.shut; });
  };
  document.addEventListener("sayso:told", () => {
    const count = one("#pending")?.dataset.pending;  // the page to sign in has none
    if (one("#news.news")) document.title = document.title.replace(/\(\d+\)/, `(${count})`);
    // The state changed elsewhere: reload, or if something was written, keep it and disable decisions.
    const state = one("[data-request] .lead .state");
    if (state && !isWritten() && state.textContent.trim() !== stateBefore) { location.reload(); return; }
    if (state && form && !state.classList.contains("state-pending")) {
      shut(say("It is %(state)s and can no longer be decided here. Reload the page to see the result.", { state: state.textContent.trim() }));
    } else if (state && form) {
      const by = holder(), mine = ["", ...page.dataset.me.split("\n")];
      if (by === holderBefore) reopen();  // as rendered
      else if (!mine.includes(by) && one(".votes", page) && !isWritten()) location.reload();  // it may leave an approval to others
      else if (!mine.includes(by)) shut(say("%(by)s has claimed it. Reload the page to unclaim it and decide it yourself.", { by }));
      else if (mine.includes(holderBefore)) reopen();
      else if (!isWritten()) location.reload();
      else shut(say("%(by)s has unclaimed it. Reload the page to decide it; what you wrote is kept.", { by: holderBefore }));
    }
    // A request decided elsewhere cannot be selected; its row stays in place and shows who decided.
    all(".row:has(.gone) [name=id]").forEach((box) => {
      if (one(".state-pending", box.closest("[data-row]"))) return;
      box.checked = false;
      box.disabled = true;
    });
  }, { signal });
  all(".tools details").forEach((box) => box.addEventListener("toggle", () => { if (box.open) one("input:not([type=hidden])", box).focus(); }));
  all("[data-at-once]").forEach((field) => field.addEventListener("change", () => field.form.requestSubmit()));

  // -- changes in the form ---------------------------------------------------------------------------------
  const form = one("form[data-decide]");
  const fieldsOf = (root) => all("input[name]:not([type=hidden], [type=radio], [type=checkbox]), select, textarea", root)
    .filter((field) => !field.closest(".told"));
  const fields = form ? fieldsOf(form) : [];
  const label = (field) => {
    if (field.dataset.path) return field.dataset.path;
    const named = one(`label[for="${CSS.escape(field.id)}"]`);
    return named && named.textContent.trim() ? (named.firstChild.textContent.trim() || named.textContent.trim()) : field.name;
  };
  const money = (text) => text.replace(/^-?\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ",")).replace(/\.\d$/, (end) => `${end}0`)
    .replace(/[,.]/g, (sign) => say("1,234.5")[sign === "," ? 1 : 5]);
  // A number as JSON writes it; of `1250,5` too, where the page's language writes it so and it can mean no other number.
  const ungrouped = (text) => say("1,234.5")[5] === "," && /^-?(\d+|[1-9]\d{0,2}(\.\d{3})+),\d+$/.test(text) && !/^-?[1-9]\d{0,2},\d{3}$/.test(text)
    ? text.replaceAll(".", "").replace(",", ".") : text;
  // 1.250 where the page's language writes 2.300,50.
  const isTwofold = (text) => say("1,234.5")[5] === "," && /^[-+]?[1-9]\d{0,2}\.\d{3}$/.test(text);
  const amount = (typed, number) => /^-?\d+(\.\d+)?$/.test(number) && !isTwofold(typed) ? money(number) : typed;  // what is refused stays as typed
  const shown = ({ tagName, selectedOptions, dataset, value }) => tagName === "SELECT" ? selectedOptions[0].text
    : "amount" in dataset ? amount(value.trim(), ungrouped(value.trim())) : "number" in dataset ? ungrouped(value.trim()) : value;
  // Compare with the values as rendered, not with those when this script runs: by then the person may have typed, and
  // the browser may have restored earlier input.
  const sent = form ? form.cloneNode(true) : null;
  if (sent) sent.reset();
  const before = new Map();
  if (sent) fieldsOf(sent).forEach((field, place) => {
    if ("proposed" in field.dataset) field.value = field.dataset.proposed;
    before.set(fields[place], field);
  });
  const asNumber = (text) => text.trim() && text.length < 16 ? Number(ungrouped(text.trim())) : NaN;  // longer ones are not exact
  const isChanged = (field) => {
    const was = before.get(field).value;
    return field.value !== was && !("number" in field.dataset && asNumber(field.value) === asNumber(was));
  };
  // A value typed where there was none changes two fields but counts as one change.
  const isTwice = (field) => {
    const value = field.name.endsWith(".way") && form.elements[field.name.slice(0, -4)];
    return value && isChanged(value);
  };
  const edited = () => fields.filter((field) => field.name !== "note" && isChanged(field) && !isTwice(field));
  const marked = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  const isMoment = (text) => /^(\d{4}-\d\d-\d\d[T ])?\d\d:\d\d/.test(text), hasZone = (text) => /(Z|[+-]\d\d:?\d\d|\])$/.test(text.trim());
  const caution = (was, is) => {
    if (!isMoment(was) || !isMoment(is) || hasZone(was) === hasZone(is)) return "";
    return hasZone(was) ? say(". Warning: it lost its time zone") : say(". Warning: it now has a time zone; it had none");
  };
  const lined = (name, was, is, around) => {
    const box = Object.assign(document.createElement("pre"), { className: "lines", tabIndex: 0 });
    box.setAttribute("aria-label", say("%(path)s, line by line", { path: name }));
    box.append(...sayso.differing(was, is, around).map(([sign, text]) => {
      const line = document.createElement("span");
      line.className = `line${{ "+": " added", "-": " removed", "…": " gap" }[sign] || ""}`;
      line.append(sign === "…" ? sign : `${sign} `, sign === "-" ? marked("del", text) : sign === "+" ? marked("ins", text) : text, "\n");
      return line;
    }));
    return box;
  };
  const told = (field) => {
    const was = shown(before.get(field)), is = shown(field);
    if (`${was}${is}`.includes("\n")) return [lined(label(field), was, is, 3)];
    return [marked("del", was || say("(nothing)")), " → ", marked("ins", is || say("(nothing)"))];
  };
  // An amount and its currency, before and after a change of one or both. What cannot be edited is as in the card.
  const together = (names, text) => {
    const rest = text.trim().split(/ (?=\S+$)/);
    const [was, is] = [(field) => before.get(field), (field) => field].map((pick) => names.map((name, at) => {
      const [value, way] = [name, `${name}.way`].map((one) => form.elements[one]);
      return !value ? rest[at] : shown(pick(way && pick(way).value !== "value" ? way : value)) || say("(nothing)");
    }).join(" "));
    return [marked("del", was), " → ", marked("ins", is)];
  };
  // What the form itself can tell is wrong is said before the question about a high risk; the server checks everything.
  const flaw = (field) => {
    const text = field.value.trim(), { number, min, max, longest } = field.dataset, value = asNumber(text);
    if ("json" in field.dataset) {
      try { JSON.parse(text); } catch ({ message }) { return say("this is not valid JSON: %(fault)s", { fault: message }); }
    }
    if ([...field.value].length > Number(longest)) return say("length at most %(value)s", { value: longest });
    if (number === undefined && field.inputMode !== "decimal" || text.length > 15) return "";
    if (number === "whole" ? !Number.isInteger(value) : isNaN(value)) {
      if (number === "whole") return say("write a whole number, such as 12");
      return /^[-+]?[\d.,' ]*,[\d.,' ]*$/.test(text) ? say("write a number with a point before its decimals and no other sign, such as 4900.50")
        : say("write a number, such as 12.5");
    }
    if (isTwofold(text)) {
      return say("%(text)s has two meanings here; write %(whole)s or %(part)s", { text, whole: text.replace(".", ""), part: `${text}0` });
    }
    return value < Number(min) ? say("at least %(value)s", { value: min }) : value > Number(max) ? say("at most %(value)s", { value: max }) : "";
  };
  const fits = () => {
    const wrong = fields.find((field) => isChanged(field) && flaw(field));
    wrong?.setCustomValidity(flaw(wrong));
    return !wrong || wrong.reportValidity();
  };
  // Keep the focused field visible above the bar of buttons, which grows with each change.
  const room = new CSSStyleSheet();
  document.adoptedStyleSheets = [room];
  const clear = () => {
    room.replaceSync(`html { scroll-padding-bottom: ${one(".bar", form).offsetHeight + 16}px; }`);
    if (fields.includes(document.activeElement) && document.activeElement.id !== "note") {
      document.activeElement.scrollIntoView({ block: "nearest" });
    }
  };
  // Show the old and new value in the card for each argument that the form changes.
  const markCard = (found) => all("#call :is([data-argument], [data-pair])").forEach((part) => {
    if ("pair" in part.dataset) { part.hidden = found.length > 0; return; }  // it compares two proposed values
    const own = part.dataset.argument.split(" "), mine = found.filter((field) => own.includes(field.name.replace(/\.way$/, "").split(".")[0]));
    all("[data-edited]", part).forEach((old) => old.remove());
    part.classList.toggle("is-edited", mine.length > 0);
    const asIs = one("[data-as-is]", part), isPair = own.length > 1;  // an amount with its currency is one value
    const isInner = (field) => !isPair && field.name.replace(/\.way$/, "") !== own[0];
    const lines = isPair && mine.length ? [["", ...together(own, asIs.textContent)]]
      : mine.map((field) => [isInner(field) ? `${label(field)}: ` : "", ...told(field)]);
    const whole = mine.filter((field) => !isInner(field)), isGone = whole.length > 0 && !isPair && whole.every((field) => field.name.endsWith(".way"));
    asIs.hidden = whole.length > 0 && !isGone;
    asIs.classList.toggle("is-gone", isGone);
    if (mine.length && !whole.length) lines.unshift([marked("small", say("Before your changes below:"))]);
    lines.forEach((inside, at) => {
      const line = document.createElement("span");
      line.dataset.edited = "";
      line.append(...inside);
      if (at || whole.length) part.append(line);
      else part.prepend(line);
    });
  });
  const show = () => {
    const found = edited(), box = one("[data-live-diff]", form), approve = one("[data-approve] span", form);
    if (!box || !approve) return;
    all("[data-previewed]", form).forEach((part) => part.remove());  // the preview is outdated by this change
    box.hidden = !found.length;
    one("ul", box).replaceChildren(...found.map((field) => {
      const item = document.createElement("li");
      const was = shown(before.get(field)), is = shown(field);
      if (`${was}${is}`.includes("\n")) item.append(`${label(field)}:`, lined(label(field), was, is, 0));  // the card shows the context
      else item.textContent = `${label(field)}: ${was || say("(nothing)")} → ${is || say("(nothing)")}${caution(was, is)}`;
      return item;
    }));
    one("summary", box).textContent = sayN("%(num)s change", "%(num)s changes", found.length);
    markCard(found);
    const button = approve.closest("button");
    if ("voted" in button.dataset && !one("[data-why-not]", form)) button.disabled = !found.length;
    approve.textContent = found.length ? sayN("Approve with %(num)s change", "Approve with %(num)s changes", found.length) : say("Approve");
    clear();
  };

  // Drafts survive a reload, a server restart and a new sign-in of the same person. They are stored in this tab's session
  // storage until the request is decided, and apply only to exactly the call that was shown.
  const page = one("[data-request]");
  const drafts = (id) => Object.keys(sessionStorage).filter((name) => name.startsWith(`sayso-draft:${id}:`));
  if (page && "decided" in page.dataset) drafts(page.dataset.request).forEach((name) => sessionStorage.removeItem(name));
  const done = one("[data-done]");
  const forget = (part) => drafts(part.dataset.done).forEach((name) => sessionStorage.removeItem(name));
  if (done && !one("[data-key=z]", done)) forget(done);
  // Count the time for undo down. When it is over, hide the button, which would be refused, and drop the draft.
  all("[data-undo]").forEach((part) => {
    const count = one("[data-left]", part), late = all("[data-late]");
    count.setAttribute("aria-hidden", "true");  // or it would be read out every second
    late.forEach((other) => { other.hidden = true; });
    const step = () => {
      if (signal.aborted) return;  // the page is gone: its decision may be undone, and its draft in use again
      const left = Date.parse(part.dataset.undo) - Date.now();
      count.textContent = say("%(count)ss", { count: Math.ceil(left / 1000) });
      if (left > 0) { setTimeout(step, left % 1000 || 1000); return; }
      part.hidden = true;
      late.forEach((other) => { other.hidden = false; });
      if (done && done.contains(part)) forget(done);
    };
    step();
  });
  const draft = form && page ? `sayso-draft:${page.dataset.request}:${form.dataset.print}:${page.dataset.me.split("\n")[0]}` : "";
  const keep = (name, written) => {
    try {
      if (Object.keys(written).length) sessionStorage.setItem(name, JSON.stringify(written));
      else sessionStorage.removeItem(name);
    } catch { /* storage is full; a draft is optional */ }
  };
  const kept = (name) => JSON.parse(sessionStorage.getItem(name) || "{}");
  const grow = (area) => { area.rows = Math.min(Math.max(area.value.split("\n").length, 1), 8); };
  const restore = () => {
    if (fields.some((field) => "proposed" in field.dataset) || one("[role=alert]", page)) return;  // the server has filled the form
    const written = kept(draft);
    fields.forEach((field) => { if (field.name in written) field.value = written[field.name]; });
  };
  if (form) {
    const folded = one("[data-live-diff] details", form);
    if (folded && matchMedia("(max-width: 40rem)").matches) folded.open = false;  // the bar would take a third of a phone
    sayso.afterPaint(clear);
    restore();
    form.addEventListener("input", (event) => {
      fields.forEach((field) => field.setCustomValidity(""));
      const way = form.elements[`${event.target.name}.way`];
      if (way && way.value !== "value") way.value = "value";  // typing a value chooses it
      const value = event.target.name.endsWith(".way") && form.elements[event.target.name.slice(0, -4)];
      if (value && event.target.value !== "value") value.value = before.get(value).value;  // choosing otherwise resets the value
      show();
      keep(draft, Object.fromEntries(fields.filter(isChanged).map((field) => [field.name, field.value])));
      if (event.target.id === "note") grow(event.target);
    });
    addEventListener("pageshow", () => {
      if (!edited().length) return;
      const edit = one("[data-edit]", form);
      if (edit) edit.open = true;
      if (one("[data-previewed]", form)) markCard(edited());
      else show();
    }, { signal });
  }

  // A comment has a draft of its own, because it is about the request and not about one version of the call. It is kept
  // until the comment is on the page: a form that is sent may be refused, or arrive after a session has ended.
  if (comment && page) {
    const name = `sayso-comment:${page.dataset.request}:${page.dataset.me.split("\n")[0]}`, posted = all(".talk [data-mine]").length;
    const { text = "", before } = kept(name);
    if (posted > before) keep(name, {});
    else if (!comment.value) comment.value = text;
    grow(comment);
    comment.addEventListener("input", () => {
      keep(name, comment.value.trim() ? { text: comment.value } : {});
      grow(comment);
    });
    comment.form.addEventListener("submit", () => keep(name, { text: comment.value, before: posted }));
  }

  // -- select all ------------------------------------------------------------------------------------------
  const every = one("[data-all]");
  const picks = (rest = "") => all(`[name=id]${rest}, [name=alike]${rest}`);
  const count = () => {
    const chosen = picks(":checked").reduce((sum, box) => sum + Number(box.dataset.count || 1), 0);
    one("[data-selected]").textContent = chosen ? say("%(count)s selected:", { count: chosen }) : "";
    all(".bulk button").forEach((button) => { button.hidden = !chosen; });
  };
  if (every) {
    every.addEventListener("change", () => {
      picks(":not(:disabled)").forEach((box) => { box.checked = every.checked; });
      count();
    });
    document.addEventListener("change", (event) => { if (["id", "alike"].includes(event.target.name)) count(); }, { signal });
    addEventListener("pageshow", count, { signal });
    count();
  }
  // -- keys ------------------------------------------------------------------------------------------------
  const dialog = one("#keys"), toggle = one("#keys-on");
  const isOn = () => localStorage.getItem("sayso-keys") !== "off";
  toggle.addEventListener("change", () => localStorage.setItem("sayso-keys", toggle.checked ? "on" : "off"));
  const openKeys = () => { toggle.checked = isOn(); dialog.showModal(); one("#keys-title").focus(); };  // or the focus would go to the switch in its last line
  one("#keys-open").addEventListener("click", openKeys);

  let at = -1, prefix = 0;
  const go = (step) => {
    const queue = all("[data-queued]"), here = queue.findIndex((link) => link.hasAttribute("aria-current"));
    if (queue.length) {
      const next = queue[Math.min(Math.max(here + step, 0), queue.length - 1)];
      if (next !== queue[here]) next.click();
      return;
    }
    const list = rows();
    if (!list.length) return;
    at = Math.min(Math.max(at + step, 0), list.length - 1);
    list.forEach((row, place) => row.classList.toggle("at", place === at));
    one("a", list[at]).focus();
    list[at].scrollIntoView({ block: "nearest" });
  };
  const current = one("[data-queued][aria-current]");
  // Scroll only the list. The page stays at its top, where the name and the risk of the request are.
  if (current) {
    const queue = current.closest(".queue");
    queue.scrollTop = current.offsetTop - (queue.clientHeight - current.offsetHeight) / 2;
  }
  // Focus a part, and scroll only if it is out of view: the bar sticks to the edge, within its scroll padding.
  const reach = (part) => {
    const { top, bottom } = part.getBoundingClientRect();
    part.focus({ preventScroll: top >= 0 && bottom <= innerHeight });
  };
  const ready = (key) => {
    const button = one(`[data-key="${key}"]`);
    return button && !button.disabled && !button.closest("[hidden]") ? button : null;
  };
  const press = (key) => {
    const button = ready(key);
    if (button) { reach(button); button.click(); }
  };
  // A rejection is final, and the program needs its reason: the key first asks for it, then Ctrl+Enter rejects.
  const note = one("#note"), plain = note && note.placeholder;
  const aim = (button, words) => {
    all(".aimed").forEach((old) => old.classList.remove("aimed"));
    if (button) button.classList.add("aimed");
    note.placeholder = words;
  };
  // A click does the same: the first one focuses the note, the next one rejects. What is sent back needs a note.
  const whyNot = say("Why? Press Reject again, or Ctrl+Enter, to reject it");
  document.addEventListener("click", (event) => {
    const button = event.target.closest('[data-key="r"], [data-key="f"]');
    if (!button || !event.isTrusted || !note || note.value.trim()) return;
    const isAimed = button.classList.contains("aimed"), isBack = button.dataset.key === "f";
    if (isAimed && !isBack && !("soonLive" in button.dataset)) return;
    event.preventDefault();
    // Short, for the one line of a phone.
    aim(button, isBack ? say("What should be different?") : say("Why? Press Reject again to reject it"));
    reach(note);
    if (isAimed || isBack) return;  // ignore the second click of a double click
    button.dataset.soonLive = "";
    setTimeout(() => { delete button.dataset.soonLive; }, 500);
  }, { signal });
  const refuse = (key, words) => {
    const button = ready(key);
    if (!button || !note || note.value.trim()) { press(key); return; }
    aim(button, words);
    reach(note);
  };
  const different = say("What should be different? Ctrl+Enter sends it back");
  if (note && note.dataset.aims) {  // what was refused is what the next Ctrl+Enter in the note sends
    aim(one(`[data-key="${note.dataset.aims}"]`), note.dataset.aims === "f" ? different : whyNot);
    reach(note);
  }
  // A problem that the server found is no longer said of what is typed anew.
  document.addEventListener("input", ({ target }) => {
    const problem = target.id && document.getElementById(`${target.id}-problem`);
    if (problem) { problem.remove(); target.removeAttribute("aria-invalid"); }
  }, { signal });
  // In a list, a key does not decide: it opens the bulk page, which shows the selected requests in full and asks.
  const pickOf = (row) => row && one("[name=id]:not(:disabled), [name=alike], [name=item]", row);
  const ask = (verb) => {
    const list = one("form[data-list]"), here = pickOf(rows()[at]);
    if (!list) return;
    if (!picks(":checked").length && here) here.checked = true;
    if (picks(":checked").length) list.requestSubmit(one(`button[value=${verb}]`, list));
  };
  const focus = (selector) => { const part = one(selector); if (part) { reach(part); if (part.select) part.select(); } };
  const write = () => { if (note) { aim(null, plain); reach(note); } };
  const edit = () => {
    const box = one("[data-edit]");
    if (box) box.open = true;
    if (fields.length) fields[0].focus();
  };
  const choose = (number) => { const choice = one(`[data-choice="${number}"]`); if (choice) { choice.click(); choice.focus(); } };
  const deeds = {
    j: () => go(1), k: () => go(-1), "?": openKeys, "/": () => focus("[data-search]"),
    x: () => {
      const box = pickOf(rows()[at]);
      if (box) box.click();
    },
    z: () => press("z"), s: () => press("s"), e: edit, n: write,
    a: () => {
      const unwritten = one(".answer :required:invalid");  // focus an empty answer first
      if (unwritten) reach(unwritten);
      else if (one('[data-key="a"]')) press("a");
      else ask("approve");
    },
    r: () => one('[data-key="r"]') ? refuse("r", whyNot) : ask("reject"),
    i: () => { const to = one("#to"); if (to && !to.value.trim()) reach(to); else press("i"); },
    m: () => { if (comment && !comment.value.trim()) reach(comment); else press("m"); },
    f: () => refuse("f", different),
  };
  // -- command palette: the page's actions by name, each run through its own button or link --------------------
  const palette = one("#palette"), typed = one("input", palette), found = one("ul", palette);
  const words = (part) => [...part.childNodes].filter((node) => node.nodeName !== "KBD").map((node) => node.textContent).join(" ").replace(/\s+/g, " ").trim();
  const offers = () => [
    ...all("[data-key]").filter((button) => !button.disabled && !button.closest("[hidden]"))
      .map((button) => ({ name: words(button), keys: button.dataset.key, run: deeds[button.dataset.key] })),
    // The others are only brought into sight: a command must not end a run.
    ...all(".care button:not([data-key]), .decide .more button").filter((button) => !button.disabled).map((button) => ({
      name: words(button), keys: "", run: () => { const more = button.closest("details"); if (more) more.open = true; reach(button); },
    })),
    ...(one("[data-edit]") ? [{ name: say("Edit the arguments"), keys: "e", run: edit }] : []),
    ...(one("#note") ? [{ name: say("Write a note"), keys: "n", run: write }] : []),
    ...(one("[data-search]") ? [{ name: say("Search"), keys: "/", run: () => focus("[data-search]") }] : []),
    ...all(".views a").map((link) => ({ name: say("View: %(name)s", { name: words(link) }), keys: "", run: () => link.click() })),
    ...all(".top nav ul a").map((link) => (
      { name: say("Go to %(name)s", { name: link.firstChild.textContent.trim() }), keys: link.dataset.go ? `g ${link.dataset.go}` : "", run: () => link.click() }
    )),
    ...all(".who .stop").map((link) => ({ name: words(link), keys: "", run: () => link.click() })),
    ...all("[data-queued], .what").map((link) => ({ name: say("Open %(name)s", { name: words(link) }), keys: "", run: () => link.click() })),
    { name: say("Keyboard shortcuts"), keys: "?", run: openKeys },
  ];
  let fitting = [], chosen = 0;
  const mark = (place) => {
    chosen = Math.min(Math.max(place, 0), fitting.length - 1);
    [...found.children].forEach((item, at) => item.setAttribute("aria-selected", at === chosen));
    typed.setAttribute("aria-activedescendant", fitting.length ? `palette-${chosen}` : "");
    if (fitting.length) found.children[chosen].scrollIntoView({ block: "nearest" });
  };
  const list = () => {
    const asked = typed.value.trim(), parts = asked.toLowerCase().split(/\s+/);
    fitting = offers().filter((offer) => parts.every((part) => offer.name.toLowerCase().includes(part))).slice(0, 30);
    if (asked) fitting.push({
      name: say("Search the inbox for “%(words)s”", { words: asked }), keys: "", run: () => { location.href = `${one(".brand").href}?q=${encodeURIComponent(asked)}`; },
    });
    found.replaceChildren(...fitting.map((offer, at) => {
      const item = Object.assign(document.createElement("li"), { id: `palette-${at}` });
      item.setAttribute("role", "option");
      item.append(Object.assign(document.createElement("span"), { textContent: offer.name }));
      if (offer.keys) item.append(Object.assign(document.createElement("kbd"), { textContent: offer.keys }));
      return item;
    }));
    mark(0);
  };
  const openPalette = () => { typed.value = ""; palette.showModal(); list(); };
  const run = (place) => { const offer = fitting[place]; palette.close(); if (offer) offer.run(); };
  one("#palette-open").addEventListener("click", openPalette);
  typed.addEventListener("input", list);
  typed.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); mark(chosen + step); }
    if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); run(chosen); }
  });
  found.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) run([...found.children].indexOf(item));
  });
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && !dialog.open && !sure.open) {
      event.preventDefault();
      if (palette.open) palette.close(); else openPalette();
      return;
    }
    if (dialog.open || palette.open || sure.open || !isOn()) return;
    const isField = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)
      && !["checkbox", "radio"].includes(target.type);
    if (isField && event.key === "Escape") { target.blur(); if (note) aim(null, plain); return; }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && (isField || target === document.body)) {
      const aimed = target === note && one(".aimed");
      event.preventDefault();
      if (event.repeat) return;  // held: the next request takes the place of the one that it decided
      if (aimed && aimed.dataset.key === "f" && !note.value.trim()) return;  // it needs words
      press(aimed ? aimed.dataset.key : { comment: "m", to: "i" }[target.id] || "a");
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isField) return;
    if (Date.now() - prefix < 1500) {
      prefix = 0;
      const link = one(`[data-go="${event.key}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { prefix = Date.now(); return; }
    if (/^[1-9]$/.test(event.key)) { if (!event.repeat) choose(event.key); return; }
    const deed = deeds[event.key];
    if (!deed) return;
    event.preventDefault();
    // A held key may navigate but not decide, because the next request opens while it is held.
    if (!event.repeat || "jk".includes(event.key)) deed();
  }, { signal });
});
