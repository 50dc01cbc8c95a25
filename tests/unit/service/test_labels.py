"""Names that callers choose become a bounded number of labels."""

from __future__ import annotations

from inferencecache.core.service import MOST_NAMES, OTHER, LabelNames


def test_the_first_thousand_names_are_labels_for_good_and_the_rest_share_one() -> None:
    names = LabelNames()
    assert [names.label(str(number)) for number in range(MOST_NAMES)] == list(map(str, range(MOST_NAMES)))
    assert names.label("one more") == OTHER
    assert "one more" not in names
    assert names.label("7") == "7"
    assert len(list(names)) == MOST_NAMES


def test_a_name_may_be_that_of_the_rest() -> None:
    names = LabelNames()
    assert names.label(OTHER) == OTHER
    assert list(names) == [OTHER]
