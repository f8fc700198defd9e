"""Reading files in a process of its own, so that no file can hold a survey up.

A file that takes more than 5 s of processor time, or more memory than there is, is given up and named; a new
process reads the next one. Starting one costs as much as reading hundreds of files, so a process that still
runs after a call is kept for the next one; it ends when nothing is asked of it for 10 s.
Not here: what is read of a file (source.py, records.py), and the program (file_program.py).
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from sessiontree import ExecutionError, ToolError, keep_process, program_words, release_process
from sessiontree.survey.source import file_program
from sessiontree.survey.source.census import Findings
from sessiontree.survey.source.checkout import FileReader, read_bytes, to_printable_path
from sessiontree.survey.source.file_program import ENTRIES, SOURCES
from sessiontree.survey.source.records import SurveyEntry, collect_entries
from sessiontree.survey.source.source import SourceFile, collect_findings, describe_unread

FILE_LIMIT_S = 5.0
"""Longest processor time for one file."""
WALL_LIMIT_S = 60.0
"""Longest wait for one file, and for the start: longer, because a crowded machine is no fault of a file."""
_MAX_KEPT = os.cpu_count() or 1
_MAX_SAID_BYTES = 4_096
_PROGRAM = Path(file_program.__file__).resolve()


class FileProcess:
    """Reads files elsewhere.

    Use it as a context manager, from one thread at a time. The process is taken or started with the first
    file, and kept for others after the block.

    Args:
        reader: Opens them.
        limit_s: Longest processor time for one file.
    """

    def __init__(self, reader: FileReader, *, limit_s: float = FILE_LIMIT_S) -> None:
        self._reader = reader
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_late = False
        self._is_answering = False

    def __enter__(self) -> FileProcess:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Keep the process for the next one; end it where an answer is still owed, which nobody will read."""
        if self._process is not None and not self._is_answering:
            _keep(self._process)
            self._process = None
        self._end()

    def read_findings(self, path: str) -> Findings:
        """Return a file's contribution to the census; what can't be read is its problem. Blocks."""
        answer = self._ask(path, "findings")
        return Findings.model_validate_json(answer) if isinstance(answer, bytes) else collect_findings(answer)

    def read_entries(self, path: str) -> tuple[list[SurveyEntry], int]:
        """Return what memory is to keep of a file, and how many entries were left out. Blocks."""
        answer = self._ask(path, "entries")
        return ENTRIES.validate_json(answer) if isinstance(answer, bytes) else collect_entries(answer)

    def read_source_and_entries(self, path: str) -> tuple[SourceFile, list[SurveyEntry]]:
        """Return what one file is, and what memory would keep of it. Blocks."""
        answer = self._ask(path, "source and entries")
        return SOURCES.validate_json(answer) if isinstance(answer, bytes) else (answer, [])

    def _ask(self, path: str, want: str) -> bytes | SourceFile:
        """Return the answer for a file, or the file with the reason why it has none."""
        try:
            data, total = read_bytes(self._reader, path)
        except (ToolError, OSError) as error:
            return describe_unread(path, f"can't be read: {error}")
        # After the file was read: a kept process that waits for a slow disk would end for lack of requests.
        process = self._process = self._process or _take_kept()
        order = {"want": want, "path": to_printable_path(path), "total": total, "size": len(data)}
        request = json.dumps({**order, "limit_s": self._limit_s}).encode() + b"\n"
        answer = None if process is None else self._exchange(process, request + data)
        # One that was kept may have ended as it was taken: nobody had asked anything of it for long enough.
        if process is None or (answer is None and process.wait() == 0):
            self._end()
            answer = self._exchange(self._start(), request + data)
        return answer if answer is not None else describe_unread(path, f"given up: {self._explain_end()}")

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process and wait until it has loaded what it needs.

        Raises:
            ExecutionError: it does not start.
        """
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter that runs us, and our own file
                program_words(_PROGRAM, packages=True),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,  # a read-only process may not open the null device for writing
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise ExecutionError(f"can't start a process to read files in: {error.strerror}") from error
        # The kernel keeps what ended until somebody has waited for it. Hosts take a thread of this prefix for
        # no work of a session.
        threading.Thread(target=self._process.wait, name="tool_file_process", daemon=True).start()
        if self._exchange(self._process, b"") is None:
            said = (
                _require_pipe(self._process.stderr).read(_MAX_SAID_BYTES).decode("utf-8", "replace").strip()
            )
            reason = self._explain_end()
            raise ExecutionError(f"the process to read files in did not start: {said[-200:] or reason}")
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], request: bytes) -> bytes | None:
        """Send a request and return the answer; None where the process ended first."""
        # A thread ends the process, because the one that reads its answer is blocked in the pipe.
        ending = threading.Timer(WALL_LIMIT_S, self._give_up, (process,))
        ending.daemon = True
        ending.start()
        self._is_answering = True
        try:
            with suppress(BrokenPipeError):
                _require_pipe(process.stdin).write(request)
                _require_pipe(process.stdin).flush()
            answers = _require_pipe(process.stdout)
            length = answers.readline()
            answer = answers.read(int(length)) if length.endswith(b"\n") else b""
            # Only after the whole answer: a process that still owes one must not be kept, or the next file
            # would get it.
            self._is_answering = False
            return answer if length.endswith(b"\n") and len(answer) == int(length) else None
        finally:
            ending.cancel()
            # Joined, so that a timer that fires at this moment can't kill the process after it was kept for
            # others.
            ending.join()

    def _give_up(self, process: subprocess.Popen[bytes]) -> None:
        self._is_late = True
        process.kill()

    def _explain_end(self) -> str:
        """Return why the process ended, and forget it."""
        status, is_late = self._end(), self._is_late
        self._is_late = False
        if status == -signal.SIGPROF:
            return f"reading it took longer than {self._limit_s:g} s"
        if is_late:
            return f"there was no answer within {WALL_LIMIT_S:g} s"
        return f"its process ended with {status}, perhaps for lack of memory"

    def _end(self) -> int | None:
        """End the process; return its status, or None where none ran."""
        process, self._process = self._process, None
        return None if process is None else _end(process)


_kept: list[subprocess.Popen[bytes]] = []
_keeping = threading.Lock()


def _keep(process: subprocess.Popen[bytes]) -> None:
    """Keep a process that waits for requests, or end it where enough are kept."""
    with _keeping:
        # Those that ended by themselves are removed here, since nobody else waits for them.
        for idle in [one for one in _kept if one.poll() is not None]:
            _kept.remove(idle)
            _end(idle)
        has_room = len(_kept) < _MAX_KEPT
        if has_room:
            keep_process(process.pid)
            _kept.append(process)
    # Outside the lock: ending a process may take half a second, and other threads want theirs.
    if not has_room:
        _end(process)


def _take_kept() -> subprocess.Popen[bytes] | None:
    """Return a process that was kept and still runs, which is the caller's now."""
    while True:
        with _keeping:
            if not _kept:
                return None
            process = _kept.pop()
            release_process(process.pid)
        if process.poll() is None:
            return process
        _end(process)


def end_kept_processes() -> None:
    """End all processes that are kept. Blocks until they have ended."""
    while process := _take_kept():
        _end(process)


# What is forked off has the pipes of its parent's processes, and must not read their answers.
os.register_at_fork(after_in_child=_kept.clear)
atexit.register(end_kept_processes)


def _end(process: subprocess.Popen[bytes]) -> int:
    """End a process; return its status."""
    release_process(process.pid)
    _require_pipe(process.stdout).close()
    with suppress(BrokenPipeError):
        _require_pipe(process.stdin).close()
    try:
        # What ended by itself has a reason to show; what reads on ends with its input.
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
    status = process.wait()
    _require_pipe(process.stderr).close()
    return status


def _require_pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("the process has no such pipe")
    return stream
