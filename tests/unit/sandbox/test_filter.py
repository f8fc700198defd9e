"""The filter of system calls, run by a small interpreter: so it is tried for every processor we know."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.sandbox import jail
from sessiontree.sandbox.jail import ALLOW, ENOSYS, EPERM, KILL, MACHINES, Machine, filter_program

Program = list[tuple[int, int, int, int]]

NUMBERS = st.integers(0, 0xFFFFFFFF)
WORDS = st.integers(0, 0xFFFFFFFFFFFFFFFF)
NEW_NAMESPACES = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}


def verdict(program: Program, architecture: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Run a filter on one call, as the kernel would."""
    words = {0: number, 4: architecture}
    for index, argument in enumerate(arguments):
        words[16 + 8 * index] = argument & 0xFFFFFFFF
        words[20 + 8 * index] = argument >> 32
    at = accumulator = 0
    while True:
        code, if_true, if_false, operand = program[at]
        assert 0 <= if_true <= 255
        match code:
            case 0x20:
                accumulator = words[operand]
            case 0x74:
                accumulator >>= operand
            case 0x54:
                accumulator &= operand
            case 0x15 | 0x35 | 0x45:
                holds = (accumulator == operand, accumulator >= operand, accumulator & operand != 0)
                at += if_true if holds[(0x15, 0x35, 0x45).index(code)] else if_false
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"no instruction {code:#x}")
        at += 1


def denied_numbers(here: Machine) -> dict[str, int]:
    """Return the table's calls on a machine."""
    return jail.select_call_numbers(here, jail.DENIED_CALLS)


def judged_by_arguments(here: Machine) -> set[int]:
    """Return the calls on a machine whose arguments decide."""
    tables = (jail.OWN_PROCESS_CALLS, jail.PRIORITY_CALLS)
    numbers = {number for table in tables for number in jail.select_call_numbers(here, table).values()}
    return numbers | {here.ioctl, here.clone}


@pytest.fixture(params=MACHINES, scope="module")
def here(request: pytest.FixtureRequest) -> Machine:
    """Each processor we know."""
    return MACHINES[request.param]


def test_numbers_stand_in_the_table_as_the_kernel_has_them() -> None:
    """A few calls whose numbers are known from elsewhere, old ones of each processor and shared new ones."""
    on_x86, on_arm = (denied_numbers(machine) for machine in MACHINES.values())
    assert {on_x86[name] for name in ("chmod", "utimensat", "ptrace", "bpf")} == {90, 280, 101, 321}
    assert {on_arm[name] for name in ("fchmod", "utimensat", "ptrace", "bpf")} == {52, 88, 117, 280}
    assert {name for name, number in on_x86.items() if on_arm.get(name) == number} >= {
        "fchmodat2",
        "io_uring_setup",
        "pidfd_getfd",
        "setxattrat",
    }
    assert "chmod" not in on_arm
    assert min(len(set(on_x86.values())), 70) == 70


def answers_by_table(here: Machine, make: Callable[[Machine], Program]) -> None:
    """The rule of plain calls: denied if in the table, missing if it can't be judged, else allowed."""
    program = make(here)
    table = set(denied_numbers(here).values())

    @settings(database=None, max_examples=30, report_multiple_bugs=False)
    @given(st.one_of(NUMBERS, st.sampled_from(sorted(table))), WORDS)
    def check(number: int, word: int) -> None:
        if number in judged_by_arguments(here):
            return
        missing = number >= 0x40000000 or number == here.clone3
        expected = ENOSYS if missing else EPERM if number in table else ALLOW
        assert verdict(program, here.architecture, number, (word, word)) == expected

    check()
    for number in table:
        assert verdict(program, here.architecture, number) == EPERM
    for number in (here.clone3, 0x40000000, 0x40000000 | min(table)):
        assert verdict(program, here.architecture, number) == ENOSYS


def test_calls_are_judged_by_the_table(here: Machine) -> None:
    """What the table names is refused, the convention of x32 and clone3 are missing, all else is allowed."""
    answers_by_table(here, filter_program)


def _with_a_jump_cut(lost: int, here: Machine) -> Program:
    program = filter_program(here)
    code, _, _, operand = program[lost]
    program[lost] = (code, 0, 0, operand)
    return program


@pytest.mark.slow
def test_lost_denial_is_found(here: Machine) -> None:
    """Planted bug: one comparison leads nowhere."""
    for lost in (4, 5, 6, 40):
        with pytest.raises(AssertionError):
            answers_by_table(here, partial(_with_a_jump_cut, lost))


@given(other=NUMBERS, number=NUMBERS)
def test_foreign_architecture_is_killed(here: Machine, other: int, number: int) -> None:
    """Numbers of another convention mean other calls, so none of them is judged."""
    if other != here.architecture:
        assert verdict(filter_program(here), other, number) == KILL


@given(request=WORDS)
def test_ioctl_is_refused_by_its_type(here: Machine, request: int) -> None:
    """Requests of file systems, and two of terminals, are refused; the word's upper half does not count."""
    low = request & 0xFFFFFFFF
    is_denied = low in {0x5412, 0x541C} or (low >> 8) & 0xFF in jail.FILE_SYSTEM_IOCTLS
    expected = EPERM if is_denied else ALLOW
    assert verdict(filter_program(here), here.architecture, here.ioctl, (3, request)) == expected


@pytest.mark.parametrize(
    ("asked", "is_denied"),
    [
        (0x40086602, True),  # FS_IOC_SETFLAGS
        (0x401C5820, True),  # FS_IOC_FSSETXATTR
        (0xC0045877, True),  # FIFREEZE
        (0x5000940E, True),  # BTRFS_IOC_SUBVOL_CREATE
        (0x5412, True),  # TIOCSTI
        (0xFFFFFFFF_00005412, True),
        (0x541C, True),  # TIOCLINUX
        (0x5401, False),  # TCGETS
        (0x541B, False),  # FIONREAD
        (0x5421, False),  # FIONBIO
        (0x5451, False),  # FIOCLEX
        (0x8912, False),  # SIOCGIFCONF
    ],
)
def test_named_ioctl(here: Machine, asked: int, is_denied: bool) -> None:
    """Requests by their names: what sockets and pipes need goes on working."""
    expected = EPERM if is_denied else ALLOW
    assert verdict(filter_program(here), here.architecture, here.ioctl, (3, asked)) == expected


@pytest.mark.parametrize("flag", NEW_NAMESPACES.values(), ids=NEW_NAMESPACES)
def test_clone_into_a_namespace_is_refused(here: Machine, flag: int) -> None:
    """A child may not start in a namespace of its own, where it would be master."""
    assert verdict(filter_program(here), here.architecture, here.clone, (flag | 17,)) == EPERM


@given(flags=WORDS)
def test_clone_of_threads_and_processes_is_allowed(here: Machine, flags: int) -> None:
    """Every other flag of clone is free."""
    plain = flags & ~sum(NEW_NAMESPACES.values()) & ~0xFFFFFFFF00000000
    assert verdict(filter_program(here), here.architecture, here.clone, (plain,)) == ALLOW


OWN = 4711


@pytest.mark.slow
@pytest.mark.parametrize("name", jail.OWN_PROCESS_CALLS.split()[::3])
@given(word=WORDS)
def test_no_other_process_is_bounded_or_scheduled(here: Machine, name: str, word: int) -> None:
    """Which process is meant is in the lower half of the first word: none but this one."""
    number = jail.select_call_numbers(here, jail.OWN_PROCESS_CALLS)[name]
    program = filter_program(here, OWN)
    for pid in (word, word & ~0xFFFFFFFF, word & ~0xFFFFFFFF | OWN):
        expected = ALLOW if pid & 0xFFFFFFFF in {0, OWN} else EPERM
        assert verdict(program, here.architecture, number, (pid, OWN)) == expected


@pytest.mark.parametrize(("name", "process"), [("setpriority", 0), ("ioprio_set", 1)])
@given(which=st.integers(0, 4), who=WORDS)
def test_no_other_process_group_or_user_gets_a_priority(
    here: Machine, name: str, process: int, which: int, who: int
) -> None:
    """A group holds other processes, and so does a user; each call counts what it names in its own way."""
    number = jail.select_call_numbers(here, jail.PRIORITY_CALLS)[name]
    for meant in (who, who & ~0xFFFFFFFF, who & ~0xFFFFFFFF | OWN):
        is_own = which == process and meant & 0xFFFFFFFF in {0, OWN}
        expected = ALLOW if is_own else EPERM
        assert verdict(filter_program(here, OWN), here.architecture, number, (which, meant)) == expected


def test_calls_on_processes_have_the_numbers_of_the_kernel() -> None:
    """Numbers known from elsewhere, of both processors."""
    names = ("prlimit64", "sched_setaffinity", "move_pages", "get_robust_list")
    for machine, known in zip(MACHINES.values(), ((302, 203, 279, 274), (261, 122, 239, 100)), strict=True):
        numbers = jail.select_call_numbers(machine, jail.OWN_PROCESS_CALLS)
        assert tuple(numbers[name] for name in names) == known


def test_rights_are_those_of_the_abi() -> None:
    """Asking an older kernel for a right it does not know fails, so each bit begins with its ABI."""
    counts = {abi: jail.compute_handled_rights(abi).bit_count() for abi in range(1, 9)}
    assert counts == {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16, 8: 16}
    assert jail.WRITABLE & jail.compute_handled_rights(7) == jail.WRITABLE
    assert not jail.WRITABLE & jail.compute_handled_rights(2) & jail.TRUNCATE
