"""Rendering of prompt templates."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.templates import (
    MAX_RENDERED,
    Rendered,
    RenderError,
    Template,
    resolve_template,
)
from tests.support.resources import template

BRAND: dict[str, Any] = {"name": "brand", "type": "Stable", "required": True}
QUESTION: dict[str, Any] = {"name": "question", "type": "Mutable", "required": True}
NOTE: dict[str, Any] = {"name": "note", "type": "Stable"}
HELPDESK = "You answer for {{brand}}.\nQuestion: {{question}}\n"


def made(body: str, *slots: dict[str, Any]) -> Template:
    return Template(resolve_template(template(body, *slots)))


def test_slots_are_replaced_and_the_stable_prefix_ends_before_the_first_mutable_one() -> None:
    rendered = made(HELPDESK, BRAND, QUESTION).render({"brand": "ACME", "question": "why?"})
    assert rendered == Rendered("You answer for ACME.\nQuestion: why?\n", "You answer for ACME.\nQuestion: ")


def test_the_stable_prefix_does_not_depend_on_mutable_values() -> None:
    helpdesk = made(HELPDESK, BRAND, QUESTION)
    prefixes = {helpdesk.render({"brand": "ACME", "question": text}).stable_prefix for text in ("a", "", "b")}
    assert len(prefixes) == 1


def test_without_a_mutable_slot_all_is_stable_and_before_one_at_the_start_nothing_is() -> None:
    assert made("a {{brand}} b", BRAND).render({"brand": "x"}) == Rendered("a x b", "a x b")
    assert made("plain").render({}) == Rendered("plain", "plain")
    assert made("{{question}} then", QUESTION).render({"question": "x"}) == Rendered("x then", "")


def test_a_mutable_slot_that_is_empty_ends_the_stable_prefix_all_the_same() -> None:
    optional = QUESTION | {"required": False}
    assert made("a {{question}} b", optional).render({}) == Rendered("a  b", "a ")


def test_a_slot_may_stand_several_times_with_any_blanks_inside_its_braces() -> None:
    assert made("{{brand}}{{ brand }}{{\tbrand  }}", BRAND).render({"brand": "x"}).text == "xxx"


def test_a_long_row_of_blanks_behind_braces_costs_no_more_than_other_text() -> None:
    body = "{{" + " " * 200_000 + "\n"
    start = time.process_time()
    assert made(body).render({}).text == body
    assert time.process_time() - start < 1.0


def test_a_slot_that_is_not_required_is_empty_when_it_is_not_given() -> None:
    assert made("[{{note}}]", NOTE).render({}).text == "[]"
    assert made("[{{note}}]", NOTE).render({"note": "x"}).text == "[x]"


def test_a_required_slot_must_be_given_even_where_the_body_does_not_use_it() -> None:
    for body in ("{{brand}}", "no placeholder"):
        with pytest.raises(RenderError, match="required") as raised:
            made(body, BRAND).render({})
        assert raised.value.slot == "brand"


def test_a_value_for_no_slot_is_an_error() -> None:
    with pytest.raises(RenderError, match="not declared by the template") as raised:
        made("x", NOTE).render({"brnad": "secret"})
    assert raised.value.slot == "brnad"
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("body", ["{{ missing }}", "{{}}", "{{ brand | upper }}", "{{ 1 + 1 }}"])
def test_a_placeholder_that_no_slot_declares_is_an_error(body: str) -> None:
    with pytest.raises(RenderError, match=r"spec\.slots"):
        made(body, BRAND).render({"brand": "x"})


@pytest.mark.parametrize(
    "body", ["{", "{ brand }", "{{ brand", "brand }}", "{% if brand %}", "{# x #}", "{{a\nb}}"]
)
def test_anything_else_is_text(body: str) -> None:
    assert made(body, BRAND).render({"brand": "x"}).text == body


@pytest.mark.parametrize(
    "value", ["{{brand}}", "{{ question }}", "\\1 \\g<0>", "$brand", "%s {0}", "<b>&amp;"]
)
def test_values_are_inserted_as_they_are(value: str) -> None:
    rendered = made("[{{note}}][{{brand}}]", NOTE, BRAND).render({"note": value, "brand": "x"})
    assert rendered.text == f"[{value}][x]"


@given(st.text(), st.dictionaries(st.sampled_from(["brand", "note"]), st.text(), min_size=2))
def test_equal_input_gives_equal_text_and_the_prefix_is_its_beginning(
    text: str, values: dict[str, str]
) -> None:
    body = f"{text.replace('{', '(')}{{{{brand}}}}{{{{ note }}}}!"
    slots = (BRAND, NOTE | {"type": "Mutable"})
    first, second = made(body, *slots).render(values), made(body, *slots).render(values)
    assert first == second
    assert first.text.startswith(first.stable_prefix)
    assert first.text == body.split("{{brand}}", maxsplit=1)[0] + values["brand"] + values["note"] + "!"


def test_the_revision_changes_with_what_rendering_depends_on_and_with_nothing_else() -> None:
    base = made(HELPDESK, BRAND, QUESTION).revision
    assert made(HELPDESK, QUESTION, BRAND).revision == base
    assert made(HELPDESK, BRAND | {"description": "who"}, QUESTION).revision == base
    renamed = resolve_template(template(HELPDESK, BRAND, QUESTION, ref="other/name"))
    assert renamed.revision == base
    changed = [
        made(HELPDESK + " ", BRAND, QUESTION),
        made(HELPDESK, BRAND | {"type": "Mutable"}, QUESTION),
        made(HELPDESK, BRAND | {"required": False}, QUESTION),
        made(HELPDESK, BRAND, QUESTION, NOTE),
    ]
    assert len({base, *(one.revision for one in changed)}) == 5


def test_a_text_of_any_size_is_not_made() -> None:
    repeated = made("{{note}}" * 1000, NOTE)
    assert len(repeated.render({"note": "x" * (MAX_RENDERED // 1000)}).text) <= MAX_RENDERED
    with pytest.raises(RenderError, match="shorten"):
        repeated.render({"note": "x" * MAX_RENDERED})


def test_the_revision_is_short_and_frozen() -> None:
    assert made(HELPDESK, BRAND, QUESTION).revision == "03ee5e49d418df04"
