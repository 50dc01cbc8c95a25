"""Makes the reference of alerts from the rules that ship."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from tools.alerts import RULES
from tools.docs.tables import cell

_LABEL: Final = re.compile(r"{{ \$labels\.(\w+) }}")
_INTRODUCTION: Final = """\
# Alerts

The rules of [`rules.yaml`](../../deploy/base/observability/rules.yaml), which Prometheus reads as they are,
and the Prometheus operator as
[`prometheus-rule.yaml`](../../deploy/base/observability/prometheus-rule.yaml). What to do about each is in
the [runbooks](../runbooks.md).
"""


def alerts() -> list[dict[str, Any]]:
    """The rules as they stand in the file."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts_page() -> dict[str, str]:
    """One page, a part for each alert."""
    lines = [_INTRODUCTION]
    for rule in alerts():
        name = rule["alert"]
        lines += [
            f"## {name}",
            "",
            cell(_LABEL.sub(r"*\1*", rule["annotations"]["summary"])),
            "",
            f"**{rule['labels']['severity']}**, after {rule['for']}: [steps](../runbooks.md#{name.lower()}).",
            "",
            "```promql",
            rule["expr"].strip(),
            "```",
            "",
        ]
    return {"alerts.md": "\n".join([*lines, "Written by `make generate` from the rules.", ""])}
