"""The process a pattern runs in: started, asked, ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree_tools.files.line_matcher import LineMatcher, make_regex_finder
from sessiontree_tools.files.matcher_process import MatcherProcess

Leftovers = Callable[[], AbstractContextManager[None]]


def process(pattern: str, *, limit: int = 100, answer_limit_s: float = 2.0) -> MatcherProcess:
    """Return a matcher for a pattern, with nobody who would stop it."""
    return MatcherProcess(
        pattern,
        ignore_case=False,
        context=1,
        limit=limit,
        stop=lambda: False,
        answer_limit_s=answer_limit_s,
    )


def child(of: MatcherProcess) -> int:
    """Return the id of a matcher's process; the test run may have others."""
    return of._running.pid


def test_process_answers_as_the_matcher_in_process(nothing_left: Leftovers) -> None:
    """Chunks of any size and many files: the same lines, the same flags."""
    chunks = [(b"one\nxt", False), (b"wo\nthree", True), (b"x" * 700_000 + b"\n", False), (b"\xffx\n", True)]
    here = LineMatcher(make_regex_finder("x", ignore_case=False), context=1, limit=3)
    with nothing_left(), process("x", limit=3) as there:
        for data, last in [*chunks, (b"x\nx\n", True)]:
            assert there.feed(data, last=last) == here.feed(data, last=last)
            assert (there.more, there.overlong) == (here.more, here.overlong)
    assert there.more


def test_process_sees_no_environment_and_opens_no_file() -> None:
    """It is given pipes and nothing else."""
    with process("x") as there:
        home = Path(f"/proc/{child(there)}")
        environment = (home / "environ").read_bytes().split(b"\0")
        assert {entry.partition(b"=")[0] for entry in environment} <= {b"", b"LD_LIBRARY_PATH", b"LC_CTYPE"}
        assert {link.readlink().as_posix().partition(":")[0] for link in (home / "fd").iterdir()} == {"pipe"}


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){25}$"])
def test_endless_pattern_is_ended_at_the_limit(pattern: str, nothing_left: Leftovers) -> None:
    """Each of the famous traps is cut off."""
    started = time.monotonic()
    with (
        nothing_left(),
        pytest.raises(ExecutionError, match="too long"),
        process(pattern, answer_limit_s=0.2) as there,
    ):
        there.feed(b"a" * 5000 + b"!\n", last=True)
    assert time.monotonic() - started < 30, "by itself it would take years"


def test_endless_pattern_ends_by_itself_when_its_owner_is_gone() -> None:
    """Nobody kills it, yet it is gone shortly after its limit."""
    with process("(a+)+$", answer_limit_s=0.1) as there:
        pid = child(there)
        with pytest.raises(ExecutionError, match="too long"):
            there.feed(b"a" * 5000 + b"!\n", last=True)
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGALRM


def test_killed_process_is_an_error_and_not_a_hang(nothing_left: Leftovers) -> None:
    """A process that vanished is reported at the next request."""
    with nothing_left(), process("x") as there:
        os.kill(child(there), signal.SIGKILL)
        with pytest.raises(ExecutionError, match="ended by itself"):
            there.feed(b"x\n", last=True)


def test_stopped_work_ends_while_it_waits(nothing_left: Leftovers) -> None:
    """Whoever waits for an answer looks whether it is still wanted."""
    stopped = False
    there = MatcherProcess(
        "(a+)+$", ignore_case=False, context=0, limit=1, stop=lambda: stopped, answer_limit_s=60
    )
    with nothing_left(), pytest.raises(ExecutionError, match="cancelled"), there:
        stopped = True
        there.feed(b"a" * 5000 + b"!\n", last=True)


def test_bad_pattern_ends_the_process(nothing_left: Leftovers) -> None:
    """What is no expression is reported at the start."""
    with (
        nothing_left(),
        pytest.raises(ValidationError, match="not a regular expression") as caught,
        process("("),
    ):
        raise AssertionError("entered")
    assert caught.value.field == "/pattern"


def test_process_outside_its_block_is_a_mistake() -> None:
    """Nothing can be asked before it starts."""
    with pytest.raises(RuntimeError, match="outside"):
        process("x").feed(b"x", last=True)
