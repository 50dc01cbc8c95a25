"""The measuring of memory takes what can be measured, and counts what was really stored."""

from __future__ import annotations

import pytest

from benchmarks.sizing_bench import measure, read_form


@pytest.mark.rule("OPS-106")
@pytest.mark.parametrize(
    "wrong",
    ["--keys=0", "--replicas=0", "--hash-bytes=7", "--tenants=-1", "--models=0", "--batch=0", "--keys=many"],
)
def test_what_cannot_be_measured_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_form(["--keys=10", wrong])
    assert ended.value.code == 2
    assert wrong.partition("=")[0] in capsys.readouterr().err


@pytest.mark.timeout(180)
@pytest.mark.rule("OPS-97", "OPS-106")
def test_every_replicas_hold_of_a_key_is_an_entry() -> None:
    form = ("--keys=3000", "--replicas=3", "--hash-bytes=20", "--tenants=2", "--models=2", "--batch=50")
    figures = measure(read_form(form))
    assert figures["indexer"]["ingested"] == figures["router"]["loaded"] == 9000
    assert figures["indexer"]["peak_mib"] > figures["indexer"]["base_mib"]
    assert figures["indexer"]["bytes_an_entry"] > 0
