"""Redaction of secrets: which names mark a secret, and how values and texts are masked.

Values are masked by the names of arguments and fields (`Redaction`). In free text, `scrub` masks the values that were
masked elsewhere, `conceal` the passwords in URLs, and `fit` both. Edits of masked values are in `sayso.model.edit`.
"""

from __future__ import annotations

import copy
import inspect
import json
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Final, cast

from sayso.errors import ConfigError
from sayso.model.canonical import MASK, Json
from sayso.model.canonical.json_tree import TAGS, children_of, fields_of, items_of, tag_in, with_fields, with_items
from sayso.model.text import each_leaf, storable


def _listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


DEFAULT_KEYS: Final = _listed(
    """
    access_code access_key access_token account_key admin_pass aes_key api_key api_pass api_secret api_token app_key
    application_key auth auth_code auth_header auth_key auth_token authorization backup_code basic_auth bearer
    bearer_token broker_url client_key client_secret connection_string connection_uri connection_url conn_str
    consumer_key cookie cred credential csrf cvc cvv database_uri database_url db_pass db_uri db_url decryption_key
    deploy_key dsn encryption_key ftp_pass gpg_key hmac_key http_auth id_token jdbc_url jsessionid jwt jwt_key
    license_key mail_pass master_key mfa_code mongo_uri mongo_url mongodb_uri mongodb_url mysql_url one_time_code otp
    otp_code pass_code pass_phrase passphrase passwd password pem_key pgp_key phpsessid pin pin_code postgres_uri
    postgres_url postgresql_url pre_shared_key private_key psk pw pwd recovery_code recovery_phrase redis_url
    refresh_token root_pass rsa_key secret secret_key security_code seed_phrase service_account_key sessid session_id
    session_key session_token set_cookie shared_access_key shared_key signing_key smtp_pass ssh_key ssh_pass ssl_key
    storage_account_key subscription_key tls_key token totp two_factor_code user_pass verification_code wallet_seed
    webhook_key
    """
)

# These mark a secret only if they are the whole name.
_ALONE: Final = frozenset({"auth", "csrf"})
# These mark a secret after any word but the listed ones: `github_token` does, `next_page_token` and `gpio_pin` do not.
_UNLESS: Final = {
    "token": _listed(
        """
        page next previous prev continuation cursor sync cancel cancellation idempotency max min num count total per
        input output prompt completion special pad padding eos bos sep cls mask unk unknown stop start end first last
        word sub text lexer placeholder design
        """
    ),
    "pin": _listed("gpio map led data clock reset input output tx rx sda scl pwm analog digital drop safety"),
    "cookie": frozenset({"accept", "allow", "fortune", "has", "use"}),
}
# Words that may follow a secret's name without changing its meaning: `private_key_pem`, `password_confirm`.
_KINDS: Final = _listed(
    """
    again b64 base64 bytes clear confirm confirmation current der encoded hash hex json new old pem plain plaintext
    raw repeat str string value
    """
)
# No ordinary word ends like this, so these also count at the end of a longer word.
_STRONG: Final = (
    "password", "passwd", "passphrase", "apikey", "secretkey", "privatekey", "accesskey", "accesstoken", "authtoken",
)  # fmt: skip

# Shorter tails must be one word, because initials of other words are not a match: `p_w`, `o_tp`.
_SHORT: Final = 4

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBER = re.compile(r"^v\d+$|\d+$")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: `["x", "api", "key"]`."""
    return [word.lower() for part in _WORD.findall(name) for word in _HUMP.sub(" ", part).split(" ")]


def ends_of(keys: Collection[str]) -> frozenset[str]:
    """Return the name endings that these keys mark."""
    return frozenset("".join(words_of(key)) for key in keys)


_DEFAULT_ENDS: Final = ends_of(DEFAULT_KEYS - _ALONE - _UNLESS.keys())


def is_marked(own: frozenset[str], name: str) -> bool:
    """Return whether a name marks a secret.

    Args:
        own: The gate's own endings, from `ends_of`.
        name: The name of an argument or field, or a key of a dict.
    """
    words = tuple(words_of(name))
    return is_named_by(own, name) or _is_usual(words) or _is_usual(_core(words))


def is_named_by(ends: frozenset[str], name: str) -> bool:
    """Return whether a name has one of these endings, without regard to the default keys."""
    words = tuple(words_of(name))
    return _ends_so(words, ends) or _ends_so(_core(words), ends)


def _ends_so(words: tuple[str, ...], ends: frozenset[str]) -> bool:
    for first in range(len(words)):
        tail = "".join(words[first:])
        if (tail in ends or tail.removesuffix("s") in ends) and (len(tail) > _SHORT or first == len(words) - 1):
            return True
    return False


def _is_usual(words: tuple[str, ...]) -> bool:
    if not words:
        return False
    *before, last = words
    if "".join(words) in _ALONE or _ends_so(words, _DEFAULT_ENDS) or last.endswith(_STRONG):
        return True
    # Plurals of these are something else (`tokens`, `pins`), except `cookies`.
    word = "cookie" if last == "cookies" else last
    return word in _UNLESS and (not before or before[-1] not in _UNLESS[word])


def _core(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without trailing numbers, versions and kinds, which do not change what a name means."""
    while words:
        before, last = words[:-1], words[-1]
        bare = "" if before and last in _KINDS else _NUMBER.sub("", last)
        if bare == last:
            return words
        words = (*before, bare) if bare else before
    return words


_USER = r"(?<=[A-Za-z0-9+.-])://[^\s/?#@:'\"`<>\\]{0,256}:"
_LETTER = r"[\w.~%!*+,=@:^-]|\$(?![({])"
# After a user name. A password with an unescaped slash must not look like a port and a path.
_PASSWORD = rf"(?:(?!://)(?:{_LETTER})){{1,512}}(?=@)|(?!\d*[/?#])(?:(?!://)(?:{_LETTER}|[/?#])){{1,512}}?(?=@)"
_INSIDE = re.compile(rf"(?P<user>{_USER})(?P<password>{_PASSWORD})")


def conceal(text: str) -> str:
    """Return `text` with `MASK` for each password in a URL; the same object if there is none."""
    if "://" not in text or "@" not in text:
        return text
    return _INSIDE.sub(rf"\g<user>{MASK}", text)


def passwords_in(text: str) -> set[str]:
    """Return the passwords in the URLs of a text, both as written and percent-decoded."""
    if "://" not in text or "@" not in text:
        return set()
    from urllib.parse import unquote

    written = {found["password"] for found in _INSIDE.finditer(text)}
    return {form for password in written for form in (password, unquote(password))} - {MASK}


def has_gap(text: str) -> bool:
    """Return whether a URL in the text has a mask as its password."""
    return f":{MASK}@" in text and any(found["password"] == MASK for found in _INSIDE.finditer(text))


def restored(edited: str, original: str) -> str | None:
    """Return `edited` with the password of `original` in place of a mask; None if it is ambiguous which one it is."""
    gaps = [found for found in _INSIDE.finditer(edited) if found["password"] == MASK]
    if not gaps:
        return edited
    kept = list(_INSIDE.finditer(original))
    if len(gaps) > 1 or len(kept) != 1:
        return None
    begin, end = gaps[0].span("password")
    return edited[:begin] + kept[0]["password"] + edited[end:]


FAILED: Final = MappingProxyType({"<redacted>": "the redactor failed"})
"""What is shown if a redactor failed."""

_MAY_HIDE: Final = (dict, list, str)
_SCALARS: Final = frozenset({"$enum", *TAGS}) - {"$secret"}


@dataclass(frozen=True, slots=True, init=False)
class Redaction:
    """Which names mark a secret.

    Names are compared without case, `-`, `_`, camelCase, trailing digits and a plural `s`, by their last words:
    `password` marks `Password1`, `db_password` and `smtpPasswords`, but not `password_reset_url`.

    Attributes:
        keys: `DEFAULT_KEYS` and the gate's own.
        is_secret: Whether a name marks a secret.
    """

    keys: frozenset[str]
    is_secret: Callable[[str], bool] = field(init=False, repr=False, compare=False)
    _own: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __init__(self, keys: Collection[str] = ()) -> None:
        own = [keys] if isinstance(keys, str) else list(keys)
        for key in own:
            if not isinstance(key, str) or not words_of(key):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"{key!r} cannot name a secret; give names of arguments or fields as strings")
        object.__setattr__(self, "keys", DEFAULT_KEYS.union(own))
        object.__setattr__(self, "_own", tuple(own))
        object.__setattr__(self, "is_secret", lru_cache(maxsize=4096)(partial(is_marked, ends_of(own))))

    def also(self, keys: Collection[str]) -> Redaction:
        """Return a redaction that marks these names too."""
        return Redaction((*self._own, *keys)) if keys else self

    def mask(self, tree: Json) -> Json:
        """Return `tree` with `MASK` for every secret; the same object if there is none.

        A secret is a value under a marked name (argument, key of a dict, field), a `SecretStr`, or the password of a
        URL inside a text.
        """
        if isinstance(tree, str):
            return conceal(tree)
        if isinstance(tree, list):
            return self._mask_items(tree)
        if not isinstance(tree, dict):
            return tree
        if len(tree) == 1 and (tag := tag_in(tree)) is not None:
            named, items = fields_of(tree), items_of(tree)
            if named is not None:
                masked = self._mask_names(named)
                return tree if masked is named else with_fields(tree, masked)
            if items is not None:
                changed = self._mask_items(items)
                return tree if changed is items else with_items(tree, changed)
            # A malformed or unknown tag could hold anything.
            return tree if tag in _SCALARS else MASK
        return self._mask_names(tree)

    def secrets(self, tree: Json) -> frozenset[str]:
        """Return the texts that `mask` hides in `tree`, for `scrub`: strings, and numbers and bytes as text."""
        return frozenset(self._secrets(tree, hidden=False)) - {MASK, ""}

    def texts(self, tree: Json) -> frozenset[str]:
        """Return the texts that `secrets` would return if everything in `tree` were secret."""
        return frozenset(self._secrets(tree, hidden=True)) - {MASK, ""}

    def mask_facts(self, facts: Any, secrets: Collection[str]) -> Any:
        """Return facts about a call (JSON values, for a front end) with its secrets masked in names and texts."""
        if isinstance(facts, dict):
            return {
                fit(name, secrets): MASK if self.is_secret(name) else self.mask_facts(value, secrets)
                for name, value in cast("dict[str, Any]", facts).items()
            }
        if isinstance(facts, list):
            return [self.mask_facts(item, secrets) for item in cast("list[Any]", facts)]
        if isinstance(facts, str):
            return fit(facts, secrets)
        return MASK if isinstance(facts, int | float) and str(facts) in secrets else facts

    def _mask_names(self, named: dict[str, Json]) -> dict[str, Json]:
        result = named
        is_secret = self.is_secret
        for name, value in named.items():
            if is_secret(name):
                shown: Json = MASK
            elif isinstance(value, str):
                if "://" not in value:
                    continue
                shown = conceal(value)
            elif isinstance(value, _MAY_HIDE):
                shown = self.mask(value)
            else:
                continue
            if shown is not value:
                result = dict(named) if result is named else result
                result[name] = shown
        return result

    def _mask_items(self, items: list[Json]) -> list[Json]:
        masked = [self.mask(item) if isinstance(item, _MAY_HIDE) else item for item in items]
        return masked if any(new is not old for new, old in zip(masked, items, strict=True)) else items

    def _secrets(self, tree: Json, *, hidden: bool) -> Iterator[str]:
        parts = children_of(tree)
        if parts is not None:
            for step, part in parts.items():
                is_named = isinstance(step, str) and self.is_secret(step)
                yield from self._secrets(part, hidden=hidden or is_named)
            return
        if hidden or tag_in(tree) == "$secret":
            yield from _texts(tree)
        elif isinstance(tree, str):
            yield from passwords_in(tree)


def shown_by(redactor: Callable[[dict[str, object]], object], arguments: dict[str, object]) -> dict[str, object]:
    """Return the result of a gate's own redactor on a copy of the arguments; `FAILED` if it fails, never the secret.

    It fails if it raises or returns anything but a dict with text keys.
    """
    try:
        shown = redactor(copy.deepcopy(arguments))
    except Exception:  # noqa: BLE001  user code, whose error may quote the secret
        return dict(FAILED)
    if inspect.iscoroutine(shown):
        shown.close()
    if type(shown) is not dict:
        return dict(FAILED)
    result = cast("dict[object, object]", shown)
    return cast("dict[str, object]", result) if all(type(name) is str for name in result) else dict(FAILED)


def agrees(shown: Json, real: Json) -> bool:
    """Return whether `shown` equals `real` except for masks: the same names, places and values."""
    if isinstance(shown, dict) and isinstance(real, dict):
        return shown.keys() == real.keys() and all(agrees(value, real[name]) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(agrees, shown, real))
    if isinstance(shown, str) and isinstance(real, str) and shown == conceal(real):
        return True
    return shown == MASK or (type(shown) is type(real) and shown == real)


def mark_secrets(shown: Json, real: Json = None) -> Json:
    """Return `shown` with each `MASK` that hides something in `real` replaced by a secret.

    A text of three stars that `real` has too stays a text; one that a redactor produced is a mask. If `real` is not
    known, as in a receipt, every one counts as a mask.
    """
    if isinstance(shown, dict):
        known = real if isinstance(real, dict) else {}
        return {name: mark_secrets(value, known.get(name)) for name, value in shown.items()}
    if isinstance(shown, list):
        others = real if isinstance(real, list) and len(real) == len(shown) else [None] * len(shown)
        return [mark_secrets(value, other) for value, other in zip(shown, others, strict=True)]
    return {"$secret": None} if shown == MASK != real else shown


def masked_besides(shown: Json, usual: Json) -> int:
    """Return how many values are masked in `shown` but not in `usual`, another masked form of the same tree."""
    if isinstance(shown, dict) and isinstance(usual, dict):
        return sum(masked_besides(value, usual.get(name)) for name, value in shown.items())
    if isinstance(shown, list) and isinstance(usual, list):
        return sum(map(masked_besides, shown, usual))
    return int(shown == MASK != usual)


def marks(key: str, name: str) -> bool:
    """Return whether a gate's own key marks a name."""
    return is_named_by(ends_of([key]), name)


def _texts(leaf: Json) -> Iterator[str]:
    if isinstance(leaf, dict):
        tag, body = next(iter(leaf.items()))
        if tag == "$bytes" or (tag == "$secret" and isinstance(body, list) and body[:1] == ["bytes"]):
            encoded = body[-1] if isinstance(body, list) else body
            yield str(encoded)
            yield b64decode(str(encoded)).decode(errors="replace")
        elif tag != "$enum":
            parts = body if isinstance(body, list) else [body]
            yield from (str(part) for part in (parts[1:] if tag == "$secret" else parts))
    elif isinstance(leaf, str) or (isinstance(leaf, int | float) and not isinstance(leaf, bool)):
        yield str(leaf)


# Shorter secrets are left alone. They occur in ordinary words and numbers: masking them would garble the text, and
# the positions of the masks would reveal the secret.
_SHORTEST_SCRUBBED = 4
_SHORTEST_LINE = 8
# Up to this many spellings are searched one by one, which is faster than checking every position of the text.
_FEW = 64
# Longer spellings are always searched one by one; a call has few of them.
_LONG = 256
_SPELT_ONE_WAY = re.compile(r"[\w.~-]+", re.ASCII)
_KEPT_RUN = re.compile(rf"[\w.~-]{{{_SHORTEST_SCRUBBED}}}", re.ASCII)


def scrub(text: str, secrets: Collection[str]) -> str:
    """Return `text` with `MASK` for each secret: for error messages, prompts and results.

    Quoted forms of a secret (`repr`, JSON, URL) and its longer lines are found too. Secrets of fewer than four
    characters are left alone. Parts of a secret and other encodings of it are not found.
    """
    if not secrets:
        return text
    wanted = secrets if len(secrets) <= _FEW else _likely(text, secrets)
    spans = sorted(_spans(text, {form for secret in wanted for form in _spellings(secret)}))
    if not spans:
        return text
    start, end = spans[0]
    pieces = [text[:start]]
    # Overlapping spans become one mask: the tail of a secret must not remain after a mask that began earlier.
    for begin, stop in spans[1:]:
        if begin > end:
            pieces += [MASK, text[end:begin]]
        end = max(end, stop)
    return "".join([*pieces, MASK, text[end:]])


def scrubbed(tree: Any, secrets: Collection[str]) -> Any:
    """Return plain JSON values with `MASK` for each secret in every text."""
    return each_leaf(tree, lambda leaf: scrub(leaf, secrets) if isinstance(leaf, str) else leaf)


def _likely(text: str, secrets: Collection[str]) -> Iterator[str]:
    """Yield the secrets that may be in the text. This check is cheaper than to compute all spellings of a secret."""
    size = _SHORTEST_SCRUBBED
    runs = {text[place : place + size] for place in range(len(text) - size + 1)}
    for secret in secrets:
        # No spelling changes these characters. A secret of several lines may occur line by line.
        kept = _KEPT_RUN.search(secret)
        if kept is None or kept[0] in runs or len(secret.splitlines()) > 1:
            yield secret


def _spellings(secret: str) -> Collection[str]:
    if len(secret) < _SHORTEST_SCRUBBED:
        return ()
    if _SPELT_ONE_WAY.fullmatch(secret) is not None:
        return (secret,)
    from urllib.parse import quote, quote_plus

    linked = {quote(secret, safe, errors="replace") for safe in ("/", "")} | {quote_plus(secret, errors="replace")}
    found = {secret, *(line for line in map(str.strip, secret.splitlines()) if len(line) >= _SHORTEST_LINE)}
    for _ in range(2):  # an error often quotes a quoted text, e.g. the message of a KeyError
        found |= {form for text in found for form in _quoted(text)}
    return found | linked


def _quoted(text: str) -> Iterator[str]:
    yield repr(text)[1:-1]
    yield repr(text + "'\"")[1:-4]  # as in a longer text that contains both kinds of quotes
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


def _spans(text: str, forms: Collection[str]) -> Iterator[tuple[int, int]]:
    alone = [form for form in forms if len(forms) <= _FEW or len(form) > _LONG]
    for form in alone:
        # From both ends, because a search from one side skips an occurrence that overlaps the one before it.
        size, place = len(form), text.find(form)
        while place >= 0:
            yield place, place + size
            place = text.find(form, place + size)
        place = text.rfind(form)
        while place >= 0:
            yield place, place + size
            place = text.rfind(form, 0, place)
    if len(alone) == len(forms):
        return
    heads = {form[:_SHORTEST_SCRUBBED] for form in forms}
    sizes = sorted({len(form) for form in forms if len(form) <= _LONG}, reverse=True)
    for place in range(len(text) - _SHORTEST_SCRUBBED + 1):
        if text[place : place + _SHORTEST_SCRUBBED] in heads:
            longest = next((size for size in sizes if text[place : place + size] in forms), None)
            if longest is not None:
                yield place, place + longest


def fit(text: str, secrets: Collection[str]) -> str:
    """Return `text` with secrets and passwords in URLs masked and lone surrogates escaped, so that it can be stored."""
    return storable(conceal(scrub(text, secrets)))


def error_text(error: BaseException, secrets: Collection[str]) -> str:
    """Return the type and message of an error as `Type: message`, safe to store."""
    return f"{type(error).__name__}: {words(error, secrets)}"


def words(error: BaseException, secrets: Collection[str]) -> str:
    """Return the message of an error, safe to store."""
    try:
        return fit(str(error), secrets)
    except Exception:  # noqa: BLE001  `__str__` of an error is user code too
        return "(its message could not be read)"


def quotes(error: BaseException, secrets: Collection[str]) -> bool:
    """Return whether the traceback of an error, with its causes, would print one of the secrets."""
    if not secrets:
        return False
    from traceback import format_exception

    text = "".join(format_exception(error))
    return scrub(text, secrets) != text
