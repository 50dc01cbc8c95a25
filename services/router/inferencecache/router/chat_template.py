"""A model's chat template: from a prompt to the text that its engine would tokenize [WIRE-170].

Templates are programs that come with a model. They run in a sandbox that reaches neither attributes
of Python objects nor anything they could change, and see what they see in an engine: the messages,
the model's special tokens, `raise_exception` and the date. `tools` and `documents` are undefined, not
empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from inferencecache.core.gateway import Chat

TEMPLATE_FILE: Final = "chat_template.jinja"
CONFIG_FILE: Final = "tokenizer_config.json"
SPECIAL_TOKENS_FILE: Final = "special_tokens_map.json"
_DEFAULT: Final = "default"


def today() -> datetime:
    """The beginning of the current day, UTC: all that a rendered prompt may tell of the clock."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class ChatTemplate:
    """A compiled template. `source` that is no template raises `jinja2.TemplateSyntaxError`."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], *, date: Callable[[], datetime] = today
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: date().strftime(form)
        self._template = environment.from_string(source)
        self._special_tokens = dict(special_tokens)

    def render(self, prompt: str) -> str:
        """The prompt as one message of the user, with the opening of the answer behind it.

        Raises whatever a template raises, `jinja2.TemplateError` for what it refuses itself.
        """
        return self.render_chat(Chat([{"role": "user", "content": prompt}]))

    def render_chat(self, chat: Chat) -> str:
        """All messages, and what the request tells the template beside them. Raises as `render`."""
        lists = {"tools": chat.tools, "documents": chat.documents}
        return self._template.render(
            {
                **chat.template_arguments,
                **self._special_tokens,
                **{name: value for name, value in lists.items() if value is not None},
                "messages": chat.messages,
                "add_generation_prompt": chat.add_generation_prompt,
            }
        )


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """The template of a model's folder: that of its own file, else of its configuration; `None` without one.

    Raises `OSError`, `ValueError`, `TypeError` and `jinja2.TemplateSyntaxError` for unusable files.
    """
    config = _read_object(folder / CONFIG_FILE)
    own_file = folder / TEMPLATE_FILE
    source = own_file.read_text("utf-8") if own_file.is_file() else _configured(config)
    if source is None:
        return None
    return ChatTemplate(source, _special_tokens(_read_object(folder / SPECIAL_TOKENS_FILE) | config))


def _configured(config: Mapping[str, Any]) -> str | None:
    """`chat_template` is a text, or a list of named ones of which `default` is meant for plain chats."""
    written = config.get("chat_template")
    if isinstance(written, list):
        named = {item["name"]: item["template"] for item in written}
        written = named.get(_DEFAULT)
    if written is not None and not isinstance(written, str):
        raise TypeError(f"chat_template in {CONFIG_FILE} is neither text nor a list of named templates")
    return written


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and its like; each is a text or an object with a `content`."""
    tokens: dict[str, str] = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict):
        raise TypeError(f"{path.name} holds no JSON object")
    return content


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a prompt: jinja2's own filter writes it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


class _Generation(Extension):
    """`{% generation %}` marks, for training, what the model says; for rendering it is nothing."""

    tags: set[str] = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
