"""Converting a web page in a process of its own, ended when it takes too long or too much memory.

Not here: the conversion (html_markdown.py).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.tools.thread_calls import Stop, end_if
from sessiontree.contracts.values.jsonable import JsonValue, parse_json
from sessiontree_tools.files.own_process import end_process, get_pipe_descriptor, start_process

LIMIT_S = 20.0
"""Longest conversion, the start of the interpreter included."""
ENDING_S = 1.0
"""How long a process whose pipes have ended may take to end itself."""
MAX_SAID_BYTES = 4_096
MAX_SAID_CHARS = 200
TICK_S = 0.05
"""How often a waiting thread looks whether it should stop."""
PROGRAM = Path(__file__).resolve().with_name("html_markdown.py")


@dataclass(frozen=True, slots=True)
class ConvertedPage:
    """What a web page says."""

    title: str
    text: str
    more: bool
    """Whether the text went on."""
    notes: tuple[str, ...] = ()
    """What the reader should know of it: what was left out, what did not decode."""


def convert_page(
    html: str,
    *,
    mode: Literal["markdown", "text"],
    base: str,
    max_chars: int,
    stop: Stop,
    limit_s: float = LIMIT_S,
    program: Path = PROGRAM,
) -> ConvertedPage:
    """Return what a page says. Blocks: call it from a thread.

    Args:
        html: The page.
        mode: What to make of it.
        base: Address that relative links start from.
        max_chars: Longest text.
        stop: Asked while waiting.
        limit_s: Longest conversion.
        program: What does it; any other than ours is for tests.

    Raises:
        ExecutionError: it takes too long or too much memory, the program can't run, or the work was stopped;
            says which.
    """
    order: dict[str, JsonValue] = {"mode": mode, "base": base, "max_chars": max_chars}
    found = ask_program(program, order, html, stop, limit_s)
    return ConvertedPage(found["title"], found["text"], found["more"], tuple(found["notes"]))


def ask_program(
    program: Path, order: Mapping[str, JsonValue], html: str, stop: Stop, limit_s: float
) -> dict[str, Any]:
    """Return what a program answers about a page.

    Args:
        program: Reads a line of JSON and the page in UTF-8 from its standard input, and answers with JSON.
        order: The line; ``limit_s`` is added: after that time the program ends itself.
        html: The page.
        stop: Asked while waiting.
        limit_s: Longest work.

    Raises:
        ExecutionError: as :func:`convert_page` says.
    """
    line = json.dumps({**order, "limit_s": limit_s * 2})
    request = line.encode() + b"\n" + html.encode("utf-8", "replace")
    process = start_process(program, packages=True, purpose="to convert the page in")
    try:
        answer, said = _talk(process, request, stop, limit_s)
        try:
            found: dict[str, Any] = parse_json(answer)
        except ValueError as error:
            raise ExecutionError(f"the page could not be converted: {_explain_end(process, said)}") from error
    finally:
        end_process(process)
    return found


def _explain_end(process: subprocess.Popen[bytes], said: bytes) -> str:
    """Return why a process that answered nothing ended; its pipes have ended, so it is about to."""
    status = _peek_status(process)
    last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if "ModuleNotFoundError" in last or "ImportError" in last:
        return f"this interpreter's site-packages lack what converts it ({last}); install markdownify"
    if "MemoryError" in last or status in {-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS}:
        return "it takes too much memory"
    if status == -signal.SIGALRM:
        return "it takes too long"
    return f"its process ended with {status} ({last[:MAX_SAID_CHARS] or 'and said nothing'})"


def _peek_status(process: subprocess.Popen[bytes]) -> int | None:
    """Return how a process ended; it is not waited for, so that its id stays its own until it is ended."""
    # The process has closed its pipes but may not have ended yet; the descriptor lets us wait for a bounded
    # time.
    handle = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(ENDING_S * 1000)
    finally:
        os.close(handle)
    found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _talk(
    process: subprocess.Popen[bytes], request: bytes, stop: Stop, limit_s: float
) -> tuple[bytes, bytes]:
    """Return what the process answers, while it is given the request, and what it complained of last."""
    # By hand: a communicate that is asked again after its time-out sends no more of what it was given.
    streams = (process.stdin, process.stdout, process.stderr)
    to, answering, complaining = (_unblock(stream) for stream in streams)
    deadline = time.monotonic() + limit_s
    unsent, received, said = memoryview(request), bytearray(), b""
    reading = 2
    poll = select.poll()
    poll.register(to, select.POLLOUT)
    for pipe in (answering, complaining):
        poll.register(pipe, select.POLLIN)
    while True:
        for pipe, _ in poll.poll(TICK_S * 1000):
            if pipe == to:
                unsent = unsent[_write_to_pipe(to, unsent) :]
                if not unsent:
                    poll.unregister(to)
                    process.stdin.close()  # type: ignore[union-attr] # it is a pipe
            else:
                data = os.read(pipe, 2**16)
                if not data:
                    poll.unregister(pipe)
                    reading -= 1
                    # Complaints are waited for only without an answer, which then need them as their reason.
                    if not reading or (pipe == answering and received):
                        return bytes(received), said
                elif pipe == answering:
                    received += data
                else:
                    # Only the end: a library that warns about each element of a page would fill the memory of
                    # the host.
                    said = (said + data)[-MAX_SAID_BYTES:]
        end_if(stop)
        if time.monotonic() > deadline:
            raise ExecutionError(f"the page could not be converted within {limit_s:g} s")


def _write_to_pipe(pipe: int, data: memoryview) -> int:
    """Return how many bytes a pipe took; all of them where nobody reads it any more."""
    try:
        return os.write(pipe, data)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


def _unblock(stream: IO[bytes] | None) -> int:
    pipe = get_pipe_descriptor(stream)
    os.set_blocking(pipe, False)
    return pipe
