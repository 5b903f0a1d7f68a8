"""`ReAct`: a model that reasons and calls tools in turns until it can give typed answers, and pauses for a person.

A gated call raises `ConfirmationRequired`, whose context is plain JSON with every secret masked, sufficient to continue
in any process. The context contains nothing that could run: a waiting call is identified by its request and made with
the store's arguments, and a call that has ended is not repeated, whatever a saved context says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from sayso import config, errors
from sayso.confirmation import ConfirmationRejected, ConfirmationRequired, ToolCall
from sayso.gates import scope, signals
from sayso.gates.ask import aask
from sayso.gates.outcome import unknown_request
from sayso.gates.signals import trimmed
from sayso.model import canonical
from sayso.model.ids import new_run_id
from sayso.model.request import Call, Request, State
from sayso.model.schema import SchemaError
from sayso.runs.agent import Tool, model_of, tools_by_name
from sayso.runs.events import DeltaEvent
from sayso.runs.messages import ModelCall, reply_to, text_of
from sayso.runs.module import (
    Module,
    Prediction,
    Response,
    Signature,
    check_shown,
    emit_delta,
    read_resume_state,
    record,
)
from sayso.runs.react_state import ReActState, Waiting
from sayso.runs.state import result_shown, verb
from sayso.stores.base import Store
from sayso.view import line

_log = logging.getLogger("sayso")
FINISH, ASK = "finish", "ask_to_user"


class NoAnswerError(errors.SaysoError):
    """The model used up its turns without a valid answer.

    Attributes:
        turns: The number of turns.
        trajectory: Its thoughts, calls and observations, with secrets masked.
    """

    def __init__(self, turns: int, trajectory: dict[str, Any]) -> None:
        super().__init__(f"the model gave no answer in {turns} turns; what was run stays done (see .trajectory)")
        self.turns = turns
        self.trajectory = trajectory


class ReAct(Module):
    """Reason and act: a model with tools and typed answers.

    Args:
        signature: What goes in and comes out; see `Signature.of`.
        tools: `Tool`s, functions, or objects with `name` and `func`. A function that a gate holds is held here as well.
        max_iters: How often the model may be asked before it must answer.
        model: Any that `sayso.runs.agent.model_of` takes.
        enable_ask_to_user: Whether the model may ask the user a question, through the store like any request.
        on_rejection: What a no does: `raise` ends with `ConfirmationRejected`; `continue` tells the model, which goes
            on without the call. Words that are neither yes nor no always go to the model; a cancel always ends it.

    Raises:
        ConfigError: One of them cannot be used.
    """

    @trimmed
    def __init__(
        self, signature: object, tools: Iterable[Any] = (), *, max_iters: int = 10, model: object = None,
        enable_ask_to_user: bool = True, on_rejection: Literal["raise", "continue"] = "raise",
    ) -> None:  # fmt: skip
        if type(max_iters) is not int or max_iters < 1:
            raise errors.ConfigError(f"max_iters= takes a whole number from 1, not {max_iters!r}")
        if on_rejection not in {"raise", "continue"}:
            raise errors.ConfigError(f"on_rejection= takes 'raise' or 'continue', not {on_rejection!r}")
        self.signature = Signature.of(signature)
        reserved = sorted({"resume_state", "user_response"}.intersection(self.signature.inputs.names))
        if reserved:
            raise errors.ConfigError(f"an input cannot be called {reserved[0]!r}: every module has that parameter")
        self.model = model_of(model)
        self.max_iters, self.on_rejection = max_iters, on_rejection
        self.tools = tools_by_name(tools, _tool_of)
        own = {FINISH, ASK} if enable_ask_to_user else {FINISH}
        for name in sorted(own & self.tools.keys()):
            raise errors.ConfigError(f"two tools are called {name!r}")
        if enable_ask_to_user:
            self.tools[ASK] = Tool(_ask_to_user, name=ASK)
        outputs = self.signature.outputs
        description = f"Give the answer: {', '.join(outputs.names)}. Ends the task."
        self._finish = {"name": FINISH, "description": description, "parameters": outputs.schema}

    async def aforward(self, **inputs: Any) -> Prediction:
        """Work on a task until there is an answer, or until a person must decide.

        Args:
            inputs: The signature's inputs by name; `resume_state=` and `user_response=` as for every `Module`.

        Raises:
            ConfirmationRequired: A person must decide or answer first. Its `context` is JSON, with secrets masked.
            ConfirmationRejected: A call was refused.
            NoAnswerError: There was no answer within `max_iters` turns.
            ModelError: The model could not be asked.
            TypeError: The inputs do not match the signature.
        """
        try:
            given = self.signature.inputs.validate(inputs)
        except SchemaError as error:
            raise TypeError(f"the inputs do not fit: {error}") from None
        shown = self.signature.inputs.plain(given)
        run_id = f"react{new_run_id().removeprefix('run')}"
        messages = [{"role": "system", "content": self._brief()}, {"role": "user", "content": _task(shown)}]
        return await self._go_on(ReActState(run_id, shown, messages))

    async def aresume(self, user_response: Response, saved: Any) -> Prediction:
        """Continue after a pause, in this process or another one with the same tools and store.

        Args:
            user_response: `yes`, `no`, changed arguments as a JSON object (all or some of them), the answer to a
                question, or feedback for the model. It is ignored if somebody has decided in the meantime.
            saved: The `ConfirmationRequired`, a `ResumeState`, or the `to_dict` of either.

        Raises:
            InvalidChangesError: The changed arguments are invalid; the request stays pending.
            DecisionRefusedError: The decision was refused; the request is unchanged, and `saved` is still valid.
            ConfigError: `saved` is not a pause of this agent.
        """
        signal, response = read_resume_state(saved, user_response)
        if not isinstance(signal, ConfirmationRequired):
            raise errors.ConfigError(
                f"cannot resume from {type(signal).__name__}: pass a ConfirmationRequired or its to_dict()"
            )
        state = ReActState.from_context(signal.context)
        store, request = await self._request(state, state.waiting[0])
        state.acts_for = request.acts_for
        if request.state is State.PENDING and response is not None:
            check_shown(signal, request)
            seen = signal.context.get("seen")
            await verb(store, partial(record, seen=seen), store, request, response)
        return await self._go_on(state)

    # -- the loop ----------------------------------------------------------------------------------------------

    async def _go_on(self, state: ReActState) -> Prediction:
        offered = [tool.offer for tool in self.tools.values()]
        await self._settle(state)
        while state.turns < self.max_iters:
            answer = await self._turn(state, [*offered, self._finish])
            await self._settle(state)
            if answer is not None:
                return _prediction(state, answer)
        state.messages.append(_user("No turn is left. Call `finish` now, with what you know."))
        answer = await self._turn(state, [self._finish])
        if answer is None:
            raise NoAnswerError(state.turns, state.trajectory)
        return _prediction(state, answer)

    async def _turn(self, state: ReActState, offered: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Ask the model once and make its calls; return its answer, if it gave one."""
        path = type(self).__name__
        reply = await reply_to(
            self.model, type(self.model).__name__, state.messages, offered,
            lambda text: emit_delta(DeltaEvent(run_id=state.run_id, path=path, text=text)),
        )  # fmt: skip
        calls = state.add_reply(reply)
        names = {one["name"] for one in offered}
        for call in calls:
            if call.name != FINISH:
                await self._attempt(state, call, names)
        answers = [self._answer(state, call) for call in calls if call.name == FINISH]
        if calls:
            return next((answer for answer in answers if answer is not None), None)
        return self._plain_answer(state, reply.text)

    def _answer(self, state: ReActState, call: ModelCall) -> dict[str, Any] | None:
        """Return the typed answer of a `finish` call; problems with it go back to the model."""
        if state.waiting:
            why = "not accepted: calls of the same turn had no result yet. Call `finish` when you have seen the results"
            state.add_result(call.id, FINISH, why, is_error=True)
            return None
        try:
            answer = self.signature.outputs.validate(call.arguments) if call.problem is None else None
        except SchemaError as error:
            state.add_result(call.id, FINISH, f"the answer does not fit: {error}", is_error=True)
            return None
        state.add_result(call.id, FINISH, "done" if call.problem is None else call.problem, is_error=answer is None)
        return answer

    def _plain_answer(self, state: ReActState, text: str) -> dict[str, Any] | None:
        """Accept a plain text as the answer if the only output is a text; otherwise ask for `finish`."""
        only = self.signature.outputs.single_text
        if only is not None and text.strip():
            try:
                return self.signature.outputs.validate({only: text})
            except SchemaError:
                pass  # e.g. the text is too long, which `finish` will report
        state.messages.append(_user("Call a tool, or call `finish` with the answer."))
        return None

    # -- calls -------------------------------------------------------------------------------------------------

    async def _attempt(self, state: ReActState, call: ModelCall, offered: set[str]) -> None:
        tool, problem = self.tools.get(call.name) if call.name in offered else None, call.problem
        if tool is None:
            problem = f"there is no tool {call.name!r}; there are {', '.join(sorted(offered))}"
        elif problem is None:
            state.learn_call(tool, call)
        if problem is not None or tool is None:
            state.add_result(call.id, call.name, f"not run: {problem}", is_error=True)
            return
        got = await self._call(state, tool, call.arguments)
        if isinstance(got, _Observation):
            state.add_result(call.id, call.name, got.text, is_error=got.is_error)
        else:
            is_asked = all(one.request != got.confirmation_id for one in state.waiting)
            state.waiting.append(Waiting(call.id, call.name, got.confirmation_id, is_asked))

    async def _call(
        self, state: ReActState, tool: Tool, arguments: dict[str, Any], args: tuple[Any, ...] = ()
    ) -> _Observation | ConfirmationRequired:
        """Make a call in the run's scope; return a pause, and report or raise a refusal."""
        try:
            with ExitStack() as runs:
                for person in reversed(state.acts_for) if state.acts_for else (None,):
                    runs.enter_context(scope.run(state.run_id, on_behalf_of=person))
                here = scope.current()
                here.occasions |= state.occasions
                try:
                    return _Observation(text_of(await tool.acall(*args, **arguments)))
                finally:
                    state.occasions = dict(here.occasions)
        except ConfirmationRequired as signal:
            return signal
        except ConfirmationRejected as no:
            return await self._refused(state, tool.store, no)
        except (errors.ArgumentError, SchemaError) as error:
            return _Observation(f"not run: {error}", is_error=True)
        except errors.SaysoError:
            raise  # the call did not run, or its outcome is unknown; the model must not work around that
        except Exception as error:  # raised by the tool's code; the model is told
            if request_id := unknown_request(error):
                raise errors.OutcomeUnknownError(request_id) from error
            return _Observation(f"{type(error).__name__}: {error}", is_error=True)

    async def _refused(self, state: ReActState, store: Store, no: ConfirmationRejected) -> _Observation:
        is_end = isinstance(no, signals.ConfirmationCancelled) or self.on_rejection == "raise"
        if is_end and not isinstance(no, signals.ConfirmationDenied | signals.ConfirmationFeedback):
            for waiting in state.waiting:  # the run will not be resumed
                if waiting.request != no.confirmation_id:
                    await self._take_back(waiting)
            raise no
        if no.confirmation_id is not None:
            # The refusal has been handled; if the model makes the same call again, a person is asked again.
            where = config.store_with(no.confirmation_id) or store
            await verb(where, where.withdraw, no.confirmation_id, scope.requester())
        return _Observation(no.message_for_model, is_error=True)

    async def _take_back(self, waiting: Waiting) -> None:
        """Withdraw another request of the run. An unavailable store delays the refusal only briefly."""
        try:
            store = await self._store(waiting)
            withdraw = partial(store.withdraw, is_brief=True)
            await verb(store, withdraw, waiting.request, scope.requester(), "the run has ended")
        except errors.SaysoError as error:
            _log.warning("%s could not be withdrawn after a rejection: %s", waiting.request, error)

    # -- waiting calls -----------------------------------------------------------------------------------------

    async def _settle(self, state: ReActState) -> None:
        """Finish the calls that waited, in order; raise the first one that still waits."""
        while state.waiting:
            first = state.waiting[0]
            store, request = await self._request(state, first)
            state.learn_request(first.id, request)
            got = await self._look(state, first, store, request)
            if not isinstance(got, _Observation):
                first.request, first.is_asked = got.confirmation_id, True
                raise await self._pause(state, first, got)
            state.waiting.pop(0)
            state.add_result(first.id, first.tool, got.text, is_error=got.is_error)

    async def _look(
        self, state: ReActState, waiting: Waiting, store: Store, request: Request
    ) -> _Observation | ConfirmationRequired:
        if not waiting.is_asked:
            return await self._again(state, waiting, store, request)
        match request.state:
            case State.PENDING:
                return ConfirmationRequired.of(request)
            case State.DONE | State.FAILED:
                return _recorded(request)
            case State.REJECTED | State.FEEDBACK | State.CANCELLED:
                return await self._refused(state, store, signals.refused(request))
            case _:
                got = await self._again(state, waiting, store, request)
        if isinstance(got, ConfirmationRequired) and got.confirmation_id != request.id:
            # It was asked again because it had expired, or because another process resumed from here first.
            after = await verb(store, store.settle, request.id)
            if after.state in {State.DONE, State.FAILED}:
                await verb(store, store.withdraw, got.confirmation_id, scope.requester(), "made elsewhere")
                return _recorded(after)
        return got

    async def _again(
        self, state: ReActState, waiting: Waiting, store: Store, request: Request
    ) -> _Observation | ConfirmationRequired:
        """Make a call that waited, with the arguments from its request."""
        tool, subject = self.tools[waiting.tool], request.subject
        if not self._is_own(waiting, request):  # the handler's position is not stored
            text = "what this call waited for was decided; make the same call again to go on"
            return _Observation(text, is_error=True)
        if not isinstance(subject, Call):
            return await self._call(state, tool, {"question": subject.text})
        args, kwargs = tool.signature.spread(tool.shape.decode(subject.form))
        got = await self._call(state, tool, kwargs, args)
        if isinstance(got, _Observation):
            after = await verb(store, store.get, request.id)
            state.learn_request(waiting.id, after)
            is_failed = after.state is State.FAILED
            got = _recorded(after) if is_failed else _below(after.message_for_model(), *got)
        return got

    async def _pause(self, state: ReActState, waiting: Waiting, signal: ConfirmationRequired) -> ConfirmationRequired:
        """Return the signal with the state to continue from, and with the call as it would now run."""
        store = await self._store(waiting)
        request = await verb(store, store.get, waiting.request)
        state.learn_request(waiting.id, request)
        signal.question = state.scrubbed(signal.question)
        if isinstance(request.subject, Call):
            call = request.effective
            if request.edited is not None and request.prompt is None:
                signal.question = f"Confirm execution of {line(call.name, call.drawn)}?"
            signal.tool_call = ToolCall(waiting.tool, call.arguments, waiting.id)
        signal.context = state.context(request.current_fingerprint)
        signal.__traceback__ = None  # the original traceback is irrelevant
        return signal

    async def _request(self, state: ReActState, waiting: Waiting) -> tuple[Store, Request]:
        store = await self._store(waiting)
        request = await verb(store, store.settle, waiting.request)
        if request.run_id != state.run_id and self._is_own(waiting, request):
            raise errors.ConfigError(f"{request.id} belongs to another run than this pause says; nothing was decided")
        return store, request

    def _is_own(self, waiting: Waiting, request: Request) -> bool:
        """Return whether a request is for the tool's own call, not for a function that its handler called."""
        tool, subject = self.tools[waiting.tool], request.subject
        if not isinstance(subject, Call):
            return waiting.tool == ASK
        return subject.tool in {tool.gate.tool, canonical.function_name(tool.handler)}

    async def _store(self, waiting: Waiting) -> Store:
        """Return the store with the request: the tool's, or that of a function that its handler called."""
        tool = self.tools.get(waiting.tool)
        if tool is None:
            raise errors.ConfigError(f"the tool {waiting.tool!r} of this pause no longer exists; nothing was run")
        own = config.default_store() if waiting.tool == ASK else tool.store
        return await verb(own, _having, own, waiting.request)

    # -- words -------------------------------------------------------------------------------------------------

    def _brief(self) -> str:
        words = [one.words for one in (self.signature.inputs, self.signature.outputs) if one.words]
        takes, gives = self.signature.inputs.names, self.signature.outputs.names
        ask = f"Ask with `{ASK}` only what you cannot find out." if ASK in self.tools else ""
        return "\n".join([
            *words,
            f"You are given {', '.join(takes)}; work out {', '.join(gives)}.",
            "Call tools as you need them and read their results before you decide what comes next.",
            "Some calls wait for a person, who may change or reject them, or send them back with feedback; follow it.",
            *([ask] if ask else []),
            f"When you know enough, call `{FINISH}`.",
        ])  # fmt: skip


def _having(own: Store, request_id: str) -> Store:
    try:
        own.get(request_id)
    except errors.RequestNotFoundError:
        return config.store_with(request_id) or own
    return own


class _Observation(NamedTuple):
    """The outcome of a call, as text."""

    text: str
    is_error: bool = False


def _recorded(request: Request) -> _Observation:
    """Return the outcome of a call that was made before and is not repeated."""
    done, words = request.execution, request.message_for_model()
    if request.state is State.FAILED:
        return _Observation(words, is_error=True)
    if done is not None and done.resolved_by is not None:
        return _Observation(words)
    if done is None or done.result is None:
        return _below(words, "it was run; its result was not kept")
    return _below(words, text_of(result_shown(request)))


def _below(words: str, text: str, is_error: bool = False) -> _Observation:  # noqa: FBT001, FBT002  an observation's parts
    """Return a call's result below a person's comments and changes."""
    return _Observation(f"{words}\n{text}" if words else text, is_error)


def _tool_of(given: Any) -> Tool:
    if isinstance(given, Tool):
        return cast("Tool", given)
    handler = getattr(given, "func", None)
    if callable(handler) and isinstance(getattr(given, "name", None), str):
        description = getattr(given, "desc", None) or getattr(given, "description", None)
        return Tool(handler, name=given.name, description=description)
    if not callable(given):
        raise errors.ConfigError(f"{given!r} is not a tool: give a Tool, a function, or an object with name and func")
    return Tool(given)


async def _ask_to_user(question: str) -> str:
    """Ask the user a question and wait for the answer."""
    return await aask(question, wait="raise")


def _prediction(state: ReActState, answer: dict[str, Any]) -> Prediction:
    return Prediction({"trajectory": state.trajectory, **answer})


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _task(inputs: dict[str, Any]) -> str:
    if len(inputs) == 1 and isinstance(only := next(iter(inputs.values())), str):
        return only
    return "\n".join(f"{name}: {text_of(value)}" for name, value in inputs.items())
