"""Which names mark a secret: `password`, `githubToken`, `X-Api-Key2`, `database_url`.

Here are the names and how they are compared; what is done with the values is `sayso.model.redaction`. A name is
compared by its last words, without case, `-`, `_`, camelCase, digits at its end and a plural `s`. Invariant: a name
is judged by its words and never by letters inside of one, so that `monkey`, `author` and `keyboard` hide nothing; the
few words that no ordinary word ends with (`dbpassword`) are the exception.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

__all__ = ["DEFAULT_KEYS", "ends_of", "is_marked", "is_named_by", "words_of"]


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

# These mark a secret only where they are the whole name.
_ALONE: Final = frozenset({"auth", "csrf"})
# These mark one behind any word but these: `github_token` does, `next_page_token` does not; `gpio_pin` does not.
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
# What may stand behind a secret's name without making it something else: `private_key_pem`, `password_confirm`.
_KINDS: Final = _listed(
    """
    again b64 base64 bytes clear confirm confirmation current der encoded hash hex json new old pem plain plaintext
    raw repeat str string value
    """
)
# No ordinary word ends like this, so they count inside of one, too.
_STRONG: Final = (
    "password", "passwd", "passphrase", "apikey", "secretkey", "privatekey", "accesskey", "accesstoken", "authtoken",
)  # fmt: skip

# The initials of other words are no word: `p_w`, `o_tp`.
_SHORT: Final = 4

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBER = re.compile(r"^v\d+$|\d+$")


def words_of(name: str) -> list[str]:
    """Return the words of a name, in small letters: `["x", "api", "key"]`."""
    return [word.lower() for part in _WORD.findall(name) for word in _HUMP.sub(" ", part).split(" ")]


def ends_of(keys: Collection[str]) -> frozenset[str]:
    """Return how names may end that these keys mark."""
    return frozenset("".join(words_of(key)) for key in keys)


_DEFAULT_ENDS: Final = ends_of(DEFAULT_KEYS - _ALONE - _UNLESS.keys())


def is_marked(own: frozenset[str], name: str) -> bool:
    """Say whether a name marks a secret.

    Args:
        own: The gate's own ends, by `ends_of`.
        name: A name of an argument or a field, a key of a dict.
    """
    words = tuple(words_of(name))
    return is_named_by(own, name) or _is_usual(words) or _is_usual(_core(words))


def is_named_by(ends: frozenset[str], name: str) -> bool:
    """Say whether a name ends so; by itself, whatever usually marks a secret."""
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
    # Of these the plural is something else: `tokens`, `pins`.
    word = "cookie" if last == "cookies" else last
    return word in _UNLESS and (not before or before[-1] not in _UNLESS[word])


def _core(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words without numbers, versions and kinds at the end, which do not change what a name says."""
    while words:
        before, last = words[:-1], words[-1]
        bare = "" if before and last in _KINDS else _NUMBER.sub("", last)
        if bare == last:
            return words
        words = (*before, bare) if bare else before
    return words
