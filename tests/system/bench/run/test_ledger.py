"""The ledger on SQLite: it agrees with the one in memory, and what it returned is durable."""

from __future__ import annotations

import asyncio
import queue
import select
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sessiontree import ConfigError, JournalError
from sessiontree.bench.ledger import ledger_thread
from sessiontree.bench.ledger.leases import CostCapReached, Leased, SampleLease, Tally
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.ledger_rules import CostCap, Ending
from sessiontree.bench.ledger.ledger_tables import AttemptResult, open_ledger
from sessiontree.bench.ledger.retry_samples import mark_chosen
from sessiontree.bench.ledger.run_log import put_controls, rescore
from sessiontree.bench.suite.retry_choice import RetryChoice
from sessiontree.bench.suite.suite import Score
from tests.system.bench.run.ledger_oracle import MemoryLedger

KEYS = ("a", "b", "c")
RETRIES = 1
OWNERS = ("p", "q")
OWNER = st.sampled_from(OWNERS)
DONE = AttemptResult({"exact": Score(1.0)}, "completed", 5)


class TwoLedgers(RuleBasedStateMachine):
    """Two programs over one file, and the same steps in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.file = Path(self.folder.name, "ledger.sqlite")
        self.memory = MemoryLedger(KEYS, RETRIES)
        self.ledgers = {owner: Ledger(self.file, owner, beat_s=1e6) for owner in OWNERS}
        for ledger in self.ledgers.values():
            self.runner.run(ledger.__aenter__())
        self.runner.run(self.ledgers["p"].prepare({"suite": "s"}, KEYS, 1, RETRIES))
        self.leases: list[tuple[str, SampleLease, str]] = []
        """Owner, lease, and the lease in memory."""

    @rule(owner=OWNER)
    def lease(self, owner: str) -> None:
        """Both give the same sample."""
        expected = self.memory.lease(owner)
        found = self.runner.run(self.ledgers[owner].lease(1, 1)).leases
        assert [each.sample_id for each in found] == (
            [] if expected is None else [self.memory.keys[expected]]
        )
        if expected is not None:
            self.leases.append((owner, found[0], expected))

    @rule(at=st.integers(0, 20))
    def commit(self, at: int) -> None:
        """Both accept or refuse a score, also one of a lease that ended long ago."""
        if self.leases:
            owner, lease, twin = self.leases[at % len(self.leases)]
            assert self.runner.run(self.ledgers[owner].commit(lease, DONE)) == self.memory.commit(twin)

    @rule(at=st.integers(0, 20), ending=st.sampled_from(["error", "shared", "run", "cancelled"]))
    def give_back(self, at: int, ending: Ending) -> None:
        """Both end an attempt, once."""
        if self.leases:
            owner, lease, twin = self.leases[at % len(self.leases)]
            found = self.runner.run(self.ledgers[owner].give_back(lease, ending, RETRIES))
            assert found == self.memory.give_back(twin, ending)

    @rule(owner=OWNER, key=st.sampled_from(KEYS))
    def retry(self, owner: str, key: str) -> None:
        """Both let the same samples wait again."""
        count = self.runner.run(
            self.ledgers[owner].do(partial(mark_chosen, choice=RetryChoice(samples=[key])))
        )
        assert count == self.memory.retry(key)

    @rule(owner=OWNER, key=st.sampled_from(KEYS), late=st.integers(0, 1))
    def rescore(self, owner: str, key: str, late: int) -> None:
        """Both accept or refuse another score, also one for a score that gave way."""
        revision = self.memory.rows[key].revision - late
        changes = {"scores": "{}", "passed": 1, "status": "completed", "provenance": 1}
        written = self.runner.run(
            self.ledgers[owner].do(lambda db: rescore(db, (key, 1), revision, changes, "new scorers"))
        )
        assert written == self.memory.rescore(key, revision)

    @rule(owner=OWNER, paused=st.booleans())
    def pause(self, owner: str, paused: bool) -> None:
        """Both are paused, for all programs."""
        self.runner.run(self.ledgers[owner].do(lambda db: put_controls(db, {"paused": paused})))
        self.memory.is_paused = paused

    @rule(owner=OWNER, is_late=st.booleans())
    def take_over(self, owner: str, is_late: bool) -> None:
        """Both end the other's leases, unless the beats were raised meanwhile."""
        ledger, other = self.ledgers[owner], next(each for each in OWNERS if each != owner)
        seen = {lease: beat for lease, (_, beat) in self.runner.run(ledger.list_others()).items()}
        expected = self.memory.others(owner)
        twins = {lease.lease_id: twin for _, lease, twin in self.leases}
        assert {twins[lease]: beat for lease, beat in seen.items()} == expected
        if is_late:
            held = self.runner.run(self.ledgers[other].beat())
            assert {twins[lease] for lease in held} == self.memory.beat(other)
        taken = self.runner.run(ledger.take_over(seen, RETRIES))
        assert len(taken) == len(self.memory.take_over(expected))

    @invariant()
    def the_rows_agree(self) -> None:
        """States, counts and scores are the same in both."""
        with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as db:
            rows = db.execute("SELECT sample_id, state, attempts, failures, suspect FROM samples").fetchall()
            scored = dict(db.execute("SELECT sample_id, revision FROM scores").fetchall())
            past = db.execute("SELECT sample_id, revision, reason FROM past_scores ORDER BY 1, 2").fetchall()
        db.close()
        assert {key: (state, *counts) for key, state, *counts in rows} == {
            key: (row.state, row.attempts, row.failures, row.suspect) for key, row in self.memory.rows.items()
        }
        rows_in_memory = self.memory.rows
        live = {key: rows_in_memory[key].revision for key, leases in self.memory.scores.items() if leases}
        assert scored == live
        assert [(key, revision) for key, revision, _ in past] == [
            (key, revision) for key in KEYS for revision, _ in self.memory.past[key]
        ]
        assert all(reason for _, _, reason in past)

    def teardown(self) -> None:
        """Close both."""
        for ledger in self.ledgers.values():
            self.runner.run(ledger.__aexit__())
        self.runner.close()
        self.folder.cleanup()


@pytest.mark.covers("C14")
@pytest.mark.slow
def test_ledger_on_sqlite_agrees_with_the_one_in_memory() -> None:
    """Whatever two programs do."""
    few = settings(max_examples=12, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(TwoLedgers, settings=few)


@asynccontextmanager
async def opened(path: Path, owner: str, samples: int = 1, beat_s: float = 1e6) -> AsyncIterator[Ledger]:
    """Open a ledger with samples."""
    async with Ledger(path / "ledger.sqlite", owner, beat_s=beat_s) as ledger:
        await ledger.prepare({"suite": "s"}, [f"s{number}" for number in range(samples)], 1, RETRIES)
        yield ledger


async def test_closed_ledger_takes_its_leases_back(tmp_path: Path) -> None:
    """What a program did not finish waits for the next one, and counts as no failure."""
    async with opened(tmp_path, "p") as ledger:
        assert (await ledger.lease(5, 1)).leases
    async with opened(tmp_path, "q") as ledger:
        (lease,) = (await ledger.lease(5, 1)).leases
        assert lease.number == 2
        assert await ledger.commit(lease, DONE)
        tally = await ledger.tally(1)
    assert (tally.scored, tally.waiting, tally.passed) == (1, 0, 1)


async def test_closed_ledger_fails_no_sample(tmp_path: Path) -> None:
    """Also one that had infrastructure errors before waits for the next program."""
    async with opened(tmp_path, "p") as ledger:
        (lease,) = (await ledger.lease(1, 1)).leases
        await ledger.give_back(lease, "error", RETRIES, error=ValueError("gone"))
        (lease,) = (await ledger.lease(1, 1)).leases
    async with opened(tmp_path, "q") as ledger:
        assert (await ledger.tally(1)).waiting == 1
        (lease,) = (await ledger.lease(1, 1)).leases
        await ledger.give_back(lease, "cancelled", 0)
        assert (await ledger.tally(1)).waiting == 1


@pytest.mark.covers("C14")
async def test_beats_go_on_while_the_loop_is_busy_and_report_lost_leases(tmp_path: Path) -> None:
    """The ledger's own thread raises them; a lease that somebody took over is reported."""
    lost: asyncio.Queue[str] = asyncio.Queue()
    async with opened(tmp_path, "p", beat_s=0.01) as ledger, opened(tmp_path, "q") as other:
        ledger.on_lost = lost.put_nowait
        (lease,) = (await ledger.lease(1, 1)).leases
        _, before = (await other.list_others())[lease.lease_id]
        select.select([], [], [], 0.3)  # the loop does nothing meanwhile
        _, after = (await other.list_others())[lease.lease_id]
        assert after > before
        while not await other.take_over({lease.lease_id: (await other.list_others())[lease.lease_id][1]}, 3):
            pass
        assert await lost.get() == lease.lease_id
        assert not await ledger.commit(lease, DONE)


async def test_several_leases_are_taken_at_once_in_order(tmp_path: Path) -> None:
    """First all samples of the first epoch, in the suite's order, as far as the limit goes."""
    async with Ledger(tmp_path / "ledger.sqlite", "p") as ledger:
        await ledger.prepare({}, ["x", "b", "a"], 2, RETRIES)
        found = [(each.sample_id, each.epoch) for each in (await ledger.lease(9, 2, 2)).leases]
        assert found == [("x", 1), ("b", 1), ("x", 2), ("b", 2)]
        assert [each.sample_id for each in (await ledger.lease(9, 1)).leases] == ["a"]


async def test_failed_samples_wait_again_with_more_retries(tmp_path: Path) -> None:
    """A sample that had too many infrastructure errors is failed until a command allows more."""
    async with opened(tmp_path, "p") as ledger:
        for _ in range(RETRIES + 1):
            (lease,) = (await ledger.lease(1, 1)).leases
            await ledger.give_back(lease, "error", RETRIES, error=ValueError("gone"))
        assert (await ledger.tally(1)).failed == 1
        await ledger.prepare({"suite": "s"}, ["s0"], 1, RETRIES + 1)
        assert (await ledger.tally(1)).waiting == 1


async def test_money_is_reserved_spent_and_reached(tmp_path: Path) -> None:
    """Leases reserve their part; what attempts cost is spent, scored or not; then the cap is reached."""
    cap = CostCap(1.0, 0.4, 4)
    async with opened(tmp_path, "p", samples=5) as ledger:
        first = await ledger.lease(5, 1, cap=cap)
        assert [each.reserved_usd for each in first.leases] == [0.4, 0.4]
        assert not first.is_capped
        assert (await ledger.lease(5, 1, cap=cap)).leases == []
        ledger.costs[first.leases[0].lease_id] = 0.35
        stopped = CostCapReached("s0", 0.4)
        await ledger.give_back(first.leases[0], "cancelled", RETRIES, error=stopped)
        await ledger.give_back(first.leases[1], "cancelled", RETRIES, cost_usd=0.3)
        last = await ledger.lease(5, 1, cap=cap)
        assert last.is_capped
        assert last.leases == []
        assert (await ledger.tally(1)).cost_usd == pytest.approx(0.65)
        assert len((await ledger.lease(5, 1, cap=CostCap(9.0, 0.4, 4))).leases) == 5


async def test_unusable_ledger_is_refused(tmp_path: Path) -> None:
    """A file that is not a ledger, or of another release: one clear error."""
    (tmp_path / "bad").write_bytes(b"no database" * 100)
    with pytest.raises(JournalError, match="not a database"):
        await Ledger(tmp_path / "bad", "p").__aenter__()
    db = open_ledger(tmp_path / "later")
    db.execute("UPDATE run SET value = '99' WHERE key = 'ledger_version'")
    db.close()
    with pytest.raises(JournalError, match="its form is 99"):
        await Ledger(tmp_path / "later", "p").__aenter__()


async def test_another_run_is_not_entered(tmp_path: Path) -> None:
    """Where the settings differ, no sample is entered and the ledger's settings come back."""
    async with opened(tmp_path, "p") as ledger:
        assert (await ledger.lease(1, 1)).leases
        assert (await ledger.prepare({"suite": "t"}, ["x"], 1, RETRIES))["suite"] == "s"
        assert (await ledger.tally(1)).total == 1


def wait_until_empty(work: queue.SimpleQueue[Any]) -> None:
    """Wait until a thread has taken all."""
    while not work.empty():
        threading.Event().wait(0.001)


async def test_note_joins_the_next_transaction_and_waits_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note costs no transaction where something follows, and is written soon where nothing does."""
    said: list[str] = []
    written = threading.Event()
    async with opened(tmp_path, "p") as ledger:
        (lease,) = (await ledger.lease(1, 1)).leases
        await ledger.do(lambda db: db.set_trace_callback(said.append))
        with monkeypatch.context() as changed:
            changed.setattr(ledger_thread, "NOTE_S", 60.0)
            ledger.note_tree(lease, "t1")
            await asyncio.to_thread(wait_until_empty, ledger._thread._work)
            found = await ledger.do(lambda db: db.execute("SELECT tree_id FROM attempts").fetchall())
        assert found == [("t1",)]
        assert said.count("BEGIN IMMEDIATE") == 1

        def hear(text: str) -> None:
            if text == "COMMIT":
                written.set()

        await ledger.do(lambda db: db.set_trace_callback(hear))
        written.clear()
        ledger.note_tree(lease, "t2")
        assert await asyncio.to_thread(written.wait, 60.0)


async def ended_attempt(ledger: Ledger, how: str) -> None:
    """Have an attempt end in one way."""
    (lease,) = (await ledger.lease(1, 1)).leases
    if how == "with a tree":
        ledger.note_tree(lease, "t1")
    if how == "scored":
        await ledger.commit(lease, AttemptResult({"s": Score(1.0)}, "completed", 1))
    elif how == "its program was killed":
        await ledger.take_over({lease.lease_id: 0}, RETRIES)
    elif how != "open":
        await ledger.give_back(lease, "cancelled", RETRIES, error=ConfigError("no key"))


async def test_run_that_never_began_gives_its_place_to_another(tmp_path: Path) -> None:
    """Nothing of it is left, and its own program does not go on; a run that began, or may have, stays."""
    async with opened(tmp_path, "p", samples=2) as ledger, opened(tmp_path, "q") as other:
        await ended_attempt(ledger, "without a tree")
        assert (await other.prepare({"suite": "t"}, ["x"], 1, RETRIES))["suite"] == "t"
        assert await other.tally(1) == Tally(waiting=1)
        with pytest.raises(ConfigError, match="another program began another run here"):
            await ledger.lease(1, 1)
        assert [each.number for each in (await other.lease(2, 1)).leases] == [1]
    for how in ("open", "with a tree", "scored", "its program was killed"):
        place = tmp_path / how
        place.mkdir()
        async with opened(place, "p") as ledger:
            await ended_attempt(ledger, how)
            assert (await ledger.prepare({"suite": "t"}, ["x"], 1, RETRIES))["suite"] == "s", how


@pytest.mark.parametrize("limit", [2**63, object()], ids=["large", "object"])
async def test_value_that_sqlite_refuses_ends_one_call_and_no_more(tmp_path: Path, limit: int) -> None:
    """Others that are committed with it are not concerned, and the thread goes on."""
    async with opened(tmp_path, "p") as ledger:
        calls = (ledger.tally(1), ledger.tally(1, limit), ledger.lease(1, 1))
        before, wrong, after = [asyncio.ensure_future(call) for call in calls]
        await asyncio.wait([before, wrong, after])
        assert isinstance(before.result(), Tally)
        assert isinstance(after.result(), Leased)
        assert isinstance(wrong.exception(), OverflowError | sqlite3.Error)
        assert (await ledger.tally(1)).total == 1


async def test_closed_ledger_refuses_work(tmp_path: Path) -> None:
    """A call to it ends with an error, and does not wait for its thread."""
    async with opened(tmp_path, "p") as ledger:
        pass
    with pytest.raises(JournalError, match="it is closed"):
        await ledger.tally(1)


OPENERS = """
import multiprocessing, pathlib, sys
from sessiontree.bench.ledger.ledger_tables import open_ledger

def open_each(folder, together):
    try:
        for n in range(40):
            together.wait()
            open_ledger(folder / f"{n}.sqlite").close()
    except BaseException:
        together.abort()
        raise

forked = multiprocessing.get_context("fork")
together = forked.Barrier(6)
openers = [forked.Process(target=open_each, args=(pathlib.Path(sys.argv[1]), together)) for _ in range(6)]
for each in openers:
    each.start()
for each in openers:
    each.join()
sys.exit(any(each.exitcode for each in openers))
"""
"""Six processes that open forty new ledgers, each at the same moment."""


@pytest.mark.slow
def test_programs_that_open_a_new_ledger_at_the_same_moment_all_get_it(tmp_path: Path) -> None:
    """SQLite doesn't wait by itself while another program sets how the file is written."""
    done = subprocess.run(
        [sys.executable, "-c", OPENERS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
