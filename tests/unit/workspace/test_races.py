"""Names exchanged while they are used let nothing through (REL-L38)."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.testing.context import call_tool, make_context
from sessiontree.workspace.own_copy import OwnCopy
from sessiontree_tools.files.apply_patch import ApplyPatch
from sessiontree_tools.sessions.child_workspace import ChildWorkspace
from tests.unit.tools.changes_fakes import MappedChanges, changed, child

if TYPE_CHECKING:
    from tests.unit.workspace.conftest import Grounds

SWAPPER = """
import ctypes, select, sys
exchange = ctypes.CDLL(None).renameat2
one, other = (name.encode() for name in sys.argv[1:])
done = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        assert exchange(-100, one, -100, other, 2) == 0  # AT_FDCWD, RENAME_EXCHANGE
    if not done:
        print("swapping", flush=True)
    done += 100
print(done)
"""


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names without pause for the length of the block, in a process that shares no lock."""
    command = [sys.executable, "-I", "-S", "-c", SWAPPER, str(one), str(other)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"swapping\n"  # a busy machine may start it late
        try:
            yield
        finally:
            swaps, _ = swapper.communicate()
    assert int(swaps) > 0


Attempt = Callable[[str], "bytes | None"]
"""Tries one access and returns what it saw or did outside, or None."""


def escapes_while_swapped(
    grounds: Grounds, attempts: list[Attempt], one: Path, other: Path, *, least_refusals: int = 100
) -> int:
    """REL-L38: count how often an access got outside while two names were exchanged without pause.

    Args:
        grounds: The workspace.
        attempts: What is tried in turn.
        one: A name the attempts go through; right now it stands for something inside.
        other: What it is exchanged with.
        least_refusals: How many refusals, and a hundred successes, are waited for; else it was no race.
    """
    before = grounds.neighbours()
    escapes = refusals = successes = 0
    with swapping(one, other):
        end = monotonic() + 0.5
        while not escapes and (monotonic() < end or successes < 100 or refusals < least_refusals):
            for attempt in attempts:
                try:
                    escapes += attempt("way") == b"outside"
                    successes += 1
                except ToolError:  # anything else is no refusal and fails the test
                    refusals += 1
    return escapes + (grounds.neighbours() != before)


def directory_and_link(grounds: Grounds) -> tuple[Path, Path]:
    """Make a directory ``way`` and a link to the outside that will take turns with it."""
    way, decoy = grounds.root / "way", grounds.root / "decoy"
    way.mkdir()
    (way / "secret").write_bytes(b"inside")
    decoy.symlink_to(grounds.outside)
    return way, decoy


@pytest.mark.covers("REL-L38", "WSP1")
@pytest.mark.slow
def test_nothing_escapes_while_a_directory_is_swapped_for_a_link(grounds: Grounds) -> None:
    """REL-L38: nothing comes between the check and the use of a path, on any verb."""
    reader = grounds.reader()

    def read(way: str) -> bytes:
        with reader.open(f"{way}/secret") as file:
            return file.read()

    def look(way: str) -> bytes:
        return b"outside" if reader.stat(f"{way}/secret").size == len(b"outside") else b""

    def listed(way: str) -> bytes:
        return b"outside" if any(entry.size == len(b"outside") for entry in reader.list(way)) else b""

    def walk(way: str) -> bytes:
        return b"outside" if any(entry.size == len(b"outside") for entry in reader.walk(way)) else b""

    assert escapes_while_swapped(grounds, [read, look, listed, walk], *directory_and_link(grounds)) == 0


@pytest.mark.slow
def test_nothing_escapes_while_a_file_is_swapped_for_a_link(grounds: Grounds) -> None:
    """REL-L38: a link that takes a file's place after it was looked at is not followed."""
    reader = grounds.reader()

    def read(way: str) -> bytes:
        with reader.open(way) as file:
            return file.read()

    way, decoy = grounds.root / "way", grounds.root / "decoy"
    way.write_bytes(b"inside")
    decoy.symlink_to(grounds.outside / "secret")
    assert escapes_while_swapped(grounds, [read], way, decoy) == 0


@pytest.mark.slow
def test_only_files_are_opened_while_a_file_is_swapped_for_a_fifo(grounds: Grounds) -> None:
    """REL-L41: a FIFO that takes a file's place after it was looked at is neither waited for nor given."""
    reader = grounds.reader()

    def open_other_than_file(way: str) -> bytes:
        with reader.open(way) as file:
            return b"" if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b"outside"

    way, decoy = grounds.root / "way", grounds.root / "decoy"
    way.write_bytes(b"inside")
    os.mkfifo(decoy)
    assert escapes_while_swapped(grounds, [open_other_than_file], way, decoy) == 0


@pytest.mark.slow
def test_nothing_escapes_while_a_directory_is_moved_out(grounds: Grounds) -> None:
    """REL-L38: ``..`` leads back to the directory that was passed, not to where its child was moved."""
    reader = grounds.reader()

    def read(way: str) -> bytes:
        with reader.open(f"{way}/inner/../secret") as file:
            return file.read()

    way, _ = directory_and_link(grounds)
    for folder in (way, grounds.outside):
        (folder / "inner").mkdir()
    one, other = way / "inner", grounds.outside / "inner"
    # Both directories are good to pass while they are inside, so a refusal is rare.
    assert escapes_while_swapped(grounds, [read], one, other, least_refusals=0) == 0


@pytest.mark.covers("REL-L9")
@pytest.mark.slow
def test_nothing_is_changed_outside_while_a_directory_is_swapped_for_a_link(grounds: Grounds) -> None:
    """REL-L38: neither a write nor a removal reaches what a link swapped in points to."""
    writer = grounds.writer()
    (grounds.outside / "victim").write_bytes(b"outside")

    def write(way: str) -> None:
        writer.write(f"{way}/new", b"planted")

    def remove(way: str) -> None:
        writer.remove(f"{way}/victim")

    numbers = count()

    def make(way: str) -> None:
        writer.write(f"{way}/new {next(numbers)}", b"planted", only_new=True, like=f"{way}/secret")

    assert escapes_while_swapped(grounds, [write, remove, make], *directory_and_link(grounds)) == 0


@pytest.mark.covers("REL-L34", "REL-L38")
@pytest.mark.slow
@pytest.mark.parametrize("rounds", [200, pytest.param(10_000, marks=pytest.mark.long)])
async def test_nothing_is_changed_outside_while_patches_are_applied(grounds: Grounds, rounds: int) -> None:
    """REL-L38: each adds a file, changes one and moves one of a directory that becomes a link meanwhile."""
    context = make_context(grounds.root)
    way, decoy = directory_and_link(grounds)
    for name in ("secret", "victim", *(f"made {number}" for number in range(100))):
        (grounds.outside / name).write_bytes(b"head\n")
    (way / "secret").write_bytes(b"head\n")
    before = grounds.neighbours()
    applied, refused, last = 0, 0, None
    with swapping(way, decoy):
        while applied + refused < rounds or min(applied, refused) < rounds // 10:
            number = applied + refused
            body = f"*** Add File: way/made {number}\n+new\n*** Update File: way/secret\n@@ head\n+{number}\n"
            if last is not None:
                body += f"*** Update File: way/made {last}\n*** Move to: way/moved {last}\n-new\n+old\n"
            try:
                await call_tool(ApplyPatch(), context, patch=f"*** Begin Patch\n{body}*** End Patch")
                applied, last = applied + 1, number
            except ToolError:
                refused, last = refused + 1, None
    assert grounds.neighbours() == before


@pytest.mark.covers("REL-L34", "REL-L38")
@pytest.mark.slow
@pytest.mark.parametrize("rounds", [100, pytest.param(10_000, marks=pytest.mark.long)])
async def test_nothing_is_changed_outside_while_changes_are_merged(grounds: Grounds, rounds: int) -> None:
    """REL-L38: each adds a file and changes one of a directory that becomes a link meanwhile."""
    way, decoy = directory_and_link(grounds)
    (grounds.outside / "secret").write_bytes(b"0")
    (way / "secret").write_bytes(b"0")
    before = grounds.neighbours()
    folder = os.open(way, os.O_RDONLY | os.O_DIRECTORY)  # the directory, whatever its name is

    def inside() -> bytes:
        with os.fdopen(os.open("secret", os.O_RDONLY, dir_fd=folder), "rb") as stream:
            return stream.read()

    merged, refused = 0, 0
    with swapping(way, decoy):
        while merged + refused < rounds or min(merged, refused) < rounds // 10:
            number = merged + refused
            later = b"%d" % (number + 1)
            files = (changed(f"way/made {number}", None, b"new"), changed("way/secret", inside(), later))
            contents = {f"way/made {number}": b"new", "way/secret": later}
            given = MappedChanges({"b": child(*files)}, contents)
            context = make_context(grounds.root, child_workspaces=given)
            with suppress(ToolError):  # a file can't be taken back where it can't be reached
                await call_tool(ChildWorkspace(), context, action="merge", target="b")
            merged, refused = merged + len(given.settled), refused + 1 - len(given.settled)
    os.close(folder)
    assert grounds.neighbours() == before


@pytest.mark.covers("REL-L34")
@pytest.mark.slow
@pytest.mark.parametrize("rounds", [10, pytest.param(2_000, marks=pytest.mark.long)])
def test_copy_takes_nothing_from_outside_while_a_directory_is_swapped(
    grounds: Grounds, tmp_path: Path, rounds: int
) -> None:
    """REL-L34: a directory that becomes a link is copied as either, never as what the link leads to."""
    way, decoy = directory_and_link(grounds)
    (grounds.outside / "secret").write_bytes(b"outside")
    (way / "secret").write_bytes(b"inside")
    with swapping(way, decoy):
        for number in range(rounds):
            copy = OwnCopy(tmp_path / "copies" / str(number))
            copy.make(grounds.root)
            taken = [path.read_bytes() for path in copy.root.rglob("secret") if not path.is_symlink()]
            assert b"outside" not in taken
            copy.remove()


@pytest.mark.covers("REL-L38")
def test_swapper_catches_a_check_before_the_use(grounds: Grounds) -> None:
    """REL-L38 can fail: looking at a path first and opening it afterwards is caught."""

    def check_then_open(way: str) -> bytes:
        path = grounds.root / way / "secret"
        try:
            if not path.resolve().is_relative_to(grounds.root):
                raise ExecutionError("outside")
            return path.read_bytes()
        except OSError as error:
            raise ExecutionError("gone") from error

    assert escapes_while_swapped(grounds, [check_then_open], *directory_and_link(grounds)) == 1
