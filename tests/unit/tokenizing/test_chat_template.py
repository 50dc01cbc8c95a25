"""Chat templates as engines render them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.exceptions import SecurityError

from inferencecache.core.gateway import Chat
from inferencecache.router.chat_template import ChatTemplate, read_chat_template
from tests.support.models import TEMPLATE

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def rendered(source: str, prompt: str = "hello") -> str:
    return ChatTemplate(source, TOKENS).render(prompt)


def write(
    folder: Path, config: dict[str, Any] | None = None, files: dict[str, str] | None = None
) -> ChatTemplate | None:
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    return read_chat_template(folder)


@pytest.mark.rule("WIRE-170")
def test_a_prompt_is_one_message_of_the_user_with_the_opening_of_an_answer() -> None:
    assert rendered(TEMPLATE) == "<s>\n<|user|>hello</s>\n<|assistant|>"
    shape = "{{ messages | length }} {{ messages[0].role }} {{ messages[0]['content'] }}"
    assert rendered(shape + " {{ add_generation_prompt }}") == "1 user hello True"


@pytest.mark.rule("WIRE-170")
def test_tools_and_documents_are_undefined_and_there_is_no_system_message() -> None:
    assert rendered("{{ tools is defined }} {{ documents is defined }}") == "False False"
    assert rendered("{{ messages | selectattr('role', 'equalto', 'system') | list | length }}") == "0"


def test_blocks_leave_neither_their_line_nor_their_indent_behind() -> None:
    assert rendered("a\n    {% if true %}\nb\n    {% endif %}\nc") == "a\nb\nc"


def test_a_template_may_refuse_and_what_it_says_is_an_error() -> None:
    with pytest.raises(TemplateError, match="no system role"):
        rendered("{{ raise_exception('no system role') }}")
    with pytest.raises(UndefinedError):
        rendered("{{ missing.attribute }}")


def test_json_is_written_for_a_prompt_and_not_for_html() -> None:
    assert rendered("{{ {'b': '<é>', 'a': 1} | tojson }}") == '{"b": "<é>", "a": 1}'
    assert rendered("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}") == '{\n "a": 2,\n "b": 1\n}'


def test_loops_may_be_cut_short_and_generation_marks_are_ignored() -> None:
    assert rendered("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"
    assert rendered("{% generation %}{{ messages[0].content }}{% endgeneration %}!") == "hello!"


@pytest.mark.rule("WIRE-178")
def test_of_the_clock_a_template_sees_the_date_alone() -> None:
    noon = datetime(2026, 7, 26, tzinfo=UTC)
    template = ChatTemplate("{{ strftime_now('%d %b %Y %H:%M:%S') }}", {}, date=lambda: noon)
    assert template.render("x") == "26 Jul 2026 00:00:00"
    assert rendered("{{ strftime_now('%H:%M:%S') }}") == "00:00:00"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ strftime_now.__globals__['datetime'].now() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{% for i in range(10000000) %}{% endfor %}",
    ],
)
def test_a_template_reaches_nothing_outside_its_sandbox(source: str) -> None:
    with pytest.raises((SecurityError, UndefinedError, OverflowError)):
        rendered(source)


@pytest.mark.parametrize("source", ["{{ raise_exception.__globals__ }}", "{{ '{0.__class__}'.format(1) }}"])
def test_what_the_sandbox_hides_reads_as_nothing(source: str) -> None:
    assert rendered(source) == ""


def test_values_of_a_prompt_are_never_rendered() -> None:
    assert rendered("{{ messages[0].content }}", "{{ bos_token }}{% raw %}") == "{{ bos_token }}{% raw %}"


def test_the_configuration_gives_the_template_and_the_special_tokens(tmp_path: Path) -> None:
    template = write(
        tmp_path,
        {
            "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
            "{{ pad_token is defined }}",
            "bos_token": "<s>",
            "eos_token": {"content": "</s>", "special": True},
            "pad_token": None,
        },
    )
    assert template is not None
    assert template.render("x") == "<s>x</s>False"


def test_special_tokens_of_their_own_file_stand_in_for_the_configurations(tmp_path: Path) -> None:
    config = {"chat_template": "{{ bos_token }}{{ eos_token }}", "eos_token": "B"}
    template = write(tmp_path, config, {"special_tokens_map.json": '{"bos_token": "A", "eos_token": "X"}'})
    assert template is not None
    assert template.render("x") == "AB"


def test_a_template_file_comes_before_the_configuration(tmp_path: Path) -> None:
    template = write(tmp_path, {"chat_template": "config"}, {"chat_template.jinja": "file"})
    assert template is not None
    assert template.render("x") == "file"


def test_of_named_templates_the_default_counts(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    template = write(tmp_path, {"chat_template": named})
    assert template is not None
    assert template.render("x") == "plain"


def test_a_model_without_a_template_has_none(tmp_path: Path) -> None:
    assert write(tmp_path) is None
    assert write(tmp_path, {"bos_token": "<s>"}) is None
    assert write(tmp_path, {"chat_template": [{"name": "tool_use", "template": "tools"}]}) is None


def test_files_that_cannot_be_used_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TemplateSyntaxError):
        write(tmp_path, {"chat_template": "{% if %}"})
    with pytest.raises(TypeError, match="neither text nor a list"):
        write(tmp_path, {"chat_template": 5})
    with pytest.raises(TypeError, match="no JSON object"):
        write(tmp_path, files={"tokenizer_config.json": "[]"})
    with pytest.raises(ValueError, match="Expecting"):
        write(tmp_path, files={"tokenizer_config.json": "{"})


def test_a_chat_is_all_of_its_messages_with_what_the_request_tells_the_template() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
        "{{ tools | length }}{{ documents is defined }}{{ thinking }}{{ add_generation_prompt }}",
        TOKENS,
    )
    chat = Chat(
        [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}],
        tools=[{}],
        template_arguments={"thinking": "no", "bos_token": "forged", "messages": []},
        add_generation_prompt=False,
    )
    assert template.render_chat(chat) == "<s>system:a;user:b;1FalsenoFalse"
