"""Slots of timed jobs, compared with a search minute by minute that knows nothing of cron's library."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.cron import CronJob
from sessiontree.tree.rules.timetable import (
    check_expression,
    check_zone,
    find_due,
    find_next,
    read_time,
    show_time,
)
from tests.unit.tree.tree_fixtures import job

MINUTE_MS = 60_000
DAY_MS = 1_440 * MINUTE_MS


def at(text: str, zone: str = "UTC") -> int:
    """Return a time in milliseconds."""
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def expression_job(expression: str, zone: str) -> CronJob:
    """Return a job with an expression."""
    return job(every_ms=None, expression=expression, zone=zone)


def searched(
    matches: Callable[[datetime], bool], zone: str, begin_ms: int, end_ms: int, *, once: bool
) -> list[int]:
    """Return each minute whose local time matches; with ``once``, of a time that exists twice the first.

    A matching local time that does not exist counts as the first minute after the gap.
    """
    found: list[int] = []
    seen: set[datetime] = set()
    before: datetime | None = None
    for at_ms in range(begin_ms, end_ms, MINUTE_MS):
        local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        wanted = matches(local)
        if once and before is not None:
            gap = int((local - before).total_seconds() // 60)
            skipped = [
                datetime.fromtimestamp(before.replace(tzinfo=UTC).timestamp() + 60 * n, UTC)
                for n in range(1, gap)
            ]
            wanted = wanted or any(matches(each.replace(tzinfo=None)) for each in skipped)
        if wanted and not (once and local in seen):
            found.append(at_ms)
        seen.add(local)
        before = local
    return found


VIENNA, LORD_HOWE = "Europe/Vienna", "Australia/Lord_Howe"
CASES: list[tuple[str, str, str, bool, Callable[[datetime], bool]]] = [
    ("30 2 * * *", VIENNA, "2026-03-28T00:00", True, lambda t: (t.hour, t.minute) == (2, 30)),
    ("30 2 * * *", VIENNA, "2026-10-24T00:00", True, lambda t: (t.hour, t.minute) == (2, 30)),
    ("0 2,3 * * *", VIENNA, "2026-03-28T00:00", True, lambda t: t.hour in {2, 3} and t.minute == 0),
    ("15 * * * *", VIENNA, "2026-10-24T00:00", False, lambda t: t.minute == 15),
    ("*/20 2 * * *", VIENNA, "2026-10-24T00:00", False, lambda t: t.hour == 2 and t.minute % 20 == 0),
    ("10 2 * * *", LORD_HOWE, "2026-10-03T00:00", True, lambda t: (t.hour, t.minute) == (2, 10)),
    ("45 1 * * *", LORD_HOWE, "2026-04-04T00:00", True, lambda t: (t.hour, t.minute) == (1, 45)),
    ("0 9 * * MON-FRI", "Asia/Kolkata", "2026-05-04T00:00", True,
     lambda t: (t.hour, t.minute) == (9, 0) and t.weekday() < 5),
]  # fmt: skip


@pytest.mark.covers("S14")
@pytest.mark.parametrize(("expression", "zone", "begin", "once", "matches"), CASES)
def test_slots_are_those_of_a_search_minute_by_minute(
    expression: str, zone: str, begin: str, once: bool, matches: Callable[[datetime], bool]
) -> None:
    """Over three days with a change of the local time; also asked for from every half hour of them."""
    begin_ms = at(begin, zone)
    end_ms = begin_ms + 3 * DAY_MS
    expected = searched(matches, zone, begin_ms + MINUTE_MS, end_ms, once=once)
    timed = expression_job(expression, zone)
    found, after_ms = [], begin_ms
    while (slot_ms := find_next(timed, after_ms)) is not None and slot_ms < end_ms:
        found.append(slot_ms)
        after_ms = slot_ms
    assert found == expected
    for since_ms in range(begin_ms, end_ms - DAY_MS, 30 * MINUTE_MS):
        assert find_next(timed, since_ms) == next(each for each in expected if each > since_ms)


@pytest.mark.covers("S14")
@pytest.mark.parametrize("days", [1, 3, 60, 800])
def test_however_many_slots_have_come_the_newest_is_found(days: int) -> None:
    """Of an expression with more slots than are counted, the last two are right, and the number a bound."""
    since_ms = at("2026-01-01T00:00:30")
    for expression, minutes in (("* * * * *", 1), ("*/20 * * * *", 20), ("0 9 * * *", 1_440)):
        now_ms = since_ms + days * DAY_MS
        due = find_due(expression_job(expression, "UTC"), since_ms, now_ms)
        assert due is not None
        last_ms = now_ms - (now_ms - (9 * 60 * MINUTE_MS if minutes == 1_440 else 0)) % (minutes * MINUTE_MS)
        assert due.last_ms == last_ms
        assert due.previous_ms in {last_ms - minutes * MINUTE_MS, due.first_ms}
        expected = days * 1_440 // minutes
        assert due.number == expected if due.is_exact else due.number < expected
        assert due.is_exact or expected > 1_000


def test_intervals_are_counted_from_their_beginning() -> None:
    """Slots of an interval are multiples, whenever they are looked for."""
    timed = job(every_ms=90_000, anchor_ms=1_000)
    assert find_next(timed, 0) == 91_000
    assert find_next(timed, 91_000) == 181_000
    due = find_due(timed, 91_000, 460_000)
    assert due is not None
    assert (due.first_ms, due.previous_ms, due.last_ms, due.number) == (181_000, 361_000, 451_000, 4)
    assert find_due(timed, 91_000, 180_999) is None


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "* * * * * *", "61 * * * *", "a b c d e", "0 0 31 2 *", "* * * * *" + " " * 200,
     "1-0 * * * *", "*/0 * * * *", "@daily", "0 0 30 2 *"],
)  # fmt: skip
def test_wrong_expressions_are_refused(expression: str) -> None:
    """Each with an error that names the parameter."""
    with pytest.raises(ValidationError, match="expression") as caught:
        check_expression(expression, "UTC", 0)
    assert caught.value.field == "/expression"


@pytest.mark.parametrize(
    "zone", ["", "Nowhere", "../etc/passwd", "/etc/passwd", "Europe", "a\0b", "x" * 300, "Europe/Vienna\n"]
)
def test_wrong_zones_are_refused(zone: str) -> None:
    """Paths, directories and nonsense are no time zones."""
    with pytest.raises(ValidationError, match="no time zone is called"):
        check_zone(zone)


def test_times_are_read_with_and_without_an_offset() -> None:
    """In the zone of the job; a duration counts from now; the past and the far future are refused."""
    now_ms = at("2026-05-01T10:00")
    assert read_time("2026-05-01T12:30", VIENNA, now_ms, "at") == at("2026-05-01T10:30")
    assert read_time(" 2026-05-01T12:30:00+00:00 ", VIENNA, now_ms, "at") == at("2026-05-01T12:30")
    assert read_time("90s", VIENNA, now_ms, "at") == now_ms + 90_000
    assert read_time("2d", "UTC", now_ms, "at") == now_ms + 2 * DAY_MS
    for wrong in ("2026-05-01T12:00", "0s", "2200-01-01", "soon", "999999999d", "9999-12-31T23:59-14:00", ""):
        with pytest.raises(ValidationError, match="at is") as caught:
            read_time(wrong, VIENNA, now_ms, "at")
        assert caught.value.field == "/at"
    assert show_time(now_ms, VIENNA) == "2026-05-01T12:00:00+02:00"


@pytest.mark.parametrize("zone", ["UTC", VIENNA, "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize(
    "far",
    [
        *("0001-01-01T00:00+09:00", "0001-01-01T00:00", "0001-01-01T00:00Z", "0001-01-02T00:00-23:59"),
        *("0068-01-01", "1969-12-31", "5138-11-16T09:46:39Z", "9999-12-31T23:59", "9999-12-31T23:59-23:59"),
    ],
)
def test_times_at_both_ends_of_the_calendar_are_refused(far: str, zone: str) -> None:
    """An offset can move such a time out of the years that Python can write."""
    with pytest.raises(ValidationError, match=r"until is .*; give a later time, at most") as caught:
        read_time(far, zone, at("2026-05-01T10:00"), "until")
    assert caught.value.field == "/until"
