"""The policy file: what it may say, where its mistakes stand, and which rule decides."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import errors
from sayso.model.reviewer import Quorum
from sayso.policy import Policy, in_effect
from sayso.policy.policy import replay
from sayso.policy.rules import Positions, matches, parse, short_name
from sayso.stores.base import Store

pytest.importorskip("cel_expr_python")

REFUNDS = """\
# who may refund what
[[rules]]
name = "small refunds"
tool = "refund"
when = "args.amount <= 50"
verdict = "allow"
log = true

  [[rules.examples]]
  args = { amount = 40 }
  expect = "allow"

[[rules]]
tool = ["refund", "pay_*"]
when = '''
args.amount <= 1000 &&
args.currency == "EUR"
'''
verdict = "hold"
reason = "somebody looks"
quorum = 2
roles = ["finance"]
expires = "2h"

[[rules]]
tool = "*"
verdict = "deny"
reason = "nothing else is allowed"
"""
SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}},
}


def problems(text: str) -> list[tuple[int, int, str]]:
    return [tuple(one) for one in parse(text, is_settings=False)[1]]


def rule(more: str = "", *, tool: str = "'refund'", verdict: str = "hold") -> str:
    return f"[[rules]]\ntool = {tool}\nverdict = '{verdict}'\n{more}"


def test_the_first_rule_that_matches_decides() -> None:
    policy = Policy.of_text(REFUNDS)
    allowed = policy.verdict("shop:refund", {"amount": 40}, schema=SCHEMA)
    assert (allowed.kind, allowed.log, allowed.rule) == ("allow", True, "small refunds")
    held = policy.verdict("pay_now", {"amount": 400, "currency": "EUR"}, schema=SCHEMA)
    assert (held.kind, held.reason, held.quorum) == ("hold", "somebody looks", Quorum(2, frozenset({"finance"})))
    assert (held.expires, held.rule) == (timedelta(hours=2), "rule 2 (policy.toml:13)")
    denied = policy.verdict("refund", {"amount": 4_000, "currency": "EUR"})
    assert (denied.kind, denied.reason) == ("deny", "nothing else is allowed")


def test_a_call_that_no_rule_matches_is_held() -> None:
    verdict = Policy.of_text(rule(verdict="allow")).verdict("other", {})
    assert (verdict.kind, verdict.rule) == ("hold", "no rule matches")
    assert Policy.of_text("").verdict("refund", {}).kind == "hold"


@pytest.mark.parametrize(("pattern", "tool", "is_for"), [
    ("refund", "refund", True), ("refund", "shop.api:refund", True), ("shop.api:refund", "shop.api:refund", True),
    ("shop.api:refund", "other:refund", False), ("refund", "refund_all", False), ("refund", "no_refund", False),
    ("re*", "refund", True), ("*fund", "refund", True), ("*", "anything:at.all", True), ("fs/*", "fs/write", True),
    ("a.c", "abc", False), ("refund", "shop:Bank.refund", True), ("Bank.refund", "shop:Bank.refund", True),
    ("refund", "shop:outer.<locals>.refund", True), ("re*d", "shop:Bank.refund", True),
    ("Bank", "shop:Bank.refund", False), ("shop:refund", "shop:Bank.refund", False),
    ("delete", "files.delete", False), ("delete", "MCP:files.delete", False),
])  # fmt: skip
def test_a_pattern_is_for_a_whole_name(pattern: str, tool: str, is_for: bool) -> None:
    assert matches(pattern, tool, short_name(tool)) is is_for


@pytest.mark.parametrize(("text", "line", "column", "message"), [
    (rule("qorum = 2"), 4, 1, "unknown key 'qorum'; did you mean 'quorum'?"),
    (rule("wenn = 'true'"), 4, 1, "unknown key 'wenn'; did you mean 'when'?"),
    ("[[rule]]\ntool = 'x'", 1, 1, "unknown key 'rule'; a policy file has [[rules]] and nothing else"),
    ("[[rules]]\nverdict = 'hold'", 1, 1, "a rule needs tool, a pattern such as 'refund' or 'github_*', or a list of"),
    (rule(tool="[]"), 2, 1, "tool is an empty list, so the rule is for no tool"),
    (rule(tool="'re fund'"), 2, 1, "'re fund' is not a pattern, which is a name in which * stands for any text"),
    (rule(verdict="ask"), 3, 1, "verdict takes 'allow', 'hold' or 'deny', not 'ask'"),
    (rule(verdict="deny"), 1, 1, "a rule that denies needs a reason, which the program receives"),
    (rule("quorum = 2", verdict="allow"), 4, 1, "quorum is for a rule that holds, and this rule says allow"),
    (rule("approve_from_notification = true\nrisk = 'low'\nname = 'r'\nbudget = 'count() <= 1 per 1h'",
          verdict="allow"), 4, 1, "approve_from_notification is for a rule that holds, and this rule says allow"),
    (rule("effect = 'x'", verdict="allow"), 4, 1, "effect is for a rule that holds, and this rule says allow"),
    (rule("log = true"), 4, 1, "log is for a rule that allows, and this rule says hold, which is always recorded"),
    (rule("quorum = 0"), 4, 1, "quorum takes a number of people from 1, not 0"),
    (rule("quorum = true"), 4, 1, "quorum takes a number of people from 1, not True"),
    (rule("roles = 'finance'"), 4, 1, "roles takes a list of strings, not 'finance'"),
    (rule("expires = 'soon'"), 4, 1, "expires: "),
    (rule("escalate_after = '1h'"), 4, 1, "escalate_after= (a duration) and escalate_to= (a collection"),
    (rule("summary = '{amount'"), 4, 1, "summary is not a valid template: "),
    (rule("effect = 'x{a.__class__}'"), 4, 1, "effect names 'a.__class__', which is not an argument"),
    (rule("channels = ['Ops!']"), 4, 1, "'Ops!' is not the name of a channel; the name of [channels.ops] is 'ops'"),
    (rule("when = 3"), 4, 1, "when takes a condition in CEL, as a string, not 3"),
    (rule("when = 'args.amount <'"), 4, 22, "mismatched input '<EOF>'"),
    (rule('when = """\\\n  true &&\n  args.x ^ 3"""'), 6, 10, "token recognition error at: '^'"),
    (rule("[[rules.examples]]\nexpect = 'yes'"), 5, 1, "expect takes 'allow', 'hold' or 'deny'"),
    (rule("[[rules.examples]]\nexpect = 'hold'", tool="'x*'"), 4, 1, "the rule's patterns name no single tool"),
    (rule("name = 'a'") + "\n" + rule("name = 'a'\nwhen = 'true'", tool="'b'"), 8, 1, "the rule in line 1 is"),
    ("[[rules]]\ntool = ]", 2, 8, "Invalid value"),
    ("rules = 3", 1, 1, "rules are tables, each under [[rules]]"),
    ("rules = [\n {tool = 'x', verdict = 'hold'},\n {tool = 'y', verdict = 'hold'},\n]", 1, 1, "write each rule under"),
    (rule("escalate.after = '1h'"), 4, 1, "unknown key 'escalate'; did you mean 'escalate_to'?"),
    (rule("tool = 'y'\n"), 4, 11, "Cannot overwrite a value"),
    ("[rules]\ntool = 'x'\n[[rules]]\n", 3, 8, "Cannot overwrite a value"),
    (rule("[[rules.examples]]\nexpect = 'hold'\n[[rules.examples.more]]\nx = 1"), 6, 1, "unknown key 'more'"),
    (rule("'näme' = 'größe'"), 4, 1, "unknown key 'näme'; did you mean 'name'?"),
    (rule('name = "a\\u202eb"'), 4, 1, "a name has 1 to 80 printable characters"),
    (rule("\"when\" = 'args.x ^'"), 4, 18, "token recognition error"),
    (rule('when = "args.\\u0061 ^ "'), 4, 21, "token recognition error"),
    (rule('when = "\'😀\' == foo"'), 4, 16, "unknown name 'foo'"),
    (rule("reason = '# [[rules]]'\nquorun = 1"), 5, 1, "unknown key 'quorun'"),
    (rule('prompt = """\n[[rules]]\nquorum = \'x\'\n"""\nquorun = 1'), 8, 1, "unknown key 'quorun'"),
    (rule('roles = [\n"a", # c ]\n"b"\n]\nquorun = 1'), 8, 1, "unknown key 'quorun'"),
    (rule("expires = 2020-01-01"), 4, 1, "expires takes a duration such as '24h', not"),
    (rule('when = """\r\ntrue &&\r\n  foo"""').replace("\n", "\r\n").replace("\r\r", "\r"), 6, 3, "unknown name 'foo'"),
    (rule("when = '  '"), 4, 11, "mismatched input '<EOF>'"),
    (rule("when = '1'"), 4, 9, "gives int, but a condition must be true or false"),
    (f"x = {'[' * 3000}", 1, 1, "the file is nested too deeply to be read"),
])  # fmt: skip
def test_a_mistake_is_told_with_line_and_column(text: str, line: int, column: int, message: str) -> None:
    found = problems(text)
    assert found, "nothing was found"
    assert found[0][:2] == (line, column), found
    assert found[0][2].startswith(message), found


@pytest.mark.parametrize(("first", "second", "is_lost"), [
    ("'refund'", "'refund'", True), ("'*'", "'refund'", True), ("'re*'", "['refund', 'rename_*']", True),
    ("['a', 'b']", "['b', 'a']", True), ("'refund'", "'re*'", False), ("'a'", "['a', 'b']", False),
    ("'refund'", "'shop:refund'", True), ("'shop:refund'", "'refund'", False),
])  # fmt: skip
def test_a_rule_that_no_call_reaches_is_an_error(first: str, second: str, is_lost: bool) -> None:
    found = problems(rule(tool=first) + "\n" + rule("when = 'true'", tool=second))
    assert [one[2] for one in found] == (
        ["no call reaches this rule: 'rule 1' in line 1 has no condition and comes first"] if is_lost else []
    )


def test_a_rule_behind_one_with_a_condition_is_reached() -> None:
    first = rule("when = 'args.amount < 3'")
    assert not problems(first + "\n" + rule())
    assert "has the same condition" in problems(first + "\n" + first)[0][2]


def test_a_condition_that_does_not_fit_a_known_tool_is_told_where_it_stands_in_the_file() -> None:
    wrong = {"type": "object", "properties": {"amount": {"type": "string"}, "currency": {"type": "number"}}}
    policy = Policy.of_text(REFUNDS)
    assert [one[:2] for one in policy.problems({"refund": wrong})] == [(5, 21), (16, 13), (17, 15)]
    with pytest.raises(errors.PolicyError, match=r"policy\.toml:5:21: found no matching overload .* \(and 2 more"):
        policy.verdict("refund", {"amount": "1"}, schema=wrong)


def test_a_template_must_name_arguments_of_a_known_tool() -> None:
    policy = Policy.of_text(rule("effect = 'refund:{order}'"))
    with pytest.raises(errors.PolicyError, match="4:11: effect names 'order', which refund does not take"):
        policy.verdict("refund", {"amount": 1}, schema=SCHEMA)


def test_a_condition_that_takes_too_long_stops_the_call_and_the_replay_goes_on(memory: Store) -> None:
    text = rule("when = 'args.many.all(a, args.many.all(b, a + b >= 0))'", verdict="allow")
    policy, many = Policy.of_text(text), {"many": list(range(300))}
    with pytest.raises(errors.PolicyError, match=r"policy\.toml:4:9: .*looks at too many values"):
        policy.verdict("refund", many)
    assert policy.explain("refund", many).verdict is None
    held = [sayso.hold("refund", many, when=True), sayso.hold("x", {}, when=True)]
    found = replay([sayso.Review().get(str(one.id)) for one in held], policy)
    assert found.verdicts == {"error": 1, "hold": 1}


def test_an_undecided_condition_stops_the_call_and_names_its_place() -> None:
    with pytest.raises(
        errors.PolicyError, match=r"policy\.toml:5:9: the condition of 'small refunds': 'amount' was not"
    ):
        Policy.of_text(REFUNDS).verdict("refund", {}, schema=SCHEMA)


def test_positions_go_through_escapes_comments_and_arrays_over_several_lines() -> None:
    text = 'a = [ # "[[rules]]"\n  "]",\n]\n[[rules]]\n"tool" = "x"\nwhen = "a\\t\\u0041b"\n'
    positions = Positions(text)
    assert positions.of(("rules", 0)) == (4, 1)
    assert positions.of(("rules", 0, "tool")) == (5, 1)
    assert [positions.inside(("rules", 0, "when"), 1, column) for column in (1, 2, 3, 4)] == [
        (6, 9), (6, 10), (6, 12), (6, 18),
    ]  # fmt: skip
    assert positions.inside(("rules", 0, "nothing"), 1, 1) == (4, 1)


# -- the file ------------------------------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_the_file_is_read_again_when_it_changes_and_a_broken_one_lets_nothing_through(tmp_path: Path) -> None:
    file = write(tmp_path / "policy.toml", rule(verdict="allow"))
    policy = Policy.load(file)
    assert policy.verdict("refund", {}).kind == "allow"
    write(file, rule("reason = 'closed'", verdict="deny"))
    assert policy.verdict("refund", {}).reason == "closed"
    write(file, "[[rules]]\ntool = ]")
    with pytest.raises(errors.PolicyError, match=r"policy\.toml:2:8: "):
        policy.verdict("refund", {})
    file.unlink()
    with pytest.raises(errors.PolicyError, match="cannot be read"):
        policy.verdict("refund", {})
    write(file, rule(verdict="allow"))
    assert policy.verdict("refund", {}).kind == "allow"


def test_a_file_that_others_can_write_does_not_count(tmp_path: Path) -> None:
    file = write(tmp_path / "policy.toml", rule(verdict="allow"))
    policy = Policy.load(file)
    file.chmod(0o666)
    with pytest.raises(errors.PolicyError, match="can be written by others"):
        policy.verdict("refund", {})


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(errors.PolicyError, match="cannot be read"):
        Policy.load("nowhere.toml")


def test_the_settings_in_effect_have_the_rules_or_name_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "app" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert in_effect() is None
    policy = Policy.load()
    assert policy.verdict("refund", {}).kind == "hold"
    settings = write(tmp_path / "app" / "sayso.toml", "reviewer = 'ada'\n")
    assert in_effect() is None
    write(settings, "reviewer = 'ada'\n" + rule(verdict="allow"))
    effective = in_effect()
    assert effective is not None
    assert effective.verdict("refund", {}).kind == policy.verdict("refund", {}).kind == "allow"
    write(settings, "[policy]\nfile = 'rules/refunds.toml'\n")
    with pytest.raises(errors.PolicyError, match="cannot be read"):
        in_effect()
    (tmp_path / "app" / "rules").mkdir()
    write(tmp_path / "app" / "rules" / "refunds.toml", rule("reason = 'no'", verdict="deny"))
    assert policy.verdict("refund", {}).kind == "deny"
    write(settings, "[policy]\nfile = 'rules/refunds.toml'\n" + rule())
    with pytest.raises(errors.PolicyError, match="2:1: write the rules either here"):
        policy.verdict("refund", {})
    write(settings, "[policy]\nfiles = 'x'\n")
    with pytest.raises(errors.PolicyError, match="2:1: unknown key 'files'"):
        policy.verdict("refund", {})


def test_many_threads_ask_one_policy(tmp_path: Path) -> None:
    policy, kinds = Policy.load(write(tmp_path / "policy.toml", REFUNDS)), list[Any]()

    def ask() -> None:
        kinds.extend(policy.verdict("refund", {"amount": amount}, schema=SCHEMA).kind for amount in range(50))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds == ["allow"] * 400


def test_a_rule_allows_within_its_budget_which_its_tools_share(tmp_path: Path) -> None:
    limit = "sum(args.amount) <= 100 per 24h"
    (tmp_path / "policy.toml").write_text(
        rule(f"name = 'refunds'\nbudget = '{limit}'\n", tool="['refund', 'pay']", verdict="allow")
    )
    policy = Policy.load(tmp_path / "policy.toml")
    verdicts = [policy.verdict(tool, {"amount": 60}) for tool in ("refund", "pay")]
    assert [(one.kind, [(b.text, b.name) for b in one.budgets]) for one in verdicts] == [
        ("allow", [(limit, "refunds")])
    ] * 2


@pytest.mark.parametrize(
    ("more", "verdict", "message"),
    [
        ("name = 'r'\nbudget = 'sum(amount) < 3'\n", "allow", "is not a budget"),
        ("budget = 'count() <= 3 per 1h'\n", "allow", "needs a name"),
        ("name = 'r'\nbudget = 'count() <= 3 per 1h'\n", "hold", "this rule says hold"),
        ("name = 'r'\nbudget = 3\n", "allow", "takes a list of strings"),
    ],
)
def test_a_budget_that_cannot_count_is_an_error(more: str, verdict: str, message: str) -> None:
    found = problems(rule(more, verdict=verdict))
    line = 4 + more.split("budget", maxsplit=1)[0].count("\n")
    assert [(at, column, message in text) for at, column, text in found] == [(line, 1, True)]


def test_a_tool_that_a_foreign_server_names_is_no_function(place: Path) -> None:
    rules = Policy.of_text('[[rules]]\ntool = ["Read", "wipe"]\nverdict = "allow"\n')
    told = {name: rules.verdict(name, {}).kind for name in ("app.files:Read", "Read", "MCP:Read", "files/evil:Read")}
    assert told == {"app.files:Read": "allow", "Read": "allow", "MCP:Read": "hold", "files/evil:Read": "hold"}
    assert rules.verdict("app.files:Read", {}, is_function=False).kind == "hold"
    sayso.configure(store="memory:")
    for tool in ("evil:wipe", "MCP:Read", "app.files:Read"):
        assert sayso.hold(tool, {}, key=tool, run="r", when=rules).state == "pending", tool
    assert sayso.hold("wipe", {}, key="k", run="r", when=rules).state == "allowed"
    assert sayso.gate(wait="raise", when=rules)(wipe)() == "wiped"


def wipe() -> str:
    return "wiped"
