"""Directories of runs: made of given scores, or by a small suite that really ran."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AssistantMessage, FunctionModel, ModelRequest, SessionKind, SessionTree, Usage
from sessiontree.bench import Attempt, RunResults, Sample, Suite
from sessiontree.bench.ledger.ledger_tables import open_ledger
from sessiontree.contracts.values.messages import TextContent

HOSTILE = "<script>alert(1)</script>"
"""What sample ids, answers and errors may hold."""
BEGAN_MS = 1_790_000_000_000


@dataclass(frozen=True, slots=True)
class GivenSample:
    """One (sample, epoch) of a run that is made up."""

    sample_id: str
    values: Mapping[str, float] = field(default_factory=dict)
    """Values by score; 1 and more is a pass. Empty = it is not scored."""
    epoch: int = 1
    status: str = "completed"
    state: str = "scored"
    lost: int = 0
    """Attempts that were lost before the last one."""
    error_kind: str | None = None
    error: str | None = None
    wall_ms: int = 1_000
    cost_usd: float = 0.01
    answer: str = "42"
    models: tuple[str, ...] = ("scripted",)
    """The model of each of its sessions."""


def make_run(
    run_dir: Path, samples: Iterable[GivenSample], *, suite: str = "sums", model: str = "scripted"
) -> Path:
    """Write the ledger of a run; its trees have no journals."""
    run_dir.mkdir(parents=True, exist_ok=True)
    positions: dict[str, int] = {}
    with closing(open_ledger(run_dir / "ledger.sqlite")) as ledger:
        ledger.execute("BEGIN")
        ledger.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", [("suite", suite), ("model", model)])
        for given in samples:
            position = positions.setdefault(given.sample_id, len(positions))
            _write_sample(ledger, given, position)
        ledger.execute("COMMIT")
    return run_dir


def _write_sample(ledger: sqlite3.Connection, given: GivenSample, position: int) -> None:
    key = (given.sample_id, given.epoch)
    number = 0 if given.state == "waiting" else given.lost + 1
    lease = f"driver {position} {given.epoch} {number}"
    _insert(
        ledger,
        "samples",
        sample_id=given.sample_id,
        epoch=given.epoch,
        position=position,
        state=given.state,
        attempts=number,
        lease_id=lease if given.state in {"scored", "leased"} else None,
    )
    for each in range(1, number + 1):
        is_last = each == number
        outcome = {"scored": "scored", "failed": "error", "leased": None}[given.state] if is_last else "lost"
        began_ms = BEGAN_MS + 10_000 * position + 100 * each
        _insert(
            ledger,
            "attempts",
            lease_id=f"driver {position} {given.epoch} {each}",
            sample_id=given.sample_id,
            epoch=given.epoch,
            number=each,
            owner="driver",
            tree_id=tree_of(position, given.epoch, each),
            workspace="/workspaces/x",
            started_at_ms=began_ms,
            beat_at_ms=began_ms,
            ended_at_ms=None if outcome is None else began_ms + given.wall_ms,
            outcome=outcome,
            error_kind=given.error_kind if is_last else None,
            error=given.error if is_last else None,
        )
    if given.state != "scored":
        return
    scores = {
        name: {
            "value": value,
            "passed": value >= 1,
            "answer": given.answer,
            "explanation": f"expected {given.answer}",
            "metadata": {"position": position},
        }
        for name, value in given.values.items()
    }
    tree_id, sessions = tree_of(position, given.epoch, number), len(given.models)
    _insert(
        ledger,
        "scores",
        sample_id=given.sample_id,
        epoch=given.epoch,
        lease_id=lease,
        tree_id=tree_id,
        scores=json.dumps(scores),
        passed=all(value >= 1 for value in given.values.values()),
        status=given.status,
        wall_ms=given.wall_ms,
        input_tokens=100 * sessions,
        output_tokens=10 * sessions,
        cost_usd=given.cost_usd,
        turns=sessions,
        tool_calls=sessions,
        sessions=sessions,
        output=json.dumps(given.answer),
        committed_at_ms=BEGAN_MS + 10_000 * position + 5_000,
    )
    for index, model in enumerate(given.models):
        _insert(
            ledger,
            "sessions",
            sample_id=key[0],
            epoch=key[1],
            lease_id=lease,
            tree_id=tree_id,
            session_id="main" if index == 0 else f"main/w{index}",
            kind="main" if index == 0 else "worker",
            parent=None if index == 0 else "main",
            agent="default",
            model=model,
            status="completed",
            input_tokens=100,
            output_tokens=10,
            cost_usd=given.cost_usd / sessions,
            turns=1,
            tool_calls=1,
        )


def _insert(ledger: sqlite3.Connection, table: str, **row: Any) -> None:
    marks = ", ".join("?" for _ in row)
    names = ", ".join(row)
    statement = f"INSERT OR REPLACE INTO {table}({names}) VALUES ({marks})"  # noqa: S608 - names of this file
    ledger.execute(statement, tuple(row.values()))


def tree_of(position: int, epoch: int, number: int) -> str:
    """Return the id of a tree that is made up."""
    return f"t{position:06x}{epoch:04x}{number:06x}"


def passes(*outcomes: int, name: str = "exact") -> list[GivenSample]:
    """Return samples with one score each."""
    return [GivenSample(f"s{index}", {name: float(each)}) for index, each in enumerate(outcomes)]


SUMS = (
    *(Sample(f"sum-{a}-{b}", f"{a} + {b}", a + b) for a in (1, 2) for b in (1, 2, 3)),
    Sample(HOSTILE, "?"),
)
"""What the suite that really runs solves; the last one is not a sum."""


def answer(request: ModelRequest) -> AssistantMessage:
    """Add in a Worker, and be wrong about 2 + 3; what Main says, it repeats."""
    text = request.messages[-1].text
    if request.kind is SessionKind.WORKER:
        first, _, second = text.partition(" + ")
        text = str(int(first) + int(second) + (text == "2 + 3"))
    tokens = 10 * len(text)
    return AssistantMessage((TextContent(text),), usage=Usage(tokens, len(text), 0.001 * tokens))


async def solve(attempt: Attempt[str]) -> str:
    """Give the sum to a Worker, and what it said to Main."""
    if attempt.sample.id == HOSTILE:
        raise ValueError(f"{HOSTILE} is not a sum \x1b[31m")
    (result,) = await attempt.tree.main.map("worker", [attempt.sample.input])
    return str(await attempt.tree.main.send(result.summary))


def exact(attempt: Attempt[str]) -> bool:
    """Whether the sum is right."""
    return attempt.output == str(attempt.sample.target)


def near(attempt: Attempt[str]) -> float:
    """How near it is."""
    return 1 / (1 + abs(int(attempt.output) - int(attempt.sample.target)))


async def run_sums(run_dir: Path, **options: Any) -> RunResults:
    """Run the suite on the local backend."""
    suite = Suite("sums", SUMS, solve, [exact, near], model=FunctionModel(answer, name="adder"))
    await suite.run(run_dir, backend="local", **options)
    return RunResults(run_dir)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """A run that is shared by the tests of a module shares their loop."""
    return "asyncio"


async def run_sums_with_a_loss(run_dir: Path, **options: Any) -> RunResults:
    """Run the suite, and let one more attempt be lost."""
    results = await run_sums(run_dir, **options)
    await add_lost_attempt(run_dir, "sum-1-1")
    return results


async def add_lost_attempt(run_dir: Path, sample_id: str, epoch: int = 1) -> str:
    """Let a tree work in the run's journals for an attempt that was lost; return its id."""
    workspace = run_dir / "workspaces" / "lost"
    workspace.mkdir(parents=True, exist_ok=True)
    model = FunctionModel(answer, name="adder")
    async with SessionTree(workspace, model=model, backend="local", state_dir=run_dir / "state") as tree:
        await tree.main.send("hello")
    with closing(open_ledger(run_dir / "ledger.sqlite")) as ledger:
        _insert(
            ledger,
            "attempts",
            lease_id=f"lost {tree.tree_id}",
            sample_id=sample_id,
            epoch=epoch,
            number=0,
            owner="driver that died",
            tree_id=tree.tree_id,
            workspace=str(workspace),
            started_at_ms=BEGAN_MS,
            beat_at_ms=BEGAN_MS,
            ended_at_ms=BEGAN_MS + 500,
            outcome="lost",
        )
        ledger.execute(
            "UPDATE samples SET attempts = attempts + 1 WHERE sample_id = ? AND epoch = ?", (sample_id, epoch)
        )
    return tree.tree_id
