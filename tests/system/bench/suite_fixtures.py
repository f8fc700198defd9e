"""Suites for tests: an echo that passes, what can be counted, and a program that is killed."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree import AssistantMessage, FunctionModel, ModelRequest, Usage
from sessiontree.bench import Attempt, Sample, Suite
from sessiontree.bench.ledger.leases import SampleLease
from sessiontree.bench.ledger.ledger_tables import AttemptResult
from sessiontree.bench.run.place.progress import RunPace, RunProgress
from sessiontree.contracts.values.messages import TextContent

CENT = Usage(6, 4, 0.01)


def echo(request: ModelRequest) -> AssistantMessage:
    """Repeat what was said, for ten tokens and a cent."""
    return AssistantMessage((TextContent(request.messages[-1].text),), usage=CENT)


ECHO = FunctionModel(echo, name="echo")


async def solve(attempt: Attempt[str]) -> str:
    """Send the sample to Main."""
    return await attempt.tree.main.send(attempt.sample.input)


def exact(attempt: Attempt[str]) -> bool:
    """Compare the output with the target."""
    return bool(attempt.output == attempt.sample.target)


def samples(count: int) -> list[Sample]:
    """Return samples that the echo passes."""
    return [Sample(f"s{number}", f"say {number}", f"say {number}") for number in range(count)]


def suite(count: int = 3, **options: Any) -> Suite:
    """Return a suite of so many samples."""
    given: dict[str, Any] = {"model": ECHO, "solver": solve, "scorers": exact, **options}
    return Suite("echo", given.pop("samples", samples(count)), **given)


def rows(run_dir: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return what a query finds in a run's ledger."""
    db = sqlite3.connect(f"file:{run_dir / 'ledger.sqlite'}?mode=ro", uri=True)
    try:
        return db.execute(query, values).fetchall()
    finally:
        db.close()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command's run ended."""

    total: int
    scored: int
    passed: int
    failed: int
    cost_usd: float
    why: str
    undecided: int = 0


async def ended(suite: Suite, run_dir: Path, heard: Heard | None = None, **options: Any) -> Ended:
    """Run a suite on the local backend, and return how that ended."""
    heard = heard or Heard()
    results = await suite.run(run_dir, progress=heard, **{"backend": "local", **options})
    counts, pace = results.counts, heard.pace()
    return Ended(
        counts.total,
        counts.scored,
        pace.passed,
        counts.failed,
        pace.cost_usd,
        heard.lines[-1],
        counts.undecided,
    )


class Heard(RunProgress):
    """Keeps everything that it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.results: list[tuple[SampleLease, AttemptResult]] = []
        self.paces: list[RunPace] = []

    def scored(self, lease: SampleLease, result: AttemptResult) -> None:
        """Keep the result."""
        super().scored(lease, result)
        self.results.append((lease, result))

    def say(self, text: str) -> None:
        """Keep the line."""
        self.lines.append(text)

    def show(self, pace: RunPace) -> None:
        """Keep the pace."""
        self.paces.append(pace)
