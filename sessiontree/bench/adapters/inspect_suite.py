"""A suite made of a task of inspect_ai; its runs can be written as a log that inspect reads."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from inspect_ai import Task
from inspect_ai._util.json import to_json_safe
from inspect_ai.dataset import Sample as InspectSampleSpec
from inspect_ai.scorer import Score as InspectScore
from inspect_ai.scorer import value_to_float

from sessiontree import ConfigError, Limits
from sessiontree.bench.adapters.inspect_log import sample_file, write_log
from sessiontree.bench.adapters.inspect_task import STATE, TaskChoices, TaskSample, collect_scorers
from sessiontree.bench.run_results import RunResults
from sessiontree.bench.runnable_suite import Suite
from sessiontree.bench.suite.suite import Attempt, Sample, Score, Scorer
from sessiontree.models.port import get_model_name

_LIMITS: Final = Limits(
    max_turns=10_000, max_repeats=None, approval_patience_s=None, branch_ttl_s=None, worker_ttl_s=None
)


class InspectSuite(Suite):
    """A task's dataset, solvers, tools and scorers as a suite.

    Args:
        task: The task. Its samples must not need a sandbox.
        name: The suite's name; None = the task's.
        choices: How the trees are opened.
        scorers: Scorers that use :func:`scores_of`; None = one for each scorer of the task, whose value is
            the mean of the parts of inspect's value.
        settings: Further arguments of :class:`sessiontree.bench.Suite`.
    """

    def __init__(
        self,
        task: Task,
        *,
        name: str | None = None,
        choices: TaskChoices | None = None,
        scorers: Sequence[Scorer] | None = None,
        **settings: Any,
    ) -> None:
        """Take over the task's samples.

        Raises:
            ConfigError: the task needs a sandbox, has no scorer, or an argument is wrong.
        """
        self.task = task
        self.choices = choices or TaskChoices()
        self._specs = _collect_specs(task)
        settings = {**_collect_time_limits(task), **settings}
        settings.setdefault("epochs", task.epochs or 1)
        own = [self._make_scorer(each) for each in collect_scorers(task)]
        super().__init__(
            name or task.name,
            [_build_sample(spec) for spec in self._specs.values()],
            self._solve,
            list(scorers) if scorers is not None else own,
            tree=self._open,
            **settings,
        )

    async def run(self, run_dir: str | Path, **options: Any) -> RunResults:
        """Run the suite as :meth:`sessiontree.bench.Suite.run` does, and write inspect's log of the run.

        The log is in the folder ``logs`` of the run directory.
        """
        results = await super().run(run_dir, **options)
        await asyncio.to_thread(write_log, self.task, results.run_dir)
        return results

    async def _open(self, attempt: Attempt[Any]) -> Mapping[str, Any]:
        """Run the task's solvers until they want a reply; return the arguments of the tree."""
        spec = self._specs[attempt.sample.id]
        sample = TaskSample(self.task, spec, attempt.epoch, get_model_name(attempt.model), self.choices)
        attempt.state[STATE] = sample
        # An attempt may be lost before its tree is open: then nothing of the suite is called any more.
        weakref.finalize(attempt, sample.abandon)
        tools, agent = await sample.begin()
        further = self.choices.tree(attempt) if callable(self.choices.tree) else self.choices.tree
        return {
            "tools": tools,
            "builtin_tools": bool(self.choices.builtin),
            "agents": {"default": agent},
            "limits": _LIMITS,
            "agents_md": None,
            "web": None,
            **further,
        }

    async def _solve(self, attempt: Attempt[Any]) -> str:
        sample: TaskSample = attempt.state[STATE]
        return await sample.finish(attempt.tree)

    def _make_scorer(self, name: str) -> Scorer:
        async def score(attempt: Attempt[Any]) -> Score:
            found = await score_attempt(attempt)
            return _convert_score(found[name]) if name in found else Score(0.0, passed=False)

        score.__name__ = name
        return score


async def score_attempt(attempt: Attempt[Any]) -> dict[str, InspectScore]:
    """Return what the task's scorers said of an attempt, by name; they run once.

    The sample is kept in the run directory for inspect's log.
    """
    sample: TaskSample = attempt.state[STATE]
    if not sample.scores:
        await sample.score()
        place = sample_file(attempt.run_dir, attempt.sample.id, attempt.epoch, attempt.number)
        place.parent.mkdir(exist_ok=True)
        fresh = place.with_suffix(".new")
        fresh.write_bytes(to_json_safe(sample.build_eval_sample()))
        fresh.replace(place)
    return sample.scores


def _collect_time_limits(task: Task) -> dict[str, float]:
    """Return a task's limits of time as a suite has them.

    Inspect's working limit leaves waits out, as ours does. A time limit alone is taken for one, too: waits
    must not decide scores.
    """
    found = {} if task.working_limit is None else {"sample_timeout_s": float(task.working_limit)}
    if task.time_limit is not None:
        found["wall_timeout_s" if found else "sample_timeout_s"] = float(task.time_limit)
    return found


def _collect_specs(task: Task) -> dict[str, InspectSampleSpec]:
    """Return a task's samples by id; samples without one get their number, as in inspect."""
    found: dict[str, InspectSampleSpec] = {}
    for number, spec in enumerate(task.dataset, 1):
        if spec.id is None:
            spec.id = number
        if spec.sandbox is not None or task.sandbox is not None:
            raise ConfigError(
                f"task {task.name!r}: sample {spec.id!r} needs a sandbox of inspect; leave such samples "
                "out, or evaluate the task with inspect and the solver sessiontree/tree"
            )
        found[str(spec.id)] = spec
    return found


def _build_sample(spec: InspectSampleSpec) -> Sample:
    told = spec.input if isinstance(spec.input, str) else "\n\n".join(each.text for each in spec.input)
    metadata = json.loads(json.dumps(spec.metadata or {}, default=str))
    return Sample(str(spec.id), told, spec.target, metadata)


def _convert_score(given: InspectScore) -> Score:
    """Return a score; the value of several parts is their mean."""
    to_float = value_to_float()
    parts = given.value
    if isinstance(parts, Mapping):
        parts = list(parts.values())
    values = [to_float(each) for each in parts] if isinstance(parts, list | tuple) else [to_float(parts)]
    return Score(
        sum(values) / len(values) if values else 0.0,
        answer=given.answer or "",
        explanation=given.explanation or "",
        metadata={"value": json.loads(json.dumps(given.value, default=str))},
    )
