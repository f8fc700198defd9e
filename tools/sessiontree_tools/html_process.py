"""Converting a web page in a process of its own, ended when it takes too long or too much memory.

Not here: the conversion (html_markdown.py).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from sessiontree.contracts.errors import ExecutionError
from sessiontree_tools.threads import Stop, end_if

LIMIT_S = 20.0
"""Longest conversion, the start of the interpreter included."""
TICK_S = 0.05
"""How often a waiting thread looks whether it should stop."""
PROGRAM = Path(__file__).resolve().with_name("html_markdown.py")


@dataclass(frozen=True, slots=True)
class Converted:
    """What a web page says."""

    title: str
    text: str
    more: bool
    """Whether the text went on."""


def converted(
    html: str,
    *,
    mode: Literal["markdown", "text"],
    base: str,
    max_chars: int,
    stop: Stop,
    limit_s: float = LIMIT_S,
) -> Converted:
    """Return what a page says. Blocks: call it from a thread.

    Args:
        html: The page.
        mode: What to make of it.
        base: Address that relative links start from.
        max_chars: Longest text.
        stop: Asked while waiting.
        limit_s: Longest conversion.

    Raises:
        ExecutionError: it takes too long or too much memory, or the work was stopped.
    """
    order = {"mode": mode, "base": base, "max_chars": max_chars, "limit_s": limit_s * 2}
    request = json.dumps(order).encode() + b"\n" + html.encode("utf-8", "replace")
    process = _start()
    try:
        answer = _talk(process, request, stop, limit_s)
        found = json.loads(answer)
    except ValueError as error:
        raise ExecutionError(
            "the page could not be converted: it takes too much memory, or this interpreter's site-packages "
            "lack markdownify"
        ) from error
    finally:
        _end(process)
    return Converted(found["title"], found["text"], found["more"])


def _talk(process: subprocess.Popen[bytes], request: bytes, stop: Stop, limit_s: float) -> bytes:
    """Return what the process answers, while it is given the request."""
    # By hand: a communicate that is asked again after its time-out sends no more of what it was given.
    to, answering, complaining = (_pipe(end) for end in (process.stdin, process.stdout, process.stderr))
    deadline = time.monotonic() + limit_s
    unsent, received = memoryview(request), bytearray()
    poll = select.poll()
    poll.register(to, select.POLLOUT)
    for end in (answering, complaining):
        poll.register(end, select.POLLIN)
    while True:
        for end, _ in poll.poll(TICK_S * 1000):
            if end == to:
                unsent = unsent[_written(to, unsent) :]
                if not unsent:
                    poll.unregister(to)
                    process.stdin.close()  # type: ignore[union-attr] # it is a pipe
            else:
                data = os.read(end, 2**16)
                if not data:
                    if end == answering:
                        return bytes(received)
                    poll.unregister(end)
                elif end == answering:
                    received += data
        end_if(stop)
        if time.monotonic() > deadline:
            raise ExecutionError(f"the page could not be converted within {limit_s:g} s")


def _written(pipe: int, data: memoryview) -> int:
    """Return how many bytes a pipe took; all of them where nobody reads it any more."""
    try:
        return os.write(pipe, data)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


def _pipe(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise RuntimeError("the process has no such pipe")
    os.set_blocking(stream.fileno(), False)
    return stream.fileno()


def _start() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - the interpreter that runs us, and our own file
            [sys.executable, "-I", "-B", PROGRAM],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # a read-only process may not open the null device for writing
            env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            start_new_session=True,
        )
    except OSError as error:
        raise ExecutionError(f"can't start a process to convert the page in: {error.strerror}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # It is not yet waited for, so the id is still its own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
