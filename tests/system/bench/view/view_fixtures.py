"""Runs to look at: a small suite that really ran, with faults; and one in which every text is an attack."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sessiontree import AssistantMessage, FunctionModel, ModelRequest, SessionKind, Usage
from sessiontree.bench import Attempt, RunResults, Sample, Score, Suite
from sessiontree.contracts.values.messages import TextContent

PLANETS: Final = ("Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune")
MOONS: Final = dict(zip(PLANETS, (0, 0, 1, 2, 95, 146, 28, 16), strict=True))
YEARS: Final = dict(zip(PLANETS, (88, 225, 365, 687, 4333, 10759, 30687, 60190), strict=True))


def _samples() -> list[Sample]:
    samples = []
    for place, planet in enumerate(PLANETS, 1):
        kind = "rock" if place <= 4 else "gas"
        for name, asked, target in (
            ("moons", f"How many moons does {planet} have? Reply with a number.", MOONS[planet]),
            ("year", f"How many days does {planet} take for one turn around the sun?", YEARS[planet]),
            ("place", f"Which planet from the sun is {planet}? Reply with a number.", place),
        ):
            metadata = {"tags": [kind, name], "level": 1 + place // 3, "source": "almanac"}
            samples.append(Sample(f"{planet.lower()}-{name}", asked, target, metadata))
    return samples


SAMPLES: Final = _samples()
WRONG: Final = {
    "strong": {"uranus-moons"},
    "weak": {"uranus-moons", "saturn-moons", "mars-year", "venus-year"},
}
"""What the two models get wrong."""


def _answering(strength: str) -> FunctionModel:
    wrong = WRONG[strength]

    def answer(request: ModelRequest) -> AssistantMessage:
        text = request.messages[-1].text
        if request.kind is SessionKind.WORKER:
            sample = next(each for each in SAMPLES if each.input in text)
            value = int(sample.target) + (sample.id in wrong)
            text = f"The almanac says {value}."
        return AssistantMessage(
            (TextContent(text),), usage=Usage(180 + len(text), 12, 0.0007 if strength == "strong" else 0.0002)
        )

    return FunctionModel(answer, name=f"almanac-{strength}")


async def _solve(attempt: Attempt[str]) -> str:
    """Let a Worker look the answer up, and Main repeat it."""
    (result,) = await attempt.tree.main.map("worker", [attempt.sample.input])
    said = await attempt.tree.main.send(result.summary)
    return str(said).split()[-1].rstrip(".")


def exact(attempt: Attempt[str]) -> Score:
    """Whether the number is right."""
    said, target = attempt.output, str(attempt.sample.target)
    return Score(
        float(said == target), answer=said, explanation=f"expected {target}, and the answer is {said}"
    )


def near(attempt: Attempt[str]) -> Score:
    """How near it is."""
    off = abs(int(attempt.output) - int(attempt.sample.target))
    return Score(1 / (1 + off), passed=True, explanation=f"off by {off}")


async def run_planets(run_dir: Path, strength: str = "strong", **options: Any) -> RunResults:
    """Run the suite on the local backend."""
    suite = Suite("planets", SAMPLES, _solve, [exact, near], model=_answering(strength))
    await suite.run(run_dir, backend="local", **options)
    return RunResults(run_dir)


def write(run_dir: Path, *statements: tuple[str, Iterable[Any]]) -> None:
    """Change the ledger of a run that nobody works on."""
    with closing(sqlite3.connect(run_dir / "ledger.sqlite")) as ledger, ledger:
        for statement, values in statements:
            ledger.execute(statement, tuple(values))


def fail(run_dir: Path, sample_id: str, kind: str, error: str) -> None:
    """Let a scored sample have failed instead, for a reason."""
    write(
        run_dir,
        ("DELETE FROM scores WHERE sample_id = ?", (sample_id,)),
        (
            "UPDATE samples SET state = 'failed', lease_id = NULL, revision = 0 WHERE sample_id = ?",
            (sample_id,),
        ),
        (
            "UPDATE attempts SET outcome = 'error', failure = ?, error = ? WHERE sample_id = ?",
            (kind, error, sample_id),
        ),
    )


async def run_with_faults(run_dir: Path, strength: str = "strong", **options: Any) -> RunResults:
    """Run the suite; three samples are the fault of the infrastructure, and one of a scorer."""
    results = await run_planets(run_dir, strength, **options)
    for sample_id in ("earth-moons", "earth-year"):
        fail(run_dir, sample_id, "provider", "the provider answered 529 after 8 attempts: overloaded")
    fail(run_dir, "jupiter-place", "node", "node 10.0.0.7 was lost with all of its trees")
    fail(run_dir, "neptune-moons", "scorer", "KeyError: 'moons' in scorers.py:41")
    return results
