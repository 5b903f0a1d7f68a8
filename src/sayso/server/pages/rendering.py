"""Renders pages: the Jinja environment, the variables of every page, facts and errors as texts, and static files.

Texts from programs and people are escaped by `sayso.view` before they reach a template, or in it with the filter
`seen`; Jinja then escapes them for HTML. An undefined name in a template is an error, not an empty text.

An error is shown as a sentence in the reader's language, without commands to type. The messages of the errors
themselves are English and name commands. An error without a text here shows its own message.

Static files are compressed once, and addressed by a digest of their content. A page links to `/static/DIGEST/app.css`,
which browsers cache for a year without revalidation. When any file changes, the digest changes, and pages link to the
new address. Without a digest, or with another version's, the file is served too, but browsers must revalidate it each
time. The scripts of pages are served as one file, because each request before the first paint delays it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request as Http
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from sayso import __version__, clock, errors
from sayso.model import duration
from sayso.model.duration import ago
from sayso.model.ids import is_random
from sayso.model.rendering import quote_if_needed, value, word
from sayso.model.request import Request, State
from sayso.model.reviewer import Delegation, Reviewer, name_of
from sayso.model.text import escape, isolated, later, say, spoken
from sayso.reviews import Review
from sayso.server.context import RequestContext, accepts_gzip, path_to
from sayso.server.language import script_words, translated
from sayso.server.pages.arguments import amount_text, in_sight, in_words
from sayso.view import full_text
from sayso.view.full_text import status_line
from sayso.view.similar import arguments_apart, words_apart
from sayso.view.summary import RISKS, RUN_ROOM, absence, channel_name, is_high, short, time_left

_FOLDER = Path(__file__).parent.parent / "static"
_TYPES = {
    ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".png": "image/png", ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}  # fmt: skip
_SCRIPTS = ("page.js", "texts.js", "times.js", "card.js", "list.js", "app.js", "live.js", "bulk.js", "push.js")


@cache
def _static_files() -> tuple[str, dict[str, tuple[bytes, bytes, str, str]]]:
    """Return the digest of all files, and by name each file's bytes, plain and compressed, media type and ETag."""
    digest, found = hashlib.sha256(), dict[str, tuple[bytes, bytes, str, str]]()
    files = {path.name: path.read_bytes() for path in _FOLDER.iterdir()}
    # The first script is needed by the others; an error in one of these does not stop the rest.
    first, *others = [files.pop(name) for name in _SCRIPTS]
    rest = (b"try {\n%s} catch (error) { reportError(error); }\n" % one for one in others)
    files["inbox.js"] = b"".join([first, *rest])
    for name, plain in sorted(files.items()):
        tag = hashlib.sha256(plain).hexdigest()
        digest.update(f"{name} {tag}\n".encode())
        # mtime=0: every server of one version sends the same bytes. A weak tag (`W/`): both encodings share it.
        found[name] = plain, gzip.compress(plain, 9, mtime=0), _TYPES[Path(name).suffix], f'W/"{tag[:32]}"'
    return digest.hexdigest()[:16], found


async def assets(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a file. This is an ASGI application, to be mounted."""
    http = Http(scope, receive)
    if http.method not in {"GET", "HEAD"}:
        raise HTTPException(405, headers={"allow": "GET, HEAD"})
    digest, files = _static_files()
    place = scope["path"].removeprefix(scope.get("root_path", "")).lstrip("/")
    given, _, name = place.rpartition("/")
    if name not in files or "/" in given:
        raise HTTPException(404)
    body, compressed, media_type, tag = files[name]
    lasts = "public, max-age=31536000, immutable" if given == digest else "no-cache"
    headers = {"etag": tag, "vary": "accept-encoding", "cache-control": lasts}
    if name == "sw.js":  # its scope is this inbox, not other applications of the same host
        headers["service-worker-allowed"] = scope.get("root_path", "").removesuffix("static")
    if http.headers.get("if-none-match") == tag:
        await Response(status_code=304, headers=headers)(scope, receive, send)
        return
    if accepts_gzip(http):
        body, headers["content-encoding"] = compressed, "gzip"
    await Response(body, headers=headers, media_type=media_type)(scope, receive, send)


_HEADLINE, _WORDS_ROOM = 180, 160
_CUT = "…"  # stands where a text is shortened
_LISTS = ("always ", "one of ")  # as `sayso.learning.proposals` begins a list of values
_KNOWN = frozenset({
    later("pending"), later("approved"), later("running"), later("done"), later("failed"),
    later("unknown"), later("rejected"), later("feedback"), later("answered"), later("cancelled"),
    later("expired"), later("approve"), later("reject"), later("answer"), later("cancel"),
    later("paused"), later("broken"), later("ended"), later("revoked"), later("used up"),
    later("tool"), later("agent"), later("workflow"),
    later("success"), later("error"), later("waiting"), later("decided"), later("call"), later("question"), *RISKS,
})  # fmt: skip
"""The words of sayso that pages show and translate: states, decisions, risks, kinds."""


def known(word: str) -> str:
    """Translate a word of sayso; return any other word unchanged."""
    return say(str(word)) if word in _KNOWN else word


def _described(values: str) -> str:
    """Return a report's text about an argument's values, such as `always "A"`, with its JSON values drawn as usual."""
    begin, listed = next(((one, values.removeprefix(one)) for one in _LISTS if values.startswith(one)), ("", ""))
    with suppress(ValueError):
        return translated(begin + ", ".join(map(value, json.loads(f"[{listed}]"))) if begin else values)
    return translated(values)


def percent(share: float | None) -> str:
    """Format a share as a percentage."""
    return "-" if share is None else f"{share:.0%}"


def brief_span(span: timedelta | None) -> str:
    """Format a span; below ten seconds with tenths of a second."""
    if span is None:
        return "-"
    seconds = span.total_seconds()
    if seconds < 10:
        return say("%(count)ss", count=f"{seconds:.1f}")
    return duration.text(timedelta(seconds=round(seconds)))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("sayso.server"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False, extensions=["jinja2.ext.i18n"],
    )  # fmt: skip
    made.newstyle_gettext = True  # pyright: ignore[reportAttributeAccessIssue]  the extension brings it
    ours: dict[str, Any] = {"gettext": _say, "ngettext": _say_n, "language": spoken}
    ours["script_words"] = lambda: script_words(spoken())
    cast("dict[str, Any]", made.globals).update(ours)  # pyright: ignore[reportUnknownMemberType]
    filters = cast("dict[str, Callable[..., str]]", made.filters)  # pyright: ignore[reportUnknownMemberType]
    filters |= {
        "seen": escape, "block": partial(escape, block=True), "quoted": quote_if_needed, "person": name_of,
        "percent": percent,
        "span": brief_span, "ago": _ago, "known": known, "described": _described,
        "channel": channel_name, "in_sight": in_sight, "in_words": in_words,
    }  # fmt: skip
    return made


def _say(message: str, /, **values: Any) -> Markup:
    """Return a translated text of a template. The catalogue's text is HTML; the values are escaped."""
    catalogue = spoken().catalogue
    return Markup(message if catalogue is None else catalogue.gettext(message)) % isolated(values)  # noqa: S704


def _say_n(one: str, many: str, num: int, /, **values: Any) -> Markup:
    catalogue = spoken().catalogue
    found = (one if num == 1 else many) if catalogue is None else catalogue.ngettext(one, many, num)
    return Markup(found) % isolated({"num": num, **values})  # noqa: S704  as above


def _ago(at: datetime) -> str:
    return ago(at, clock.now())


def render(context: RequestContext, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page for a person who is signed in. Its title, menu and list share one count of pending requests."""
    return render_public(
        context.http, template, status=status, csrf=context.session.masked_csrf(),
        me=name_of(context.reviewer.identity), pending=context.pending_count,
        stopped=context.review.stopped(), has_logout=context.settings.who is None, **values,
    )  # fmt: skip


def render_public(http: Http, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page for anybody, which must show nothing of any request."""
    # The address under which browsers cache a file has the digest of all files.
    asset = partial(path_to, http, "static", _static_files()[0])
    ours = {"path": partial(path_to, http), "asset": asset, "version": __version__}
    headers = {"content-language": spoken().tag, "vary": "accept-language, cookie"}
    return HTMLResponse(fragment(template, **ours, **values), status, headers)


def fragment(template: str, **values: Any) -> str:
    """Render a template, which may be a part of a page."""
    return _environment().get_template(template).render(values)


def list_row(
    request: Request, now: datetime, *, program_gone: bool = False, is_to_me: bool = False,
    away: Sequence[Delegation] = (), reader: Reviewer | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a request as a row of a list. The keyword arguments are facts that the request itself does not have.

    Keys whose names do not say it all:
        stands: Its status in one line.
        headline: The call that would run, or the question; `name` and `arguments` are its two parts.
        says: The program's own title and summary; empty if it gives none.
        amount: The largest amount among the arguments, found by name; empty if there is none.
        level: The risk if it is one of the usual words, for its colour.
        votes: How many of the required approvals it has, if it needs several.
        at: When it was asked, in ISO 8601.
        expires: When it expires, in ISO 8601, while it is pending; `left` is the time left.
        warns: Whether something in it may deceive the eye.
        program_gone: Whether its program has ended, so that nobody waits for the decision.
        away: Until when the person who claimed it is away, and who stands in; empty if they are not away.
        is_to_me: Whether a comment on it mentions the reader.
        lacks: The roles of which the reader would need one to decide it; empty if they have it.
    """
    is_pending, run_id, count = request.state is State.PENDING, request.run_id, request.quorum.count
    (name, arguments), (risk, level) = parts_of(request), risk_of(request)
    return {
        "id": request.id, "short": short(request.id), "state": str(request.state), "stands": status_line(request, now),
        "headline": full_text.headline(request, _HEADLINE), "name": name, "arguments": arguments,
        "says": full_text.program_words(request, _WORDS_ROOM),
        "amount": amount_text(request), "risk": risk, "level": level, "requester": name_of(request.requester, 30),
        "votes": say("%(given)s of %(count)s approvals", given=count - request.missing_votes, count=count)
        if is_pending and count > 1 else "",
        "run": run_name(run_id), "run_id": run_id,
        "asked": ago(request.created_at, now), "at": clock.written(request.created_at),
        "claimed": "" if request.claimed_by is None else name_of(request.claimed_by, 30),
        "away": absence(request.claimed_by, away),
        "expires": clock.written(request.expires_at) if is_pending else "",
        "left": time_left(request.expires_at, now) if is_pending else "", "is_call": request.kind == "call",
        "fingerprint": request.current_fingerprint, "warns": bool(full_text.cautions(request)),
        "program_gone": program_gone, "is_to_me": is_to_me, "lacks": missing_roles(request, reader),
    }  # fmt: skip


def missing_roles(request: Request, reader: Reviewer | None) -> str:
    """Return the roles of which a reader would need one to decide a pending request; empty if they have it."""
    if reader is None or request.state is not State.PENDING or request.admits(reader.identity, reader.roles):
        return ""
    return say(" or ").join(quote_if_needed(role, 30) for role in sorted(request.quorum.roles))


def parts_of(request: Request) -> tuple[str, str]:
    """Split the headline of a request into the name of its call, or the question, and the arguments of the call."""
    if request.kind != "call":
        return full_text.question_line(request, _HEADLINE), ""
    headline = full_text.headline(request, _HEADLINE)
    whole = request.effective.name
    drawn = (escape(whole), word(whole, _HEADLINE // 2))  # a long name is shortened, with brackets
    name = next((one for one in drawn if headline.startswith(f"{one}(")), headline.partition("(")[0])
    return name, headline.removeprefix(name)[1:-1]  # without the parentheses


def risk_of(request: Request) -> tuple[str, str]:
    """Return the risk as given, and its level if it is one of the usual words, for its colour."""
    if request.risk is None:
        return "", ""
    level = request.risk.strip().casefold()
    return quote_if_needed(request.risk, 20), level if level in RISKS else ""


def risk_unconfirmed(request: Request, form: Mapping[str, str]) -> str | None:
    """Return why a form does not approve a request of high risk: its box “sure” is not ticked. None if it does."""
    if not is_high(request.risk) or form.get("sure") == "yes":
        return None
    risk, _ = risk_of(request)
    return say("Its risk is %(risk)s: confirm that you are sure. Nothing was decided.", risk=known(risk))


def run_name(run_id: str) -> str:
    """Return a run's id for a list; a random one is shortened."""
    return short(run_id) if is_random(run_id) else quote_if_needed(run_id, RUN_ROOM)


def list_rows(
    review: Review, requests: Sequence[Request], now: datetime, reader: Reviewer | None = None
) -> list[dict[str, Any]]:
    """Return requests as rows for a reader; texts and arguments of similar ones are shown from where they differ."""
    to_me, away = review.mentions(), review.delegations()
    rows = [
        list_row(
            one, now, program_gone=review.program_is_gone(one), is_to_me=one.id in to_me, away=away, reader=reader
        )
        for one in requests
    ]  # fmt: skip
    if not any(_CUT in row["headline"] or _CUT in row["says"] for row in rows):
        return rows
    words, arguments = words_apart(requests, _WORDS_ROOM), arguments_apart(requests, _HEADLINE - 30)
    for row, request, theirs, ours in zip(rows, requests, words, arguments, strict=True):
        if request.kind == "call":
            is_cut = _CUT in row["headline"] and row["headline"] != full_text.headline(request, 2 * _HEADLINE)
            row |= {"says": theirs or row["says"], "arguments": ours if is_cut else row["arguments"]}
    return rows


def facts(request: Request, now: datetime, away: Sequence[Delegation] = ()) -> list[tuple[str, str]]:
    """Return who asked, when, and what an approval needs, as pairs of name and value."""
    found = [(say("asked by"), name_of(request.requester))]
    found += [(say("on behalf of"), name_of(person)) for person in request.acts_for]
    if request.kind == "call":
        found.append((say("function"), escape(request.call.tool)))
    return [*found, *full_text.needs(request, now, _HEADLINE, absence(request.claimed_by, away))]


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


def has_error_text(fault: errors.SaysoError) -> bool:
    """Return whether an error has a text that can be translated."""
    return type(fault) in _WORDS


def error_text(fault: errors.SaysoError) -> str:
    """Return the text of an error, escaped. If it is the error's own message, commands in it are marked as code."""
    if not has_error_text(fault):
        text = escape(str(fault))
        parts = list(map(Markup.escape, text.split("`")))
        if len(parts) % 2 == 0:
            return Markup.escape(text)
        return Markup("").join(Markup("<code>{}</code>").format(one) if at % 2 else one for at, one in enumerate(parts))
    facts = {name: escape(fact) for name, fact in vars(fault).items() if isinstance(fact, str)}
    at = vars(fault).get("at") or vars(fault).get("expired_at")
    facts |= {"channel": channel_name(facts.get("channel", "")), "reason": translated(facts.get("reason", ""))}
    facts |= {"ago": "" if at is None else ago(at, clock.now()), "state": known(facts.get("state", ""))}
    facts["roles"] = say(" or ").join(map(escape, vars(fault).get("roles", ())))
    return say(_WORDS[type(fault)], **facts)
