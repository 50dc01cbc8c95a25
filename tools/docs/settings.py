"""Makes the reference of every process's settings from what the processes declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Final
from unittest.mock import patch

import inferencecache.controller.settings
import inferencecache.indexer.settings
import inferencecache.kvevent_subscriber.settings
import inferencecache.router.settings
from inferencecache.core.service import Setting, SettingsParser
from tools.docs.tables import cell, one_of, table

_READERS: Final[tuple[Callable[..., object], ...]] = (
    inferencecache.router.settings.read_settings,
    inferencecache.indexer.settings.read_settings,
    inferencecache.kvevent_subscriber.settings.read_settings,
    inferencecache.controller.settings.read_settings,
)
_INTRODUCTION: Final = """\
# Configuration

Every setting is a flag, `--nats-url=nats://nats:4222`, and a variable of the environment,
`INFERENCECACHE_NATS_URL`. The flag wins, then the variable, then the default; a variable that is set but
empty counts as not set. A wrong setting ends the process with exit code 2 and a line that says what to
write instead. Durations are written `100ms`, `10s`, `1m30s`. Pass passwords and tokens by variable or file:
everybody on a machine can read a command line. `NATS_CREDS` may hold the text of a NATS credentials file.

What is decided per tenant is not here but in [CachePolicy](resources/cachepolicy.md) and
[CacheTenant](resources/cachetenant.md); how the log is cut is in the [layout](../layout.md).
"""


class _DeclaredError(Exception):
    """Ends a program's reading of its settings once they are declared."""

    def __init__(self, parser: SettingsParser) -> None:
        super().__init__(parser.prog)
        self.parser = parser


def parsers() -> Mapping[str, SettingsParser]:
    """The settings of each program, by its name."""
    declared = [_declared(read) for read in _READERS]
    return {parser.prog: parser for parser in declared}


def _declared(read: Callable[..., object]) -> SettingsParser:
    def stop(parser: SettingsParser, *_: object) -> None:
        raise _DeclaredError(parser)

    with patch.object(SettingsParser, "parse_args", stop):
        try:
            read((), {})
        except _DeclaredError as declared:
            return declared.parser
    raise AssertionError(f"{read.__module__} declares no settings")


def settings_page() -> dict[str, str]:
    """One page, a part for each program."""
    lines = [_INTRODUCTION]
    for name, parser in parsers().items():
        lines += [f"## {name}", "", parser.description or "", ""]
        for section, settings in groupby(parser.settings, key=lambda setting: setting.section):
            rows = [
                (
                    f"`{setting.flag}`<br>`{setting.variable}`",
                    _default(setting),
                    cell(setting.help) + one_of(setting.choices),
                )
                for setting in settings
            ]
            heading = ("Flag and variable", "Default", "Meaning")
            lines += [f"### {name}: {section}", "", *table(heading, rows), ""]
    return {"configuration.md": "\n".join([*lines, "Written by `make generate` from the programs.", ""])}


def _default(setting: Setting) -> str:
    if setting.required:
        return "required"
    return "" if setting.default in ("", None) else f"`{setting.shown_default}`"
