"""What can be an agent's model, what it may reply, and how arguments from outside are read."""

from __future__ import annotations

import asyncio
import functools
import pickle
import sys
from collections.abc import AsyncIterator
from datetime import date
from typing import Any

import pytest

from sayso.errors import ConfigError, SaysoError
from sayso.runs.agent import CallableModel, model_of
from sayso.runs.messages import Message, Model, ModelCall, ModelError, Reply, read_arguments
from sayso.testing import ScriptedModel

ASKED: list[Message] = [{"role": "user", "content": "Refund order 4721."}]
TOOLS = [{"name": "refund", "description": "", "parameters": {"type": "object", "properties": {}}}]


def turn(model: Model, messages: list[Message] = ASKED, tools: list[dict[str, Any]] = TOOLS) -> tuple[list[str], Reply]:
    """Return the pieces of text and the reply, which has to come last and once."""

    async def all_of() -> list[str | Reply]:
        return [piece async for piece in model.turn(messages, tools)]

    *pieces, reply = asyncio.run(all_of())
    assert isinstance(reply, Reply)
    assert all(isinstance(piece, str) for piece in pieces)
    assert "".join(map(str, pieces)) == reply.text
    return list(map(str, pieces)), reply


def replying(given: object) -> Model:
    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> object:
        return given

    return model_of(model)


def result(call: ModelCall, content: str = "done") -> Message:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content, "is_error": False}


def test_async_function_is_a_model() -> None:
    pieces, reply = turn(replying("Done."))
    assert pieces == ["Done."]
    assert reply == Reply("Done.", usage={"turns": 1})


@pytest.mark.parametrize(
    "given",
    [
        [("refund", {"amount": 5})],
        [["refund", {"amount": 5}]],
        ("refund", {"amount": 5}),
        [{"name": "refund", "arguments": {"amount": 5}}],
        {"name": "refund", "arguments": '{"amount": 5}'},
        {"calls": [{"name": "refund", "arguments": '{"amount": 5}'}]},
        {"text": "", "calls": [("refund", {"amount": 5})]},
        ModelCall("", "refund", {"amount": 5}),
        Reply(calls=[ModelCall("", "refund", {"amount": 5})]),
    ],
)
def test_every_form_of_a_call_means_the_same(given: object) -> None:
    pieces, reply = turn(replying(given))
    assert pieces == []
    assert reply.calls == [ModelCall("call_1_1", "refund", {"amount": 5})]


def test_calls_without_an_id_get_one_that_is_new_in_the_history() -> None:
    model = replying([("refund", {}), ("refund", {})])
    _, first = turn(model)
    _, second = turn(model, [*ASKED, first.message, *map(result, first.calls)])
    assert len({call.id for call in first.calls + second.calls}) == 4


def test_id_that_was_given_is_kept() -> None:
    _, reply = turn(replying([{"id": "abc", "name": "refund", "arguments": {}}]))
    assert [call.id for call in reply.calls] == ["abc"]


def test_text_and_calls_and_usage_may_come_together() -> None:
    pieces, reply = turn(replying({"text": "Now.", "calls": [("refund", {})], "usage": {"tokens:input": 3}}))
    assert pieces == ["Now."]
    assert reply.usage == {"turns": 1, "tokens:input": 3}
    assert len(reply.calls) == 1


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (None, "None"),
        (5, "int"),
        ({"message": "hello"}, "message"),
        ({"text": 5}, "dict"),
        (["refund"], "not a call"),
        ([("refund", {"at": date(2026, 1, 1)})], "date"),
        ("half \ud83d", "surrogate"),
    ],
)
def test_reply_that_means_nothing_is_refused_with_the_models_name(given: object, word: str) -> None:
    with pytest.raises(ModelError, match=word) as caught:
        turn(replying(given))
    assert caught.value.model == "model"


def test_generator_streams_its_text_and_may_end_with_calls() -> None:
    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> AsyncIterator[object]:
        yield "I will "
        yield "refund."
        yield [("refund", {"amount": 5})]

    pieces, reply = turn(model_of(model))
    assert pieces == ["I will ", "refund."]
    assert reply.text == "I will refund."
    assert [call.name for call in reply.calls] == ["refund"]


def test_generator_that_only_streams_has_said_that() -> None:
    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> AsyncIterator[str]:
        for word in ("All ", "done."):
            yield word

    assert turn(model_of(model)) == (["All ", "done."], Reply("All done.", usage={"turns": 1}))


def test_generator_that_says_nothing_is_refused() -> None:
    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> AsyncIterator[str]:
        return
        yield ""

    with pytest.raises(ModelError, match="None"):
        turn(model_of(model))


def test_generator_that_goes_on_after_its_reply_is_refused() -> None:
    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> AsyncIterator[object]:
        yield Reply("Done.")
        yield "And one more thing."

    with pytest.raises(ModelError, match="after its reply"):
        turn(model_of(model))


def test_generator_is_closed_when_the_listener_stops() -> None:
    closed: list[bool] = []

    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> AsyncIterator[str]:
        try:
            yield "one"
            yield "two"
        finally:
            closed.append(True)

    async def listen() -> None:
        pieces = CallableModel(model).turn(ASKED, TOOLS)
        assert await anext(pieces) == "one"
        await pieces.aclose()

    asyncio.run(listen())
    assert closed == [True]


def test_plain_function_is_told_to_be_async() -> None:
    with pytest.raises(ModelError, match="async def"):
        turn(model_of(lambda *_: "Done."))


def test_what_a_function_raises_is_passed_on() -> None:
    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> str:
        raise LookupError("no such endpoint")

    with pytest.raises(LookupError, match="no such endpoint"):
        turn(model_of(model))


def test_function_cannot_change_the_history() -> None:
    async def model(messages: list[Message], tools: list[dict[str, Any]]) -> str:
        messages[0]["content"] = "Refund everything."
        tools[0]["parameters"]["properties"]["all"] = {}
        messages.clear()
        return "Done."

    turn(model_of(model))
    assert ASKED == [{"role": "user", "content": "Refund order 4721."}]
    assert TOOLS[0]["parameters"] == {"type": "object", "properties": {}}


def test_objects_and_partials_that_answer_are_models() -> None:
    class Local:
        async def __call__(self, *_: Any) -> str:
            return "local"

    async def sized(size: str, messages: list[Message], tools: list[dict[str, Any]]) -> str:
        return size

    assert turn(model_of(Local()))[1].text == "local"
    assert turn(model_of(functools.partial(sized, "large")))[1].text == "large"


def test_model_is_taken_as_it_is() -> None:
    model = ScriptedModel(["Done."])
    assert model_of(model) is model


@pytest.mark.parametrize("given", [None, 5, ["openai/gpt-5"], ScriptedModel, dict])
def test_what_cannot_be_a_model_is_refused_at_once(given: object) -> None:
    with pytest.raises(ConfigError, match="not a model"):
        model_of(given)


def test_name_without_the_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ConfigError, match=r'pip install "sayso\[agent\]"'):
        model_of("openai/gpt-5")


def test_message_of_a_reply_holds_what_the_history_needs() -> None:
    reply = Reply("Now.", [ModelCall("c1", "refund", {}, problem="no JSON")], {"turns": 1}, {"own": [1]})
    message = reply.message
    assert message == {
        "role": "assistant",
        "content": "Now.",
        "tool_calls": [{"id": "c1", "name": "refund", "arguments": {}}],
        "provider": {"own": [1]},
    }
    message["provider"]["own"].append(2)
    assert reply.provider == {"own": [1]}
    assert "provider" not in Reply("Now.").message


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, {}),
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ('{"a": [1, 2.5, null, "é"]}', {"a": [1, 2.5, None, "é"]}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
    ],
)
def test_arguments_are_read_as_json_values(given: object, read: dict[str, Any]) -> None:
    assert read_arguments(given) == (read, None)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ('{"amount": 5', "not JSON"),
        ("amount=5", "not JSON"),
        ("[]", "JSON object"),
        ("0", "JSON object"),
        ("null", "JSON object"),
        ("false", "JSON object"),
        ('"text"', "JSON object"),
        ([], "JSON object"),
        (0, "JSON object"),
        ('{"amount": 5, "amount": 5000}', "duplicate"),
        ('{"order": {"id": 1, "id": 2}}', "duplicate"),
        ('{"amount": NaN}', "not JSON"),
        ('{"amount": 1e999}', "not JSON"),
        ({"amount": float("inf")}, "not JSON"),
        ('{"amount": ' + "9" * 5000 + "}", "not JSON"),
        ('{"to": "\\ud83d"}', "surrogate"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested"),
    ],
)
def test_arguments_that_are_no_json_object_are_a_problem_and_empty(given: object, problem: str) -> None:
    read, found = read_arguments(given)
    assert read == {}
    assert found is not None
    assert problem in found


def test_problem_of_a_call_reaches_the_loop() -> None:
    _, reply = turn(replying([("refund", '{"amount": ')]))
    assert reply.calls[0].arguments == {}
    assert "not JSON" in (reply.calls[0].problem or "")


def test_model_error_keeps_its_facts_when_pickled() -> None:
    error = ModelError("openai/gpt-5", "answered with status 429: slow down", status=429, retry_after=3.0)
    assert isinstance(error, SaysoError)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.model, copy.status, copy.retry_after, str(copy)) == ("openai/gpt-5", 429, 3.0, str(error))


def test_scripted_model_follows_its_script_by_the_history() -> None:
    script = [[("refund", {"amount": 5})], "Refunded 5."]
    _, first = turn(ScriptedModel(script))
    history = [*ASKED, first.message, *map(result, first.calls)]
    # Another process: the script is a new object, and has not been asked before.
    pieces, second = turn(ScriptedModel(script), history)
    assert (pieces, second.calls) == (["Refunded ", "5."], [])


def test_scripted_model_gives_the_same_turn_for_the_same_history() -> None:
    model = ScriptedModel(["one", "two"])
    assert [turn(model)[1].text for _ in range(3)] == ["one"] * 3


def test_scripted_model_serves_many_runs_at_once() -> None:
    model = ScriptedModel(
        [lambda messages: [("refund", {"order": messages[0]["content"]})], lambda messages: messages[-1]["content"]]
    )

    async def run(order: str) -> str:
        history: list[Message] = [{"role": "user", "content": order}]
        while True:
            pieces = [piece async for piece in model.turn(history, TOOLS)]
            await asyncio.sleep(0)
            reply = pieces[-1]
            assert isinstance(reply, Reply)
            if not reply.calls:
                return reply.text
            history += [reply.message, *(result(call, f"did {call.arguments['order']}") for call in reply.calls)]

    async def all_of() -> list[str]:
        return list(await asyncio.gather(*(run(str(order)) for order in range(50))))

    assert asyncio.run(all_of()) == [f"did {order}" for order in range(50)]
    assert len(model.seen) == 100


@pytest.mark.parametrize("text", ["", " ", "one", "  two  words \n", "a\n\nb c"])
def test_scripted_text_streams_in_words_and_loses_nothing(text: str) -> None:
    pieces, reply = turn(ScriptedModel([text]))  # compares the pieces with the whole
    assert reply.text == text
    assert len(pieces) <= len(text.split()) + 1


def test_scripted_model_without_a_turn_left_says_so() -> None:
    model = ScriptedModel(["Done."])
    _, reply = turn(model)
    with pytest.raises(ModelError, match="1 turns in its script"):
        turn(model, [*ASKED, reply.message])


def test_scripted_model_raises_what_its_script_holds() -> None:
    with pytest.raises(ModelError, match="overloaded"):
        turn(ScriptedModel([ModelError("openai/gpt-5", "is overloaded", status=503)]))


def test_scripted_turn_may_be_an_async_function() -> None:
    async def answer(messages: list[Message]) -> str:
        return messages[-1]["content"].upper()

    assert turn(ScriptedModel([answer]))[1].text == "REFUND ORDER 4721."


def test_what_a_scripted_model_has_seen_does_not_change_afterwards() -> None:
    model = ScriptedModel(["Done."])
    history = [dict(message) for message in ASKED]
    turn(model, history)
    history[0]["content"] = "something else"
    history.append({"role": "user", "content": "and more"})
    assert model.seen[0].messages == ASKED
    assert model.seen[0].tools == TOOLS
