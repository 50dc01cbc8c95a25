"""Draws the diagrams of the documentation as SVG."""

from __future__ import annotations

from html import escape
from typing import Final

BOX: Final = "#e0f2f1"
STORE: Final = "#fff3e0"
PLAIN: Final = "#eceff1"
_STYLE: Final = (
    "text{font:14px sans-serif;fill:#263238;text-anchor:middle}"
    "text.small{font-size:12px;fill:#546e7a}"
    "rect{stroke:#546e7a;rx:6px}"
    "line{stroke:#37474f;stroke-width:1.5;marker-end:url(#tip)}"
)
_TIP: Final = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#37474f"/></marker>'
)


class Drawing:
    """Boxes and arrows on a light ground, in pixels from the upper left corner."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style><defs>{_TIP}</defs>",
            f'<path d="M0 0h{width}v{height}h-{width}z" fill="#fff"/>',
        ]

    def box(self, x: int, y: int, width: int, height: int, *lines: str, fill: str = BOX) -> None:
        """A box with its first line large and the others small."""
        self._parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>')
        top = y + height / 2 - 8 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 17 * number, line, small=number > 0)

    def text(self, x: float, y: float, line: str, *, small: bool = True) -> None:
        """A line, centred."""
        kind = ' class="small"' if small else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{kind}>{escape(line)}</text>')

    def arrow(self, x1: int, y1: int, x2: int, y2: int, line: str = "") -> None:
        """An arrow, with words above its middle."""
        self._parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
        if line:
            self.text((x1 + x2) / 2, (y1 + y2) / 2 - 6, line)

    def svg(self) -> str:
        """The whole file."""
        return "\n".join([*self._parts, "</svg>", ""])


def architecture() -> str:
    """Who sends what to whom."""
    drawing = Drawing(900, 390, "Sidecars append to the log, indexers fold it, routers answer from it")
    for number, y in enumerate((40, 120, 200)):
        drawing.box(20, y, 110, 50, f"engine {number + 1}", fill=PLAIN)
        drawing.box(200, y, 110, 50, "sidecar")
        drawing.arrow(130, y + 25, 200, y + 25, "ZMQ")
        drawing.arrow(310, y + 25, 385, 85 + 40 * number)
    drawing.box(385, 40, 140, 210, "JetStream", "events", "deltas", "snapshots", "small buckets", fill=STORE)
    drawing.box(385, 310, 140, 50, "indexers", "own partitions")
    drawing.arrow(430, 250, 430, 310)
    drawing.text(400, 285, "events")
    drawing.arrow(480, 310, 480, 250)
    drawing.text(517, 280, "deltas,")
    drawing.text(517, 297, "snapshots")
    for y in (60, 160):
        drawing.box(620, y, 110, 50, "router", "a view of all")
        drawing.arrow(525, y + 25, 620, y + 25, "deltas")
        drawing.box(790, y, 90, 50, "gateway", fill=PLAIN)
        drawing.arrow(790, y + 25, 730, y + 25, "gRPC")
    drawing.box(620, 290, 110, 70, "controller", "policies in,", "status out")
    drawing.arrow(620, 310, 525, 225)
    drawing.box(785, 300, 100, 50, "Kubernetes", fill=PLAIN)
    drawing.arrow(730, 325, 785, 325)
    return drawing.svg()


def log() -> str:
    """From an event to a hint."""
    drawing = Drawing(900, 210, "From an engine's event to a router's view")
    steps = (
        ("engine", "stores blocks", PLAIN),
        ("sidecar", "batches, 20 ms", BOX),
        ("events stream", "in order, for 24 h", STORE),
        ("owner", "folds, in log time", BOX),
        ("deltas stream", "each 10 ms", STORE),
        ("router", "answers", BOX),
    )
    for number, (name, about, fill) in enumerate(steps):
        x = 15 + 148 * number
        drawing.box(x, 40, 130, 54, name, about, fill=fill)
        if number:
            drawing.arrow(x - 18, 67, x, 67)
    drawing.box(459, 140, 130, 50, "snapshots", "verified", fill=STORE)
    drawing.arrow(524, 94, 524, 140)
    drawing.arrow(589, 165, 805, 94)
    drawing.text(735, 150, "a starting router")
    drawing.arrow(459, 165, 376, 94)
    drawing.text(322, 150, "each names its place in the log")
    return drawing.svg()


def fingerprint() -> str:
    """Blocks and the hashes of what ends in them."""
    drawing = Drawing(900, 200, "Each hash names the whole prefix that ends in its block")
    for number in range(4):
        x = 40 + 200 * number
        drawing.box(x, 30, 170, 40, f"tokens {16 * number + 1} to {16 * number + 16}", fill=PLAIN)
        drawing.arrow(x + 85, 70, x + 85, 115)
        drawing.box(x, 115, 170, 50, f"hash {number + 1}", f"names tokens 1 to {16 * number + 16}")
        if number:
            drawing.arrow(x - 30, 140, x, 140)
    return drawing.svg()


def diagrams() -> dict[str, str]:
    """Every diagram by file name."""
    return {"architecture.svg": architecture(), "log.svg": log(), "fingerprint.svg": fingerprint()}
