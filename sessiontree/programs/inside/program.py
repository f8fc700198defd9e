"""The interpreters' process: takes orders on a socket, runs programs, and says what they ask for.

Started confined, with the standard library and the interpreter's library alone. It holds no handle: it
receives names and values, and answers with names and values. The host that asks trusts no answer.
Each order and each answer is a line of JSON. An order names a program; a program has one order at a time.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import pydantic_monty as monty

MAX_LINE_BYTES: Final = 64 * 2**20
PRINTED_BYTES: Final = 2**20
"""What a program may print between two answers."""
LOGS: Final = {"log": "log", "phase": "phase"}
SHOWN_CHARS: Final = 4_000


class Asked(Exception):
    """A program asks for something that it may not have."""


class OpenProgram:
    """One program and its interpreter."""

    def __init__(self, pool: monty.AsyncMonty, order: dict[str, Any]) -> None:
        self._order = order
        self._names = frozenset(order["names"])
        limits = order["limits"]
        self._most_calls: int = limits["calls"]
        self._session = pool.checkout(
            script_name="program.py",
            limits={
                "max_memory": limits["memory_bytes"],
                "max_turn_duration_secs": limits["turn_s"],
                "max_feed_duration_secs": limits["computing_s"],
                "max_suspensions": self._most_calls + limits["notes"] + 1,
                "max_recursion_depth": limits["depth"],
            },
            type_check=True,
            type_check_stubs=order["stubs"],
            type_check_format="concise",
            os_policy={
                "datetime": datetime.fromtimestamp(order["clock_ms"] / 1000, UTC),
                "sleep": "zero",
                "random_start": {"seed": order["seed"]},
            },
        )
        self._snapshot: Any = None
        self._numbers: dict[int, int] = {}
        """The interpreter's ids of open calls, by our numbers."""
        self._asked = 0
        self._printed = monty.CollectString(max_bytes=PRINTED_BYTES)
        self._shown = 0
        self._notes: list[tuple[str, str]] = []
        self._noted = 0
        self._first_line = 0

    async def open(self) -> dict[str, Any]:
        """Check the program, and run it until it waits."""
        session = await self._session.__aenter__()
        await session.feed_run(
            self._order["prelude"], external_lookup=dict.fromkeys(self._names, _never), skip_type_check=True
        )
        try:
            self._snapshot = await session.feed_start(
                self._order["code"], inputs=self._order["inputs"], print_callback=self._printed
            )
        except monty.MontyTypingError as error:
            return {"failed": "code", "reason": error.display()[:SHOWN_CHARS]}
        return await self._go_on()

    async def answer(self, answers: list[list[Any]]) -> dict[str, Any]:
        """Give it answers, one after another in their order, and run it until it waits."""
        for number, answer in answers:
            if not isinstance(self._snapshot, monty.AsyncFutureSnapshot):
                break
            if number not in self._numbers:
                return {"failed": "crash", "reason": f"it did not ask for call {number} when it ran again"}
            call_id = self._numbers.pop(number)
            self._snapshot = await self._snapshot.resume({call_id: answer})
            await self._run()
        return self._standing()

    async def close(self) -> None:
        """Give its interpreter back."""
        await self._session.__aexit__(None, None, None)

    async def _go_on(self) -> dict[str, Any]:
        await self._run()
        return self._standing()

    async def _run(self) -> None:
        """Run it until all of it waits, or it ends."""
        while isinstance(self._snapshot, monty.AsyncFunctionSnapshot | monty.AsyncNameLookupSnapshot):
            if isinstance(self._snapshot, monty.AsyncNameLookupSnapshot):
                self._snapshot = await self._snapshot.resume()
            elif self._snapshot.is_os_function:
                self._snapshot = await self._snapshot.resume_not_handled()
            else:
                self._snapshot = await self._snapshot.resume(self._taken(self._snapshot))

    def _taken(self, call: Any) -> Any:
        """Return what a call gets at once: an error, nothing for a note, or the promise of an answer."""
        name = str(call.function_name)
        try:
            if name in LOGS:
                self._note(LOGS[name], _text_in(call.args))
                return {"return_value": None}
            if name not in self._names:
                return {"exc_type": "NameError", "message": f"name {name!r} is not defined"}
            if call.args:
                raise Asked(f"{name}() takes keyword arguments alone")
            if self._asked >= self._most_calls:
                raise Asked(f"a program makes at most {self._most_calls:,} calls")
            arguments = _plain({name: value for name, value in call.kwargs.items() if value is not None})
        except Asked as error:
            return {"exc_type": "TypeError", "message": str(error)}
        self._catch_up()
        self._numbers[self._asked] = call.call_id
        self._calls.append([name, arguments, self._line_of(call)])
        self._asked += 1
        return {"future": ...}

    def _line_of(self, call: Any) -> int:
        """Return the line of the program that waits, from 1; 0 = it is in the functions around it."""
        position = call.position
        if position.filename != "<python-input-1>":
            return 0
        code: str = self._order["code"]
        return code.encode()[: position.start].count(b"\n") + 1

    def _note(self, sort: str, text: str) -> None:
        self._catch_up()
        self._notes.append((sort, text))

    def _catch_up(self) -> None:
        """Note what was printed since the last note."""
        printed = self._printed.output
        if len(printed) > self._shown:
            self._notes.append(("print", printed[self._shown :]))
            self._shown = len(printed)

    _calls: list[list[Any]]

    def _standing(self) -> dict[str, Any]:
        """Return what is new since the last answer."""
        self._catch_up()
        told: dict[str, Any] = {"first": self._asked - len(self._calls), "calls": self._calls}
        told |= {"noted": self._noted, "notes": self._notes}
        self._noted += len(self._notes)
        self._calls, self._notes = [], []
        if isinstance(self._snapshot, monty.MontyComplete):
            told["value"] = _shown_value(self._snapshot.output)
        return told

    @classmethod
    def of(cls, pool: monty.AsyncMonty, order: dict[str, Any]) -> OpenProgram:
        """Return a program of an order."""
        made = cls(pool, order)
        made._calls = []
        return made


def _never(**arguments: object) -> None:
    """Stand for a tool; the calls are answered one by one instead."""


def _text_in(values: tuple[Any, ...]) -> str:
    return " ".join(each if isinstance(each, str) else repr(each) for each in values)


def _refuse(value: object) -> Any:
    raise Asked(f"{type(value).__name__} has no JSON form; give text, numbers, lists and dicts")


def _plain(value: Any) -> Any:
    """Return a value of JSON; raise Asked if it has no JSON form."""
    try:
        return json.loads(json.dumps(value, default=_refuse, allow_nan=False))
    except (ValueError, RecursionError, TypeError) as error:
        raise Asked(f"a value has no JSON form: {error}") from error


def _shown_value(value: Any) -> Any:
    """Return the closest value of JSON."""
    try:
        return json.loads(json.dumps(value, default=repr))
    except (ValueError, RecursionError, TypeError):
        return repr(value)[:SHOWN_CHARS]


class Interpreters:
    """The programs of this process."""

    def __init__(self, pool: monty.AsyncMonty, tell: Callable[[dict[str, Any]], None]) -> None:
        self._pool = pool
        self._tell = tell
        self._programs: dict[str, OpenProgram] = {}
        self._work: dict[str, asyncio.Task[None]] = {}

    def take(self, order: dict[str, Any]) -> None:
        """Begin to carry out an order."""
        name = str(order["id"])
        if order["op"] == "end":
            if (task := self._work.pop(name, None)) is not None:
                task.cancel()
            self._work[f"end {name}"] = asyncio.create_task(self._end(name))
            return
        self._work[name] = asyncio.create_task(self._carry_out(name, order))

    async def _carry_out(self, name: str, order: dict[str, Any]) -> None:
        try:
            if order["op"] == "open":
                program = self._programs[name] = OpenProgram.of(self._pool, order)
                told = await program.open()
            else:
                told = await self._programs[name].answer(order["answers"])
        except monty.MontyCrashedError as error:
            told = {"failed": "crash", "reason": str(error)[:SHOWN_CHARS]}
        except (monty.MontySyntaxError, monty.MontyConversionError) as error:
            told = {"failed": "code", "reason": str(error)[:SHOWN_CHARS]}
        except monty.MontyError as error:
            told = {"failed": "raised", "reason": _reason(error)}
        except Exception as error:  # noqa: BLE001 - whatever a program does, its session hears of it
            told = {"failed": "crash", "reason": f"{type(error).__name__}: {error}"[:SHOWN_CHARS]}
        if "failed" in told or "value" in told:
            await self._end(name)
        self._work.pop(name, None)
        self._tell({"id": name, "order": order["order"], **told})

    async def _end(self, name: str) -> None:
        program = self._programs.pop(name, None)
        if program is not None:
            with suppress(monty.MontyError):  # it has ended already
                await program.close()
        self._work.pop(f"end {name}", None)


def _reason(error: monty.MontyError) -> str:
    """Return what a program raised, and where in it."""
    if isinstance(error, monty.MontyRuntimeError):
        text = error.display("type-msg")
        lines = [frame.line for frame in error.traceback() if frame.filename == "<python-input-1>"]
        return f"{text[:SHOWN_CHARS]} (line {lines[-1]})" if lines else text[:SHOWN_CHARS]
    return str(error)[:SHOWN_CHARS]


async def serve(near: socket.socket, binary: str, most: int) -> None:
    """Carry out orders until the host goes."""
    reader, writer = await asyncio.open_connection(sock=near, limit=MAX_LINE_BYTES)

    def tell(told: dict[str, Any]) -> None:
        writer.write(json.dumps(told, separators=(",", ":")).encode() + b"\n")

    async with monty.AsyncMonty(binary_path=binary, min_processes=1, max_processes=most) as pool:
        interpreters = Interpreters(pool, tell)
        tell({"ready": True})
        while line := await reader.readline():
            interpreters.take(json.loads(line))


def main(descriptor: str, binary: str, most: str) -> None:
    """Serve on the socket of this descriptor."""
    near = socket.socket(fileno=int(descriptor))
    near.setblocking(False)
    asyncio.run(serve(near, binary, int(most)))


if __name__ == "__main__":
    main(*sys.argv[1:])
