"""The commands' filter of system calls, run by a small interpreter, for every processor we know."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sessiontree.sandbox import jail
from sessiontree.sandbox.commands.command_plan import (
    METADATA,
    MORE_DENIED,
    UNCOUNTED,
    command_filter,
    command_program,
)
from sessiontree.sandbox.jail import ALLOW, ENOSYS, EPERM, KILL, MACHINES, Machine
from tests.example_fixtures import examples
from tests.unit.sandbox.test_filter import NEW_NAMESPACES, denied_numbers, verdict

each_machine = pytest.mark.parametrize("here", MACHINES.values(), ids=list(MACHINES))
CREATE, TEMPORARY, DIRECTORY = 0o100, 0o20000000, 0o200000
MODE_CALLS = {
    "x86_64": {
        90: (1, None),
        91: (1, None),
        85: (1, None),
        268: (2, None),
        452: (2, None),
        2: (2, 1),
        257: (3, 2),
    },
    "aarch64": {52: (1, None), 53: (2, None), 452: (2, None), 56: (3, 2)},
}
"""Calls that give a file its mode: which argument that is, and which holds the flags that ask for a file."""
MODES = st.integers(0, 0o7777)
WORDS = st.integers(0, 0xFFFFFFFF)


def judged(here: Machine, number: int, *arguments: int) -> int:
    """Return the verdict on a call of the machine's own architecture."""
    return verdict(command_program(here), here.architecture, number, (*arguments, *[0] * 6)[:6])


@each_machine
def test_ways_out_are_denied_and_changes_of_files_are_not(here: Machine) -> None:
    """What a Worker is denied is denied, but for metadata; a socket is denied besides."""
    for name, number in denied_numbers(here).items():
        if name not in METADATA:
            assert judged(here, number, 0, 0, 0, 0) == EPERM, name
    for name, number in denied_numbers(here).items():
        if name in METADATA:
            assert judged(here, number, 0, 0o755, 0o755, 0) == ALLOW, name
    for name, number in jail.select_call_numbers(here, MORE_DENIED).items():
        assert judged(here, number, 2, 1, 0) == EPERM, name


@each_machine
@settings(max_examples=examples(100), derandomize=True, database=None)
@given(family=WORDS, kind=WORDS)
@example(family=1, kind=1 | 0o2000000 | 0o4000)
@example(family=1, kind=2)
@example(family=1, kind=5)
@example(family=30, kind=1)
def test_only_pairs_of_local_streams_are_made(here: Machine, family: int, kind: int) -> None:
    """Whatever flags come with the kind; an end of another pair could be given an address."""
    pair = 53 if here.column == 1 else 199
    expected = ALLOW if family == 1 and kind & 0xF == 1 else EPERM
    assert judged(here, pair, family, kind) == expected


@each_machine
@settings(max_examples=examples(50), derandomize=True, database=None)
@given(address=st.integers(0, 0xFFFFFFFFFFFFFFFF))
@example(address=0)
@example(address=1 << 32)
def test_nothing_is_sent_to_an_address(here: Machine, address: int) -> None:
    """Neither half of the pointer may be set; the library's ``send`` passes none."""
    send = 44 if here.column == 1 else 206
    assert judged(here, send, 3, 1, 1, 0, address, 16) == (ALLOW if address == 0 else EPERM)


@each_machine
def test_what_cannot_be_counted_is_missing(here: Machine) -> None:
    """System V IPC outlives its processes and has no descriptor; a pipe can take over another's pages."""
    for name, number in jail.select_call_numbers(here, UNCOUNTED).items():
        assert judged(here, number) == ENOSYS, name


@each_machine
def test_calls_no_filter_can_read_are_missing(here: Machine) -> None:
    """So that programs take the calls whose arguments can be seen."""
    assert judged(here, 437) == judged(here, 435) == judged(here, 0x40000000) == ENOSYS
    assert verdict(command_program(here), here.architecture ^ 1, 0) == KILL


@each_machine
@settings(max_examples=examples(200), derandomize=True, database=None)
@given(data=st.data(), mode=MODES, flags=WORDS)
def test_no_file_runs_as_its_owner_or_group(
    here: Machine, data: st.DataObject, mode: int, flags: int
) -> None:
    """Whichever call gives the mode; where flags ask for no file, what stands for the mode means nothing."""
    name = next(name for name, machine in MACHINES.items() if machine is here)
    number = data.draw(st.sampled_from(sorted(MODE_CALLS[name])))
    mode_at, flags_at = MODE_CALLS[name][number]
    arguments = [0, 0, 0, 0]
    if flags_at is not None:
        arguments[flags_at] = flags
    arguments[mode_at] = mode
    makes = flags_at is None or bool(flags & (CREATE | TEMPORARY))
    expected = EPERM if makes and mode & 0o6000 else ALLOW
    assert judged(here, number, *arguments) == expected


@each_machine
@pytest.mark.parametrize("name", NEW_NAMESPACES)
def test_no_namespace_is_made(here: Machine, name: str) -> None:
    """Neither alone nor among other flags; threads and processes are."""
    assert judged(here, here.clone, NEW_NAMESPACES[name] | 17) == EPERM
    assert judged(here, here.clone, 17) == judged(here, here.clone, 0x3D0F00) == ALLOW


@each_machine
def test_terminals_take_no_typing_of_others(here: Machine) -> None:
    """All else asked of devices and files is allowed."""
    assert judged(here, here.ioctl, 0, 0x5412) == judged(here, here.ioctl, 0, 0x541C) == EPERM
    assert judged(here, here.ioctl, 0, 0x5401) == judged(here, here.ioctl, 0, 0x40086602) == ALLOW


@each_machine
def test_filter_is_whole(here: Machine) -> None:
    """Eight bytes an instruction, as many as the kernel takes."""
    assert len(command_filter(here)) == 8 * len(command_program(here))
    assert len(command_program(here)) <= 4096


@each_machine
def test_planted_filter_without_modes_is_found(here: Machine) -> None:
    """A Worker's filter lets a socket through and denies every mode."""
    program = jail.filter_program(here)
    assert verdict(program, here.architecture, 41 if here.column == 1 else 198, (2, 1, 0, 0)) == ALLOW
    assert verdict(program, here.architecture, 91 if here.column == 1 else 52, (0, 0o644, 0, 0)) == EPERM
