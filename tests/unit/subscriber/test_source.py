"""The order of one publisher's messages: gaps, replays, duplicates, and other processes in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferencecache.kvevent_subscriber.diary import Diary
from inferencecache.kvevent_subscriber.frames import END_OF_REPLAY, Frame, Reply, read_message, read_reply
from inferencecache.kvevent_subscriber.source import (
    ENGINE_SEND_MARK,
    KEPT_DIGESTS,
    MAX_HELD_MESSAGES,
    Action,
    Apply,
    AskReplay,
    Known,
    Lost,
    Restart,
    Source,
    StopReplay,
)

END = Reply(END_OF_REPLAY, b"")


def payload(number: int, process: str = "a") -> bytes:
    return f"{process}{number}".encode()


def live(number: int, process: str = "a") -> Frame:
    return Frame(payload(number, process), number)


def copy(number: int, process: str = "a") -> Reply:
    return Reply(number, payload(number, process))


def source(*, replays: bool = True) -> Source:
    return Source(Diary(), replays=replays, jitter=lambda: 0.0)


def started(*numbers: int, replays: bool = True) -> Source:
    """A source that is connected, found nothing to replay and received these."""
    machine = source(replays=replays)
    machine.connected(0.0, None)
    machine.reply(END, 0.0)
    for number in numbers:
        machine.message(live(number), 0.0)
    return machine


def told(actions: Iterable[Action]) -> list[str]:
    """Actions in short: payloads as they are, the rest by name."""
    short = []
    for action in actions:
        match action:
            case Apply(content):
                short.append(content.decode())
            case AskReplay(first):
                short.append(f"ask {first}")
            case Lost(messages):
                short.append(f"lost {messages}")
            case Restart():
                short.append("restart")
            case StopReplay():
                short.append("stop")
            case Known():
                short.append("known")
    return short


# ---------------------------------------------------------------------- frames


@pytest.mark.rule("SUB-012", "SUB-054")
def test_messages_and_replies_are_read_from_their_tail() -> None:
    seven = (7).to_bytes(8, "big")
    assert read_message([]) is None
    assert read_message([b"p"]) == Frame(b"p")
    assert read_message([seven, b"p"]) == Frame(b"p")
    assert read_message([b"t", seven, b"p"]) == Frame(b"p", 7)
    assert read_message([b"t", b"x", seven, b"p"]) == Frame(b"p", 7)
    assert read_message([b"t", b"\x07", b"p"]) == Frame(b"p", None, malformed=True)
    assert read_reply([b"", seven, b"p"]) == Reply(7, b"p")
    assert read_reply([b"", b"t", seven, b"p"]) == Reply(7, b"p")
    assert read_reply([b"", b"", b"\xff" * 8, b""]) == END
    for parts in ([], [b""], [b"", b"p"], [b"", b"short", b"p"]):
        assert read_reply(parts) is None


# ---------------------------------------------------------------------- start


@pytest.mark.rule("SUB-060", "SUB-061")
def test_at_the_first_connection_everything_is_asked_for_and_live_messages_wait() -> None:
    machine = source()
    assert told(machine.connected(0.0, None)) == ["ask 0"]
    assert told(machine.message(live(2), 0.1)) == []
    assert told(machine.reply(copy(0), 0.2)) == ["a0"]
    assert told(machine.reply(copy(1), 0.2)) == ["a1"]
    assert told(machine.reply(copy(2), 0.2)) == ["a2"]
    assert told(machine.message(live(3), 0.3)) == []
    assert told(machine.reply(END, 0.3)) == ["stop", "known", "a3"]
    assert machine.all_known


def test_a_message_before_the_news_of_its_connection_is_the_first_connection() -> None:
    machine = source()
    assert told(machine.message(live(5), 0.0)) == ["ask 0"]
    assert machine.connected(0.1, None) == []


@pytest.mark.rule("SUB-050", "SUB-061")
@pytest.mark.parametrize(("first", "known"), [(0, True), (3, False)])
def test_without_a_replay_the_first_message_decides_whether_everything_is_known(
    first: int, known: bool
) -> None:
    machine = source(replays=False)
    assert machine.connected(0.0, None) == []
    assert told(machine.message(live(first), 0.0)) == ([f"a{first}", "known"] if known else [f"a{first}"])
    assert machine.all_known == known


@pytest.mark.rule("SUB-060")
def test_everything_is_known_at_the_end_of_the_history_and_not_at_its_beginning() -> None:
    machine = source()
    machine.connected(0.0, None)
    machine.reply(copy(0), 0.0)
    assert not machine.all_known
    machine.reply(copy(1), 0.0)
    assert told(machine.reply(END, 0.0)) == ["stop", "known"]
    assert machine.all_known


def test_a_replay_that_was_cut_at_its_beginning_does_not_know_everything() -> None:
    machine = source()
    machine.connected(0.0, None)
    assert told(machine.reply(copy(4), 0.0)) == ["a4"]
    assert told(machine.reply(END, 0.0)) == ["stop"]
    assert not machine.all_known
    machine.cleared()
    assert machine.all_known


@pytest.mark.rule("SUB-058", "SUB-061")
def test_a_history_that_stops_midway_does_not_know_everything_until_its_rest_has_come() -> None:
    machine = source()
    machine.connected(0.0, None)
    assert told(machine.reply(copy(0), 0.0)) == ["a0"]
    assert told(machine.tick(2.0)) == ["stop"]
    assert not machine.all_known
    assert told(machine.message(live(1), 3.0)) == ["a1"]
    assert not machine.all_known
    assert told(machine.message(live(3), 4.0)) == ["ask 1"]
    assert told(machine.reply(copy(2), 4.0)) == ["a2"]
    assert told(machine.reply(END, 4.0)) == ["stop", "known", "a3"]
    assert machine.all_known


@pytest.mark.rule("SUB-062")
def test_messages_without_a_number_are_applied_as_they_come() -> None:
    machine = started(1)
    assert told(machine.message(Frame(b"bare"), 0.0)) == ["bare"]
    assert told(machine.message(live(2), 0.0)) == ["a2"]


# ---------------------------------------------------------------------- gaps


@pytest.mark.rule("SUB-W26", "SUB-055")
def test_w26_a_gap_is_filled_in_order_while_live_messages_wait() -> None:
    machine = started(0)
    assert told(machine.message(live(3), 1.0)) == ["ask 0"]
    assert told(machine.reply(copy(0), 1.0)) == []
    assert told(machine.reply(copy(1), 1.0)) == ["a1"]
    assert told(machine.message(live(4), 1.0)) == []
    assert told(machine.reply(copy(2), 1.0)) == ["a2"]
    assert told(machine.reply(copy(3), 1.0)) == ["a3"]
    assert told(machine.reply(END, 1.0)) == ["stop", "a4"]
    assert machine._diary.total("missed_messages") == 2
    assert machine._diary.total("duplicates") == 2
    assert machine._diary.total("unrecovered_messages") == 0


@pytest.mark.rule("SUB-W27", "SUB-055")
def test_w27_a_differing_copy_reveals_another_process() -> None:
    machine = started(5)
    assert told(machine.message(live(9, "b"), 1.0)) == ["ask 5"]
    assert told(machine.reply(copy(5, "b"), 1.0)) == ["restart", "b5"]
    for number in (6, 7, 8, 9):
        assert told(machine.reply(copy(number, "b"), 1.0)) == [f"b{number}"]
    assert told(machine.reply(END, 1.0)) == ["stop"]


@pytest.mark.rule("SUB-056")
def test_a_range_that_the_replay_does_not_bring_is_lost_and_not_asked_for_again() -> None:
    machine = started(0)
    machine.message(live(3), 1.0)
    machine.reply(copy(0), 1.0)
    machine.reply(copy(2), 1.0)
    assert told(machine.reply(copy(3), 1.0)) == ["a3"]
    assert told(machine.reply(END, 1.0)) == ["stop"]
    assert machine._diary.total("missed_messages") == 2
    assert machine._diary.total("unrecovered_messages") == 1
    assert not machine.all_known
    assert told(machine.message(live(4), 1.0)) == ["a4"]


def long_history(machine: Source) -> int:
    """Begin a replay long enough for an engine to have dropped some of it; answers the next number."""
    machine.connected(0.0, None)
    for number in range(ENGINE_SEND_MARK):
        machine.reply(copy(number), 0.0)
    return ENGINE_SEND_MARK


@pytest.mark.rule("SUB-236")
def test_what_an_engine_drops_from_a_long_replay_is_asked_for_again() -> None:
    machine = source()
    dropped = long_history(machine)
    last = dropped - 1
    assert told(machine.reply(copy(dropped + 1), 1.0)) == ["stop", f"ask {last}"]
    assert told(machine.reply(copy(last), 1.0)) == []
    assert told(machine.reply(copy(dropped), 1.0)) == [f"a{dropped}"]
    assert told(machine.reply(copy(dropped + 1), 1.0)) == [f"a{dropped + 1}"]
    assert told(machine.reply(END, 1.0)) == ["stop", "known"]
    assert machine._diary.total("missed_messages") == 0
    assert machine.all_known


@pytest.mark.rule("SUB-056", "SUB-236")
def test_what_is_missing_from_a_long_replay_again_is_lost() -> None:
    machine = source()
    burnt = long_history(machine)
    machine.reply(copy(burnt + 1), 1.0)
    assert told(machine.reply(copy(burnt - 1), 1.0)) == []
    assert told(machine.reply(copy(burnt + 1), 1.0)) == ["lost 1", f"a{burnt + 1}"]
    assert told(machine.reply(END, 1.0)) == ["stop"]
    assert machine._diary.total("unrecovered_messages") == 1
    assert not machine.all_known


@pytest.mark.rule("SUB-058", "SUB-236")
def test_an_end_that_an_engine_drops_from_a_long_replay_is_asked_for_again() -> None:
    machine = source()
    last = long_history(machine)
    machine.reply(copy(last), 1.0)
    assert told(machine.tick(3.0)) == ["stop", f"ask {last}"]
    assert told(machine.reply(copy(last), 3.0)) == []
    assert told(machine.reply(END, 3.0)) == ["stop", "known"]


@pytest.mark.rule("SUB-236")
def test_the_rest_of_a_long_replay_may_be_of_another_process() -> None:
    machine = source()
    dropped = long_history(machine)
    machine.reply(copy(dropped + 1), 1.0)
    assert told(machine.reply(copy(dropped - 1, "b"), 1.0)) == ["restart", f"b{dropped - 1}"]
    empty = source()
    dropped = long_history(empty)
    empty.reply(copy(dropped + 1), 1.0)
    assert told(empty.reply(END, 1.0)) == ["stop"]


@pytest.mark.rule("SUB-058", "SUB-236")
def test_a_long_replay_and_its_rest_end_after_half_a_minute_in_all() -> None:
    machine = source()
    last = long_history(machine)
    machine.reply(copy(last), 29.0)
    assert machine.wake_at() == 30.0
    machine.reply(copy(last + 2), 29.0)
    machine.reply(copy(last), 29.5)
    assert told(machine.tick(30.0)) == ["stop"]
    assert machine.wake_at() == 90.0


def test_a_gap_among_the_waiting_messages_is_asked_for_too() -> None:
    machine = started(0)
    machine.message(live(2), 1.0)
    machine.message(live(5), 1.0)
    for number in (0, 1, 2):
        machine.reply(copy(number), 1.0)
    assert told(machine.reply(END, 1.0)) == ["stop", "ask 2"]
    for number in (2, 3, 4, 5):
        machine.reply(copy(number), 1.0)
    machine.reply(END, 1.0)
    assert machine._diary.total("missed_messages") == 3
    assert machine._diary.total("unrecovered_messages") == 0


@pytest.mark.rule("SUB-058")
def test_a_silent_replay_socket_is_left_alone_for_a_minute() -> None:
    machine = started(0)
    assert told(machine.message(live(2), 10.0)) == ["ask 0"]
    assert machine.wake_at() == 12.0
    assert machine.tick(11.9) == []
    assert told(machine.tick(12.0)) == ["stop", "lost 1", "a2"]
    assert told(machine.message(live(4), 20.0)) == ["lost 1", "a4"]
    assert told(machine.message(live(6), 72.1)) == ["ask 4"]


@pytest.mark.rule("SUB-058")
def test_a_replay_ends_when_a_reply_is_late_or_after_half_a_minute() -> None:
    machine = started(0)
    machine.message(live(50), 0.0)
    machine.reply(copy(0), 1.5)
    assert machine.wake_at() == 3.5
    for number in range(1, 21):
        machine.reply(copy(number), 1.5 * number)
    assert machine.wake_at() == 30.0
    assert told(machine.tick(30.0)) == ["stop", "lost 29", "a50"]
    assert told(machine.message(live(52), 31.0)) == ["ask 50"]


@pytest.mark.rule("SUB-058", "SUB-060")
def test_the_history_of_an_engine_that_stays_idle_is_asked_for_again_after_a_minute() -> None:
    machine = source()
    machine.connected(0.0, None)
    assert told(machine.tick(2.0)) == ["stop"]
    assert machine.wake_at() == 62.0
    assert machine.tick(61.9) == []
    assert told(machine.tick(62.0)) == ["ask 0"]
    assert told(machine.tick(64.0)) == ["stop"]
    assert told(machine.tick(124.0)) == ["ask 0"]
    assert told([action for each in (copy(0), copy(1), END) for action in machine.reply(each, 124.1)]) == [
        *("a0", "a1"),
        *("stop", "known"),
    ]
    assert machine.all_known
    assert machine.wake_at() is None


@pytest.mark.rule("SUB-058", "SUB-060")
def test_the_rest_of_a_history_that_broke_off_is_asked_for_while_the_engine_is_idle() -> None:
    machine = source()
    machine.connected(0.0, None)
    machine.reply(copy(0), 0.1)
    assert told(machine.tick(2.1)) == ["stop"]
    assert not machine.all_known
    assert told(machine.tick(62.1)) == ["ask 0"]
    assert told([action for each in (copy(0), copy(1), END) for action in machine.reply(each, 62.2)]) == [
        "a1",
        *("stop", "known"),
    ]
    assert machine._diary.total("engine_restarts") == 0


@pytest.mark.rule("SUB-058")
@pytest.mark.parametrize("first", [0, 5])
def test_an_engine_that_publishes_is_not_held_up_by_asking_for_its_history_again(first: int) -> None:
    machine = source()
    machine.connected(0.0, None)
    machine.tick(2.0)
    machine.message(live(first), 3.0)
    assert machine.wake_at() is None


@pytest.mark.rule("SUB-058")
def test_a_history_that_was_cut_by_a_lost_connection_is_left_to_the_next_one() -> None:
    machine = source()
    machine.connected(0.0, None)
    machine.tick(2.0)
    machine.disconnected(3.0)
    assert machine.wake_at() is None


@pytest.mark.rule("SUB-058")
def test_time_in_which_nobody_listened_is_no_silence_of_the_engine() -> None:
    machine = source()
    machine.connected(0.0, None)
    assert machine.tick(45.0) == []
    assert machine.wake_at() == 47.0
    assert told(machine.reply(copy(0), 45.1)) == ["a0"]
    assert told(machine.tick(60.0)) == ["stop"], "that happens once"


def test_an_engine_that_never_has_the_range_is_asked_less_and_less_often() -> None:
    machine = started(0)
    now, number, asked = 0.0, 0, []
    while now < 600.0:
        number += 2
        actions = told(machine.message(live(number), now))
        if "ask" in " ".join(actions):
            asked.append(now)
            machine.reply(END, now)
        now += 0.1
    first_minute = [at for at in asked if at < 60.0]
    last_minute = [at for at in asked if at >= 540.0]
    assert len(first_minute) <= 7
    assert len(last_minute) == 1


@pytest.mark.rule("SUB-055")
def test_too_many_waiting_messages_end_a_replay() -> None:
    machine = started(0)
    machine.message(live(2), 0.0)
    machine.message(live(3), 0.0)
    assert (machine.held_messages, machine.held_bytes) == (2, len(payload(2)) + len(payload(3)))
    actions: list[Action] = []
    for number in range(4, MAX_HELD_MESSAGES + 3):
        actions += machine.message(live(number), 0.0)
    assert told(actions)[:3] == ["stop", "lost 1", "a2"]
    assert told(actions)[-1] == f"a{MAX_HELD_MESSAGES + 2}"
    assert machine._diary.total("replays_abandoned") == 1


# ---------------------------------------------------------------------- other processes


@pytest.mark.rule("SUB-052")
def test_a_falling_number_is_another_process_whose_history_is_asked_for() -> None:
    machine = started(41, 42)
    assert told(machine.message(live(3, "b"), 1.0)) == ["restart", "ask 0"]
    for number in range(4):
        machine.reply(copy(number, "b"), 1.0)
    assert told(machine.reply(END, 1.0)) == ["stop", "known"]
    assert machine.all_known


@pytest.mark.rule("SUB-052")
def test_only_the_last_1024_numbers_can_be_duplicates() -> None:
    machine = started(*range(1500))
    assert told(machine.message(live(600), 1.0)) == []
    assert told(machine.message(live(400), 1.0)) == ["restart", "ask 0"]


@pytest.mark.rule("SUB-052", "SUB-237")
def test_digests_are_bounded_when_the_engine_burns_numbers() -> None:
    machine = started(*range(0, 3 * 2 * KEPT_DIGESTS, 3), replays=False)
    assert len(machine._process.digests) == KEPT_DIGESTS


@pytest.mark.rule("SUB-053")
def test_a_lost_connection_is_no_restart_when_the_bytes_of_the_last_message_are_there() -> None:
    machine = started(0, 1)
    machine.disconnected(2.0)
    machine.reconnecting()
    assert told(machine.message(live(3), 5.0)) == []
    assert told(machine.connected(5.1, None)) == ["ask 1"]
    assert told(machine.reply(copy(1), 5.2)) == []
    assert told(machine.reply(copy(2), 5.2)) == ["a2"]
    assert told(machine.reply(copy(3), 5.2)) == ["a3"]
    assert told(machine.reply(END, 5.2)) == ["stop"]
    assert machine.certain


@pytest.mark.rule("SUB-053")
@pytest.mark.parametrize(
    "replies",
    [[copy(1, "b"), copy(2, "b"), END], [copy(2, "b"), END], [END]],
    ids=["differs", "cut", "empty"],
)
def test_a_lost_connection_is_a_restart_when_they_are_not(replies: list[Reply]) -> None:
    machine = started(0, 1)
    machine.disconnected(2.0)
    machine.reconnecting()
    machine.message(live(2, "b"), 5.0)
    assert told(machine.connected(5.1, None)) == ["ask 1"]
    actions = told(machine.reply(replies[0], 5.2))
    assert actions in (["restart", "stop", "ask 0"], ["stop", "restart", "ask 0"])
    for number in range(3):
        machine.reply(copy(number, "b"), 5.3)
    assert told(machine.reply(END, 5.3)) == ["stop", "known"]
    assert machine._diary.total("engine_restarts") == 1


@pytest.mark.rule("SUB-017", "SUB-053")
def test_a_second_connection_beside_the_first_is_judged_like_one_that_came_back() -> None:
    machine = started(0, 1)
    machine.reconnecting()
    assert told(machine.message(live(2), 1.0)) == []
    assert told(machine.connected(1.0, None)) == ["ask 1"]
    machine.reply(copy(1), 1.0)
    assert told(machine.reply(END, 1.0)) == ["stop", "a2"]
    assert machine.certain


@pytest.mark.rule("SUB-053")
def test_what_cannot_be_proven_is_another_process() -> None:
    machine = started(0, 1, replays=False)
    machine.disconnected(2.0)
    machine.reconnecting()
    machine.message(live(2, "b"), 5.0)
    assert told(machine.connected(5.1, None)) == ["restart", "b2"]
    mute = started(0, 1)
    mute.disconnected(2.0)
    mute.reconnecting()
    assert told(mute.connected(5.1, None)) == ["ask 1"]
    assert told(mute.tick(7.1)) == ["stop", "restart"]


def test_the_metrics_decide_where_they_can() -> None:
    same = started(0, 1, replays=False)
    same.disconnected(2.0)
    same.reconnecting()
    assert same.connected(5.0, True) == []
    assert told(same.message(live(2), 5.0)) == ["a2"]
    other = started(0, 1)
    other.disconnected(2.0)
    other.reconnecting()
    assert told(other.connected(5.0, False)) == ["restart", "ask 0"]
    unseen = started(0, 1)
    assert told(unseen.restarted(5.0)) == ["restart", "ask 0"]


def test_a_process_that_changed_while_there_is_no_connection_is_asked_when_there_is_one() -> None:
    machine = started(0, 1)
    machine.disconnected(2.0)
    assert told(machine.restarted(5.0)) == ["restart"]
    machine.reconnecting()
    assert told(machine.connected(30.0, None)) == ["ask 0"]


def test_what_is_read_after_a_connection_was_lost_came_over_it() -> None:
    machine = started(0, 1)
    machine.disconnected(2.0)
    assert told(machine.message(live(2), 5.0)) == ["a2"]
    assert not machine.certain


@pytest.mark.rule("SUB-055", "SUB-060")
@pytest.mark.parametrize("same_process", [True, None])
@pytest.mark.parametrize("replayed", [0, 2])
def test_a_history_that_a_lost_connection_cuts_is_asked_for_again(
    replayed: int, same_process: bool | None
) -> None:
    machine = source()
    assert told(machine.connected(0.0, None)) == ["ask 0"]
    for number in range(replayed):
        machine.reply(copy(number), 0.1)
    assert told(machine.message(live(4), 0.2)) == []
    assert told(machine.disconnected(0.3)) == ["stop"]
    assert told(machine.message(live(5), 0.4)) == []
    machine.reconnecting()
    assert not machine.all_known
    first = max(0, replayed - 1)
    assert told(machine.connected(1.6, same_process)) == [f"ask {first}"]
    assert told(machine.message(live(6), 1.6)) == []
    applied = [told(machine.reply(copy(number), 1.7)) for number in range(first, 7)]
    assert [each for each in applied if each] == [[f"a{number}"] for number in range(replayed, 7)]
    assert told(machine.reply(END, 1.7)) == ["stop", "known"]
    assert machine.all_known


@pytest.mark.rule("SUB-055")
def test_a_gap_that_a_lost_connection_cuts_is_filled_over_the_next_one() -> None:
    machine = started(0, 1)
    assert told(machine.message(live(3), 1.0)) == ["ask 1"]
    assert told(machine.disconnected(1.1)) == ["stop"]
    assert told(machine.message(live(4), 1.2)) == []
    machine.reconnecting()
    assert told(machine.connected(2.5, True)) == ["ask 1"]
    assert [told(machine.reply(copy(number), 2.6)) for number in (1, 2, 3, 4)] == [[], ["a2"], ["a3"], ["a4"]]
    assert told(machine.reply(END, 2.6)) == ["stop"]
    assert machine.all_known
    assert machine._diary.total("unrecovered_messages") == 0


@pytest.mark.rule("SUB-055")
def test_what_is_read_behind_a_hole_after_a_connection_was_lost_is_left_to_the_next_one() -> None:
    machine = started(0, 1)
    assert told(machine.disconnected(1.0)) == []
    assert told(machine.message(live(2), 1.1)) == ["a2"]
    assert told(machine.message(live(4), 1.2)) == []
    assert told(machine.message(live(5), 1.2)) == []
    machine.reconnecting()
    assert told(machine.connected(2.5, True)) == ["ask 2"]


@pytest.mark.rule("SUB-055")
def test_a_gap_right_after_a_reconnect_that_brought_nothing_is_asked_for() -> None:
    machine = started(0, 1)
    machine.disconnected(1.0)
    machine.reconnecting()
    assert told(machine.connected(2.5, True)) == ["ask 1"]
    machine.reply(copy(1), 2.6)
    assert told(machine.reply(END, 2.6)) == ["stop"]
    assert told(machine.message(live(3), 2.7)) == ["ask 1"]


@pytest.mark.rule("SUB-053")
def test_what_waits_to_learn_its_process_is_not_applied_when_that_one_is_lost_too() -> None:
    machine = started(0, 1)
    machine.disconnected(2.0)
    machine.reconnecting()
    assert told(machine.message(live(2, "b"), 3.0)) == []
    assert told(machine.disconnected(3.1)) == []
    assert told(machine.message(live(3, "b"), 3.2)) == []
    machine.reconnecting()
    assert told(machine.connected(5.0, True)) == ["ask 1"]


@pytest.mark.rule("SUB-053")
def test_after_a_reconnect_an_old_number_is_another_process_even_with_the_same_bytes() -> None:
    machine = started(0, 1, 2)
    machine.disconnected(2.0)
    machine.reconnecting()
    machine.connected(5.0, True)
    machine.reply(END, 5.0)
    assert told(machine.message(live(0), 5.0)) == ["restart", "a0", "known"]


# ---------------------------------------------------------------------- against an engine

Step = Callable[["World"], None]


class World:
    """An engine with a full replay buffer, a lossy wire, and the source behind it.

    Where the first message of a process is lost live, nobody knows that there was one [SUB-050].
    """

    def __init__(self, *, first_arrives: bool = False) -> None:
        self.first_arrives = first_arrives
        self.source = source()
        self.process = "a"
        self.sent = 0
        self.received: list[str] = []
        self.asked: int | None = None
        self.exchanges = 0
        self.now = 0.0
        self.take(self.source.connected(0.0, None))

    def take(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case AskReplay(first):
                    self.asked = first
                    self.exchanges += 1
                case StopReplay():
                    self.asked = None
                    self.exchanges += 1
                case Restart():
                    self.received.clear()
                case Apply(content):
                    self.received.append(content.decode())
                case _:
                    pass

    def send(self, *, arrives: bool, twice: bool = False) -> None:
        arrives |= self.first_arrives and self.sent == 0
        frame = live(self.sent, self.process)
        self.sent += 1
        if arrives:
            for _ in range(2 if twice else 1):
                self.take(self.source.message(frame, self.now))

    def replay(self, most: int = 1000) -> None:
        """The engine answers, in one exchange; with `most` it stops without an end."""
        if self.asked is None:
            return
        first, sent, exchange = self.asked, self.sent, self.exchanges
        for number in range(first, min(sent, first + most)):
            self.take(self.source.reply(copy(number, self.process), self.now))
            if self.exchanges != exchange:
                return
        if most >= sent - first:
            self.take(self.source.reply(END, self.now))

    def wait(self) -> None:
        self.now += 3.0
        self.take(self.source.tick(self.now))

    def restart(self) -> None:
        """Another process; the connection is lost and comes back."""
        self.take(self.source.disconnected(self.now))
        self.process = chr(ord(self.process) + 1)
        self.sent = 0
        self.come_back(None)

    def come_back(self, same_process: bool | None) -> None:
        self.source.reconnecting()
        self.take(self.source.connected(self.now, same_process))

    def blink(self, same_process: bool | None, *, late: bool) -> None:
        """The connection is lost and comes back to the same process; a message is `late` in being read."""
        self.take(self.source.disconnected(self.now))
        self.send(arrives=late)
        self.come_back(same_process)


STEPS: list[Step] = [
    lambda world: world.send(arrives=True),
    lambda world: world.send(arrives=True),
    lambda world: world.send(arrives=True, twice=True),
    lambda world: world.send(arrives=False),
    lambda world: world.replay(),
    lambda world: world.replay(most=2),
    lambda world: world.restart(),
    lambda world: world.blink(None, late=False),
    lambda world: world.blink(True, late=True),
]
STEPS_AND_TIME: list[Step] = [*STEPS, lambda world: world.wait()]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(STEPS_AND_TIME), max_size=40))
def test_what_is_applied_is_in_order_of_one_process_and_complete_once_replays_answer(
    steps: list[Step],
) -> None:
    world = World()
    for step in steps:
        step(world)
        names = [name[0] for name in world.received]
        numbers = [int(name[1:]) for name in world.received]
        assert len(set(names)) <= 1
        assert numbers == sorted(set(numbers))
    world.now += 1000.0
    world.take(world.source.tick(world.now))
    world.send(arrives=True)
    for _ in range(5):
        world.replay()
    assert {name[0] for name in world.received} == {world.process}
    assert world.received[-1] == f"{world.process}{world.sent - 1}"
    if world.source.all_known:
        assert world.received == [f"{world.process}{number}" for number in range(world.sent)]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_of_an_engine_that_answers_in_time_everything_is_applied_however_often_its_connection_is_lost(
    steps: list[Step],
) -> None:
    world = World(first_arrives=True)
    for step in steps:
        step(world)
    for _ in range(2):
        world.replay()
        world.replay()
        world.send(arrives=True)
    world.replay()
    assert world.received == [f"{world.process}{number}" for number in range(world.sent)]
    assert world.source.all_known
