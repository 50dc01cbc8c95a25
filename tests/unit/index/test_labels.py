"""Labels are ordered as the names they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferencecache.core.index.labels import Labels

names = st.tuples(st.text(max_size=2))


@given(st.lists(names))
def test_labels_have_the_order_of_their_names(taken: list[tuple[str]]) -> None:
    labels = Labels()
    for name in taken:
        labels.take(name)
    assert sorted(set(taken)) == sorted(set(taken), key=labels.__getitem__)
    assert len({labels[name] for name in taken}) == len(set(taken))


def test_names_in_one_gap_make_all_labels_change_now_and_then() -> None:
    labels = Labels()
    labels.take(("",))
    labels.take(("z",))
    changed = 0
    for length in range(1, 101):
        before = labels["",], labels["z",]
        if labels.take(("a" * length,)):
            changed += 1
        else:
            assert (labels["",], labels["z",]) == before
    assert 1 <= changed <= 4


def test_a_name_is_known_while_it_is_used() -> None:
    labels = Labels()
    labels.take(("a",))
    labels.take(("a",))
    labels.give_back(("a",))
    assert labels["a",] == 0
    labels.give_back(("a",))
    labels.take(("b",))
    assert labels["b",] == 0
