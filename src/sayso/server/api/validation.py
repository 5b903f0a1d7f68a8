"""What the server checks of a program: what it asks, and that it reaches only its own requests and runs.

The server trusts nothing that it can compute itself. It computes the digests from the arguments, compares what people
will see with what would run, sets the times and the requester itself, and renders the request once, so that a failure
refuses the ask instead of breaking a reviewer's page. Arguments must be complete, as a gate binds them (those of a
foreign tool as its schema says), and in the form that `canonical.encode` writes.

A run belongs to the program that first wrote to it; a second program that uses the same name is refused. Chains that
sayso itself writes belong to no program. Invariant: an object of another program gets the same answer as a missing one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn, cast

from starlette.requests import Request as Http

from sayso import errors
from sayso.model import canonical, teamwork
from sayso.model.canonical.json_tree import Json, Reader, children_of, dump, fields_of
from sayso.model.grant import Budget
from sayso.model.ids import call_digest, fingerprint, question_digest
from sayso.model.journal import Entry
from sayso.model.redaction import FAILED, Redaction, agrees, scrub
from sayso.model.request import Call, Question, Request
from sayso.model.reviewer import PROGRAM, Identity
from sayso.model.run import RunSnapshot, RunUpdate
from sayso.model.schema import Schema, SchemaError
from sayso.policy import Verdict, in_effect
from sayso.server.api.endpoint import Context, Principal, encoded
from sayso.server.pages.forms import fields_for
from sayso.server.protection import Slot
from sayso.stores.base import Filter, Page, Store
from sayso.stores.codec import asked_values
from sayso.stores.http_messages import AskedRequest
from sayso.stores.records import Record
from sayso.stores.review import page_where
from sayso.view.full_text import headline, subject_rows
from sayso.view.summary import risk_rank

_log = logging.getLogger("sayso.server")

_MAX_BYTES = 65_536  # of a call, and of the other texts of its request: every list of requests reads them
_MAX_VALUES = 2_000  # in the arguments, including nested ones
_MAX_CLASSES = 200  # in a call's schema; each needs a compiled validator


def validate_arguments(form: str, schema_text: str) -> dict[str, Json]:
    """Validate the arguments of a call and return their tree; raises `AskRefusedError`."""
    tree = canonical.load(form)
    left, waiting = _MAX_VALUES, [tree]
    while waiting:
        item = waiting.pop()
        parts = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
        left -= len(parts)
        if left < 0:
            _refuse(f"the arguments contain more than {_MAX_VALUES:,} values; pass a reference instead of the content")
        waiting += parts
    schema = Schema.from_text(schema_text)
    if len(schema.tree.get("$defs", ())) > _MAX_CLASSES:
        _refuse(f"the schema defines more than {_MAX_CLASSES} classes")
    if canonical.dump(tree) != form:
        _refuse("the arguments are not in canonical form")
    try:
        _Reader({}).value(tree)
    except errors.ArgumentError as error:
        _refuse(f"the arguments are not in canonical form ({error.argument} {error.reason})")
    _must_match_types(fields_of(tree) or {}, schema)
    return tree


def _must_match_types(named: dict[str, Json], schema: Schema) -> None:
    # A gate binds its function's defaults. Of a foreign tool, its own schema says which arguments may be left out or
    # added, and what is shown is all that it gets.
    if schema.is_own and named.keys() != schema.properties.keys():
        _refuse("the arguments must match the function's parameters exactly: all of them and no others")
    # A default that only the program knows may be None although the type does not allow it (`token: str = None`).
    free = {
        name for name, form in named.items()
        if schema.is_own and form is None and name not in schema.required and "default" not in schema.properties[name]
    }  # fmt: skip
    try:
        fitted = schema.fit(named, kept=free)
    except SchemaError as error:
        _refuse(f"the arguments do not match the function's types ({error.problems[0]})")
    other = next((name for name in named if _has_other_type(named[name], fitted[name])), None)
    if other is not None:
        _refuse(f"the argument {other!a} is encoded as another type than the function's own")


def _has_other_type(given: Json, fitted: Json) -> bool:
    """Return whether a number or boolean is written as a text, or a boolean as a number or the other way round."""
    if isinstance(fitted, bool | int | float) and isinstance(given, str | bool | int | float):
        return isinstance(given, str) or isinstance(given, bool) is not isinstance(fitted, bool)
    parts, others = children_of(given) or {}, children_of(fitted) or {}
    return parts.keys() == others.keys() and any(_has_other_type(part, others[step]) for step, part in parts.items())


class _Reader(Reader):
    """Reads a tree in which classes are named that only the program has; values of those stay as they are."""

    def _class(self, name: str) -> type:  # noqa: ARG002  any
        return object

    def _member(self, cls: type, name: str) -> object:  # noqa: ARG002
        return name

    def _dataclass(self, cls: type, tree: dict[str, Json]) -> object:  # noqa: ARG002
        return self.fields(tree)

    def _model(self, cls: type, tree: dict[str, Json], rest: dict[str, Json]) -> object:  # noqa: ARG002
        named = fields_of({"$model": ["", tree, rest]} if rest else {"$model": ["", tree]})
        if named is None:
            self.refuse("has a name twice, or an unknown part")
        unset, private = rest.get("unset", []), rest.get("private", {})
        is_ordered = [*rest] == [name for name in ("extra", "private", "unset") if rest.get(name)]
        names = [name for name in unset if isinstance(name, str) and name in tree] if isinstance(unset, list) else [""]
        are_private = isinstance(private, dict) and all(name.startswith("_") for name in private)
        if not (is_ordered and are_private and names == unset == sorted(names)):
            self.refuse("has a malformed $model")
        return self.fields(named)


def _refuse(reason: str) -> NoReturn:
    raise errors.AskRefusedError(reason)


_MAX_LIFETIME = timedelta(days=30)  # of a pending request, and of an approval
_MIN_LIFETIME = timedelta(seconds=1)
_MAX_SCHEMA = 500_000
_EQUAL_QUESTIONS = 1_000  # in one run; a counter in the digest tells them apart
_COPIED = (
    "id", "run_id", "fingerprint", "quorum", "process", "key", "effect", "title", "summary", "prompt", "description",
    "risk", "rule", "context", "place", "retries", "idempotent", "notify_arguments", "escalation", "always", "channels",
)  # fmt: skip


def validate_request(asked: AskedRequest, *, me: Identity, owner: Identity, now: datetime) -> Request:
    """Return what a program asks as a pending request, in which every field is validated or set here.

    Raises:
        AskRefusedError: It is inconsistent, too large, or cannot be shown.
        Denied: The policy of the server denies the call.
    """
    subject, further = asked.subject, {**vars(asked)}
    del further["subject"]
    what, form = ("question", subject.text) if isinstance(subject, Question) else ("arguments", subject.form)
    for name, text in ((what, form.encode(errors="replace")), ("other texts", encoded(further, is_ascii=False))):
        if len(text) > _MAX_BYTES:  # it would slow down lists
            _refuse(f"{name}: more than {_MAX_BYTES:,} bytes; pass a reference instead of the content")
    try:
        request = _request(asked, me, owner, now)
        if request.kind == "call":
            request = _under_policy(request, asked.budgets)
        _must_be_showable(request)
    except (errors.AskRefusedError, Denied):
        raise
    except Exception as error:  # input that breaks any code must break it here, not on a reviewer's page
        raise errors.AskRefusedError(f"it cannot be parsed or displayed ({type(error).__name__})") from error
    return request


def _request(asked: AskedRequest, me: Identity, owner: Identity, now: datetime) -> Request:
    subject = asked.subject
    if len(subject.schema) > _MAX_SCHEMA or Schema.from_text(subject.schema).digest != subject.schema_digest:
        _refuse("schema_digest does not match the schema")
    if isinstance(subject, Question):
        digests = (question_digest(subject.text, subject.schema_digest, each) for each in range(_EQUAL_QUESTIONS))
        if subject.digest not in digests:
            _refuse("digest does not match the question")
    else:
        subject = _call(subject, asked.redact)
    if fingerprint(asked.run_id, subject.digest, asked.place, asked.key) != asked.fingerprint:
        _refuse("fingerprint does not match the run, place, key and call")
    if asked.escalation is not None:
        _ = now + asked.escalation.after  # raises if no clock has this time
    also, behalf = list(asked.also_for), asked.on_behalf_of or owner
    if owner != behalf and owner not in also:
        also.append(owner)
    return Request(
        kind="question" if isinstance(subject, Question) else "call", subject=subject, requester=me,
        on_behalf_of=behalf, also_for=tuple(also), created_at=now, expires_at=now + _span(asked.lasts),
        approval_window=_span(asked.approval_window), redact=tuple(asked.redact),
        **{name: getattr(asked, name) for name in _COPIED},
    )  # fmt: skip


def _call(call: Call, redact: Sequence[str]) -> Call:
    """Validate a call and return it as stored: people see what the program shows, masked by the server as well."""
    last = call.tool.rpartition(":")[2].rpartition(".")[2]
    is_name = 0 < len(call.name) <= 200 and len(call.tool) <= 500 and call.name in {call.tool, last}
    if not is_name or not call.tool.isprintable() or call.tool != call.tool.strip():
        _refuse(f"{call.name!a} is not the name of the tool {call.tool!a}")
    tree = validate_arguments(call.form, call.schema)
    if call_digest(call.tool, call.schema_digest, canonical.digest_input(call.form)) != call.digest:
        _refuse("digest does not match the tool, schema and arguments")
    shown = tree if call.masked is None else canonical.load(call.masked)
    if shown == dict(FAILED):
        _refuse("the gate's own redactor failed, so reviewers could not see what would run")
    if not agrees(shown, tree):
        _refuse(
            "what reviewers would see must be what would run, apart from masked values (on a server, a"
            " gate's own redactor can only mask values)"
        )
    masked = Redaction(tuple(redact)).mask(shown)
    return replace(call, masked=None if call.masked is None and masked is shown else dump(masked))


# -- the policy of the server --------------------------------------------------------------------------------------


class Denied(Exception):
    """The policy file of the server denies a call. `detail` is for the journal of its run."""

    def __init__(self, request: Request, verdict: Verdict) -> None:
        super().__init__(f"the server's policy denies {request.call.name} ({verdict.rule}): {verdict.reason}")
        self.run_id = request.run_id
        self.detail = {"tool": request.call.tool, "rule": verdict.rule, "reason": verdict.reason}


def _under_policy(request: Request, budgets: Sequence[tuple[str, str | None]]) -> Request:
    """Return a call with the requirements of the server's policy added to the program's, and with its budgets.

    A program cannot allow its own calls: its budgets count only if the server's policy allows the call too.

    Raises:
        Denied: The policy denies the call.
        AskRefusedError: The policy fails, or its requirements conflict with the program's.
    """
    for text, name in budgets:
        Budget(text, name)  # raises if it is not a budget
    call = request.call
    try:
        policy = in_effect()
        here = None if policy is None else policy.verdict(
            call.tool, cast("dict[str, Any]", canonical.display(canonical.load(call.form))),
            schema=Schema.from_text(call.schema), agent=request.requester.subject,
            run=request.run_id if request.process is None else None, now=request.created_at,
            is_function=call.tool != call.name,
        )  # fmt: skip
    except errors.PolicyError as error:
        _log.error("a call was refused, because the policy could not be evaluated: %s", error)
        _refuse("the server's policy could not be evaluated; see the server's log")
    if here is None:
        why = "the server has no policy" if budgets else None
    else:
        if here.kind == "deny":
            raise Denied(request, here)
        held = _with_needs(request, here)
        is_more = held is not request or (budgets and here.kind != "allow")
        says = f"the server's policy says {here.kind}: {here.rule}{f' ({here.reason})' if here.reason else ''}"
        why = says if is_more else None
        if budgets and here.kind == "allow":
            ours = tuple((one.text, one.name) for one in here.budgets)
            held = replace(held, budgets=tuple(dict.fromkeys((*ours, *budgets))))
        request = held
    return request if why is None else replace(request, rule=why if request.rule is None else f"{request.rule}; {why}")


def _with_needs(request: Request, rule: Verdict) -> Request:
    """Return a call with the stricter of the program's and our rule's requirements; itself if nothing changes."""
    needs: dict[str, Any] = {"risk": max(request.risk, rule.risk, key=risk_rank)}
    if rule.quorum is not None:
        needs["quorum"] = both = rule.quorum.joined(request.quorum)
        if not both.covers(request.quorum):  # the program would withdraw a request with less than its own rule requires
            _refuse(
                f"the server's policy requires {rule.quorum}, and the program {request.quorum}: they have no"
                " role in common"
            )
        later = request.escalation  # it lets more people decide, so both must name them
        needs["escalation"] = later if later is not None and later.is_within(rule.escalation) else None
    if rule.expires is not None:
        needs["expires_at"] = min(request.expires_at, request.created_at + rule.expires)
    if rule.channels:
        needs["channels"] = tuple(one for one in rule.channels if not request.channels or one in request.channels)
        if not needs["channels"]:
            theirs = ", ".join(request.channels)
            _refuse(
                f"the server's policy allows only the channels {', '.join(rule.channels)}, and the program only"
                f" {theirs}"
            )
    if any(name not in request.redact for name in rule.redact):
        needs |= _masked(request, rule.redact)
    changed = {name: value for name, value in needs.items() if value != getattr(request, name)}
    return replace(request, **changed) if changed else request


def _masked(request: Request, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a request masked by our rule, including the texts with which the program describes it."""
    call, redact = request.call, tuple(dict.fromkeys((*request.redact, *names)))
    redaction = Redaction(redact)
    shown = canonical.load(call.form if call.masked is None else call.masked)
    masked, secrets = redaction.mask(shown), redaction.secrets(canonical.load(call.form))
    for name in ("key", "effect"):
        text = getattr(request, name)
        if text is not None and scrub(text, secrets) != text:
            _refuse(f"its {name} contains a value that the server's policy masks")
    words = {name: getattr(request, name) for name in ("title", "summary", "prompt", "description", "rule", "context")}
    return {
        "subject": call if masked is shown else replace(call, masked=dump(masked)), "redact": redact,
        **{name: redaction.mask_facts(value, secrets) for name, value in words.items()},
    }  # fmt: skip


_rendered_types: set[tuple[str, ...]] = set()  # results of `_plain_types` that were rendered before
_MOST_TYPES = 4_096
_LARGEST_PLAIN = 10**15


def _plain_types(request: Request) -> tuple[str, ...] | None:
    """Return the schema's digest and the types of all arguments; None if a value or a text is not plain.

    It spares the rendering, half of the time of an ask: if one plain value (a number or printable ASCII) can be
    rendered, so can every other of the same type.
    """
    subject = request.subject
    if isinstance(subject, Question) or subject.masked is not None or request.context is not None:
        return None
    words = (
        request.run_id, request.key, request.effect, request.title, request.summary, request.prompt,
        request.description, request.risk, request.rule, request.place, request.process, subject.tool,
    )  # fmt: skip
    arguments = canonical.load(subject.form)
    if not all(map(_is_plain, (*words, *arguments.values()))):
        return None
    return subject.schema_digest, *(f"{name}:{type(value).__name__}" for name, value in arguments.items())


def _is_plain(value: Json) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isprintable()
    return value is None or (isinstance(value, int) and abs(value) < _LARGEST_PLAIN)


def _must_be_showable(request: Request) -> None:
    """Render what a reviewer would see and encode what a store would write, so that any error is raised here."""
    plain = _plain_types(request)
    if plain is not None and plain in _rendered_types:
        return
    headline(request)
    subject_rows(request, width=80)
    fields_for(request)
    asked_values(request)
    if plain is not None:
        if len(_rendered_types) >= _MOST_TYPES:
            _rendered_types.clear()
        _rendered_types.add(plain)


def _span(span: timedelta) -> timedelta:
    return min(max(span, _MIN_LIFETIME), _MAX_LIFETIME)


AAP_RUNS = "aap:"
"""Prefix of the run ids of calls asked through the Agent Approval Protocol; the program's name and a digest follow."""

_ID = re.compile(r"rq_[0-9a-f]{32}")
_RECORD = "run"
_OWN_CHAINS = "sayso:"  # of checkpoints and tokens; a program that owned one could forge their records
_LOOKED_AT = 2_000  # requests read for one page of a list
_SOMEBODY = Identity(PROGRAM, "somebody")


class Ownership(Context):
    """A program's request to the API, and what the program may see of the store.

    Attributes:
        me: The program, as the requester of its requests.
        owner: The person or program in whose name the token was made, who may not decide what was asked with it.
    """

    def __init__(self, http: Http, principal: Principal, slot: Slot | None, store: Store | None = None) -> None:
        super().__init__(http, principal, slot, store)
        self.me, self.owner = principal.requester, principal.reviewer.identity
        self._readable: dict[str, bool] = {}

    # -- requests ----------------------------------------------------------------------------------------------

    def is_mine(self, request: Request) -> bool:
        """Return whether the program asked a request."""
        return request.requester == self.me

    def request(self, request_id: str) -> Request:
        """Return one of the program's requests; raises `RequestNotFoundError` for any other id."""
        request = self.store.get(request_id) if _ID.fullmatch(request_id) else None
        if request is None or not self.is_mine(request):
            raise errors.RequestNotFoundError(request_id)
        return request

    def request_or_none(self, request_id: str) -> Request | None:
        """Return one of the program's requests; None for any other id."""
        try:
            return self.request(request_id)
        except errors.RequestNotFoundError:
            return None

    def page(self, wanted: Filter, cursor: str | None, limit: int, *, newest: bool) -> Page:
        """Return a page of the program's requests. It may be short, even empty, and still have a cursor.

        Raises:
            ValueError: The cursor is not one of this list.
        """
        # A program mostly lists its own runs, so most pass.
        read = partial(self.store.list, wanted, newest=newest)
        return page_where(read, self.is_mine, cursor=cursor, limit=limit, chunk=0, most=_LOOKED_AT)[0]

    # -- runs --------------------------------------------------------------------------------------------------

    def run(self, run_id: str) -> RunSnapshot:
        """Return one of the program's runs; raises `RunNotFoundError` for any other id."""
        self.must_be_mine(run_id)
        return self.store.get_run(run_id)

    def must_be_mine(self, run_id: str) -> None:
        """Raise `RunNotFoundError` for a run that the program did not begin."""
        if not self.is_my_run(run_id):
            raise errors.RunNotFoundError(run_id)

    def is_my_run(self, run_id: str) -> bool:
        """Return whether the program began a run."""
        return self._owner(run_id) == self.me

    def may_read(self, entry: Entry) -> bool:
        """Return whether the program may read a journal row: of its requests, or a note by itself or the server.

        Comments among reviewers are not for programs.
        """
        if entry.event == teamwork.COMMENTED:
            return False
        if not entry.request_id:
            return entry.by == self.me.qualified or not entry.by.startswith(f"{self.me.issuer}:")
        if entry.request_id not in self._readable:
            self._readable[entry.request_id] = self.request_or_none(entry.request_id) is not None
        return self._readable[entry.request_id]

    def claim(self, run_id: str) -> bool:
        """Record that a run belongs to the program, if no program has begun it.

        Returns whether this call began the run, so that it is still empty. Raises `RunNotFoundError` if another has.
        """
        owner = self._owner(run_id)
        if owner is None:
            body = {"issuer": self.me.issuer, "subject": self.me.subject}
            if self.store.keep(Record(_RECORD, run_id, body), only_new=True):
                return True
            owner = self._owner(run_id)  # another process was faster
        if owner != self.me:
            raise errors.RunNotFoundError(run_id)
        return False

    def must_be_able_to_save(self, update: RunUpdate) -> None:
        """Raise a not-found error if a run, or a request that it waits for, belongs to another program."""
        if self._owner(update.run.id) not in {None, self.me}:  # a run that does not exist is free
            raise errors.RunNotFoundError(update.run.id)
        for request_id in {step.waits for step in update.steps if step.waits is not None}:
            try:
                request = self.store.get(request_id)
            except errors.RequestNotFoundError:
                continue  # about to be asked; nobody else can guess its random id
            if not self.is_mine(request):
                raise errors.RequestNotFoundError(request_id)

    def _owner(self, run_id: str) -> Identity | None:
        if run_id.startswith(_OWN_CHAINS):
            return _SOMEBODY
        if run_id.startswith(AAP_RUNS):  # by its name, so that no other program can begin it first
            name = run_id.removeprefix(AAP_RUNS).rpartition(":")[0]
            return self.me if name == self.me.subject else _SOMEBODY
        claimed = self._claimed_by(run_id)
        if claimed is not None:
            return claimed
        for first in self.store.journal(run_id=run_id, limit=1):
            return Identity.named(first.by)
        try:
            self.store.get_run(run_id)
        except errors.RunNotFoundError:
            return None
        # Another thread of the program may have claimed it meanwhile; else a process on this machine saved the run.
        return self._claimed_by(run_id) or _SOMEBODY

    def _claimed_by(self, run_id: str) -> Identity | None:
        record = self.store.record(_RECORD, run_id)
        return None if record is None else Identity(record.body["issuer"], record.body["subject"])
