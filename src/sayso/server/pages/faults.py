"""Errors as pages show them: a sentence in the reader's language, without commands to type.

The messages of the errors themselves are English and name commands. An error without a text here shows its own message.
"""

from __future__ import annotations

from markupsafe import Markup

from sayso import clock, errors
from sayso.model.duration import ago
from sayso.model.text import escape, later, say
from sayso.server.pages.rendering import known
from sayso.server.pages.sentences import translated
from sayso.view.summary import channel_name

_WORDS: dict[type[errors.SaysoError], str] = {
    errors.RequestNotFoundError: later(
        "There is no request %(request_id)s here. The link may be incomplete, or the request is in another inbox."
    ),
    errors.AmbiguousIdError: later("Several requests begin with %(prefix)s; write more of the id."),
    errors.RunNotFoundError: later(
        "There is no run %(run_id)s here. A run is recorded when it first waits for a person."
    ),
    errors.GrantNotFoundError: later("The grant %(grant_id)s is not in force: it was revoked, used up, or has ended."),
    errors.AlreadyDecidedError: later(
        "It is %(state)s already, by %(by)s (%(channel)s, %(ago)s). Nothing was changed."
    ),
    errors.RequestExpiredError: later("It expired %(ago)s. Nothing was decided; the program must ask again."),
    errors.OwnRequestError: later("You asked for this, or it was asked on your behalf. Somebody else must decide."),
    errors.MissingRoleError: later("To decide this, you need the role %(roles)s."),
    errors.AlreadyVotedError: later("You have approved it already; somebody else must approve it, too."),
    errors.ClaimedError: later(
        "%(by)s claimed it, or was assigned it, %(ago)s. To decide it yourself, unclaim it first."
    ),
    errors.NotClaimedError: later("Nobody has claimed it. Nothing was changed."),
    errors.StaleViewError: later("It has changed since you opened it. Nothing was decided; check it as it is now."),
    errors.NotUndoneError: later(
        "It can no longer be undone: the time is over, or somebody else decided it. If its call has not started, you"
        " can cancel it."
    ),
    errors.GrantRefusedError: later("This grant is not possible: %(reason)s. Nothing was decided."),
    errors.ReasonMissingError: later("A reason is required: write it in the note. Nothing was decided."),
    errors.NotUnknownError: later("It is %(state)s, so there is no unknown outcome to settle. Nothing was changed."),
}


def is_told(fault: errors.SaysoError) -> bool:
    """Return whether an error has a text that can be translated."""
    return type(fault) in _WORDS


def told(fault: errors.SaysoError) -> str:
    """Return the text of an error, escaped. If it is the error's own message, commands in it are marked as code."""
    if not is_told(fault):
        return _coded(escape(str(fault)))
    facts = {name: escape(fact) for name, fact in vars(fault).items() if isinstance(fact, str)}
    at = vars(fault).get("at") or vars(fault).get("expired_at")
    facts |= {"channel": channel_name(facts.get("channel", "")), "reason": translated(facts.get("reason", ""))}
    facts |= {"ago": "" if at is None else ago(at, clock.now()), "state": known(facts.get("state", ""))}
    facts["roles"] = say(" or ").join(map(escape, vars(fault).get("roles", ())))
    return say(_WORDS[type(fault)], **facts)


def _coded(text: str) -> Markup:
    """Return an English message for a page, with text in backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return Markup.escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else Markup.escape(part) for at, part in enumerate(parts)
    )
