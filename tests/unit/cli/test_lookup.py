"""`inferencecache lookup` says what is wrong with what it was given."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from inferencecache.cli.app import app
from inferencecache.v1alpha1.inferencecache_pb2 import DESCRIPTOR, LookupRouteResponse, ReplicaScore

LONG = "[/r]" * 30
NOBODY = "127.0.0.1:1"
SERVICE = DESCRIPTOR.services_by_name["InferenceCache"].full_name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "exactly one form"),
        (["--tokens", "1", "--text", "x"], "exactly one form"),
        (["--tokens", "one"], "whole numbers"),
        (["--tokens", "1..x"], "whole numbers"),
        (["--tokens", "-1"], "from 0 to"),
        (["--tokens", "9..3"], "from 0 to"),
        (["--tokens", "1..4294967295"], "at most 1048576"),
        (["--tokens", "1..600000,1..600000"], "at most 1048576"),
        (["--tokens", "@missing-file"], "cannot read"),
        (["--tokens", f"@{sys.executable}"], "not a text file"),
        (["--hashes", "aa", "--block-size", "99999999999"], "--block-size"),
        (["--tokens", "1", "--tenant", "\udcff"], "not UTF-8"),
        (["--hashes", "xyz"], "not hexadecimal"),
        (["--hashes", ""], "--hashes: write a hash"),
        (["--prefix-hash", ""], "--prefix-hash: write a hash"),
    ],
)
def test_a_prompt_that_cannot_be_read_is_refused(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["lookup", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_a_router_that_does_not_answer_is_named_with_the_setting(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt"
    prompt.write_text("1, 2\n3 4..90\n")
    result = CliRunner().invoke(app, ["lookup", "--tokens", f"@{prompt}", "--router", NOBODY])
    assert result.exit_code == 1
    assert NOBODY in result.output
    assert "--router" in result.output


def test_the_name_of_a_replica_is_shown_as_it_is() -> None:
    answer = LookupRouteResponse(
        reason_code="PREFIX_MATCH", replica_scores=[ReplicaScore(replica_id=LONG)]
    ).SerializeToString()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
        lambda request, context: answer
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"LookupRoute": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        arguments = ["lookup", "--tokens", "1", "--router", f"127.0.0.1:{port}"]
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": None})
    finally:
        server.stop(None)
    assert (result.exit_code, LONG in result.output) == (0, True)
