"""Checks of a router, of the log, and of what the routers make of it."""

from __future__ import annotations

from typing import Any

import pytest

from inferencecache.cli.agreement import Disagreement
from inferencecache.cli.doctor.checks import judge
from inferencecache.cli.doctor.checks.bus import check_aggregate, check_policy, check_probe
from inferencecache.cli.doctor.checks.routers import check_routers
from inferencecache.cli.doctor.checks.server import check_server
from inferencecache.cli.doctor.checks.streams import check_streams
from inferencecache.cli.doctor.facts import (
    AggregateFacts,
    Counted,
    Facts,
    Health,
    LogFacts,
    PolicyFacts,
    ProbeAnswer,
    Refused,
    RouterFacts,
    ServerFacts,
    StreamFacts,
    Unreachable,
    Unreadable,
)
from inferencecache.cli.owners import Owner
from inferencecache.core.log.assets import Drift
from inferencecache.core.policy import encode_policy_set
from inferencecache.schemas.ids import LogEpoch
from inferencecache.schemas.members import ViewedPartition
from inferencecache.schemas.policy import PolicySet, ResolvedPolicy
from tests.support.doctor_facts import bus, codes, kube, router

GONE, DENIED, ODD = Unreachable("gone"), Refused("denied"), Unreadable("odd")
VIEW = router().partitions["1.0"]


@pytest.mark.rule("OPS-81")
@pytest.mark.parametrize(
    ("health", "code"),
    [(GONE, "SV001"), (Health("NOT_SERVING"), "SV002"), (Health("SERVING"), "SV003")],
)
def test_a_router_serves_or_says_what_it_does(health: Health | Unreachable, code: str) -> None:
    (finding,) = check_server(ServerFacts("host:9090", health))
    assert (finding.code, finding.resource) == (code, "host:9090")
    assert code != "SV002" or "NOT_SERVING" in finding.message


@pytest.mark.rule("OPS-W33", "OPS-76")
def test_without_an_address_the_rest_still_runs() -> None:
    server = ServerFacts("", Unreachable("no Service inference-cache-server; give --server-endpoint"))
    report = judge(Facts(server=server, kube=kube()))
    assert codes(report.findings) == ["SV001", "CB006", "EP002", "CP002"]
    assert report.exit_code == 2


@pytest.mark.rule("OPS-81", "OPS-92")
def test_counts_are_complete_fresh_and_readable() -> None:
    def of(**partitions: Counted | None) -> list[str]:
        return codes([*check_aggregate(bus(aggregate=AggregateFacts(partitions)))])

    assert of(a=Counted(14.9), b=Counted(0)) == ["SN004"]
    assert of(a=Counted(15), b=Counted(0)) == ["SN002"]
    assert of(a=None) == ["SN002"]
    assert of(a=Counted(0, "no JSON")) == ["SN002"]
    for outcome, code in ((GONE, "SN001"), (ODD, "SN002"), (DENIED, "SN005")):
        assert codes([*check_aggregate(bus(aggregate=AggregateFacts(outcome)))]) == [code]


@pytest.mark.rule("OPS-W32")
def test_counts_that_anybody_may_read_are_told_besides() -> None:
    open_to_all = AggregateFacts({"1.0": Counted(0)}, with_credentials=False)
    report = judge(Facts(bus=bus(aggregate=open_to_all)))
    assert codes(report.findings)[:2] == ["SN004", "SN003"]
    assert report.exit_code == 0


@pytest.mark.rule("OPS-W31", "OPS-92")
def test_what_is_refused_is_there() -> None:
    facts = bus(aggregate=AggregateFacts(DENIED), policy=DENIED, probe=ODD, log=DENIED, routers=DENIED)
    report = judge(Facts(bus=facts))
    assert codes(report.findings) == ["SN005", "PL002", "PB003"]
    assert report.exit_code == 1


@pytest.mark.rule("OPS-81", "OPS-92")
def test_the_policy_set_is_what_the_cluster_says_and_every_router_runs() -> None:
    value = encode_policy_set(PolicySet(policies=(ResolvedPolicy("team-a"),)))
    empty = encode_policy_set(PolicySet())

    def of(policy: PolicyFacts) -> list[str]:
        return codes([*check_policy(bus(policy=policy))])

    assert of(PolicyFacts(None)) == ["PL002"]
    assert of(PolicyFacts(value, 3, value, (router(policy_revision=3),))) == ["PL002"]
    assert of(PolicyFacts(value, 3, routers=(router(policy_revision=2),))) == ["PL003"]
    assert of(PolicyFacts(value, 3, wanted=empty)) == ["PL003"]
    assert of(PolicyFacts(None, wanted=value)) == ["PL003"]
    assert of(PolicyFacts(b"{}", 3)) == ["PL003"]
    for outcome, code in ((GONE, "PL001"), (DENIED, "PL002"), (ODD, "PL003")):
        assert codes([*check_policy(bus(policy=outcome))]) == [code]


@pytest.mark.rule("OPS-81", "OPS-92")
def test_a_router_that_answers_the_probe_is_named() -> None:
    (fine,) = check_probe(bus(probe=ProbeAnswer("r7")))
    assert (fine.code, "r7" in fine.message) == ("PB002", True)
    for outcome, code in ((GONE, "PB001"), (DENIED, "PB002"), (ODD, "PB003")):
        assert codes([*check_probe(bus(probe=outcome))]) == [code]


def stream(**changed: Any) -> StreamFacts:
    return StreamFacts("IC_EVENTS_1_0", True, 86400, 1)._replace(**changed)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (stream(), "JS005"),
        (stream(is_there=False), "JS001"),
        (stream(max_age_s=3600, drifts=(Drift("IC_EVENTS_1_0", "max_age", 1, 2),)), "JS002"),
        (stream(max_age_s=172800, drifts=(Drift("IC_EVENTS_1_0", "max_age", 1, 2),)), "JS006"),
        (stream(copies=1, drifts=(Drift("IC_EVENTS_1_0", "num_replicas", 3, 1),)), "JS003"),
        (stream(copies=3, drifts=(Drift("IC_EVENTS_1_0", "num_replicas", 1, 3),)), "JS005"),
        (stream(drifts=(Drift("IC_EVENTS_1_0", "compression", "s2", "none"),)), "JS006"),
    ],
)
def test_a_stream_is_there_safe_and_as_declared(seen: StreamFacts, code: str) -> None:
    (finding,) = check_streams(bus(log=LogFacts((seen,), (Owner("1.0", "ix"),))))
    assert finding.code == code


@pytest.mark.parametrize(
    ("owner", "code"),
    [
        (Owner("1.0", "ix", 5.0), "JS005"),
        (Owner("1.0", "ix", 5.1), "JS004"),
        (Owner("1.0", ""), "JS004"),
    ],
)
def test_a_partition_has_an_owner_that_folds_in_time(owner: Owner, code: str) -> None:
    (finding,) = check_streams(bus(log=LogFacts((stream(),), (owner,))))
    assert finding.code == code


def test_what_streams_reserve_is_told() -> None:
    log = LogFacts((stream(reserved_bytes=2**30),), (), store_bytes=2**33)
    (finding,) = check_streams(bus(log=log))
    assert "1.0 of 8.0 GiB" in finding.message


def test_routers_answer_from_young_complete_and_equal_views() -> None:
    def of(*routers: object, **more: object) -> list[str]:
        return codes([*check_routers(bus(routers=RouterFacts(tuple(routers), **more)))])  # type: ignore[arg-type]

    old = ViewedPartition(LogEpoch("e"), 5, 1, VIEW.digest, 5.1, complete=True)
    unfinished = ViewedPartition(LogEpoch("e"), 5, 1, None, 0.1)
    assert of() == ["RT001"]
    assert of(router(), compared=3) == ["RT004"]
    assert of(router(partitions={"1.0": old})) == ["RT002"]
    assert of(router(partitions={"1.0": unfinished})) == ["RT002"]
    assert of(router(), disagreements=(Disagreement("1.0", 5, ("r1", "r2")),)) == ["RT003"]


def test_views_of_a_generation_that_does_not_answer_yet_are_passed_over() -> None:
    building = ViewedPartition(LogEpoch(""), 0, 0, None, 99.0)
    facts = RouterFacts((router(partitions={"1.0": VIEW, "2.0": building}),))
    assert codes([*check_routers(bus(routers=facts))]) == ["RT004"]
