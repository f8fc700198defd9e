"""What steers a run: pauses, settings while it runs, a limit of errors, a selection; and what it refuses."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError
from sessiontree.bench import Attempt, RunResults, Sample
from sessiontree.bench.ledger.leases import Tally
from sessiontree.bench.mend_commands import pause, resume, set_settings
from sessiontree.bench.results.comparison import compare_runs
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.run_history import sum_worked_ms
from sessiontree.bench.run import runner
from sessiontree.bench.run.place.error_limit import ErrorLimit
from tests.system.bench.suite_fixtures import Heard, rows, samples, suite


class Silent:
    """A screen that shows nothing."""

    is_live = False

    def line(self, text: str) -> None:
        """Show nothing."""

    raw = line

    def table(self, header: Any, rows: Any) -> None:
        """Show nothing."""


async def raising(attempt: Attempt[str]) -> str:
    """Fail."""
    raise KeyError(attempt.sample.id)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a fact that nothing reports."""
    while not is_so():  # noqa: ASYNC110 - another thread or program makes it so
        await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.covers("SUI15")
async def test_run_pauses_and_takes_settings_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the command that pauses, nothing begins; what runs ends; then the new settings hold."""
    monkeypatch.setattr(runner, "WATCH_S", 0.05)
    run_dir, heard, began = tmp_path / "run", Heard(), list[str]()
    may_end = asyncio.Event()
    first = asyncio.Event()
    at_once = [0, 0]

    async def solve(attempt: Attempt[str]) -> str:
        began.append(attempt.sample.id)
        first.set()
        at_once[0] += 1
        at_once[1] = max(at_once)
        await may_end.wait()
        at_once[0] -= 1
        return attempt.sample.input

    running = asyncio.create_task(
        suite(12, solver=solve).run(run_dir, backend="local", concurrency=1, progress=heard)
    )
    await first.wait()
    screen: Any = Silent()
    await asyncio.to_thread(pause, screen, run=str(run_dir))
    may_end.set()
    await until(lambda: any("paused" in line for line in heard.lines))
    await until(lambda: rows(run_dir, "SELECT 1 FROM samples WHERE state = 'leased'") == [])
    assert began == ["s0"]
    may_end.clear()
    words = ["concurrency=4", "sample_timeout=77"]
    await asyncio.to_thread(set_settings, screen, run=str(run_dir), values=words)
    await until(lambda: any("concurrency was 1 and is 4" in line for line in heard.lines))
    await asyncio.to_thread(resume, screen, run=str(run_dir))
    await until(lambda: at_once[0] == 4)
    may_end.set()
    await running
    assert at_once[1] == 4
    limits = rows(run_dir, "SELECT sample_timeout_s, count(*) FROM attempts GROUP BY 1 ORDER BY 1")
    assert limits == [(77.0, 11), (600.0, 1)]
    for wrong in ("concurrency=0", "speed=1", "concurrency"):
        with pytest.raises(ConfigError):
            await asyncio.to_thread(set_settings, screen, run=str(run_dir), values=[wrong])


@pytest.mark.parametrize(
    ("given", "errors", "ended", "stops"),
    [
        (None, 9, 9, False),
        (None, 10, 10, True),
        (None, 99, 100, False),
        (3, 2, 100, False),
        ("3", 3, 3, True),
        ("20%", 2, 9, False),
        (0.2, 3, 12, True),
        (0.2, 2, 10, False),
        (1.0, 100, 100, False),
        ("100%", 100, 100, False),
    ],
)
def test_errors_stop_a_run(given: Any, errors: int, ended: int, stops: bool) -> None:
    """At a number, above a share, or when the first ten all end in one."""
    tally = Tally(scored=ended - errors, undecided=errors)
    assert ErrorLimit.of(given).is_reached(tally) == stops


@pytest.mark.parametrize("given", [0, -1, "x", "150%", True, 1.5, "0"])
def test_another_limit_of_errors_is_refused(given: Any) -> None:
    """With the forms that it may have."""
    with pytest.raises(ConfigError, match=r"fail_on_error is .*; give a number of errors"):
        ErrorLimit.of(given)


@pytest.mark.slow
@pytest.mark.covers("SUI15")
async def test_run_of_errors_alone_stops(tmp_path: Path) -> None:
    """The rest waits, the same command stops at once, and another limit lets it go on."""
    run_dir, heard = tmp_path / "run", Heard()
    broken = suite(30, solver=raising)
    await broken.run(run_dir, backend="local", concurrency=2, progress=heard)
    counts = RunResults(run_dir).counts
    assert 10 <= counts.undecided <= 12
    assert heard.lines[-1].startswith(f"stopped, {counts.waiting} samples wait: ")
    assert f"sessiontree bench retry {run_dir} --status error" in heard.lines[-1]
    await broken.run(run_dir, backend="local", progress=Heard())
    assert RunResults(run_dir).counts == counts
    await broken.run(run_dir, backend="local", limit=15, fail_on_error="100%", progress=Heard())
    assert RunResults(run_dir).counts.undecided == 15


@pytest.mark.slow
@pytest.mark.covers("SUI14")
async def test_samples_may_come_and_move_and_none_may_change(tmp_path: Path) -> None:
    """A selection works on some; others come later; a changed or missing one is named, with what changed."""
    run_dir = tmp_path / "run"
    local: dict[str, Any] = {"backend": "local", "progress": Heard()}
    await suite(4).run(run_dir, samples=["s3", "1..1"], **local)
    assert rows(run_dir, "SELECT sample_id, position, state FROM samples ORDER BY 1") == [
        ("s0", 0, "scored"),
        ("s3", 3, "scored"),
    ]
    await suite(samples=[*reversed(samples(5))]).run(run_dir, **local)
    assert RunResults(run_dir).to_arrow()["sample_id"].to_pylist() == ["s4", "s3", "s2", "s1", "s0"]
    changed = [*samples(4), Sample("s4", "say 4", "another")]
    with pytest.raises(ConfigError, match=r"1 samples \(s4\) of the run differ .*'s4': target"):
        await suite(samples=changed).run(run_dir, **local)
    with pytest.raises(ConfigError, match=r"1 samples \(s4\) of the run are not in the suite"):
        await suite(4).run(run_dir, **local)


@pytest.mark.slow
@pytest.mark.covers("SUI14")
async def test_other_code_is_refused_by_name_or_marked(tmp_path: Path) -> None:
    """Each row says which code made it, and a comparison says what differs."""
    first, second = tmp_path / "first", tmp_path / "second"

    async def solve(attempt: Attempt[str]) -> str:
        return attempt.sample.input

    local: dict[str, Any] = {"backend": "local", "progress": Heard()}
    await suite(3).run(first, limit=2, **local)
    with pytest.raises(ConfigError, match=r"solver solve is gone.*accept_changes=True"):
        await suite(3, solver=solve).run(first, **local)
    await suite(3, solver=solve).run(first, accept_changes=True, tags=["x"], metadata={"a": 1}, **local)
    assert RunResults(first).to_arrow()["provenance"].to_pylist() == [1, 1, 2]
    report = RunResults(first).report()
    assert (report.origin.tags, report.origin.metadata) == (("x",), {"a": 1})
    assert any(
        "scores were made by different code: 2 by code 1, 1 by code 2" in line
        for line in report.render_summary()
    )
    other = [Sample("s0", "say 0", "another"), *samples(3)[1:]]
    await suite(samples=other).run(second, sample_timeout_s=9.0, **local)
    found = compare_runs(RecordedRun(first), RecordedRun(second))
    assert found.changed == ("s0",)
    assert found.shared == 2
    said = " ".join(found.differences)
    assert "sample_timeout_s was 600.0 and is 9.0" in said
    assert "solver solve is new" in said


@pytest.mark.slow
async def test_emptied_ledger_is_not_begun_again(tmp_path: Path) -> None:
    """Its scores are gone, and nobody may take that for a new run."""
    await suite(1).run(tmp_path / "run", backend="local", progress=Heard())
    for name in ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"its ledger\.sqlite is empty: its scores are gone"):
            await suite(1).run(tmp_path / "run", backend="local")


@pytest.mark.slow
async def test_time_between_commands_does_not_count(tmp_path: Path) -> None:
    """Nor does a wall clock that steps; commands that work at the same time count once."""
    await suite(1).run(tmp_path / "run", backend="local", progress=Heard())
    spans = [(1_000, 500), (1_200, 600), (900_000, 100), (34_000_000_000, 7)]
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as ledger:
        ledger.execute("DELETE FROM commands")
        ledger.executemany(
            "INSERT INTO commands(owner, kind, circumstances, started_at_ms, worked_ms) "
            "VALUES ('p', 'run', '{}', ?, ?)",
            spans,
        )
        ledger.commit()
    assert sum_worked_ms(RecordedRun(tmp_path / "run")) == 800 + 100 + 7
