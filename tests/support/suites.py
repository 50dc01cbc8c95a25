"""Which tests run: those whose facility is present, and the long ones only when asked for.

A test says by a marker what it needs (`@pytest.mark.docker`); the rows of `tools.facilities` say
whether that is there. Tests of an absent facility are not collected. With `--report-not-run` the run
ends with one line for each of them, so that a green run never hides what it did not try.

`--require=all`, or a list of names, is for a place where nothing may be left out: then a missing
facility, a required suite without a test, a skip and an expected failure are failures. `long` is a
suite like the others, except that only `--require` runs it, and so is a facility's that is
`only_when_required`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from typing import Final

import pytest

from tools import facilities

LONG: Final = "long"
LONG_NOT_RUN: Final = "NOT RUN long: soaks and many seeds; run 'make test REQUIRE=long' (minutes)"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suites")
    group.addoption(
        "--require",
        default="",
        metavar="NAMES",
        help="suites that must run whole, with commas, or all: nothing may be missing, skipped or empty",
    )
    group.addoption(
        "--report-not-run", action="store_true", help="end with a line for each suite that was not run"
    )


def pytest_configure(config: pytest.Config) -> None:
    suites = Suites(config.getoption("--require"))
    config.pluginmanager.register(suites, "suites")


class Suites:
    """The suites of one run. `required` holds names, every one of them when asked for `all`."""

    def __init__(self, require: str) -> None:
        self._table = {facility.name: facility for facility in facilities.FACILITIES}
        names = {name.strip() for name in require.split(",") if name.strip()}
        known = {*self._table, LONG}
        if unknown := names - known - {"all"}:
            raise pytest.UsageError(
                f"--require: no suite is called {', '.join(sorted(unknown))}; "
                f"known: all, {', '.join(sorted(known))}"
            )
        self.required = known if "all" in names else names
        self.absent = {name for name, facility in self._table.items() if not facility.present()}
        on_demand = {name for name, facility in self._table.items() if facility.only_when_required}
        self.not_run = self.absent | (on_demand - self.required)
        self.left_out = self.not_run | ({LONG} - self.required)
        self._ran: Counter[str] = Counter()
        self._not_whole: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        out = [item for item in items if any(item.get_closest_marker(name) for name in self.left_out)]
        if out:
            items[:] = [item for item in items if item not in set(out)]
            config.hook.pytest_deselected(items=out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._ran.update(name for name in self.required if name in report.keywords)
        if report.skipped:
            self._not_whole["expected failure" if hasattr(report, "wasxfail") else "skip"] += 1

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        yield
        judged = not session.config.option.collectonly and not hasattr(session.config, "workerinput")
        if judged and session.exitstatus == pytest.ExitCode.OK and any(self._faults()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """After pytest's own closing line, so that these lines are the last."""
        if hasattr(config, "workerinput") or config.option.collectonly:
            return
        lines = [f"REQUIRED {fault}" for fault in self._faults()]
        if config.getoption("--report-not-run"):
            lines += [self._table[name].not_run for name in sorted(self.not_run)]
            lines += [LONG_NOT_RUN] if LONG in self.left_out else []
        for line in lines:
            config.get_terminal_writer().line(line)

    def _faults(self) -> Iterator[str]:
        if not self.required:
            return
        for name in sorted(self.required):
            if name in self.absent:
                yield f"{name}: {self._table[name].missing}; {self._table[name].remedy}"
            elif not self._ran[name]:
                yield f"{name}: no test of this suite ran"
        for what, count in sorted(self._not_whole.items()):
            yield f"all: {count} {what}{'s' if count > 1 else ''}; nothing may be left out here"
