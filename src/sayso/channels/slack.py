"""The Slack channel: posts a message with a Review button, and edits it with the outcome.

Messages are sent through the Web API. Button presses arrive through Socket Mode, a connection that sayso opens, so
sayso does not need to be reachable from outside. `slack_review` shows requests and applies decisions. Slack is answered
within its limit of three seconds. Tokens never appear in a message, log or `repr`.
"""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse

from sayso.channels.registry import DeliveryError, Notification, UndeliverableError
from sayso.channels.settings import ReviewerAllowlist, Table, allowed_reviewers, is_protected
from sayso.channels.slack_review import CALLBACK, SlackReviews, message, outcome, part
from sayso.model.reviewer import LOCAL, Identity, Reviewer
from sayso.stores.base import Store
from sayso.view.summary import is_high

if TYPE_CHECKING:
    from slack_sdk.socket_mode.client import BaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

_log = logging.getLogger("sayso.slack")

_KNOWN = ("api_url", "app_token_env", "bot_token_env", "channel", "inline", "people", "type")
_API = "https://slack.com/api/"
_SECONDS, _GRACE = 10, 0.5
_BUFFER = 16_384  # at the client's default of 1,024, the submission of a long modal approaches Python's recursion limit
_SOONEST, _LATEST = 1.0, 60.0
# Permanent errors about the message itself. Any other error may pass, so the message is sent again.
_NEVER = frozenset({"cant_update_message", "edit_window_closed", "invalid_blocks", "message_not_found", "msg_too_long"})


class SlackChannel:
    """A channel of a Slack workspace.

    Args:
        name: The channel's name in the settings.
        bot_token, app_token: The Slack app's tokens; `app_token` opens the Socket Mode connection.
        channel: The id of the channel in Slack.
        people: The reviewers by Slack member id.
        inline: Whether risky requests can be decided in Slack, too.
        api_url: The base URL of Slack's Web API.
        allowed: Which of these people may review at all.
    """

    def __init__(
        self, name: str, *, bot_token: str, app_token: str, channel: str, people: Mapping[str, Reviewer],
        inline: bool = False, api_url: str = _API, allowed: ReviewerAllowlist | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._channel, self._people, self._inline, self._app_token = channel, people, inline, app_token
        self._allowed = allowed or ReviewerAllowlist()
        self._web = WebClient(bot_token, base_url=api_url, timeout=_SECONDS)

    def __repr__(self) -> str:
        return f"SlackChannel({self.name!r}, channel={self._channel!r})"

    def send(self, notification: Notification) -> str:
        """Post a notification, and return `channel/ts` of the message.

        Raises:
            UndeliverableError: Slack will never accept this message.
            OSError: Slack did not accept it this time.
        """
        can_review = notification.event != "test" and (self._inline or not is_high(notification.risk))
        return self._post(message(notification, can_review=can_review), notification.to)

    def follow_up(self, notification: Notification, reference: str | None) -> None:
        """Edit a message so that it shows the outcome; raises the same errors as `send`."""
        if reference is None:
            self._post(outcome(notification))
            return
        channel, _, ts = reference.partition("/")
        self._call("chat.update", {"channel": channel, "ts": ts, **outcome(notification)})

    @contextmanager
    def listening(self, store: Store, base_url: str | None) -> Generator[None]:
        """Receive button presses and apply decisions to this store while the block runs.

        It connects in the background and reconnects whenever the connection ends. A failure is logged.
        """

        def reviews() -> SlackReviews:
            return SlackReviews(
                store, self._call, self._people, team=str(self._call("auth.test", {})["team_id"]),
                inline=self._inline, base_url=base_url, allowed=self._allowed,
            )  # fmt: skip

        connection = _Connection(self._web, self._app_token, reviews)
        connecting = threading.Thread(target=connection.open, name="sayso-slack-connect", daemon=True)
        connecting.start()
        try:
            yield
        finally:
            connection.close()
            connecting.join(_GRACE)  # a connection attempt that hangs ends at its own timeout

    @property
    def people(self) -> list[Identity]:
        """The people whom it reaches personally, by direct message."""
        return [one.identity for one in self._people.values()]

    def _post(self, content: Mapping[str, Any], to: str | None = None) -> str:
        where = next((member for member, one in self._people.items() if one.identity.qualified == to), self._channel)
        answer = self._call("chat.postMessage", {"channel": where, **content})
        return f"{answer['channel']}/{answer['ts']}"

    def _call(self, method: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call the Web API; raise `UndeliverableError` or `OSError` with Slack's error code and no other content."""
        web: Any = self._web
        try:
            answer = web.api_call(method, json=dict(content))
        except SlackApiError as fault:
            code = _error_code(fault)
            words = f"Slack refused {method}: {code}"
            raise (UndeliverableError(words) if code in _NEVER else DeliveryError(words)) from None
        except (SlackClientError, http.client.HTTPException) as fault:
            raise DeliveryError(f"Slack did not accept {method}: {type(fault).__name__}") from None
        return answer.data


class _Connection:
    """The Socket Mode connection: `open` retries, and `close` does not wait for the network."""

    def __init__(self, web: WebClient, app_token: str, make_reviews: Callable[[], SlackReviews]) -> None:
        self._web, self._app_token, self._make_reviews = web, app_token, make_reviews
        self._is_closed = threading.Event()
        self._client: SocketModeClient | None = None
        self._reviews: SlackReviews | None = None

    def open(self) -> None:
        """Connect, with retries; the client reconnects by itself when an established connection ends."""
        pause = 0.0
        while not self._is_closed.wait(pause):
            try:
                self._reviews = self._make_reviews()
                self._client = client = SocketModeClient(
                    self._app_token, web_client=self._web, receive_buffer_size=_BUFFER
                )
                client.socket_mode_request_listeners.append(self._receive)
                client.connect()
                if self._is_closed.is_set():
                    _stop_client(client)  # `close` ran during `connect` and could not see what this has opened since
            except Exception as fault:  # noqa: BLE001  if any error ended this thread, nothing would retry
                self._disconnect()
                reason = _error_code(fault) if isinstance(fault, SlackApiError) else str(fault)
                _log.warning("no connection to Slack, so the Review buttons do not work: %s", reason)
                pause = min(_LATEST, max(_SOONEST, 2 * pause))
            else:
                return

    def _receive(self, client: BaseSocketModeClient, envelope: SocketModeRequest) -> None:
        payload = cast("dict[str, Any]", envelope.payload)  # pyright: ignore[reportUnknownMemberType]
        reviews = self._reviews
        if self._is_closed.is_set() or reviews is None:
            return  # not acknowledged, so Slack sends it again on another connection
        is_ours = payload.get("type") == "view_submission" and part(payload, "view").get("callback_id") == CALLBACK
        reply = reviews.decide(envelope.envelope_id, payload) if is_ours else None
        client.send_socket_mode_response(SocketModeResponse(envelope.envelope_id, reply))
        if envelope.type == "interactive" and payload.get("type") == "block_actions":
            reviews.open_modal(payload)

    def close(self) -> None:
        self._is_closed.set()
        self._disconnect()

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            _stop_client(client)
        if self._reviews is not None:
            self._reviews.close()


def _stop_client(client: SocketModeClient) -> None:
    """Stop a client and its threads at once. It is safe to call this twice."""
    client.auto_reconnect_enabled = client.default_auto_reconnect_enabled = False
    client.closed = True
    client.enqueue_message("{}")  # wakes a thread that would otherwise wait up to a second
    session = client.current_session
    if session is not None and session.sock is not None:
        with suppress(OSError):  # wakes a thread that would otherwise wait up to three seconds
            session.sock.shutdown(socket.SHUT_RDWR)
    runner, state = client.current_session_runner, client.current_session_state
    runner.event.set()
    state.terminated = True
    while runner.is_alive():  # a session that starts concurrently resets `terminated`, and would then never end
        state.terminated = True
        runner.thread.join(0.05)
    client.close()


def _error_code(fault: SlackApiError) -> str:
    """Return Slack's error code only, because the rest of the error quotes what was sent."""
    response: Any = fault.response  # pyright: ignore[reportUnknownMemberType]
    return str(response.get("error"))


def make(name: str, settings: Mapping[str, Any]) -> SlackChannel:
    """Create the channel from its table in `sayso.toml`.

    Raises:
        ConfigError: A setting is missing, unknown or invalid.
    """
    table = Table(f"channels.{name}", settings, known=_KNOWN)
    listed: dict[str, Any] = table.get("people", dict, {})
    people = {member: table.person(f"people.{member}", given, issuer=LOCAL) for member, given in listed.items()}
    api_url = table.get("api_url", str, _API)
    if not is_protected(api_url):
        raise table.error("api_url", "must begin with https://, because the tokens are sent there")
    return SlackChannel(
        name, bot_token=table.secret("bot_token_env"), app_token=table.secret("app_token_env"),
        channel=table.text("channel"), people=people, inline=table.get("inline", bool, False), api_url=api_url,
        allowed=allowed_reviewers(),
    )  # fmt: skip
