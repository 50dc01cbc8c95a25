"""Bodies of OpenAI-style requests as prompts, and those that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inferencecache.core.gateway import Prompt, Unreadable, read_prompt

Why = Unreadable.Why


def read(path: str, **body: Any) -> Prompt:
    return read_prompt(path, json.dumps({"model": "m", **body}).encode())


def why(path: str, **body: Any) -> Unreadable.Why:
    with pytest.raises(Unreadable) as raised:
        read(path, **body)
    assert raised.value.model == "m"
    return raised.value.why


def completion(**body: Any) -> Prompt:
    return read("/v1/completions", **body)


def chat(*messages: dict[str, Any], **body: Any) -> Prompt:
    return read("/v1/chat/completions", messages=list(messages), **body)


USER = {"role": "user", "content": "hi"}


def test_a_completion_is_its_text_or_its_token_ids() -> None:
    assert completion(prompt="hello") == Prompt("m", text="hello")
    assert completion(prompt=[1, 2, 2**32 - 1]) == Prompt("m", token_ids=[1, 2, 2**32 - 1])


def test_the_first_of_several_prompts_stands_for_all() -> None:
    assert completion(prompt=["a", "b"]).text == "a"
    assert completion(prompt=[[1, 2], [3]]).token_ids == [1, 2]


@pytest.mark.parametrize("prompt", ["", [], [[]], [""], None])
def test_a_completion_without_a_prompt_has_none(prompt: object) -> None:
    assert why("/v1/completions", prompt=prompt) is Why.UNSUPPORTED_CONTENT


@pytest.mark.parametrize("prompt", [[-1], [2**32], [1.5], [True], [1, "a"], {"a": 1}, 7])
def test_what_is_no_prompt_is_unreadable(prompt: object) -> None:
    assert why("/v1/completions", prompt=prompt) is Why.BODY_UNREADABLE


def test_paths_may_have_a_prefix_a_query_and_a_slash_at_the_end() -> None:
    for path in ("/v1/completions?x=1", "/v1/completions/", "/team/v1/completions"):
        assert read(path, prompt="a").text == "a"
    assert why("/v1/embeddings", input="a") is Why.NOT_A_PROMPT


def test_a_chat_is_all_of_its_messages_and_what_its_template_is_told() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    system = {"role": "system", "content": "be brief"}
    read_chat = chat(system, USER, tools=tools, chat_template_kwargs={"enable_thinking": False}).chat
    assert read_chat is not None
    assert read_chat.messages == [system, USER]
    assert read_chat.tools == tools
    assert read_chat.template_arguments == {"enable_thinking": False}
    assert read_chat.add_generation_prompt


def test_tools_that_must_not_be_called_are_not_shown() -> None:
    read_chat = chat(USER, tools=[{"type": "function"}], tool_choice="none").chat
    assert read_chat is not None
    assert read_chat.tools is None


def test_texts_of_one_message_are_joined_by_lines() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    read_chat = chat({"role": "user", "content": parts}).chat
    assert read_chat is not None
    assert read_chat.messages[0]["content"] == "a\nb"


def test_arguments_of_a_call_are_what_their_json_says() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    read_chat = chat(USER, {"role": "assistant", "content": None, "tool_calls": [call]}).chat
    assert read_chat is not None
    said = read_chat.messages[1]
    assert said["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert "content" not in said


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {"messages": [{"role": "user", "content": [{"type": [], "text": "a"}]}]},
        {"messages": []},
        {"messages": [{"content": "no role"}]},
        {"messages": [USER], "cache_salt": "tenant-secret"},
        {"messages": [USER], "chat_template": "{{ own }}"},
        {"messages": [USER], "continue_final_message": True},
        {"messages": [USER], "add_special_tokens": True},
        {"messages": [USER], "mm_processor_kwargs": {}},
    ],
)
def test_a_chat_whose_tokens_are_not_known_here_has_no_prompt(body: dict[str, Any]) -> None:
    assert why("/v1/chat/completions", **body) is Why.UNSUPPORTED_CONTENT


@pytest.mark.parametrize("body", [{"cache_salt": "s"}, {"truncate_prompt_tokens": 5}, {"prompt_embeds": "x"}])
def test_a_completion_whose_tokens_are_not_known_here_has_no_prompt(body: dict[str, Any]) -> None:
    assert why("/v1/completions", prompt="a", **body) is Why.UNSUPPORTED_CONTENT


def test_responses_are_a_chat_of_instructions_and_input() -> None:
    read_chat = read("/v1/responses", instructions="be brief", input="hi").chat
    assert read_chat is not None
    assert read_chat.messages == [{"role": "system", "content": "be brief"}, USER]
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    assert read("/v1/responses", input=[item]).chat == chat(USER).chat


@pytest.mark.parametrize(
    "body",
    [
        {"input": "a", "previous_response_id": "r"},
        {"input": "a", "conversation": "c"},
        {"input": "a", "tools": [{"type": "web_search"}]},
        {"input": [{"type": "function_call_output", "output": "x"}]},
        {"input": []},
    ],
)
def test_responses_that_build_on_what_an_engine_keeps_have_no_prompt(body: dict[str, Any]) -> None:
    assert why("/v1/responses", **body) is Why.UNSUPPORTED_CONTENT


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[]", b'{"model": "\xff"}', b"[" * 100_000, b'{"messages":' * 50_000]
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses"])
def test_bytes_that_are_no_request_are_unreadable(path: str, body: bytes) -> None:
    with pytest.raises(Unreadable) as raised:
        read_prompt(path, body)
    assert raised.value.why is Why.BODY_UNREADABLE
    assert raised.value.model == ""


def test_nothing_of_a_body_is_in_the_error() -> None:
    with pytest.raises(Unreadable) as raised:
        read_prompt("/v1/completions", b'{"prompt": "marker"')
    assert "marker" not in repr(raised.value)
