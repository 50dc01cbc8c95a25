"""Values of command lines that several tools take."""

from __future__ import annotations

import argparse
import math


def positive(text: str) -> float:
    """A finite number above 0. Raises `ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return value
