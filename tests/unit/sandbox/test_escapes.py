"""The table of escapes: every row is refused in a jail, and noticed where a part of the jail is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.unit.sandbox.allowed_work_fixtures import ERRANDS
from tests.unit.sandbox.conftest import USERS, Escape, Prison
from tests.unit.sandbox.file_escape_fixtures import CONTENTS, METADATA
from tests.unit.sandbox.process_escape_fixtures import SECRETS, SIGNALS, SYSTEM

REFUSED = {"EACCES", "EPERM"}
OTHER_REFUSALS = {
    "call_as_another_architecture": {
        "SIGSYS",
        "SIGSEGV",
    },  # the filter kills, or the kernel knows no such call
    "link_into_the_logs_and_write": {"EXDEV"},  # Landlock's answer to a link from another directory
}
SCOPED = {*SIGNALS, "connect_to_an_abstract_socket"}
"""Rows that nothing but Landlock's scopes refuses, which kernels before Linux 6.12 do not have."""
LOCKED_OUT = {
    *SCOPED,
    "touch_to_now",
    "bound_a_process_outside",
    "read_the_bounds_of_a_process_outside",
    "pin_a_process_outside",
    "schedule_a_process_outside",
    "schedule_a_process_outside_by_its_parameters",
    "schedule_a_process_outside_by_its_attributes",
    "renice_a_process_outside",
    "delay_the_disk_of_a_process_outside",
    "find_the_locks_of_a_process_outside",
}
"""Rows besides files that nothing but the jail refuses, whoever tries."""

WITHOUT_SECCOMP = """
import os, sys
from sessiontree.sandbox import jail
options = jail.parse(sys.argv[1:])
jail.renounce_privileges()
jail.restrict_files(jail.query_landlock_abi(), options.hidden, options.writable)
os.execvp(options.command[0], options.command)
"""
WITHOUT_LANDLOCK = """
import os, sys
from sessiontree.sandbox import jail
options = jail.parse(sys.argv[1:])
jail.renounce_privileges()
jail.filter_calls(jail.detect_machine(), jail.filter_program(jail.detect_machine()))
os.execvp(options.command[0], options.command)
"""
ON_AN_OLDER_KERNEL = """
import os, sys
from sessiontree.sandbox import jail
options = jail.parse(sys.argv[1:])
jail.renounce_privileges()
jail.restrict_files(5, options.hidden, options.writable)
jail.filter_calls(jail.detect_machine(), jail.filter_program(jail.detect_machine(), os.getpid()))
os.execvp(options.command[0], options.command)
"""


class Tables:
    """What came of the table, tried once for each user and manner, however the tests are ordered."""

    def __init__(self, make_prison: Callable[[str], Prison]) -> None:
        self._make_prison = make_prison
        self._known: dict[tuple[str, str], Escape] = {}

    def of(self, user: str, manner: str) -> Escape:
        """Return the table as a user; the manner is a key of ``MANNERS``."""
        if (user, manner) not in self._known:
            prison = self._make_prison(user)
            self._known[user, manner] = prison.try_all(*MANNERS[manner](prison))
        return self._known[user, manner]


@pytest.fixture(scope="module")
def tables(make_prison: Callable[[str], Prison]) -> Tables:
    """The tables tried so far."""
    return Tables(make_prison)


def half_jailed(program: str, prison: Prison) -> list[str]:
    """Return the words of a launcher that lacks a part."""
    words = prison.jailed()
    return [sys.executable, "-c", program, *words[words.index("--write") :]]


MANNERS: dict[str, Callable[[Prison], list[str]]] = {
    "jailed": lambda prison: prison.jailed(),
    "free": lambda prison: [],
    "without seccomp": lambda prison: half_jailed(WITHOUT_SECCOMP, prison),
    "without Landlock": lambda prison: half_jailed(WITHOUT_LANDLOCK, prison),
    "on an older kernel": lambda prison: half_jailed(ON_AN_OLDER_KERNEL, prison),
}
as_every_user = pytest.mark.parametrize("user", USERS)


def assert_refused(escape: Escape, name: str) -> None:
    """A row was refused by the kernel, and nothing in its directory changed."""
    assert escape.outcomes[name] in OTHER_REFUSALS.get(name, REFUSED)
    assert escape.changes[name] == []


@pytest.mark.covers("A37", "REL-L57", "JAIL1")
@pytest.mark.slow
@as_every_user
@pytest.mark.parametrize("name", [*CONTENTS, *METADATA, *SECRETS, *SYSTEM])
def test_escape_is_refused_and_changes_nothing(tables: Tables, user: str, name: str) -> None:
    """No way of changing a file, of reading what is hidden or of reaching others leads out."""
    assert_refused(tables.of(user, "jailed"), name)


@as_every_user
@pytest.mark.parametrize("name", ERRANDS)
def test_errand_is_done(tables: Tables, user: str, name: str) -> None:
    """What a worker needs still works inside: reading, threads, programs, logs, sockets, shared memory."""
    assert tables.of(user, "jailed").outcomes[name] == "succeeded"


@pytest.mark.short(30)
@pytest.mark.slow
@as_every_user
@pytest.mark.parametrize("name", [*CONTENTS, *METADATA, *SECRETS, *sorted(LOCKED_OUT)])
def test_row_is_noticed_without_a_jail(tables: Tables, user: str, name: str) -> None:
    """Planted bug: with no jail at all, each row of files and secrets is reported."""
    with pytest.raises(AssertionError):
        assert_refused(tables.of(user, "free"), name)


@pytest.mark.short(12)
@pytest.mark.slow
@as_every_user
@pytest.mark.parametrize("name", METADATA)
def test_metadata_row_is_noticed_without_seccomp(tables: Tables, user: str, name: str) -> None:
    """Planted bug: Landlock alone lets metadata through, and each row of it is reported."""
    with pytest.raises(AssertionError):
        assert_refused(tables.of(user, "without seccomp"), name)


@pytest.mark.short(20)
@pytest.mark.slow
@as_every_user
@pytest.mark.parametrize("name", sorted({*CONTENTS, *SECRETS} - {"make_node", "make_pipe"}))
def test_content_row_is_noticed_without_landlock(tables: Tables, user: str, name: str) -> None:
    """Planted bug: seccomp alone lets content through, and each row that needs no denied call is reported."""
    with pytest.raises(AssertionError):
        assert_refused(tables.of(user, "without Landlock"), name)


@as_every_user
def test_each_half_does_its_own_work(tables: Tables, user: str) -> None:
    """Landlock refuses content and secrets, seccomp metadata: neither leans on the other."""
    for name in [*CONTENTS, *SECRETS]:
        assert_refused(tables.of(user, "without seccomp"), name)
    for name in METADATA:
        assert_refused(tables.of(user, "without Landlock"), name)


@pytest.mark.short(20)
@pytest.mark.slow
@as_every_user
@pytest.mark.parametrize("name", SYSTEM)
def test_older_kernels_let_signals_out_and_nothing_else(tables: Tables, user: str, name: str) -> None:
    """JAIL9: with Landlock's ABI 5 processes of the same user can be signalled; all else holds."""
    escape = tables.of(user, "on an older kernel")
    if name in SCOPED:
        assert escape.outcomes[name] == "succeeded"
    else:
        assert_refused(escape, name)
