"""Logs: JSON lines on standard error with time, level and msg, for our own and for libraries' lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import structlog

from inferencecache.core.service import configure_logging, get_logger


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


@pytest.mark.rule("SUB-180")
def test_a_line_has_time_level_logger_and_msg(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    get_logger("subscriber").info("subscribed to engine KV events", endpoint="tcp://e:5557")
    (line,) = lines_of(capsys)
    assert list(line)[:3] == ["time", "level", "msg"]
    assert datetime.fromisoformat(line["time"]).utcoffset() is not None
    assert (line["level"], line["msg"]) == ("info", "subscribed to engine KV events")
    assert (line["logger"], line["endpoint"]) == ("subscriber", "tcp://e:5557")
    assert "event" not in line


@pytest.mark.rule("SUB-149", "SUB-181")
def test_a_stable_name_is_the_event_and_may_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    get_logger("s").warning("sequence_gap", missing=3)
    get_logger("s").warning("sequence_gap", msg="two batches are missing")
    plain, explained = lines_of(capsys)
    assert (plain["event"], plain["msg"], plain["missing"]) == ("sequence_gap", "sequence_gap", 3)
    assert (explained["event"], explained["msg"]) == ("sequence_gap", "two batches are missing")


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "warn")
    get_logger("s").info("quiet")
    get_logger("s").error("loud")
    assert [line["msg"] for line in lines_of(capsys)] == ["loud"]


def test_a_logger_taken_before_the_configuration_obeys_it(capsys: pytest.CaptureFixture[str]) -> None:
    log = get_logger("early")
    configure_logging("json", "info")
    log.info("hello")
    assert lines_of(capsys)[0]["logger"] == "early"


def test_lines_of_libraries_come_out_alike(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    logging.getLogger("nats.aio.client").warning("lost %s", "it")
    logging.getLogger("nats.aio.client").info("chatter")
    (line,) = lines_of(capsys)
    assert (line["level"], line["logger"], line["msg"]) == ("warning", "nats.aio.client", "lost it")


def test_an_exception_is_one_line_with_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    get_logger("s").error("process_failed", exc_info=RuntimeError("broken"))
    (line,) = lines_of(capsys)
    assert "RuntimeError: broken" in line["exception"]


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("text", "info")
    get_logger("router").info("serving", port=9090)
    text = capsys.readouterr().err
    assert "serving" in text
    assert "port=9090" in text


@pytest.mark.parametrize("format", ["json", "text"])
def test_an_exception_does_not_show_what_variables_hold(
    capsys: pytest.CaptureFixture[str], format: str
) -> None:
    configure_logging(format, "info")

    def look_up(held: str) -> None:
        raise RuntimeError(len(held))

    try:
        look_up(f"prompt {7 * 7}")
    except RuntimeError:
        get_logger("router").exception("lookup_failed")
        logging.getLogger("library").exception("failed")
    logged = capsys.readouterr().err
    assert logged.count("RuntimeError: 9") == 2
    assert "prompt 49" not in logged
