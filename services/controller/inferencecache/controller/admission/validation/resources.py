"""Requests and limits of a container, as the API server judges them in a Pod [ADM-71..79]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

from inferencecache.controller.admission.validation.storage import is_subdomain
from inferencecache.core.kube.backends import section
from inferencecache.schemas.resources import Violation
from inferencecache.schemas.resources.quantities import parse_quantity

LIMIT_BELOW_REQUEST: Final = "must not be less than the request"
_OVERCOMMITTABLE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_HUGE_PAGES: Final = "hugepages-"
_KUBERNETES: Final = ("kubernetes.io", "requests.kubernetes.io")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def amount_of(resources: dict[str, Any] | None, side: str, name: str) -> Fraction | None:
    """One entry of `requests` or `limits`; None when it is not there."""
    value = (section(resources, side) or {}).get(name)
    return None if value is None else parse_quantity(value)


def resource_violations(
    resources: dict[str, Any], root: str, *, name_errors_alone: bool = False
) -> Iterator[Violation]:
    """`root` is the path of `resources`. With `name_errors_alone` an entry with a bad name is told that
    and nothing else about its amount [ADM-79].
    """
    requests, limits = section(resources, "requests") or {}, section(resources, "limits") or {}
    yield from _of_pairs(resources, root)
    if resources.get("claims"):
        yield Violation("Forbidden", f"{root}.claims", "resource claims are not supported here; remove them")
    for side, amounts in (("requests", requests), ("limits", limits)):
        for name, value in amounts.items():
            if value is not None:
                found = _of_entry(name, parse_quantity(value), name_errors_alone)
                yield from (Violation("Invalid", f"{root}.{side}[{name}]", problem) for problem in found)


def _of_pairs(resources: dict[str, Any], root: str) -> Iterator[Violation]:
    for name in section(resources, "requests") or {}:
        request, limit = (amount_of(resources, side, name) for side in ("requests", "limits"))
        if request is None:
            continue
        if name in _OVERCOMMITTABLE:
            if limit is not None and limit < request:
                yield Violation("Invalid", f"{root}.limits[{name}]", LIMIT_BELOW_REQUEST)
        elif limit is None:
            problem = f"{name} cannot be overcommitted: it must be in limits too, with the same amount"
            yield Violation("Invalid", f"{root}.requests[{name}]", problem)
        elif limit != request:
            problem = f"{name} cannot be overcommitted: limit and request must be equal"
            yield Violation("Invalid", f"{root}.limits[{name}]", problem)


def _of_entry(name: str, amount: Fraction, name_errors_alone: bool) -> Iterator[str]:
    page = _page_size(name)
    known = name in _OVERCOMMITTABLE or page is not None or _is_extended(name)
    if not known:
        yield (
            "is no resource of a container: write cpu, memory, ephemeral-storage, hugepages-<size>, or a "
            "name with its vendor's prefix"
        )
        if name_errors_alone:
            return
    if amount < 0:
        yield "must not be negative"
    if _is_extended(name) and amount.denominator != 1:
        yield "must be a whole number"
    if page is not None and amount > 0 and (amount / page).denominator != 1:
        yield f"must be a multiple of the page size {name.removeprefix(_HUGE_PAGES)}"


def _page_size(name: str) -> Fraction | None:
    if not name.startswith(_HUGE_PAGES):
        return None
    try:
        size = parse_quantity(name.removeprefix(_HUGE_PAGES))
    except ValueError:
        return None
    return size if size > 0 else None


def _is_extended(name: str) -> bool:
    prefix, slash, _ = name.partition("/")
    return bool(slash) and prefix not in _KUBERNETES and is_qualified_name(name)


def is_qualified_name(name: str) -> bool:
    """Whether a text is `name` or `prefix/name`, the prefix a DNS subdomain, as keys of labels are."""
    prefix, slash, rest = name.rpartition("/")
    return (not slash or is_subdomain(prefix)) and _NAME.fullmatch(rest) is not None
