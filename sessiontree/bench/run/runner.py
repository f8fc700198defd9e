"""The run of a suite by one program: takes leases, keeps a runtime, and commits what the attempts come to.

Several programs may run the same suite in the same directory: the ledger is all that they share.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from sessiontree import ConfigError, EngineLost, Runtime, SessionTreeError, ShardLost
from sessiontree.bench.ledger.failure_kinds import FailureKind
from sessiontree.bench.ledger.leases import CostCapReached, SampleLease, Tally
from sessiontree.bench.ledger.ledger import Ledger
from sessiontree.bench.ledger.ledger_rules import BEAT_S, CostCap, HeartbeatMonitor
from sessiontree.bench.results.recorded_run import LEDGER
from sessiontree.bench.run.attempts.attempt import AttemptLost, AttemptRun, walk_causes
from sessiontree.bench.run.attempts.sample_clock import LoopWatch
from sessiontree.bench.run.place.error_limit import ErrorLimit
from sessiontree.bench.run.place.progress import build_bench_command
from sessiontree.bench.run.place.run_place import WORKSPACES, RunOptions, RunPlace
from sessiontree.bench.run.preflight import check_nodes
from sessiontree.bench.run.process_names import has_ended, own_name
from sessiontree.bench.run.provider_gate import ProviderGate
from sessiontree.bench.run.run_start import RunCommand
from sessiontree.bench.run_results import RunResults
from sessiontree.bench.suite.plain_values import to_plain_text
from sessiontree.bench.suite.samples import load_samples
from sessiontree.bench.suite.suite import MAX_COUNT, SuiteDefinition
from sessiontree.bench.suite.workspaces import find_template
from sessiontree.contracts.errors import describe_error
from sessiontree.contracts.settings.given_values import Edge, Give
from sessiontree.interpreter.import_guard import keep_out
from sessiontree.runtime.supervisor.process.collection_interval import COLLECTIONS
from sessiontree.workspace.removal import remove_tree

T = TypeVar("T")
WATCH_S: Final = 2.0
"""How often a program looks for leases whose holders are gone, and counts."""
IDLE_S: Final = 0.5
MAX_LOSSES: Final = 5
"""How often in a row the runtime may be lost without a score in between."""
CLOSE_S: Final = 60.0
COST_S: Final = 2.0
MAX_FAILURES: Final = 5
"""How many rounds in a row may fail in which a program looks after others' leases and the costs."""
_TOTAL: Final = Edge[int](
    Annotated[Annotated[int, Field(le=MAX_COUNT)], Give(f"at most {MAX_COUNT:,}: fewer samples or epochs")]
)
_LOG = logging.getLogger("sessiontree")


async def run_suite(suite: SuiteDefinition, run_dir: str | Path, options: Mapping[str, Any]) -> RunResults:
    """Run a suite, or go on with an interrupted run; see :meth:`sessiontree.bench.suite.suite.Suite.run`."""
    chosen = RunOptions.of(options)
    samples = await asyncio.to_thread(load_samples, suite)
    place = RunPlace.of(run_dir, suite, samples, chosen)
    _TOTAL.take(len(place.chosen) * place.epochs, "samples times epochs")
    for sample in place.chosen:
        find_template(suite, sample)
    place.make()
    had_config, name = place.has_config(), own_name()  # asked first: another program may just begin the run
    async with Ledger(place.path / LEDGER, name, shared=place.is_shared()) as ledger:
        command = RunCommand(place, ledger, name)
        await command.begin(had_config=had_config)
        COLLECTIONS.hold()  # also where the trees are in other processes: each attempt has its objects here
        try:
            await _Driver(place, ledger, command, name).run()
        except BaseExceptionGroup as group:
            raise _choose_error(group) from None
        finally:
            COLLECTIONS.release()
            with suppress(SessionTreeError):  # what ended the run says more
                await command.end()
    return RunResults(place.path)


def run_blocking(suite: SuiteDefinition, run_dir: str | Path, options: Mapping[str, Any]) -> RunResults:
    """Run a suite without ``await``, also where an event loop runs; see :func:`run_suite`."""
    return _run_to_end(run_suite(suite, run_dir, options))


def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on a thread of its own if this one runs an event loop already.

    An interrupt cancels it, and is raised once it has cleaned up.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    done: Future[T] = Future()
    begun: Future[Callable[[], object]] = Future()

    async def run() -> None:
        task = asyncio.ensure_future(work)
        begun.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))
        try:
            done.set_result(await task)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            done.set_exception(error)

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="sessiontree-suite")
    thread.start()
    try:
        return done.result()
    except KeyboardInterrupt:
        begun.result()()
        raise
    finally:
        thread.join()


class RuntimeKeeper:
    """The runtime of a run, made again when it is lost.

    Args:
        place: The run.
    """

    def __init__(self, place: RunPlace) -> None:
        self._place = place
        self._lock = asyncio.Lock()
        self._runtime: Runtime | None = None
        self._losses = 0

    async def ensure_runtime(self) -> Runtime:
        """Return the runtime; make one first, if necessary.

        Raises:
            SessionTreeError: it can't be made.
        """
        async with self._lock:
            if self._runtime is None:
                options = self._place.options.build_runtime_options()
                self._runtime = Runtime(self._place.state_dir(), **options)
            return self._runtime

    def note_score(self) -> None:
        """Note that the runtime works: a sample was scored."""
        self._losses = 0

    async def lost(self, runtime: Runtime, error: EngineLost) -> None:
        """Close a runtime that is lost; the next attempt makes another one.

        Raises:
            EngineLost: it was lost too often.
        """
        async with self._lock:
            # Several attempts report the loss of one runtime; it counts once.
            if runtime is not self._runtime:
                return
            self._losses += 1
            self._runtime = None
            await _close(runtime)
            if self._losses >= MAX_LOSSES:
                raise error
            # Within the lock, so that no attempt makes the next runtime before the pause is over; the first
            # loss pauses for nothing.
            await asyncio.sleep(2.0 ** (self._losses - 1) - 1)

    async def close(self) -> None:
        """Close the runtime."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await _close(runtime)


async def _close(runtime: Runtime) -> None:
    with suppress(SessionTreeError, TimeoutError):  # it is lost, or will be with this process
        async with asyncio.timeout(CLOSE_S):
            await runtime.close()


class _Driver:
    """Works on a run until nothing waits."""

    def __init__(self, place: RunPlace, ledger: Ledger, command: RunCommand, name: str) -> None:
        self._place = place
        self._name = name
        self._ledger = ledger
        self._command = command
        self._errors = ErrorLimit.of(place.options.fail_on_error)
        self._settings = place.settings
        self._stopped = ""
        """Why no more attempts begin: too many errors; empty = they do."""
        self._options = place.options
        self._progress = place.options.progress
        self._keeper = RuntimeKeeper(place)
        self._running: dict[str, tuple[AttemptRun | None, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._watch = HeartbeatMonitor()
        self._loop = LoopWatch()
        self._gate = ProviderGate(place, self._keeper.ensure_runtime, self._progress.say, self._changed.set)
        self._has_scored = False
        self._barren = 0
        """How many attempts in a row were lost to something that is not their samples'."""
        self._drains = False
        """Whether nothing is leased before what runs has ended, because a loss has taken several at once."""
        self._broken: Exception | None = None
        """Why nobody looks after the run any more; it ends with this error."""
        budget = place.suite.budget
        max_usd = self._options.max_cost_usd
        self._cap = None
        if max_usd is not None:
            sample_usd = None if budget is None else budget.cost_usd
            self._cap = CostCap(max_usd, sample_usd, self._settings.concurrency)

    async def tally(self) -> Tally:
        """Count the samples of this command."""
        return await self._ledger.tally(self._place.epochs, self._options.limit)

    async def run(self) -> None:
        """Work until the end, and write the results as far as they are there."""
        self._ledger.on_lost = self._drop
        (self._place.path / WORKSPACES).mkdir(exist_ok=True)
        keep_out(str(self._place.path / WORKSPACES))  # once for all of them
        await self._take_over()
        tally = await self.tally()
        self._progress.begin(str(self._place.path), tally)
        await self._check_errors()
        try:
            if tally.waiting or tally.leased:
                await check_nodes(self._place)
                await self._gate.check()
            if tally.suspects:
                self._progress.say(
                    f"{tally.suspects:,} samples ran when a process died, and are tried first, by themselves"
                )
            with self._progress:
                async with self._watch_in_background(), asyncio.TaskGroup() as group:
                    is_capped = await self._dispatch(group)
                tally = await self.tally()
                self._progress.count(tally)
        finally:
            # The gate first: it asks by a tree of the runtime that is closed next.
            await self._gate.close()
            await self._keeper.close()
            await self._tidy()
            if self._has_scored:
                await asyncio.to_thread(self._write)
        is_complete = tally.scored == tally.total
        self._progress.end(self._explain_end(tally, is_capped), is_complete=is_complete)

    def _write(self) -> None:
        results = RunResults(self._place.path)
        if self._options.writes == "events":
            results.write_events(self._name)
        else:
            results.write()

    def _explain_end(self, tally: Tally, is_capped: bool) -> str:
        if self._stopped and tally.waiting:
            again = f"{build_bench_command('retry', str(self._place.path))} --status error"
            return (
                f"stopped, {tally.waiting:,} samples wait: {self._stopped}; mend the code and run `{again}`, "
                "or go on with --fail-on-error 100%"
            )
        if is_capped:
            return (
                f"${tally.cost_usd:.4g} of ${self._options.max_cost_usd:.4g} is spent, and what is left does "
                f"not pay for another sample; {tally.waiting:,} samples wait: the same command with a larger "
                "maximum cost goes on"
            )
        if tally.failed:
            return (
                f"{tally.failed:,} of {tally.total:,} samples have failed, each after more than "
                f"{self._options.retries} infrastructure errors; more retries let them wait again"
            )
        if tally.undecided:
            return (
                f"{tally.undecided:,} of {tally.total:,} samples ended in an error, so nothing "
                f"says whether they pass; {tally.scored:,} are scored"
            )
        return f"all {tally.total:,} samples are scored"

    async def _dispatch(self, group: asyncio.TaskGroup) -> bool:
        """Start attempts until nothing waits; return whether the money ended it."""
        while True:
            # Before anything is looked at: a change that comes while the ledger is asked ends the next wait
            # at once.
            self._changed.clear()
            if (broken := self._broken or self._gate.failure) is not None:
                raise broken
            free = self._free()
            is_capped = False
            if free > 0:
                bounds = (self._place.epochs, self._options.limit, self._cap, self._settings.concurrency)
                found = await self._ledger.lease(free, *bounds)
                is_capped = found.is_capped
                for lease in found.leases:
                    self._running[lease.lease_id] = (None, group.create_task(self._attempt(lease)))
                if found.leases:
                    continue
            # Counted only when nothing runs here: other programs may still hold samples that come back.
            if not self._running and not self._gate.is_closed:
                tally = await self.tally()
                if is_capped or self._stopped or not (tally.waiting or tally.leased):
                    return is_capped
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._running else IDLE_S):
                    await self._changed.wait()

    def _free(self) -> int:
        """Return how many more attempts may begin at the moment."""
        if self._drains and not self._running:
            self._drains = False
        if self._drains or self._gate.is_closed or self._stopped or self._settings.is_paused:
            return 0
        return self._settings.concurrency - len(self._running)

    async def _check_errors(self) -> None:
        """Stop leasing once too many samples have ended in an error of the suite's code."""
        tally = await self.tally()
        if self._errors.is_reached(tally):
            self._stopped = self._errors.words(tally)

    async def _attempt(self, lease: SampleLease) -> None:
        """Carry out one attempt, and commit what it came to."""
        attempt: AttemptRun | None = None
        keeps = False
        is_settled = False
        try:
            runtime = await self._keeper.ensure_runtime()
            attempt = AttemptRun(self._place, self._ledger, lease, runtime, self._loop)
            self._running[lease.lease_id] = (attempt, self._running[lease.lease_id][1])
            result = await attempt.run()
            keep = self._options.keep
            wanted = keep == "all" or (keep == "failed" and not result.passed)
            is_written = await self._ledger.commit(lease, result, keeps=wanted)
            # Set at once: an error from here on must not give back a lease that is committed.
            is_settled = True
            keeps = is_written and wanted
            if is_written:
                self._has_scored = True
                self._barren = 0
                self._keeper.note_score()
                self._progress.scored(lease, result)
                if not result.decided and not self._stopped:
                    await self._check_errors()
        except CostCapReached as error:
            await self._ledger.give_back(lease, "cancelled", self._options.retries, error=error)
            is_settled = True
        except AttemptLost as lost:
            await self._retry(lease, lost)
            is_settled = True
        except asyncio.CancelledError:
            if lease.lease_id in self._running:  # the run ends; else only this lease was lost
                raise
        finally:
            self._running.pop(lease.lease_id, None)
            self._ledger.costs.pop(lease.lease_id, None)
            self._changed.set()
            if not is_settled:
                with suppress(SessionTreeError):  # what stopped the attempt says more
                    await self._ledger.give_back(lease, "cancelled", self._options.retries)
            if attempt is not None and not keeps:
                await _remove(attempt.workspace)

    async def _retry(self, lease: SampleLease, lost: AttemptLost) -> None:
        ending = await self._gate.judge() if lost.kind is FailureKind.PROVIDER else lost.ending
        await self._ledger.give_back(
            lease,
            ending,
            self._options.retries,
            cost_usd=lost.cost_usd,
            error=lost.error,
            failure=lost.kind,
        )
        self._progress.retried(lease, lost.error, lost.tree_id)
        # Nothing is leased until all has ended: what was lost together is then tried one by one, to find
        # which sample takes the others along.
        self._drains = self._drains or ending == "shared"
        if ending == "run" and lost.kind is not FailureKind.PROVIDER:
            self._barren += 1
            if self._barren >= MAX_LOSSES:
                self._broken = ConfigError(
                    f"{self._barren} attempts in a row were lost to what is not their samples': {lost.error}"
                )
        running = self._running.get(lease.lease_id)
        runtime = None if running is None or running[0] is None else running[0].runtime
        if isinstance(lost.error, EngineLost) and not isinstance(lost.error, ShardLost) and runtime:
            await self._keeper.lost(runtime, lost.error)

    def _drop(self, lease_id: str) -> None:
        """End an attempt whose lease somebody else has taken over; its score would be refused."""
        # Taken out before it is cancelled, which is how the attempt knows that only its lease was lost.
        running = self._running.pop(lease_id, None)
        if running is not None:
            running[1].cancel()
            self._changed.set()

    async def _take_over(self) -> None:
        """Let samples wait again whose holders are gone, and remove their workspaces."""
        others = await self._ledger.list_others()
        gone = {lease: beat for lease, (owner, beat) in others.items() if has_ended(owner)}
        beats = {lease: beat for lease, (_, beat) in others.items() if lease not in gone}
        gone |= self._watch.find_expired(beats, asyncio.get_running_loop().time())
        if gone:
            for name in await self._ledger.take_over(gone, self._options.retries):
                await _remove(self._place.path / WORKSPACES / name)
            self._changed.set()

    async def _tidy(self) -> None:
        """Remove the workspaces that killed programs left, or had just begun to remove."""
        folder = self._place.path / WORKSPACES
        try:
            names = await asyncio.to_thread(lambda: [each.name for each in folder.iterdir()])
        except OSError as error:
            _LOG.warning("workspaces in %r are not tidied up: %s", str(folder), error)
            return
        for name in await self._ledger.find_ended_workspaces(names):
            await _remove(folder / name)

    @asynccontextmanager
    async def _watch_in_background(self) -> AsyncIterator[None]:
        """Look after others' leases, the counts and the costs in the background."""
        rounds = ((WATCH_S, self._look), (BEAT_S / 2, self._add_costs))
        tasks = [asyncio.create_task(self._repeat(*each)) for each in rounds]
        tasks.append(asyncio.create_task(self._loop.watch()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _repeat(self, every_s: float, work: Callable[[], Awaitable[None]]) -> None:
        """Work in rounds. A failed round is logged; after too many of them in a row the run ends."""
        failures = 0
        while True:
            await asyncio.sleep(every_s)
            try:
                await work()
                failures = 0
            except Exception as error:  # noqa: BLE001 - without the next rounds the run would never end
                failures += 1
                if failures >= MAX_FAILURES:
                    self._broken = error
                    self._changed.set()
                    return
                said = to_plain_text(describe_error(error))
                _LOG.warning("looking after the run failed, and is tried again in %g s: %s", every_s, said)

    async def _look(self) -> None:
        await self._command.take_controls()
        await self._take_over()
        tally = await self.tally()
        if tally.waiting and self._free() > 0:
            self._changed.set()  # another program may have given it back
        self._progress.count(tally)

    async def _add_costs(self) -> None:
        """Note what open attempts have cost so far: a killed program's attempts count as much as this.

        Also without a cap: a later command may have one.
        """
        # A copy, because attempts end while their costs are asked.
        for lease_id, (attempt, _) in list(self._running.items()):
            if attempt is None or attempt.tree_id is None:
                continue
            with suppress(SessionTreeError, TimeoutError):
                async with asyncio.timeout(COST_S):
                    receipt = await attempt.runtime.backend.supervisor.receipt(attempt.tree_id)
                    # It may have ended while its receipt was on the way; its own, later count must not be
                    # overwritten.
                    if lease_id in self._running:
                        self._ledger.costs[lease_id] = sum(line.usage.cost_usd for line in receipt)
        await self._ledger.beat()  # which writes them at once


async def _remove(workspace: Path) -> None:
    """Remove a workspace; one that can't be removed is left, and never ends a run."""
    if _remove_empty(workspace):  # which needs no thread
        return
    try:
        await asyncio.to_thread(remove_tree, workspace)
    except Exception as error:  # noqa: BLE001 - whatever a tool has left there
        said = to_plain_text(describe_error(error))
        _LOG.warning("the workspace %r is left, because it can't be removed: %s", str(workspace), said)


def _remove_empty(workspace: Path) -> bool:
    """Remove a workspace if it is empty; return whether it is removed."""
    try:
        workspace.rmdir()
    except OSError:
        return False
    return True


def _choose_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group that says most: one of ours before any other."""
    found = [each for each in walk_causes(group) if not isinstance(each, BaseExceptionGroup)]
    own = [each for each in found if isinstance(each, SessionTreeError)]
    return (own or found)[0]
