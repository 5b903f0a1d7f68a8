"""JSON documents of the protocol: errors, ids, parsing, validation with the shipped schemas, and lenient spellings.

Every document that is accepted here is also valid under the protocol's frozen schemas.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from sayso.errors import SaysoError
from sayso.model import canonical
from sayso.model.edit import ID_PATTERN
from sayso.model.ids import new_token

if TYPE_CHECKING:
    import jsonschema_rs

VERSION = "1.0.0"
"""The version of the protocol, and of its schemas."""

KINDS = ("confirm", "learning-sample", "plan")
"""The names of the schemas."""

LIMIT_BYTES = 4_194_304
_MAX_PROBLEMS = 100
_MAX_QUOTED = 60
_IN_MESSAGE = 5

Place = tuple[str | int, ...]


# -- errors --------------------------------------------------------------------------------------------------------


class NotConformantError(SaysoError):
    """A document does not conform to the protocol's schema.

    Attributes:
        what: The kind of document, e.g. `Confirm`.
        problems: One line each: a JSON pointer and the problem, e.g. `/target_id: 'plan-123' is not a UUID`.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        rest = "" if len(problems) <= _IN_MESSAGE else f"; and {len(problems) - _IN_MESSAGE} more"
        super().__init__(f"this {what} does not conform to the protocol: {'; '.join(problems[:_IN_MESSAGE])}{rest}")
        self.what = what
        self.problems = tuple(problems)


class ConfirmNotFoundError(SaysoError):
    """No Confirm, plan or request has this id.

    Attributes:
        wanted: The requested id.
    """

    def __init__(self, wanted: str) -> None:
        super().__init__(f"no Confirm, plan or request {wanted!a} in this store; `sayso ls --all` lists all requests")
        self.wanted = wanted


class ConfirmRefusedError(SaysoError):
    """The Confirm or plan cannot change in this way; nothing was changed.

    Attributes:
        confirm_id: The id of the Confirm, or of the plan if it has no Confirm yet.
    """

    def __init__(self, confirm_id: str, reason: str) -> None:
        super().__init__(f"{reason}; nothing was changed")
        self.confirm_id = confirm_id
        self.reason = reason


class ConfirmLockedError(ConfirmRefusedError):
    """The Confirm's governance is locked."""

    def __init__(self, confirm_id: str) -> None:
        super().__init__(confirm_id, f"Confirm {confirm_id!a} is locked (governance.locked); unlock it first")


class MismatchError(ConfirmRefusedError):
    """The Confirm is about another target."""

    def __init__(self, confirm_id: str, target_id: str, other_id: str) -> None:
        super().__init__(confirm_id, f"Confirm {confirm_id!a} is about {target_id!a}, and this is {other_id!a}")
        self.target_id = target_id
        self.other_id = other_id


# -- ids -----------------------------------------------------------------------------------------------------------
# The protocol accepts only UUIDs of version 4. New ones are random. An object that already has a name (a request, its
# run, a decision) gets an id derived from that name, so that every process produces the same id.

_ID = re.compile(ID_PATTERN.removeprefix("^").removesuffix("$"))


def is_id(text: str) -> bool:
    """Return whether a text is a valid id of the protocol."""
    return _ID.fullmatch(text) is not None


def new_id() -> str:
    """Return a new random identifier."""
    return uuid4_of(new_token())


def uuid4_of(digits: str) -> str:
    """Format 32 hexadecimal digits as an id; the six bits that mark a UUID v4 are overwritten, all others stay."""
    return str(UUID(hex=digits, version=4))


def id_of(*parts: object) -> str:
    """Return the id derived deterministically from these parts."""
    content = "sayso/mplp/1"
    for text in map(str, parts):
        content += f"\n{len(text)}:{text}"
    return uuid4_of(hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:32])


# -- parsing -------------------------------------------------------------------------------------------------------


def pointer(*parts: str | int) -> str:
    """Return a JSON pointer (RFC 6901), in plain ASCII."""
    shown = (ascii(part[:_MAX_QUOTED])[1:-1] if isinstance(part, str) else str(part) for part in parts)
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in shown) or "/"


def quoted(value: object) -> str:
    """Format a value for a message: in ASCII, and truncated if it is long."""
    if isinstance(value, str):
        whole = ascii(value[:_MAX_QUOTED])
        return whole if len(value) <= _MAX_QUOTED else f"{whole}... ({len(value):,} characters)"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else json.dumps(value)[:_MAX_QUOTED]


def parse_json(given: str | bytes | bytearray | Mapping[str, Any], what: str = "document") -> dict[str, Any]:
    """Parse a document into JSON values.

    Documents that are too large, or that `strict_json` refuses, are rejected.

    Args:
        given: JSON as text or UTF-8 bytes, or parsed JSON values.
        what: The kind of document, for the error.

    Raises:
        NotConformantError: The document is rejected.
    """
    if isinstance(given, str | bytes | bytearray):
        if len(given) > LIMIT_BYTES:
            raise NotConformantError(what, [f"/: is larger than {LIMIT_BYTES:,} bytes ({len(given):,})"])
        try:
            document: object = canonical.strict_loads(given if isinstance(given, str) else given.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise NotConformantError(what, [f"/: is not UTF-8 (byte {error.start})"]) from None
        except ValueError as error:
            raise NotConformantError(what, [f"/: is not JSON: {error}"]) from None
        if isinstance(document, dict):
            return cast("dict[str, Any]", document)
    else:
        document = given
    if not isinstance(document, Mapping):
        raise NotConformantError(what, [f"/: is {quoted(document)}, not an object"])
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in cast("Mapping[str, Any]", document).items():
        try:
            values |= canonical.strict_copy({name: value})
        except (TypeError, ValueError) as error:
            problems.append(f"{pointer(name)}: {error}")
    if problems:
        raise NotConformantError(what, problems[:_MAX_PROBLEMS])
    return values


# -- the schemas ---------------------------------------------------------------------------------------------------

_LOCAL = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
_NO_ZONE = re.compile(_LOCAL)
_TIME = re.compile(_LOCAL.replace("[Tt ]", "[Tt]") + "(?:[Zz]|[+-][0-9]{2}:[0-9]{2})")
_VALUE = "\0"  # stands for the value in the library's messages, which quote it in full otherwise


def schema(kind: str = "confirm") -> dict[str, Any]:
    """Return a shipped schema: `confirm`, `plan` or `learning-sample`.

    Raises:
        KeyError: There is no schema of this kind.
    """
    if kind not in KINDS:
        raise KeyError(f"unknown schema {kind!r}; known are {', '.join(KINDS)}")
    return json.loads(resources.files("sayso.mplp").joinpath("schemas", f"{kind}.schema.json").read_text("utf-8"))


def _is_date_time(text: str) -> bool:
    with suppress(ValueError):
        return _TIME.fullmatch(text) is not None and bool(datetime.fromisoformat(text.upper()))
    return False


@cache
def _validator(kind: str, field: str | None) -> jsonschema_rs.Draft7Validator | None:
    """Return the validator of a document or of one of its fields; None if the field does not exist."""
    import jsonschema_rs

    rule = schema(kind)
    if field is not None:
        if field not in rule["properties"]:
            return None
        rule = {**rule["properties"][field], "$defs": rule["$defs"]}
    formats = {"date-time": _is_date_time}
    return jsonschema_rs.Draft7Validator(rule, mask=_VALUE, validate_formats=True, formats=formats)


def problems_of(kind: str, document: Any, field: str | None = None) -> list[str]:
    """Return the violations of a schema, at most a hundred lines: each a JSON pointer and the problem.

    Args:
        document: JSON values, as `parse_json` returns them.
        field: Check only the value of this field; an unknown field is a problem.
    """
    validator = _validator(kind, field)
    if validator is None:
        return [f"{pointer(field or '')}: is not a field of the protocol"]
    if validator.is_valid(document):
        return []
    lines: list[str] = []
    for error in islice(validator.iter_errors(document), _MAX_PROBLEMS):
        wrong, value, at = cast("Any", error.kind), cast("Any", error.instance), tuple(error.instance_path)
        match wrong.name:
            case "required":
                lines.append(f"{pointer(*at, wrong.property)}: is missing")
            case "additionalProperties":
                lines += [f"{pointer(*at, name)}: is not a field of the protocol" for name in wrong.unexpected]
            case "pattern" if wrong.pattern == ID_PATTERN:
                lines.append(f"{pointer(*at)}: {quoted(value)} is not a UUID v4 in lower case")
            case "enum":  # the library's message names only some of the words
                lines.append(f"{pointer(*at)}: {quoted(value)} is not one of {', '.join(map(str, wrong.options))}")
            case "format":
                form = "is not a date and time of the form 2025-12-01T12:00:00Z"
                problem = form if _NO_ZONE.fullmatch(value) is None else "has no time zone; write Z at its end"
                lines.append(f"{pointer(*at)}: {quoted(value)} {problem}")
            case _:
                lines.append(f"{pointer(*at)}: {error.message.replace(_VALUE, quoted(value))}")
    return lines[:_MAX_PROBLEMS]


# -- lenient spellings ---------------------------------------------------------------------------------------------

_PREFIXED = re.compile(r"[A-Za-z]{1,20}[-_:](?P<id>[0-9A-Fa-f-]{36})")
# An object's own id may be replaced by a valid one; an id that refers to another object may not.
_OWN_IDS = frozenset({"decision_id", "dependencies", "event_id", "step_id"})


def normalize(kind: str, document: Mapping[str, Any], changes: list[str]) -> dict[str, Any]:
    """Return a document in the protocol's canonical spelling; append every change to `changes`.

    This accepts spellings such as those in the protocol's own example: field names in the other case, ids with a prefix
    or in capitals, times without a zone, null fields, and unknown fields, which are dropped.
    """
    rule = schema(kind)
    found = _normalize_object(rule, rule["$defs"], document, (), changes)
    if "meta" in rule["required"]:
        meta = found.setdefault("meta", {})
        for name in ("protocol_version", "schema_version"):
            if isinstance(meta, dict) and name not in meta:
                changes.append(f"{pointer('meta', name)}: filled in as {VERSION}")
                cast("dict[str, Any]", meta)[name] = VERSION
    return found


def _normalize(rule: Mapping[str, Any], defs: Mapping[str, Any], value: Any, at: Place, changes: list[str]) -> Any:
    if "$ref" in rule:
        rule = defs[rule["$ref"].removeprefix("#/$defs/")]
    if isinstance(value, dict) and "properties" in rule:
        return _normalize_object(rule, defs, cast("dict[str, Any]", value), at, changes)
    if isinstance(value, list) and "items" in rule:
        items = cast("list[Any]", value)
        return [_normalize(rule["items"], defs, item, (*at, index), changes) for index, item in enumerate(items)]
    if not isinstance(value, str):
        return cast("Any", value)
    text = value
    if rule.get("pattern") == ID_PATTERN:
        prefixed = _PREFIXED.fullmatch(value)
        bare = (value if prefixed is None else prefixed["id"]).lower()
        named = next((part for part in reversed(at) if isinstance(part, str)), None)
        text = bare if is_id(bare) else id_of("id", value) if named in _OWN_IDS else value
    elif rule.get("format") == "date-time" and _NO_ZONE.fullmatch(value) is not None:
        text = value.replace(" ", "T").upper() + "Z"
    if text != value:
        changes.append(f"{pointer(*at)}: {quoted(value)} was read as {text}")
    return text


def _normalize_object(
    rule: Mapping[str, Any], defs: Mapping[str, Any], value: Mapping[str, Any], at: Place, changes: list[str]
) -> dict[str, Any]:
    known: Mapping[str, Any] = rule["properties"]
    by_letters = {_spelling(name): name for name in known}
    found: dict[str, Any] = {}
    for given, item in value.items():
        name, where = given if given in known else by_letters.get(_spelling(given), given), pointer(*at, given)
        if name not in known:
            if rule.get("additionalProperties") is False:
                changes.append(f"{where}: dropped, it is not a field of the protocol")
            else:
                found[given] = item
        elif item is None and "anyOf" not in known[name]:
            changes.append(f"{where}: was null, and left out")
        elif name != given and name in value:
            changes.append(f"{where}: dropped, because {name} is present")
        else:
            if name != given:
                changes.append(f"{where}: read as {name}")
            found[name] = _normalize(known[name], defs, item, (*at, name), changes)
    return found


def _spelling(name: str) -> str:
    return name.replace("_", "").casefold()
