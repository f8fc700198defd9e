"""One attempt at a sample: its workspace, its tree, the solver, the scorers, and what its end means.

What a solver or scorer raises is the sample's error and is scored. What the runtime lost is not.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from pydantic import BaseModel

from sessiontree import (
    AgentSpec,
    App,
    Budget,
    CallbackChannel,
    ConfigError,
    EngineLost,
    JournalError,
    JournalRecord,
    ModelLike,
    ReceiptLine,
    Runtime,
    SessionTree,
    SessionTreeError,
    SupervisorUnavailable,
    TreeNotFound,
    Usage,
)
from sessiontree.api.app import APP_MEMBERS, take_app
from sessiontree.bench.ledger import CostCapReached, Ledger, SampleLease
from sessiontree.bench.ledger_tables import AttemptResult
from sessiontree.bench.plain_values import json_text, number_of, plain_text, shown_text
from sessiontree.bench.run_facts import RunFacts, keep_facts
from sessiontree.bench.run_place import WORKSPACES, RunPlace, no_model
from sessiontree.bench.suite import Attempt, Score, read_tree_options
from sessiontree.bench.tree_faults import TreeFaults, faults_in
from sessiontree.bench.workspaces import make_workspace, template_of
from sessiontree.contracts.author_errors import report_error

T = TypeVar("T")
MAX_OUTPUT_CHARS: Final = 1_000_000
PURPOSE_CHARS: Final = 200
LOST: Final = (EngineLost, JournalError, SupervisorUnavailable)
"""Errors of the runtime, whoever reports them."""


class AttemptLost(Exception):
    """An attempt ended by an infrastructure error; its sample is not scored and waits again.

    Args:
        error: The error.
        tree_id: Its tree; None = none was opened.
        cost_usd: What it cost, in US dollars.
    """

    def __init__(self, error: BaseException, tree_id: str | None, cost_usd: float) -> None:
        super().__init__(plain_text(error))
        self.error = error
        self.tree_id = tree_id
        self.cost_usd = cost_usd


@dataclass(slots=True)
class _Outcome:
    """How the solver and the scorers ended."""

    status: str = "completed"
    scores: Mapping[str, Score] | None = None
    error: BaseException | None = None

    @property
    def is_pass(self) -> bool:
        """Whether every scorer says so."""
        return self.scores is not None and all(each.is_pass for each in self.scores.values())


class AttemptRun:
    """Carries out one attempt.

    Args:
        place: The run.
        ledger: Where the attempt is leased.
        lease: Its lease.
        runtime: Serves its tree.
    """

    def __init__(self, place: RunPlace, ledger: Ledger, lease: SampleLease, runtime: Runtime) -> None:
        self._place = place
        self._ledger = ledger
        self._lease = lease
        self.runtime = runtime
        self.workspace = place.path / WORKSPACES / lease.workspace
        self.tree: SessionTree | None = None
        """The tree, once there is one."""
        self._began_s = 0.0
        self._budget: Budget | None = None
        """What its tree may spend."""
        self._is_capped = False
        """Whether the run's cap bounds its tree, not a budget of the suite."""

    @property
    def tree_id(self) -> str | None:
        """Id of its tree."""
        return None if self.tree is None else self.tree.tree_id

    async def run(self) -> AttemptResult:
        """Return what the sample is scored with.

        Raises:
            AttemptLost: the runtime failed; the sample is not scored.
            CostCapReached: the money that was reserved for the attempt is used up.
            ConfigError: no tree can be opened with these settings.
        """
        place, lease = self._place, self._lease
        sample = place.samples[lease.sample_id]
        template = template_of(place.suite, sample)
        if template is None:
            make_workspace(self.workspace, None)
        else:
            await asyncio.to_thread(make_workspace, self.workspace, template)
        attempt: Attempt[Any] = Attempt(
            place.suite.name,
            sample,
            lease.epoch,
            lease.number,
            workspace=self.workspace,
            model=place.model,
            runtime=self.runtime,
            run_dir=place.path,
        )
        self._began_s = time.monotonic()
        limit = asyncio.timeout(place.sample_timeout_s)
        try:
            async with limit:
                options, model = await in_own_task(partial(self._options, attempt))
        except BaseException as error:  # noqa: BLE001 - the suite's own function: the sample's error
            _raise_own(error)
            is_late = isinstance(error, TimeoutError) and limit.expired()
            outcome = _Outcome("timeout") if is_late else _Outcome("error", error=error)
            await self._checked(outcome, None, None, ())
            return self._result(attempt, outcome, ())
        self.tree = self._made(options, model)
        self._ledger.note_tree(lease, self.tree.tree_id)
        try:
            return await self._in_tree(attempt, self.tree)
        except LOST as error:
            raise AttemptLost(error, self.tree_id, self._cost(())) from error

    async def _in_tree(self, attempt: Attempt[Any], tree: SessionTree) -> AttemptResult:
        async with tree:
            self._began_s = time.monotonic()
            attempt.attach(tree)
            try:
                outcome = await self._judged(attempt)
            finally:
                attempt.attach(None)
            receipt: tuple[ReceiptLine, ...] = ()
            try:
                if outcome.status == "completed":
                    receipt = await tree.finish("scored")
                else:
                    receipt = await tree.cancel(f"the sample is over: {outcome.status}")
            except LOST:
                raise
            except SessionTreeError as error:  # the solver has closed it, for instance
                if outcome.error is None:
                    outcome = _Outcome("error", error=error)
            records = await self._records(tree, outcome) if receipt else None
            if not outcome.is_pass:  # a tree that reached its aim in spite of a loss counts
                await self._checked(outcome, tree, records, receipt)
        return self._result(attempt, outcome, receipt)

    async def _judged(self, attempt: Attempt[Any]) -> _Outcome:
        limit_s = self._place.sample_timeout_s
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                attempt.output = await in_own_task(partial(self._solved, attempt))
        except BaseException as error:  # noqa: BLE001 - the solver's own: the sample's error
            _raise_own(error)
            is_late = isinstance(error, TimeoutError) and limit.expired()
            return _Outcome("timeout") if is_late else _Outcome("error", error=error)
        try:
            async with asyncio.timeout(limit_s):
                return _Outcome(scores=await in_own_task(partial(self._scores, attempt)))
        except BaseException as error:  # noqa: BLE001 - the scorer's own: the sample's error
            _raise_own(error)
            return _Outcome("error", error=error)

    async def _solved(self, attempt: Attempt[Any]) -> Any:
        solver = self._place.suite.solver
        if isinstance(solver, AgentSpec):
            return await attempt.tree.main.send(attempt.sample.input)
        return await solver(attempt)

    async def _scores(self, attempt: Attempt[Any]) -> dict[str, Score]:
        scores = {}
        for name, scorer in self._place.suite.scorers.items():
            found = scorer(attempt)
            scores[name] = score_of(await found if inspect.isawaitable(found) else found, name)
        return scores

    async def _options(self, attempt: Attempt[Any]) -> tuple[dict[str, Any], ModelLike | None]:
        """Return the arguments of the tree, as suite, run and attempt give them, and its model."""
        suite = self._place.suite
        tree: Any = suite.tree(attempt) if callable(suite.tree) else suite.tree
        if inspect.isawaitable(tree):
            tree = await tree
        given = read_tree_options(tree, "tree returned")
        options: dict[str, Any] = {**approvals_of(self._place), **given}
        if callable(options.get("approver")):  # it is a channel by itself
            options.pop("channel", None)
            options["approvals"] = given.get("approvals")
        options["budget"] = self._budget = self._bounded(options.get("budget", suite.budget))
        app = given.get("app")
        model = app.model if isinstance(app, App) else given.get("model")
        if model is None:
            model = attempt.model
            if isinstance(model, str) and model in suite.models:
                model = suite.models[model](attempt)
        return options, model

    def _bounded(self, budget: Budget | None) -> Budget | None:
        """Return a budget that spends no more than the run has reserved."""
        reserved = self._lease.reserved_usd
        if reserved is None:
            return budget
        own = None if budget is None else budget.cost_usd
        suites = self._place.suite.budget
        is_suites = suites is not None and suites.cost_usd is not None
        self._is_capped = not is_suites and (own is None or own > reserved)
        cost_usd = reserved if own is None else min(own, reserved)
        return (budget or Budget()).model_copy(update={"cost_usd": cost_usd})

    def _made(self, options: Mapping[str, Any], model: ModelLike | None) -> SessionTree:
        suite = self._place.suite
        if model is None:
            raise no_model(suite)
        app = replace(take_app(options.get("app"), options), model=model)
        if isinstance(suite.solver, AgentSpec):
            app = replace(app, agents={**(app.agents or {}), "default": suite.solver})
        given = {name: value for name, value in options.items() if name not in APP_MEMBERS}
        given |= {"app": app, "runtime": self.runtime}
        given["purpose"] = f"bench {suite.name}: {self._lease.sample_id}"[:PURPOSE_CHARS]
        return SessionTree(self.workspace, **given)

    async def _checked(
        self,
        outcome: _Outcome,
        tree: SessionTree | None,
        records: Sequence[JournalRecord] | None,
        receipt: tuple[ReceiptLine, ...],
    ) -> None:
        """Raise if it is not the sample's fault that it did not pass.

        Otherwise note if its tree used up its budget, or if the model said nothing at the end.
        """
        errors = [] if outcome.error is None else list(causes_of(outcome.error))
        if records is not None:
            faults = faults_in(records)
        elif tree is not None:  # the suite's code has closed it
            faults = await asyncio.to_thread(self._stored_faults, tree.tree_id)
        else:
            faults = TreeFaults()
        lost = next((each for each in errors if isinstance(each, LOST)), faults.lost)
        if lost is not None:
            raise AttemptLost(lost, self.tree_id, self._cost(receipt)) from outcome.error
        if faults.unpriced is not None:
            raise ConfigError(plain_text(faults.unpriced)) from outcome.error
        spent = faults.spent or spent_member(self._budget, errors, receipt)
        if spent == "cost_usd" and self._is_capped:
            self._ledger.costs[self._lease.lease_id] = self._cost(receipt)
            raise CostCapReached(self._lease.sample_id, self._lease.reserved_usd or 0.0) from outcome.error
        if spent and outcome.status != "timeout":
            outcome.status = "budget"
        elif faults.is_silent and outcome.status == "completed":
            outcome.status = "empty"

    async def _records(self, tree: SessionTree, outcome: _Outcome) -> list[JournalRecord] | None:
        """Return the facts of a tree that is over, if they are needed; keep those of another node."""
        is_elsewhere = self.runtime.sharing.journal_of(tree.tree_id) is None
        if outcome.is_pass and not is_elsewhere:
            return None
        try:
            records = [record async for record in tree.events()]
            if is_elsewhere:
                await asyncio.to_thread(keep_facts, self._place.path, tree.tree_id, records)
        except LOST:
            if not outcome.is_pass:
                raise
            return None  # it is scored; its events are listed as unreadable
        return records

    def _stored_faults(self, tree_id: str) -> TreeFaults:
        try:
            with RunFacts(self._place.path) as stored:
                return faults_in(stored.read(tree_id))
        except TreeNotFound:  # its journal is on another node's disk, or nothing of it was written
            return TreeFaults()

    def _cost(self, receipt: tuple[ReceiptLine, ...]) -> float:
        known = self._ledger.costs.get(self._lease.lease_id, 0.0)
        return max(known, sum(line.usage.cost_usd for line in receipt))

    def _result(
        self, attempt: Attempt[Any], outcome: _Outcome, receipt: tuple[ReceiptLine, ...]
    ) -> AttemptResult:
        scores = outcome.scores
        if scores is None:
            scores = {name: Score(0.0, passed=False) for name in self._place.suite.scorers}
        error = outcome.error
        while isinstance(error, BaseExceptionGroup):  # the first of a group says what went wrong
            error = error.exceptions[0]
        return AttemptResult(
            scores,
            outcome.status,
            round((time.monotonic() - self._began_s) * 1000),
            output_text(getattr(attempt, "output", None)),
            self.tree_id,
            receipt,
            error_kind=None if error is None else type(error).__name__,
            error=None if error is None else plain_text(error),
            raised=() if error is None else self._report(error),
        )

    def _report(self, error: BaseException) -> list[str]:
        """Show the suite's author what his code raised, and return its frames; none for a typed error."""
        if isinstance(error, SessionTreeError | TimeoutError | asyncio.CancelledError):
            return []
        what = f"the suite's code, in sample {self._lease.sample_id!r},"
        return report_error(what, error, plain_text(error))


async def in_own_task(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run code of the suite in a task of its own: it may cancel that or exit, and never the attempt."""

    async def run() -> tuple[T, None] | tuple[None, BaseException]:
        try:
            return await work(), None  # made here: a task that is cancelled early leaves none behind
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a task that exits would end the event loop
            return None, error

    value, error = await asyncio.get_running_loop().create_task(run())
    if error is not None:
        raise error
    return cast("T", value)


def _raise_own(error: BaseException) -> None:
    """Raise what ends the attempt itself: an interrupt, or its cancellation by the run."""
    task = asyncio.current_task()
    is_cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    if is_cancelled or isinstance(error, KeyboardInterrupt):
        raise error


def approvals_of(place: RunPlace) -> dict[str, Any]:
    """Return how a tree decides approvals: by rule, since nobody is asked."""
    suite = place.suite
    if suite.approvals == "smart":
        refusing = CallbackChannel(lambda _: False)
        return {"approvals": "smart", "smart_rules": suite.rules, "channel": refusing}
    if suite.approvals == "never" and suite.rules:
        return {"approvals": "always", "approver": list(suite.rules), "channel": None}
    return {"approvals": suite.approvals, "approver": list(suite.rules) or None, "channel": None}


def score_of(given: object, name: str) -> Score:
    """Return a scorer's answer as a score; a number or a truth value is its value.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(given, Score):
        return given
    number = number_of(given)
    if number is None:
        raise ConfigError(
            f"scorer {name!r} returned {shown_text(given)}; return a Score, a finite number, or True or False"
        )
    return Score(number)


def output_text(output: object) -> str:
    """Return an output as JSON text; what has no JSON form is shown as text."""
    try:
        text = json_text(output, _plain)
    except Exception:  # noqa: BLE001 - an output without a JSON form must not fail the attempt
        text = json.dumps(shown_text(output, MAX_OUTPUT_CHARS))
    return text if len(text) <= MAX_OUTPUT_CHARS else json.dumps(f"{text[:MAX_OUTPUT_CHARS]}…")


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return repr(value)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the errors that it groups, and those that led to it."""
    waiting, seen = [error], set[int]()
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if isinstance(found, BaseExceptionGroup):
            waiting += found.exceptions
        waiting += [each for each in (found.__cause__, found.__context__) if each is not None]


def spent_member(
    budget: Budget | None, errors: Iterable[BaseException], receipt: tuple[ReceiptLine, ...]
) -> str:
    """Return the member of a tree's budget that is used up and led to an error; empty = none did."""
    if budget is None or not receipt or not any(isinstance(each, SessionTreeError) for each in errors):
        return ""
    used = sum((line.usage for line in receipt), Usage())
    amounts = {"cost_usd": used.cost_usd, "tokens": used.tokens, "tool_calls": used.tool_calls}
    for name, amount in amounts.items():
        most = getattr(budget, name)
        if most is not None and amount >= most:
            return name
    return ""
