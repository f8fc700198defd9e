"""Rescoring: a run's scorers judge again what it has kept, and no model is asked to solve anything.

A score gives way only to another one; the earlier one stays in the ledger with the reason. If a scorer fails,
or needs what was not kept, the score stays as it is.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final

from sessiontree import ConfigError
from sessiontree.bench.ledger.failure_kinds import FailureKind
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.ledger_tables import serialize_scores
from sessiontree.bench.ledger.run_log import (
    NewCommand,
    begin_command,
    check_samples,
    replace_samples,
    rescore,
)
from sessiontree.bench.mending.recorded_attempt import restore_attempt
from sessiontree.bench.provenance.circumstances import collect_circumstances
from sessiontree.bench.provenance.provenance import collect_provenance
from sessiontree.bench.results.recorded_run import LEDGER, RecordedRun
from sessiontree.bench.run.attempts.attempt import convert_score
from sessiontree.bench.run.attempts.own_code import call_own, run_own
from sessiontree.bench.run.attempts.sample_clock import SampleClock
from sessiontree.bench.run.place.run_place import WORKSPACES, is_on_shared_disk
from sessiontree.bench.run.process_names import own_name
from sessiontree.bench.run_results import RunResults
from sessiontree.bench.suite.plain_values import to_plain_text
from sessiontree.bench.suite.sample_selection import select_samples
from sessiontree.bench.suite.samples import SampleData, load_samples
from sessiontree.bench.suite.suite import Sample, Score, SuiteDefinition
from sessiontree.bench.suite.workspaces import make_workspace
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.interpreter.import_guard import keep_out
from sessiontree.workspace.removal import remove_tree

AT_ONCE: Final = 8
"""How many samples are judged at a time."""
GRACE_S: Final = 10.0
_ROWS: Final = """
SELECT x.*, coalesce(a.workspace, '') AS workspace, coalesce(a.kept, 0) AS kept,
    coalesce(a.failure, '') AS failure
FROM scores x JOIN samples s USING (sample_id, epoch) LEFT JOIN attempts a ON a.lease_id = x.lease_id
ORDER BY s.position, s.epoch
"""


@dataclass(slots=True)
class Rescored:
    """What a rescoring came to, in (sample, epoch) pairs."""

    rescored: int = 0
    """Have a new score."""
    changed: int = 0
    """Of these, whose scores differ from the earlier ones."""
    decided: int = 0
    """Of these, were undecided before."""
    unsolved: int = 0
    """Have nothing that scorers could judge: the solver raised an error, or the suite says 0 at a limit."""
    kept: dict[str, str] = field(default_factory=dict)
    """Keep their score, with the reason, by ``sample, epoch``."""


@dataclass(frozen=True, slots=True)
class RescoreOptions:
    """What is rescored, and how it is noted."""

    scorers: Sequence[str] = ()
    """Only these scorers; the scores of others stay. Empty = all of the suite's."""
    samples: Sequence[str] = ()
    """Only these samples: ids, patterns, ranges or tags; empty = all."""
    reason: str = ""
    """Why, for the history."""
    accept_changes: bool = False
    """Whether to go on although other code than that of scorers has changed."""
    suite_name: str = ""


class Rescoring:
    """Judges the attempts of a run again.

    Args:
        suite: The suite, with the scorers as they are at this time.
        run_dir: The run's directory.
        options: What is rescored.

    Raises:
        ConfigError: the run is of another suite, or a scorer is unknown.
    """

    def __init__(self, suite: SuiteDefinition, run_dir: Path, options: RescoreOptions) -> None:
        self._suite = suite
        self._run = RecordedRun(run_dir)
        self._options = options
        if self._run.suite != suite.name:
            raise ConfigError(
                f"run {str(self._run.run_dir)!r} is of suite {self._run.suite!r}, not of {suite.name!r}"
            )
        unknown = [each for each in options.scorers if each not in suite.scorers]
        if unknown:
            raise ConfigError(
                f"suite {suite.name!r} has no scorer {unknown[0]!r}; it has {', '.join(suite.scorers)}"
            )
        keep_out(str(self._run.run_dir / WORKSPACES))  # files of sessions are not modules of this program
        self._provenance = 0
        self.outcome = Rescored()

    async def run(self) -> Rescored:
        """Judge everything that is selected, and return what that came to."""
        samples = await asyncio.to_thread(load_samples, self._suite)
        selected = select_samples(samples, self._options.samples) if self._options.samples else samples
        facts = await asyncio.to_thread(collect_provenance, self._suite, selected, None, {})
        circumstances = await asyncio.to_thread(
            collect_circumstances,
            self._suite.folder,
            {"suite": self._options.suite_name, "scorers": list(self._options.scorers)},
        )
        data = {each.id: SampleData.of(each, place) for place, each in enumerate(samples)}
        path, owner = self._run.run_dir / LEDGER, own_name()
        command = NewCommand(owner, "rescore", facts, circumstances, self._options.accept_changes)
        async with Ledger(path, owner, shared=is_on_shared_disk(path.parent)) as ledger:

            def begin(db: sqlite3.Connection) -> int:
                names = [each.id for each in selected]
                replace_samples(db, (data[name] for name in names))
                check_samples(db, data)
                return begin_command(db, command).provenance

            self._provenance = await ledger.do(begin)
            await self._judge_all(ledger, {each.id: each for each in selected})
        if self.outcome.rescored:
            await asyncio.to_thread(RunResults(self._run.run_dir).write)
        return self.outcome

    async def _judge_all(self, ledger: Ledger, samples: Mapping[str, Sample]) -> None:
        rows = [row for row in self._run.read_named_rows(_ROWS) if row["sample_id"] in samples]
        waiting = iter(rows)

        async def judge() -> None:
            for row in waiting:
                await self._judge(ledger, samples[row["sample_id"]], row)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(rows))):
                group.create_task(judge())

    async def _judge(self, ledger: Ledger, sample: Sample, row: Mapping[str, Any]) -> None:
        at_zero = self._suite.on_limit == "zero" and row["status"] in {"timeout", "budget"}
        if at_zero or row["failure"] == FailureKind.SOLVER:
            self.outcome.unsolved += 1
            return
        copy = await asyncio.to_thread(self._copy_workspace, row)
        try:
            scores = await self._score_sample(sample, row, copy)
        except Exception as error:  # noqa: BLE001 - the scorer's own, or something was not kept
            said = f"{type(error).__name__}: {to_plain_text(error)}"
            self.outcome.kept[f"{sample.id}, epoch {row['epoch']}"] = said
            return
        finally:
            if copy is not None:
                await asyncio.to_thread(remove_tree, copy)
        if await ledger.do(partial(self._write, row=row, scores=scores)):
            before = json.loads(row["scores"])
            self.outcome.rescored += 1
            self.outcome.changed += before != json.loads(serialize_scores(scores))
            self.outcome.decided += row["passed"] is None

    async def _score_sample(
        self, sample: Sample, row: Mapping[str, Any], copy: Path | None
    ) -> dict[str, Score]:
        attempt = restore_attempt(
            self._suite.name,
            sample,
            row["epoch"],
            run_dir=self._run.run_dir,
            workspace=copy,
            tree_id=row["tree_id"] or "",
            output=row["output"],
        )
        before = {name: Score(**score) for name, score in json.loads(row["scores"]).items()}
        wanted = self._options.scorers if self._options.scorers and before else list(self._suite.scorers)
        found = {name: score for name, score in before.items() if self._options.scorers}
        for name in wanted:
            judging = SampleClock(self._suite.sample_timeout_s, None, _report_no_waits)
            judged = await run_own(partial(call_own, self._suite.scorers[name], attempt), judging, GRACE_S)
            if judged.error is not None:
                raise judged.error
            if judged.is_late:
                raise TimeoutError(
                    f"scorer {name!r} did not come to an end within the time limit of a sample"
                )
            found[name] = convert_score(judged.value, name)
        order = [*self._suite.scorers, *(name for name in found if name not in self._suite.scorers)]
        return {name: found[name] for name in order if name in found}

    def _copy_workspace(self, row: Mapping[str, Any]) -> Path | None:
        """Return a copy of an attempt's workspace, so that judging it again changes nothing that is kept."""
        place = self._run.run_dir / WORKSPACES / str(row["workspace"])
        if not row["kept"] or not row["workspace"] or not place.is_dir():
            return None
        copy = place.with_name(f"{place.name}-{secrets.token_hex(4)}")
        # A scorer may change what it judges, and the next rescoring must find the same.
        make_workspace(copy, place)
        return copy

    def _write(self, db: sqlite3.Connection, row: Mapping[str, Any], scores: Mapping[str, Score]) -> bool:
        judged_by = ", ".join(self._options.scorers or self._suite.scorers)
        passed = bool(scores) and all(each.is_pass for each in scores.values())
        is_whole = row["status"] == "error" or (row["status"] == "empty" and passed)
        changes = {
            "scores": serialize_scores(scores),
            "passed": passed,
            "status": "completed" if is_whole else row["status"],
            "provenance": self._provenance,
        }
        reason = self._options.reason or f"rescored by {judged_by}"
        return rescore(db, (row["sample_id"], row["epoch"]), row["revision"], changes, reason)


async def _report_no_waits() -> float:
    return 0.0
