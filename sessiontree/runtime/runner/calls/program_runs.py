"""Runs the programs of one session: gives each its answers, and passes on what it asks for.

The facts are the answers, in the order in which they came. An interpreter that is still there gets only the
new ones; any other one runs the text again and gets all of them, and each call that it asks for is compared
with the fact of it. A program that only waits keeps no interpreter for long.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any, Final, get_args

from sessiontree.contracts.errors import ExecutionError, ToolError, describe_error
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import CallResolved
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.recorded.approvals import RejectedCall
from sessiontree.contracts.recorded.programs import (
    IS_TEXT,
    MAX_ANSWER_CHARS,
    MAX_NOTE_CHARS,
    MAX_PROGRAM_CALLS,
    MAX_PROGRAM_NOTES,
    SAVED_INPUTS,
    NoteKind,
    ProgramCall,
    ProgramNote,
)
from sessiontree.contracts.recorded.results import ToolResult, make_error_message, read_error_words
from sessiontree.contracts.values.jsonable import JsonValue, compute_digest, parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.dispatch.results import ImmediateOutcome, make_result_message, mark_foreign
from sessiontree.programs.found import find_interpreter
from sessiontree.programs.interpreter_process import MOST_PROGRAMS, InterpreterEndedError, InterpreterProcess
from sessiontree.programs.orders import order_opening
from sessiontree.programs.prelude import SPAWN
from sessiontree.programs.signatures import TIMEOUT, ProgramFace
from sessiontree.programs.snapshots import SNAPSHOTS, ProgramSnapshot, digest_of_answers
from sessiontree.sandbox.process_tree import ProcessIdentity
from sessiontree.session.state import CallState, ProgramState, SessionState

MAX_CALL_S: Final = 30 * 24 * 3600.0
"""Longest time that a program may wait for one call, in seconds."""
IDLE_S: Final = 5.0
"""How long the interpreters' process stays without work."""
ANSWERS_AT_ONCE: Final = 256
_EXCEPTIONS: Final[Mapping[str, str]] = {
    "denied": "PermissionError",
    "blocked": "PermissionError",
    "timeout": "TimeoutError",
    "invalid": "ValueError",
}
"""The exception that a call raises in its program, by its outcome; any other failure is a RuntimeError."""
_NAMES: Final[Mapping[str, str]] = {
    "denied": "PermissionDenied",
    "blocked": "PermissionDenied",
    "timeout": "Timeout",
    "invalid": "ValidationError",
    "aborted": "Aborted",
    "skipped": "Skipped",
    "unknown": "OutcomeUnknown",
}
"""The beginning of that exception's message; ``ExecutionError`` for any other."""


@dataclass(slots=True)
class _HeldProgram:
    """A program on this host."""

    given: int = 0
    """How many answers its interpreter has been given."""
    is_open: bool = False
    is_wanted: bool = False
    """Whether there may be something to give."""
    lost_at: int = -1
    """How many answers it had been given when the interpreters' process last ended with it; -1 = never."""
    is_asked: bool = False
    """Whether it was given answers and has not said anything since."""
    is_leaving: bool = False
    """Whether its interpreter is being taken away."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def rests(self) -> bool:
        """Whether nothing is being done for it."""
        return self.task is None and not (self.is_asked or self.is_leaving)


@dataclass(frozen=True, slots=True)
class ProgramHost:
    """What a session's host does for its programs."""

    queue: Callable[[str, Stimulus], None]
    """Takes a cause and a stimulus for the session."""
    finish: Callable[[ImmediateOutcome | RejectedCall], None]
    """Takes the outcome of a program's call, or the call itself if its text was refused."""
    begin: Callable[[Callable[[], Awaitable[None]]], asyncio.Task[None]]
    """Runs work in a task; the session is not idle until it is done."""
    rest: Callable[[], None]
    """Called when a program has nothing to say."""


class ProgramOutcomes:
    """Makes the outcomes of a session's programs.

    Args:
        state: The session's state, only read here.
        max_chars: Longest text of a result that a model sees.
        now_ms: Returns the tree's time.
    """

    def __init__(self, state: SessionState, max_chars: int, now_ms: Callable[[], int]) -> None:
        self._state = state
        self._max_chars = max_chars
        self._now_ms = now_ms

    def complete(
        self, key: str, call: CallState, program: ProgramState, value: JsonValue
    ) -> ImmediateOutcome:
        """Return the outcome of a program that came to its end with a value."""
        calls = len(program.asked)
        display = f"the program is done after {calls} call{'s' if calls != 1 else ''}"
        is_text = isinstance(value, str)
        is_shown = not (call.part_of or call.outside or self._state.spec.first_call is not None)
        details: JsonValue = {IS_TEXT: True} if is_text and not is_shown else None
        result = ToolResult(output=value, display=display, details=details)
        message = make_result_message(
            call.call.id,
            call.tool,
            result,
            self._now_ms(),
            max_chars=self._max_chars if is_shown else MAX_ANSWER_CHARS,
            untrusted=program.untrusted,
            marks=is_shown,
        )
        return ImmediateOutcome(key, "ok", message, untrusted=program.untrusted, is_json=not is_text)

    def fail(
        self, key: str, call: CallState, program: ProgramState, told: Mapping[str, Any]
    ) -> ImmediateOutcome | RejectedCall:
        """Return the outcome of a program that failed; one that was never run is an invalid call."""
        reason = str(told.get("reason", ""))
        if told["failed"] == "raised":
            error = f"the program raised {reason}"
        elif told["failed"] != "code":
            error = f"the program's interpreter failed: {reason}"
        elif program.asked:
            error = f"ProgramDiverged: it ran before, and the interpreter here refuses its text: {reason}"
        elif program.source is not None:  # other arguments would not mend it
            where = reason.replace("program.py:", f"{call.tool}.py:").strip()
            error = f"the saved program {call.tool} does not fit this session and was not run: {where}"
        else:
            digest = compute_digest(call.tool, call.final.arguments)
            message = cut_text(f"the program was not run: {reason}", self._max_chars // 2)
            return RejectedCall(key, call.tool, message, "/code", digest, {})
        return self.end(key, call, ExecutionError(error))

    def end(self, key: str, call: CallState, error: ToolError) -> ImmediateOutcome:
        """Return the outcome of a program that ends with an error."""
        untrusted = call.program is not None and call.program.untrusted
        if untrusted:  # the program may have raised what it read
            error.message = mark_foreign(error.message, call.tool, self._max_chars // 2)
        message = make_error_message(
            call.call.id, call.tool, error, self._now_ms(), max_chars=self._max_chars
        )
        return ImmediateOutcome(key, "error", message, untrusted=untrusted)


class ProgramRuns:
    """The programs of one session on its host.

    Args:
        state: The session's state, only read here.
        face: How a program sees the session's tools.
        max_chars: Longest text of a result that a model sees.
        now_ms: Returns the tree's time.
        host: What the session's host does for them.
    """

    def __init__(
        self,
        state: SessionState,
        face: ProgramFace,
        max_chars: int,
        now_ms: Callable[[], int],
        host: ProgramHost,
    ) -> None:
        self._state = state
        self._face = face
        self._now_ms = now_ms
        self._outcomes = ProgramOutcomes(state, max_chars, now_ms)
        self._host = host
        self.make: Callable[[], InterpreterProcess] = InterpreterProcess
        """Makes a process of interpreters that is not started yet."""
        self._runs: dict[str, _HeldProgram] = {}
        self._process: InterpreterProcess | None = None
        self._starting = asyncio.Lock()
        self._rested = asyncio.Event()
        """Set when a program has come to wait, or to its end."""
        self._idle: asyncio.TimerHandle | None = None
        self._rested_s = 0.0
        """When a program last came to wait, in seconds of the loop's clock."""
        self.asked = 0
        """How many programs were given answers and have not said anything since; the session is not idle."""
        self._leaving: asyncio.Task[None] | None = None

    def advance(self, key: str) -> None:
        """Give a program the answers that it has not been given."""
        run = self._runs.setdefault(key, _HeldProgram())
        run.is_wanted = True
        if not run.rests:
            return
        if run.is_open and self._process is not None and self._process.is_running:
            self._give(self._process, key, run)
        else:
            run.task = self._host.begin(partial(self._go_on, key, run))

    def abort(self, key: str) -> None:
        """End a program's interpreter, if it is there."""
        run = self._forget(key)
        if run is None:
            return
        if run.task is not None:
            run.task.cancel()
        if run.is_asked:
            run.is_asked = False
            self.asked -= 1
        if self._process is not None and run.is_open:
            self._process.drop(key)

    def close(self) -> tuple[InterpreterProcess | None, set[ProcessIdentity]]:
        """End all; return the process, if there was one, and the processes that are ending."""
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        self._runs.clear()
        self.asked = 0
        return process, set() if process is None else process.end()

    async def _go_on(self, key: str, run: _HeldProgram) -> None:
        try:
            while run.is_wanted and self._runs.get(key) is run:
                run.is_wanted = False
                await self._step(key, run)
        finally:
            run.task = None
            self._rested.set()
            self._end_soon()

    def _find_program(self, key: str) -> tuple[CallState, ProgramState] | None:
        call = self._state.calls.get(key)
        if call is None or call.program is None or call.cut or self._state.stopping is not None:
            return None
        return call, call.program

    async def _step(self, key: str, run: _HeldProgram) -> None:
        """Give a program what is new, and pass on what it says."""
        found = self._find_program(key)
        if found is None:
            self._forget(key)
            if self._process is not None and run.is_open:
                self._process.drop(key)
            return
        call, program = found
        try:
            process = await self._ensure_process()
            if not run.is_open:
                await self._make_room(process)
                run.is_open = True
                told = await self._open_program(process, key, run, call, program)
                if self._take(key, run, call, program, told):
                    return
            while run.given < len(program.answers) and self._runs.get(key) is run:
                told = await process.ask(key, _give_next_answers(run, program))
                if self._take(key, run, call, program, told):
                    return
        except InterpreterEndedError as error:
            self._lose(key, run, call, error)
        except ToolError as error:
            self._finish(self._outcomes.end(key, call, error))

    def _give(self, process: InterpreterProcess, key: str, run: _HeldProgram) -> None:
        """Give an open program its new answers, without a task of its own: this is the way of most calls."""
        run.is_wanted = False
        found = self._find_program(key)
        if found is None:
            self._forget(key)
            process.drop(key)
        elif run.given == len(found[1].answers):
            self._end_soon()
        else:
            process.send(key, _give_next_answers(run, found[1]), partial(self._take_said, process, key, run))
            run.is_asked = True
            self.asked += 1

    def _take_said(
        self,
        process: InterpreterProcess,
        key: str,
        run: _HeldProgram,
        told: Mapping[str, Any] | InterpreterEndedError,
    ) -> None:
        """Take what a program says to its answers, and give it those that came meanwhile."""
        if not run.is_asked or self._runs.get(key) is not run:
            return
        run.is_asked = False
        self.asked -= 1
        try:
            self._take_in(process, key, run, told)
        except Exception as error:  # noqa: BLE001 - a fault here ends the session, and not its interpreters
            self._host.begin(partial(_raise, error))
        self._rested.set()
        self._host.rest()

    def _take_in(
        self,
        process: InterpreterProcess,
        key: str,
        run: _HeldProgram,
        told: Mapping[str, Any] | InterpreterEndedError,
    ) -> None:
        found = self._find_program(key)
        if found is None:
            self._forget(key)
            process.drop(key)
        elif isinstance(told, InterpreterEndedError):
            self._lose(key, run, found[0], told)
        elif not self._take(key, run, *found, told):
            self._give(process, key, run)
        if run.is_wanted and not run.is_open and run.task is None:
            run.task = self._host.begin(partial(self._go_on, key, run))

    def _lose(self, key: str, run: _HeldProgram, call: CallState, error: InterpreterEndedError) -> None:
        """Let a program run from its text again; it ends if that is lost a second time at the same place.

        The process may have ended because of another program, or of something else; this one
        must not suffer for that.
        """
        if run.lost_at == run.given:
            self._finish(self._outcomes.end(key, call, ExecutionError(f"the program was ended: {error}")))
            return
        run.lost_at = run.given
        run.is_open = False
        run.is_wanted = True

    async def _ensure_process(self) -> InterpreterProcess:
        async with self._starting:
            if self._process is None or not self._process.is_running:
                for run in self._runs.values():
                    run.is_open = False
                process = self.make()
                await process.start()
                self._process = process
            return self._process

    async def _open_program(
        self, process: InterpreterProcess, key: str, run: _HeldProgram, call: CallState, program: ProgramState
    ) -> Mapping[str, Any]:
        """Open a program as its snapshot has it, or from its text; return what it says."""
        order = self._make_opening(call, program)
        snapshot = SNAPSHOTS.take(self._state.ids.call(key))
        if snapshot is not None and snapshot.fits(find_interpreter().version, program.answers):
            run.given = snapshot.given
            told = await process.ask(key, {**order, "op": "restore", "kept": snapshot.to_order()})
            if "failed" not in told:
                return told
        run.given = 0
        return await process.ask(key, order)

    async def _keep(self, process: InterpreterProcess, key: str, run: _HeldProgram) -> None:
        """Keep what the interpreter knows of a program that waits."""
        found = self._find_program(key)
        kept = await process.ask(key, {"op": "dump"})
        state = kept.get("state")
        if found is None or not isinstance(state, str) or self._runs.get(key) is not run:
            return
        digest = digest_of_answers(found[1].answers[: run.given])
        version = find_interpreter().version
        with suppress(ValueError):  # a state that makes no sense is not kept
            snapshot = ProgramSnapshot(version, run.given, digest, b64decode(state), dict(kept, state=""))
            SNAPSHOTS.put(self._state.ids.call(key), snapshot)

    async def _make_room(self, process: InterpreterProcess) -> None:
        """Wait for an interpreter; a program that only waits gives its own, and gets another later."""
        while len(held := [key for key, run in self._runs.items() if run.is_open]) >= MOST_PROGRAMS:
            waiting = next((key for key in held if self._runs[key].rests), None)
            if waiting is None:
                self._rested.clear()
                await self._rested.wait()
                continue
            await self._leave(process, waiting, self._runs[waiting])

    async def _leave(self, process: InterpreterProcess, key: str, run: _HeldProgram) -> None:
        """Take the interpreter of a program that waits."""
        run.is_leaving = True  # nobody gives it answers meanwhile
        try:
            await self._keep(process, key, run)
        finally:
            run.is_leaving = False
        if self._runs.get(key) is not run:
            return
        process.drop(key)
        run.is_open = False
        if run.is_wanted:
            run.task = self._host.begin(partial(self._go_on, key, run))
        else:
            del self._runs[key]

    def _make_opening(self, call: CallState, program: ProgramState) -> dict[str, Any]:
        arguments, source = call.final.arguments, program.source
        given = arguments.get("inputs") if source is None else {SAVED_INPUTS: dict(arguments)}
        return order_opening(
            str(arguments["code"]) if source is None else source.code,
            self._face,
            inputs=given if isinstance(given, Mapping) else None,
            clock_ms=program.began_at_ms,
            seed=call.key,
            is_checked=bool(program.asked),
        )

    def _take(
        self, key: str, run: _HeldProgram, call: CallState, program: ProgramState, told: Mapping[str, Any]
    ) -> bool:
        """Pass on what a program says; return whether its interpreter has ended."""
        if self._runs.get(key) is not run:
            return True
        if told.get("failed") == "lost":
            self._lose(
                key, run, call, InterpreterEndedError(f"its interpreter was lost: {told.get('reason')}")
            )
            return True
        if "failed" in told:
            self._finish(self._outcomes.fail(key, call, program, told))
            return True
        is_over = "value" in told
        try:
            calls = () if is_over else self._select_new_calls(program, told)
            withdrawn = tuple(int(number) for number in told["withdrawn"])
            noted = int(told["noted"])
            notes = _parse_notes(told)[: max(0, MAX_PROGRAM_NOTES - noted)]
            first = max(len(program.asked), int(told["first"]))
        except ExecutionError as error:
            self._finish(self._outcomes.end(key, call, error))
            return True
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            self._finish(self._outcomes.end(key, call, _make_nonsense_error(error)))
            return True
        if calls or notes or withdrawn:
            said = stimuli.ProgramSaid(self._now_ms(), key, first, calls, noted, notes, withdrawn)
            self._host.queue(f"program:{key}", said)
        if is_over:
            self._finish(self._outcomes.complete(key, call, program, told["value"]))
        return is_over

    def _select_new_calls(self, program: ProgramState, told: Mapping[str, Any]) -> tuple[ProgramCall, ...]:
        """Return the calls that are new; those that the journal has must be the same ones.

        What the interpreter says is hostile: its process may have been taken over.

        Raises:
            ExecutionError: one is another call, or there are too many.
            AttributeError, LookupError, TypeError, ValueError: it makes no sense.
        """
        new: list[ProgramCall] = []
        for number, (name, given, line, fan_out) in enumerate(told["calls"], start=told["first"]):
            tool = self._face.tools[name]
            arguments, timeout_s = dict(given.items()), None
            if name not in self._face.with_own_timeout:
                timeout_s = take_timeout(arguments)
            if number >= MAX_PROGRAM_CALLS:
                raise ExecutionError(f"a program makes at most {MAX_PROGRAM_CALLS:,} calls")
            if number >= len(program.asked):
                call = ProgramCall(tool, arguments, int(line), name == SPAWN, timeout_s, int(fan_out))
                new.append(call)
            elif program.asked[number] != compute_digest(tool, arguments):
                raise ExecutionError(
                    f"ProgramDiverged: it ran again from its journal and asked for another call {number} "
                    f"({tool}); nothing of that was run. Start it again as a new call"
                )
        return tuple(new)

    def _forget(self, key: str) -> _HeldProgram | None:
        SNAPSHOTS.take(self._state.ids.call(key))
        return self._runs.pop(key, None)

    def _finish(self, ended: ImmediateOutcome | RejectedCall) -> None:
        self._forget(ended.key)
        self._host.finish(ended)

    def _end_soon(self) -> None:
        """End the process soon, unless there is more to do."""
        loop = asyncio.get_running_loop()
        self._rested_s = loop.time()
        if self._idle is None:  # one timer for many rests
            self._idle = loop.call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        self._idle = None
        loop = asyncio.get_running_loop()
        left_s = self._rested_s + IDLE_S - loop.time()
        if left_s > 0:
            self._idle = loop.call_later(left_s, self._end_idle)
        elif self._process is not None and all(run.rests for run in self._runs.values()):
            self._leaving = self._host.begin(self.end_idle)

    async def end_idle(self) -> None:
        """Keep what the interpreters know, and end them, unless a program gets an answer meanwhile."""
        process = self._process
        if process is None:
            return
        with suppress(InterpreterEndedError):
            for key, run in list(self._runs.items()):
                if run.is_open and run.rests:
                    await self._keep(process, key, run)
        if process is self._process and all(run.rests for run in self._runs.values()):
            process.end()
            self._process = None
            self._runs.clear()


def take_timeout(arguments: dict[str, JsonValue]) -> float | None:
    """Take the bound of a call's time out of its arguments, in seconds; None = it has none."""
    given = arguments.get(TIMEOUT)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None  # the tool's own check names what is wrong
    del arguments[TIMEOUT]
    return min(max(float(given), 0.0), MAX_CALL_S)


def _make_nonsense_error(error: Exception) -> ExecutionError:
    return ExecutionError(f"the interpreter said something that makes no sense: {describe_error(error)}")


def _parse_notes(told: Mapping[str, Any]) -> tuple[ProgramNote, ...]:
    """Return what a program showed.

    Raises:
        LookupError, TypeError, ValueError: it makes no sense.
    """
    notes = tuple(ProgramNote(sort, cut_text(text, MAX_NOTE_CHARS)) for sort, text in told["notes"])
    if any(each.sort not in get_args(NoteKind) for each in notes):
        raise ValueError("a note of no known sort")
    return notes


async def _raise(error: Exception) -> None:
    raise error


def _give_next_answers(run: _HeldProgram, program: ProgramState) -> dict[str, Any]:
    """Return the order that gives a program its next answers, and count them as given."""
    some = program.answers[run.given : run.given + ANSWERS_AT_ONCE]
    run.given += len(some)
    return {"op": "answer", "answers": [_answer_of(each) for each in some]}


def _answer_of(fact: CallResolved) -> list[Any]:
    """Return a call's number, and its answer as the interpreter takes it."""
    number = int(fact.key.rpartition("/")[2])
    text = fact.message.text
    if not fact.message.is_error:
        return [number, {"return_value": _parse_value(text) if fact.is_json else text}]
    name = _NAMES.get(fact.outcome, "ExecutionError")
    return [
        number,
        {
            "exc_type": _EXCEPTIONS.get(fact.outcome, "RuntimeError"),
            "message": f"{name}: {read_error_words(text)}",
        },
    ]


def _parse_value(text: str) -> Any:
    """Return a JSON text's value; the text itself if a hook or a bound has made another text of it."""
    try:
        return parse_json(text)
    except ValueError:
        return text
