"""Do all routers answer from views that are young, and equal where two can be compared?

Only the generation by which a router answers counts: the views of a newer one are still being built.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inferencecache.cli.doctor.facts import BusFacts, RouterFacts
from inferencecache.cli.doctor.findings import Finding, found
from inferencecache.schemas.members import RouterMember

MOST_AGE_S: Final = 5.0


def check_routers(facts: BusFacts) -> Iterator[Finding]:
    """Nothing where NATS was not reached, which the aggregate's check says."""
    seen = facts.routers
    if not isinstance(seen, RouterFacts):
        return
    if not seen.routers:
        yield found("RT001", facts.address, "no router has said lately that it is there")
        return
    findings = [
        found("RT002", f"router {router.id}", problem)
        for router in seen.routers
        if (problem := _problem_of(router))
    ]
    for each in seen.disagreements:
        one, other = each.routers
        where = f"at delta {each.delta} of partition {each.partition}"
        findings.append(found("RT003", f"router {other}", f"its view is not that of router {one} {where}"))
    compared = f"{seen.compared} views were compared" if seen.compared else "no two views could be compared"
    said = f"{len(seen.routers)} routers answer from young views; {compared}"
    yield from findings or [found("RT004", facts.address, said)]


def _problem_of(router: RouterMember) -> str:
    if not router.generation:
        return "it has no layout to answer by yet"
    views = router.served
    incomplete = sorted(key for key, view in views.items() if not view.complete)
    if incomplete:
        return f"its view of partition {', '.join(incomplete)} is not complete"
    oldest = max(views, key=lambda key: views[key].age_s, default="")
    if oldest and views[oldest].age_s > MOST_AGE_S:
        return f"its view of partition {oldest} is {views[oldest].age_s:.0f} s old"
    return ""
