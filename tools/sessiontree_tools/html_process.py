"""Converting a web page in a process of its own, ended when it takes too long or too much memory.

Not here: the conversion (html_markdown.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
    deadline = time.monotonic() + limit_s
    sending: bytes | None = request
    while True:
        try:
            answer, _ = process.communicate(sending, timeout=TICK_S)
        except subprocess.TimeoutExpired:
            sending = None  # what was given once is still being sent
            end_if(stop)
            if time.monotonic() > deadline:
                raise ExecutionError(f"the page could not be converted within {limit_s:g} s") from None
        else:
            return answer


def _start() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - the interpreter that runs us, and our own file
            [sys.executable, "-I", "-B", PROGRAM],
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
            with suppress(BrokenPipeError):
                pipe.close()
