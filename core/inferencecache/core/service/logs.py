"""Logs: one line an event on standard error, as JSON or for people.

The first argument of a log call is either a sentence, or a stable name in snake_case on which
alerts and tests may rely; a name may be explained with the keyword `msg`. Each JSON line has `time`
(RFC 3339, UTC), `level`, `logger` and `msg`, and with a stable name also `event` [SUB-149, SUB-180].
Libraries that log through the standard library come out the same way, from `warning` upwards.
Prompt text, token ids and secrets are never logged.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, Final, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_STABLE_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `logger`: name. May be taken at import time, before `configure_logging`."""
    return cast("FilteringBoundLogger", structlog.get_logger(component=name))


def configure_logging(format: str, level: str) -> None:
    """Set up this process's logs; `format` is json or text, `level` debug, info, warn or error."""
    number = _LEVELS[level]
    steps: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _name_and_message,
    ]
    structlog.configure(
        processors=[*steps, *_rendering(format)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *steps],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(format)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))


def _name_and_message(_: WrappedLogger, __: str, line: EventDict) -> EventDict:
    first = line.pop("event")
    message = line.pop("msg", first)
    front: dict[str, Any] = {"time": line.pop("time"), "level": line.pop("level"), "msg": message}
    # structlog's own parameter is called logger, so ours travels under another name up to here.
    front["logger"] = line.pop("component", None) or line.pop("logger", "")
    if isinstance(first, str) and _STABLE_NAME.fullmatch(first):
        front["event"] = first
    return front | dict(line)


def _rendering(format: str) -> list[Processor]:
    if format == "text":
        return [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                event_key="msg",
                timestamp_key="time",
                sort_keys=False,
                exception_formatter=structlog.dev.plain_traceback,  # others show what variables hold
            )
        ]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
