"""The run of a suite: leases samples, opens a tree for each attempt, solves, scores, and commits once."""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree import (
    AgentSpec,
    ConfigError,
    EngineLost,
    ReceiptLine,
    Runtime,
    SessionTree,
)
from sessiontree.api.paths import absolute_path
from sessiontree.bench.ledger import Ledger, Result, SampleLease
from sessiontree.bench.samples import digest_of_samples, samples_of
from sessiontree.bench.suite import OWN_OPTIONS, Attempt, Sample, Score, Suite
from sessiontree.bench.workspaces import Keep, make_workspace, remove_workspace, template_of, workspace_name


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a suite is run."""

    model: Any = None
    epochs: int | None = None
    limit: int | None = None
    concurrency: int = 16
    sample_timeout_s: float | None = None
    max_cost_usd: float | None = None
    backend: Any = "ray"
    address: str | None = None
    shards: Any = 1
    retries: int = 3
    keep: Keep = "failed"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run came to."""

    run_dir: Path
    total: int
    scored: int
    passed: int
    failed: int
    cost_usd: float


async def run_suite(suite: Suite, run_dir: str | Path, **options: Any) -> RunSummary:
    """Run a suite, or go on with an interrupted run."""
    chosen = RunOptions(**options)
    place = absolute_path(run_dir, "run_dir")
    place.mkdir(parents=True, exist_ok=True)
    samples = samples_of(suite)
    settings = {"suite": suite.name, "samples": digest_of_samples(samples)}
    limit, epochs = chosen.limit, chosen.epochs or suite.epochs
    keys = [(sample.id, epoch) for epoch in range(1, epochs + 1) for sample in samples[:limit]]
    async with Ledger(place / "ledger.sqlite", f"driver {secrets.token_hex(6)}") as ledger:
        held = await ledger.prepare(settings, keys, chosen.retries)
        if any(held[name] != value for name, value in settings.items()):
            raise ConfigError(f"{place} holds another run")
        run = _SuiteRun(suite, {sample.id: sample for sample in samples}, place, ledger, chosen)
        async with (
            Runtime(place / "state", backend=chosen.backend) as run.runtime,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(chosen.concurrency):
                group.create_task(run.work())
        tally = await ledger.tally(epochs, limit)
    return RunSummary(place, tally.total, tally.scored, tally.passed, tally.failed, tally.cost_usd)


class _SuiteRun:
    """One driver's share of a run."""

    runtime: Runtime

    def __init__(
        self, suite: Suite, samples: Mapping[str, Sample], place: Path, ledger: Ledger, options: RunOptions
    ) -> None:
        self._suite, self._samples, self._place = suite, samples, place
        self._ledger, self._options = ledger, options
        self._epochs = options.epochs or suite.epochs

    async def work(self) -> None:
        """Lease and finish samples until none waits."""
        while (lease := await self._ledger.lease(self._epochs, self._options.limit)) is not None:
            await self._attempt(lease)

    async def _attempt(self, lease: SampleLease) -> None:
        sample = self._samples[lease.sample_id]
        name = workspace_name(sample.id, lease.epoch, lease.number, secrets.token_hex(4))
        workspace = self._place / "workspaces" / name
        await asyncio.to_thread(make_workspace, workspace, template_of(self._suite, sample))
        model = self._suite.model if self._options.model is None else self._options.model
        attempt: Attempt[Any] = Attempt(self._suite.name, sample, lease.epoch, lease.number, workspace, model)
        try:
            result = await self._result(lease, attempt)
        except EngineLost as error:
            await self._ledger.give_back(lease, "error", self._options.retries, error=error)
            return
        await self._ledger.commit(lease, result)
        await asyncio.to_thread(remove_workspace, workspace)

    async def _result(self, lease: SampleLease, attempt: Attempt[Any]) -> Result:
        given = self._suite.tree(attempt) if callable(self._suite.tree) else self._suite.tree
        tree = SessionTree(
            attempt.workspace,
            runtime=self.runtime,
            purpose=f"bench {self._suite.name} {attempt.sample.id}"[:200],
            channel=None,
            **{"model": attempt.model, "approvals": self._suite.approvals, **given, **self._agents()},
        )
        await self._ledger.note_tree(lease, tree.tree_id, str(attempt.workspace))
        began = time.monotonic()
        async with tree:
            attempt.attach(tree)
            scores: dict[str, Score] = {}
            status, error = "completed", None
            try:
                async with asyncio.timeout(self._options.sample_timeout_s or self._suite.sample_timeout_s):
                    attempt.output = await self._solve(attempt)
                for name, scorer in self._suite.scorers.items():
                    found = scorer(attempt)
                    scores[name] = score_of(await found if inspect.isawaitable(found) else found)
            except TimeoutError:
                status = "timeout"
            except EngineLost:
                raise
            except Exception as failed:  # noqa: BLE001 - it is the sample's
                status, error = "error", failed
            receipt: tuple[ReceiptLine, ...] = await tree.cancel("the sample is done")
            attempt.attach(None)
        if status != "completed":
            scores = {name: Score(0.0, passed=False) for name in self._suite.scorers}
        return Result(
            scores,
            status,
            round((time.monotonic() - began) * 1000),
            json.dumps(getattr(attempt, "output", None), default=repr),
            tree.tree_id,
            receipt,
            error_kind=None if error is None else type(error).__name__,
            error=None if error is None else str(error),
        )

    def _agents(self) -> dict[str, Any]:
        if isinstance(self._suite.solver, AgentSpec):
            return {"agents": {"default": self._suite.solver}}
        return {}

    async def _solve(self, attempt: Attempt[Any]) -> Any:
        if isinstance(self._suite.solver, AgentSpec):
            return await attempt.tree.main.send(attempt.sample.input)
        return await self._suite.solver(attempt)


def score_of(given: object) -> Score:
    """Return a score; a number or a truth value is its value."""
    return given if isinstance(given, Score) else Score(float(given))  # type: ignore[arg-type]


__all__ = ["OWN_OPTIONS", "RunOptions", "RunSummary", "run_suite", "score_of"]
