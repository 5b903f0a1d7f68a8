"""Reviewers working together: comments and mentions, by page and API.

The invariant: nothing of this decides anything, and what somebody wrote is shown for what it is.
"""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.applications import Starlette

import sayso
from sayso.model.request import MODEL_WORDS, State
from sayso.model.reviewer import TOKENS, Identity
from sayso.model.run import RunRecord, RunState, RunUpdate, Step
from sayso.stores.base import Store
from sayso.stores.records import Record
from sayso.testing import sample_call
from tests.conftest import Clock
from tests.support.acting import Pay, approved, held, payer
from tests.support.browsing import Browser, browser, text_of
from tests.support.calling import caller, code_of
from tests.support.running import agent_of, ids, started


def test_a_comment_is_shown_to_all_and_marked_for_whom_it_mentions(app: Starlette, store: Store, ada: Browser) -> None:
    bob, request_id = browser(app, "bob"), held(payer(), 5).confirmation_id
    hostile = "look, @ADA: <script>alert(1)</script>\u202e\nsecond line"
    answer = bob.decide(request_id, "comment", comment=hostile)
    assert f'action="/r/{request_id}/comment#newest-comment"' in answer.text
    for one, is_to_me in ((ada, True), (bob, False)):
        text = one.get(f"/r/{request_id}").text
        assert "look, @ADA: &lt;script&gt;alert(1)&lt;/script&gt;&lt;U+202E&gt;\nsecond line" in text
        assert ("mentions you" in text) is is_to_me
        assert ("mentions you" in one.get("/").text) is is_to_me
        assert (request_id in one.get("/?mentions=yes").text) is is_to_me
    assert store.get(request_id).state is State.PENDING
    ada.decide(request_id, "comment", comment="seen")
    assert request_id not in ada.get("/?mentions=yes").text
    assert [one.text[:4] for one in sayso.Review().comments(request_id)] == ["look", "seen"]


def test_the_top_of_the_card_and_the_box_without_scripts_say_how_many_comments_there_are(ada: Browser) -> None:
    request_id, said = held(payer(risk="high"), 5).confirmation_id, '<a href="#comments">%s</a>'
    assert 'href="#comments"' not in ada.get(f"/r/{request_id}").text
    for text, count in (("look", "1 comment"), ("again", "2 comments")):
        page = ada.decide(request_id, "comment", comment=text).text
        assert page.count(said % count) == 2
        assert re.search(rf'<li id="newest-comment"[^\n]+>{text}</pre>', page)


def test_whoever_mentions_a_name_that_nobody_has_reads_so(app: Starlette, ada: Browser) -> None:
    request_id, bob = held(payer(), 5).confirmation_id, browser(app, "Bob")
    sayso.Review().reject(held(payer(), 6).confirmation_id, by=sayso.Reviewer("carol", issuer="corp"))
    said = "No reviewer of that name has been seen: "
    assert said not in ada.decide(request_id, "comment", comment="@bob @ada @corp:carol @Carol").text
    page = text_of(ada.decide(request_id, "comment", comment="@bbo, @carol and @nobody:carol").text)
    assert (page.count(said), f"{said}@bbo, @nobody:carol" in page) == (1, True)
    assert said not in bob.get(f"/r/{request_id}").text, "it is for the author"
    browser(app, "bbo")
    assert f"{said}@nobody:carol" in text_of(ada.get(f"/r/{request_id}").text)


def test_a_comment_needs_words_and_not_the_newest_look(app: Starlette, store: Store, ada: Browser) -> None:
    request_id = held(payer(), 5).confirmation_id
    for blank in (" \n", "\u200b"):
        empty = ada.decide(request_id, "comment", comment=blank)
        assert empty.status_code == 422
        assert "a comment has 1 to 20,000 characters" in text_of(empty.text)
    store.keep(Record("mention/bob", "rq_" + "0" * 32, {}))  # which leads nowhere
    assert ada.decide(request_id, "comment", comment="@bob, look").status_code == 200
    assert [one.key for one in store.records("mention/bob")] == [request_id]
    assert ada.decide(request_id, "comment", comment="of an old look", seen="0" * 64).status_code == 200
    sayso.Review().reject(request_id, by="bob")
    assert "of a decided one" in ada.decide(request_id, "comment", comment="of a decided one").text
    assert store.mentions(sayso.Reviewer("ada").identity) == frozenset()


def test_comments_come_by_the_api_too(app: Starlette, pay: Pay) -> None:
    where, monkey = f"/api/v1/requests/{held(pay, 5).confirmation_id}", caller(app)
    assert monkey.post(f"{where}/comment", json={"text": "by api, @bob"}).json()["state"] == "pending"
    assert code_of(monkey.post(f"{where}/comment", json={"text": "  "})) == (422, "invalid_input")
    rows = monkey.get(f"{where}/journal").json()["entries"]
    assert rows[-1]["detail"] == {"comment": "by api, @bob", "mentions": ["bob"], **rows[-1]["detail"]}


def test_a_snoozed_request_leaves_ones_own_list_and_comes_back_by_itself(
    app: Starlette, store: Store, ada: Browser, clock: Clock
) -> None:
    bob = browser(app, "bob")
    first, second = (held(payer(expires="2h"), amount).confirmation_id for amount in (1, 2))
    end = store.get(first).expires_at
    form = ada.get(f"/r/{first}").text.partition('name="for"')[2].partition("</select>")[0]
    assert re.findall('value="([^"]+)"', form) == ["1h", "15m"]  # those that are over before it ends
    after = ada.decide(first, "snooze", **{"for": "1h", "then": second})
    assert after.url.path == f"/r/{second}"
    banner = text_of(after.text.partition('class="done"')[2].partition("</form>")[0])
    assert "Hidden from your list until" in banner
    assert "Bring it back" in banner
    for address, has_it in (("/", False), ("/?q=snoozed", True), ("/?q=pay", True), (f"/r/{second}", False)):
        assert (f"/r/{first}" in ada.get(address).text) is has_it, address
    assert f"/r/{first}" in bob.get("/").text
    assert "Snoozed by you" in ada.get("/").text
    assert [f'data-pending="{count}"' in who.get("/runs").text for who, count in ((ada, 1), (bob, 2))] == [True, True]
    assert "Hidden from your list until" in text_of(ada.get(f"/r/{first}").text)
    clock.tick(minutes=60)
    assert f"/r/{first}" in ada.get("/").text
    assert "Snoozed by you" not in ada.get("/").text
    ada.decide(first, "snooze", **{"for": "15m"})
    ada.decide(first, "wake")
    assert f"/r/{first}" in ada.get("/").text
    assert ada.decide(first, "snooze", **{"for": "1h"}).status_code == 409
    assert ada.decide(first, "snooze", **{"for": "9y"}).status_code == 422
    assert (store.get(first).expires_at, store.get(first).state) == (end, State.PENDING)
    where, api = f"/api/v1/requests/{first}/snooze", caller(app)
    assert api.post(where, json={"until": "10m"}).json()["id"] == first
    assert f"/r/{first}" not in ada.get("/").text
    assert api.post(where, json={"until": None}).status_code == 200
    assert f"/r/{first}" in ada.get("/").text
    assert code_of(api.post(where, json={"until": "9d"})) == (409, "decision_refused")
    assert code_of(api.post(where, json={"until": "soon"})) == (422, "invalid_input")


def test_who_has_requests_of_their_own_sees_how_many_and_a_link_to_them(
    app: Starlette, ada: Browser, clock: Clock
) -> None:
    review, bob = sayso.Review(), browser(app, "bob")
    mine, snoozed, done, late, other, _ = (
        held(payer(expires="1h" if amount == 4 else "3h"), amount).confirmation_id for amount in range(1, 7)
    )
    for request_id, to in ((mine, "ada"), (snoozed, "ada"), (done, "ada"), (late, "ada"), (other, "bob")):
        review.assign(request_id, to, by="grace")
    review.reject(done, by="ada")
    clock.tick(hours=1)
    assert "Assigned to you (2)" in text_of(ada.get("/").text)
    ada.decide(snoozed, "snooze", **{"for": "1h"})
    page = ada.get("/").text
    (link,) = re.findall(r'<a href="/(\?[^"]+)">Assigned to you \(1\)</a>', page)
    shown = ada.get("/" + link.replace("&amp;", "&")).text
    assert re.findall(r'class="what" href="/r/(rq_\w+)', shown) == [mine]
    assert 'aria-current="page">Assigned to you (1)</a>' in shown
    assert bob.get("/").text.count("Assigned to you (1)") == 1
    review.delegate("ada", until="1h", by="bob")
    assert "Assigned to you (2)" in ada.get("/").text, "she stands in for him"
    for request_id in (mine, snoozed, other):
        review.cancel(request_id, by="ada")
    assert "Assigned to you" not in ada.get("/").text


def test_what_led_to_a_call_stands_beside_it_masked_and_marked(ada: Browser, store: Store) -> None:
    def look(order: str, api_key: str) -> dict[str, Any]:
        """Look up."""
        return {"total": 320, "password": "p-result"}

    def pay_back(amount: int, card_token: str) -> str:
        raise NotImplementedError

    refund = sayso.Tool(name="refund", handler=pay_back, requires_approval=True)
    words = "the key was k-given and <b>p-result</b>\u202e, the card c-card"
    turns = [{"calls": [("look", {"order": "A-1", "api_key": "k-given"})], "text": f"First {words}."}]
    turns += [{"calls": [("refund", {"amount": 320, "card_token": "c-card"})], "text": f"So {words}."}]
    output = started(agent_of([look, refund], *turns, name="clerk"), prompt="Refund A-1 to c-card.")
    (request_id,) = ids(output)
    page = ada.get(f"/r/{request_id}").text
    story = page.partition('id="story"')[2].partition("</section>")[0]
    assert all(secret not in page for secret in ("k-given", "p-result", "c-card", "<b>", "\u202e"))
    assert re.findall('<li class="told-([a-z]+)"', story) == ["asked", "says", "step", "says"]
    assert re.search(r"Refund A-1 to \S+\.", text_of(story))
    assert text_of(story).count("The model wrote, unverified") == 2
    assert "clerk.look success" in story
    assert "&#34;order&#34;: &#34;A-1&#34;, &#34;api_key&#34;: ***" in story
    run = ada.get(f"/runs/{store.get(request_id).run_id}").text
    assert ("card_token&#34;: ***" in run, "&#34;***" in page + run) == (True, False), "a mask is no text in quotes"
    assert 'id="story"' not in ada.get(f"/r/{held(payer(), 5).confirmation_id}").text


def test_no_value_that_the_run_masks_anywhere_is_told_beside_a_call(ada: Browser, store: Store) -> None:
    iban, plain, long = "DE89370400440532013000", "p-without-form", "S" + "0123456789abcdef" * 40

    def look(iban: str) -> dict[str, Any]:
        """Look up."""
        return {"password": plain, "what": object(), "note": f"{'x' * 100}{long}"}

    def wire(iban: str, api_key: str) -> str:
        raise NotImplementedError

    tools = [sayso.Tool(name="look", handler=look), sayso.Tool(name="pay", handler=wire, requires_approval=True)]
    for masked in tools:  # by a step's own names, then by those of the request
        others = [sayso.Tool(name=one.name, handler=one.handler, requires_approval=one.name == "pay",
                  approval_redact_keys=["iban"] if one is masked else []) for one in tools]  # fmt: skip
        turns = [{"calls": [("look", {"iban": iban})], "text": f"Look at {iban}."}]
        turns += [{"calls": [("pay", {"iban": iban, "api_key": long})], "text": f"So {plain} of {iban}."}]
        (request_id,) = ids(started(agent_of(others, *turns, name="clerk"), prompt=f"Pay {iban}"))
        story = ada.get(f"/r/{request_id}").text.partition('id="story"')[2].partition("</section>")[0]
        assert "clerk.look success" in story
        for secret in (iban, plain, "0123456789abcdef"):
            assert secret not in story, (masked.name, secret)


def test_what_a_token_saved_of_a_run_is_unverified_and_breaks_no_page(ada: Browser, store: Store) -> None:
    step = {"status": {"code": "verified"}, "t0": 1, "t1": 2, "path": "agent", "name": "agent", "type": "Tool"}
    deep = f'{{"plain": {"[" * 900}{"]" * 900}}}'
    bodies = {
        "as it is": json.dumps(step), "late": json.dumps({**step, "t0": 10**30}),
        "deep": json.dumps({**step, "value": 0}).replace('"value": 0', f'"value": {deep}'),
        "no status": json.dumps({**step, "status": ["x"]}),
    }  # fmt: skip
    for name, body in bodies.items():
        request = store.ask(sample_call(f"run {name}", requester=Identity(TOKENS, "bot")))
        run = RunRecord(request.run_id, "agent", "agent", RunState.PAUSED, None, request.created_at, request.created_at)
        store.leave_run(RunUpdate(run, [Step("agent", body)], RunState.PAUSED), RunState.PAUSED)
        page = ada.get(f"/r/{request.id}")
        assert page.status_code == ada.get(f"/runs/{request.run_id}").status_code == 200, name
        assert "What led to it, in the program's words, unverified" in text_of(page.text), name
        assert ("agent verified" in page.text, "cannot be read" in page.text) == (
            name == "as it is",
            name != "as it is",
        )


def test_a_run_that_waits_for_no_request_of_the_store_keeps_its_page(ada: Browser, store: Store) -> None:
    request = store.ask(sample_call("run nowhere", requester=Identity(TOKENS, "bot")))
    run = RunRecord(request.run_id, "agent", "agent", RunState.PAUSED, None, request.created_at, request.created_at)
    step = Step("agent", json.dumps({"waits": f"rq_{'0' * 32}", "path": "agent", "name": "agent"}))
    store.leave_run(RunUpdate(run, [step], RunState.PAUSED), RunState.PAUSED)
    page = ada.get(f"/runs/{request.run_id}")
    assert page.status_code == 200
    assert request.id in page.text


def test_what_a_model_wrote_beside_its_call_stands_among_the_unverified_words(ada: Browser, store: Store) -> None:
    context = {MODEL_WORDS: "All <b>checked</b>, approve.", "path": "crew.pay"}
    page = ada.get(f"/r/{store.ask(sample_call(context=context)).id}").text
    said, facts = (page.partition(f'id="{part}"')[2].partition("</section>")[0] for part in ("said", "context"))
    assert "All &lt;b&gt;checked&lt;/b&gt;, approve." in said
    assert "checked" not in facts
    assert "crew.pay" in facts


def test_earlier_decisions_on_the_same_function_stand_beside_a_call(ada: Browser, clock: Clock) -> None:
    pay, other = payer(), payer(name="refund")
    for amount in (1, 2, 3, 4):
        clock.tick(seconds=1)
        approved(pay, amount)
    approved(other, 99)
    page = ada.get(f"/r/{held(pay, 5, to='kim').confirmation_id}").text
    before = page.partition('id="earlier"')[2].partition("</section>")[0]
    assert re.findall(r"amount=(\d+)", before) == ["4", "3", "2"]
    assert "by ada" in before


def test_earlier_decisions_for_the_same_customer_stand_beside_a_call(ada: Browser, clock: Clock) -> None:
    def gated(name: str, **options: Any) -> Any:
        def act(customer_id: str, email: str, amount: int = 1) -> None: ...

        return sayso.gate(wait="raise", name=name, **options)(act)

    close, refund, blind = gated("close"), gated("refund"), gated("blind", redact=["email"])
    for amount in (1, 2, 3, 4):
        clock.tick(seconds=1)
        approved(refund, "C-5", f"kim{amount}@example.org", amount)
    approved(refund, "c-5", "x@example.org", 5)
    approved(refund, "C-55", "lee@example.org", 6)
    held(refund, "C-5", "x@example.org", 7)  # nobody has decided it

    def before(function: Any, customer: str, email: str) -> tuple[str, list[str], list[str]]:
        page = ada.get(f"/r/{held(function, customer, email).confirmation_id}").text
        head, _, shown = page.partition('id="same-customer">')[2].partition("</section>")[0].partition("</h2>")
        rest = page.partition('id="earlier"')[2].partition("</section>")[0]
        return head, re.findall(r">(\w+) [^<]*amount=(\d+)", shown), re.findall(r"amount=(\d+)", rest)

    said = "Decided before, same customer_id or email"
    assert before(close, "C-5", "nobody") == (said, [("refund", "5"), ("refund", "4"), ("refund", "3")], [])
    assert before(close, "C-9", "lee@example.org") == (said, [("refund", "6")], [])
    assert before(close, "C-9", "nobody") == ("", [], [])
    assert before(refund, "C-55", "nobody") == (said, [("refund", "6")], ["5", "4", "3"])  # each stands once
    assert before(blind, "C-9", "lee@example.org") == ("", [], [])  # a masked value tells nothing
    approved(blind, "C-7", "new@example.org", 8)
    assert before(close, "C-9", "new@example.org") == ("", [], [])
    drawn = gated("drawn", redactor=lambda given: {**given, "email": "somebody"})
    approved(drawn, "C-8", "a@example.org", 9)
    assert before(drawn, "C-9", "b@example.org")[0] == ""  # two masked values that look the same


def test_whoever_has_voted_sees_so_and_can_still_approve_with_changes(ada: Browser, store: Store) -> None:
    request_id = held(payer(quorum=2), 5).confirmation_id
    before = ada.get(f"/r/{request_id}").text
    ada.decide(request_id, "approve")
    after, preview = ada.get(f"/r/{request_id}").text, ada.decide(request_id, "preview", f0="6").text
    for page, is_told, is_off in ((before, False, False), (after, True, True), (preview, True, False)):
        button = re.search("<button [^>]*data-approve[^>]*>", page)
        assert ("You have approved it" in page) is is_told
        assert button is not None
        assert (" disabled" in button[0]) is is_off
    assert ada.decide(request_id, "approve", f0="6").status_code == 200
    assert store.get(request_id).effective.arguments["amount"] == 6


def test_what_one_has_approved_leaves_ones_own_list_and_number_until_it_changes(
    app: Starlette, store: Store, ada: Browser, clock: Clock
) -> None:
    bob, carol = browser(app, "bob"), browser(app, "carol")
    first, second = (held(payer(quorum=3, expires="2h"), amount).confirmation_id for amount in (1, 2))

    def seen(who: Browser, path: str = "/") -> tuple[str, bool, bool]:
        page = who.get(path).text
        number = re.search(r'id="pending" data-pending="(\d+)"', page)
        assert number is not None
        return number[1], f"/r/{first}" in page, f"/r/{second}" in page

    assert seen(ada) == ("2", True, True)
    after = ada.decide(first, "approve", then=second)
    assert after.url.path == f"/r/{second}"
    assert re.findall(r'class="one" href="/r/(rq_\w+)', after.text) == [second]
    assert seen(ada) == ("1", False, True)
    assert "Approved by you, waiting for others (1)" in text_of(ada.get("/").text)
    for path in ("/?voted=yes", "/?q=approved:me", f"/?q={first}"):
        assert seen(ada, path) == ("1", True, False), path
    assert seen(bob) == seen(carol) == ("2", True, True)
    bob.decide(first, "comment", comment="@ada, really?")
    assert seen(ada, "/?mentions=yes") == ("1", True, False)
    assert bob.decide(first, "approve").status_code == 200
    assert (seen(ada), seen(bob), seen(carol)) == (("1", False, True), ("1", False, True), ("2", True, True))
    assert carol.decide(first, "approve", f0="7").status_code == 200  # which resets the votes
    assert (seen(ada), seen(bob), seen(carol)) == (("2", True, True), ("2", True, True), ("1", False, True))
    assert ada.decide(first, "approve").status_code == bob.decide(first, "approve").status_code == 200
    assert store.get(first).state is State.APPROVED
    assert (seen(ada)[0], seen(carol)[0]) == ("1", "1")
    ada.decide(second, "approve")
    clock.tick(hours=2)  # an end that nobody has recorded yet
    assert seen(ada)[0] == seen(bob)[0] == "0"


def test_a_request_is_assigned_to_a_colleague_and_the_next_one_opens(
    app: Starlette, store: Store, ada: Browser, clock: Clock
) -> None:
    bob, carol = browser(app, "bob", roles={"finance"}), browser(app, "carol")
    first, second = (held(payer(), amount).confirmation_id for amount in (1, 2))
    form = ada.get(f"/r/{first}").text
    assert re.findall('<option value="(bob|carol|ada)">', form) == ["bob", "carol"]
    for name, said in (
        ("gra", "assigned to gra, who is not signed in: is the name right?"),
        ("Bob", "assigned to bob <a"),
    ):
        after = ada.decide(first, "assign", to=name, then=second)
        assert after.url.path == f"/r/{second}"
        assert said in re.sub(r"</?strong>", "", after.text)
        if name == "gra":  # one key takes it back
            assert "Take it back" in after.text
            ada.decide(first, "release", force="yes")
    assert "claimed by bob" in text_of(ada.get("/").text)
    assert "bob claimed it, or was assigned it" in text_of(carol.get(f"/r/{first}").text)
    assert first in bob.get("/?q=assigned:me").text
    assert first not in carol.get("/?q=assigned:me").text
    for words, (has_first, has_second) in {
        "assigned:BOB": (True, False), "assigned:local:bob": (True, False), "assigned:bo": (False, False),
        "assigned:carol": (False, False), "assigned:nobody": (False, True), "pay assigned:Nobody": (False, True),
    }.items():  # fmt: skip
        page = carol.get(f"/?q={words}").text
        assert (f"/r/{first}" in page, f"/r/{second}" in page) == (has_first, has_second), words
    assert 'href="/">assigned to: bob' in carol.get("/?assigned=bob").text
    assert f"/r/{first}" in bob.get("/?assigned=me").text
    assert ada.decide(first, "approve").status_code == 409
    assert bob.decide(first, "assign", to="carol").status_code == 200  # and on, by whoever has it
    assert carol.decide(first, "approve").status_code == 200
    assert store.get(first).state is State.APPROVED


def test_lists_say_who_else_is_at_a_request_and_which_role_a_reader_lacks(app: Starlette, ada: Browser) -> None:
    bob = browser(app, "bob", roles={"finance"})
    roles = held(payer(roles={"finance", "law"}), 1).confirmation_id
    votes, claimed, mine, plain = (held(payer(quorum=2 if n == 2 else 1), n).confirmation_id for n in (2, 3, 4, 5))
    bob.decide(votes, "approve")
    bob.decide(claimed, "claim")
    ada.decide(mine, "claim")

    def beside(who: Browser) -> dict[str, str]:
        found = re.findall(r'href="/r/(rq_\w+)[^>]*data-queued>(.*?)</a>', who.get(f"/r/{plain}").text)
        return {one: text_of(line) for one, line in found}

    for who, lacks in ((ada, True), (bob, False)):
        assert ("needs the role finance or law" in text_of(who.get("/?fold=no").text)) is lacks
        assert ("needs the role finance or law" in beside(who)[roles]) is lacks
    lines = beside(ada)
    assert ("1 of 2 approvals" in lines[votes], "claimed by bob" in lines[claimed]) == (True, True)
    assert not any(word in lines[one] for one in (mine, plain) for word in ("claimed", "approvals", "role"))
    for number in range(3):  # a group of calls says it if each of them lacks it
        held(payer(roles={"ops"}, risk="low"), number)
    assert text_of(ada.get("/").text).count("needs the role ops") == 1


def test_a_call_that_its_run_has_asked_for_and_made_before_says_so(app: Starlette, ada: Browser) -> None:
    def warned(request_id: str) -> list[str]:
        page = ada.get(f"/r/{request_id}").text
        return [text_of(one) for one in re.findall(r"<li>(Warning: this run[^<]*)", page)]

    pay = payer()
    with sayso.run("order-9"):
        first = held(pay, 5).confirmation_id
        assert warned(first) == []
        sayso.Review().approve(first, by="ada")
        pay(5)
        (said,) = warned(second := held(pay, 5).confirmation_id)
        assert said.startswith(f"Warning: this run has asked for the same call before: {first[:11]} approved by ada")
        sayso.Review().approve(second, by="ada", changes={"amount": 4})
        pay(5)
        (said,) = warned(held(pay, 5).confirmation_id)
        assert said.startswith(
            f"Warning: this run has asked for the same call before, and it was changed: {second[:11]}"
        )
        assert warned(held(pay, 6).confirmation_id) == []
    with sayso.run("order-10"):
        assert warned(held(pay, 5).confirmation_id) == []


def test_nothing_is_assigned_to_whom_it_would_refuse_or_nobody_knows(
    app: Starlette, store: Store, clock: Clock
) -> None:
    ada, bob = browser(app, "ada", roles={"finance"}), browser(app, "bob")
    with sayso.run("order-1", on_behalf_of=sayso.Reviewer("kim")):
        request_id = held(payer(roles={"finance"}), 5).confirmation_id
    for name, status in (("bob", 403), ("kim", 403), ("", 422), (" x\u202e", 422), ("x" * 401, 422)):
        assert ada.decide(request_id, "assign", to=name).status_code == status, name
    assert bob.decide(request_id, "assign", to="ada").status_code == 403
    assert store.get(request_id).claimed_by is None
    sessions = app.state.settings.sessions
    assert {one.subject: set(one.roles) for one in sessions.people()} == {"ada": {"finance"}, "bob": set()}
    clock.tick(seconds=1)
    browser(app, "bob", roles={"finance"})  # a later session says what counts
    assert ada.decide(request_id, "assign", to="bob").status_code == 200
    where, api = f"/api/v1/requests/{request_id}/assign", caller(app, roles={"finance"})
    assert code_of(api.post(where, json={"to": "idp:zoe"})) == (409, "claimed")
    assert api.post(where, json={"to": "idp:zoe", "force": True}).json()["claimed_by"] == "idp:zoe"
    assert code_of(api.post(where, json={"to": ":b"})) == (422, "invalid_input")
    known, unknown = (api.post(where, json={"to": to, "force": True}).headers for to in ("bob", "idp:zoe"))
    assert ("sayso-warning" in known, "does not know the roles" in unknown["sayso-warning"]) == (False, True)
    caller(app, name="dan")
    assert code_of(api.post(where, json={"to": "dan", "force": True})) == (403, "missing_role")
    voted = held(payer(quorum=2), 5).confirmation_id
    sayso.Review().approve(voted, by="bob")
    assert code_of(api.post(where.replace(request_id, voted), json={"to": "bob"})) == (409, "already_voted")
    assert ada.decide(voted, "assign", to="local:bob").status_code == 409
