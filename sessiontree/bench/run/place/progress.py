"""Progress of a run: what happened to each sample, how fast the run is, and what it will still take."""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from sessiontree import make_visible
from sessiontree.bench.ledger.leases import SampleLease, Tally
from sessiontree.bench.ledger.ledger_tables import AttemptResult
from sessiontree.contracts.values.quick_dataclass import dataclass

_LOG = logging.getLogger("sessiontree")
LINE_EVERY_S: Final = 10.0
"""How often lines say how far a run is."""


@dataclass(frozen=True, slots=True)
class RunPace:
    """How far a run is."""

    done: int
    """Scored, undecided or failed for good, by all programs."""
    total: int
    passed: int
    failed: int
    """Not scored, because they were lost again and again by themselves."""
    errors: int
    """Undecided, because a solver or scorer raised."""
    retried: int
    """Attempts of this program that ended by an infrastructure error."""
    cost_usd: float
    per_s: float
    """Samples a second since this command began."""
    left_s: float | None
    """Seconds until the end at this rate; None = nobody knows yet."""

    def line(self) -> str:
        """Return it as text."""
        parts = [f"{self.done:,} of {self.total:,} done", f"{self.passed:,} passed"]
        if self.errors:
            parts.append(f"{self.errors:,} undecided")
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.retried:
            parts.append(f"{self.retried:,} retried")
        parts += [f"{self.per_s:.1f}/s", f"${self.cost_usd:.2f}"]
        if self.left_s is not None and self.done < self.total:
            parts.append(f"{_format_time(self.left_s)} left")
        return ", ".join(parts)


class RunProgress:
    """Hears what happens in a run and shows nothing; the base of those that do."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began_s = now()
        self._before = 0
        self._tally = Tally()
        self._retried = 0
        self._run = ""

    def begin(self, run: str, tally: Tally) -> None:
        """Note what was done before this command; ``run`` names the run for other commands."""
        self._run = run
        self._began_s = self._now()
        self._before = tally.scored + tally.undecided + tally.failed
        self._tally = tally

    def count(self, tally: Tally) -> None:
        """Take in how many samples are in which state."""
        self._tally = tally
        self.show(self.pace())

    def scored(self, lease: SampleLease, result: AttemptResult) -> None:
        """Note the score of a sample."""
        if result.status == "error":
            self.say(
                f"sample {lease.sample_id!r}, epoch {lease.epoch}: {result.error_kind}: {result.error}; "
                f"tree {result.tree_id or 'not opened'}; {self._look_at(lease)}"
            )

    def retried(self, lease: SampleLease, error: BaseException, tree_id: str | None) -> None:
        """Note an attempt that ended by an infrastructure error."""
        self._retried += 1
        self.say(
            f"sample {lease.sample_id!r}, epoch {lease.epoch}, attempt {lease.number} is not scored: "
            f"{type(error).__name__}: {error}; tree {tree_id or 'not opened'}; {self._look_at(lease)}"
        )

    def say(self, text: str) -> None:
        """Show one line for people."""

    def show(self, pace: RunPace) -> None:
        """Show how far the run is."""

    def end(self, why: str, *, is_complete: bool) -> None:
        """Note that the command stops working on the run, and why; complete = every sample is scored."""
        self.say(why)

    @property
    def tally(self) -> Tally:
        """How many of the samples that this command works on were in which state when they were counted."""
        return self._tally

    def pace(self) -> RunPace:
        """Return how far the run is."""
        tally = self._tally
        done = tally.scored + tally.undecided + tally.failed
        spent_s = max(1e-9, self._now() - self._began_s)
        per_s = (done - self._before) / spent_s
        left_s = (tally.total - done) / per_s if per_s > 0 else None
        return RunPace(
            done,
            tally.total,
            tally.passed,
            tally.failed,
            tally.undecided,
            self._retried,
            tally.cost_usd,
            per_s,
            left_s,
        )

    def _look_at(self, lease: SampleLease) -> str:
        return f"look at it: {build_bench_command('show', self._run, lease.sample_id)}"

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show nothing more."""


class LoggedProgress(RunProgress):
    """Logs failures as warnings, which Python shows on standard error unless the program does more.

    Control characters in ids and errors are shown as escapes.
    """

    def say(self, text: str) -> None:
        """Log a failure."""
        _LOG.warning("%s", make_visible(text))

    def end(self, why: str, *, is_complete: bool) -> None:
        """Log the end."""
        _LOG.log(logging.INFO if is_complete else logging.WARNING, "%s", make_visible(why))


class LineScreen(Protocol):
    """Takes lines."""

    def line(self, text: str) -> None:
        """Show one line at once."""

    def raw(self, text: str) -> None:
        """Show text that a program reads, as it is."""


class LineProgress(RunProgress):
    """Shows lines: every failure, and how far the run is from time to time.

    Args:
        screen: Takes the lines.
    """

    def __init__(self, screen: LineScreen, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._screen = screen
        self._shown_s = now()

    def say(self, text: str) -> None:
        """Show the line."""
        self._screen.line(text)

    def show(self, pace: RunPace) -> None:
        """Show a line, if the last one is old enough."""
        if self._now() - self._shown_s >= LINE_EVERY_S:
            self._shown_s = self._now()
            self._screen.line(pace.line())


class JsonProgress(RunProgress):
    """Shows an object per line: ``scored``, ``retried``, ``pace`` and ``said``, by their member ``change``.

    Args:
        screen: Takes the lines.
    """

    def __init__(self, screen: LineScreen, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(now)
        self._screen = screen

    def scored(self, lease: SampleLease, result: AttemptResult) -> None:
        """Show the score."""
        scores = {name: score.value for name, score in result.scores.items()}
        self._put(
            "scored",
            **_place(lease, result.tree_id),
            status=result.status,
            passed=result.passed,
            scores=scores,
            error=None if result.error_kind is None else f"{result.error_kind}: {result.error}",
        )

    def retried(self, lease: SampleLease, error: BaseException, tree_id: str | None) -> None:
        """Show the error."""
        self._retried += 1
        self._put("retried", **_place(lease, tree_id), error=f"{type(error).__name__}: {error}")

    def say(self, text: str) -> None:
        """Show the text."""
        self._put("said", text=text)

    def show(self, pace: RunPace) -> None:
        """Show how far the run is."""
        self._put("pace", **asdict(pace))

    def _put(self, change: str, **members: Any) -> None:
        self._screen.raw(json.dumps({"change": change, **members}))


class TerminalProgress(RunProgress):
    """Shows a bar on a terminal, with the rate, the cost and the time left; failures scroll above it.

    Args:
        console: The terminal.
        printable: Makes what can't be shown visible.
    """

    def __init__(self, console: Console, printable: Callable[[str], str]) -> None:
        super().__init__()
        self._printable = printable
        self._bar = Progress(
            BarColumn(bar_width=None), TextColumn("{task.description}", markup=False), console=console
        )
        self._task: TaskID | None = None

    def say(self, text: str) -> None:
        """Show the line above the bar."""
        self._bar.console.print(Text(self._printable(text)))

    def show(self, pace: RunPace) -> None:
        """Draw the bar again."""
        if self._task is None:
            self._task = self._bar.add_task(pace.line(), total=pace.total)
        self._bar.update(self._task, completed=pace.done, total=pace.total, description=pace.line())

    def __enter__(self) -> Self:
        """Draw the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave its last picture."""
        self._bar.stop()


def _place(lease: SampleLease, tree_id: str | None) -> dict[str, Any]:
    return {"sample": lease.sample_id, "epoch": lease.epoch, "attempt": lease.number, "tree": tree_id}


def build_bench_command(*words: str) -> str:
    """Return a command of ``sessiontree bench`` to copy: a shell passes each word on unchanged."""
    name, *given = words
    marked = ["--", *given] if any(word.startswith("-") for word in given) else given
    return shlex.join(["sessiontree", "bench", name, *marked])


def _format_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
