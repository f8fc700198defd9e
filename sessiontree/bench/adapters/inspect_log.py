"""A run of a suite made of a task of inspect_ai, as the log that ``inspect view`` and ``read_eval_log`` read.

The log is written again from the ledger and the samples that attempts left in the run directory: each sample
once, as the attempt left it whose score was committed.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import inspect_ai
from inspect_ai import Task
from inspect_ai._eval.task.results import eval_results
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalPlan,
    EvalPlanStep,
    EvalSample,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import ModelUsage
from inspect_ai.scorer import SampleScore

from sessiontree import ConfigError, __version__
from sessiontree.bench.adapters.inspect_task import collect_scorers
from sessiontree.contracts.values.quick_dataclass import dataclass

SAMPLES: Final = "inspect"
"""Folder of a run directory that holds the samples that attempts left."""
LOGS: Final = "logs"
"""Folder of a run directory that holds the log."""
_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9]+")
_QUERY: Final = """
SELECT scores.sample_id, scores.epoch, attempts.number, scores.status, attempts.error_kind, attempts.error
FROM scores JOIN attempts USING (lease_id) JOIN samples ON samples.sample_id = scores.sample_id
AND samples.epoch = scores.epoch ORDER BY samples.epoch, samples.position
"""


@dataclass(frozen=True, slots=True)
class _Committed:
    """One committed score: which attempt it is from, and how that ended."""

    sample_id: str
    epoch: int
    number: int
    status: str
    error_kind: str | None
    error: str | None


def sample_file(run_dir: Path, sample_id: str, epoch: int, number: int) -> Path:
    """Return the file that keeps the sample of one attempt."""
    digest = hashlib.sha256(sample_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return run_dir / SAMPLES / f"{digest}-{epoch}-{number}.json"


def write_log(task: Task, run_dir: Path) -> Path:
    """Write the log of a run, finished or not; the earlier log of the run is replaced.

    Returns:
        The file, in the folder ``logs`` of the run directory.

    Raises:
        ConfigError: the directory has no ledger.
    """
    committed, total, about = _read(run_dir / "ledger.sqlite")
    samples = [_build_sample(task, run_dir, each) for each in committed]
    model = about.get("model") or "unknown"
    started = min((each.started_at for each in samples if each.started_at), default=_format_now())
    is_whole = len(samples) == total
    log = EvalLog(
        status="success" if is_whole else "cancelled",
        eval=_build_spec(task, run_dir, model, started, samples),
        plan=EvalPlan(name="sessiontree", steps=[EvalPlanStep(solver="sessiontree/tree", params={})]),
        stats=EvalStats(
            started_at=started,
            completed_at=max(
                (each.completed_at for each in samples if each.completed_at), default=_format_now()
            ),
            model_usage=_sum_usage(samples),
        ),
        samples=samples,
    )
    log.results, log.reductions = eval_results(
        total,
        [_sample_scores(each) for each in samples],
        None,
        task.scorer,
        task.metrics,
        list(collect_scorers(task)),
        completed_samples=sum(each.error is None for each in samples),
    )
    place = run_dir / LOGS
    place.mkdir(exist_ok=True)
    stamp, name = _NOT_PLAIN.sub("-", started), _NOT_PLAIN.sub("-", task.name.rpartition("/")[2])
    path = place / f"{stamp}_{name}_{log.eval.task_id}.eval"
    fresh = path.with_suffix(".fresh.eval")
    write_eval_log(log, str(fresh))
    fresh.replace(path)
    return path


def _read(ledger: Path) -> tuple[list[_Committed], int, dict[str, str]]:
    """Return the committed scores in order, the number of samples, and what the run is."""
    try:
        with closing(sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True)) as db:
            rows = [_Committed(*row) for row in db.execute(_QUERY)]
            (total,) = db.execute("SELECT count(*) FROM samples").fetchone()
            return rows, total, dict(db.execute("SELECT key, value FROM run"))
    except sqlite3.Error as error:
        raise ConfigError(
            f"no log was written: {str(ledger)!r} is not the ledger of a run: {error}"
        ) from error


def _build_sample(task: Task, run_dir: Path, committed: _Committed) -> EvalSample:
    """Return the sample of a committed attempt; one that left none ended before its scorers."""
    place = sample_file(run_dir, committed.sample_id, committed.epoch, committed.number)
    try:
        return EvalSample.model_validate_json(place.read_bytes())
    except OSError:
        spec = next(each for each in task.dataset if str(each.id) == committed.sample_id)
        kind, said = committed.error_kind or committed.status, committed.error or f"status {committed.status}"
        told = f"{kind}: {said}"
        return EvalSample(
            id=spec.id or committed.sample_id,
            epoch=committed.epoch,
            input=spec.input,
            target=spec.target,
            error=EvalError(message=told, traceback=told, traceback_ansi=told),
        )


def _build_spec(
    task: Task, run_dir: Path, model: str, started: str, samples: Sequence[EvalSample]
) -> EvalSpec:
    run = hashlib.sha256(str(run_dir.absolute()).encode("utf-8", "surrogatepass")).hexdigest()[:22]
    return EvalSpec(
        created=started,
        task=task.name,
        task_id=run,
        run_id=run,
        eval_id=run,
        task_version=task.version,
        solver="sessiontree/tree",
        dataset=EvalDataset(
            name=task.dataset.name,
            location=task.dataset.location,
            samples=len(task.dataset),
            sample_ids=list(dict.fromkeys(each.id for each in samples)),
        ),
        model=model if "/" in model else f"sessiontree/{model}",
        config=EvalConfig(epochs=max((each.epoch for each in samples), default=1)),
        packages={"inspect_ai": inspect_ai.__version__, "sessiontree": __version__},
        metadata=task.metadata,
    )


def _sample_scores(sample: EvalSample) -> dict[str, SampleScore]:
    return {
        name: SampleScore(score=score, sample_id=sample.id, sample_metadata=sample.metadata)
        for name, score in (sample.scores or {}).items()
    }


def _sum_usage(samples: Sequence[EvalSample]) -> dict[str, ModelUsage]:
    found: dict[str, Any] = {}
    for sample in samples:
        for model, usage in sample.model_usage.items():
            found[model] = usage if model not in found else found[model] + usage
    return found


def _format_now() -> str:
    return datetime.now(UTC).isoformat()
