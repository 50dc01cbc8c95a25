"""Which tests run beside each other: with several workers, whole systems take turns on one of them.

A system is a dozen processes, and two at a time on a small machine would test the machine; those of tests
that look at what commands say, and not at times, take turns of their own beside them. Whoever uses the one
API server of a run keeps to one worker, too. Everything else is spread over all workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS: Final = Path(__file__).parents[1]
SYSTEMS: Final = "systems"
KUBE: Final = "kube"
COMMANDS: Final = "commands"
GROUPS: Final[Mapping[str, str]] = {
    "cluster": SYSTEMS,
    "compose": SYSTEMS,
    "docs/test_running.py": COMMANDS,
    "engines": SYSTEMS,
    "faults": SYSTEMS,
    "integration/benchmarks": SYSTEMS,
    "integration/cli": COMMANDS,
    "integration/demo": SYSTEMS,
    "integration/doctor": COMMANDS,
    "integration/gateway": SYSTEMS,
    "integration/nats_roles": COMMANDS,
    "integration/privacy": COMMANDS,
    "integration/tracing": COMMANDS,
    "kube": KUBE,
    "prometheus": SYSTEMS,
    "simulation": "simulation",  # it has workers of its own
    "soak": SYSTEMS,
}
"""By file or folder of tests; below a folder counts too."""


def group_of(path: Path) -> str:
    """The group of a test file, empty for one that runs anywhere."""
    below = path.relative_to(TESTS) if path.is_relative_to(TESTS) else Path()
    return next((GROUPS[str(each)] for each in (below, *below.parents) if str(each) in GROUPS), "")


class Turns(LoadScopeScheduling):  # type: ignore[misc] # the package has no annotations
    """Every group goes to one worker as a whole, the largest first; a test of no group to whoever is free.

    Marks for `--dist loadgroup` have no effect with this pytest, whose items do not change their ids.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(TESTS.parent / nodeid.partition("::")[0]) or nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Turns:
    return Turns(config, log)
