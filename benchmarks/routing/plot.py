"""A picture of a run: for each case the cached share and the time to first token, by policy and minute."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from benchmarks.routing.figures import RunFigures
from benchmarks.routing.report import case_name

COLOURS: Final = {
    "round robin": "#999999",
    "least outstanding": "#4477aa",
    "plain": "#ccbb44",
    "balanced": "#228833",
}
INCHES: Final = (11.0, 3.6)
DOTS_AN_INCH: Final = 110


def draw(run: RunFigures, path: Path) -> None:
    """Write the picture as PNG."""
    figure = Figure(figsize=(INCHES[0], INCHES[1] * len(run.cases)), layout="constrained")
    axes = figure.subplots(len(run.cases), 2, squeeze=False)
    for (shares, times), case in zip(axes, run.cases, strict=True):
        for policy in case.policies:
            minutes = range(1, len(policy.cached_by_minute) + 1)
            style = {"label": policy.policy, "color": COLOURS.get(policy.policy)}
            shares.plot(minutes, [100 * share for share in policy.cached_by_minute], **style)
            times.plot(minutes, policy.ttft_by_minute, **style)
        shares.axhline(100 * case.ceiling, color="black", linestyle=":", label="one unbounded cache, in all")
        shares.set(title=case_name(case), xlabel="minute of the trace", ylabel="prompt blocks from cache, %")
        shares.set_ylim(bottom=0)
        times.set(title="time to first token", xlabel="minute of the trace", ylabel="mean, s", yscale="log")
        shares.legend(fontsize="small")
    figure.savefig(path, dpi=DOTS_AN_INCH)
