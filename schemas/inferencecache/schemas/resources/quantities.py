"""Amounts of resources as Kubernetes objects spell them: `500m`, `8Gi`, `1e3`, `4294967296` [CRD-14]."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

GIBI: Final = 2**30

_NUMBER: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?",
    re.ASCII,
)
_FACTORS: Final = {
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k"), start=-3)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("MGTPE", start=2)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_LONGEST: Final = 128
_GREATEST_EXPONENT: Final = 99
"""Far beyond what any resource has; a greater one would only cost memory."""


def parse_quantity(value: str | int) -> Fraction:
    """The exact amount. Raises ValueError that says what to write."""
    if isinstance(value, int):
        return Fraction(value)
    found = _NUMBER.fullmatch(value) if len(value) <= _LONGEST else None
    if found is None or not (found["whole"] or found["part"]):
        raise ValueError(
            f"{value[:_LONGEST]!r} is not a quantity; write a number with a unit, as in 500m or 8Gi"
        )
    digits = (found["whole"] or "") + (found["part"] or "")
    amount = Fraction(int(digits), 10 ** len(found["part"] or ""))
    return (-amount if found["sign"] == "-" else amount) * _factor(value, found["suffix"] or "")


def _factor(value: str, suffix: str) -> Fraction:
    if suffix in _FACTORS:
        return _FACTORS[suffix]
    exponent = int(suffix[1:])
    if abs(exponent) > _GREATEST_EXPONENT:
        raise ValueError(f"{value!r} is out of range; write a number with a unit, as in 500m or 8Gi")
    return Fraction(10) ** exponent
