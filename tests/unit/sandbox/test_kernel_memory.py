"""What a command takes from the kernel counts as its memory, and what others take does not."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.escape_trials.memory_hogs import HOGS
from benchmarks.escape_trials.memory_trial import try_hogs
from benchmarks.escape_trials.unprivileged import NOBODY, run_as_nobody, words_as_nobody
from sessiontree.sandbox.resources import kernel_memory
from sessiontree.sandbox.resources.kernel_memory import KernelMemory, compute_taken_memory
from tests.example_fixtures import examples

MIB: Final = 1 << 20
GIB: Final = 1 << 30
TABLE: Final = {
    "MemTotal": 16 * GIB,
    "MemFree": 8 * GIB,
    "AnonPages": GIB,
    "Shmem": GIB,
    "Active(file)": GIB,
    "Inactive(file)": GIB,
    "KReclaimable": GIB,
    "Hugetlb": 0,
    "Balloon": 0,
}
SHARED_MAPS: Final = (
    "7f00-7f01 rw-s 00000000 00:01 1 /dev/zero (deleted)\n",
    "7f00-7f01 rw-s 00000000 00:01 2 /memfd:a (deleted)\n",
)


@pytest.mark.slow
def test_no_memory_hides_in_the_kernel(tmp_path: Path) -> None:
    """Files without a name, shared pages, descriptors in flight, buffers, inodes: the bound ends them all."""
    assert asyncio.run(try_hogs(tmp_path)) == dict.fromkeys(HOGS, "memory_bytes")


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_no_memory_hides_in_the_kernel_from_an_unprivileged_user() -> None:
    """The same, where the kernel shows less of the command's processes."""
    with (
        tempfile.TemporaryDirectory(prefix="hogs-", dir="/tmp") as place,
        words_as_nobody("benchmarks.escape_trials.memory_trial") as words,
    ):
        os.chown(place, NOBODY, NOBODY)
        assert json.loads(run_as_nobody(words, place)) == dict.fromkeys(HOGS, "memory_bytes")


class Machine:
    """A machine's tables, with one process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "self").mkdir(parents=True)
        (root / "self" / "mounts").write_text("")
        for name in ("fd", "fdinfo"):
            (root / "7" / name).mkdir(parents=True)
        (root / "7" / "status").write_text("Name:\tx\nVmPTE:\t 40 kB\nThreads:\t1\n")
        self.map("55-56 r-xp 00000000 08:01 9 /usr/bin/sleep\n")
        self.take()

    def take(self, shared: int = 0, kernel: int = 0, own: int = 0) -> None:
        """Let the machine lose memory: shared pages, what belongs to nobody, a process's own pages."""
        table = {**TABLE, "Shmem": TABLE["Shmem"] + shared, "AnonPages": TABLE["AnonPages"] + own}
        table["MemFree"] -= shared + kernel + own
        text = "".join(f"{name}: {value // 1024} kB\n" for name, value in table.items())
        (self.root / "meminfo").write_text(text)

    def map(self, lines: str) -> None:
        """Let the process map this."""
        (self.root / "7" / "maps").write_text(lines)

    def open(self, number: int, target: str, carried: int = 0) -> None:
        """Let the process open this; descriptors may be on their way in it."""
        (self.root / "7" / "fd" / str(number)).symlink_to(target)
        (self.root / "7" / "fdinfo" / str(number)).write_text(f"pos:\t0\nscm_fds: {carried}\n")


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    """A machine whose process has opened and mapped nothing that is shared."""
    return Machine(tmp_path / "proc")


def charged(here: Machine, *, shared: int = 0, kernel: int = 0, own: int = 0) -> int:
    """Return what the process is charged after the machine lost this much."""
    here.take()
    watch = KernelMemory((), here.root)
    here.take(shared, kernel, own)
    return watch.charged([7], 64 * MIB)


def test_nobody_pays_for_what_programs_outside_take(here: Machine) -> None:
    """A command without shared pages and sockets is charged next to nothing, whatever the machine loses."""
    here.open(0, "/dev/null")
    here.open(1, "pipe:[1]")
    assert charged(here, own=6 * GIB) == 0
    assert charged(here, shared=4 * GIB) == 0
    assert charged(here, kernel=4 * GIB) < 8 * MIB


def test_little_is_never_looked_for(here: Machine) -> None:
    """Below the room no process is read; the one that is named does not exist."""
    watch = KernelMemory((), here.root)
    here.take(shared=20 * MIB, kernel=20 * MIB)
    assert watch.charged([8], 64 * MIB) == 0


@pytest.mark.parametrize("maps", SHARED_MAPS)
def test_shared_pages_count_by_what_the_machine_lost(here: Machine, maps: str) -> None:
    """A mapping does not say how many pages are behind it."""
    here.map(maps)
    assert charged(here, shared=3 * GIB) == 3 * GIB


def test_files_without_a_name_and_descriptors_in_flight_count(here: Machine) -> None:
    """A socket that carries descriptors may carry anything."""
    here.open(3, "socket:[5]")
    assert charged(here, shared=GIB) == 0
    here.open(4, "socket:[6]", carried=1)
    assert charged(here, shared=GIB, kernel=GIB) == 2 * GIB
    (here.root / "7" / "fd" / "4").unlink()
    here.open(5, "/memfd:x (deleted)")
    assert charged(here, shared=GIB) == GIB


def test_sockets_count_by_their_number(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, up to what one holds at most."""
    monkeypatch.setattr(kernel_memory, "_read_setting", lambda name: MIB)
    for number in range(3, 23):
        here.open(number, f"socket:[{number % 10}]")
    assert 20 * MIB <= charged(here, kernel=GIB) < 21 * MIB


@settings(database=None, max_examples=examples(60))
@given(
    st.lists(
        st.tuples(*[st.integers(0, GIB >> 9).map(lambda pages: pages << 10)] * 3), min_size=1, max_size=5
    ),
    st.booleans(),
)
def test_charge_follows_the_growth(moments: list[tuple[int, int, int]], may_share: bool) -> None:
    """Never more than what the machine lost since its best moment; never less, if the command may hold it."""
    with tempfile.TemporaryDirectory() as place:
        here = Machine(Path(place, "proc"))
        here.map(SHARED_MAPS[0] if may_share else "")
        watch = KernelMemory((), here.root)
        least = 0
        for shared, kernel, own in moments:
            here.take(shared, kernel, own)
            least = min(least, shared // 1024 * 1024)
            told = watch.charged([7], 0)
            tables = MIB
            assert told <= shared + min(kernel, tables)
            if may_share:
                assert told >= shared // 1024 * 1024 - least


def test_machines_own_files_in_memory_are_elsewhere() -> None:
    """An object store in /dev/shm grows by gigabytes, and is no command's."""
    text = "".join(f"{name}: {value // 1024} kB\n" for name, value in TABLE.items()).encode()
    assert compute_taken_memory(text, elsewhere=GIB).shared == 0
    assert compute_taken_memory(text).kernel == 16 * GIB - 13 * GIB
