"""Endpoints from a file: what it may say, and how its changes are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferencecache.router.gateway.endpoint_file import (
    EndpointFile,
    EndpointFileError,
    is_address,
    read_endpoints,
)
from tests.support.endpoints import endpoint, following

FILE = """
endpoints:
- {address: '10.0.0.1:8000', replica: a}
- {address: '10.0.0.2:8000', replica: b, ready: false}
"""
A, B = endpoint("10.0.0.1:8000", "a"), endpoint("10.0.0.2:8000", "b", ready=False)


def test_a_file_lists_addresses_replicas_and_who_is_ready(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(FILE)
    assert read_endpoints(path) == (A, B)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("endpoints: [{address: 'engine:8000', replica: a}]", "IP:PORT"),
        ("endpoints: [{address: '10.0.0.1', replica: a}]", "IP:PORT"),
        ("endpoints: [{address: '10.0.0.1:1'}]", "replica"),
        ("endpoints: [{address: '10.0.0.1:1', replica: a, reday: true}]", "reday"),
        ("endpoints: {", "endpoints"),
        ("[]", "object"),
        ("\x00", "endpoints"),
    ],
)
def test_a_file_that_says_anything_else_is_refused_by_its_flag(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "endpoints.yaml"
    path.write_text(text)
    with pytest.raises(EndpointFileError, match=problem) as raised:
        read_endpoints(path)
    assert str(raised.value).startswith(f"--gateway-endpoints-file={path}: ")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("10.0.0.1:80", True),
        ("[fd00::1]:80", True),
        ("fd00::1:80", False),
        ("[10.0.0.1]:80", False),
        ("10.0.0.1:0", False),
        ("10.0.0.1:65536", False),
        ("localhost:80", False),
        (":80", False),
        ("10.0.0.1: 80", False),
        ("10.0.0.1:+80", False),
        ("10.0.0.1:080", False),
        ("[FD00::1]:80", False),
        ("[fd00:0::1]:80", False),
    ],
)
def test_an_address_is_an_ip_and_a_port(text: str, is_one: bool) -> None:
    assert is_address(text) is is_one


async def test_a_change_is_told_within_a_second_and_an_unreadable_file_changes_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "endpoints.yaml"
    async with following(EndpointFile(path)) as told:
        path.write_text(FILE)
        await told.are(A, B)
        path.write_text("endpoints: {")
        replacement = tmp_path / "other"
        replacement.write_text("endpoints: []")
        assert told.endpoints == (A, B)
        replacement.replace(path)
        await told.are()
