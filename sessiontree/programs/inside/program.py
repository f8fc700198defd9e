"""The interpreters' process: takes orders on a socket, runs programs, and says what they ask for.

Started confined, with the standard library and the interpreter's library alone. It holds no handle: it
receives names and values, and answers with names and values. The host that asks trusts no answer.
Each order and each answer is a line of JSON. A program has a thread, which carries out its orders in their
order; the library waits for the interpreter's own process without holding up other threads.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from bisect import bisect
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final

import pydantic_monty as monty

try:
    import lzma as packer
except ImportError:  # some builds of Python lack it
    import zlib as packer  # type: ignore[no-redef]

PRINTED_CHARS: Final = 2**20
"""What a program may print in all; the rest is left out."""
STARTS: Final = frozenset({"open", "restore"})
"""Orders that begin with a program."""
NOTES: Final = frozenset({"log", "phase", "fan_out"})
"""Functions that only leave a note; only the functions around a program know ``fan_out``."""
COUNTS: Final = "fan_out"
WITHDRAW: Final = "withdraw"
"""Gives up the open calls of a group; only the functions around a program name groups."""
GROUP: Final = "_group"
FAN_OUT: Final = "_fan_out"
"""Number of the fan-out that a call is part of."""
SUSPENSIONS: Final = 3
"""How often a call may suspend its program: by its name, by itself, and until its answer. The bound ends a
program that ignores the errors of the other bounds."""
SHOWN_CHARS: Final = 4_000
_USERS_CODE: Final = "<python-input-1>"
"""The library's name of what a session is fed second: the program, after the functions around it."""


class Asked(Exception):
    """A program asks for something that it may not have."""


class OpenProgram:
    """One program and its interpreter."""

    def __init__(self, pool: monty.Monty, order: dict[str, Any]) -> None:
        self._order = order
        self._names = frozenset(order["names"])
        limits = order["limits"]
        self._most_calls: int = limits["calls"]
        self._most_notes: int = limits["notes"]
        self._session = pool.checkout(
            script_name="program.py",
            limits={
                "max_memory": limits["memory_bytes"],
                "max_turn_duration_secs": limits["turn_s"],
                "max_feed_duration_secs": limits["computing_s"],
                "max_suspensions": SUSPENSIONS * (self._most_calls + limits["notes"]),
                "max_recursion_depth": limits["depth"],
            },
            # A program that asked for calls before was checked before its first statement.
            type_check=not order["is_checked"],
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
        self._groups: dict[str, list[int]] = {}
        self._withdrawn: list[int] = []
        self._asked = 0
        self._calls: list[list[Any]] = []
        self._printed: list[str] = []
        self._may_print = PRINTED_CHARS
        self._written = 0
        """How often it has called functions that leave a note."""
        self._notes: list[tuple[str, str]] = []
        self._noted = 0
        code = order["code"].encode()
        self._line_ends = [at for at, byte in enumerate(code) if byte == 0x0A]

    def dump(self) -> dict[str, Any]:
        """Return all that :meth:`restore` needs; nothing if the program does not wait."""
        if not isinstance(self._snapshot, monty.FutureSnapshot):
            return {"state": None}
        state = base64.b64encode(packer.compress(self._snapshot.dump())).decode()
        kept: dict[str, Any] = {
            "state": state,
            "numbers": list(self._numbers.items()),
            "groups": self._groups,
        }
        kept |= {"asked": self._asked, "noted": self._noted, "written": self._written}
        return kept | {"may_print": self._may_print}

    def restore(self, kept: dict[str, Any]) -> dict[str, Any]:
        """Go on from what :meth:`dump` returned; it waits as it did then."""
        session = self._session.__enter__()
        self._snapshot = session.load_snapshot(
            packer.decompress(base64.b64decode(kept["state"])), print_callback=self._print
        )
        self._numbers = dict(kept["numbers"])
        self._groups = kept["groups"]
        self._asked, self._noted, self._may_print = kept["asked"], kept["noted"], kept["may_print"]
        self._written = kept["written"]
        return self._take_news()

    def open(self) -> dict[str, Any]:
        """Check the program, and run it until it waits."""
        session = self._session.__enter__()
        functions = {name: _make_stub(name) for name in self._names}
        session.feed_run(self._order["prelude"], external_lookup=functions, skip_type_check=True)
        self._snapshot = session.feed_start(
            self._order["code"], inputs=self._order["inputs"], print_callback=self._print
        )
        self._run()
        return self._take_news()

    def answer(self, answers: list[list[Any]]) -> dict[str, Any]:
        """Give it answers, one after another in their order, and run it until it waits."""
        for number, answer in answers:
            # It has ended with an earlier answer of this order; the others come too late.
            if not isinstance(self._snapshot, monty.FutureSnapshot):
                break
            if number not in self._numbers:
                return {"failed": "crash", "reason": f"it did not ask for call {number} when it ran again"}
            call_id = self._numbers.pop(number)
            self._snapshot = self._snapshot.resume({call_id: answer})
            self._run()
        return self._take_news()

    def close(self) -> None:
        """Give its interpreter back."""
        with suppress(monty.MontyError):  # it has ended already
            self._session.__exit__(None, None, None)

    def _run(self) -> None:
        """Run it until all of it waits, or it ends."""
        while isinstance(self._snapshot, monty.FunctionSnapshot | monty.NameLookupSnapshot):
            if isinstance(self._snapshot, monty.NameLookupSnapshot):
                self._snapshot = self._look_up(self._snapshot)
            elif self._snapshot.is_os_function:
                self._snapshot = self._snapshot.resume_not_handled()
            else:
                self._snapshot = self._snapshot.resume(self._answer_call(self._snapshot))

    def _look_up(self, lookup: monty.NameLookupSnapshot) -> Any:
        """Go on with the function of a name that the program uses as a value, or with a NameError."""
        name = lookup.variable_name
        if name in self._names and lookup.object_id is None:
            return lookup.resume(value=_make_stub(name))
        return lookup.resume()

    def _answer_call(self, call: Any) -> Any:
        """Return what a call gets at once: an error, nothing for a note, or the promise of an answer."""
        name = str(call.function_name)
        try:
            if name in NOTES:
                self._written += 1
                # Only the functions around a program leave these, so a program must not fail for them.
                if self._written > self._most_notes and name == COUNTS:
                    return {"return_value": None}  # a viewer misses it, and the program nothing
                if self._written > self._most_notes:
                    raise Asked(f"a program leaves at most {self._most_notes:,} notes")
                self._note(name, _join_values(call.args))
                return {"return_value": None}
            if name == WITHDRAW:
                open_calls = self._groups.pop(_join_values(call.args), [])
                self._withdrawn += [number for number in open_calls if number in self._numbers]
                return {"return_value": None}
            # Checked again although the host checks each call: here it costs a program an error and not its
            # end.
            if name not in self._names:
                return {"exc_type": "NameError", "message": f"name {name!r} is not defined"}
            if call.args:
                raise Asked(f"{name}() takes keyword arguments alone")
            if self._asked >= self._most_calls:
                raise Asked(f"a program makes at most {self._most_calls:,} calls")
            arguments = _to_plain({name: value for name, value in call.kwargs.items() if value is not None})
        except Asked as error:
            return {"exc_type": "TypeError", "message": str(error)}
        # Before the call, so that what was printed is noted in the order in which it happened.
        self._catch_up()
        group, fan_out = arguments.pop(GROUP, None), arguments.pop(FAN_OUT, 0)
        if group is not None:
            self._groups.setdefault(str(group), []).append(self._asked)
        self._numbers[self._asked] = call.call_id
        self._calls.append([name, arguments, self._find_line(call), fan_out])
        self._asked += 1
        return {"future": ...}

    def _find_line(self, call: Any) -> int:
        """Return the line of the program that waits, from 1; 0 = it is in the functions around it."""
        position = call.position
        if position.filename != _USERS_CODE:
            return 0
        return bisect(self._line_ends, position.start) + 1

    def _print(self, stream: str, text: str) -> None:
        kept = text[: self._may_print]
        self._may_print -= len(kept)
        if kept:
            self._printed.append(kept)

    def _note(self, sort: str, text: str) -> None:
        self._catch_up()
        self._notes.append((sort, text))

    def _catch_up(self) -> None:
        """Note what was printed since the last note."""
        if self._printed:
            self._notes.append(("print", "".join(self._printed)))
            self._printed = []

    def _take_news(self) -> dict[str, Any]:
        """Return what is new since the last answer."""
        self._catch_up()
        told: dict[str, Any] = {"first": self._asked - len(self._calls), "calls": self._calls}
        told |= {"noted": self._noted, "notes": self._notes, "withdrawn": self._withdrawn}
        self._noted += len(self._notes)
        self._calls, self._notes, self._withdrawn = [], [], []
        if isinstance(self._snapshot, monty.MontyComplete):
            told["value"] = _to_shown_value(self._snapshot.output)
        return told


def _make_stub(name: str) -> Callable[..., None]:
    """Return what stands for a tool's function; its calls are answered one by one instead."""

    def do_nothing(**arguments: object) -> None:
        """Do nothing."""

    do_nothing.__name__ = name  # the interpreter calls it by this name, whatever the program calls it
    return do_nothing


def _join_values(values: tuple[Any, ...]) -> str:
    return " ".join(each if isinstance(each, str) else repr(each) for each in values)


def _refuse(value: object) -> Any:
    raise Asked(f"{type(value).__name__} has no JSON form; give text, numbers, lists and dicts")


def _to_plain(value: Any) -> Any:
    """Return a value of JSON; raise Asked if it has no JSON form."""
    try:
        # Written and read again: the result has plain types only, whatever the interpreter's values are.
        return json.loads(json.dumps(value, default=_refuse, allow_nan=False))
    except (ValueError, RecursionError, TypeError) as error:
        raise Asked(f"a value has no JSON form: {error}") from error


def _to_shown_value(value: Any) -> Any:
    """Return the closest value of JSON; raise Asked if it has neither one nor a text."""
    try:
        return json.loads(json.dumps(value, default=repr, allow_nan=False))
    except (ValueError, RecursionError, TypeError):
        pass
    try:
        return repr(value)[:SHOWN_CHARS]
    except (ValueError, RecursionError) as error:
        raise Asked(f"its last expression has no JSON form, and no text: {error}") from error


class Interpreters:
    """The programs of this process.

    Args:
        pool: Starts interpreters.
        tell: Takes what a program says; called in its thread.
    """

    def __init__(self, pool: monty.Monty, tell: Callable[[dict[str, Any]], None]) -> None:
        self._pool = pool
        self._tell = tell
        self._orders: dict[str, SimpleQueue[dict[str, Any]]] = {}
        self.threads: list[Thread] = []
        """Those that carry out orders, oldest first."""

    def take(self, order: dict[str, Any]) -> None:
        """Pass an order on to the thread of its program; a program that is opened gets one."""
        name = str(order["id"])
        # A program that is opened again replaces its earlier interpreter, which may be stuck in a loop.
        if order["op"] in STARTS:
            self._leave(name)
            orders = self._orders[name] = SimpleQueue()
            thread = Thread(target=self._carry_out, args=(orders,), daemon=True)
            thread.start()
            self.threads = [*(each for each in self.threads if each.is_alive()), thread]
        if order["op"] == "end":
            self._leave(name)
        elif name in self._orders:
            self._orders[name].put(order)
        else:
            self._tell({"id": name, "order": order["order"], "failed": "crash", "reason": "it is not open"})

    def _leave(self, name: str) -> None:
        orders = self._orders.pop(name, None)
        if orders is not None:
            orders.put({"op": "end"})

    def _carry_out(self, orders: SimpleQueue[dict[str, Any]]) -> None:
        """Carry out the orders of one program, until it ends or is left."""
        program: OpenProgram | None = None
        has_ended = False
        while not has_ended and (order := orders.get())["op"] != "end":
            try:
                program = program or OpenProgram(self._pool, order)
                told = _DO[order["op"]](program, order)
            except Exception as error:  # noqa: BLE001 - whatever a program does, its session hears of it
                told = _describe_failure(error)
            has_ended = "failed" in told or "value" in told
            self._tell({"id": str(order["id"]), "order": order["order"], **told})
        if program is not None:
            program.close()


_DO: Final[dict[str, Callable[[OpenProgram, dict[str, Any]], dict[str, Any]]]] = {
    "open": lambda program, order: program.open(),
    "restore": lambda program, order: program.restore(order["kept"]),
    "answer": lambda program, order: program.answer(order["answers"]),
    "dump": lambda program, order: program.dump(),
}
"""How each order is carried out."""


def _describe_failure(error: Exception) -> dict[str, Any]:
    """Return what is said of a program that failed."""
    if isinstance(error, monty.MontyTypingError):  # it comes late if the program imports a module
        return {"failed": "code", "reason": error.display()[:SHOWN_CHARS]}
    if isinstance(error, Asked):
        return {"failed": "raised", "reason": f"ValueError: {error}"}
    if isinstance(error, monty.MontySyntaxError | monty.MontyConversionError):
        return {"failed": "code", "reason": str(error)[:SHOWN_CHARS]}
    if isinstance(error, monty.MontyCrashedError):
        return {"failed": "lost", "reason": str(error)[:SHOWN_CHARS]}
    if isinstance(error, monty.MontyError):
        return {"failed": "raised", "reason": _describe_error(error)}
    return {"failed": "crash", "reason": f"{type(error).__name__}: {error}"[:SHOWN_CHARS]}


def _describe_error(error: monty.MontyError) -> str:
    """Return what a program raised, and where in it."""
    if isinstance(error, monty.MontyRuntimeError):
        text = error.display("type-msg")
        lines = [frame.line for frame in error.traceback() if frame.filename == _USERS_CODE]
        return f"{text[:SHOWN_CHARS]} (line {lines[-1]})" if lines else text[:SHOWN_CHARS]
    return str(error)[:SHOWN_CHARS]


def serve(near: socket.socket, binary: str, most: int) -> None:
    """Carry out orders until the host goes."""
    lines = near.makefile("rb")
    turn = Lock()

    def tell(told: dict[str, Any]) -> None:
        line = json.dumps(told, separators=(",", ":")).encode() + b"\n"
        # The lock keeps the lines of two threads from mixing.
        with turn, suppress(OSError):  # the host is gone: then this process ends, too
            near.sendall(line)

    with monty.Monty(binary_path=binary, min_processes=1, max_processes=most) as pool:
        interpreters = Interpreters(pool, tell)
        tell({"ready": True})
        for line in lines:
            interpreters.take(json.loads(line))
        os._exit(0)  # no program outlives its host; their processes end with their pipes


def main(descriptor: str, binary: str, most: str) -> None:
    """Serve on the socket of this descriptor."""
    serve(socket.socket(fileno=int(descriptor)), binary, int(most))


if __name__ == "__main__":
    main(*sys.argv[1:])
