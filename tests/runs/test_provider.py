"""Models of providers: OpenAI's two protocols against a server on this machine, and pydantic-ai's own models."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, cast

import pytest

from sayso.errors import ConfigError
from sayso.runs.agent import model_of
from sayso.runs.messages import Message, ModelCall, ModelError, Reply
from tests.runs.provider_server import Answer, Provider, serving

pytest.importorskip("pydantic_ai", reason="the extra `agent` is not installed: models of providers are NOT tested")

from pydantic_ai import messages as pai
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.test import TestModel

from sayso.runs.provider import ProviderModel

ASKED: list[Message] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Refund order 4721."},
]
REFUND = {
    "name": "refund",
    "description": "Give money back.",
    "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
}
NAMES = ["openai/gpt-5", "openai:gpt-5", "openai-chat/gpt-5", "openai-chat:gpt-5"]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with serving() as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-dummy")
        yield served


async def pieces_of(model: Any, messages: list[Message]) -> list[str | Reply]:
    return [piece async for piece in model.turn(messages, [REFUND])]


def turn(given: Any, messages: list[Message] = ASKED) -> tuple[list[str], Reply]:
    """Return the pieces of text and the reply, in an event loop of its own."""
    *pieces, reply = asyncio.run(pieces_of(model_of(given), messages))
    assert isinstance(reply, Reply)
    assert "".join(map(str, pieces)) == reply.text
    json.dumps(reply.message, allow_nan=False).encode()  # what a journal keeps
    return list(map(str, pieces)), reply


def heard(name: str) -> tuple[list[str | Reply], ModelError]:
    """Return what came before the model failed, and how it did."""
    got: list[str | Reply] = []

    async def listen() -> None:
        async with aclosing(cast("ProviderModel", model_of(name)).turn(ASKED, [REFUND])) as pieces:
            while True:
                got.append(await anext(pieces))

    with pytest.raises(ModelError) as caught:
        asyncio.run(listen())
    return got, caught.value


def after(reply: Reply, *results: tuple[str, bool]) -> list[Message]:
    """Return the history that goes on after a reply, through JSON as a journal keeps it."""
    told = [
        {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content, "is_error": is_error}
        for call, (content, is_error) in zip(reply.calls, results, strict=True)
    ]
    return json.loads(json.dumps([*ASKED, reply.message, *told]))


@pytest.mark.parametrize("name", NAMES)
def test_text_streams_from_a_provider(provider: Provider, name: str) -> None:
    provider.answers = [Answer("All is well")]
    pieces, reply = turn(name)
    assert pieces == ["All ", "is ", "well "]
    assert reply.calls == []
    assert {"turns": 1, "tokens:input": 11, "tokens:output": 7}.items() <= reply.usage.items()
    assert (provider.asked[0]["model"], provider.asked[0]["stream"]) == ("gpt-5", True)
    assert provider.keys == ["Bearer sk-dummy"]


@pytest.mark.parametrize("name", NAMES)
def test_protocol_is_the_one_that_the_name_says(provider: Provider, name: str) -> None:
    provider.answers = [Answer("Hello")]
    turn(name)
    assert provider.asked[0]["path"] == ("/v1/chat/completions" if "chat" in name else "/v1/responses")


def test_tokens_from_the_cache_are_counted_apart(provider: Provider) -> None:
    provider.answers = [Answer("Hello")]
    assert turn("openai/gpt-5")[1].usage["tokens:cached"] == 4


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai-chat:gpt-5"])
def test_calls_and_their_results_go_back_and_forth(provider: Provider, name: str) -> None:
    provider.answers = [
        Answer("Two refunds.", [("refund", '{"amount": 5}'), ("refund", '{"amount": 6}')]),
        Answer("Refunded"),
    ]
    _, reply = turn(name)
    assert reply.calls == [ModelCall("c0", "refund", {"amount": 5}), ModelCall("c1", "refund", {"amount": 6})]
    _, last = turn(name, after(reply, ("refunded 5", False), ("over the limit", True)))
    assert last.text == "Refunded "
    if "chat" in name:
        (tool,) = (tool["function"] for tool in provider.asked[1]["tools"])
        sent = provider.asked[1]["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "tool"]
        assert [(m["tool_call_id"], m["content"]) for m in sent[3:]] == [
            ("c0", "refunded 5"),
            ("c1", '{"error":"over the limit"}'),
        ]
    else:
        (tool,) = provider.asked[1]["tools"]
        results = [item for item in provider.asked[1]["input"] if item.get("type") == "function_call_output"]
        assert [(item["call_id"], item["output"]) for item in results] == [
            ("c0", "refunded 5"),
            ("c1", '{"error":"over the limit"}'),
        ]
    assert (tool["name"], tool["description"]) == ("refund", "Give money back.")
    assert tool["parameters"]["properties"] == {"amount": {"type": "number"}}


def test_providers_own_message_comes_back_unchanged(provider: Provider) -> None:
    provider.answers = [Answer("Now.", [("refund", '{"amount": 5}')], thinking="signed-and-sealed"), Answer("Done")]
    _, reply = turn("openai/gpt-5")
    turn("openai/gpt-5", after(reply, ("refunded 5", False)))
    sent = provider.asked[1]["input"]
    (thought,) = [item for item in sent if item.get("type") == "reasoning"]
    assert (thought["id"], thought["encrypted_content"]) == ("rs_1", "signed-and-sealed")
    (call,) = [item for item in sent if item.get("type") == "function_call"]
    assert (call["id"], call["call_id"], json.loads(call["arguments"])) == ("fc_0", "c0", {"amount": 5})
    assert sent.index(thought) < sent.index(call)


@pytest.mark.parametrize("own", [None, {}, {"pydantic_ai": {"kind": "of another version"}}, {"other": "adapter"}])
def test_message_that_is_not_the_providers_own_is_sent_from_its_fields(provider: Provider, own: Any) -> None:
    provider.answers = [Answer("Done")]
    reply = Reply("Now.", [ModelCall("c9", "refund", {"amount": 5})], provider=own)
    turn("openai-chat/gpt-5", after(reply, ("refunded 5", False)))
    message = provider.asked[0]["messages"][2]
    assert message["content"] == "Now."
    (call,) = message["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c9", "refund")
    assert json.loads(call["function"]["arguments"]) == {"amount": 5}


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai-chat:gpt-5"])
def test_arguments_that_are_no_json_are_a_problem_that_the_model_can_mend(provider: Provider, name: str) -> None:
    provider.answers = [Answer("", [("refund", '{"amount": '), ("refund", "[5]")]), Answer("Sorry")]
    _, reply = turn(name)
    assert [call.arguments for call in reply.calls] == [{}, {}]
    assert [bool(call.problem) for call in reply.calls] == [True, True]
    told = [(call.problem or "", True) for call in reply.calls]
    assert turn(name, after(reply, *told))[1].text == "Sorry "
    assert "not JSON" in json.dumps(provider.asked[1])


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai-chat:gpt-5"])
@pytest.mark.parametrize(("status", "said"), [(401, "the key was not accepted"), (429, "as told"), (500, "as told")])
def test_refusal_of_a_provider_says_its_status_and_words(
    provider: Provider, name: str, status: int, said: str
) -> None:  # fmt: skip
    provider.answers = [Answer(status=status, headers={"retry-after": "3"})]
    with pytest.raises(ModelError, match=f"{name} answered with status {status}: {said}") as caught:
        turn(name)
    assert caught.value.status == status
    assert caught.value.retry_after == 3.0


def test_key_that_a_provider_quotes_is_not_in_the_error(provider: Provider) -> None:
    provider.answers = [Answer(status=401, body={"error": {"message": "wrong key sk-dummy", "type": "t"}})]
    with pytest.raises(ModelError) as caught:
        turn("openai/gpt-5")
    assert "sk-dummy" not in str(caught.value)


def test_nobody_at_the_address_is_a_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as gone:
        url = gone.url
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-dummy")
    with pytest.raises(ModelError, match="openai/gpt-5 gave no usable reply"):
        turn("openai/gpt-5")


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai-chat:gpt-5"])
@pytest.mark.parametrize("breaks", ["reset", "end"])
def test_reply_that_breaks_off_in_mid_stream_yields_no_call(provider: Provider, name: str, breaks: str) -> None:
    # The first call has arrived whole when the stream ends.
    calls = [("refund", '{"amount": 5}'), *[("refund", '{"amount": 6}')] * 3]
    provider.answers = [Answer("One two", calls, breaks=breaks)]
    got, error = heard(name)
    assert got == ["One ", "two "]
    assert "nothing of this turn was run" in str(error)


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai-chat:gpt-5"])
def test_empty_reply_of_a_filter_is_an_error_and_no_answer(provider: Provider, name: str) -> None:
    provider.answers = [Answer("", finish="content_filter")]
    with pytest.raises(ModelError, match="content_filter"):
        turn(name)


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai-chat:gpt-5"])
def test_half_a_surrogate_pair_is_neither_shown_nor_kept(provider: Provider, name: str) -> None:
    provider.answers = [Answer("half \ud83d pair")]
    got, error = heard(name)
    assert got == ["half ", "? ", "pair "]
    assert "surrogates" in str(error)


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai-chat:gpt-5"])
def test_model_that_may_not_be_streamed_is_asked_once_more_without(provider: Provider, name: str) -> None:
    refused = {"error": {"message": "verify first", "param": "stream", "code": "unsupported_value"}}
    provider.answers = [
        Answer(status=400, body=refused), Answer("Hello", [("refund", '{"amount": 5}')]), Answer("Again"),
    ]  # fmt: skip
    model = model_of(name)
    pieces, reply = turn(model)
    assert pieces == ["Hello"]
    assert reply.calls == [ModelCall("c0", "refund", {"amount": 5})]
    assert turn(model)[0] == ["Again"]
    assert [bool(asked.get("stream")) for asked in provider.asked] == [True, False, False]


def test_other_bad_requests_are_not_sent_twice(provider: Provider) -> None:
    provider.answers = [Answer(status=400, body={"error": {"message": "bad tool", "param": "tools"}})]
    with pytest.raises(ModelError, match="status 400: bad tool"):
        turn("openai/gpt-5")
    assert len(provider.asked) == 1


def test_one_model_serves_one_event_loop_after_another(provider: Provider) -> None:
    provider.answers = [Answer("One"), Answer("Two"), Answer("Three")]
    model = model_of("openai/gpt-5")
    assert [turn(model)[1].text for _ in range(3)] == ["One ", "Two ", "Three "]


def test_one_model_serves_many_threads_and_tasks_at_once(provider: Provider) -> None:
    provider.answers = [Answer("Hello") for _ in range(20)]
    model = model_of("openai/gpt-5")
    texts: list[str] = []

    async def several() -> None:
        for pieces in await asyncio.gather(*(pieces_of(model, ASKED) for _ in range(5))):
            reply = pieces[-1]
            assert isinstance(reply, Reply)
            texts.append(reply.text)

    threads = [threading.Thread(target=asyncio.run, args=(several(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["Hello "] * 20


def test_threads_do_not_share_connections(provider: Provider) -> None:
    provider.answers = [Answer("Stays open"), Answer("Leaves an idle connection"), Answer("Other thread")]
    model = cast("ProviderModel", model_of("openai/gpt-5"))

    async def main() -> list[str | Reply]:
        async with aclosing(model.turn(ASKED, [REFUND])) as held:
            await anext(held)
            await pieces_of(model, ASKED)
            # Another thread with a loop of its own: it must not be given the connection that is idle in this one.
            return await asyncio.to_thread(asyncio.run, asyncio.wait_for(pieces_of(model, ASKED), 30))

    assert asyncio.run(main())[:-1] == ["Other ", "thread "]


def test_no_connection_is_left_open_after_a_turn(provider: Provider) -> None:
    provider.answers = [Answer("One two three four"), Answer("Five")]
    closed = provider.closed

    async def listen() -> None:
        model = model_of("openai/gpt-5")
        pieces = model.turn(ASKED, [REFUND])
        assert await anext(pieces) == "One "  # and the listener leaves in mid-stream
        await pieces.aclose()
        assert await asyncio.to_thread(closed.acquire, timeout=30)
        await pieces_of(model, ASKED)
        assert await asyncio.to_thread(closed.acquire, timeout=30)

    asyncio.run(listen())


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("gpt-5", "names no provider"),
        ("openai:", "names no provider"),
        ("/gpt-5", "names no provider"),
        ("", "names no provider"),
        ("no-such-provider/gpt-5", "unknown provider"),
        ("no-such-provider:gpt-5", "unknown provider"),
    ],
)
def test_name_that_nobody_knows_is_refused_at_once(name: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        model_of(name)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("openai/gpt-5", "openai:gpt-5"),
        ("openai:gpt-5", "openai:gpt-5"),
        ("openrouter/anthropic/claude-opus", "openrouter:anthropic/claude-opus"),
        ("openrouter:anthropic/claude-opus", "openrouter:anthropic/claude-opus"),
        ("openrouter/meta/llama:free", "openrouter:meta/llama:free"),
        ("gateway/openai:gpt-5", "gateway/openai:gpt-5"),
        ("gateway/openai/gpt-5", "gateway/openai:gpt-5"),
        ("test", "test"),
    ],
)
def test_slash_after_the_provider_means_a_colon(name: str, written: str) -> None:
    assert ProviderModel(name)._given == written


def test_missing_key_is_told_at_the_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    model = model_of("openai/gpt-5")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        turn(model)


def thinks_and_refunds(messages: list[pai.ModelMessage], info: AgentInfo) -> pai.ModelResponse:
    if len(messages) > 1:
        (result,) = messages[-1].parts
        assert isinstance(result, pai.ToolReturnPart)
        return pai.ModelResponse(parts=[pai.TextPart(f"It says {result.content}.")])
    (tool,) = info.function_tools
    return pai.ModelResponse(
        parts=[
            pai.ThinkingPart("hmm", signature="s"),
            pai.TextPart("First"),
            pai.ThinkingPart("and"),
            pai.TextPart("second."),
            pai.ToolCallPart(tool.name, {"amount": 5}, tool_call_id="c1"),
        ]
    )


@pytest.mark.parametrize("wrapped", [False, True])
def test_function_model_that_cannot_stream_is_asked_once(wrapped: bool) -> None:
    model: Any = FunctionModel(thinks_and_refunds)
    if wrapped:
        model = InstrumentedModel(model)
    pieces, reply = turn(model)
    assert pieces == ["First\n\nsecond."]
    assert reply.calls == [ModelCall("c1", "refund", {"amount": 5})]
    _, last = turn(model, after(reply, ("refunded 5", False)))
    assert last.text == "It says refunded 5."


def test_function_model_streams_text_thoughts_and_calls() -> None:
    async def stream(messages: list[pai.ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        yield "First "
        yield "this."
        yield {1: DeltaThinkingPart(content="hmm")}
        yield {2: DeltaToolCall(name="refund", json_args='{"amou', tool_call_id="c1")}
        yield {2: DeltaToolCall(json_args='nt": 5}')}

    pieces, reply = turn(FunctionModel(stream_function=stream))
    assert pieces == ["First ", "this."]
    assert reply.calls == [ModelCall("c1", "refund", {"amount": 5})]


def test_gap_between_two_texts_streams_too() -> None:
    async def stream(messages: list[pai.ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        yield "Let me see."
        yield {1: DeltaToolCall(name="refund", json_args="{}", tool_call_id="c1")}
        yield {2: DeltaThinkingPart(content="hmm")}
        yield "So be it."

    pieces, reply = turn(FunctionModel(stream_function=stream))  # compares the pieces with the whole
    assert pieces[0] == "Let me see."
    assert "So be it." in reply.text


def test_what_a_function_models_own_function_raises_is_passed_on() -> None:
    def broken(messages: list[pai.ModelMessage], info: AgentInfo) -> pai.ModelResponse:
        raise LookupError("no such fixture")

    with pytest.raises(LookupError, match="no such fixture"):
        turn(FunctionModel(broken))


@pytest.mark.parametrize("state", ["suspended", "incomplete", "interrupted"])
def test_response_that_is_not_complete_is_no_reply(state: Any) -> None:
    def pauses(messages: list[pai.ModelMessage], info: AgentInfo) -> pai.ModelResponse:
        return pai.ModelResponse(parts=[pai.ToolCallPart("refund", {"amount": 5})], state=state)

    with pytest.raises(ModelError, match=state):
        turn(FunctionModel(pauses))


def test_test_model_calls_the_tools_and_ends() -> None:
    model = TestModel()
    _, reply = turn(model)
    assert [call.name for call in reply.calls] == ["refund"]
    _, last = turn(model, after(reply, ("refunded", False)))
    assert last.calls == []
    assert last.text


def test_test_model_is_known_by_its_name() -> None:
    assert turn("test")[1].calls
