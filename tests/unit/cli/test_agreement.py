"""Routers are compared where they say they stand at the same delta, and nowhere else."""

from __future__ import annotations

from inferencecache.cli.agreement import Agreement
from inferencecache.schemas.digests import digest_text
from inferencecache.schemas.ids import LogEpoch
from inferencecache.schemas.members import RouterMember, ViewedPartition


def router(id_: str, delta: int, digest: int | None, epoch: str = "e", generation: int = 1) -> RouterMember:
    text = digest_text(digest) if digest is not None else None
    view = ViewedPartition(LogEpoch(epoch), delta, digest=text)
    return RouterMember(id_, partitions={"1.0": view}, generation=generation)


def heard(*members: RouterMember) -> tuple[int, int]:
    agreement = Agreement()
    for member in members:
        agreement.hear(member)
    return agreement.compared, agreement.different


def test_equal_digests_at_one_delta_agree() -> None:
    assert heard(router("a", 5, 77), router("b", 5, 77)) == (1, 0)


def test_other_digests_at_one_delta_differ() -> None:
    assert heard(router("a", 5, 77), router("b", 5, 78)) == (1, 1)


def test_other_deltas_and_other_log_epochs_are_not_compared() -> None:
    assert heard(router("a", 5, 77), router("b", 6, 78), router("b", 5, 78, epoch="f")) == (0, 0)


def test_a_router_is_not_compared_with_itself() -> None:
    assert heard(router("a", 5, 77), router("a", 5, 77)) == (0, 0)


def test_empty_views_and_views_without_a_digest_prove_nothing() -> None:
    assert heard(router("a", 5, 0), router("b", 5, 0)) == (0, 0)
    assert heard(router("a", 5, None), router("b", 5, 77)) == (0, 0)


def test_views_that_are_still_being_built_are_not_compared() -> None:
    assert heard(router("a", 5, 77), router("b", 5, 78, generation=2)) == (0, 0)


def test_a_disagreement_names_the_routers_and_the_delta() -> None:
    agreement = Agreement()
    agreement.hear(router("a", 5, 77))
    agreement.hear(router("b", 5, 78))
    assert [*agreement.disagreements] == [("1.0", 5, ("a", "b"))]
