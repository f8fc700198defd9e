"""How a command ended is what its launcher reported; no command can write that, and no bound yields to it."""

from __future__ import annotations

import asyncio
import os
import select
from functools import partial
from io import FileIO
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox import Bounds, CommandShell
from sessiontree.sandbox.commands.command_bounds import CommandWatch, Excess
from sessiontree.sandbox.commands.command_process import Report, read_report
from sessiontree.sandbox.process_tree import find_process_identity
from tests.example_fixtures import examples
from tests.unit.sandbox import command_shell_fakes as planting
from tests.unit.sandbox.command_shell_fakes import CarelessShell

LONG_S = 60.0
FORGE = """
for fd in $(seq 3 40); do printf '%s\\n' >/proc/1/fd/$fd; done 2>/dev/null
kill -9 1 2>/dev/null
exit 3
"""
LINES = st.sampled_from(
    (
        *("started\n", "exited 0\n", "exited 3\n", "signal 9\n", "failed it never ran\n", "failed \n"),
        *("exited boom\n", "exited -1\n", "exited 0", "exited\n", "signal 99999\n", "\n", "exited \u0663\n"),
    )
)


def forging(line: str) -> str:
    """Return a command that writes a line to every descriptor of its launcher."""
    return FORGE.replace("%s", line)


@settings(max_examples=examples(100), database=None)
@given(
    st.one_of(st.binary(max_size=60), st.lists(LINES, max_size=4).map(lambda lines: "".join(lines).encode()))
)
@example(b"started\nexited 0\nexited 0\n")
@example(b"failed it never ran\nstarted\nexited 0\n")
@example(b"started\nexited boom\n")
def test_report_is_whole_or_an_error(written: bytes) -> None:
    """One line that it started, one how it ended; whatever is repeated, added or unknown is a typed error."""
    try:
        report = read_report(written)
    except ExecutionError:
        return
    again = ""
    if report.started:
        again = "started\n"
    if report.code is not None:
        again += f"exited {report.code}\n"
    if report.number is not None:
        again += f"signal {report.number}\n"
    if written.startswith(b"failed "):
        assert not report.started
        assert report == Report(reason=written.decode(errors="replace")[7:-1])
    else:
        assert again.encode() == written


@pytest.mark.parametrize("line", ["failed it never ran", "exited boom", "exited 0"])
def test_command_cannot_write_its_own_report(tmp_path: Path, line: str) -> None:
    """Its launcher's descriptors are closed to it."""
    finished = asyncio.run(CommandShell(tmp_path).run(forging(line), timeout_s=LONG_S))
    assert (finished.reason, finished.exit_code) == ("exited", 3)


@pytest.mark.slow
def test_two_locks_keep_the_report(tmp_path: Path) -> None:
    """It is written to a socket, which nobody can open again, even if the launcher were open to all."""
    shell = CarelessShell(tmp_path, (), source=planting.open_to_all)
    finished = asyncio.run(shell.run(forging("exited 0"), timeout_s=LONG_S))
    assert (finished.reason, finished.exit_code) == ("exited", 3)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["failed it never ran", "exited boom", "exited 0", "signal 9"])
def test_planted_line_in_a_report_is_an_error(tmp_path: Path, line: str) -> None:
    """If one arrived nevertheless, the result would say that the end is unknown, and claim nothing."""
    shell = CarelessShell(tmp_path, (), source=partial(planting.reporting_besides, line=line))
    with pytest.raises(ExecutionError, match="how the command ended is unknown"):
        asyncio.run(shell.run("exit 3", timeout_s=LONG_S))


class LateWatch(CommandWatch):
    """Notices an excess after the command has ended by itself, before anybody else learns of the end."""

    def find_excess(self, launcher_io: FileIO | None = None) -> Excess | None:
        if launcher_io is None:  # it has not started yet
            return None
        (Path(self._workspace) / "seen").touch()
        assert b"write_bytes" in os.pread(launcher_io.fileno(), 1000, 0)
        while find_process_identity(self._pid) is not None:
            select.select([], [], [], 0.01)
        return Excess("disk_bytes", 7)


def test_exceeded_bound_counts_for_more_than_a_good_end(tmp_path: Path) -> None:
    """Even if the launcher has reported exit code 0 by then."""
    watch = partial(LateWatch, workspace=os.fspath(tmp_path), bounds=Bounds())
    shell = CarelessShell(tmp_path, (), watch=watch)
    finished: Finished = asyncio.run(
        shell.run("until [ -e seen ]; do sleep 0.02; done; exit 0", timeout_s=LONG_S)
    )
    assert (finished.reason, finished.limit, finished.exit_code) == ("limit", "disk_bytes", None)
