"""How long a fact takes to become durable, and how many a second do.

Timed: from ``Journal.append`` to the moment its future resolves on the event loop, the disk included.
Busy: another task burns the loop's thread in slices of about 1 ms; appends of 8 facts of about 300 B
come every 2 ms. Idle: one append after the other on a loop that does nothing else. Throughput: 64
appends of 8 facts are always outstanding, each awaited. Evolving: what one fact of a 1,000-turn session
costs to take into the session's state, and with decoding its text (`replay_us`). The baseline, measured
in turn with the journal, is a thread that writes one row per fact with ``executemany`` and commits, same
pragmas, same facts, same switch interval: at Python's own 5 ms a thread may wait for ever for an
interpreter that is let go and taken back each millisecond.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from benchmarks.report import Options, percentile, read_options, show
from sessiontree.contracts.facts.stimuli import (
    Adopted,
    CallFinished,
    CallPrepared,
    Incoming,
    ModelAnswered,
    Stimulus,
)
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.codec import pack
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage
from sessiontree.journal.journal import WRITERS, Journal
from sessiontree.journal.record import Packed
from sessiontree.journal.replay import read_fact
from sessiontree.session.decide import react
from sessiontree.session.evolve import evolve
from sessiontree.session.state import make_initial_state

SLICE_S = 0.001
GAP_S = 0.002
OUTSTANDING = 64
ROUNDS = 5
LIMITS = Limits(max_turns=100_000, max_repeats=None)
SPEC = SessionSpec(
    session_id="main",
    kind=SessionKind.MAIN,
    parent=None,
    depth=0,
    agent="default",
    task="",
    label=None,
    via="root",
    tools=("read",),
    result_schema=None,
    rules=(),
    approver=None,
    owns_channel=True,
    budget=None,
    key=None,
)
FACTS = [
    Packed(f"stimulus-{n}", 1_760_000_000_000, json.dumps({"kind": "text", "v": 1, "text": "x" * 260}))
    for n in range(8)
]


class Log(Protocol):
    """What is timed: something that makes eight facts durable."""

    def append(self, turn: int) -> Awaitable[None]:
        """Return what resolves once they are."""
        ...


class JournalLog:
    """The journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def append(self, turn: int) -> Awaitable[None]:
        """Append for two of fifty sessions."""
        chunks = [(f"main/b{turn % 50}", FACTS[:4]), (f"main/b{(turn + 1) % 50}", FACTS[4:])]
        return self._journal.append("tree", chunks)[1]


class RowLog:
    """The baseline: one row per fact."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE facts(session TEXT, cause TEXT, at_ms INTEGER, text TEXT)")
        self._thread = ThreadPoolExecutor(1)
        WRITERS.hold()

    def append(self, turn: int) -> Awaitable[None]:
        """Insert for two of fifty sessions."""
        rows = [(f"main/b{turn % 50}", fact.cause, fact.at_ms, fact.text) for fact in FACTS[:4]]
        rows += [(f"main/b{(turn + 1) % 50}", fact.cause, fact.at_ms, fact.text) for fact in FACTS[4:]]
        return asyncio.get_running_loop().run_in_executor(self._thread, self._commit, rows)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
        self._connection.close()
        WRITERS.release()

    def _commit(self, rows: list[tuple[str, str, int, str]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO facts VALUES (?, ?, ?, ?)", rows)
        self._connection.execute("COMMIT")


async def burn(ended: asyncio.Event) -> None:
    """Keep the loop's thread busy, letting others have their turn after each slice."""
    while not ended.is_set():
        until = time.perf_counter() + SLICE_S
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


async def timed(log: Log, turn: int, taken_ms: list[float]) -> None:
    """Add the milliseconds of one append."""
    started = time.perf_counter()
    await log.append(turn)
    taken_ms.append((time.perf_counter() - started) * 1000)


async def busy(log: Log, count: int, *, overlapping: bool) -> list[float]:
    """Return milliseconds per append alongside a burning task.

    Args:
        log: What is timed.
        count: How many appends.
        overlapping: Append every ``GAP_S`` whether or not the one before is durable; else wait for it.
    """
    ended = asyncio.Event()
    taken_ms: list[float] = []
    async with asyncio.TaskGroup() as burning:
        burning.create_task(burn(ended))
        async with asyncio.TaskGroup() as appending:
            for turn in range(count):
                if overlapping:
                    appending.create_task(timed(log, turn, taken_ms))
                    await asyncio.sleep(GAP_S)
                else:
                    await timed(log, turn, taken_ms)
        ended.set()
    return taken_ms


async def idle(log: Log, count: int) -> list[float]:
    """Return milliseconds per append on an idle loop."""
    taken_ms: list[float] = []
    for turn in range(count):
        await timed(log, turn, taken_ms)
    return taken_ms


async def facts_per_s(log: Log, turns: int) -> float:
    """Return durable facts per second while ``OUTSTANDING`` appends wait at any time."""

    async def one(number: int) -> None:
        for turn in range(turns):
            await log.append(number * turns + turn)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(OUTSTANDING):
            group.create_task(one(number))
    return OUTSTANDING * turns * len(FACTS) / (time.perf_counter() - started)


async def with_journal(run: Callable[[Log], Awaitable[None]]) -> None:
    """Run something on a new journal; its short switch interval ends with it."""
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal.open(Path(directory) / "state")
        journal.start(asyncio.get_running_loop())
        await journal.create_tree("tree", {})
        await run(JournalLog(journal))
        await journal.close()


async def with_rows(run: Callable[[Log], Awaitable[None]]) -> None:
    """Run something on a new baseline."""
    with tempfile.TemporaryDirectory() as directory:
        log = RowLog(Path(directory) / "rows.db")
        await run(log)
        log.close()


def evolve_and_replay_us(turns: int) -> tuple[float, float]:
    """Return microseconds per fact: evolving a session's facts, and decoding and evolving their texts."""
    texts = session_facts(turns)
    facts = [read_fact(text) for text in texts]
    evolving: list[float] = []
    replaying: list[float] = []
    for _ in range(ROUNDS):
        state = make_initial_state(SPEC, LIMITS)
        started = time.perf_counter()
        for fact in facts:
            evolve(state, fact)
        evolving.append(time.perf_counter() - started)
        state = make_initial_state(SPEC, LIMITS)
        started = time.perf_counter()
        for text in texts:
            evolve(state, read_fact(text))
        replaying.append(time.perf_counter() - started)
    return (
        statistics.median(evolving) / len(facts) * 1e6,
        statistics.median(replaying) / len(facts) * 1e6,
    )


def session_facts(turns: int) -> list[str]:
    """Return the packed facts of a session that made one ReadOnly call a turn."""
    state = make_initial_state(SPEC, LIMITS)
    texts: list[str] = []

    def happens(stimulus: Stimulus) -> None:
        texts.extend(pack(fact) for fact in react(state, stimulus)[0])

    happens(Adopted(1, ("read",), "model", "prompt"))
    happens(Incoming(1, "m1", "go", "follow_up", "user"))
    call = AssistantMessage((ToolCall("c1", "read", {"path": "a.txt"}),), "toolUse")
    result = ToolResultMessage("c1", "read", (TextContent("x" * 200),), None, False, 1)
    for turn in range(1, turns + 1):
        happens(ModelAnswered(1, turn, call))
        happens(CallPrepared(1, CheckedCall(f"{turn}.0", "read", {"path": "a.txt"}, "", 0, True), False))
        happens(CallFinished(1, f"{turn}.0", "ok", result))
    return texts


async def measure(options: Options) -> dict[str, float]:
    """Return the figures, journal and baseline in turn."""
    appends, waits, turns = (24, 40, 10) if options.quick else (120, 200, 50)
    busy_ms: list[list[float]] = []
    idle_ms: list[float] = []
    rates: list[float] = []
    row_busy_ms: list[float] = []
    row_rates: list[float] = []

    async def journal_round(log: Log) -> None:
        busy_ms.append(await busy(log, appends, overlapping=True))
        idle_ms.append(statistics.median(await idle(log, waits)))
        rates.append(await facts_per_s(log, turns))

    async def row_round(log: Log) -> None:
        row_busy_ms.append(statistics.median(await busy(log, 5, overlapping=False)))
        row_rates.append(await facts_per_s(log, max(1, turns // 10)))

    for _ in range(ROUNDS):
        await with_journal(journal_round)
        await with_rows(row_round)
    p50 = statistics.median([percentile(part, 50) for part in busy_ms])
    evolve_us, replay_us = evolve_and_replay_us(200 if options.quick else 1000)
    rate, row_p50, row_rate = (statistics.median(part) for part in (rates, row_busy_ms, row_rates))
    return {
        "commit_busy_p50_ms": p50,
        "commit_busy_p99_ms": percentile([value for part in busy_ms for value in part], 99),
        "commit_idle_p50_ms": statistics.median(idle_ms),
        "facts_per_s": rate,
        "evolve_us": evolve_us,
        "replay_us": replay_us,
        "row_busy_p50_ms": row_p50,
        "row_facts_per_s": row_rate,
        "busy_ratio": row_p50 / p50,
        "facts_ratio": rate / row_rate,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options("How long a fact takes to become durable, and how many a second do.", arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()
