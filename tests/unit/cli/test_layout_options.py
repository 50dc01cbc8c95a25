"""What `inferencecache layout set` takes, and how it refuses the rest."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.cli.layouts.options import InvalidOptionError, lanes
from inferencecache.schemas.ids import ModelId, TenantId
from inferencecache.schemas.layout import Lanes


@pytest.mark.parametrize(
    ("text", "tenant", "model", "count"),
    [
        ("t/m=3", "t", "m", 3),
        ("team-a/meta-llama/Llama-3.1-8B=12", "team-a", "meta-llama/Llama-3.1-8B", 12),
        ("/m=1", "", "m", 1),
        ("t/a=b=2", "t", "a=b", 2),
    ],
)
def test_the_tenant_ends_at_the_first_slash_and_the_number_follows_the_last_equals_sign(
    text: str, tenant: str, model: str, count: int
) -> None:
    assert lanes(text) == Lanes(TenantId(tenant), ModelId(model), count)


@pytest.mark.parametrize(
    "text",
    ["", "m=3", "t/m", "t/=2", "t/m=", "t/m=x", "t/m=0", "t/m=-1", "t/m=257", "t/m=²", f"t/m={'9' * 5000}"],
)
def test_what_names_no_lanes_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"^--lanes "):
        lanes(text)


def test_an_id_that_no_subject_can_carry_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="255"):
        lanes(f"t/{'m' * 256}=2")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "--partitions N"),
        (("--partitions", "0"), "--partitions"),
        (("--partitions", "257"), "--partitions"),
        (("--lanes", "model=3"), "TENANT/MODEL=N"),
        (("--partitions", "3", "--wait", "soon"), "--wait"),
        (("--partitions", "3", "--wait", "-5s"), "below 0"),
        (("--partitions", "3", "--nats-url", "nats://elsewhere:4222"), "--insecure-nats"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    arguments: tuple[str, ...], text: str
) -> None:
    result = CliRunner().invoke(app, ["layout", "set", *arguments])
    assert result.exit_code == 2
    assert text in " ".join(result.output.split())


def test_the_help_teaches() -> None:
    output = " ".join(CliRunner().invoke(app, ["layout", "set", "--help"]).output.split())
    for text in ("--lanes", "TENANT/MODEL=N", "--dry-run", "--wait", "--partitions 4 --wait 60s"):
        assert text in output
