"""Checks of what a program asks: nothing that an agent sent is believed that the server can work out itself.

The digests are computed anew from the arguments, what people will be shown is compared with what would run, times and
the requester are the server's own, and what cannot be drawn is refused now and not on a reviewer's page. Arguments must
be all those that a gate binds, written as `canonical.encode` writes them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, ValidationError

from sayso import errors
from sayso.model import canonical
from sayso.model.canonical.decode import fields_of, items_of, tag_in
from sayso.model.canonical.tags import TAGS, Json, Unfit, dump
from sayso.model.edit import schema_of
from sayso.model.fingerprint import call_digest, fingerprint, question_digest
from sayso.model.redaction import FAILED, Redaction, agrees
from sayso.model.request import Call, Question, Request, State
from sayso.model.reviewer import Identity
from sayso.model.schema import Schema, SchemaError
from sayso.server.api.endpoint import Input
from sayso.server.pages.forms import answer_fields, argument_fields
from sayso.stores.codec import Row, Seal, asked_values, request_of, schema_id
from sayso.view.card import headline, subject_rows

__all__ = [
    "LARGEST",
    "LONGEST",
    "MOST_CLASSES",
    "MOST_VALUES",
    "AskedRequest",
    "must_be_canonical",
    "must_be_small",
    "validate_arguments",
    "validate_request",
]

LARGEST = 65_536
"""The most bytes of a call, or of what is said beside it, that a token asks with; every list of requests reads them."""

MOST_VALUES = 2_000
"""The most values in them, nested ones counted."""

MOST_CLASSES = 200
"""The most classes that the schema of such a call describes; validators are compiled of each."""


def validate_arguments(form: str, schema_text: str) -> dict[str, Json]:
    """Return the tree of a call's arguments.

    Args:
        form: Their canonical form.
        schema_text: The JSON Schema of the function's arguments.

    Raises:
        AskRefusedError: They are too many, not in canonical form, or not what a gate of this function binds.
    """
    tree = canonical.load(form)
    _must_be_few(tree)
    if len(canonical.load(schema_text).get("$defs", ())) > MOST_CLASSES:  # pyright: ignore[reportArgumentType]
        _refuse(f"the schema describes more than {MOST_CLASSES} classes")
    if canonical.text_of(tree) != form:
        _refuse("the arguments are not in their canonical form")
    try:
        must_be_canonical(tree)
    except errors.ArgumentError as error:
        _refuse(f"the arguments are not in their canonical form ({error.argument} {error.reason})")
    _must_fit(fields_of(tree) or {}, Schema.from_text(schema_text))
    return tree


def must_be_small(**texts: str) -> None:
    """Refuse a request of which a text is so large that it would hold up the lists that it is in.

    Raises:
        AskRefusedError: With the name of the text.
    """
    for name, text in texts.items():
        if len(text.encode(errors="replace")) > LARGEST:
            _refuse(f"`{name}` is larger than {LARGEST:,} bytes; pass a reference in place of the content")


def _must_be_few(tree: Json) -> None:
    left, waiting = MOST_VALUES, [tree]
    while waiting:
        item = waiting.pop()
        parts = list(item.values()) if isinstance(item, dict) else item if isinstance(item, list) else []
        left -= len(parts)
        if left < 0:
            _refuse(f"the arguments hold more than {MOST_VALUES:,} values; pass a reference in place of the content")
        waiting += parts


def _must_fit(named: dict[str, Json], schema: Schema) -> None:
    if named.keys() != schema.properties.keys():
        _refuse("the arguments are not those of the function's parameters, all of them and no other")
    # A default that only the program knows may be None whatever the annotation says, as in `token: str = None`.
    free = {
        name for name, form in named.items()
        if form is None and name not in schema.required and "default" not in schema.properties[name]
    }  # fmt: skip
    try:
        fitted = schema.fit(named, kept=free)
    except SchemaError as error:
        _refuse(f"the arguments do not fit the function's types ({error.problems[0]})")
    other = next((name for name in named if _is_other(named[name], fitted[name])), None)
    if other is not None:
        _refuse(f"the argument {other!a} is written as another type than the function's own")


def _is_other(given: Json, fitted: Json) -> bool:
    """Say whether what a person reads as true, false or a number is a text, or the other way round."""
    if isinstance(fitted, bool | int | float) and isinstance(given, str | bool | int | float):
        return isinstance(given, str) or isinstance(given, bool) is not isinstance(fitted, bool)
    parts, others = _parts(given), _parts(fitted)
    return parts.keys() == others.keys() and any(_is_other(part, others[step]) for step, part in parts.items())


def _parts(tree: Json) -> dict[str, Json]:
    items = items_of(tree)
    named = fields_of(tree) if items is None else {str(at): item for at, item in enumerate(items)}
    return named or {}


def must_be_canonical(tree: Json) -> None:
    """Refuse a tree that `encode` would not have written, whatever its classes are: they are not here.

    Raises:
        ArgumentError: With the reason.
    """
    named, items = fields_of(tree), items_of(tree)
    match tree:
        case {"$tuple": list()} | {"$enum": [str(), str()]} | {"$dataclass": [str(), dict()]} if len(tree) == 1:
            pass
        case {"$dict": dict(body)} if len(tree) == 1 and any(name.startswith("$") for name in body):
            pass
        case {"$model": [str(), dict(own), *rest]} if len(tree) == 1 and named is not None:
            _must_be_a_model(own, rest)
        case {"$model": [str(), dict(), dict()]} if len(tree) == 1:
            raise errors.ArgumentError("a value", "has one name for two values, or a part that there is not")
        case dict() if any(name.startswith("$") for name in tree):
            tag = tag_in(tree)
            if tag not in TAGS:
                raise errors.ArgumentError("a value", "has an unknown or malformed tag")
            try:
                TAGS[tag].value(tree[tag])
            except Unfit as unfit:
                raise errors.ArgumentError("a value", str(unfit)) from None
        case _:
            pass
    for part in [*(named or {}).values(), *(items or ())]:
        must_be_canonical(part)


def _must_be_a_model(own: dict[str, Json], rest: list[Json]) -> None:
    more = rest[0] if rest else {}
    if isinstance(more, dict) and bool(rest) is bool(more):
        unset, private = more.get("unset", []), more.get("private", {})
        is_ordered = [*more] == [name for name in ("extra", "private", "unset") if more.get(name)]
        names = [name for name in unset if isinstance(name, str) and name in own] if isinstance(unset, list) else [""]
        are_private = isinstance(private, dict) and all(name.startswith("_") for name in private)
        if is_ordered and are_private and names == unset == sorted(names):
            return
    raise errors.ArgumentError("a value", "has a malformed $model")


def _refuse(reason: str) -> NoReturn:
    raise errors.AskRefusedError(reason)


LONGEST = timedelta(days=30)
"""No request waits for longer, and no approval counts for longer, whatever a program says."""

_SHORTEST = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
_EQUAL_QUESTIONS = 1_000  # in one run, each with a digest of its own

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Person = Annotated[list[str], Field(min_length=2, max_length=2)]


class AskedRequest(Input):
    """A request as a program asks it: the columns of its row that are the program's to say."""

    id: str = Field(pattern=r"^rq_[0-9a-f]{32}$", description="Random, by the program.")
    kind: Literal["call", "question"]
    run_id: str = Field(min_length=1, max_length=500)
    fingerprint: Digest = Field(description="Over run, place and digest; computed anew here.")
    tool: str = Field(max_length=500, description="`module:function`, or the name that the gate was given.")
    name: str = Field(max_length=200)
    risk: str | None = Field(max_length=200)
    asked: str = Field(max_length=500_000, description="What else the program says, as JSON text.")
    form: str = Field(max_length=1_100_000, description="The arguments in their canonical form, as JSON text.")
    masked: str | None = Field(max_length=1_100_000, description="The same with secrets masked.")
    digest: Digest = Field(description="Over tool, schema and arguments; computed anew here.")
    schema_digest: Digest
    schema_text: str = Field(max_length=500_000, description="The function's parameters and their types, as JSON text.")
    lasts: int = Field(ge=0, le=10**15, description="Microseconds until it ends, 30 days at most.")


class _Words(Input):
    """What stands in `asked`, as `sayso.stores.codec` writes it; a key that is not here is not the program's to say."""

    requester: Person
    window: int = Field(ge=0, le=10**15)
    schema_id: str = Field(max_length=64)
    on_behalf_of: Person | None = None
    also_for: list[Person] = Field(default_factory=list[Person], max_length=20)
    process: str | None = Field(None, max_length=500)
    quorum: list[int | str] = Field(default_factory=lambda: [1], min_length=1, max_length=20)
    key: str | None = Field(None, min_length=1, max_length=500)
    effect: str | None = Field(None, min_length=1, max_length=500)
    title: str | None = Field(None, max_length=500)
    summary: str | None = Field(None, max_length=2_000)
    prompt: str | None = None
    description: str | None = None
    rule: str | None = None
    context: dict[str, Any] | None = None
    place: str = ""
    retries: int = Field(0, ge=0, le=100)
    idempotent: bool = False
    redact: list[str] = Field(default_factory=list[str], max_length=100)
    notify_arguments: bool = False
    escalation: tuple[int, list[str], list[Person]] | None = Field(None, strict=False)


def validate_request(said: AskedRequest, *, me: Identity, owner: Identity, now: datetime) -> Request:
    """Return the request that a program asks, pending from now on, with everything checked or set here.

    Args:
        said: What came from the program.
        me: Who asks, as the token says.
        owner: In whose name the token was made; may not decide it.
        now: The server's instant.

    Raises:
        AskRefusedError: It is not what it says, or cannot be shown.
    """
    must_be_small(form=said.form, asked=said.asked)
    try:
        words = _Words.model_validate(json.loads(said.asked, parse_constant=_no_number))
        request = _request(said, words, me, owner, now)
        _drawn(request)
    except errors.AskRefusedError:
        raise
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        raise errors.AskRefusedError(f"`asked` does not fit at {where or 'its top'}") from None
    except Exception as error:  # what an agent sent may break anything, and must break it here, not on a person's page
        raise errors.AskRefusedError(f"it cannot be read or drawn ({type(error).__name__})") from error
    return request


def _request(said: AskedRequest, words: _Words, me: Identity, owner: Identity, now: datetime) -> Request:
    subject = _question(said) if said.kind == "question" else _call(said, words)
    if fingerprint(said.run_id, said.digest, words.place, words.key) != said.fingerprint:
        _sound_refuse("the fingerprint is not that of this run, place, key and call")
    if words.schema_id != schema_id(said.schema_text):
        _sound_refuse("the schema is not the one that the request names")
    also = [Identity(*person) for person in words.also_for]
    behalf = owner if words.on_behalf_of is None else Identity(*words.on_behalf_of)
    if owner != behalf and owner not in also:
        also.append(owner)
    asked = request_of(_as_row(said), Seal(), lambda _: said.schema_text)
    return replace(
        asked, subject=subject, requester=me, on_behalf_of=behalf, also_for=tuple(also), created_at=now,
        expires_at=now + _span(said.lasts), approval_window=_span(words.window),
    )  # fmt: skip


def _as_row(said: AskedRequest) -> Row:
    """Return the row of a request that waits, with what the program said of it, so that the stores' codec reads it."""
    ours = {"created_at": 0, "state": State.PENDING.value, "holds": 1, "progress": '{"ends":0}'}
    return Row._make(ours.get(name, getattr(said, name, None)) for name in Row._fields)


def _call(said: AskedRequest, words: _Words) -> Call:
    _must_be_its_name(said.tool, said.name)
    _must_be_its_shape(said)
    tree = validate_arguments(said.form, said.schema_text)
    if call_digest(said.tool, said.schema_digest, canonical.digest_input(said.form)) != said.digest:
        _sound_refuse("the digest is not that of this tool, schema and arguments")
    return Call(
        said.tool, said.name, said.form, _masked(said, words, tree), said.digest, said.schema_text, said.schema_digest
    )


def _masked(said: AskedRequest, words: _Words, tree: dict[str, Any]) -> str | None:
    """Return what people are shown: what the program says, if it is the call but for masks, with ours put on too."""
    shown = tree if said.masked is None else canonical.load(said.masked)
    if shown == dict(FAILED):
        _sound_refuse("the gate's own redactor failed, and people would be shown nothing of what would run")
    if not agrees(shown, tree):
        _sound_refuse(
            "what people would be shown is not what would run but for masked values (a gate's own redactor can do no"
            " more on a server, which cannot run it)"
        )
    masked = Redaction(words.redact).mask(shown)
    return None if said.masked is None and masked is shown else dump(masked)


def _question(said: AskedRequest) -> Question:
    text = json.loads(said.form)["text"]
    _must_be_its_shape(said)
    digests = (question_digest(text, said.schema_digest, occasion) for occasion in range(_EQUAL_QUESTIONS))
    if said.digest not in digests or said.tool or said.name or said.masked is not None:
        _sound_refuse("the digest is not that of this question")
    return Question(text, said.digest, said.schema_text, said.schema_digest)


def _must_be_its_name(tool: str, name: str) -> None:
    last = tool.rpartition(":")[2].rpartition(".")[2]
    if not name or name not in {tool, last} or not tool.isprintable() or tool != tool.strip():
        _sound_refuse(f"{name!a} is not the name of the tool {tool!a}")


def _must_be_its_shape(said: AskedRequest) -> None:
    if Schema.from_text(said.schema_text).digest != said.schema_digest:
        _sound_refuse("the schema's digest is not that of the schema")


def _drawn(request: Request) -> None:
    """Draw what a reviewer would see, and write what a store would; whatever is wrong with it raises here."""
    headline(request)
    subject_rows(request, width=80)
    schema = schema_of(request)
    _ = answer_fields(schema) if request.kind == "question" else argument_fields(request, schema)
    asked_values(request, Seal())


def _span(microseconds: int) -> timedelta:
    return min(max(microseconds * _MICROSECOND, _SHORTEST), LONGEST)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _sound_refuse(reason: str) -> NoReturn:
    raise errors.AskRefusedError(reason)
