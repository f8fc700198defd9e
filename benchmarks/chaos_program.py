"""A program whose tree is always at work, for ``benchmarks.chaos`` to kill parts of.

Run as ``python -m benchmarks.chaos_program PLACE BACKEND [POINT NUMBER]``. Three loops use one tree:
messages to Main, whose model waits and calls a tool; Workers, and Branches whose model writes a program; and
in turn calls of the program, calls that a rule approves, programs in Main, and records of memory (one loop,
since no turn begins while a call of the program runs). A written program gathers calls, of which a rule
approves one, and has children by ``map`` and ``race``. What was acknowledged is appended to ``PLACE/acks``,
one line each, and every run of a tool with an effect to ``PLACE/effects``, as the id of its call. The
program ends once ``PLACE/stop`` exists, every loop has had one more answer, and nothing of the tree runs any
more; then it writes ``PLACE/drained``. What a killed program began may still run without anybody who waits
for it, and closing a tree does not end it.

A loop whose call fails writes the error to ``PLACE/errors`` and goes on with the next key: what was not
acknowledged is promised to nobody. Where Ray is gone, the first loop to notice resumes the tree. Where the
tree has ended (after three lost hosts in a row a session ends `failed`), the next one is begun, and its id
appended to ``PLACE/trees``.

With a point, the program kills itself by SIGKILL when it reaches the point for that time; on the local
backend only, where supervisor and host are in this process. Points: ``append`` (facts were decided and are
not written), ``durable`` (they are on the disk, and nobody knows), ``message`` (something is about to pass
between supervisor and a host).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias, cast

from sessiontree import (
    AsyncFunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    Rule,
    Runtime,
    SessionKind,
    SessionTree,
    SessionTreeError,
    ToolContext,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.backends.local.backend import Faults, LocalBackend
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallIntended, CallOpened, CallResolved
from sessiontree.contracts.facts.tree_facts import (
    ResultHeld,
    SessionEnded,
    SessionReactivated,
    SessionSpawned,
)
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed
from sessiontree.journal.replay import read_fact
from sessiontree.models.answers import Answer

Use: TypeAlias = Callable[[SessionTree, str], Awaitable[str]]
POSTED = stimuli
"""Posts in facts hold stimuli; their room makes them known."""
PAUSE_S = 0.02
PATIENCE_S = 240.0
"""How long a loop waits for one answer before it counts as unresolved."""
WRITTEN = """
import asyncio

async def safely(call):
    try:
        return await call
    except RuntimeError as error:
        return str(error).partition(":")[0]

asked = [effect(key=f"{key}-effect-0"), launch(key=f"{key}-launch"), effect(key=f"{key}-effect-1")]
answers = await asyncio.gather(*[safely(each) for each in asked])
tasks = [f"{key}-map-{at}" for at in range(3)]
found = await map("worker", tasks, concurrency=2, on_error="return")
raced = [f"{key}-race-{at}" for at in range(2)]
found = found + await race("worker", raced, on_error="return")
wrong = [each for each in answers if each != "OutcomeUnknown" and not each.startswith(f"done {key}")]
for task, each in zip(tasks + raced, found):
    if each["status"] == "completed" and each["value"] != f"done {task}":
        wrong.append(each)
f"done {key}" if not wrong else f"wrong {wrong}"
"""
"""A call that was running when its host was lost has an unknown outcome; any other answer is its own."""
LIMITS = Limits(max_children=100_000, max_total=1_000_000, max_live=1_000, max_turns=1_000_000)


def append(path: Path, line: str) -> None:
    """Append one line, whole or not at all, whoever else appends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


@tool(tier=PermissionTier.WORKSPACE)
async def effect(key: str, ctx: ToolContext) -> str:
    """Have an effect that can be counted."""
    append(ctx.workspace_root.parent / "effects", f"{ctx.session_id} {ctx.call_id}")
    return f"done {key}"


@tool
async def launch(key: str, ctx: ToolContext) -> str:
    """Have an effect that a rule of the owner has to approve."""
    append(ctx.workspace_root.parent / "effects", f"{ctx.session_id} {ctx.call_id}")
    return f"done {key}"


async def reply(request: ModelRequest) -> Answer:
    """Call the effect for each message, write a program for a Branch, then repeat what it returned."""
    heard = request.messages[-1]
    await asyncio.sleep(PAUSE_S)
    if isinstance(heard, ToolResultMessage):
        return heard.text
    if request.kind is SessionKind.WORKER:
        return f"done {heard.text}"
    if request.kind is SessionKind.BRANCH:
        return script_call("program", code=WRITTEN, inputs={"key": heard.text})
    return script_call("effect", key=heard.text)


class Unfinished:
    """What a tree began and has not finished, by its facts so far."""

    def __init__(self) -> None:
        self.calls: set[tuple[str, str]] = set()
        """Session and key of each call that was opened or intended and has no result."""
        self.sessions: set[str] = set()
        """Sessions below Main that were spawned and have not ended."""
        self.kept: set[str] = set()
        """Those that gave their final message and stay open; maybe for a program that was killed."""

    def hear(self, session: str, fact: object) -> None:
        """Take the next fact, of a session or of the tree."""
        match fact:
            case CallOpened(key=key) | CallIntended(call=CheckedCall(key=key)):
                self.calls.add((session, key))
            case CallResolved(key=key):
                self.calls.discard((session, key))
            case SessionSpawned(spec=spec) if spec.session_id != "main":
                self.sessions.add(spec.session_id)
            case ResultHeld(session=held):
                self.kept.add(held)
            case SessionReactivated(session=active):
                self.kept.discard(active)
            case SessionEnded(session=ended, forced=forced):
                self.sessions.discard(ended)
                if forced:
                    self.calls = {each for each in self.calls if each[0] != ended}


class Deadly:
    """Kills this process when a point is reached for the n-th time.

    Args:
        number: From 1.
    """

    def __init__(self, number: int) -> None:
        self._left = number

    def reach(self) -> None:
        """Pass the point, or die there."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class DeadlyJournal:
    """A journal that has a point before each append, or after each commit.

    Args:
        journal: The journal.
        point: `append` or `durable`.
        deadly: Dies there.
    """

    def __init__(self, journal: Journal, point: str, deadly: Deadly) -> None:
        self._journal = journal
        self._point = point
        self._deadly = deadly

    def append(
        self, tree_id: str, chunks: Sequence[tuple[str, Sequence[Packed]]]
    ) -> tuple[int, asyncio.Future[None]]:
        """Reach the point and pass the facts on, or the other way round."""
        if self._point == "append":
            self._deadly.reach()
        seq, durable = self._journal.append(tree_id, chunks)
        if self._point == "durable":
            durable.add_done_callback(lambda _: self._deadly.reach())  # before all who wait for it
        return seq, durable

    def __getattr__(self, name: str) -> object:
        """Everything else is the journal's."""
        return getattr(self._journal, name)


class DeadlyMessages(Faults):
    """Faults that change no message; each is a point."""

    def __init__(self, deadly: Deadly) -> None:
        super().__init__(random.Random(0), die=1.0, delay_s=0.05, deaths_left=1)
        self.deadly = deadly

    def draw_fault(self, chance: float) -> bool:
        """Reach the point where a host could end; no host ends."""
        if chance == self.die:
            self.deadly.reach()
        return False


def deadly_runtime(state: Path, point: str, number: int) -> Runtime:
    """Return a runtime that kills this process at a point."""
    runtime = Runtime(state, backend="local")
    backend, deadly = runtime.backend, Deadly(number)
    assert isinstance(backend, LocalBackend)
    if point == "message":
        backend._faults = DeadlyMessages(deadly)  # noqa: SLF001 - no program needs this but this one
    else:
        journal = DeadlyJournal(backend._journal, point, deadly)  # noqa: SLF001 - the same
        backend._journal = cast("Journal", journal)  # noqa: SLF001 - the same
    return runtime


class Load:
    """The tree of a program, opened or resumed, and the loops that use it.

    Args:
        place: The directory of all files.
        backend: Where the tree runs.
        runtime: The runtime for it; None = one of its own.
    """

    def __init__(self, place: Path, backend: BackendName, runtime: Runtime | None) -> None:
        self._place = place
        self._backend: BackendName = backend
        self._runtime = runtime
        self._opening = asyncio.Lock()
        self._tree: SessionTree | None = None
        self._last = 0

    async def tree(self) -> SessionTree:
        """Return the open tree; opens it, or resumes the one that an earlier program or Ray left."""
        async with self._opening:
            if self._tree is None:
                self._tree = await self._open()
            return self._tree

    async def _open(self) -> SessionTree:
        named = self._place / "trees"
        state = self._place / "state"
        given: dict[str, Any] = {
            "model": AsyncFunctionModel(reply),
            "tools": [effect, launch],
            "approver": [Rule(tool="launch", answer="approve")],
            **(
                {"runtime": self._runtime}
                if self._runtime
                else {"state_dir": state, "backend": self._backend}
            ),
        }
        if named.exists():
            tree_id = named.read_text("utf-8").split()[-1]
            tree = await SessionTree.resume(tree_id, **given)
            if not tree.main.status().status.is_final:
                return tree
            await tree.close()
        policy = PolicyConfig(tools=ToolPolicy(also_allow=("program",)))
        tree = SessionTree(self._place / "workspace", limits=LIMITS, policy=policy, **given)
        await tree.start()
        append(named, tree.tree_id)
        return tree

    async def lost(self, tree: SessionTree, error: SessionTreeError) -> None:
        """Note an error; close a tree that can't go on, so that the next use resumes it."""
        append(self._place / "errors", f"{type(error).__name__}: {error}".replace("\n", " "))
        async with self._opening:
            if self._tree is tree and not await self._lives(tree):
                self._tree = None
                await self._close(tree)

    @staticmethod
    async def _lives(tree: SessionTree) -> bool:
        try:
            await tree.main.call("session_status", {})
        except SessionTreeError:
            return False
        return True

    async def _close(self, tree: SessionTree) -> None:
        try:
            await tree.close()
        except SessionTreeError as error:
            append(self._place / "errors", f"close: {type(error).__name__}: {error}".replace("\n", " "))

    async def run(self) -> None:
        """Run every loop until ``PLACE/stop`` exists, and close the tree."""
        in_main = [self._call, self._approved, self._written, self._record]
        loops = ([self._message], [self._worker, self._branch], in_main)
        async with asyncio.TaskGroup() as group:
            for uses in loops:
                group.create_task(self._loop(uses))
        await self._loop([self._rest])
        if self._tree is not None:
            await self._tree.close()
        append(self._place / "drained", "drained")

    async def _loop(self, uses: Sequence[Use]) -> None:
        """Use the tree in turn; the last use is one that begins after the stop and succeeds."""
        for once in cycle(uses):
            is_last = (self._place / "stop").exists()
            self._last += 1
            key = f"{once.__name__.strip('_')}-{os.getpid()}-{self._last}"
            try:
                tree = await self.tree()
            except SessionTreeError as error:
                append(self._place / "errors", f"open: {type(error).__name__}: {error}".replace("\n", " "))
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                answer = await asyncio.wait_for(once(tree, key), PATIENCE_S)
            except SessionTreeError as error:
                await self.lost(tree, error)
                continue
            except TimeoutError:
                append(self._place / "hung", key)
                continue
            if answer == f"done {key}":
                append(self._place / "acks", key)
                if is_last:
                    return
            else:
                append(self._place / "errors", f"{key}: {answer}"[:500].replace("\n", " "))
            await asyncio.sleep(PAUSE_S)

    async def _message(self, tree: SessionTree, key: str) -> str:
        return await tree.main.send(key)

    async def _call(self, tree: SessionTree, key: str) -> str:
        return (await tree.main.call("effect", {"key": key})).text

    async def _approved(self, tree: SessionTree, key: str) -> str:
        return (await tree.main.call("launch", {"key": key})).text

    async def _worker(self, tree: SessionTree, key: str) -> str:
        worker = await tree.main.spawn("worker", key)
        return (await worker.result()).summary

    async def _branch(self, tree: SessionTree, key: str) -> str:
        branch = await tree.main.spawn("branch", key)
        return (await branch.result()).summary

    async def _written(self, tree: SessionTree, key: str) -> str:
        return (await tree.main.call("program", {"code": WRITTEN, "inputs": {"key": key}})).text

    async def _record(self, tree: SessionTree, key: str) -> str:
        await tree.main.call("memory_store", {"text": f"done {key}"})
        return f"done {key}"

    async def _rest(self, tree: SessionTree, key: str) -> str:
        """Wait until nothing runs; the message and the call come after all that wait for Main."""
        await tree.main.send(key)
        last = await self._call(tree, f"{key}-call")
        unfinished, is_last = Unfinished(), False
        async for record in tree.events():
            unfinished.hear(record.session, read_fact(record.text))
            is_last = is_last or last in record.text
            if is_last and not unfinished.calls and unfinished.sessions <= unfinished.kept:
                break
        # A Branch that was started for a program stays open until its result is asked for; a program that was
        # killed in between asks no more.
        for session in unfinished.sessions:
            await tree.session(session).result()
        return f"done {key}"


def main(place: str, backend: str, point: str = "", number: str = "0") -> None:
    """Run until the end, or until the point."""
    runtime = deadly_runtime(Path(place, "state"), point, int(number)) if point else None
    asyncio.run(Load(Path(place), cast("BackendName", backend), runtime).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
