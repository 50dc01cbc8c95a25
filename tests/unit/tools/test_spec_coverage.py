from __future__ import annotations

import pytest

from tools.spec_coverage import BadCitationError, Citation, cited, page, read_chapters

CHAPTERS = read_chapters("# about\n\nIndex:\nIDX-01\nIDX-02\nIDX-W1\n\nWire:\nWIRE-001\n")
SOURCE = """
import pytest
rule = pytest.mark.rule
CASES = [pytest.param(1, marks=rule("IDX-01"))]

@rule("IDX-02", "IDX-W1")
@pytest.mark.parametrize("x", [1, 2])
def test_one(x): ...

class TestTwo:
    @pytest.mark.rule("WIRE-001")
    def test_three(self): ...
"""


def test_citations_are_found_at_tests_classes_and_parameters() -> None:
    assert list(cited(SOURCE, "tests/t.py")) == [
        Citation("tests/t.py", "IDX-01"),
        Citation("tests/t.py::test_one", "IDX-02"),
        Citation("tests/t.py::test_one", "IDX-W1"),
        Citation("tests/t.py::TestTwo", "WIRE-001"),
    ]


def test_the_page_says_of_every_rule_who_states_it_or_why_nobody() -> None:
    text = page(CHAPTERS, [Citation("tests/t.py::test_one", "IDX-02")], {"IDX-01": "a principle"})
    assert "- **IDX-01** no test: a principle\n- **IDX-02** `t.py::test_one`\n- **IDX-W1** not yet\n" in text
    assert "| Index | 3 | 1 | 1 | 1 |" in text
    assert "| Wire | 1 | 0 | 0 | 1 |" in text


def test_a_citation_of_no_rule_is_refused() -> None:
    with pytest.raises(BadCitationError, match="IDX-99"):
        page(CHAPTERS, [Citation("tests/t.py", "IDX-99")], {})


def test_a_reason_for_a_rule_that_a_test_states_is_refused() -> None:
    with pytest.raises(BadCitationError, match="IDX-01"):
        page(CHAPTERS, [Citation("tests/t.py", "IDX-01")], {"IDX-01": "no longer true"})
