"""Reading files in a process of its own: the same answers, and no file holds a survey up."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import IO

import pytest

from sessiontree import ExecutionError
from sessiontree.contracts.tools.own_program import list_kept_processes
from sessiontree.survey.source import file_process, file_program
from sessiontree.survey.source.checkout import read_bytes
from sessiontree.survey.source.file_process import FileProcess
from sessiontree.survey.source.records import collect_entries
from sessiontree.survey.source.source import collect_findings, read_source
from sessiontree.workspace import WorkspaceReader

MakeTree = Callable[[Mapping[str, str | bytes]], WorkspaceReader]
FILES: Mapping[str, str | bytes] = {
    "src/a.py": '"""Doc."""\nimport json\n\n\ndef f(x):\n    """Say é."""\n    return json.dumps(x)  # XXX\n',
    "README.md": "# A\n\nIt is a thing that does something.\n",
    "package.json": '{"name": "a", "scripts": {"test": "jest"}}',
    ".github/workflows/ci.yml": "jobs:\n  a:\n    steps:\n      - run: make test\n",
    "picture.png": b"\x89PNG\0",
    "broken.py": b"\xff\xfe\x00",
    "odd\u2028name.py": "x = 1\n",
    "empty.py": "",
}


@pytest.mark.slow
def test_process_answers_as_the_functions_do(make_tree: MakeTree) -> None:
    """Findings, entries and sources of each kind of file come through unchanged, from one process."""
    reader = make_tree(FILES)
    with FileProcess(reader) as process:
        for path in FILES:
            file = read_source(path, *read_bytes(reader, path))
            assert process.read_source_and_entries(path) == (file, collect_entries(file)[0])
            assert process.read_findings(path) == collect_findings(file)
            assert process.read_entries(path) == collect_entries(file)
        missing = process.read_findings("gone.py")
    assert "can't be read" in missing.problems[0].text
    assert missing.unread == 1


@pytest.mark.slow
def test_file_that_takes_too_long_is_given_up_and_named(make_tree: MakeTree) -> None:
    """A library that never returns to Python ends with its process; the other files are read."""
    key = ".".join(["a"] * 60_000)
    reader = make_tree({"a.py": "x = 1\n", "pyproject.toml": f"{key} = 1\n", "b.py": "def f(): pass\n"})
    with FileProcess(reader, limit_s=0.3) as process:
        found = [process.read_findings(path) for path in ("a.py", "pyproject.toml", "b.py")]
    assert [one.unread for one in found] == [0, 1, 0]
    (problem,) = found[1].problems
    assert (problem.path, problem.text) == ("pyproject.toml", "given up: reading it took longer than 0.3 s")
    assert found[2].totals.functions == 1


@pytest.mark.slow
def test_calls_in_turn_share_a_process(make_tree: MakeTree) -> None:
    """To start one for each call makes a survey of forty folders seven times slower."""
    reader = make_tree({"a.py": "x = 1\n", "pyproject.toml": ".".join(["a"] * 60_000) + " = 1\n"})
    file_process.end_kept_processes()
    assert list_kept_processes() == frozenset()
    used = [process_of(reader, "a.py") for _ in range(3)]
    assert used[0] is used[1] is used[2]
    assert list_kept_processes() == {used[0].pid}
    used[0].kill()
    used[0].wait()
    fresh = process_of(reader, "a.py")
    assert fresh.pid != used[0].pid
    with FileProcess(reader, limit_s=0.3) as process:
        assert process.read_findings("pyproject.toml").unread == 1
    assert not file_process._kept
    assert fresh.returncode == -signal.SIGPROF


def test_program_ends_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps it has no thread that would end it."""
    monkeypatch.setattr(file_program, "IDLE_S", 0.0)
    reading, writing = os.pipe()
    answers = io.BytesIO()
    monkeypatch.setattr(resource, "setrlimit", lambda *limits: None)
    with open(reading, "rb") as orders, open(writing, "wb"):  # noqa: PTH123 - descriptors
        file_program.main(orders, answers)
    assert answers.getvalue() == b"0\n"


@pytest.mark.slow
def test_process_that_ends_as_it_is_taken_is_replaced(
    make_tree: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited long enough for a request; the file is read by another one."""
    leaving = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with monkeypatch.context() as planted:
        planted.setattr(file_process, "_take_kept", lambda: leaving)
        assert process_of(make_tree({"a.py": "x = 1\n"}), "a.py") is not leaving
    assert leaving.returncode == 0
    file_process.end_kept_processes()


@pytest.mark.slow
def test_process_whose_answer_nobody_read_is_not_kept(
    make_tree: MakeTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call would take the answer for its own."""
    reader = make_tree({"a.py": "x = 1\n", "b.py": "def f(): pass\n"})
    file_process.end_kept_processes()

    def interrupt(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None
        if stream.readable():
            monkeypatch.undo()
            raise KeyboardInterrupt
        return stream

    with pytest.raises(KeyboardInterrupt), FileProcess(reader) as process:
        process.read_findings("a.py")
        monkeypatch.setattr(file_process, "_require_pipe", interrupt)
        process.read_findings("a.py")
    assert not file_process._kept
    with FileProcess(reader) as process:
        assert process.read_findings("b.py").totals.functions == 1


def process_of(reader: WorkspaceReader, path: str) -> subprocess.Popen[bytes]:
    """Read a file; return the process that read it."""
    with FileProcess(reader) as process:
        assert process.read_findings(path).unread == 0
        running = process._process
        assert running is not None
    return running


@pytest.mark.slow
def test_process_leaves_nothing_behind(make_tree: MakeTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is ended for its silence, or never starts."""
    reader = make_tree({"a.py": "x = 1\n"})
    file_process.end_kept_processes()
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - descriptors are names here
    with FileProcess(reader) as process:
        process.read_findings("a.py")
        running = process._process
        assert running is not None
    file_process.end_kept_processes()
    assert running.returncode == 0
    monkeypatch.setattr(file_process, "WALL_LIMIT_S", 0.0)
    with (
        FileProcess(reader) as process,
        pytest.raises(ExecutionError, match="no answer within 0 s"),
    ):
        process.read_findings("a.py")
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208 - as above
