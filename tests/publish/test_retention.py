"""Retention: the last two, the last of each of seven days, pins, the current one; and only a publish drops."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.snapshot import Flip
from tasks.publish.retention import retained

MONDAY = dt.datetime(2025, 3, 3, 2, 0, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)


class Log:
    """A history as flips record it: each retains what the policy says at its time."""

    def __init__(self) -> None:
        self.flips: list[Flip] = []
        self.created: dict[str, dt.datetime] = {}
        self.pins: set[str] = set()

    def publish(self, name: str, when: dt.datetime) -> tuple[str, ...]:
        self.created[name] = when
        return self._add(name, when, hold=False)

    def rollback(self, name: str, when: dt.datetime) -> tuple[str, ...]:
        return self._add(name, when, hold=True)

    def resume(self, when: dt.datetime) -> tuple[str, ...]:
        return self._add(self.flips[-1].snapshot, when, hold=False)

    def _add(self, name: str, when: dt.datetime, *, hold: bool) -> tuple[str, ...]:
        flip = Flip(number=len(self.flips) + 1, snapshot=name, author="", reason="", created=when, hold=hold)
        kept = retained([*self.flips, flip], self.pins, when, self.created)
        self.flips.append(flip.model_copy(update={"retained": kept}))
        return kept


def test_before_the_first_flip_there_is_nothing_to_retain() -> None:
    assert retained([], {"a"}, MONDAY, {"a": MONDAY}) == ()


def test_the_last_two_of_a_busy_day_stay() -> None:
    log = Log()
    for number in range(10):
        kept = log.publish(f"s{number}", MONDAY + number * HOUR)
    assert kept == ("s9", "s8")


def test_the_last_of_each_of_seven_days_stays() -> None:
    log = Log()
    for day in range(10):
        log.publish(f"early{day}", MONDAY + day * DAY)
        kept = log.publish(f"late{day}", MONDAY + day * DAY + HOUR)
    # Today's late one is current and its day's; today's early one is the second newest.
    assert set(kept) == {"early9", *(f"late{day}" for day in range(3, 10))}


def test_quiet_weeks_keep_the_last_two() -> None:
    log = Log()
    log.publish("a", MONDAY)
    log.publish("b", MONDAY + 30 * DAY)
    assert log.publish("c", MONDAY + 60 * DAY) == ("c", "b")


def test_days_are_those_of_utc() -> None:
    east = dt.timezone(dt.timedelta(hours=8))
    log = Log()
    # 06:00 and 23:00 of one day in Xiamen are two days in UTC.
    log.publish("dawn", dt.datetime(2025, 3, 3, 6, 0, tzinfo=east))
    log.publish("night", dt.datetime(2025, 3, 3, 23, 0, tzinfo=east))
    log.publish("later", dt.datetime(2025, 3, 3, 23, 30, tzinfo=east))
    assert set(log.publish("last", dt.datetime(2025, 3, 3, 23, 40, tzinfo=east))) == {"dawn", "later", "last"}


def test_a_pin_stays_however_old() -> None:
    log = Log()
    log.publish("old", MONDAY)
    log.pins.add("old")
    for day in range(1, 100):
        kept = log.publish(f"s{day}", MONDAY + day * DAY)
    assert "old" in kept
    log.pins.clear()
    assert "old" not in log.publish("next", MONDAY + 100 * DAY)


def test_a_pin_of_what_is_gone_brings_nothing_back() -> None:
    log = Log()
    log.pins.add("gone")
    assert log.publish("a", MONDAY) == ("a",)


def test_a_rollback_keeps_what_it_takes_back_and_all_between() -> None:
    log = Log()
    for number in range(4):
        log.publish(f"s{number}", MONDAY + number * HOUR)
    log.pins.add("s2")
    log.publish("s4", MONDAY + 4 * HOUR)
    log.pins.clear()
    before = set(log.flips[-1].retained)
    assert before == {"s2", "s3", "s4"}
    assert set(log.rollback("s2", MONDAY + 5 * HOUR)) == before
    assert set(log.resume(MONDAY + 6 * HOUR)) == before
    assert log.publish("s5", MONDAY + 7 * HOUR) == ("s5", "s2")


def test_a_rollback_does_not_make_last_weeks_snapshot_todays() -> None:
    log = Log()
    log.publish("week", MONDAY)
    log.pins.add("week")
    log.publish("friday", MONDAY + 4 * DAY)
    log.publish("bad", MONDAY + 8 * DAY)
    log.rollback("week", MONDAY + 8 * DAY + HOUR)
    log.resume(MONDAY + 8 * DAY + 2 * HOUR)
    log.pins.clear()
    log.publish("good", MONDAY + 9 * DAY)
    kept = log.publish("better", MONDAY + 9 * DAY + HOUR)
    # Of day 8 what was created then stays; "week" counts for its own day, which is long over.
    assert set(kept) == {"better", "good", "bad", "friday"}


def test_what_was_dropped_never_comes_back_by_itself() -> None:
    log = Log()
    log.publish("a", MONDAY)
    log.publish("b", MONDAY + HOUR)
    log.publish("c", MONDAY + 2 * HOUR)  # Drops a, which a sweep may have begun to delete.
    log.rollback("b", MONDAY + 3 * HOUR)
    assert "a" not in log.flips[-1].retained
    assert "a" not in log.resume(MONDAY + 4 * HOUR)


def test_equal_contents_published_again_are_retained_again() -> None:
    log = Log()
    for number, name in enumerate("abca"):
        kept = log.publish(name, MONDAY + number * HOUR)
    assert kept == ("a", "c")


def test_flips_without_a_record_drop_nothing_that_is_still_there() -> None:
    flips = [
        Flip(number=number, snapshot=name, author="", reason="", created=MONDAY + (number - 1) * DAY)
        for number, name in ((1, "a"), (2, "b"), (3, "c"))
    ]
    created = {flip.snapshot: flip.created for flip in flips}
    assert set(retained(flips, set(), MONDAY + 2 * DAY, created)) == {"a", "b", "c"}


def test_the_order_of_the_flips_given_does_not_count() -> None:
    log = Log()
    for number in range(6):
        log.publish(f"s{number}", MONDAY + number * 9 * HOUR)
    now = log.flips[-1].created
    assert retained(log.flips[::-1], set(), now, log.created) == retained(log.flips, set(), now, log.created)


@st.composite
def histories(draw: st.DrawFn) -> Log:
    log = Log()
    when = MONDAY
    for number in range(draw(st.integers(1, 25))):
        when += dt.timedelta(hours=draw(st.integers(0, 40)))
        kept = log.flips[-1].retained if log.flips else ()
        match draw(st.sampled_from(["publish", "publish", "again", "rollback", "resume", "pin", "unpin"])):
            case "rollback" if kept:
                log.rollback(draw(st.sampled_from(kept)), when)
            case "resume" if kept and log.flips[-1].hold:
                log.resume(when)
            case "again" if log.flips:
                log.publish(draw(st.sampled_from(sorted(log.created))), when)
            case "pin" if kept:
                log.pins.add(draw(st.sampled_from(kept)))
            case "unpin" if log.pins:
                log.pins.remove(draw(st.sampled_from(sorted(log.pins))))
            case _:
                log.publish(f"s{number}", when)
    return log


@settings(max_examples=300, deadline=None)
@given(histories())
def test_every_flip_keeps_its_own_its_pins_and_the_one_before_and_revives_nothing(log: Log) -> None:
    previous: Sequence[str] = ()
    for place, flip in enumerate(log.flips):
        assert flip.snapshot in flip.retained
        assert len(set(flip.retained)) == len(flip.retained)
        assert set(flip.retained) <= {flip.snapshot, *previous}
        if place:
            assert log.flips[place - 1].snapshot in flip.retained, "there is always a way back"
        previous = flip.retained


@settings(max_examples=200, deadline=None)
@given(histories(), st.integers(0, 30))
def test_flips_older_than_eight_days_do_not_count_once_there_are_two_snapshots(log: Log, cut: int) -> None:
    newest = log.flips[-1]
    window = [flip for flip in log.flips if newest.created - flip.created <= 8 * DAY]
    older = [flip for flip in log.flips if flip not in window][::-1]
    for flip in older:
        if len({item.snapshot for item in window}) > 2:
            break
        window.append(flip)
    created: Mapping[str, dt.datetime] = log.created
    whole = retained(log.flips, log.pins, newest.created, created)
    assert set(retained(window, log.pins, newest.created, created)) == set(whole)
