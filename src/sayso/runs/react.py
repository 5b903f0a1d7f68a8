"""`ReAct`: a model that reasons and calls tools in turns until it can give typed answers, and pauses for a person.

A gated call raises `ConfirmationRequired`, whose context is the run's state (`ReActState`) as plain JSON, sufficient to
continue in any process. In memory, messages are exactly what the model saw; in the context, every secret is masked. The
context contains nothing that could run: a waiting call is identified by its request and made with the store's
arguments, and a call that has ended is not repeated, whatever a saved context says.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from sayso import config, errors
from sayso.confirmation import ConfirmationRejected, ConfirmationRequired, ToolCall
from sayso.effects import offload
from sayso.gates import exceptions, scope
from sayso.gates.ambiguous import unknown_request
from sayso.gates.ask import aask
from sayso.gates.hooks import secrets_of
from sayso.model import canonical, redaction
from sayso.model.ids import new_run_id
from sayso.model.request import Call, Request, State, not_run, secrets_in
from sayso.model.reviewer import Identity
from sayso.model.schema import SchemaError
from sayso.runs import module
from sayso.runs.agent import Tool, model_of, tools_by_name
from sayso.runs.definition import masked
from sayso.runs.engine import MAY_FAIL
from sayso.runs.events import DeltaEvent, plain
from sayso.runs.messages import Message, ModelCall, Reply, reply_to, text_of
from sayso.runs.module import Module, Prediction, Response, Signature
from sayso.runs.state import call_store, result_shown
from sayso.stores.base import Store

_log = logging.getLogger("sayso")
FINISH, ASK = "finish", "ask_to_user"
_BY_NAME = redaction.Redaction()


class NoAnswerError(errors.SaysoError):
    """The model used up its turns without a valid answer.

    Attributes:
        turns: The number of turns.
        trajectory: Its thoughts, calls and observations, with secrets masked.
    """

    def __init__(self, turns: int, trajectory: dict[str, Any]) -> None:
        super().__init__(f"the model gave no answer in {turns} turns; what was run stays done (see .trajectory)")
        self.turns, self.trajectory = turns, trajectory


@dataclass
class Waiting:
    """A call of the model's last turn that has no result yet.

    Attributes:
        id: The provider's id of the call.
        tool: The name of the tool.
        request: The id of the request that holds it.
        is_asked: False if that request belongs to an equal call of the same turn, and this one is asked afterwards.
    """

    id: str
    tool: str
    request: str
    is_asked: bool = True


@dataclass
class ReActState:
    """The state of a run.

    Attributes:
        run_id: The run to which its decisions belong.
        inputs: The inputs of the call, as JSON values.
        messages: The conversation with the model.
        waiting: The calls that wait for a person, in the order of the calls.
        occasions: By digest: how often an equal question was answered (see `sayso.gates.scope`).
        acts_for: The people for whom the run acts.
    """

    run_id: str
    inputs: dict[str, Any]
    messages: list[Message]
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    occasions: dict[str, int] = field(default_factory=dict[str, int])
    acts_for: tuple[Identity, ...] = ()
    _secrets: set[str] = field(default_factory=set[str], repr=False)
    _shown: dict[tuple[int, str], dict[str, Any]] = field(
        default_factory=dict[tuple[int, str], dict[str, Any]], repr=False
    )

    def __post_init__(self) -> None:
        self._secrets |= _secrets_in(self.inputs)

    @property
    def turns(self) -> int:
        """The number of turns of the model."""
        return sum(message["role"] == "assistant" for message in self.messages)

    def add_reply(self, reply: Reply) -> list[ModelCall]:
        """Add a turn of the model; return its calls, each with a unique id."""
        message, calls, ids = reply.message, reply.calls, {call.id for call in reply.calls}
        # The ids are not unique, so replace them; the provider's own form, which has them, is then useless.
        if "" in ids or len(ids) < len(calls):
            named = [(f"call_{self.turns + 1}_{n}", call) for n, call in enumerate(calls, 1)]
            calls = [ModelCall(label, call.name, call.arguments, call.problem) for label, call in named]
            message = Reply(reply.text, calls, reply.usage).message
        self.messages.append(message)
        return calls

    def add_result(self, call_id: str, name: str, text: str, *, is_error: bool = False) -> None:
        """Add the result of a call of the last turn; results are in the order of the calls."""
        result = {"role": "tool", "tool_call_id": call_id, "name": name, "content": text, "is_error": is_error}
        self.messages.append(result)
        last = max(n for n, message in enumerate(self.messages) if message["role"] == "assistant")
        order = [call["id"] for call in self.messages[last]["tool_calls"]]
        self.messages[last + 1 :] = sorted(self.messages[last + 1 :], key=lambda one: order.index(one["tool_call_id"]))

    def learn_call(self, tool: Tool, call: ModelCall) -> None:
        """Record the secrets of a call of the last turn, according to the tool's options."""
        shown = tool.shown(call.arguments)
        self._shown[self.turns, call.id] = shown
        self._secrets |= _secrets_in(call.arguments, tool, shown)

    def learn_request(self, call_id: str, request: Request) -> None:
        """Record the secrets of a request's call, and how the call is shown."""
        if isinstance(request.subject, Call):
            self._shown[self.turns, call_id] = request.subject.arguments
            self._secrets |= secrets_in(request)

    def scrubbed(self, text: str) -> str:
        """Mask the secrets of this run's calls in a text."""
        return redaction.scrub(text, self._secrets) if self._secrets else text

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                return self.scrubbed(value)
            case list():
                return [self._clean(one) for one in cast("list[Any]", value)]
            case dict():
                return {name: self._clean(one) for name, one in cast("dict[str, Any]", value).items()}
            case _:
                return value

    def context(self) -> dict[str, Any]:
        """Return the content of a pause, which is sufficient to continue in another process and has no secrets."""
        inputs, messages = self._clean(masked(self.inputs, _BY_NAME)), self._messages()
        pending: dict[str, Any] | None = None
        if self.waiting:
            first = self.waiting[0]
            calls = next(message["tool_calls"] for message in reversed(messages) if message["role"] == "assistant")
            call = next((one for one in calls if one["id"] == first.id), None)
            pending = {"name": first.tool, "args": {} if call is None else call["arguments"], "id": first.id}
        return {
            "run_id": self.run_id,
            "iteration": self.turns - 1,
            "input_args": inputs,
            "trajectory": self.trajectory,
            "pending_tool_call": pending,
            "messages": messages,
            "waiting": [asdict(one) for one in self.waiting],
            "occasions": dict(self.occasions),
            **({"original_question": inputs["question"]} if "question" in inputs else {}),
        }

    @property
    def trajectory(self) -> dict[str, Any]:
        """The thoughts, calls and observations: `thought_0`, `tool_calls_0`, `observation_0`, and so on."""
        found: dict[str, Any] = {}
        turn = -1
        for message in self._messages():
            if message["role"] == "assistant":
                turn += 1
                found[f"thought_{turn}"] = message["content"]
                found[f"tool_calls_{turn}"] = [
                    {"id": call["id"], "name": call["name"], "args": call["arguments"]}
                    for call in message["tool_calls"]
                ]
            elif message["role"] == "tool":
                before = found.get(f"observation_{turn}")
                text = message["content"]
                found[f"observation_{turn}"] = text if before is None else f"{before}\n{text}"
        return found

    def _messages(self) -> list[Message]:
        turn, found = 0, list[Message]()
        for message in self.messages:
            if message["role"] != "assistant":
                found.append(self._clean(message))
                continue
            turn += 1
            shown = [
                {**call, "arguments": self._shown.get((turn, call["id"]), masked(call["arguments"], _BY_NAME))}
                for call in message["tool_calls"]
            ]
            clean = self._clean({**message, "tool_calls": shown})
            if clean != message:  # the provider's own form must be returned unchanged, so it cannot be masked
                clean.pop("provider", None)
            found.append(clean)
        return found

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> ReActState:
        """Restore the state from a `context`.

        Raises:
            ConfigError: It is not a valid context.
        """
        try:
            waiting = [
                Waiting(*(str(one[name]) for name in ("id", "tool", "request")), is_asked=bool(one["is_asked"]))
                for one in context["waiting"]
            ]
            occasions = {str(name): int(count) for name, count in context["occasions"].items()}
            messages = cast("list[Message]", json.loads(json.dumps(context["messages"])))
            state = cls(str(context["run_id"]), dict(context["input_args"]), messages, waiting, occasions)
            is_whole = bool(waiting) and state.turns > 0
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise errors.ConfigError(f"this pause has no state of ReAct ({type(error).__name__}: {error})") from None
        if not is_whole:
            raise errors.ConfigError("this pause has a state of ReAct in which no call waits")
        return state


def _secrets_in(
    arguments: Mapping[str, Any], tool: Tool | None = None, shown: Mapping[str, Any] | None = None
) -> frozenset[str]:
    try:
        text = canonical.encode(dict(arguments)).text
    except errors.ArgumentError:
        return frozenset()
    if tool is None:
        return _BY_NAME.secrets(canonical.load(text))
    return secrets_of(tool.gate, text, json.dumps(shown, ensure_ascii=False, default=str))


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

    @exceptions.trimmed
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
        shown = plain(given)
        run_id = f"react{new_run_id().removeprefix('run')}"
        task = "\n".join(f"{name}: {text_of(value)}" for name, value in shown.items())
        if len(shown) == 1 and isinstance(only := next(iter(shown.values())), str):
            task = only
        messages = [{"role": "system", "content": self._brief()}, {"role": "user", "content": task}]
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
        signal, response = module.read_resume_state(saved, user_response)
        if not isinstance(signal, ConfirmationRequired):
            raise errors.ConfigError(
                f"cannot resume from {type(signal).__name__}: pass a ConfirmationRequired or its to_dict()"
            )
        state = ReActState.from_context(signal.context)
        store, request = await self._request(state, state.waiting[0])
        state.acts_for = request.acts_for
        if request.state is State.PENDING and response is not None:
            module.check_shown(signal, request)
            await call_store(store, partial(module.record, seen=signal.fingerprint), store, request, response)
        return await self._go_on(state)

    # -- the loop ----------------------------------------------------------------------------------------------

    async def _go_on(self, state: ReActState) -> Prediction:
        offered = [tool.offer for tool in self.tools.values()]
        answer: dict[str, Any] | None = None
        await self._settle(state)
        while answer is None and state.turns < self.max_iters:
            answer = await self._turn(state, [*offered, self._finish])
            await self._settle(state)
        if answer is None:
            text = "No turn is left. Call `finish` now, with what you know."
            state.messages.append({"role": "user", "content": text})
            answer = await self._turn(state, [self._finish])
        if answer is None:
            raise NoAnswerError(state.turns, state.trajectory)
        return Prediction({"trajectory": state.trajectory, **answer})

    async def _turn(self, state: ReActState, offered: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Ask the model once and make its calls; return its answer, if it gave one."""
        reply = await reply_to(
            self.model, type(self.model).__name__, state.messages, offered,
            lambda text: module.emit_delta(DeltaEvent(run_id=state.run_id, path=type(self).__name__, text=text)),
        )  # fmt: skip
        calls = state.add_reply(reply)
        names = {one["name"] for one in offered}
        for call in calls:
            if call.name != FINISH:
                await self._attempt(state, call, names)
        first: dict[str, Any] | None = None
        for call in calls:
            if call.name != FINISH:
                continue
            answer, problem = None, call.problem
            if state.waiting:
                problem = "not accepted: calls of the same turn had no result yet."
                problem += " Call `finish` when you have seen the results"
            elif problem is None:
                try:
                    answer = self.signature.outputs.validate(call.arguments)
                except SchemaError as error:
                    problem = f"the answer does not fit: {error}"
            state.add_result(call.id, FINISH, "done" if problem is None else problem, is_error=problem is not None)
            first = answer if first is None else first
        if calls:
            return first
        only = self.signature.outputs.single_text
        if only is not None and reply.text.strip():  # a plain text is the answer if the only output is a text
            with suppress(SchemaError):  # e.g. the text is too long, which `finish` will report
                return self.signature.outputs.validate({only: reply.text})
        state.messages.append({"role": "user", "content": "Call a tool, or call `finish` with the answer."})
        return None

    # -- calls -------------------------------------------------------------------------------------------------

    async def _attempt(self, state: ReActState, call: ModelCall, offered: set[str]) -> None:
        tool, problem = self.tools.get(call.name) if call.name in offered else None, call.problem
        if tool is None:
            problem = f"there is no tool {call.name!r}; there are {', '.join(sorted(offered))}"
        if tool is None or problem is not None:
            state.add_result(call.id, call.name, f"not run: {problem}", is_error=True)
            return
        state.learn_call(tool, call)
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
        except errors.EffectTakenError as taken:
            if taken.state in MAY_FAIL:
                raise
            where = await offload(partial(config.store_with, taken.request_id)) or tool.store
            gone = await call_store(where, where.withdraw, taken.request_id, config.requester(), taken.reason)
            return _Observation(not_run(gone.call.name, taken.reason), is_error=True)  # maybe of a call in the tool
        except errors.SaysoError:
            raise  # the call did not run, or its outcome is unknown; the model must not work around that
        except Exception as error:  # raised by the tool's code; the model is told
            if request_id := unknown_request(error):
                raise errors.OutcomeUnknownError(request_id) from error
            return _Observation(f"{type(error).__name__}: {error}", is_error=True)

    async def _refused(self, state: ReActState, store: Store, no: ConfirmationRejected) -> _Observation:
        is_end = isinstance(no, exceptions.ConfirmationCancelled) or self.on_rejection == "raise"
        if is_end and not isinstance(no, exceptions.ConfirmationDenied | exceptions.ConfirmationFeedback):
            for waiting in state.waiting:  # the run will not be resumed, so nothing waits for them
                if waiting.request == no.confirmation_id:
                    continue
                try:
                    where, _ = await self._request(state, waiting)
                    withdraw = partial(where.withdraw, is_brief=True)  # an unavailable store delays a no only briefly
                    await call_store(where, withdraw, waiting.request, config.requester(), "the run has ended")
                except errors.SaysoError as error:
                    _log.warning("%s could not be withdrawn after a rejection: %s", waiting.request, error)
            raise no
        if no.confirmation_id is not None:
            # The refusal has been handled; if the model makes the same call again, a person is asked again.
            where = await offload(partial(config.store_with, no.confirmation_id)) or store
            await call_store(where, where.withdraw, no.confirmation_id, config.requester())
        return _Observation(no.message_for_model, is_error=True)

    # -- waiting calls -----------------------------------------------------------------------------------------

    async def _settle(self, state: ReActState) -> None:
        """Finish the calls that waited, in order; raise the first one that still waits."""
        while state.waiting:
            first = state.waiting[0]
            store, request = await self._request(state, first)
            state.learn_request(first.id, request)
            match request.state:
                case State.PENDING if first.is_asked:
                    got = ConfirmationRequired.of(request)
                case State.DONE | State.FAILED if first.is_asked:
                    got = _recorded(request)
                case State.REJECTED | State.FEEDBACK | State.CANCELLED if first.is_asked:
                    got = await self._refused(state, store, exceptions.refused(request))
                case _:
                    got = await self._again(state, first, store, request)
            if first.is_asked and isinstance(got, ConfirmationRequired) and got.confirmation_id != request.id:
                # It was asked again because it had expired, or because another process resumed from here first.
                after = await call_store(store, store.settle, request.id)
                if after.state in {State.DONE, State.FAILED}:
                    await call_store(store, store.withdraw, got.confirmation_id, config.requester(), "made elsewhere")
                    got = _recorded(after)
            if isinstance(got, ConfirmationRequired):
                first.request, first.is_asked = got.confirmation_id, True
                raise await self._pause(state, first)
            state.waiting.pop(0)
            state.add_result(first.id, first.tool, got.text, is_error=got.is_error)

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
            after = await call_store(store, store.get, request.id)
            state.learn_request(waiting.id, after)
            if after.state is not State.CANCELLED:  # which was not run, as the observation says
                got = _recorded(after) if after.state is State.FAILED else got.below(after.message_for_model())
        return got

    async def _pause(self, state: ReActState, waiting: Waiting) -> ConfirmationRequired:
        """Return the signal with the state to continue from, and with the call as it would now run."""
        _, request = await self._request(state, waiting)
        state.learn_request(waiting.id, request)
        signal = ConfirmationRequired.of(request)
        signal.question = state.scrubbed(signal.question)
        if isinstance(request.subject, Call):
            signal.tool_call = ToolCall(waiting.tool, request.effective.arguments, waiting.id)
        signal.context = state.context()
        return signal

    async def _request(self, state: ReActState, waiting: Waiting) -> tuple[Store, Request]:
        """Return a call's request and its store: the tool's, or that of a function that the tool's handler called."""
        tool = self.tools.get(waiting.tool)
        if tool is None:
            raise errors.ConfigError(f"the tool {waiting.tool!r} of this pause no longer exists; nothing was run")
        store = config.default_store() if waiting.tool == ASK else tool.store
        try:
            request = await call_store(store, store.settle, waiting.request)
        except errors.RequestNotFoundError:
            store = await offload(partial(config.store_with, waiting.request)) or store  # one of them may block
            request = await call_store(store, store.settle, waiting.request)
        if request.run_id != state.run_id and self._is_own(waiting, request):
            raise errors.ConfigError(f"{request.id} belongs to another run than this pause says; nothing was decided")
        return store, request

    def _is_own(self, waiting: Waiting, request: Request) -> bool:
        """Return whether a request is for the tool's own call, not for a function that its handler called."""
        tool, subject = self.tools[waiting.tool], request.subject
        if not isinstance(subject, Call):
            return waiting.tool == ASK
        return subject.tool in {tool.gate.tool, canonical.function_name(tool.handler)}

    # -- words -------------------------------------------------------------------------------------------------

    def _brief(self) -> str:
        takes, gives = self.signature.inputs, self.signature.outputs
        return "\n".join([
            *(side.words for side in (takes, gives) if side.words),
            f"You are given {', '.join(takes.names)}; work out {', '.join(gives.names)}.",
            "Call tools as you need them and read their results before you decide what comes next.",
            "Some calls wait for a person, who may change or reject them, or send them back with feedback; follow it.",
            *([f"Ask with `{ASK}` only what you cannot find out."] if ASK in self.tools else []),
            f"When you know enough, call `{FINISH}`.",
        ])  # fmt: skip


class _Observation(NamedTuple):
    """The outcome of a call, as text."""

    text: str
    is_error: bool = False

    def below(self, words: str) -> _Observation:
        """Return it below a person's comments and changes."""
        return self._replace(text=f"{words}\n{self.text}") if words else self


def _recorded(request: Request) -> _Observation:
    """Return the outcome of a call that was made before and is not repeated."""
    done, words = request.execution, request.message_for_model()
    if request.state is State.FAILED:
        return _Observation(words, is_error=True)
    if done is not None and done.resolved_by is not None:
        return _Observation(words)
    if done is None or done.result is None:
        return _Observation("it was run; its result was not kept").below(words)
    return _Observation(text_of(result_shown(request))).below(words)


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
