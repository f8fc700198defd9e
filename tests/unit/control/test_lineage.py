"""Lineage: what an engine started never speaks for a person, however far it went from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import eq

import pytest

from sessiontree.control.peer import Lineage, find_adopter, find_lineage
from sessiontree.sandbox.process_tree import ProcessIdentity, find_process_identity

ENGINE = """
import os, subprocess, sys
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
read, write = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        while os.getppid() not in map(int, sys.argv[1:]):
            pass
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        os.execve("/bin/cat", ["cat"], {})
    os._exit(0)
os.close(write)
print(os.getpid(), child.pid, os.read(read, 20).decode(), flush=True)
sys.stdin.readline()
"""
"""An engine with a child, and a daemon with nothing of it: another session, parent and environment."""


def known(pid: int) -> ProcessIdentity:
    """Return a process that runs."""
    found = find_process_identity(pid)
    assert found is not None
    return found


@contextmanager
def engine() -> Iterator[tuple[int, int, int]]:
    """Give an engine's server, its child and its orphan."""
    words = [sys.executable, "-I", "-S", "-c", ENGINE, str(find_adopter().pid)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid, child, orphan = map(int, server.stdout.readline().split())
        try:
            yield pid, child, orphan
        finally:
            server.communicate("end\n")
            os.kill(orphan, 9)


@pytest.fixture
def lineage() -> Iterator[tuple[Lineage, int, int]]:
    """How a runtime on an engine judges, and the engine's child and orphan."""
    with engine() as (server, child, orphan):
        yield find_lineage(known(os.getpid()), partial(eq, server)), child, orphan


def test_what_an_engine_started_is_refused(lineage: tuple[Lineage, int, int]) -> None:
    """DOR2: what its server started, and what was left behind in a session of its own."""
    judge, child, orphan = lineage
    assert "was started by the engine" in (judge.explain_refusal(child) or "")
    assert "can't be distinguished from one that the engine" in (judge.explain_refusal(orphan) or "")


def test_persons_programs_are_heard(lineage: tuple[Lineage, int, int]) -> None:
    """The creating program, and what was started since by something older than the engine."""
    judge, _, _ = lineage
    assert judge.explain_refusal(os.getpid()) is None
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as started:
        assert judge.explain_refusal(started.pid) is None


def test_creating_program_may_be_the_engines_own(lineage: tuple[Lineage, int, int]) -> None:
    """By its id and its start: another process of the same id is not it."""
    judge, child, _ = lineage
    assert replace(judge, program=known(child)).explain_refusal(child) is None
    assert replace(judge, program=known(child)._replace(started=1)).explain_refusal(child) is not None


def test_who_can_t_be_seen_is_refused(lineage: tuple[Lineage, int, int]) -> None:
    """A process that is gone; and everybody but the program, once nobody adopts orphans any more."""
    judge, _, _ = lineage
    assert "can't be seen" in (judge.explain_refusal(2**22 + 1) or "")
    late = replace(judge, adopter=judge.adopter._replace(started=1))
    assert "is ending" in (late.explain_refusal(os.getppid()) or "")
    assert late.explain_refusal(os.getpid()) is None


def test_planted_lineage_that_looks_at_parents_alone_is_found(lineage: tuple[Lineage, int, int]) -> None:
    """Planted bug: without the age an orphan passes for a person's program."""
    judge, _, orphan = lineage
    assert replace(judge, since=sys.maxsize).explain_refusal(orphan) is None
