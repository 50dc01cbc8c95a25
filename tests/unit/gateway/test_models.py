"""Names of models in requests, and what the index calls them."""

from __future__ import annotations

import pytest

from inferencecache.core.gateway import ModelNames, NamedModel
from inferencecache.core.gateway.models import model_names
from inferencecache.schemas.ids import AdapterId, ModelId


def named(model: str, adapter: str = "") -> NamedModel:
    return NamedModel(ModelId(model), AdapterId(adapter))


def test_an_unknown_name_is_the_models_own() -> None:
    assert ModelNames().of("org/m") == named("org/m")


def test_an_adapter_is_a_name_of_its_base_model() -> None:
    names = ModelNames(model_names("sql=llama:sql-v2, gpt=llama"))
    assert names.of("sql") == named("llama", "sql-v2")
    assert names.of("gpt") == named("llama")


def test_a_request_that_names_none_is_the_default_models() -> None:
    assert ModelNames(model_names("a=b"), "a").of("") == named("b")


@pytest.mark.parametrize("text", ["a", "=b", "a=", "a=:b", "a=b,a=c"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NAME=MODEL|twice"):
        model_names(text)
