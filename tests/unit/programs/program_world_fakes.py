"""A session's machine with a program, its interpreter, and a world that answers its calls in any order."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

from pydantic_monty import Monty

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.codec import pack, pack_joined
from sessiontree.contracts.recorded.programs import STARTS_CHILDREN
from sessiontree.contracts.recorded.results import make_error_message
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.contracts.values.messages import TextContent, ToolCall, ToolResultMessage
from sessiontree.dispatch.results import ImmediateOutcome
from sessiontree.journal.replay import replay_session
from sessiontree.programs.inside.program import Interpreters
from sessiontree.programs.interpreter_process import InterpreterProcess
from sessiontree.programs.signatures import build_face
from sessiontree.runtime.runner.calls.program_runs import ProgramHost, ProgramRuns
from sessiontree.sandbox.process_tree import list_children
from sessiontree.session import instructions as todo
from sessiontree.session.decide import react
from sessiontree.session.state import SessionState
from tests.unit.session.session_fixtures import reply, spec

NUMBER: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CHILD: dict[str, Any] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("kind", "task", "wait")},
    "required": ["kind", "task"],
}
TOOLS = {"look": NUMBER, "note": NUMBER, "fail": NUMBER, STARTS_CHILDREN: CHILD}
"""``look`` changes nothing, ``note`` does, and ``fail`` fails."""
AT_MS = 1_000
MOST_STEPS = 2_000


class NearInterpreters:
    """Interpreters of a pool of this process, as a session's host sees its own process."""

    def __init__(self, pool: Monty) -> None:
        self._asked: dict[int, Callable[[dict[str, Any]], object]] = {}
        self._orders = 0
        loop = asyncio.get_running_loop()

        def tell(told: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(self._tell, told)

        self._inside = Interpreters(pool, tell)
        self._open: set[str] = set()
        self.restored = 0
        self.is_running = False

    async def start(self) -> None:
        self.is_running = True

    def send(self, program: str, order: dict[str, Any], hear: Callable[[dict[str, Any]], None]) -> None:
        self._orders += 1
        self._open.add(program)
        self.restored += order["op"] == "restore"
        self._asked[self._orders] = hear
        self._inside.take({**order, "id": program, "order": self._orders})

    async def ask(self, program: str, order: dict[str, Any]) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def hear(told: dict[str, Any]) -> None:
            if not answer.done():
                answer.set_result(told)

        self.send(program, order, hear)
        return await answer

    def drop(self, program: str) -> None:
        self._inside.take({"id": program, "op": "end", "order": 0})

    def end(self) -> set[Any]:
        self.is_running = False
        for name in self._open:
            self.drop(name)
        return set()

    async def ended(self) -> None:
        """Wait until no program of it has an interpreter."""
        self.end()
        for thread in self._inside.threads:
            await asyncio.to_thread(thread.join)

    def _tell(self, told: dict[str, Any]) -> None:
        hear = self._asked.pop(told["order"], None)
        if hear is not None:
            hear(told)


@dataclass
class Run:
    """What came of a program."""

    result: str = ""
    is_error: bool = False
    effects: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Facts of what the program asked for, as journaled."""
    kills: int = 0


Rules = Callable[[SessionState, Stimulus], tuple[list[Any], list[Any]]]


class World:
    """One session that runs one program; everything but its machine and its interpreter is pretended.

    Args:
        pool: Interpreters.
        code: The program.
        order: Decides which of the open calls is answered next.
        kill: Decides before each answer whether the host is lost.
        rules: The session machine.
        rests: Decides before each answer whether the program waits so long that its interpreter ends.
    """

    def __init__(
        self,
        pool: Monty,
        code: str,
        order: Random,
        kill: Callable[[], bool],
        rules: Rules = react,
        rests: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pool = pool
        self._code = code
        self._order = order
        self._kill = kill
        self._rests = rests
        self.forgets_answer: Callable[[], bool] = lambda: False
        """Decides at a loss whether the last answer had not become a fact; only for tools without effects."""
        self._rules = rules
        self._texts: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: list[tuple[str, Stimulus]] = []
        self._made: list[NearInterpreters] = []
        self._heard = asyncio.Event()
        self._children: dict[str, str] = {}
        """Tasks of the children that have not reported, by the key of the call that started each."""
        self.run = Run()
        self._adopt()

    def _adopt(self) -> None:
        """Rebuild the session from its facts, on a host that knows nothing else."""
        self._state = replay_session(spec(SessionKind.MAIN), Limits(), self._texts)
        self._ready: dict[str, CheckedCall] = {}
        self._due.clear()
        self._runs = ProgramRuns(
            self._state,
            build_face(TOOLS, STARTS_CHILDREN),
            10_000,
            lambda: AT_MS,
            ProgramHost(self._queue, self._finish, self._begin, self._heard.set),
        )
        self._runs.make = self._interpreters

    def _interpreters(self) -> InterpreterProcess:
        self._made.append(NearInterpreters(self._pool))
        return cast("InterpreterProcess", self._made[-1])

    def _queue(self, cause: str, stimulus: Stimulus) -> None:
        self._due.append((cause, stimulus))

    def _finish(self, ended: ImmediateOutcome | RejectedCall) -> None:
        told: Stimulus
        if isinstance(ended, RejectedCall):
            told = stimuli.CallRejected(AT_MS, ended)
        else:
            told = stimuli.CallFinished(AT_MS, ended.key, ended.outcome, ended.message)
        self._due.append((f"call:{ended.key}", told))

    def _begin(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        async def done() -> None:
            await work()

        task = asyncio.create_task(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def go(self) -> Run:
        """Run the program to its end."""
        try:
            return await self._go()
        finally:
            self._runs.close()
            for each in self._made:
                await each.ended()

    async def _go(self) -> Run:
        self._feed(stimuli.Adopted(AT_MS, ("program", *TOOLS), "m", "prompt"))
        self._feed(stimuli.Incoming(AT_MS, "m1", "go", "follow_up", "user"))
        call = ToolCall("c1", "program", {"code": self._code})
        self._feed(stimuli.ModelAnswered(AT_MS, 1, reply(call)))
        for _ in range(MOST_STEPS):
            await self._settle()
            if self.run.result:
                return self.run
            if self._rests():
                await self._runs.end_idle()
            if self._kill():
                await self._lose()
                continue
            is_open = {*self._ready, *self._children}
            assert is_open, "the program waits for nothing"
            key = self._order.choice(sorted(is_open, key=_place))
            self._feed(self._report(key) if key in self._children else self._answer(self._ready.pop(key)))
        raise AssertionError("the program did not end")

    @property
    def restored(self) -> int:
        """How often an interpreter went on from a snapshot."""
        return sum(each.restored for each in self._made)

    async def _settle(self) -> None:
        """Let the interpreter go on until it waits, and feed what it said."""
        while self._tasks or self._due or self._runs.asked:
            while self._due:
                self._feed(self._due.pop(0)[1])
            if self._tasks:
                await asyncio.wait(set(self._tasks))
            elif self._runs.asked:
                self._heard.clear()
                await self._heard.wait()

    async def _lose(self) -> None:
        self.run.kills += 1
        self._runs.close()
        await self._settle()
        if self.forgets_answer():
            last = max(at for at, text in enumerate(self._texts) if "call_resolved" in text)
            del self._texts[last:]
        self._adopt()
        self._feed(stimuli.Recovered(AT_MS))

    def _feed(self, stimulus: Stimulus) -> None:
        facts, told = self._rules(self._state, stimulus)
        self._texts += pack_joined(facts)
        for fact in facts:
            if type(fact).__name__ == "ProgramAdvanced":
                self.run.asked.append(pack(fact))
            elif type(fact).__name__ == "CallResolved" and fact.key == "1.0":
                self.run.result, self.run.is_error = fact.message.text, fact.message.is_error
        for instruction in told:
            self._carry_out(instruction)

    def _carry_out(self, instruction: Any) -> None:
        match instruction:
            case todo.PrepareCall(key, call):
                is_note = call.name == "note"
                tier = int(PermissionTier.WORKSPACE if is_note else PermissionTier.READ_ONLY)
                checked = CheckedCall(key, call.name, call.arguments, "d" if is_note else "", tier, True)
                self._due.append((f"call:{key}", stimuli.CallPrepared(AT_MS, checked, needs_approval=False)))
            case todo.AwaitCommit(keys):
                self._due.append(("committed", stimuli.IntentsCommitted(AT_MS, keys)))
            case todo.ExecuteCall(_, call):
                self._begin_call(call)
            case todo.AdvanceProgram(key):
                self._runs.advance(key)
            case todo.AbortCalls(keys):
                aborted = [key for key in keys if self._ready.pop(key, None) is not None]
                self._due += [(f"call:{key}", _aborted(key)) for key in aborted]
            case todo.ToTree(stimuli.ChildWithdrawn(key=child)):
                kept = self._children.items()
                self._children = {key: task for key, task in kept if self._state.ids.call(key) != child}

    def _begin_call(self, call: CheckedCall) -> None:
        if call.tool == "program":
            self._due.append(("call", stimuli.ProgramBegan(AT_MS, call)))
        else:
            self._ready[call.key] = call

    def _start_child(self, call: CheckedCall) -> Stimulus:
        """Start a child, as one step of this world; a second one for the same call is a second effect."""
        self._children[call.key] = str(call.arguments["task"])
        self.run.effects.append(f"child {call.arguments['task']}")
        message = ToolResultMessage("c", call.tool, (TextContent('{"session": "w"}'),), None, False, AT_MS)
        return stimuli.CallFinished(AT_MS, call.key, "ok", message, is_json=True)

    def _report(self, key: str) -> Stimulus:
        """Return the report of a child; one whose task is odd fails."""
        task = self._children.pop(key)
        status = "failed" if int(task) % 2 else "completed"
        told = {"session": f"w{task}", "status": status, "summary": f"done {task}"}
        return stimuli.Incoming(
            *(AT_MS, f"report {key}", dump_json(told), "follow_up", "child"),
            answers=self._state.ids.call(key),
        )

    def _answer(self, call: CheckedCall) -> Stimulus:
        """Run a call and return its result: the work and the record of it are one step of this world."""
        if call.tool == STARTS_CHILDREN:
            return self._start_child(call)
        number = call.arguments["n"]
        if call.tool == "note":
            self.run.effects.append(str(number))
        if call.tool == "fail":
            failed = make_error_message("c", "fail", ExecutionError(f"{number} failed"), AT_MS)
            return stimuli.CallFinished(AT_MS, call.key, "error", failed)
        text = dump_json({"n": number, "of": call.tool})
        message = ToolResultMessage("c", call.tool, (TextContent(text),), None, False, AT_MS)
        return stimuli.CallFinished(AT_MS, call.key, "ok", message, is_json=True)


def _aborted(key: str) -> Stimulus:
    return stimuli.CallFinished(
        AT_MS, key, "aborted", make_error_message("c", "x", ExecutionError("given up"), AT_MS)
    )


def _place(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.replace("/", ".").split("."))


@asynccontextmanager
async def interpreters() -> AsyncIterator[Monty]:
    """Start interpreters in this process's pool."""
    try:
        with Monty(min_processes=1, max_processes=4) as pool:
            yield pool
    finally:
        gc.collect()  # a session that was cut off in the middle ends its process when it is collected
        _reap()


def _reap() -> None:
    """Wait for the end of interpreters that were cut off; the library does not."""
    for pid in list_children(os.getpid()):
        if _name_of(pid) == "monty":
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
