"""Line matching in a process of its own, ended when a pattern takes too long.

Not here: what a match is (line_matcher.py).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.tools.thread_calls import Stop, end_if
from sessiontree_tools.files import line_matcher
from sessiontree_tools.files.line_matcher import Shown
from sessiontree_tools.files.own_process import end_process, get_pipe_descriptor, start_process

ANSWER_LIMIT_S = 2.0
"""Longest search of one chunk."""
TOTAL_LIMIT_S = 10.0
"""Longest search of one call, in processor time."""
START_LIMIT_S = 20.0
"""Longest start of the interpreter; long only on a crowded machine."""
TICK_S = 0.05
"""How often a waiting thread looks whether it should stop."""
PROGRAM = Path(line_matcher.__file__).resolve()


class MatcherProcess:
    """A :class:`~sessiontree_tools.files.line_matcher.LineMatcher` whose pattern runs elsewhere.

    Use it as a context manager, from one thread; on leaving, the process is gone and its pipes are closed.

    Args:
        pattern: A regular expression.
        ignore_case: Whether letters match in either case.
        context: Lines shown before and after each match.
        limit: Matching lines shown in all files together.
        stop: Asked while waiting.
        answer_limit_s: Longest search of one chunk.
    """

    def __init__(
        self,
        pattern: str,
        *,
        ignore_case: bool,
        context: int,
        limit: int,
        stop: Stop,
        answer_limit_s: float = ANSWER_LIMIT_S,
    ) -> None:
        self.more = False
        self.overlong = 0
        self._order = {
            "pattern": pattern,
            "ignore_case": ignore_case,
            "context": context,
            "limit": limit,
            # Twice the limit here, so that the process ends itself only if whoever watches it is gone.
            "alarm_s": answer_limit_s * 2,
        }
        self._stop = stop
        self._answer_limit_s = answer_limit_s
        self._left_s = TOTAL_LIMIT_S
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MatcherProcess:
        """Start the process and hand it the pattern.

        Raises:
            ValidationError: the pattern is not a regular expression.
            ExecutionError: the process can't be started, or the pattern takes too long to compile.
        """
        try:
            self._process = _start()
            self._await_greeting()
            answer = self._ask(json.dumps(self._order).encode())
        except BaseException:
            # A cancelled call must not leave the process behind; it is not in a `with` block yet.
            self._end()
            raise
        if "error" in answer:
            self._end()
            raise ValidationError(f"not a regular expression: {answer['error']}", "/pattern")
        return self

    def __exit__(self, *error: object) -> None:
        """End the process."""
        self._end()

    def feed(self, data: bytes, *, last: bool) -> list[Shown]:
        """Return what to show once these bytes are known; as the matcher's own.

        Raises:
            ExecutionError: the pattern took too long or too much memory, or the work was stopped.
        """
        if self._left_s < 0:
            raise _make_slow_error()
        answer = self._ask(bytes([last]) + data)
        self._left_s -= answer["spent_s"]
        self.more, self.overlong = answer["more"], answer["overlong"]
        return [(number, matches, text) for number, matches, text in answer["shown"]]

    def _await_greeting(self) -> None:
        try:
            self._receive(START_LIMIT_S)
        except TimeoutError as error:
            raise ExecutionError(
                f"the process to search in did not start within {START_LIMIT_S:g} s; try again later"
            ) from error

    def _ask(self, request: bytes) -> dict[str, Any]:
        try:
            self._send(len(request).to_bytes(4, "big") + request)
            return self._receive(self._answer_limit_s)
        except TimeoutError as error:
            raise _make_slow_error() from error

    def _send(self, data: bytes) -> None:
        pipe = get_pipe_descriptor(self._running.stdin)
        deadline = time.monotonic() + START_LIMIT_S
        sent = memoryview(data)
        while sent:
            self._await(pipe, select.POLLOUT, deadline)
            try:
                sent = sent[os.write(pipe, sent) :]
            # The pipe may report room for less than this piece; what was not taken is sent in the next round.
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise _build_error() from error

    def _receive(self, limit_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        length = int.from_bytes(self._read(4, deadline), "big")
        answer: dict[str, Any] = json.loads(self._read(length, deadline))
        return answer

    def _read(self, size: int, deadline: float) -> bytes:
        pipe = get_pipe_descriptor(self._running.stdout)
        received = bytearray()
        while len(received) < size:
            self._await(pipe, select.POLLIN, deadline)
            with suppress(BlockingIOError):
                part = os.read(pipe, size - len(received))
                if not part:
                    raise _build_error()
                received += part
        return bytes(received)

    def _await(self, pipe: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        # Short waits: a thread can't be interrupted, so it looks by itself whether the call was cancelled.
        while not poll.poll(TICK_S * 1000):
            end_if(self._stop)
            if time.monotonic() > deadline:
                raise TimeoutError

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the matcher's process is used outside its `with` block")
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        end_process(process)


def _start() -> subprocess.Popen[bytes]:
    process = start_process(PROGRAM, packages=False, purpose="to search in")
    os.set_blocking(get_pipe_descriptor(process.stdin), False)
    os.set_blocking(get_pipe_descriptor(process.stdout), False)
    return process


def _make_slow_error() -> ExecutionError:
    return ExecutionError(
        "the pattern took too long; make it simpler (no repetition inside a repetition), "
        "narrow path or glob, or search with literal=true"
    )


def _build_error() -> ExecutionError:
    return ExecutionError(
        "the search ended by itself, for lack of memory or time; simplify the pattern, narrow path or glob"
    )
