"""What the pages of the inbox show: lists, filters, a request before and after its decision, runs and history.

What their forms do is in `test_actions`. The invariant: a text of a program or an agent is shown for what it is,
and never as a part of the page.
"""

from __future__ import annotations

import html
import re
from datetime import timedelta
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import sayso
from sayso import clock as sayso_clock
from sayso import config
from sayso.model.lifecycle import Outcome
from sayso.model.request import State
from sayso.model.reviewer import Identity, Reviewer
from sayso.stores.base import Store
from sayso.testing import sample_call
from sayso.view import full_text
from sayso.view.as_json import request_document
from tests.conftest import Clock
from tests.support.acting import Pay, approved, held, payer
from tests.support.browsing import BASE, Browser, fields_of, text_of
from tests.support.running import agent_of, started

HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "' onmouseover='x",
    "</pre></form></main>", "{{ 7*7 }}{% raw %}", "javascript:alert(1)", "<U+202E>", "a\u202eb\u2066c",
    "x\u200b\u200d\ufeff", "\x1b[31mred\x1b[0m", "x\x00\x07\x9b", "x\r\nSet-Cookie: x=1", "p\u0430ypal",
    "<a href='//evil.example'>x</a>", "&lt;b&gt;", "' hx-get='//evil.example", "</textarea><script>1</script>",
    "x\u2028\u2029y", "x\U000e0041", "]]><!--", "<style>*{}</style>", "x" * 5000,
]  # fmt: skip
TEMPLATES = Path(sayso.__file__).parent / "server" / "templates"
RAW = re.compile("[\u202e\u2066\u200b\u200d\ufeff\x1b\x00\x07\x9b\u2028\u2029\U000e0041]")


def shown(text: str) -> list[str]:
    """Return the headlines of a list, from the top."""
    return [re.sub("<[^>]*>", "", found) for found in re.findall(r'<a class="what"[^>]*>(.*?)</a>', text)]


# -- lists -----------------------------------------------------------------------------------------------------


def test_what_waits_comes_first_and_oldest_first(ada: Browser, pay: Pay, clock: Clock) -> None:
    approved(pay, 1)
    for amount in (2, 3):
        clock.tick(minutes=1)
        held(pay, amount)
    page = ada.get("/").text
    assert [re.findall(r"amount=(\d)", one)[0] for one in shown(page)] == ["2", "3", "1"]
    assert "<title>Inbox (2)" in page
    assert 'data-pending="2"' in page


def test_a_gates_title_and_summary_stand_in_the_list_and_on_the_page_as_the_programs_words(ada: Browser) -> None:
    pay = payer(title="Refund", summary="Refund <b>€{amount}</b>\u202e for {to}")
    request_id = held(pay, 5).confirmation_id
    quoted = "&#34;Refund: Refund &lt;b&gt;€5&lt;/b&gt;&lt;U+202E&gt; for alice&#34;"
    for page in ("/", f"/r/{request_id}"):
        text = ada.get(page).text
        assert re.search(
            rf'class="says"><small>[Tt]he program says(, unverified:)?</small> {re.escape(quoted)}<', text
        ), page
    assert "pay amount=5, to=&#34;alice&#34;" in shown(ada.get("/").text)[0]
    assert 'class="says"' not in ada.get("/?q=nothing").text


def test_filters_narrow_the_list(ada: Browser, clock: Clock) -> None:
    low, high = payer(risk="low"), payer(risk="high", name="refund")
    with sayso.run("order-1"):
        held(low, 1)
    with sayso.run("order-2"):
        second = held(high, 2).confirmation_id
    assert len(shown(ada.get("/").text)) == 2
    for query in ("risk=high", "run=order-2", "tool=refund", f"q={second}", "state=pending&risk=high"):
        assert [("amount=2" in one) for one in shown(ada.get(f"/?{query}").text)] == [True], query
    assert shown(ada.get("/?mine=yes").text) == []
    ada.decide(second, "claim")
    assert len(shown(ada.get("/?mine=yes").text)) == 1
    assert shown(ada.get("/?state=unknown").text) == []


def test_pages_go_on_where_the_last_one_ended(ada: Browser, store: Store, clock: Clock) -> None:
    ids = [store.ask(sample_call(f"run-{number}")).id for number in range(103)]
    seen: list[str] = []
    where: str | None = "/?fold=no"
    while where:
        text = ada.get(where).text
        seen += re.findall(r'<a class="what" href="/r/(\w+)', text)
        found = re.search(r'<a href="([^"]+)" rel="next">', text)
        where = None if found is None else found[1].replace("&amp;", "&")
        clock.tick(seconds=1)
        store.ask(sample_call())  # new ones come last, and move nothing
    assert seen[:103] == ids
    assert len(set(seen)) == len(seen)


def test_history_has_what_was_decided_newest_first(ada: Browser, pay: Pay, clock: Clock) -> None:
    for amount in (1, 2):
        clock.tick(minutes=1)
        approved(pay, amount)
    held(pay, 3)
    page = ada.get("/history").text
    assert [re.findall(r"amount=(\d)", one)[0] for one in shown(page)] == ["2", "1"]
    assert "by ada" in text_of(page)
    assert len(shown(ada.get("/history?state=approved").text)) == 2
    assert shown(ada.get("/history?state=rejected").text) == []


@pytest.mark.parametrize("query", ["state=odd", "cursor=odd", "cursor=9.", "cursor=0.x", "cursor=-1."])
def test_an_address_that_means_nothing_is_told_so(ada: Browser, query: str) -> None:
    for page in ("/", "/history"):
        assert ada.get(f"{page}?{query}").status_code == 400


# -- a request -------------------------------------------------------------------------------------------------


def test_a_request_shows_all_that_a_decision_needs(ada: Browser, clock: Clock) -> None:
    options: dict[str, Any] = {"expires": "1h", "quorum": 2, "roles": {"finance"}}
    pay = payer(risk="high", description="Sends money.", prompt="The customer is angry.", **options)
    with sayso.run("order-1", on_behalf_of=Reviewer("kim")):
        request_id = held(pay, 320, to="bob").confirmation_id
    page = ada.get(f"/r/{request_id}").text
    text = text_of(page)
    for words in (
        "320", "bob", "risk high", "Sends money.", "on behalf ofkim", "2 different reviewers", "finance",
        "in 1h", "no answer means no", "What the program will receive", "order-1", request_id[:11],
    ):  # fmt: skip
        assert words in text, words
    unverified = page.partition('class="unverified"')[2].partition("</section>")[0]
    assert "The customer is angry." in unverified
    assert text.index("320") < text.index("The customer is angry.")
    assert fields_of(page)["seen"] == sayso.Review().get(request_id).current_fingerprint


def test_facts_of_the_program_stand_apart_from_what_an_agent_says(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call(prompt="Trust me.", context={"order": "C-17"}, rule="amount > 100"))
    page = ada.get(f"/r/{request.id}").text
    context = page.partition('<h2 id="context">')[2].partition("</section>")[0]
    said = page.partition('class="unverified"')[2].partition("</section>")[0]
    assert "C-17" in context
    assert "Trust me." not in context
    assert "Trust me." in said
    assert "amount &gt; 100" in page.partition('<h2 id="why">')[2].partition("</section>")[0]


HOSTILE_WORDS = {
    "prompt": "Routine.", "rule": "policy 4.2, verified by sayso: amounts below 10 EUR",
    "description": "A dry run: nothing is paid.", "context": {"checked by sayso": "safe, 5 EUR"},
}  # fmt: skip


def test_an_effect_is_named_as_one_beside_what_the_program_says(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call(effect="refund:A-4721", prompt="The customer is angry."))
    said = ada.get(f"/r/{request.id}").text.partition('class="unverified"')[2].partition("</section>")[0]
    assert text_of(said).endswith("as the effect:refund:A-4721The customer is angry.")


def test_all_words_of_a_program_with_a_token_stand_apart(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call(requester=Identity("token", "bot"), **HOSTILE_WORDS))
    page = ada.get(f"/r/{request.id}").text
    before, _, rest = page.partition('class="unverified"')
    said, _, after = rest.partition("</section>")
    for words in ("Routine.", "policy 4.2", "A dry run", "checked by sayso", "5 EUR"):
        assert words in said, words
        assert words not in before + after, words
    assert "The context from the program must also be the same as in this request." in page  # which names none of it
    for ours in ("By the rule", "author says", "Context from the program", "Every call of it"):
        assert ours not in page
    document = request_document(request)
    assert document["unverified"] == ["prompt", "description", "rule", "context"]
    rows = full_text.ask_rows(request, sayso_clock.now(), width=100)
    own = rows.index("  the program says, unverified:")
    assert all("policy 4.2" not in row and "dry run" not in row for row in rows[:own])
    assert [row.split()[0] for row in rows[own + 1 :]][:4] == ["prompt", "description", "rule", "context"]


def test_of_a_program_of_this_machine_only_the_prompt_is_unverified(store: Store) -> None:
    assert request_document(store.ask(sample_call(**HOSTILE_WORDS)))["unverified"] == ["prompt"]
    assert request_document(store.ask(sample_call("second")))["unverified"] == []


def test_what_a_page_says_it_says_once_and_in_plain_words(ada: Browser, store: Store, pay: Pay) -> None:
    for text, times in (("Begun.", 1), ("Begin" + " on" * 80, 2)):  # a long one is cut under the name
        request = store.ask(sample_call(None, summary=text, rule="no rule matches"))
        page = ada.get(f"/r/{request.id}").text
        assert text_of(page.partition('class="lead"')[2]).count(text[:4]) == times, text
        assert "No rule of the policy file matches it" in page
    with pytest.raises(sayso.ConfirmationRequired) as asked:
        sayso.ask("Is it a company?", type=bool, wait="raise")
    page = ada.get(f"/r/{asked.value.confirmation_id}").text
    said = re.findall(r'name="(\w+)" value="(true|false)" data-choice="\d">(\w+)', page)
    assert [one[1:] for one in said] == [("true", "yes"), ("false", "no")]
    approved(pay, 5)
    parts = re.findall(r'class="part">([^<]+)<|<li class="row"', ada.get("/").text)
    assert [part for part in parts if part] == ["Approved, not finished"]
    assert parts.index("Approved, not finished") == len(parts) - 2


def test_the_same_address_shows_what_became_of_it(ada: Browser, store: Store, clock: Clock) -> None:
    pay = payer()
    request_id = held(pay, 5).confirmation_id
    assert ada.decide(request_id, "approve", f0="8").status_code == 200
    assert "Changed by reviewers" in ada.get(f"/r/{request_id}").text
    page = text_of(ada.get(f"/r/{request_id}").text)
    assert "approved with changes by ada (web" in page
    assert "not started yet" in page
    assert "What was approved" in page
    request = store.get(request_id)
    store.start(request.id, "t1")
    assert "running, started" in text_of(ada.get(f"/r/{request_id}").text)
    store.finish(request.id, "t1", sayso.model.lifecycle.Outcome("failed", error="Boom: no"))
    page = text_of(ada.get(f"/r/{request_id}").text)
    assert "failed" in page
    assert "Boom: no" in page


def test_a_beginning_of_an_id_leads_to_the_whole_address(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    answer = ada.get(f"/r/{request_id[3:12]}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/r/{request_id}")


def test_nothing_of_a_long_call_is_left_out(ada: Browser, pay: Pay) -> None:
    marks = "".join(f"{'y' * 10_000}mark{number}" for number in range(10))
    page = ada.get(f"/r/{held(pay, 5, to=marks).confirmation_id}").text
    call = page.partition('id="call">')[2].partition("</pre>")[0]
    assert all(f"mark{number}" in call for number in range(10))


class Elements(HTMLParser):
    """The elements of a page, and what could act in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.targets: list[str] = []
        self.inside: list[str] = []
        self.depth: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.depth[tag] = self.depth.get(tag, 0) + 1
        for name, value in attrs:
            self.attributes.add(name)
            if name in {"href", "src", "action", "formaction", "data-stream"}:
                self.targets.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        self.depth[tag] = self.depth.get(tag, 0) - 1

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() and (self.get_starttag_text() or "").startswith(("<script", "<style")):
            self.inside.append(data.strip())


def pages_full_of(words: str, ada: Browser) -> list[str]:
    """Return every kind of page about requests that are full of these words."""

    @sayso.gate(wait="raise", prompt=words, description=words, name="act")
    def act(note: Any, line: str, each: list[str], maybe: str | None = None) -> None: ...

    with sayso.run():
        request_id = held(act, {words: words, "list": [words]}, words, [words], words).confirmation_id
        with pytest.raises(sayso.ConfirmationRequired) as caught:
            sayso.ask(words, choices=[words, "no"], wait="raise")
    question = caught.value.confirmation_id
    fields: dict[str, Any] = {"context": {words: [words]}, "risk": words, "rule": words, "prompt": words}
    with sayso.run():
        alike = held(act, {words: words}, words, [words], words).confirmation_id
    sayso.Review(by="ada").grant(alike, count=2, lasts="1h", here=True, comment=words)
    far = config.default_store().ask(sample_call(requester=Identity("token", "bot"), description=words, **fields)).id
    told = config.default_store().ask(sample_call(words, **fields)).id
    texts = [
        ada.get(page).text
        for page in (
            "/",
            f"/r/{request_id}",
            f"/r/{question}",
            f"/bulk?verb=reject&id={request_id}",
            f"/r/{far}",
            "/grants",
            f"/r/{told}",
        )
    ]
    links = re.findall(r'href="(/runs/[^"]+)"', texts[-1])
    refused = ada.decide(request_id, "approve", f0=f"{words}{{", note=words)
    assert refused.status_code == 422
    assert ada.decide(question, "reject", note=words).status_code == 200
    return [*texts, ada.get(links[0]).text, refused.text, ada.get("/history").text, ada.get(f"/?q={quote(words)}").text]


@cache
def is_ours(pattern: str) -> bool:
    """Say whether a template has this."""
    return any(re.search(pattern, path.read_text(encoding="utf-8")) for path in TEMPLATES.glob("*.html"))


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_change_no_page_and_what_cannot_be_seen_reaches_none(ada: Browser, text: str) -> None:
    *pages, refused, history, search = pages_full_of(text, ada)
    for page in [*pages, history]:
        assert RAW.search(page) is None
    # What the reviewer sent stands in the field in which it was typed, and nowhere else.
    for page in (refused, search):
        assert RAW.search(re.sub(r"(?s)<textarea.*?</textarea>|<input[^>]*>", "", page)) is None
    for page in [*pages, refused, history, search]:
        found = Elements(page)
        assert {name for name in found.names if not is_ours(f"<{re.escape(name)}")} == set()
        assert {name for name in found.attributes if not is_ours(rf"[ }}]{name}\b")} <= {"min", "max", "step"}
        assert [target for target in found.targets if not re.match(r"/(?!/)|#main$|#f[\w.]+-problem$|$", target)] == []
        assert not any(found.inside)
        assert {
            found.depth[name] for name in ("form", "pre", "main", "body", "textarea", "script") if name in found.depth
        } == {0}
        assert not any(name.startswith("on") or name == "style" for name in found.attributes)


def test_a_text_that_may_deceive_is_pointed_out(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5, to="p\u0430ypal\u202e").confirmation_id
    page = text_of(ada.get(f"/r/{request_id}").text)
    assert "hidden characters (U+202E)" in page
    assert "mixes Latin and Cyrillic" in page
    assert "check closely" in text_of(ada.get("/").text)


@pytest.mark.parametrize("page", ["/r/rq_nothing", "/runs/run_nothing", "/nothing", "/static/../app.py", "/r/rq_"])
def test_what_is_not_there_is_told_so(ada: Browser, page: str) -> None:
    answer = ada.get(page)
    assert answer.status_code == 404
    assert "<h1>Page not found</h1>" in answer.text


# -- runs ------------------------------------------------------------------------------------------------------


def test_runs_and_what_happened_in_one(ada: Browser, store: Store) -> None:
    def wipe(path: str) -> str:
        """Remove."""
        raise NotImplementedError

    tool = sayso.Tool(name="wipe", handler=wipe, requires_approval=True)
    agent = agent_of([tool], ("wipe", {"path": "/tmp/x"}), name="cleaner")
    output = started(agent, prompt="go")
    lines = ada.get("/runs").text
    assert "cleaner" in text_of(lines)
    assert "paused" in text_of(lines)
    page = ada.get(f"/runs/{output.run_id}").text
    assert "/tmp/x" in page
    assert "waiting" in page
    assert shown(ada.get("/runs?state=ended").text) == []
    assert ada.get("/runs?state=odd").status_code == 400
    assert ada.get(f"/runs/{output.run_id}?only=human").status_code == 200


def test_what_one_step_masks_is_masked_in_every_step_of_the_run(ada: Browser, store: Store) -> None:
    def look(iban: str, password: str) -> dict[str, str]:
        return {"iban": iban, "text": f"account {iban} with {password}", "pin": "0815-pin", "city": "Berlin"}

    def note(text: str) -> str:
        return f"noted: {text}"

    def pay(iban: str, code: str) -> None:
        raise NotImplementedError

    masking = {"approval_redact_keys": {"iban"}}
    paying = sayso.Tool(
        pay, requires_approval=True, approval_redactor=lambda args: {**args, "code": "hidden"}, **masking
    )
    flow = sayso.Workflow(name="flow").step(sayso.Tool(look, **masking))
    flow = flow.step(note, depends_on=["look"]).step(paying, depends_on=["note"])
    secrets = {"iban": "DE02-secret-iban", "password": "secret-password", "code": "secret-code"}
    output = flow(**secrets, text="for secret-code, DE02-secret-iban and secret-password").run()
    assert output.status.reason == "approval_required"
    page = ada.get(f"/runs/{output.run_id}").text
    assert "Berlin" in page
    assert "noted: for " in page
    assert [secret for secret in secrets.values() if secret in page] == []


def test_a_model_that_writes_stars_hides_nothing_of_its_run(ada: Browser, store: Store) -> None:
    def pay(to: str, amount: str) -> dict[str, str]:
        return {"to": to, "amount": amount}

    def note(to: str, amount: str) -> None:
        """Take a note."""

    def confirm() -> None:
        raise NotImplementedError

    flow = sayso.Workflow(name="flow").step(sayso.Tool(pay), to="eve@evil.example", amount="1000000")
    flow = flow.step(sayso.Tool(note), to="***", amount="***", depends_on=["pay"])
    output = flow.step(sayso.Tool(confirm, requires_approval=True), depends_on=["note"])().run()
    page = ada.get(f"/runs/{output.run_id}").text
    assert "eve@evil.example" in page
    assert "1000000" in page


def test_a_run_of_a_plain_program_is_known_by_its_requests(ada: Browser, pay: Pay) -> None:
    with sayso.run("order/47 21?"):
        request_id = held(pay, 5).confirmation_id
    link = re.search(r'href="(/runs/[^"]+)"', ada.get("/").text)
    assert link is not None
    page = ada.get(link[1])
    assert page.status_code == 200
    assert request_id in page.text
    assert "asked" in text_of(page.text)


def test_the_list_of_runs_has_those_of_plain_programs_with_their_state(
    ada: Browser, clock: Clock, store: Store
) -> None:
    def listed(**asked: str) -> list[str]:
        page = ada.get("/runs?" + "&".join(f"{name}={value}" for name, value in asked.items())).text
        return re.findall(r'href="/runs/(run-[^"]+)"', page)

    review, ids = sayso.Review(store), dict[str, str]()
    for run in ("run-done", "run-waits", "run-may-start", "run-lost"):
        ids[run] = store.ask(sample_call(run)).id
        clock.tick(seconds=1)
    for run in ("run-done", "run-may-start", "run-lost"):
        review.approve(ids[run], by="bob")
    for run, outcome in (("run-done", "done"), ("run-lost", "unknown")):
        store.start(ids[run], "t")
        store.finish(ids[run], "t", Outcome(outcome))  # pyright: ignore[reportArgumentType]
    store.ask(sample_call("run-done", {"amount": 11}))
    assert listed() == ["run-done", "run-lost", "run-may-start", "run-waits"], "each in the place of its newest request"
    assert [listed(state=one) for one in ("paused", "running", "broken", "ended")] == [
        ["run-done", "run-waits"], ["run-may-start"], ["run-lost"], [],
    ]  # fmt: skip
    assert (len(listed(name="pay")), listed(name="other")) == (4, [])
    assert "requests: 2" in text_of(ada.get("/runs").text)
    clock.tick(days=2)
    assert listed(state="ended") == ["run-done", "run-may-start", "run-waits"], "what has expired waits no longer"
    for number in range(60):
        store.ask(sample_call(f"run-{number}"))
    first = ada.get("/runs").text
    (further,) = re.findall(r'<a href="([^"]+)" rel="next">Older runs of other programs', first)
    rest = ada.get(html.unescape(further)).text
    found = [re.findall(r'href="/runs/(run-[^"]+)"', page) for page in (first, rest)]
    assert sorted(found[0] + found[1]) == sorted([*ids, *(f"run-{number}" for number in range(60))])
    assert 'rel="next"' not in rest


def test_the_list_of_runs_reads_no_steps(ada: Browser, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def wipe(path: str) -> str:
        raise NotImplementedError

    tool = sayso.Tool(name="wipe", handler=wipe, requires_approval=True)
    stored = started(agent_of([tool], ("wipe", {"path": "/tmp/x"}), name="cleaner"), prompt="go").run_id
    store.ask(sample_call("run-plain"))
    monkeypatch.setattr(type(store), "get_run", lambda *_: pytest.fail("the steps of a run were read"))
    page = ada.get("/runs")
    assert page.status_code == 200
    agents, _, others = page.text.partition("Other programs")
    assert (f'href="/runs/{stored}"' in agents, f'href="/runs/{stored}"' in others) == (True, False)
    assert ('href="/runs/run-plain"' in agents, 'href="/runs/run-plain"' in others) == (False, True)


# -- how it is built -------------------------------------------------------------------------------------------


def test_every_field_has_a_label_and_every_page_its_landmarks(ada: Browser, pay: Pay) -> None:
    request_id = held(pay, 5).confirmation_id
    for page in ["/", f"/r/{request_id}", "/history", "/runs", f"/bulk?verb=approve&id={request_id}", "/nothing"]:
        text = ada.get(page).text
        assert text.count("<h1") == 1
        for landmark in ("<header", "<main", "<footer", '<html lang="en" dir="ltr">'):
            assert text.count(landmark) == 1, (page, landmark)
        assert text.count("<nav aria-label=") + text.count('<nav class="queue list" aria-label=') == text.count("<nav")
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(set(ids)) == len(ids), page
        for field in re.findall(r"<(?:input|select|textarea)[^>]*>", text):
            named = re.search(r'\bid="([^"]+)"', field)
            is_labelled = named is not None and f'for="{named[1]}"' in text
            within = re.search(r"<label[^>]*>[^<]*(<select|" + re.escape(field) + ")", text)
            assert 'type="hidden"' in field or is_labelled or within, (page, field)


def test_the_first_page_does_not_grow_with_what_was_decided(
    ada: Browser, clock: Clock, store: Store, pay: Pay
) -> None:  # fmt: skip
    held(pay, 5)
    before = len(ada.get("/").text)
    for number in range(30):
        request = store.ask(sample_call(f"run-{number}"))
        sayso.Review(store).reject(request.id, by="ada")
    assert len(ada.get("/").text) == before


def test_an_expired_request_is_not_in_the_inbox(ada: Browser, clock: Clock, store: Store) -> None:
    request_id = held(payer(expires="1h"), 5).confirmation_id
    clock.tick(seconds=timedelta(hours=1).total_seconds())
    assert sayso_clock.now() == clock.at
    assert shown(ada.get("/").text) == []
    assert "nobody decided" in text_of(ada.get(f"/r/{request_id}").text)
    assert store.get(request_id).state is State.PENDING  # looking writes nothing down


def test_the_page_of_an_error_says_what_to_do_in_words_and_leads_everywhere(ada: Browser, store: Store) -> None:
    stranger = TestClient(ada.app, base_url=BASE)
    for page, said in (
        ("/r/rq_nowhere", "There is no request rq_nowhere here."), ("/runs/none", "There is no run none here."),
        ("/nothing", "Page not found"), ("/r/rq_%3Cb%3E%60x%60", "There is no request rq_<b>`x` here."),
    ):  # fmt: skip
        answer = ada.get(page)
        assert (answer.status_code, said in text_of(answer.text)) == (404, True), page
        assert 'href="/history"' in answer.text.partition("<main")[0], page
        assert "sayso ls" not in answer.text, page
    assert 'href="/history"' not in stranger.get("/nothing").text
    asked = held(payer(), 5).confirmation_id
    sayso.Review(store, by="bob").claim(asked)
    refused = ada.submit(
        f"/r/{asked}/reject", **{k: fields_of(ada.get(f"/r/{asked}").text)[k] for k in ("csrf", "seen")}
    )
    assert (refused.status_code, "`" in text_of(refused.text)) == (409, False)
    settings = fields_of(ada.get("/settings").text)
    ada.submit("/settings/language", csrf=settings["csrf"], tag="de")
    german = ada.get("/r/rq_nowhere").text
    assert ('<html lang="de"' in german, "Eine Anfrage rq_nowhere" in text_of(german)) == (True, True)


def test_beside_a_request_stands_how_many_wait_in_all(ada: Browser, store: Store) -> None:
    ids = [store.ask(sample_call(f"run {number}")).id for number in range(51)]
    page = ada.get(f"/r/{ids[1]}").text
    assert ("2 of 51" in page, "50+" in page, 'data-pending="51"' in page) == (True, False, True)
