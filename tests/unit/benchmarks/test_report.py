"""What was measured is counted, shown and documented."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.routing.documented import BEGIN, END, PAGE, NoPlaceError, with_figures
from benchmarks.routing.engine import Engine
from benchmarks.routing.figures import UNREACHABLE, Account, CaseFigures, Delays, RunFigures, delays, skew
from benchmarks.routing.plot import draw
from benchmarks.routing.report import bars, conditions, table
from benchmarks.routing.trace import Request


def account() -> Account:
    """Two engines; the first serves three prompts, the second none."""
    engines = [Engine("a", 10, 1000), Engine("b", 10, 1000)]
    account = Account("balanced", engines)
    for at_s, blocks in ((0.0, (1, 2)), (61.0, (1, 2)), (62.0, (3,))):
        request = Request(at_s, 512 * len(blocks), blocks)
        account.count(request, engines[0].serve(request, at_s))
    account.reasons["PREFIX_MATCH"] += 3
    return account


def run() -> RunFigures:
    visible = Delays(10, 12.4, 80.0)
    case = CaseFigures("conversation", "mooncake", 2, 10, 1000.0, 3, 62.0, 0.4, (account().figures(),))
    cases = (
        msgspec.structs.replace(case, visible=visible),
        msgspec.structs.replace(case, source="generated"),
    )
    return RunFigures("2030-01-01", 10.0, 600.0, "spread", "fresh", 3, 2, 1.0, cases)


def test_an_account_counts_shares_times_skew_and_minutes() -> None:
    figures = account().figures()
    assert (figures.requests, figures.cached_share) == (3, 2 / 5)
    assert figures.mean_ttft_s == pytest.approx((1.024 + 0 + 0.512) / 3)
    assert figures.p99_ttft_s == pytest.approx(1.024)
    assert (figures.skew, figures.request_skew) == (2.0, 2.0)
    assert figures.cached_by_minute == (0.0, 2 / 3)
    assert figures.ttft_by_minute == pytest.approx((1.024, 0.256))
    assert figures.reasons == {"PREFIX_MATCH": 3}


def test_skew_is_1_when_all_did_the_same_or_nothing() -> None:
    assert (skew([3, 3]), skew([0, 0]), skew([1, 3])) == (1.0, 1.0, 1.5)


def test_delays_are_summed_up_in_milliseconds() -> None:
    assert delays([0.001, 0.002, 0.010], never=1) == Delays(3, 2.0, 10.0, 1)
    assert delays([]) == Delays()


def test_the_table_has_a_row_for_each_policy_and_the_ceiling() -> None:
    lines = table(run()).splitlines()
    assert lines[2] == "| conversation, 2, 10, 1000 | balanced | 40.0 % | 0.51 | 1.0 | 2.00 |"
    assert lines[3] == "|  | one unbounded cache (ceiling) | 40.0 % |  |  |  |"
    assert lines[4].startswith("| conversation (generated), 2, 10, 1000 |")
    assert "12 ms median, 80 ms p99" in conditions(run())
    assert "the first 10 minutes" in conditions(run())
    assert "cached  40.0 %" in bars(run())


def test_figures_of_a_machine_that_was_too_busy_say_so() -> None:
    assert "too busy" not in conditions(run())
    late = [msgspec.structs.replace(case, late=Delays(9, 1.0, 250.0)) for case in run().cases]
    assert "250 ms late" in conditions(msgspec.structs.replace(run(), cases=tuple(late)))


def test_lookups_that_no_router_answered_are_told() -> None:
    assert "No router" not in conditions(run())
    policy = msgspec.structs.replace(account().figures(), reasons={"PREFIX_MATCH": 3, UNREACHABLE: 2})
    case = msgspec.structs.replace(run().cases[0], policies=(policy, policy), lookups=Delays(9, 2.5, 12.4))
    told = conditions(msgspec.structs.replace(run(), cases=(case,)))
    assert "A lookup took 2.5 and 12.4 ms" in told
    assert "No router answered 4 lookups" in told


def test_figures_take_the_place_of_earlier_ones_on_the_page() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_figures(page, run(), picture=True)
    assert "old" not in once
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert table(run()) in once
    assert "images/routing.png" in once
    assert with_figures(once, run(), picture=True) == once
    rounded = msgspec.structs.replace(run(), arrivals="rounded")
    both = with_figures(once, run(), rounded, picture=True)
    assert both.index("arrivals spread") < both.index("arrivals rounded")
    with pytest.raises(NoPlaceError, match=r"performance\.md"):
        with_figures("no place", run(), picture=False)


def test_the_documentation_has_the_place() -> None:
    assert with_figures(PAGE.read_text(), run(), picture=False)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    draw(run(), tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
