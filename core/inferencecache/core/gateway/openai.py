"""Reading OpenAI-style requests: the prompt of a body, or why there is none to look up.

What an engine would put before the model has to be known to the token. So whatever this cannot follow
exactly (images, a salt, a template of the request's own, an earlier answer kept by the engine) is told
as unreadable: such a request is served like any other and gets no hint. Nothing of a body is in an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from inferencecache.schemas.unreadable import UNREADABLE

COMPLETIONS: Final = "/v1/completions"
CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Message = Mapping[str, Any]
_TEXT_PARTS: Final = ("text", "input_text", "output_text")
"""No set: what a client calls a type may have no hash."""
_JOINT: Final = "\n"
"""Between the texts of one message, as engines join them for templates that know only texts."""


class Unreadable(Exception):  # noqa: N818 - an answer of reading, not a failure of it
    """There is no prompt to look up; `why` is the reason for people."""

    class Why(Enum):
        """The reasons a request can be without a prompt."""

        NOT_A_PROMPT = "NOT_A_PROMPT"
        BODY_UNREADABLE = "BODY_UNREADABLE"
        UNSUPPORTED_CONTENT = "UNSUPPORTED_CONTENT"

    def __init__(self, why: Why, model: str = "") -> None:
        super().__init__(why.value)
        self.why = why
        self.model = model


class Chat(NamedTuple):
    """Messages as a chat template sees them, and what else the request tells it."""

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    template_arguments: Mapping[str, Any] = {}


class Prompt(NamedTuple):
    """A request's prompt in the one form that it has: token ids, text as it is, or a chat."""

    model: str
    token_ids: Sequence[int] = ()
    text: str = ""
    chat: Chat | None = None


class _Salted(msgspec.Struct):
    """What makes blocks of equal tokens differ."""

    model: str = ""
    cache_salt: str | None = None


class _Completion(_Salted):
    prompt: str | list[Any] | None = None
    prompt_embeds: Any = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool = True


class _Chat(_Salted):
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    truncate_prompt_tokens: int | None = None
    mm_processor_kwargs: Any = None


class _Responses(_Salted):
    input: str | list[dict[str, Any]] = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    tools: list[dict[str, Any]] | None = None
    truncation: str | None = None


class _Model(msgspec.Struct):
    model: str = ""


_completion: Final = msgspec.json.Decoder(_Completion)
_chat: Final = msgspec.json.Decoder(_Chat)
_responses: Final = msgspec.json.Decoder(_Responses)
_model: Final = msgspec.json.Decoder(_Model)


def read_prompt(path: str, body: bytes) -> Prompt:
    """The prompt of a request to `path`, which may have a query. Raises `Unreadable`."""
    route = path.partition("?")[0].rstrip("/")
    try:
        if route.endswith(CHAT):
            return _of_chat(_chat.decode(body))
        if route.endswith(COMPLETIONS):
            return _of_completion(_completion.decode(body))
        if route.endswith(RESPONSES):
            return _of_responses(_responses.decode(body))
    except UNREADABLE:
        raise Unreadable(Unreadable.Why.BODY_UNREADABLE, _model_of(body)) from None
    raise Unreadable(Unreadable.Why.NOT_A_PROMPT, _model_of(body))


def _model_of(body: bytes) -> str:
    """The model that a body names, whatever else is in it; empty when it names none."""
    try:
        return _model.decode(body).model
    except UNREADABLE:
        return ""


def _of_completion(asked: _Completion) -> Prompt:
    given = asked.prompt
    if asked.prompt_embeds is not None or not given or asked.truncate_prompt_tokens is not None:
        raise _unsupported(asked)
    _check_salt(asked)
    # Several prompts go to one engine all the same: the first one stands for them.
    first: Any = given[0] if isinstance(given, list) and not isinstance(given[0], int) else given
    if not first:
        raise _unsupported(asked)
    if not isinstance(first, str):
        return Prompt(asked.model, token_ids=msgspec.convert(first, list[TokenId]))
    if not asked.add_special_tokens:
        raise _unsupported(asked)
    return Prompt(asked.model, text=first)


def _of_chat(asked: _Chat) -> Prompt:
    _check_salt(asked)
    is_usual = (
        asked.chat_template is None
        and asked.mm_processor_kwargs is None
        and asked.truncate_prompt_tokens is None
        and not asked.add_special_tokens
        and not asked.continue_final_message
    )
    if not asked.messages or not is_usual:
        raise _unsupported(asked)
    return Prompt(
        asked.model,
        chat=Chat(
            [_message(message, asked) for message in asked.messages],
            # Engines show a template no tools that the model must not call.
            asked.tools or None if asked.tool_choice != "none" else None,
            asked.documents,
            asked.add_generation_prompt,
            asked.chat_template_kwargs or {},
        ),
    )


def _of_responses(asked: _Responses) -> Prompt:
    """Messages alone: what an engine keeps from before, or does with tools between, is not known here."""
    _check_salt(asked)
    is_kept = asked.previous_response_id is not None or asked.conversation is not None
    if is_kept or asked.prompt is not None or asked.tools or asked.truncation not in (None, "disabled"):
        raise _unsupported(asked)
    given = [{"role": "user", "content": asked.input}] if isinstance(asked.input, str) else asked.input
    if not given or any(item.get("type", "message") != "message" for item in given):
        raise _unsupported(asked)
    said: list[Message] = [{"role": item.get("role"), "content": item.get("content")} for item in given]
    if asked.instructions:
        said.insert(0, {"role": "system", "content": asked.instructions})
    return Prompt(asked.model, chat=Chat([_message(message, asked) for message in said]))


def _message(message: Message, asked: _Salted) -> Message:
    """A message as templates know it: its content one text, arguments of calls as what their JSON says."""
    if not isinstance(message.get("role"), str):
        raise _unsupported(asked)
    shown = {name: value for name, value in message.items() if value is not None}
    content = message.get("content")
    if isinstance(content, list):
        shown["content"] = _JOINT.join(_text(part, asked) for part in content)
    elif not isinstance(content, str | None):
        raise _unsupported(asked)
    calls = shown.get("tool_calls")
    if calls is not None:
        shown["tool_calls"] = [_call(call, asked) for call in calls] if isinstance(calls, list) else None
        if not shown["tool_calls"]:
            raise _unsupported(asked)
    return shown


def _text(part: object, asked: _Salted) -> str:
    if isinstance(part, dict) and part.get("type") in _TEXT_PARTS and isinstance(part.get("text"), str):
        text: str = part["text"]
        return text
    raise _unsupported(asked)


def _call(call: object, asked: _Salted) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not (isinstance(call, dict) and isinstance(function, dict)):
        raise _unsupported(asked)
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return call
    read = msgspec.json.decode(arguments) if arguments else {}
    return {**call, "function": {**function, "arguments": read}}


def _check_salt(asked: _Salted) -> None:
    """Salted blocks are in no index, so that a prompt that names a salt must not be credited with others."""
    if asked.cache_salt:
        raise _unsupported(asked)


def _unsupported(asked: _Salted) -> Unreadable:
    return Unreadable(Unreadable.Why.UNSUPPORTED_CONTENT, asked.model)
