"""When the slots of timed jobs are: times of day in a time zone, intervals, and single times.

Pure: the same job and time always give the same slots, as long as the time zone's rules do not change. A
local time that does not exist counts as the first one after the gap. A local time that exists twice counts
once, the first time. Where the minute or the hour of an expression begins with ``*``, each of the two hours
counts. Source: cronsim 2.8, which follows Debian's cron.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.cron import MAX_AHEAD_S, CronJob

MAX_COUNTED: Final = 1_000
"""More slots of an expression than these are not counted one by one."""
MAX_EXPRESSION_CHARS: Final = 120
_FIELDS: Final = 5
_HOUR_MS: Final = 3_600_000
_WINDOWS_MS: Final = tuple(_HOUR_MS * hours for hours in (1, 25, 24 * 33, 24 * 367, 24 * 367 * 60))
"""Times before now in which the newest slot is looked for, one after the other."""
_SHOWN_MS: Final = range(-6 * 10**13, 10**14)
"""Times that Python can write with any offset: from the year 68 to the year 5138."""
_DURATION: Final = re.compile(r"(\d{1,9})\s*([smhd])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class DueSlots(NamedTuple):
    """Slots that have come and are not settled."""

    first_ms: int
    previous_ms: int
    """The one before the last; if there is only one, that one."""
    last_ms: int
    number: int
    is_exact: bool
    """False: there are more than ``number``."""


def find_next(job: CronJob, after_ms: int) -> int | None:
    """Return the first slot of a job after a time; None = it has no more."""
    if job.once_ms is not None:
        return job.once_ms if job.once_ms > after_ms else None
    if job.every_ms is not None:
        passed = max(0, after_ms - job.anchor_ms) // job.every_ms
        return job.anchor_ms + (passed + 1) * job.every_ms
    return _find_next(job.expression, job.zone, after_ms)


def find_due(job: CronJob, since_ms: int, now_ms: int) -> DueSlots | None:
    """Return the slots of a job after one time, up to and including another; None = none has come."""
    first_ms = find_next(job, since_ms)
    if first_ms is None or first_ms > now_ms:
        return None
    if job.once_ms is not None:
        return DueSlots(first_ms, first_ms, first_ms, 1, True)
    if job.every_ms is not None:
        count = 1 + (now_ms - first_ms) // job.every_ms
        last_ms = first_ms + (count - 1) * job.every_ms
        return DueSlots(first_ms, max(first_ms, last_ms - job.every_ms), last_ms, count, True)
    found = [first_ms]
    for slot_ms in islice(_iterate_slots(job.expression, job.zone, first_ms), MAX_COUNTED):
        if slot_ms > now_ms:
            return DueSlots(first_ms, found[max(0, len(found) - 2)], found[-1], len(found), True)
        found.append(slot_ms)
    previous_ms, last_ms = _find_newest(job, found[-2:], now_ms)
    return DueSlots(first_ms, previous_ms, last_ms, len(found), last_ms == found[-1])


def _find_newest(job: CronJob, known: list[int], now_ms: int) -> tuple[int, int]:
    """Return the two newest slots up to a time, without going through all of them."""
    for window_ms in _WINDOWS_MS:
        begin_ms = max(known[-1], now_ms - window_ms)
        found: list[int] = []
        for slot_ms in _iterate_slots(job.expression, job.zone, begin_ms):
            if slot_ms > now_ms:
                break
            found = [*found[-1:], slot_ms]
        if len(found) == 2:
            return found[0], found[1]
        if begin_ms == known[-1]:
            known = [*known, *found]
            break
    return known[-2], known[-1]


def _iterate_slots(expression: str, zone: str, after_ms: int) -> Iterator[int]:
    """Yield the slots of an expression after a time, each later than the one before."""
    moment = datetime.fromtimestamp(after_ms / 1000, ZoneInfo(zone))
    for found in CronSim(expression, moment):
        slot_ms = round(found.timestamp() * 1000)
        # A local time that exists twice is found as its first instance, also from the second one on.
        if slot_ms > after_ms:
            after_ms = slot_ms
            yield slot_ms


# Each ring asks for the next slot of every job, and only those that were settled have another one.
@lru_cache(maxsize=512)
def _find_next(expression: str, zone: str, after_ms: int) -> int | None:
    return next(_iterate_slots(expression, zone, after_ms), None)


def check_expression(expression: str, zone: str, now_ms: int) -> str:
    """Return an expression with single spaces, once it is known to have a next slot.

    Raises:
        ValidationError: it is not valid, or has no slot.
    """
    fields = expression.split()
    if len(fields) != _FIELDS or len(expression) > MAX_EXPRESSION_CHARS:
        raise ValidationError(
            f"the expression {expression[:MAX_EXPRESSION_CHARS]!r} does not have the five fields minute, "
            "hour, day of the month, month and day of the week, such as '0 9 * * MON-FRI'",
            "/expression",
        )
    tidy = " ".join(fields)
    try:
        found = _find_next(tidy, zone, now_ms)
    except CronSimError as error:
        raise ValidationError(f"the expression {tidy!r} is not valid: {error}", "/expression") from error
    if found is None or found - now_ms > MAX_AHEAD_S * 1000:
        raise ValidationError(f"the expression {tidy!r} names no time of the next ten years", "/expression")
    return tidy


def check_zone(zone: str) -> str:
    """Return the name of a time zone.

    Raises:
        ValidationError: it is not known.
    """
    try:
        return ZoneInfo(zone).key
    except (LookupError, ValueError, OSError) as error:  # also a path, a directory, or another kind of file
        raise ValidationError(
            f"no time zone is called {zone[:64]!r}; name one such as Europe/Vienna, or omit it for UTC",
            "/zone",
        ) from error


def read_time(text: str, zone: str, now_ms: int, field: str) -> int:
    """Return a time that is written as ISO 8601, or as a duration from now.

    Args:
        text: What is written.
        zone: The time zone of a time without an offset.
        now_ms: The present time.
        field: The parameter's name, for the error.

    Raises:
        ValidationError: it is not a time of the next ten years.
    """
    text = text.strip()
    duration = _DURATION.fullmatch(text)
    if duration is not None:
        at_ms = now_ms + int(duration[1]) * _UNITS_S[duration[2]] * 1000
    else:
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=ZoneInfo(zone))
            at_ms = round(moment.timestamp() * 1000)
        except (ValueError, OverflowError) as error:
            raise ValidationError(
                f"{field} is {text[:64]!r}; give a time such as 2031-05-04T09:30, or 20m, 2h or 1d from now",
                f"/{field}",
            ) from error
    if not now_ms < at_ms <= now_ms + MAX_AHEAD_S * 1000:
        raise ValidationError(
            f"{field} is {show_time(at_ms, zone) if at_ms in _SHOWN_MS else text!r}, and it is now "
            f"{show_time(now_ms, zone)}; give a later time, at most ten years ahead",
            f"/{field}",
        )
    return at_ms


def show_time(at_ms: int, zone: str) -> str:
    """Return a time as ISO 8601 with the offset of a time zone, to the second."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.astimezone(ZoneInfo(zone)).isoformat(timespec="seconds")
