"""Redaction: secrets leave no trace in what is shown, and come back into an edit only where they were."""

from __future__ import annotations

import copy
import json
import random
import string
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr

from sayso.errors import ConfigError
from sayso.model import canonical
from sayso.model.edit import unmask
from sayso.model.redaction import DEFAULT_KEYS, FAILED, MASK, Redaction, agrees, scrub, shown_by
from sayso.model.schema import SchemaError
from tests.support.hanging import no_hanging

BAIT = "bait-7f3a91"
REDACTION = Redaction()


@dataclass(frozen=True)
class Account:
    user: str
    password: Any


class Login(BaseModel):
    model_config = ConfigDict(extra="allow")
    user: str
    api_key: Any = None
    held: SecretStr | None = None


def tree_of(**arguments: Any) -> dict[str, Any]:
    return canonical.load(canonical.encode(arguments).text)


def masked(tree: Any) -> Any:
    return REDACTION.mask(tree)


SECRET_NAMES = """
    github_token password1 private_key_pem ssh_key database_url dsn otp pin passphrase client_secret session_id
    cookie bearer aws_secret_access_key apikey2 refreshToken x-api-key PGPASSWORD dbpassword
    password_confirmation newPassword api_key_v2 access_token_2 GITHUB_TOKEN githubToken slackBotToken HF_TOKEN
    connection_string conn_str SecretString PHPSESSID JSESSIONID cvv cvv2 totp mfaCode auth auth_header
    Authorization Proxy-Authorization AWS_SECRET_ACCESS_KEY private_key_base64 sshKey ssh_private_key
    id_rsa_passphrase credentials_json gcp_credentials aws_creds db_pw wpa_psk SENTRY_DSN REDIS_URL mongodbUri
    sas_token csrf_token X-CSRF-Token session-id sessionId card_pin master_key webhook_secret secrets cookies
    Set-Cookie jwt id_token authToken tls_key encryptionKey recovery_codes backupCodes password_hash pass_phrase
    apiKey
"""
ORDINARY_NAMES = """
    token_count max_tokens keyboard pinned monkey author primary_key foreign_key sort_key key amount to tokens
    next_page_token password_reset_url secretary authority cookie_banner compass pass passwordless page_token
    nextToken continuationToken token_type token_limit token_url total_tokens input_tokens prompt_tokens
    pad_token eos_token gpio_pin led_pin pins pinning spin shipping opinion mapping public_key ssh_public_key
    key_id access_key_id partition_key cache_key object_key storage_key keys keyword keyframe session sessions
    session_name url base_url callback_url webhook_url uri host dns otp_enabled secret_name secret_id
    password_policy password_length cookie_policy author_id oauth authorize authenticated credit_card creditor
    accredited bear bearing beard code status_code zip_code country_code error_code string text value json hash
    commit_hash sha256 md5 v2 p_w id user_id pinterest pinyin turnpike tokenizer tokenize token_ids api_version
    api keychain passport passenger bypass passed private secretion dashboard pwd_reset_link signature nonce
"""


@pytest.mark.parametrize(
    "name",
    [
        *sorted(DEFAULT_KEYS), *SECRET_NAMES.split(),
        "Password", "PASSWORD", "apiKey", "apikey", "API-KEY", "X-Api-Key", "x_api_key",
        "stripeApiKey", "dbPassword", "DATABASE_PASSWORD", "smtp.password", "user password", "passwords", "credentials",
        "cookies", "Set-Cookie", "AWS_SECRET_ACCESS_KEY", "clientSecret", "Proxy-Authorization", "github_access_token",
        "APIKey", "Token", "TOKEN",
    ],
)  # fmt: skip
def test_name_of_a_secret_is_known_in_every_spelling(name: str) -> None:
    assert REDACTION.is_secret(name)
    assert masked({name: BAIT}) == {name: MASK}


@pytest.mark.parametrize(
    "name",
    [
        *ORDINARY_NAMES.split(),
        "amount", "to", "max_tokens", "tokens", "next_page_token", "password_reset_url", "secretary", "keyboard", "key",
        "author", "authority", "cookie_banner", "compass", "pass", "", "-", "passwordless",
    ],
)  # fmt: skip
def test_ordinary_name_hides_nothing(name: str) -> None:
    tree = {"d": {name: "plain"}}
    assert masked(tree) is tree


def test_gates_own_keys_count_beside_the_usual_ones() -> None:
    redaction = Redaction(["cardNumber"])
    assert redaction.keys == DEFAULT_KEYS | {"cardNumber"}
    assert redaction.mask({"card_number": 1, "card-number": 2, "old_card_number": 3, "password": 4, "card": 5}) == {
        "card_number": MASK, "card-number": MASK, "old_card_number": MASK, "password": MASK, "card": 5,
    }  # fmt: skip
    assert Redaction("pin").is_secret("pin")
    assert not Redaction("pin").is_secret("n")
    assert Redaction(["a"]) == Redaction(["a"]) != Redaction(["b"])


@pytest.mark.parametrize("keys", [[""], ["--"], [3], [None], [b"x"]])
def test_key_that_could_mark_nothing_is_refused(keys: list[Any]) -> None:
    with pytest.raises(ConfigError):
        Redaction(keys)


@pytest.mark.parametrize(
    "secret", ["", "x", BAIT, 0, 12345, 1.5, True, None, [], [BAIT, BAIT], {}, {"a": BAIT}, (BAIT,), BAIT.encode()]
)
def test_mask_tells_neither_type_nor_length(secret: Any) -> None:
    assert masked(tree_of(password=secret)) == {"password": MASK}


def nested(depth: int, secret: Any) -> list[Any]:
    """The secret under `depth` containers of every kind, each kind with every kind inside it."""
    if depth == 0:
        return [
            {"password": secret},
            Account("ada", secret),
            Login(user="ada", api_key=secret),
            Login(user="a", token=secret),
        ]
    inner = nested(depth - 1, secret)
    box = inner[depth % len(inner)]
    return [
        *([value] for value in inner),
        (1, box),
        {"deep": box},
        {"$odd": box},
        Account(box, 1),
        Login(user="ada", more=box),
    ]


@pytest.mark.parametrize("depth", range(6))
def test_secret_is_absent_at_every_depth(depth: int) -> None:
    for value in nested(depth, BAIT):
        tree = tree_of(argument=value)
        assert BAIT in json.dumps(tree), "the case holds no bait"
        hidden = masked(tree)
        assert BAIT not in json.dumps(hidden)
        assert BAIT in REDACTION.secrets(tree)
        canonical.load(json.dumps(hidden))


def test_secret_types_are_masked_under_any_name() -> None:
    tree = tree_of(a=SecretStr(BAIT), b=[SecretBytes(BAIT.encode())], c=Login(user="x", held=SecretStr(BAIT)))
    assert (
        masked(tree)
        == {
            "a": MASK,
            "b": [MASK],
            "c": {
                "$model": [
                    tree["c"]["$model"][0],
                    {"user": "x", "api_key": None, "held": MASK},
                    *tree["c"]["$model"][2:],
                ]
            },
        }
        or json.dumps(masked(tree)).count(f'"{MASK}"') == 4
    )
    assert BAIT not in json.dumps(masked(tree))
    assert BAIT in REDACTION.secrets(tree)


def test_tag_that_is_not_known_is_masked_whole() -> None:
    assert masked({"a": {"$later": {"password": BAIT}}}) == {"a": MASK}
    assert masked({"a": {"$dataclass": [BAIT]}}) == {"a": MASK}


def test_mask_leaves_the_original_alone_and_is_the_same_object_where_nothing_is_hidden() -> None:
    tree = tree_of(a=1, b="x", c=[1, {"d": (1, 2)}], e=Account("u", 1))
    plain = tree_of(a=1, b="x", c=[1, {"d": (1, 2)}], f=b"x", g={"$a": 1})
    before = copy.deepcopy(tree)
    hidden = masked(tree)
    assert tree == before != hidden
    assert hidden["c"] is tree["c"]
    assert masked(plain) is plain
    assert masked(hidden) == hidden


def test_secret_below_sixty_levels_is_masked() -> None:
    value: Any = {"password": BAIT}
    for _ in range(60):
        value = [value]
    assert BAIT not in json.dumps(masked({"a": value}))


def test_secrets_are_texts_to_scrub() -> None:
    tree = tree_of(
        password=BAIT,
        n={"count": 1},
        api_key=4711,
        secret=[b"byte-bait", {"x": 1.25}],
        token=True,
        cookie=None,
        to="ada",
    )
    assert REDACTION.secrets(tree) == {BAIT, "4711", "byte-bait", "Ynl0ZS1iYWl0", "1.25"}
    assert REDACTION.secrets(tree_of(to="ada", amount=3)) == frozenset()
    assert REDACTION.texts(tree_of(to="ada", amount=3, rows=[{"a": 1.5}], password=BAIT)) == {"ada", "3", "1.5", BAIT}


SCRUBBED = [
    ("wrong password bait-7f3a91!", {BAIT}, "wrong password ***!"),
    ("nothing", {BAIT}, "nothing"),
    ("a bait-7f3a91-long one", {BAIT, "bait-7f3a91-long"}, "a *** one"),
    ("xabcdef", {"abcdef", "xabc"}, "***"),
    ("xxabcdefghyy", {"abcdefgh", "cdef"}, "xx***yy"),
    ("x\ud800abcd", {"\ud800abcd"}, "x***"),
    ("aaaaaaa", {"aaaa"}, "***"),
    ("abababa!", {"ababa"}, "***!"),
    ("bait-7f3a91bait-7f3a91", {BAIT}, "***"),
    ("pin 12 of 123", {"12", "123"}, "pin 12 of 123"),
    ("got 'it\\'s\\n\"mine\"'", {'it\'s\n"mine"'}, "got '***'"),
    ('{"k":"a\\"b\\u00e9cd"}', {'a"b\u00e9cd'}, '{"k":"***"}'),
    ("GET /?key=a%2Fb%2Bc%20d", {"a/b+c d"}, "GET /?key=***"),
    ("GET /?key=a%2Fb%2Bc+d", {"a/b+c d"}, "GET /?key=***"),
    ("line MIIEvQIBADANBgkq failed", {"-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nabc\n"}, "line *** failed"),
    ("", {BAIT}, ""),
    ("text", set[str](), "text"),
]


@pytest.mark.parametrize(("text", "secrets", "clean"), SCRUBBED)
def test_scrub_leaves_no_occurrence(text: str, secrets: set[str], clean: str) -> None:
    assert scrub(text, secrets) == clean


@given(st.lists(st.text("abcd'\n\\", min_size=4, max_size=8), max_size=5), st.lists(st.text("abcd '\n", max_size=6)))
def test_scrubbed_text_holds_no_secret(secrets: list[str], between: list[str]) -> None:
    text = "".join(part for pair in zip(between, secrets * 9, strict=False) for part in pair)
    clean = scrub(text, secrets)
    assert not any(secret in part for secret in secrets for part in clean.split(MASK))


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=40, deadline=None)
def test_many_secrets_leave_no_occurrence_either(seed: int, like: bool) -> None:
    pick = random.Random(seed)
    alphabet = "ab" if like else "abc\u00e9'\n/+-x"
    secrets = {"".join(pick.choices(alphabet, k=pick.randrange(4, 300 if like else 12))) for _ in range(150)}
    between = "".join(pick.choices(alphabet, k=50))
    said = [pick.choice([secret, repr(secret)]) for secret in secrets if pick.random() < 0.3]
    text = between.join(said)
    clean = scrub(text, secrets)
    assert not any(secret in part for secret in secrets for part in clean.split(MASK))


def test_many_secrets_are_found_in_every_spelling() -> None:
    secrets = {f"{n:04}/wort {accents}'q\"{n}" for n in range(60) for accents in ("", "\u00e9", "\u00e9\u00e9")}
    for spell in (repr, json.dumps, lambda text: repr(repr(text)), quote, quote_plus, lambda text: f"{text}\n"):
        clean = scrub("\n".join(map(spell, secrets)), secrets)
        assert "wort" not in clean
        assert clean.count(MASK) >= len(secrets)


class Searched(str):
    """A text that counts how often it was searched from one end to the other."""

    __slots__ = ("searches",)
    searches: int

    def find(self, *args: Any) -> int:
        self.searches += 1
        return super().find(*args)

    def rfind(self, *args: Any) -> int:
        self.searches += 1
        return super().rfind(*args)

    def __contains__(self, part: str) -> bool:
        self.searches += 1
        return super().__contains__(part)


def test_scrub_looks_for_thousands_of_secrets_in_one_walk() -> None:
    pick = random.Random(7)
    letters = string.ascii_letters
    secrets = {"sk-live-" + "".join(pick.choices(letters, k=16)) for _ in range(30_000)}
    text = Searched(" ".join(list(secrets)[:4_000]))
    text.searches = 0
    with no_hanging():
        clean = scrub(text, secrets)
    assert set(clean.split(" ")) == {MASK}
    assert text.searches == 0  # for each in turn would be 60,000, for a text that is as long as they are many


def test_scrub_ends_on_a_text_made_to_be_slow() -> None:
    with no_hanging():
        assert scrub("a" * 1_000_000, {"a" * 500_000}) == MASK
        assert scrub("a" * 1_000_000, {"aaaa"}) == MASK


# The way back


def round_trip(tree: Any) -> Any:
    return unmask(copy.deepcopy(masked(tree)), tree, masked(tree))


def test_untouched_edit_gives_the_original_back() -> None:
    for depth in range(4):
        for value in nested(depth, BAIT):
            tree = tree_of(argument=value, password=[1, 2], a=SecretStr("s"))
            assert masked(tree) != tree
            assert round_trip(tree) == tree


def test_edit_beside_a_secret_keeps_it_and_edit_of_a_secret_counts() -> None:
    tree = tree_of(host="a", password=BAIT, users=[{"name": "x", "password": "one"}, {"name": "y", "password": "two"}])
    edited = masked(tree) | {"host": "b"}
    assert unmask(edited, tree, masked(tree)) == tree | {"host": "b"}
    edited = copy.deepcopy(masked(tree))
    edited["password"] = "new"
    edited["users"][1] = {"name": "z", "password": MASK}
    assert unmask(edited, tree, masked(tree)) == {
        "host": "a", "password": "new", "users": [{"name": "x", "password": "one"}, {"name": "z", "password": "two"}],
    }  # fmt: skip
    assert unmask({"password": MASK}, tree, masked(tree)) == {"password": BAIT}


def test_mask_where_nothing_was_masked_is_an_ordinary_text() -> None:
    tree = tree_of(note="hello", stars=MASK, rows=["a", MASK], password=BAIT)
    edited = {"note": MASK, "stars": MASK, "rows": [MASK, MASK, MASK], "password": MASK}
    assert unmask(edited, tree, masked(tree)) == edited | {"password": BAIT}


def test_edit_as_people_see_it_gets_the_secret_back() -> None:
    tree = tree_of(login=Login(user="ada", api_key=BAIT), pair=(SecretStr("s1"), Account("u", "p1")))
    seen = canonical.display(masked(tree))
    edited = copy.deepcopy(seen)
    assert isinstance(edited, dict)
    edited["login"]["user"] = "eve"
    back = unmask(edited, tree, seen)
    assert (back["login"]["api_key"], back["login"]["user"]) == (BAIT, "eve")
    assert back["pair"] == [{"$secret": ["str", "s1"]}, {"user": "u", "password": "p1"}]
    written = tree_of(a=SecretStr(MASK))
    assert unmask(written, tree_of(a=SecretStr(BAIT)), {"a": MASK}) == tree_of(a=SecretStr(BAIT))


USERS = tree_of(
    users=[{"name": "x", "password": "one"}, {"name": "y", "password": "two"}, {"name": "y", "password": "three"}]
)
X, Y = {"name": "x", "password": MASK}, {"name": "y", "password": MASK}


@pytest.mark.parametrize(
    ("users", "passwords"),
    [
        ([X, Y, Y], ["one", "two", "three"]),
        ([X], ["one"]),
        ([{"name": "n", "password": "p"}, X], ["p", "one"]),
        ([X, {"name": "z", "password": MASK}, Y], ["one", "two", "three"]),
        ([X, {"name": "z", "password": "p"}], ["one", "p"]),
        ([], []),
        ([X, X], ["one", "one"]),
    ],
)
def test_secret_follows_the_element_it_was_taken_from(users: list[Any], passwords: list[str]) -> None:
    back = unmask({"users": users}, USERS, masked(USERS))
    assert [user["password"] for user in back["users"]] == passwords


@pytest.mark.parametrize(
    "users",
    [
        [Y],
        [Y, X, Y],
        [{"name": "z", "password": MASK}],
        [Y, {"name": "z", "password": MASK}, X],
        [{"name": "y2", "password": MASK}, X, Y],
        [X, Y, Y, Y],
    ],
)
def test_edit_that_does_not_say_whose_secret_is_meant_is_refused(users: list[Any]) -> None:
    with pytest.raises(SchemaError, match="users") as refused:
        unmask({"users": users}, USERS, masked(USERS))
    assert not any(word in str(refused.value) for word in ("one", "two", "three"))


def test_lone_secrets_in_a_list_keep_their_places() -> None:
    tree = tree_of(keys=[SecretStr("k1"), SecretStr("k2")])
    assert unmask({"keys": [MASK, "new"]}, tree, masked(tree)) == {"keys": [{"$secret": ["str", "k1"]}, "new"]}
    with pytest.raises(SchemaError):
        unmask({"keys": [MASK]}, tree, masked(tree))


NAMES = st.sampled_from(["a", "b", "password", "api_key", "c"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", MASK, "y"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(NAMES, inner, max_size=4)
        | st.lists(inner, max_size=3).map(lambda items: {"$tuple": items})
    ),
    max_leaves=20,
)


@settings(max_examples=300)
@given(st.dictionaries(NAMES, TREES, max_size=4), st.data())
def test_edit_of_one_open_place_changes_that_place_alone(tree: dict[str, Any], data: st.DataObject) -> None:
    seen = masked(tree)
    assert round_trip(tree) == tree
    edited, expected = copy.deepcopy(seen), copy.deepcopy(tree)
    here, there = edited, expected
    steps: list[Any] = []
    while isinstance(here, dict | list) and here:
        if isinstance(here, dict) and "$tuple" in here:
            here, there = here["$tuple"], there["$tuple"]
            continue
        open_steps = (
            [k for k in here if not REDACTION.is_secret(k)] if isinstance(here, dict) else list(range(len(here)))
        )
        if not open_steps:
            break
        step = data.draw(st.sampled_from(open_steps))
        steps.append((here, there, step))
        here, there = here[step], there[step]
    if steps:
        here, there, step = steps[-1]
        here[step] = there[step] = "edited"
        assert unmask(edited, tree, seen) == expected


# A gate's own redactor


def test_redactor_shows_what_it_returns_and_cannot_change_the_call() -> None:
    arguments: dict[str, object] = {"mail": "kim@ex.org", "rows": [1]}

    def redactor(shown: dict[str, object]) -> object:
        rows = shown["rows"]
        assert isinstance(rows, list)
        rows.append(2)
        return {**shown, "mail": "k@***"}

    assert shown_by(redactor, arguments) == {"mail": "k@***", "rows": [1, 2]}
    assert arguments == {"mail": "kim@ex.org", "rows": [1]}


def raises(arguments: dict[str, object]) -> object:
    raise ValueError(f"cannot redact {arguments}")


async def later(arguments: dict[str, object]) -> object:
    return arguments


@pytest.mark.parametrize(
    "redactor",
    [
        raises, later, lambda _: None, lambda _: BAIT, lambda a: [a], lambda a: list(a.items()), lambda a: {1: a},
        lambda a: {**a, None: 1}, lambda a: a["no such argument"],
    ],
)  # fmt: skip
def test_redactor_that_fails_shows_a_placeholder_and_never_the_secret(redactor: Any) -> None:
    shown = shown_by(redactor, {"mail": BAIT})
    assert shown == dict(FAILED)
    assert BAIT not in repr(shown)


def test_arguments_that_cannot_be_copied_show_a_placeholder() -> None:
    class Stubborn:
        def __deepcopy__(self, memo: object) -> object:
            raise RuntimeError(BAIT)

    assert shown_by(lambda a: a, {"x": Stubborn()}) == dict(FAILED)


# Passwords in URLs

URLS = [
    ("postgres://u:p@h/db", "postgres://u:***@h/db", {"p"}),
    ("postgres://u:p@ss@h/db", "postgres://u:***@h/db", {"p@ss"}),
    ("postgres://u:pa/ss@h/db", "postgres://u:***@h/db", {"pa/ss"}),
    ("postgresql+asyncpg://u:Pa$$w0rd!@h", "postgresql+asyncpg://u:***@h", {"Pa$$w0rd!"}),
    ("redis://:hunter2@h:6379/0", "redis://:***@h:6379/0", {"hunter2"}),
    ("psql 'postgres://u:p%40ss@h/db' -c x", "psql 'postgres://u:***@h/db' -c x", {"p%40ss", "p@ss"}),
    ("postgres://a:bb@h1,postgres://c:dd@h2", "postgres://a:***@h1,postgres://c:***@h2", {"bb", "dd"}),
    ("mongodb://u:p@h1:27017,h2:1/db?x=a@b", "mongodb://u:***@h1:27017,h2:1/db?x=a@b", {"p"}),
    ("https://x-access-token:ghp_abc@github.com/a/b", "https://x-access-token:***@github.com/a/b", {"ghp_abc"}),
]


@pytest.mark.parametrize(("text", "shown", "secrets"), URLS)
def test_password_in_a_url_is_masked_at_every_depth(text: str, shown: str, secrets: set[str]) -> None:
    for value, seen in [
        (text, shown), ([text], [shown]), ({"a": {"b": [1, text]}}, {"a": {"b": [1, shown]}}), ((text, 2), (shown, 2)),
        (Account(text, None), Account(shown, MASK)), (Login(user=text), Login(user=shown, api_key=MASK)),
    ]:  # fmt: skip
        tree = tree_of(x=value)
        assert canonical.display(masked(tree)) == canonical.display(tree_of(x=seen))
        assert REDACTION.secrets(tree) == secrets
        assert agrees(masked(tree), tree)
        assert round_trip(tree) == tree


@pytest.mark.parametrize(
    "text",
    [
        "http://h:80/path?email=a@b", "http://[::1]:80/x@y", "ssh://git@host:22/a@b", "https://e.com/a:b@c",
        "see http://a:b and c@d", "jdbc:postgresql://h/db?user=a@b", "git@github.com:a/b.git", "a@b.c", "://", "x://@",
        # A command of a shell cannot hide in what would be a password.
        "x://a:$(rm${IFS}-rf${IFS}~)@b", "x://a:`id`@b", "x://a:1;id;@b", "x://a:1|id@b", "x://a:${x}@b", "x://a:1&id@b",
    ],
)  # fmt: skip
def test_url_without_a_password_is_shown_as_it_is(text: str) -> None:
    tree = tree_of(x=[text])
    assert masked(tree) is tree
    assert REDACTION.secrets(tree) == frozenset()


def test_edit_of_a_url_keeps_its_password_where_it_is_certain_whose_it_is() -> None:
    tree = tree_of(x="postgres://u:p@h/db", y=["postgres://v:q@h/db", "z"])
    edited = {"x": "postgres://u:***@h/other", "y": ["postgres://v:***@h/db", "zz"]}
    back = unmask(copy.deepcopy(edited), tree, masked(tree))
    assert back == {"x": "postgres://u:p@h/other", "y": ["postgres://v:q@h/db", "zz"]}
    assert unmask({"x": "postgres://u:new@h/db"}, tree, masked(tree)) == {"x": "postgres://u:new@h/db"}
    with pytest.raises(SchemaError, match="x"):
        unmask({"x": "postgres://u:***@h/db,postgres://u:***@evil/db"}, tree, masked(tree))
    with pytest.raises(SchemaError, match="y"):
        unmask({"y": ["z", "new", "postgres://v:***@evil/db"]}, tree, masked(tree))


@pytest.mark.parametrize(
    "text",
    ["@" + "a://b:" * 200_000, "@" + "://a:" * 200_000, "@a://" + "a:" * 400_000, f"a://b:{'x' * 10**6}@c"],
    ids=["begun again and again", "without a scheme", "one that is all colons", "a long password"],
)  # fmt: skip
def test_a_url_made_to_be_slow_is_not_read_again_from_each_place(text: str) -> None:
    with no_hanging(20):  # 0.2 s; the first would take hours if a password had neither a length nor an end at `://`
        masked({"x": text})


# Agreement of what was shown with what would run


@pytest.mark.parametrize(
    ("shown", "real", "expected"),
    [
        ({"a": 1, "password": MASK}, {"a": 1, "password": "x"}, True),
        ({"a": "postgres://u:***@h"}, {"a": "postgres://u:p@h"}, True),
        ({"a": "postgres://u:***@g"}, {"a": "postgres://u:p@h"}, False),
        ({"a": "postgres://u:***@h"}, {"a": "x"}, False),
        ({"a": 1}, {"a": True}, False),
    ],
)
def test_what_was_shown_agrees_only_with_what_it_masks(shown: Any, real: Any, expected: bool) -> None:
    assert agrees(shown, real) is expected
