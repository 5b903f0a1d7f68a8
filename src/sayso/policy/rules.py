"""Parses the rules of a policy file, and reports each mistake with its line and column.

`tomllib` parses the file; `Positions` finds the positions of tables, keys and values, which `tomllib` does not report.
Nothing is guessed: an unknown key, an unreachable rule or a condition that does not parse makes the file unusable.
"""

from __future__ import annotations

import re
import string
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

from sayso import errors
from sayso.model import duration
from sayso.model.grant import Budget
from sayso.model.text import closest, is_plain_name
from sayso.policy.condition import Condition, ConditionError
from sayso.policy.verdict import Verdict, allow, deny, hold

Place = tuple[str | int, ...]


class Problem(NamedTuple):
    """A mistake in a policy file.

    Attributes:
        line: Its line, from 1.
        column: From 1.
        message: What is wrong and what would be right.
    """

    line: int
    column: int
    message: str


class Example(NamedTuple):
    """A call and the verdict that the rule's author expects; `sayso policy test` evaluates it."""

    line: int
    tool: str
    arguments: dict[str, Any]
    expect: Literal["allow", "hold", "deny"]
    run: str | None
    agent: str | None
    now: datetime | None


@dataclass(frozen=True)
class Rule:
    """A rule of a policy file.

    Attributes:
        name: Its `name`, or `rule 3`.
        line: Its first line in the file.
        tools: Patterns; the rule applies to a tool that one of them matches.
        when: Its condition in CEL; None for every call of these tools.
        verdict: What it decides.
        examples: Calls with their expected verdicts.
    """

    name: str
    line: int
    tools: tuple[str, ...]
    when: str | None
    verdict: Verdict
    examples: tuple[Example, ...]
    positions: Positions
    place: Place
    is_named: bool = True

    def at(self, key: str, line: int = 1, column: int = 1) -> tuple[int, int]:
        """Return the line and column in the file of a position in the text of a key."""
        return self.positions.inside((*self.place, key), line, column)


# -- patterns ------------------------------------------------------------------------------------------------------

_PATTERN = re.compile(r"[^\s*?\[\]]*(\*[^\s*?\[\]]*)*")


_FUNCTION = re.compile(r"(?!MCP:)[^\W\d]\w*(\.\w+)*:[^\W\d][\w.<>]*")


def short_name(tool: str, *, is_function: bool | None = None) -> str:
    """Return a tool's name without its module, which only the name of a Python function has: `module:name`.

    A name that a foreign server chooses may contain a colon too, and is never cut there. If only the name is known
    (`is_function` is None), its form decides; Cursor names the tools of all servers `MCP:NAME`.
    """
    if is_function is None:
        is_function = _FUNCTION.fullmatch(tool) is not None
    return tool.rpartition(":")[2] if is_function else tool


def names_of(tool: str, name: str) -> set[str]:
    """Return the names of a tool besides its own: its short name, and what people see of a method or nested function.

    `payments:Bank.refund` is `Bank.refund` and `refund`. Only the names of functions are split at dots.
    """
    return {name} if name == tool else {name, name.rpartition(".")[2]}


def matches(pattern: str, tool: str, name: str) -> bool:
    """Return whether a pattern matches a tool. `*` is any text; a pattern without a colon also matches other names.

    A function is `module:name`, so that `refund` matches `payments.api:refund`.
    """
    return _matches(pattern, tool) or (":" not in pattern and any(_matches(pattern, n) for n in names_of(tool, name)))


def _matches(pattern: str, text: str) -> bool:
    if "*" not in pattern:
        return pattern == text
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


# -- positions -----------------------------------------------------------------------------------------------------

_BARE = r"[A-Za-z0-9_-]+|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'"
_KEY = re.compile(rf"[ \t]*((?:{_BARE})(?:[ \t]*\.[ \t]*(?:{_BARE}))*)[ \t]*=[ \t]*")
_TABLE = re.compile(rf"[ \t]*(\[\[?)[ \t]*((?:{_BARE})(?:[ \t]*\.[ \t]*(?:{_BARE}))*)[ \t]*\]\]?")
_PART = re.compile(_BARE)
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[ \t]*\r?\n\s*|.)", re.DOTALL)


class Positions:
    """The positions of tables, keys and values in a TOML document that `tomllib` has parsed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._keys: dict[Place, int] = {}
        self._values: dict[Place, int] = {}
        self._counts: dict[Place, int] = {}
        at, table = 0, ()
        while at < len(text):
            if (found := _TABLE.match(text, at)) is not None:
                table = self._entered(found)
                at = _end_of_line(text, found.end())
            elif (found := _KEY.match(text, at)) is not None:
                place = (*table, *map(_unquoted, _PART.findall(found[1])))
                for end in range(len(table) + 1, len(place) + 1):  # a dotted key also names its tables
                    self._keys.setdefault(place[:end], found.start(1))
                self._values.setdefault(place, found.end())
                at = _end_of_value(text, found.end())
            else:
                at = _end_of_line(text, at)

    def _entered(self, found: re.Match[str]) -> Place:
        """Return the place of a table; in an array of tables, the number follows the name."""
        place: Place = ()
        parts = [_unquoted(part) for part in _PART.findall(found[2])]
        for number, part in enumerate(parts):
            place = (*place, part)
            if found[1] == "[[" and number == len(parts) - 1:
                self._keys.setdefault(place, found.start(1))
                self._counts[place] = self._counts.get(place, -1) + 1
            if place in self._counts:
                place = (*place, self._counts[place])
        self._keys.setdefault(place, found.start(1))
        return place

    def has(self, place: Place) -> bool:
        """Return whether a key or table has its own name at this place, and is not inside a value."""
        return place in self._keys

    def of(self, place: Place) -> tuple[int, int]:
        """Return the line and column of a key or table, else of what contains it."""
        while place and place not in self._keys:
            place = place[:-1]
        return self._line_column(self._keys.get(place, 0))

    def inside(self, place: Place, line: int, column: int) -> tuple[int, int]:
        """Return the position in the file of a position in the text that is a key's value."""
        begin = self._values.get(place)
        found = None if begin is None else _STRING.match(self._text, begin)
        if found is None or begin is None:
            return self.of(place)
        offsets = _offsets(found[0])
        rows = "".join(char for _, char in offsets).split("\n")
        index = sum(len(row) + 1 for row in rows[: line - 1]) + column - 1
        if index >= len(offsets):
            return self._line_column(begin + (offsets[-1][0] + 1 if offsets else 1))
        return self._line_column(begin + offsets[index][0])

    def _line_column(self, at: int) -> tuple[int, int]:
        return self._text.count("\n", 0, at) + 1, at - (self._text.rfind("\n", 0, at) + 1) + 1


def _unquoted(part: str) -> str:
    if part.startswith('"'):
        return cast("str", tomllib.loads(f"x = {part}")["x"])
    return part.strip("'")


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _end_of_value(text: str, at: int) -> int:
    """Return the start of the line after a value, which may span several lines."""
    depth = 0
    while at < len(text):
        char = text[at]
        if char in "\"'" and (found := _STRING.match(text, at)) is not None:
            at = found.end()
            continue
        if char == "#":
            at = _end_of_line(text, at) - 1
            continue
        depth += (char in "[{") - (char in "]}")
        if char == "\n" and depth <= 0:
            return at + 1
        at += 1
    return at


def _offsets(token: str) -> list[tuple[int, str]]:
    """Return each character of a TOML string's value, with its offset in the token."""
    width = 3 if token[:3] in {'"""', "'''"} else 1
    at, end, found = width, len(token) - width, list[tuple[int, str]]()
    if width == 3 and token[at:].startswith(("\n", "\r\n")):
        at = token.index("\n") + 1  # a newline right after the quotes is not part of the text
    while at < end:
        escape = _ESCAPE.match(token, at) if token[0] == '"' else None
        if escape is None:
            found.append((at, token[at]))
            at += 1
            continue
        if not escape[0][1:].lstrip(" \t").startswith(("\n", "\r\n")):
            found.append((at, "\n" if escape[0] == "\\n" else "x"))
        at = escape.end()
    return found


# -- reading -------------------------------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return type(value) is str and value != ""


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(_is_text(one) and one == one.strip() for one in cast("list[Any]", value))


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in cast("list[Any]", value))


_Check = tuple[Callable[[Any], bool], str]  # whether a value is valid, and what is expected
_Keys = Mapping[str, _Check]
_TEXT = _is_text, "a string"
_TEXTS = _is_texts, "a list of strings"
_ONE_OR_MORE: _Check = (lambda value: isinstance(value, str) or _is_texts(value)), "a list of strings"
_SPAN = _is_text, "a duration such as '24h'"
_FLAG: _Check = (lambda value: type(value) is bool), "true or false"
_VERDICT: _Check = (lambda value: value in ("allow", "hold", "deny")), "'allow', 'hold' or 'deny'"
# The valid keys; those of a hold are the arguments of `hold`.
_OF_HOLD: _Keys = {
    "prompt": _TEXT, "quorum": (lambda value: type(value) is int and value > 0, "a number of people from 1"),
    "roles": _TEXTS, "expires": _SPAN, "risk": _TEXT, "summary": _TEXT, "redact": _TEXTS, "channels": _TEXTS,
    "effect": _TEXT, "escalate_after": _SPAN, "escalate_to": _TEXTS, "approve_from_notification": _FLAG,
}  # fmt: skip
_OF_RULE: _Keys = {
    "tool": _ONE_OR_MORE, "when": (_is_text, "a condition in CEL, as a string"), "verdict": _VERDICT, "reason": _TEXT,
    "name": _TEXT, "log": _FLAG, "budget": _ONE_OR_MORE,
    "examples": (_is_tables, "tables, each under [[rules.examples]]"), **_OF_HOLD,
}  # fmt: skip
_OF_EXAMPLE: _Keys = {
    "args": (lambda value: isinstance(value, dict), "a table, { amount = 40 }"), "expect": _VERDICT,
    "tool": (_is_text, "the name of a tool"), "run": _TEXT, "agent": _TEXT,
    "now": (
        lambda value: isinstance(value, datetime) and value.tzinfo is not None,
        "a time with its time zone, such as 2026-01-31T09:00:00Z",
    ),
}  # fmt: skip
_CHANNEL = re.compile(r"[a-z0-9_-]{1,40}")


def parse(text: str, *, is_settings: bool) -> tuple[list[Rule], list[Problem], str | None]:
    """Return the rules of a policy file, all its problems in order, and the file that `[policy] file =` names.

    Args:
        text: The file.
        is_settings: Whether it is a `sayso.toml`, which also has other tables.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at line (\d+), column (\d+)\)", str(error))
        if found is not None:
            return [], [Problem(int(found[1]), int(found[2]), str(error).replace(found[0], ""))], None
        return [], [Problem(text.count("\n") + 1, 1, re.sub(r" \(at .*\)", "", str(error)))], None
    except RecursionError:
        return [], [Problem(1, 1, "the file is nested too deeply to be read")], None
    positions = Positions(text)
    reader = _Reader(positions)
    if not is_settings:
        for name in content.keys() - {"rules"}:
            reader.wrong((name,), f"unknown key {name!r}; a policy file has [[rules]] and nothing else")
    given: Any = content.get("rules", [])
    if not _is_tables(given):
        reader.wrong(("rules",), "rules are tables, each under [[rules]]")
        return [], reader.problems, None
    tables = cast("list[dict[str, Any]]", given)
    if tables and not positions.has(("rules", 0)):
        reader.wrong(
            ("rules",), "write each rule under [[rules]]: a rule in braces has no line of its own for messages"
        )
        return [], reader.problems, None
    rules = [rule for number, table in enumerate(tables) if (rule := reader.rule(number, table)) is not None]
    reader.check_reached(rules)
    pointer = content.get("policy") if is_settings and not reader.problems else None
    file = None if pointer is None else reader.pointer(pointer, has_rules=bool(rules))
    return rules, sorted(reader.problems), file


class _Reader:
    """Reads rules and collects their problems."""

    def __init__(self, positions: Positions) -> None:
        self.problems: list[Problem] = []
        self._positions = positions
        self._names: dict[str, int] = {}

    def wrong(self, place: Place, message: str) -> None:
        self.problems.append(Problem(*self._positions.of(place), message))

    def pointer(self, given: Any, *, has_rules: bool) -> str | None:
        """Return the file that the table `[policy]` names; None if it has problems."""
        if not isinstance(given, dict):
            self.wrong(("policy",), "policy must be a table, [policy]")
            return None
        table = cast("dict[str, Any]", given)
        unknown, name, place = sorted(table.keys() - {"file"}), table.get("file"), ("policy", "file")
        if unknown:
            self.wrong(("policy", unknown[0]), f"unknown key {unknown[0]!r}; [policy] takes file and nothing else")
        elif not isinstance(name, str) or not name:
            self.wrong(place, "file takes the path of a policy file, as a string")
        elif has_rules:
            self.wrong(place, "write the rules either here, under [[rules]], or in the file that this names")
        else:
            return name
        return None

    def rule(self, number: int, given: dict[str, Any]) -> Rule | None:
        """Return the rule of a table; None if it has problems."""
        place, before = ("rules", number), len(self.problems)
        table = self._checked(place, given, _OF_RULE, "a rule")
        name = self._name(place, table, number)
        tools: tuple[str, ...] = tuple([table["tool"]] if isinstance(table.get("tool"), str) else table.get("tool", ()))
        if "tool" not in given:
            self.wrong(place, "a rule needs tool, a pattern such as 'refund' or 'github_*', or a list of patterns")
        elif given["tool"] == []:
            self.wrong((*place, "tool"), "tool is an empty list, so the rule is for no tool")
        for pattern in tools:
            if not pattern or _PATTERN.fullmatch(pattern) is None:
                self.wrong(
                    (*place, "tool"), f"{pattern!r} is not a pattern, which is a name in which * stands for any text"
                )
        examples = [
            self._example((*place, "examples", at), one, tools) for at, one in enumerate(table.get("examples", ()))
        ]
        if "when" in table:
            self._check_condition(place, table["when"])
        if "verdict" not in given:
            self.wrong(place, "verdict is missing: it is 'allow', 'hold' or 'deny'")
        verdict = self._verdict(place, table, name) if "verdict" in table else None
        if verdict is None or len(self.problems) > before:
            return None
        line, _ = self._positions.of(place)
        valid = tuple(one for one in examples if one is not None)
        return Rule(name, line, tools, table.get("when"), verdict, valid, self._positions, place, "name" in table)

    def _checked(self, place: Place, table: Mapping[str, Any], known: _Keys, what: str) -> dict[str, Any]:
        """Return the valid keys of a table; the others become problems."""
        found: dict[str, Any] = {}
        for key, value in table.items():
            if key not in known:
                near = closest(key, known)
                hint = f"{what} has {', '.join(known)}" if near is None else f"did you mean {near!r}?"
                self.wrong((*place, key), f"unknown key {key!r}; {hint}")
            elif not known[key][0](value):
                self.wrong((*place, key), f"{key} takes {known[key][1]}, not {value!r}")
            else:
                found[key] = value
        return found

    def _name(self, place: Place, table: dict[str, Any], number: int) -> str:
        name = table.get("name")
        if name is None:
            return f"rule {number + 1}"
        if not is_plain_name(name, 80):
            self.wrong((*place, "name"), "a name has 1 to 80 printable characters without surrounding spaces")
        elif name in self._names:
            self.wrong((*place, "name"), f"the rule in line {self._names[name]} is also called {name!r}")
        self._names.setdefault(name, self._positions.of(place)[0])
        return name

    def _verdict(self, place: Place, table: dict[str, Any], name: str) -> Verdict | None:
        kind = table["verdict"]
        may_be_held = kind == "hold" or (kind == "allow" and bool(table.get("budget")))
        for key in _OF_HOLD:
            if key in table and kind != "hold" and (not may_be_held or key == "approve_from_notification"):
                self.wrong((*place, key), f"{key} is for a rule that holds, and this rule says {kind}")
        if table.get("log") and kind != "allow":
            self.wrong(
                (*place, "log"), f"log is for a rule that allows, and this rule says {kind}, which is always recorded"
            )
        budgets = self._budgets(place, table)
        if may_be_held:
            held = self._hold(place, table, name)
            if kind == "hold" or held is None or held.approve_from_notification:  # the mistake was reported above
                return held
            return replace(held, kind="allow", budgets=tuple(budgets), log=table.get("log", False))
        if kind == "allow":
            return replace(allow(log=table.get("log", False)), rule=name, reason=table.get("reason"))
        if "reason" not in table:
            self.wrong(place, "a rule that denies needs a reason, which the program receives")
        return replace(deny(table.get("reason", "")), rule=name)

    def _budgets(self, place: Place, table: dict[str, Any]) -> list[Budget]:
        given, at = table.get("budget", []), (*place, "budget")
        if given and table["verdict"] != "allow":
            self.wrong(at, f"budget is for a rule that allows, and this rule says {table['verdict']}")
        if given and "name" not in table:
            self.wrong(at, "a rule with a budget needs a name, under which its tools share an account")
        try:
            return [Budget(text, table.get("name")) for text in ([given] if isinstance(given, str) else given)]
        except errors.ConfigError as error:
            self.wrong(at, str(error))
            return []

    def _hold(self, place: Place, table: dict[str, Any], name: str) -> Verdict | None:
        for key in ("summary", "effect"):
            try:
                hidden = [one for one in template_fields(table.get(key, "")) if "._" in one or not one]
            except ValueError as error:
                self.wrong((*place, key), f"{key} is not a valid template: {error}; write {{{{ for a brace")
                continue
            if hidden:
                self.wrong((*place, key), f"{key} names {hidden[0]!r}, which is not an argument")
        for channel in table.get("channels", ()):
            if _CHANNEL.fullmatch(channel) is None:
                self.wrong(
                    (*place, "channels"),
                    f"{channel!r} is not the name of a channel; the name of [channels.ops] is 'ops'",
                )
        for key in {"expires", "escalate_after"} & table.keys():
            try:
                duration.parse(table[key])
            except errors.ConfigError as error:
                self.wrong((*place, key), f"{key}: {error}")
                return None
        try:
            return replace(
                hold(table.get("reason"), **{key: table[key] for key in _OF_HOLD if key in table}), rule=name
            )
        except (errors.ConfigError, TypeError, ValueError) as error:
            key = "approve_from_notification" if "approve_from_notification" in str(error) else "escalate_after"
            self.wrong((*place, key) if key in table else place, str(error))
            return None

    def _check_condition(self, place: Place, when: str) -> None:
        """Collect the problems of a condition that do not depend on the tool; each tool's schema is checked later."""
        try:
            Condition(when, None)
        except ConditionError as error:
            for line, column, message in error.problems:
                self.problems.append(Problem(*self._positions.inside((*place, "when"), line, column), message))
        except errors.ConfigError as error:
            self.wrong((*place, "when"), str(error))

    def _example(self, place: Place, given: dict[str, Any], tools: tuple[str, ...]) -> Example | None:
        before = len(self.problems)
        table = self._checked(place, given, _OF_EXAMPLE, "an example")
        if "expect" not in given:
            self.wrong(place, "expect is missing: it is 'allow', 'hold' or 'deny'")
        tool = table.get("tool") or next((one for one in tools if "*" not in one), None)
        if tool is None:
            self.wrong(place, "the rule's patterns name no single tool, so the example needs tool")
        if len(self.problems) > before or tool is None:
            return None
        line, _ = self._positions.of(place)
        rest = table.get("run"), table.get("agent"), table.get("now")
        return Example(line, tool, table.get("args", {}), table["expect"], *rest)

    def check_reached(self, rules: list[Rule]) -> None:
        """Collect the rules that no call reaches, because an earlier one matches all of their calls."""
        # By condition: the rules that have a tool by name, and those that have it by a pattern with a star.
        named, starred = defaultdict[Any, set[int]](set), defaultdict[Any, list[tuple[str, int]]](list)
        for number, rule in enumerate(rules):
            takers: set[int] | None = None
            for tool in rule.tools:
                found: set[int] = set()
                for when in {None, rule.when}:
                    names = set[str]() if "*" in tool else names_of(tool, short_name(tool))
                    found.update(named[when, tool], *(named[when, name] for name in names))
                    for pattern, at in starred[when]:
                        if _matches(pattern, tool) or ("*" not in tool and matches(pattern, tool, short_name(tool))):
                            found.add(at)
                takers = found if takers is None else takers & found
            if takers:
                earlier = rules[min(takers)]
                why = "has no condition" if earlier.when is None else "has the same condition"
                what = f"no call reaches this rule: {earlier.name!r} in line {earlier.line} {why} and comes first"
                self.wrong(rule.place, what)
            for tool in rule.tools:
                if "*" in tool:
                    starred[rule.when].append((tool, number))
                else:
                    named[rule.when, tool].add(number)


def template_fields(text: str) -> list[str]:
    """Return the fields of a template, in order; raises `ValueError` if it is invalid."""
    found: list[str] = []
    for _, part, spec, _ in string.Formatter().parse(text):
        if part is not None:
            found += [part, *template_fields(spec or "")]
    return found
