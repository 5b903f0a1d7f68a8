"""Web push: notifications in reviewers' browsers, through the push service that each browser uses.

A *device* is a browser in which a reviewer has turned notifications on; it is a record in the store. The channel `push`
delivers notifications from the outbox, encrypted for the device and signed (VAPID, RFC 8292) with a key derived from
the server's secret. A device receives only requests that its reviewer could decide, for 30 days after they last signed
in there. Its address comes from a browser, so the rules for webhook destinations apply to it.

A message carries all texts that the browser shows, in the language that the reviewer has chosen, else that of their
browser when they turned notifications on.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from sayso import clock, errors
from sayso.channels import registry
from sayso.channels.registry import Channel, DeliveryError, Notification
from sayso.channels.webhook import Destination, Receivers
from sayso.model.lifecycle import must_be_allowed
from sayso.model.rendering import quote_if_needed
from sayso.model.request import Request, State
from sayso.model.reviewer import LOCAL, TOKENS, Reviewer, name_of
from sayso.model.text import ENGLISH, Language, say, speaking, spoken
from sayso.server.auth.sessions import TokenSigner
from sayso.server.auth.sign_in import SignIn
from sayso.server.language import language_of, languages
from sayso.stores.base import Store
from sayso.stores.records import Record, records_in
from sayso.stores.transaction import CHANNEL
from sayso.view import full_text
from sayso.view.summary import RISKS, expiry

EXTRA = "push notifications need the extra `push`: pip install 'sayso[push]'"
LASTS, MOST = timedelta(days=30), 10
_KIND, _LONGEST_TTL = "device", timedelta(days=28)
_ROOM, _NAME_ROOM, _AT_ONCE, _MOST_REMEMBERED = 200, 60, 16, 500
_ALL = 100_000_000  # characters: more than a call of one megabyte needs on one line
_GONE = frozenset({404, 410})
_NOTIFIED = frozenset(State) - {State.RUNNING, State.DONE}
_URGENT = frozenset({"asked", "reminder", "escalated"})


class DeviceRefusedError(errors.SaysoError):
    """A browser cannot be notified: its subscription is invalid, or its address is not an allowed destination."""


@dataclass(frozen=True)
class Device:
    """A browser in which somebody has turned notifications on.

    Attributes:
        key: Key of its record; the browser has it in a cookie.
        reviewer: Who turned notifications on, with the roles that they had when they last signed in there.
        name: The reviewer's name for it.
        endpoint: Address of the push service for it. Sending to it takes the server's signing key as well.
        p256dh, auth: The browser's public key and secret for encryption, in URL-safe base64.
        language: Tag of the browser's language when they were turned on.
    """

    key: str
    reviewer: Reviewer
    name: str
    endpoint: str = field(repr=False)
    p256dh: str = field(repr=False)
    auth: str = field(repr=False)
    language: str
    record: Record = field(repr=False)

    @classmethod
    def of(cls, record: Record) -> Device:
        """Parse the record of a device; raises `StoreCorruptError`."""
        body = record.body
        try:
            reviewer = Reviewer(body["subject"], roles=body["roles"], issuer=body["issuer"])
            name, endpoint, p256dh, auth = (str(body[name]) for name in ("name", "endpoint", "p256dh", "auth"))
        except (LookupError, TypeError, ValueError) as error:
            raise errors.StoreCorruptError(f"the device {record.key!r} cannot be read ({error}); remove it") from error
        return cls(record.key, reviewer, name, endpoint, p256dh, auth, str(body.get("language", "")), record)


def may_approve_there(store: Store, request: Request) -> bool:
    """Return whether a request may be approved from its notification, which then shows all that there is to judge.

    The policy must allow it for a call of low risk that starts once and that one reviewer of any role can decide. A
    call asked with a token does not qualify, because its policy is the program's own claim. The one line must show the
    whole call with nothing that deceives the eye, and no other request may have the same effect.
    """
    if request.kind != "call" or request.state is not State.PENDING or not request.approve_from_notification:
        return False
    if request.risk != "low" or request.quorum.count > 1 or request.quorum.roles or request.requester.issuer == TOKENS:
        return False
    if request.edited is not None or request.returned is not None or full_text.cautions(request):
        return False
    if request.prompt is not None or request.context or request.acts_for:  # too long for a notification
        return False
    taken = () if request.effect is None else store.by_effect(request.effect)
    is_whole = (
        full_text.headline(request, _ROOM) == full_text.headline(request, _ALL) and full_text.starts(request) is None
    )
    return is_whole and all(other.id == request.id for other in taken)


class Push(Channel):
    """The channel of all devices. It is registered in the store while there is at least one device.

    Args:
        signer: Derives the server's signing key from its secret.
        base_url: Address of the inbox. Push services get its host as the contact for messages.
        sign_in: Decides who may review.
        allow_private: Allow push services in private networks, for tests.
    """

    name = "push"

    def __init__(
        self, store: Store, signer: TokenSigner, *, base_url: str | None = None, sign_in: SignIn | None = None,
        allow_private: bool = False,
    ) -> None:  # fmt: skip
        self._store, self._signer, self._sign_in = store, signer, sign_in or SignIn()
        self._contact = f"https://{urlsplit(base_url or '').hostname or 'localhost'}"
        self._allow_private = allow_private
        # Devices that already have a notification, so that a retry skips them; the oldest notification goes first.
        self._reached: dict[str, set[str]] = {}
        self._lock = threading.Lock()
        self._receivers = Receivers()

    # -- devices -------------------------------------------------------------------------------------------------

    def add(self, reviewer: Reviewer, name: str, endpoint: str, p256dh: str, auth: str) -> Device:
        """Add a device, or replace the one with the same endpoint. Durable on return.

        Raises:
            DeviceRefusedError: Its keys are invalid, its address is not allowed, or the person has ten devices already.
            ConfigError: The extra `push` is missing, or the server's secret cannot be used.
        """
        vapid = self.public_key()
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            self._destination(endpoint)
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _decode(p256dh))
            secret = _decode(auth)
        except (errors.ConfigError, ValueError) as error:
            raise DeviceRefusedError(f"this browser cannot be notified: {error}; nothing was turned on") from None
        if len(secret) != 16:
            raise DeviceRefusedError("this browser cannot be notified: its secret is not valid; nothing was turned on")
        device_key = hashlib.sha256(endpoint.encode()).hexdigest()[:32]
        if len([one for one in self.devices(reviewer) if one.key != device_key]) >= MOST:
            raise DeviceRefusedError(f"you have {MOST} devices already; remove one first. Nothing was turned on")
        body = {
            **_fields(reviewer), "name": name, "endpoint": endpoint, "p256dh": p256dh, "auth": auth,
            "vapid": vapid, "added": clock.written(clock.now()), "language": spoken().tag,
        }  # fmt: skip
        record = Record(_KIND, device_key, body, clock.now() + LASTS)
        self._store.keep(record)
        # Not `register`, which would send a notification for every request that is already pending.
        self._store.keep(Record(CHANNEL, self.name, {"kind": type(self).__name__, "by": "program"}), only_new=True)
        return Device.of(record)

    def devices(self, reviewer: Reviewer | None = None) -> list[Device]:
        """Return the active devices, of one person or of all. Removes those that have expired or have an old key."""
        found: list[Device] = []
        for record in records_in(self._store, _KIND):
            with suppress(errors.StoreCorruptError):  # a damaged record must not stop the other devices
                found.append(Device.of(record))
        now, key = clock.now(), self.public_key() if found else ""
        alive: list[Device] = []
        for one in found:
            ends = one.record.due
            if ends is None or ends <= now or one.record.body.get("vapid") != key:  # its service refuses another key
                self._drop(one.key)
            elif reviewer is None or one.reviewer.identity.is_same(reviewer.identity):
                alive.append(one)
        return alive

    def remove(self, reviewer: Reviewer, key: str) -> bool:
        """Remove a device of this person; return whether it was theirs. Durable on return."""
        is_theirs = any(one.key == key for one in self.devices(reviewer))
        return is_theirs and self._drop(key)

    def signed_in(self, reviewer: Reviewer, key: str | None) -> None:
        """Extend a device after its reviewer signed in there, with their current roles; remove another person's."""
        record = None if key is None else self._store.record(_KIND, key)
        if record is None or key is None:
            return
        is_theirs = False
        with suppress(errors.StoreCorruptError):
            is_theirs = Device.of(record).reviewer.identity.is_same(reviewer.identity)
        if not is_theirs:
            self._drop(key)
            return
        self._store.swap(record, replace(record, body={**record.body, **_fields(reviewer)}, due=clock.now() + LASTS))

    def _drop(self, key: str) -> bool:
        was_there = self._store.drop(_KIND, key)
        if not self._store.records(_KIND, limit=1):
            registry.forget(self._store, self.name)
        return was_there

    # -- messages ------------------------------------------------------------------------------------------------

    def public_key(self) -> str:
        """Return the server's public key as browsers expect it (`applicationServerKey`); raises `ConfigError`."""
        public = self._vapid().public_key
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return _encode(public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint))

    def send(self, notification: Notification) -> None:
        """Send a notification once to each device of the people who could decide. It replaces an earlier one there.

        Raises:
            DeliveryError: Some devices were not reached; a retry sends only to those.
        """
        request = self._store.get(notification.request_id)
        if request.state not in _NOTIFIED:
            return
        devices = [one for one in self.devices() if self._concerns(one, request)]
        with self._lock:
            reached = self._reached.setdefault(notification.id, set())
            if len(self._reached) > _MOST_REMEMBERED:
                del self._reached[next(iter(self._reached))]
        waiting = [one for one in devices if one.key not in reached]
        is_offered = may_approve_there(self._store, request)
        messages = [self._message(notification, request, one, is_offered=is_offered) for one in waiting]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            lasts = min(max(request.expires_at - clock.now(), timedelta(minutes=1)), _LONGEST_TTL)
            faults = list(pool.map(partial(self._push, about=notification, lasts=lasts), waiting, messages))
        reached.update(one.key for one, fault in zip(waiting, faults, strict=True) if fault is None)
        failed = [fault for fault in faults if fault is not None]
        if failed:
            raise DeliveryError(f"{len(failed)} of {len(devices)} devices could not be reached: {failed[0]}")

    def test(self, device: Device) -> None:
        """Send a test message to a device; raises `DeliveryError`."""
        with speaking(self._language(device)):
            title = say("sayso reaches this device")
        message = {"id": "test", "request": "", "title": title, "body": "", "approve": None, "is_over": True}
        fault = self._push(device, message, None, timedelta(minutes=5))
        if fault is not None:
            raise DeliveryError(fault)

    def _concerns(self, device: Device, request: Request) -> bool:
        """Return whether a device's reviewer could decide a request, or could have and so learns its outcome."""
        reviewer, identity = device.reviewer, device.reviewer.identity
        if not self._sign_in.admits(reviewer):
            return False
        claimed = request.claimed_by
        if claimed is not None and any(claimed.is_same(one) for one in self._store.stood_in_for(identity)):
            request = replace(request, claimed_by=identity)  # the claim of a person they stand in for does not bar them
        try:
            must_be_allowed(request, identity, reviewer.roles, clock.now(), is_vote=True)
        except errors.DecisionRefusedError:
            return False
        if request.state is not State.PENDING:
            return True
        has_voted = any(vote.by.is_same(identity) for vote in request.votes)
        return not has_voted and request.id not in self._store.snoozes(identity)

    def _language(self, device: Device) -> Language:
        chosen = language_of(self._store, device.reviewer.identity)
        return chosen or languages().get(device.language, ENGLISH)

    def _message(
        self, notification: Notification, request: Request, device: Device, *, is_offered: bool
    ) -> dict[str, Any]:  # fmt: skip
        """Return the content of a notification, masked and escaped as in the list of the inbox."""
        with speaking(self._language(device)):
            message = {
                "id": notification.id, "request": request.id, "title": _title(notification, request),
                "body": _body(request), "approve": request.current_fingerprint if is_offered else None,
                "is_over": request.state is not State.PENDING,
            }  # fmt: skip
            # What the service worker writes on buttons, and on a notification after one was pressed (`sw.js`).
            words = {
                "approve": say("Approve"), "reject": say("Reject"), "why": say("Why"),
                "approved": say("Approved"), "rejected": say("Rejected"),
                "undo": say("Approved; it can be undone for %(count)s s", count="{count}"),
                "not_approved": say("Not approved: open it to see why"),
                "not_rejected": say("Not rejected: open it to see why"),
                "lost": say("Not known whether it was decided: open it"),
            }  # fmt: skip
        return {**message, "words": words} if is_offered else message

    def _push(
        self, device: Device, message: Mapping[str, Any], about: Notification | None, lasts: timedelta
    ) -> str | None:  # fmt: skip
        """Send a message to one device, with the name of the only person who may decide from it.

        Return why it failed; None if it was sent or the device is gone.
        """
        headers = {
            "content-encoding": "aes128gcm", "content-type": "application/octet-stream", "user-agent": "sayso",
            "ttl": str(int(lasts.total_seconds())),
            "urgency": "high" if about is None or about.event in _URGENT else "normal",
        }  # fmt: skip
        if about is not None:  # a newer message replaces one of this request that was not fetched yet
            headers["topic"] = hashlib.sha256(about.request_id.encode()).hexdigest()[:32]
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(device.endpoint))
        ends = int((clock.now() + timedelta(hours=12)).timestamp())
        try:
            claims = {"aud": origin, "sub": self._contact, "exp": ends}
            headers |= {name.lower(): value for name, value in self._vapid().sign(claims).items()}
            named = {**message, "for": device.reviewer.identity.qualified}
            keys = {"p256dh": device.p256dh, "auth": device.auth}
            pusher = _libraries()[1].WebPusher({"endpoint": device.endpoint, "keys": keys})
            body = pusher.encode(json.dumps(named, ensure_ascii=False).encode())["body"]
            status, _ = self._receivers.post(self._destination(device.endpoint), body, headers)
        except (OSError, ValueError, errors.SaysoError) as error:
            return str(error)
        if status in _GONE:
            self._drop(device.key)
        return None if 200 <= status < 300 or status in _GONE else f"{origin} answered {status}"

    def _destination(self, endpoint: str) -> Destination:
        return Destination.parse(endpoint, allow_private=self._allow_private)

    def _vapid(self) -> Any:
        """Return the key that signs messages. All servers with the same secret derive the same key."""
        vapid = _libraries()[0].Vapid02
        for number in range(100):  # the first is a valid key for all but one secret in four billion
            raw = bytes.fromhex(self._signer.mac("push key", str(number)))
            try:
                return vapid.from_raw(_encode(raw).encode())
            except ValueError:
                continue
        raise errors.ConfigError("cannot derive a key from the server's secret; set another SAYSO_SECRET")


def _title(notification: Notification, request: Request) -> str:
    """Return the first line. Titles of notifications are English, so other languages have their own here."""
    if spoken().catalogue is None:
        return notification.title
    name = quote_if_needed(request.call.name, _NAME_ROOM) if request.kind == "call" else say("A question")
    if notification.event == "outcome":
        return f"{name}: {full_text.status_line(request, clock.now())}"
    who = name_of(request.requester, _NAME_ROOM)
    what = say("%(who)s asks a question", who=who)
    if request.kind == "call":
        what = say("%(who)s wants to run %(name)s", who=who, name=name)
    to = quote_if_needed((notification.to or "").removeprefix(f"{LOCAL}:"), _NAME_ROOM)
    match notification.event:
        case "reminder":
            return say("still waiting: %(what)s", what=what)
        case "escalated":
            return say("open to more people now: %(what)s", what=what)
        case "assigned":
            return say("assigned to %(to)s: %(what)s", to=to, what=what)
        case "mentioned":
            return say("a comment mentions %(to)s: %(what)s", to=to, what=what)
        case _:
            return what


def _body(request: Request) -> str:
    lines, words = [full_text.headline(request, _ROOM)], full_text.program_words(request, 160)
    lines += [say("The program says: %(words)s", words=words)] if words else []
    if request.state is State.PENDING:
        level = (request.risk or "").strip().casefold()
        named = say(level) if level in RISKS else quote_if_needed(request.risk or "", 20)
        risk = [] if request.risk is None else [say("risk %(risk)s", risk=named)]
        lines.append("; ".join([*risk, expiry(request.expires_at, clock.now())]))
    return "\n".join(lines)


def _libraries() -> tuple[Any, Any]:
    """Return `py_vapid` (signs) and `pywebpush` (encrypts); raises `ConfigError` without the extra `push`."""
    try:
        return importlib.import_module("py_vapid"), importlib.import_module("pywebpush")
    except ModuleNotFoundError:
        raise errors.ConfigError(EXTRA) from None


def _fields(reviewer: Reviewer) -> Mapping[str, Any]:
    return {"issuer": reviewer.issuer, "subject": reviewer.subject, "roles": sorted(reviewer.roles)}


def _decode(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
