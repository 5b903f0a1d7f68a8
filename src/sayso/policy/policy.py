"""`Policy`: evaluates the rules of a file for a call, and reads the file again when it changes.

With an invalid file no call passes: every evaluation raises `PolicyError` with line and column until the file is fixed.
Rules are evaluated in order; the first that matches decides, and a call that no rule matches is held. `replay` tells
what a policy would have decided about past requests, compared with what happened or with another policy. `in_effect` is
the policy of the settings file, for gates without `when=`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from sayso import clock, config, errors
from sayso.model import cached_property
from sayso.model.request import Request
from sayso.model.schema import Schema
from sayso.model.text import closest
from sayso.policy.condition import Condition, ConditionError, Facts, UndecidedError
from sayso.policy.rules import Problem, Rule, matches, parse, short_name, template_fields
from sayso.policy.verdict import Verdict, hold

_NO_RULE = replace(hold(), rule="no rule matches")
_SETTINGS = "sayso.toml"
_log = logging.getLogger("sayso")
_announced: set[str] = set()  # files whose use was logged
_MOST = 512  # cached conditions, per tool and schema


class EvaluatedRule(NamedTuple):
    """A rule that was evaluated for a call, and its result.

    Attributes:
        rule: The rule.
        result: `other tool` if no pattern matches, else the result of its condition: `false`, `true` or `undecided`.
        note: Why it is undecided.
        masked: The masked arguments that the condition needs.
    """

    rule: Rule
    result: Literal["other tool", "false", "true", "undecided"]
    note: str = ""
    masked: tuple[str, ...] = ()


class Answer(NamedTuple):
    """What a policy decides about a call.

    Attributes:
        verdict: The verdict; None if a condition could not be decided, so that the call does not run.
        steps: The evaluated rules, in order. The last one decided, unless none matched.
    """

    verdict: Verdict | None
    steps: tuple[EvaluatedRule, ...]


_Compiled = tuple[Rule, Condition | None]  # a rule for a tool, with its condition


@dataclass(eq=False)
class _Rules:
    """The rules of a file at one reading, with their conditions compiled for the tools seen so far."""

    label: str
    rules: tuple[Rule, ...]
    problems: tuple[Problem, ...]
    points_to: Path | None = None
    path: str = ""
    compiled: dict[tuple[str, str, str], list[_Compiled]] = field(default_factory=dict[Any, Any])

    @cached_property
    def policy(self) -> Policy:
        """A policy with exactly these rules, whatever happens to the file."""
        return Policy(None, self)

    def usable(self) -> Self:
        """Return these rules; raises `PolicyError` if the file has problems."""
        if self.problems:
            raise self.error(self.problems)
        return self

    def error(self, problems: tuple[Problem, ...]) -> errors.PolicyError:
        first, more = problems[0], len(problems) - 1
        rest = f" (and {more} more; `sayso policy check` lists them)" if more else ""
        return errors.PolicyError(f"{self.label}:{first.line}:{first.column}:", f"{first.message}{rest}")

    def for_tool(self, tool: str, name: str, schema: Schema | Mapping[str, Any] | None) -> list[_Compiled]:
        """Return the rules for a tool; raises `PolicyError` if a condition or template does not match its schema."""
        if schema is None:
            digest = ""
        elif isinstance(schema, Schema):
            digest = schema.digest
        else:
            digest = hashlib.sha256(json.dumps(schema, sort_keys=True, default=str).encode()).hexdigest()
        key = tool, name, digest
        known = self.compiled.get(key)
        if known is None:
            shape = _shape(schema)
            known, problems = self.checked(tool, name, shape, name)
            for rule in self.fitting(tool, name):
                problems += _template_problems(rule, shape, name)
            if problems:
                raise self.error(tuple(sorted(problems)))
            if len(self.compiled) >= _MOST:
                self.compiled.clear()
            self.compiled[key] = known
        return known

    def fitting(self, tool: str, name: str) -> list[Rule]:
        """Return the rules with a pattern that matches a tool."""
        return [rule for rule in self.rules if any(matches(pattern, tool, name) for pattern in rule.tools)]

    def checked(
        self, tool: str, name: str, shape: Schema | None, label: str
    ) -> tuple[list[_Compiled], list[Problem]]:  # fmt: skip
        """Return the rules for a tool, and the conditions that do not match its schema; `label` is for messages."""
        made: list[_Compiled] = []
        problems: list[Problem] = []
        for rule in self.fitting(tool, name):
            try:
                condition = None if rule.when is None else Condition(rule.when, shape, label)
                made.append((rule, condition))
            except ConditionError as error:
                problems += [Problem(*rule.at("when", line, column), text) for line, column, text in error.problems]
            except errors.ConfigError as error:
                problems.append(Problem(*rule.at("when"), str(error)))
        return made, problems


def _shape(schema: Schema | Mapping[str, Any] | None) -> Schema | None:
    return Schema.of_json(schema) if isinstance(schema, Mapping) else schema


def _budget_problems(rule: Rule, schema: Schema | None, tool: str) -> Iterator[Problem]:
    """Yield the budgets that sum up a field that the tool does not take. At a gate, such a call is held."""
    for budget in rule.verdict.budgets:
        fields: Mapping[str, Any] = {} if schema is None else schema.properties
        before = "args"
        for name in () if budget.path is None else budget.path.split("."):
            if schema is None or not fields:
                break  # anything may be in there
            if name not in fields:
                near = closest(name, fields)
                hint = f"there are {', '.join(fields)}" if near is None else f"did you mean {before}.{near}?"
                message = f"budget sums up args.{budget.path}, which is not an argument of {tool}; {hint}"
                yield Problem(*rule.at("budget", 1, budget.text.index("args.") + 1), message)
                break
            before, fields = f"{before}.{name}", schema.resolved(fields[name]).get("properties", {})


def _template_problems(rule: Rule, schema: Schema | None, tool: str) -> Iterator[Problem]:
    if schema is None or not schema.properties:
        return
    for key, text in (("summary", rule.verdict.summary), ("effect", rule.verdict.effect)):
        for part in template_fields(text or ""):
            name = part.partition(".")[0].partition("[")[0]
            if name not in schema.names:
                yield Problem(*rule.at(key), f"{key} names {name!r}, which {tool} does not take")


class Policy:
    """The rules of a policy file; `when=policy` applies them to a gate or a held call.

    Created by `Policy.load`; `str(policy)` is the name of its file.
    """

    def __init__(self, path: Path | None, rules: _Rules | None = None) -> None:
        self._path, self._fixed = path, rules

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Policy:
        """Return the policy of a file.

        Args:
            path: The file. Defaults to the `[[rules]]` of the settings file in effect (the one that `SAYSO_CONFIG`
                names, else the nearest `sayso.toml` from the working folder upwards), or to the file that its `[policy]
                file =` names. If there are no rules at all, every call is held.

        Raises:
            PolicyError: The file does not exist, may be written by others, or has mistakes; with line and column.
        """
        policy = cls.of_file(path)
        _ = policy.rules
        return policy

    @classmethod
    def of_file(cls, path: str | os.PathLike[str] | None = None) -> Policy:
        """Return the policy of a file as `load` does, even if it has mistakes; `problems` lists them."""
        return cls(None if path is None else Path(path).absolute())

    @property
    def label(self) -> str:
        """Path of the file, as messages show it."""
        return self._rules().label

    @property
    def path(self) -> str:
        """Absolute path of the file with the rules; empty if there is none."""
        return self._rules().path

    @classmethod
    def of_text(cls, text: str, name: str = "policy.toml") -> Policy:
        """Return the policy with this text, for tests; raises `PolicyError` if it has mistakes."""
        rules, problems, _ = parse(text, is_settings=False)
        return cls(None, _Rules(name, tuple(_labelled(rule, name) for rule in rules), tuple(problems)).usable())

    def let_through(self, name: str) -> None:
        """Log which file decides, at the first call that passes without a person."""
        file = str(self._path) if self._fixed is None else self._fixed.path
        if file not in _announced:
            _announced.add(file)
            with suppress(Exception):  # no call may fail because of a handler
                _log.info("%s allows calls that no person sees, for example this one of %s", self.path, name)

    def __str__(self) -> str:
        return "policy" if self._path is None else self._path.name

    def _rules(self) -> _Rules:
        if self._fixed is not None:
            return self._fixed
        if self._path is not None:
            return _read(str(self._path))
        found = _settings()
        return _Rules("no policy file", (), ()) if found is None else _read(*found)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that are now in the file; raises `PolicyError` if it cannot be used."""
        return self._rules().usable().rules

    def problems(
        self, tools: Mapping[str, Schema | Mapping[str, Any]] | None = None, *,
        asked_by: Mapping[str, str] | None = None,
    ) -> list[Problem]:  # fmt: skip
        """Return the problems of the file.

        Args:
            tools: Known tools by name, with the schemas of their arguments. Conditions, budgets and templates are
                checked with each tool that their rule's patterns match.
            asked_by: The program that asked for each of these tools, for messages.

        Raises:
            PolicyError: The file cannot be read.
        """
        rules = self._rules()
        about = _about(rules, tools or {}, asked_by or {})
        return sorted({*rules.problems, *(one for one, is_note in about if not is_note)})

    def notes(
        self, tools: Mapping[str, Schema | Mapping[str, Any]], *, asked_by: Mapping[str, str] | None = None
    ) -> list[Problem]:
        """Return templates that do not match a tool whose module no pattern names: it may belong to another project."""
        return sorted({one for one, is_note in _about(self._rules(), tools, asked_by or {}) if is_note})

    def explain(
        self, tool: str, arguments: Mapping[str, Any], *, schema: Schema | Mapping[str, Any] | None = None,
        run: str | None = None, agent: str | None = None, now: datetime | None = None, is_function: bool | None = None,
    ) -> Answer:  # fmt: skip
        """Return what the policy decides about a call, with the rules that it evaluated; see `verdict`."""
        rules, steps = self._rules().usable(), list[EvaluatedRule]()
        name = short_name(tool, is_function=is_function)
        facts = Facts.of(name, arguments, run, agent, now or clock.now())
        conditions = {id(rule): condition for rule, condition in rules.for_tool(tool, name, schema)}
        for rule in rules.rules:
            if id(rule) not in conditions:
                steps.append(EvaluatedRule(rule, "other tool"))
                continue
            condition = conditions[id(rule)]
            try:
                is_met = condition is None or condition.decide(facts)
            except UndecidedError as error:
                return Answer(None, (*steps, EvaluatedRule(rule, "undecided", str(error), error.masked)))
            steps.append(EvaluatedRule(rule, "true" if is_met else "false"))
            if is_met:
                return Answer(rule.verdict, tuple(steps))
        return Answer(_NO_RULE, tuple(steps))

    def verdict(
        self, tool: str, arguments: Mapping[str, Any], *, schema: Schema | Mapping[str, Any] | None = None,
        run: str | None = None, agent: str | None = None, now: datetime | None = None, is_function: bool | None = None,
    ) -> Verdict:  # fmt: skip
        """Return the verdict of the first rule that matches a call; a call that no rule matches is held.

        Args:
            tool: Name of the tool, `module:function` for a function.
            arguments: By name.
            schema: The JSON Schema of the arguments. Conditions are checked against it before they are evaluated.
            run: Name of the run.
            agent: Who asks.
            now: The time, for tests.
            is_function: Whether the tool is a Python function, which a pattern without a colon matches without its
                module; None if only the name is known. A name that somebody else chose is not a function.

        Raises:
            PolicyError: The file cannot be used, a condition does not match the schema, or it gives neither true nor
                false. The call must not run.
        """
        # The loop of `explain` without its steps, because this runs at every call of a gate.
        rules = self._rules().usable()
        facts, name = None, short_name(tool, is_function=is_function)
        for rule, condition in rules.for_tool(tool, name, schema):
            if condition is None:
                return rule.verdict
            if facts is None:
                facts = Facts.of(name, arguments, run, agent, now or clock.now())
            try:
                if condition.decide(facts):
                    return rule.verdict
            except UndecidedError as error:
                line, column = rule.at("when")
                where = f"{rules.label}:{line}:{column}:"
                raise errors.PolicyError(where, f"the condition of {rule.name!r}: {error}") from None
        return _NO_RULE


def _about(
    rules: _Rules, tools: Mapping[str, Schema | Mapping[str, Any]], asked_by: Mapping[str, str]
) -> Iterator[tuple[Problem, bool]]:
    """Yield what does not match known tools, and whether that is only worth a note."""
    for tool, given in tools.items() if not rules.problems else ():
        name, shape = short_name(tool), _shape(given)
        label = f"{tool} (asked by {asked_by[tool]})" if tool in asked_by else name
        for problem in rules.checked(tool, name, shape, label)[1]:
            yield problem, False
        for rule in rules.fitting(tool, name):
            names_it = name == tool or any(":" in pattern and matches(pattern, tool, name) for pattern in rule.tools)
            for problem in _template_problems(rule, shape, label):
                yield problem, not names_it
            for problem in _budget_problems(rule, shape, label):
                yield problem, False


def in_effect() -> Policy | None:
    """Return the policy of the settings file in effect; None if there is no such file, or it has no rules.

    Raises:
        PolicyError: The file cannot be used.
        ConfigError: `SAYSO_CONFIG` is empty.
    """
    found = _settings()
    if found is None:
        return None
    rules = _read(*found).usable()
    return rules.policy if rules.rules or rules.points_to is not None else None


# -- the file ------------------------------------------------------------------------------------------------------

_access, _F_OK, _AS_EFFECTIVE = os.access, os.F_OK, os.access in os.supports_effective_ids
_candidates: dict[str, tuple[str, ...]] = {}
_known: dict[str, tuple[tuple[Any, ...], _Rules]] = {}


def _settings() -> tuple[str, os.stat_result | None] | None:
    """Return the settings file in effect, as `config.settings_file` does, but fast: it runs at every call of a gate."""
    if (pinned := config.pinned) is not None:
        paths = () if pinned[0] is None else (str(pinned[0]),)
    elif "SAYSO_CONFIG" in os.environ and (named := config.named_file()) is not None:
        return named, None  # even if it does not exist: a missing file lets nothing through
    else:
        try:
            here = os.getcwd()  # noqa: PTH109  a `Path` costs more than the whole search
        except FileNotFoundError:
            here = config.working_folder()  # raises, and says what to do
        paths = _candidates.get(here)
        if paths is None:
            folder = Path(here)
            _candidates.clear()
            paths = _candidates[here] = tuple(str(one / _SETTINGS) for one in (folder, *folder.parents))
    for path in paths:
        if not _access(path, _F_OK, effective_ids=_AS_EFFECTIVE):  # usually it does not exist, and `stat` would raise
            continue
        try:
            there = os.stat(path)  # noqa: PTH116  faster, as above
        except OSError:
            continue
        return (path, there) if stat.S_ISREG(there.st_mode) else None
    return None


def _read(path: str, found: os.stat_result | None = None) -> _Rules:
    """Return the rules of a file, or of the one that its `[policy] file =` names, read again if it has changed."""
    rules = _read_one(path, found)
    if rules.points_to is None or rules.problems:
        return rules
    pointed = _read_one(str(rules.points_to))
    return replace(pointed, points_to=rules.points_to) if pointed.points_to is None else pointed


def _read_one(path: str, found: os.stat_result | None = None) -> _Rules:
    # Taken before the file is read, so that a file that changes meanwhile is read again at the next call.
    try:
        found = os.stat(path) if found is None else found  # noqa: PTH116  faster, as above
        stamp = found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode
    except OSError as error:
        stamp = (type(error).__name__,)
    known = _known.get(path)
    if known is None or known[0] != stamp:
        known = _known[path] = stamp, _parsed(Path(path))
    return known[1]


def _parsed(path: Path) -> _Rules:
    label = os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
    try:
        text = config.trusted_text(path)
    except (OSError, UnicodeDecodeError, errors.ConfigError) as error:
        reason = str(error) if isinstance(error, errors.ConfigError) else f"cannot be read: {error}"
        return _Rules(label, (), (Problem(1, 1, reason),))
    rules, problems, file = parse(text, is_settings=path.name == _SETTINGS or str(path) == config.named_file())
    points_to = None if file is None else path.parent / Path(file).expanduser()
    return _Rules(label, tuple(_labelled(rule, path.name) for rule in rules), tuple(problems), points_to, str(path))


def _labelled(rule: Rule, file: str) -> Rule:
    """Return a rule whose verdict names its place in the file, if it has no name of its own."""
    if rule.is_named:
        return rule
    return replace(rule, verdict=replace(rule.verdict, rule=f"{rule.name} ({file}:{rule.line})"))


Outcome = Literal["allow", "hold", "deny", "uncertain", "error"]


@dataclass
class Replay:
    """The result of a replay.

    Attributes:
        asked: The number of past calls that were evaluated.
        verdicts: How many the policy would have allowed, held and denied. `uncertain` depends on a masked value;
            `error` would not have run.
        changes: The ids of the calls with another decision, by the old and the new one.
        masked: The masked arguments that made verdicts uncertain, by name, and how often.
        left_out: The number of requests that are not calls, or were purged.
    """

    asked: int = 0
    verdicts: dict[str, int] = field(default_factory=dict[str, int])
    changes: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    masked: dict[str, int] = field(default_factory=dict[str, int])
    left_out: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        changes = [{"from": was, "to": now, "count": len(ids), "ids": ids} for (was, now), ids in self.changes.items()]
        return {
            "asked": self.asked, "verdicts": self.verdicts, "changes": changes, "masked": self.masked,
            "left_out": self.left_out,
        }  # fmt: skip


def replay(requests: Iterable[Request], policy: Policy, before: Policy | None = None) -> Replay:
    """Evaluate a policy for past calls, with the arguments that people saw and the time at which they were asked.

    Args:
        requests: The requests. Those that are not calls, or whose content was purged, are counted and left out.
        policy: The policy.
        before: The policy to compare with. Defaults to what happened: each was held, unless a budget allowed it.
    """
    found = Replay()
    for request in requests:
        if request.kind != "call" or request.purged_at is not None:
            found.left_out += 1
            continue
        outcome, masked = verdict_on(policy, request)
        was = "hold" if before is None else verdict_on(before, request)[0]
        if before is None and request.decision is not None and request.decision.under == "budget":
            was = "allow"
        found.asked += 1
        found.verdicts[outcome] = found.verdicts.get(outcome, 0) + 1
        for name in masked:
            found.masked[name] = found.masked.get(name, 0) + 1
        if was != outcome:
            found.changes.setdefault((was, outcome), []).append(request.id)
    return found


def verdict_on(policy: Policy, request: Request) -> tuple[Outcome, tuple[str, ...]]:
    """Evaluate a policy for a past call, with the arguments that people saw and the time at which it was asked.

    Return also the masked arguments that prevent an answer.
    """
    call, run = request.call, None if request.process is not None else request.run_id  # None: the program named none
    try:
        answer = policy.explain(
            call.tool, call.arguments, schema=Schema.from_text(call.schema), run=run,
            agent=request.requester.subject, now=request.created_at, is_function=call.tool != call.name,
        )  # fmt: skip
    except (errors.PolicyError, ValueError):
        return "error", ()
    if answer.verdict is not None:
        return answer.verdict.kind, ()
    masked = answer.steps[-1].masked
    return "uncertain" if masked else "error", masked
