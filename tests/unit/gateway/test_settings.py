"""The gateway's flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferencecache.core.gateway import NamedModel
from inferencecache.router.gateway.settings import GatewaySettings
from inferencecache.router.settings import read_settings
from inferencecache.schemas.ids import AdapterId, ModelId

NATS = ("--nats-url=nats://n:4222", "--insecure-nats")


def read(*flags: str) -> GatewaySettings:
    return read_settings([*NATS, *flags], {}).gateway


def test_without_a_source_of_endpoints_nobody_listens() -> None:
    assert read().address is None
    assert read("--gateway-bind-address=:1").address is None


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("--gateway-endpoints-file=a.yaml", "endpoints_file", Path("a.yaml")),
        ("--gateway-service=ns/engines:http", "service", "ns/engines:http"),
        ("--gateway-inference-pool=ns/pool", "pool", "ns/pool"),
    ],
)
def test_with_one_it_listens_on_9002(flag: str, field: str, value: object) -> None:
    settings = read(flag)
    assert settings.address == ("0.0.0.0", 9002)
    assert getattr(settings, field) == value


def test_names_and_limits_are_what_the_flags_say() -> None:
    settings = read(
        "--gateway-endpoints-file=a",
        "--gateway-models=sql=m:v2",
        "--gateway-default-model=m",
        "--gateway-tenant-header=X-Tenant",
        "--gateway-budget=50ms",
        "--gateway-no-endpoint=refuse",
    )
    assert settings.names.of("sql") == NamedModel(ModelId("m"), AdapterId("v2"))
    assert settings.names.of("").model == "m"
    assert (settings.tenant_header, settings.budget_s, settings.refuses) == ("x-tenant", 0.05, True)
    assert not settings.shows_reasons


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--gateway-service=a/b", "--gateway-inference-pool=a/b"), "only one of"),
        (("--gateway-service=engines",), "NAMESPACE/NAME"),
        (("--gateway-models=a",), "NAME=MODEL"),
        (("--gateway-no-endpoint=maybe",), "continue"),
        (("--gateway-body-limit=0",), "--gateway-body-limit"),
    ],
)
def test_a_wrong_flag_is_told_by_its_name(flags: tuple[str, ...], told: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*flags)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
