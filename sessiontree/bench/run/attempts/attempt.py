"""One attempt at a sample: its workspace, its tree, the solver, the scorers, and what its end means.

What the agent did not reach within its limits is scored as far as it came. What the runtime lost is repeated
and never scored. What a solver or scorer raises decides nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass, replace
from functools import partial
from typing import Any, Final

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
from sessiontree.api.options.app import APP_MEMBERS, take_app
from sessiontree.bench.ledger.failure_kinds import FailureKind
from sessiontree.bench.ledger.leases import CostCapReached, SampleLease
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.ledger_rules import Ending
from sessiontree.bench.ledger.ledger_tables import AttemptResult
from sessiontree.bench.results.run_facts import RunFacts, keep_facts
from sessiontree.bench.run.attempts.own_code import GRACE_S, await_own, call_own, run_own
from sessiontree.bench.run.attempts.sample_clock import LoopWatch, SampleClock
from sessiontree.bench.run.attempts.tree_faults import TreeFaults, find_faults, find_last_words
from sessiontree.bench.run.place.run_place import WORKSPACES, RunPlace, build_no_model_error
from sessiontree.bench.suite.plain_values import format_value, require_number, to_json_text, to_plain_text
from sessiontree.bench.suite.sandboxes import add_sandbox
from sessiontree.bench.suite.suite import Attempt, Score, read_tree_options
from sessiontree.bench.suite.workspaces import find_template, make_workspace
from sessiontree.contracts.tools.author_errors import report_error
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_OUTPUT_CHARS: Final = 1_000_000
PURPOSE_CHARS: Final = 200
FACTS_AT_ONCE: Final = 512
LOST: Final = (EngineLost, JournalError, SupervisorUnavailable)
"""Errors of the runtime, whoever reports them."""


class AttemptLost(Exception):
    """An attempt ended by an infrastructure error; its sample is not scored and waits again.

    Args:
        error: The error.
        kind: What was lost.
        tree_id: Its tree; None = none was opened.
        cost_usd: What it cost, in US dollars.
    """

    def __init__(self, error: BaseException, kind: FailureKind, tree_id: str | None, cost_usd: float) -> None:
        super().__init__(to_plain_text(error))
        self.error = error
        self.kind = kind
        self.tree_id = tree_id
        self.cost_usd = cost_usd

    @property
    def ending(self) -> Ending:
        """What the loss means for the sample."""
        return _ENDINGS.get(self.kind, "error")


_ENDINGS: Final[dict[FailureKind, Ending]] = {
    FailureKind.NODE: "shared",
    FailureKind.STALLED: "shared",
    FailureKind.ENVIRONMENT: "run",
    FailureKind.CONFINEMENT: "run",
}
"""Losses that are not the sample's, or not for certain. Whether a provider's is, only the provider knows."""


class LoopStalled(Exception):
    """A sample's time was taken away by something that kept the event loop from running.

    Args:
        blocked_s: How long, in seconds.
    """

    def __init__(self, blocked_s: float) -> None:
        super().__init__(
            f"the event loop was blocked for {blocked_s:.1f} s while the sample worked; code that blocks "
            "belongs in a plain function, which runs in a thread"
        )


@dataclass(slots=True)
class _Outcome:
    """How the solver and the scorers ended."""

    status: str = "completed"
    scores: Mapping[str, Score] | None = None
    error: BaseException | None = None
    failure: FailureKind | None = None

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
        loop: What is known of standstills of the event loop.
    """

    def __init__(
        self, place: RunPlace, ledger: Ledger, lease: SampleLease, runtime: Runtime, loop: LoopWatch
    ) -> None:
        self._place = place
        self._ledger = ledger
        self._lease = lease
        self.runtime = runtime
        self._loop = loop
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
            ConfigError: no tree can be opened with these settings, or the suite's code says that the run
                can't go on.
        """
        place, lease = self._place, self._lease
        sample = place.samples[lease.sample_id]
        template = find_template(place.suite, sample)
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
        clock = self._start_clock(None)
        build = partial(self._build_options, attempt)
        asked = await (run_own(build, clock, self._grace_s) if self._asks_suite() else await_own(build))
        if asked.is_late or asked.error is not None or asked.value is None:
            # First: code that blocks the loop makes other samples late, which must not count against them.
            self._check_stall(clock)
            if asked.is_late:
                late = _Outcome("timeout", failure=FailureKind.TIMEOUT)
                outcome = await self._score_at_limit(attempt, None, late)
            else:
                outcome = _Outcome("error", error=asked.error, failure=FailureKind.SOLVER)
            await self._check_outcome(outcome, None, None, ())
            return self._build_result(attempt, outcome, ())
        self.tree = self._make_tree(*asked.value)
        # Before the tree is opened: an attempt that is killed in between still says where its facts are.
        self._ledger.note_tree(lease, self.tree.tree_id)
        try:
            return await self._run_in_tree(attempt, self.tree)
        except LOST as error:
            raise AttemptLost(error, FailureKind.NODE, self.tree_id, self._compute_cost(())) from error

    async def _run_in_tree(self, attempt: Attempt[Any], tree: SessionTree) -> AttemptResult:
        async with tree:
            attempt.attach(tree)
            try:
                outcome = await self._judge(attempt, tree)
            finally:
                # Code of the suite that was given up may go on; from here on it can't use a tree that is
                # being closed.
                attempt.attach(None)
            receipt: tuple[ReceiptLine, ...] = ()
            try:
                if outcome.status == "completed":
                    # Only after the scorers, which may look at sessions that still live.
                    receipt = await tree.finish("scored")
                else:
                    receipt = await tree.cancel(f"the sample is over: {outcome.status}")
            except LOST:
                raise
            except SessionTreeError as error:  # the solver has closed it, for instance
                if outcome.error is None:
                    outcome = _Outcome("error", error=error, failure=FailureKind.SOLVER)
            records = await self._read_records(tree, outcome) if receipt else None
            if not outcome.is_pass:  # a tree that reached its aim in spite of a loss counts
                await self._check_outcome(outcome, tree, records, receipt)
        return self._build_result(attempt, outcome, receipt)

    def _start_clock(self, tree: SessionTree | None) -> SampleClock:
        async def measure_waited_s() -> float:
            if tree is None:
                return 0.0
            return await self.runtime.backend.supervisor.measure_waited_s(tree.tree_id)

        clock = SampleClock(self._place.sample_timeout_s, self._place.wall_timeout_s, measure_waited_s)
        self._began_s = clock.began_s
        return clock

    @property
    def _grace_s(self) -> float:
        limit_s = self._place.sample_timeout_s
        return GRACE_S if limit_s is None else min(GRACE_S, max(1.0, limit_s))

    def _check_stall(self, clock: SampleClock) -> None:
        """Raise if a late sample is not late by its own doing; one that runs alone always is."""
        if not self._lease.alone and self._loop.can_excuse(clock.began_s, self._place.sample_timeout_s):
            stalled = LoopStalled(self._loop.measure_blocked_s(clock.began_s))
            raise AttemptLost(stalled, FailureKind.STALLED, self.tree_id, self._compute_cost(()))

    async def _judge(self, attempt: Attempt[Any], tree: SessionTree) -> _Outcome:
        clock = self._start_clock(tree)
        solved = await run_own(partial(self._solve, attempt), clock, self._grace_s)
        if solved.is_late:
            self._check_stall(clock)
            return await self._score_at_limit(attempt, tree, _Outcome("timeout", failure=FailureKind.TIMEOUT))
        if solved.error is not None:
            # The facts decide whether it was a limit: a solver may catch such an error and raise another one.
            limit = await self._limit_met(tree, solved.error)
            if limit is not None:
                return await self._score_at_limit(
                    attempt, tree, _Outcome(limit.value, None, solved.error, limit)
                )
            return _Outcome("error", error=solved.error, failure=FailureKind.SOLVER)
        attempt.output = solved.value
        # A clock of its own: what the agent used must not be taken from the scorers.
        judging = SampleClock(self._place.sample_timeout_s, None, _report_no_waits)
        judged = await run_own(partial(self._score_all, attempt), judging, self._grace_s)
        if judged.error is not None or judged.value is None:
            self._check_stall(judging)
            late = TimeoutError("the scorers did not come to an end within the time limit of a sample")
            return _Outcome("error", error=judged.error or late, failure=FailureKind.SCORER)
        return _Outcome(scores=judged.value)

    async def _limit_met(self, tree: SessionTree, error: BaseException) -> FailureKind | None:
        """Return what the agent met, if an error of the solver comes from that: a budget, or a short stop."""
        causes = list(walk_causes(error))
        if not any(isinstance(each, SessionTreeError) for each in causes):
            return None
        try:
            faults = find_faults(await self._read_facts(tree))
            receipt = await self.runtime.backend.supervisor.receipt(tree.tree_id)
        except LOST:
            raise
        except SessionTreeError:
            return None
        # A budget may also be used up by attempts that were lost; then the loss decides, and the sample runs
        # again.
        if faults.lost is not None or faults.unpriced is not None:
            return None  # that comes first
        spent = faults.spent or find_spent_member(self._budget, causes, receipt)
        if spent:
            return None if spent == "cost_usd" and self._is_capped else FailureKind.BUDGET
        return FailureKind.STOPPED if faults.is_stopped else None

    async def _score_at_limit(
        self, attempt: Attempt[Any], tree: SessionTree | None, outcome: _Outcome
    ) -> _Outcome:
        """Score what is there when the agent's time or budget is over: workspace, state and last output.

        No tree is open yet where the time was over before.
        """
        if self._place.suite.on_limit == "zero":
            return outcome
        if tree is not None:
            with suppress(SessionTreeError, TimeoutError):  # it has ended, or is about to
                async with asyncio.timeout(GRACE_S):
                    # Before the scorers, so that the agent changes nothing any more while its work is judged.
                    await tree.main.interrupt(f"the sample is over: {outcome.status}")
        if not hasattr(attempt, "output"):
            attempt.output = None if tree is None else await self._find_last_output(tree)
        clock = SampleClock(self._place.sample_timeout_s, None, _report_no_waits)
        scores: dict[str, Score] = {}
        for name in self._place.suite.scorers:
            judged = await run_own(partial(self._score, attempt, name), clock, self._grace_s)
            if judged.value is None:
                self._check_stall(clock)
                said = to_plain_text(judged.error or "it did not come to an end in time")
                kind = type(judged.error or TimeoutError()).__name__
                explanation = f"nothing that can be scored was there at the limit: {kind}: {said}"
                scores[name] = Score(0.0, passed=False, explanation=explanation)
            else:
                scores[name] = judged.value
        outcome.scores = scores
        return outcome

    async def _find_last_output(self, tree: SessionTree) -> str | None:
        """Return what Main said last; None = nothing."""
        try:
            records = await self._read_facts(tree)
        except SessionTreeError:
            return None
        return find_last_words(records)

    async def _read_facts(self, tree: SessionTree) -> list[JournalRecord]:
        """Return the facts of an open tree that are durable by this time."""
        supervisor, found = self.runtime.backend.supervisor, list[JournalRecord]()
        while records := await supervisor.read(
            tree.tree_id, found[-1].seq if found else 0, FACTS_AT_ONCE, 0.0
        ):
            found += records
        return found

    async def _solve(self, attempt: Attempt[Any]) -> Any:
        solver = self._place.suite.solver
        if isinstance(solver, AgentSpec):
            return await attempt.tree.main.send(attempt.sample.input)
        return await call_own(solver, attempt)

    async def _score_all(self, attempt: Attempt[Any]) -> dict[str, Score]:
        return {name: await self._score(attempt, name) for name in self._place.suite.scorers}

    async def _score(self, attempt: Attempt[Any], name: str) -> Score:
        return convert_score(await call_own(self._place.suite.scorers[name], attempt), name)

    async def _build_options(self, attempt: Attempt[Any]) -> tuple[dict[str, Any], ModelLike | None]:
        """Return the arguments of the tree, as suite, run and attempt give them, and its model."""
        suite = self._place.suite
        tree: Any = suite.tree(attempt) if callable(suite.tree) else suite.tree
        if inspect.isawaitable(tree):
            tree = await tree
        given = read_tree_options(tree, "tree returned")
        options = add_sandbox({**build_approvals(self._place), **given}, suite, attempt)
        if callable(options.get("approver")):  # it is a channel by itself
            options.pop("channel", None)
            options["approvals"] = given.get("approvals")
        options["budget"] = self._budget = self._limit_budget(options.get("budget", suite.budget))
        app = given.get("app")
        model = app.model if isinstance(app, App) else given.get("model")
        if model is None:
            model = attempt.model
            if isinstance(model, str) and model in suite.models:
                model = suite.models[model](attempt)
        return options, model

    def _asks_suite(self) -> bool:
        """Whether code of the suite says what the tree is made of: it may take any time."""
        suite, model = self._place.suite, self._place.model
        names_one = isinstance(model, str) and model in suite.models
        return names_one or callable(suite.tree) or callable(suite.sandbox)

    def _limit_budget(self, budget: Budget | None) -> Budget | None:
        """Return a budget that spends no more than the run has reserved."""
        reserved = self._lease.reserved_usd
        if reserved is None:
            return budget
        own = None if budget is None else budget.cost_usd
        suites = self._place.suite.budget
        is_suites = suites is not None and suites.cost_usd is not None
        # Who set the bound decides what its end means: the suite's budget is part of the task, the run's
        # money is not.
        self._is_capped = not is_suites and (own is None or own > reserved)
        cost_usd = reserved if own is None else min(own, reserved)
        return (budget or Budget()).model_copy(update={"cost_usd": cost_usd})

    def _make_tree(self, options: Mapping[str, Any], model: ModelLike | None) -> SessionTree:
        suite = self._place.suite
        if model is None:
            raise build_no_model_error(suite)
        app = replace(take_app(options.get("app"), options), model=model)
        if isinstance(suite.solver, AgentSpec):
            app = replace(app, agents={**(app.agents or {}), "default": suite.solver})
        given = {name: value for name, value in options.items() if name not in APP_MEMBERS}
        given |= {"app": app, "runtime": self.runtime}
        given["purpose"] = f"bench {suite.name}: {self._lease.sample_id}"[:PURPOSE_CHARS]
        return SessionTree(self.workspace, **given)

    async def _check_outcome(
        self,
        outcome: _Outcome,
        tree: SessionTree | None,
        records: Sequence[JournalRecord] | None,
        receipt: tuple[ReceiptLine, ...],
    ) -> None:
        """Raise if it is not the sample's fault that it did not pass.

        Otherwise note if its tree used up its budget, or if the model said nothing at the end.
        """
        errors = [] if outcome.error is None else list(walk_causes(outcome.error))
        if records is not None:
            faults = find_faults(records)
        elif tree is not None:  # the suite's code has closed it
            faults = await asyncio.to_thread(self._find_stored_faults, tree.tree_id)
        else:
            faults = TreeFaults()
        # The order is that of blame: a loss first, then a missing price, and only then what the agent used
        # up.
        lost = next((each for each in errors if isinstance(each, LOST)), None)
        if lost is not None:
            raise AttemptLost(
                lost, FailureKind.NODE, self.tree_id, self._compute_cost(receipt)
            ) from outcome.error
        if faults.lost is not None:
            kind = faults.lost_by or FailureKind.HOST
            raise AttemptLost(faults.lost, kind, self.tree_id, self._compute_cost(receipt)) from outcome.error
        if faults.unpriced is not None:
            raise ConfigError(to_plain_text(faults.unpriced)) from outcome.error
        spent = faults.spent or find_spent_member(self._budget, errors, receipt)
        if spent == "cost_usd" and self._is_capped:
            self._ledger.costs[self._lease.lease_id] = self._compute_cost(receipt)
            raise CostCapReached(self._lease.sample_id, self._lease.reserved_usd or 0.0) from outcome.error
        if spent and outcome.status != "timeout":
            outcome.status, outcome.failure = "budget", FailureKind.BUDGET
        elif faults.is_silent and outcome.status == "completed":
            outcome.status, outcome.failure = "empty", FailureKind.EMPTY

    async def _read_records(self, tree: SessionTree, outcome: _Outcome) -> list[JournalRecord] | None:
        """Return the facts of a tree that is over, if they are needed; keep those of another node."""
        is_elsewhere = self.runtime.sharing.find_journal(tree.tree_id) is None
        if outcome.is_pass and not is_elsewhere:
            return None
        try:
            records = await self._read_facts(tree)
            if is_elsewhere:
                await asyncio.to_thread(keep_facts, self._place.path, tree.tree_id, records)
        except LOST:
            if not outcome.is_pass:
                raise
            return None  # it is scored; its events are listed as unreadable
        return records

    def _find_stored_faults(self, tree_id: str) -> TreeFaults:
        try:
            with RunFacts(self._place.path) as stored:
                return find_faults(stored.read(tree_id))
        except TreeNotFound:  # its journal is on another node's disk, or nothing of it was written
            return TreeFaults()

    def _compute_cost(self, receipt: tuple[ReceiptLine, ...]) -> float:
        known = self._ledger.costs.get(self._lease.lease_id, 0.0)
        # An attempt that was lost has no receipt, and what was counted while it ran must not be forgotten.
        return max(known, sum(line.usage.cost_usd for line in receipt))

    def _build_result(
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
            format_output(getattr(attempt, "output", None)),
            self.tree_id,
            receipt,
            error_kind=None if error is None else type(error).__name__,
            error=None if error is None else to_plain_text(error),
            raised=() if error is None else self._report(error),
            failure=outcome.failure,
        )

    def _report(self, error: BaseException) -> list[str]:
        """Show the suite's author what his code raised, and return its frames; none for a typed error."""
        if isinstance(error, SessionTreeError | TimeoutError | asyncio.CancelledError):
            return []
        what = f"the suite's code, in sample {self._lease.sample_id!r},"
        return report_error(what, error, to_plain_text(error))


async def _report_no_waits() -> float:
    return 0.0


def build_approvals(place: RunPlace) -> dict[str, Any]:
    """Return how a tree decides approvals: by rule, since nobody is asked."""
    suite = place.suite
    if suite.approvals == "smart":
        refusing = CallbackChannel(lambda _: False)
        return {"approvals": "smart", "smart_rules": suite.rules, "channel": refusing}
    if suite.approvals == "never" and suite.rules:
        return {"approvals": "always", "approver": list(suite.rules), "channel": None}
    return {"approvals": suite.approvals, "approver": list(suite.rules) or None, "channel": None}


def convert_score(given: object, name: str) -> Score:
    """Return a scorer's answer as a score; a number or a truth value is its value.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(given, Score):
        return given
    try:
        return Score(require_number(given))
    except ValueError:
        raise ConfigError(
            f"scorer {name!r} returned {format_value(given)}; return a Score, a finite number, or True "
            "or False"
        ) from None


def format_output(output: object) -> str:
    """Return an output as JSON text; what has no JSON form is shown as text."""
    try:
        text = to_json_text(output, _to_plain)
    except Exception:  # noqa: BLE001 - an output without a JSON form must not fail the attempt
        text = json.dumps(format_value(output, MAX_OUTPUT_CHARS))
    return text if len(text) <= MAX_OUTPUT_CHARS else json.dumps(f"{text[:MAX_OUTPUT_CHARS]}…")


def _to_plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return repr(value)


def walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the errors that it groups, and those that led to it."""
    waiting, seen = [error], set[int]()
    while waiting:
        found = waiting.pop(0)
        # Causes may form a ring, since code of a suite can set them as it likes.
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        if isinstance(found, BaseExceptionGroup):
            waiting += found.exceptions
        waiting += [each for each in (found.__cause__, found.__context__) if each is not None]


def find_spent_member(
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
