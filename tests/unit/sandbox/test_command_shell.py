"""The shell of a workspace: what a command gets, what it leaves, and how it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.contracts.errors import (
    ConfinementUnavailable,
    ExecutionError,
    PermissionDenied,
    ValidationError,
)
from sessiontree.contracts.handles.ports import Finished
from sessiontree.sandbox import Bounds, CommandShell, command_confinement
from sessiontree.sandbox.commands.command_bounds import MIB
from sessiontree.sandbox.commands.environment import LOADERS
from sessiontree.sandbox.commands.kernel_support import find_bubblewrap
from sessiontree.sandbox.process_tree import find_descendants

LONG_S = 240.0
"""Longer than any command here takes; none may be ended by it."""
MOMENTS_S = [0.6, 2.4, 9.6, 38.4]
"""Times to try in turn, for a command that must have begun before it is ended."""
AT_ONCE_S = 10.0
"""A machine where everybody is at work needs some of it; where nobody is, a second is enough."""
Watched = Callable[[], AbstractContextManager[None]]


def run(place: Path, command: str, *, timeout_s: float = LONG_S, bounds: Bounds | None = None) -> Finished:
    """Run one command in a workspace of its own."""
    return asyncio.run(CommandShell(place, bounds=bounds).run(command, timeout_s=timeout_s))


def output_of(place: Path, command: str) -> str:
    """Return what a command that goes well prints."""
    finished = run(place, command)
    assert (finished.reason, finished.exit_code) == ("exited", 0), finished
    return finished.head + finished.tail


def test_this_machine_confines_commands() -> None:
    """All pieces are here; a missing one fails this test by name, and is never passed over."""
    found = command_confinement()
    assert found.failure is None, found.failure
    assert found.bubblewrap
    assert "landlock" in found.kernel


def test_missing_bubblewrap_says_what_to_install(tmp_path: Path) -> None:
    """Where it is not found nothing runs, and the package is named."""
    with pytest.raises(ConfinementUnavailable, match="bwrap is missing in") as refusal:
        find_bubblewrap(str(tmp_path))
    assert "package 'bubblewrap'" in refusal.value.remedy


def test_bubblewrap_that_can_do_nothing_is_told(tmp_path: Path) -> None:
    """Where it may make no namespaces its own words are passed on."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(ConfinementUnavailable, match="uid map: Permission denied") as refusal:
        find_bubblewrap(str(tmp_path))
    assert "user namespaces" in refusal.value.remedy


def test_output_comes_in_the_order_it_was_written(tmp_path: Path) -> None:
    """Standard output and error are one stream."""
    assert output_of(tmp_path, "for i in 1 2 3; do echo out $i; echo err $i >&2; done") == (
        "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    )


@pytest.mark.covers("EXE1")
def test_workspace_is_written_at_its_own_path(tmp_path: Path) -> None:
    """A command starts there, and what it writes stays."""
    assert output_of(tmp_path, "pwd; mkdir -p a/b; echo kept >a/b/c; chmod 750 a/b/c").strip() == str(
        tmp_path
    )
    assert (tmp_path / "a/b/c").read_text() == "kept\n"
    assert (tmp_path / "a/b/c").stat().st_mode & 0o777 == 0o750


@pytest.mark.slow
def test_home_and_tmp_are_private_and_vanish(tmp_path: Path) -> None:
    """They can be written, and the next command finds them empty."""
    command = (
        "ls -A $HOME /dev/shm; test ! -e /tmp/f; for place in $HOME /tmp /dev/shm; do echo x >$place/f; done"
    )
    assert output_of(tmp_path, command) == output_of(tmp_path, command)
    assert "f" not in output_of(tmp_path, "ls -A $HOME")


@pytest.mark.slow
def test_python_is_the_running_environment(tmp_path: Path) -> None:
    """Its packages can be imported, and not be changed."""
    told = output_of(
        tmp_path, "python -c 'import pydantic, sys; print(sys.version_info[:3], pydantic.VERSION)'"
    )
    import_here = output_of(
        tmp_path, "python -c 'import hashlib, json, asyncio; print(asyncio.run(asyncio.sleep(0, 7)))'"
    )
    assert told.startswith("(3, ")
    assert import_here == "7\n"
    assert run(tmp_path, 'touch "$(python -c "import pydantic; print(pydantic.__file__)")"').exit_code == 1


def test_environment_in_the_workspace_is_read_only_and_shadows_nothing(tmp_path: Path) -> None:
    """Its Python is used; a program next to it does not take the place of one of the system's."""
    for name in ("ls", "cat"):
        (tmp_path / name).write_text("#!/bin/sh\necho shadowed\n")
        (tmp_path / name).chmod(0o755)
    assert output_of(tmp_path, "ls; cat ls").splitlines()[0] == "cat"
    path = output_of(tmp_path, "echo $PATH").strip().split(":")
    assert not [place for place in path if Path(place).is_relative_to(tmp_path)]
    assert "" not in path
    assert "." not in path


@pytest.mark.covers("REL-L27", "REL-L32")
def test_environment_is_made_anew(tmp_path: Path) -> None:
    """Nothing of this process's is inherited, and no variable that chooses code is there."""
    names = {line.partition("=")[0] for line in output_of(tmp_path, "env").splitlines()}
    own = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TERM", "TMPDIR", "PWD"}
    assert names == own | {"SHLVL", "_"}
    assert len(LOADERS) >= 60
    assert names & LOADERS == {"PATH", "HOME"}


def test_variables_are_added_as_given(tmp_path: Path) -> None:
    """Whatever they hold."""
    value = "a b\n'\"$HOME`id`\\ \u20ac"
    shell = CommandShell(tmp_path)
    told = asyncio.run(
        shell.run('printf %s "$GIVEN$TERM"', env={"GIVEN": value, "TERM": "x"}, timeout_s=LONG_S)
    )
    assert told.head == value + "x"


@pytest.mark.covers("REL-L27")
@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "LD_PRELOAD",
        "LD_ANYTHING",
        "BASH_ENV",
        "PYTHONPATH",
        "GIT_SSH_COMMAND",
        "BASH_FUNC_ls%%",
    ],
)
def test_variables_that_choose_code_are_refused(tmp_path: Path, name: str) -> None:
    """The refusal names the variable, and nothing runs."""
    with pytest.raises(ValidationError) as refusal:
        asyncio.run(CommandShell(tmp_path).run("touch ran", env={name: "x"}, timeout_s=LONG_S))
    assert refusal.value.field == f"/env/{name}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.short(4)
@pytest.mark.parametrize(
    ("command", "code", "signal", "reason"),
    [
        ("exit 3", 3, None, "exited"),
        ("no-such-program", 127, None, "exited"),
        ("/etc/passwd", 126, None, "exited"),
        ("kill -9 $$", None, 9, "signal"),
        ("kill -TERM $$", None, 15, "signal"),
        ("exit 137", 137, None, "exited"),
        ("yes | head -c 2 >/dev/null", 0, None, "exited"),
    ],
)
def test_end_is_told_as_it_was(
    tmp_path: Path, command: str, code: int | None, signal: int | None, reason: str
) -> None:
    """A code of its own is not taken for a signal."""
    finished = run(tmp_path, command)
    assert (finished.exit_code, finished.signal, finished.reason) == (code, signal, reason)
    assert finished.limit is None


def test_directory_to_start_in(tmp_path: Path) -> None:
    """Relative or absolute beneath the workspace; a link out of it is refused where it is followed."""
    (tmp_path / "in").mkdir()
    (tmp_path / "out").symlink_to("/usr")
    shell = CommandShell(tmp_path)
    for workdir in ("in", str(tmp_path / "in"), "in/../in/."):
        told = asyncio.run(shell.run("pwd", workdir=workdir, timeout_s=LONG_S))
        assert told.head == f"{tmp_path}/in\n"
    for workdir in ("..", "/", f"{tmp_path}-beside", "in/../../x"):
        with pytest.raises(PermissionDenied, match="outside the workspace"):
            asyncio.run(shell.run("pwd", workdir=workdir, timeout_s=LONG_S))
    with pytest.raises(ExecutionError, match="outside the workspace"):
        asyncio.run(shell.run("pwd", workdir="out", timeout_s=LONG_S))
    with pytest.raises(ExecutionError, match="No such file"):
        asyncio.run(shell.run("pwd", workdir="missing", timeout_s=LONG_S))


@pytest.mark.parametrize("command", ["a\0b", "\ud800", "#" * 100_001])
def test_command_that_cannot_be_passed_is_refused(tmp_path: Path, command: str) -> None:
    """Before anything starts."""
    with pytest.raises(ValidationError) as refusal:
        run(tmp_path, command)
    assert refusal.value.field == "/command"


@pytest.mark.short(1)
@pytest.mark.slow
@pytest.mark.parametrize("place", ["/", "/proc", "/dev/shm"])
def test_workspace_of_the_system_is_refused(place: str) -> None:
    """A sandbox that held it would hold the machine."""
    with pytest.raises(ConfinementUnavailable, match="the workspace is"):
        run(Path(place), "true")


@pytest.mark.slow
def test_workspace_that_vanishes(tmp_path: Path) -> None:
    """A command whose workspace is taken away ends as it ends; the next one learns what is missing."""
    place = tmp_path / "place"
    place.mkdir()
    waiting = "echo started; while [ -e started ]; do sleep 0.2; done; sleep 0.5; echo ended"

    async def through_the_end() -> Finished:
        begun = asyncio.Event()
        (place / "started").touch()
        running = asyncio.create_task(
            CommandShell(place).run(waiting, timeout_s=LONG_S, on_output=lambda _: begun.set())
        )
        await asyncio.wait_for(begun.wait(), LONG_S)
        shutil.rmtree(place)
        return await running

    finished = asyncio.run(through_the_end())
    assert (finished.reason, finished.exit_code, finished.head) == ("exited", 0, "started\nended\n")
    with pytest.raises(ExecutionError, match=r"workspace .* is gone.* restore it"):
        run(place, "true")
    place.touch()
    with pytest.raises(ExecutionError, match="restore it"):
        run(place, "true")


def test_hidden_places_beneath_the_workspace(tmp_path: Path) -> None:
    """A directory is empty, a file can't be read, and what is missing does no harm."""
    (tmp_path / "a/state").mkdir(parents=True)
    (tmp_path / "a/state/journal").write_text("secret")
    (tmp_path / "token").write_text("secret")
    hidden = (tmp_path / "a/state", tmp_path / "token", tmp_path / "missing")
    shell = CommandShell(tmp_path, hidden)
    told = asyncio.run(
        shell.run("cat a/state/journal token; ls -A a/state; mv a b; rm -rf a", timeout_s=LONG_S)
    )
    assert "secret" not in told.head
    assert (tmp_path / "a/state/journal").read_text() == "secret"
    assert (tmp_path / "token").read_text() == "secret"


def test_output_is_told_while_it_comes(tmp_path: Path) -> None:
    """The first line is heard before the second is written: the command waits for its listener."""

    async def listen() -> list[str]:
        heard: list[str] = []

        def take(text: str) -> None:
            heard.append(text)
            (tmp_path / "heard").touch()

        command = "echo first; until test -e heard; do :; done; echo second"
        await CommandShell(tmp_path).run(command, timeout_s=LONG_S, on_output=take)
        return heard

    assert asyncio.run(listen()) == ["first\n", "second\n"]


def started(before: set[int]) -> set[int]:
    """Return the processes below this one that were not there before; the run has some of its own."""
    return set(find_descendants(os.getpid())) - before


def test_output_keeps_both_ends(tmp_path: Path) -> None:
    """The middle is counted, not kept."""
    finished = asyncio.run(CommandShell(tmp_path).run("seq 100000", timeout_s=LONG_S, keep_bytes=100))
    assert finished.head.startswith("1\n2\n")
    assert finished.tail.endswith("\n99999\n100000\n")
    assert finished.dropped_bytes == 588_895 - len(finished.head) - len(finished.tail)


@pytest.mark.slow
def test_all_it_started_ends_with_it(tmp_path: Path, nothing_left: Watched) -> None:
    """What it left in the background is gone when the result is here, sessions of their own too."""
    before = started(set())
    with nothing_left():
        began = time.monotonic()
        command = "(sleep 1000 &) ; setsid sleep 1000 & nohup sleep 1000 >/dev/null 2>&1 & echo done"
        assert output_of(tmp_path, command) == "done\n"
        assert time.monotonic() - began < 30
    assert started(before) == set()


@pytest.mark.slow
def test_time_out_ends_all(tmp_path: Path, nothing_left: Watched) -> None:
    """Whatever ignores signals; the output so far is reported."""
    command = "trap '' TERM INT HUP; echo begun; sleep 1000 & wait"
    for timeout_s in MOMENTS_S:
        with nothing_left():
            shell = CommandShell(tmp_path, cleanup_s=0.3)
            finished = asyncio.run(shell.run(command, timeout_s=timeout_s))
        assert (finished.reason, finished.exit_code) == ("timeout", None)
        assert timeout_s <= finished.elapsed_s < timeout_s + LONG_S
        if finished.head == "begun\n":
            return
    pytest.fail("the command never began")


@pytest.mark.covers("EXE8")
@pytest.mark.slow
def test_nothing_lives_when_the_result_is_here(tmp_path: Path) -> None:
    """Not even for a moment: whatever held the pipe's other end is gone, however it ended."""
    os.mkfifo(tmp_path / "pipe")
    command = "exec 3>pipe; for i in $(seq 60); do sleep 1000 & done; echo begun; "
    for rest, timeouts_s in (("true", [LONG_S]), ("kill -9 $$", [LONG_S]), ("wait", MOMENTS_S)):
        for timeout_s in timeouts_s:
            reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
            try:
                finished = run(tmp_path, command + rest, timeout_s=timeout_s)
                assert os.read(reader, 1) == b"", "or BlockingIOError, where somebody holds it still"
            finally:
                os.close(reader)
            if finished.head == "begun\n":
                break
        else:
            pytest.fail("the command never began")


def test_no_descriptor_of_the_launchers_reaches_a_command(tmp_path: Path) -> None:
    """Nobody but the launcher tells how it ended."""
    told = output_of(tmp_path, "python -c 'import os; print(os.listdir(\"/proc/self/fd\"))'")
    assert told == "['0', '1', '2', '3']\n", "three, and the listing's own"


@pytest.mark.parametrize("moment", ["at once", "started", "running"])
def test_cancelling_ends_all_within_a_second(tmp_path: Path, nothing_left: Watched, moment: str) -> None:
    """At whatever moment: nothing runs on, no descriptor and no child is left."""

    async def cancelled() -> float:
        heard = asyncio.Event()
        shell = CommandShell(tmp_path)
        task = asyncio.ensure_future(
            shell.run("echo x; sleep 1000", timeout_s=LONG_S, on_output=lambda text: heard.set())
        )
        if moment == "running":
            await asyncio.wait_for(heard.wait(), LONG_S)
        elif moment == "started":
            while not list(find_descendants(os.getpid())):  # noqa: ASYNC110 - a process tells nobody of its start
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(0)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - began

    run(tmp_path, "true")  # what is looked at once per process was looked at
    before = started(set())
    with nothing_left():
        assert asyncio.run(cancelled()) < AT_ONCE_S
    assert started(before) == set()


def test_cancelling_twice_still_waits_for_the_end(tmp_path: Path, nothing_left: Watched) -> None:
    """Who is impatient does not leave a process behind."""

    async def cancelled() -> None:
        heard = asyncio.Event()
        task = asyncio.ensure_future(
            CommandShell(tmp_path).run(
                "echo x; sleep 1000", timeout_s=LONG_S, on_output=lambda text: heard.set()
            )
        )
        await asyncio.wait_for(heard.wait(), LONG_S)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    with nothing_left():
        asyncio.run(cancelled())


SMALL = Bounds(
    memory_bytes=300 * MIB,
    processes=40,
    file_bytes=4 * MIB,
    disk_bytes=64 * MIB,
    scratch_bytes=8 * MIB,
    cpu_s=1,
    output_bytes=MIB,
    open_files=32,
)
FORKS = "for i in $(seq 200); do sleep 100 & done; wait"
HOGS = """python -c "
import os, signal
for _ in range(4):
    if not os.fork():
        held = b'x' * (120 << 20)
        signal.pause()
signal.pause()
" """


@pytest.mark.short(2)
@pytest.mark.covers("REL-L66")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "limit", "reason"),
    [
        ("head -c 5000000 /dev/zero >big", "file_bytes", None),
        ("exec head -c 5000000 /dev/zero >big", "file_bytes", "limit"),
        ("python -c 'bytearray(400 << 20)'", "memory_bytes", "exited"),
        (HOGS, "memory_bytes", "limit"),
        (FORKS, "processes", "limit"),
        (FORKS.replace("sleep", "setsid sleep").replace("200", "40"), "sessions", "limit"),
        ("for i in $(seq 100); do head -c 2000000 /dev/zero >f$i; done; sleep 100", "disk_bytes", "limit"),
        ("for i in $(seq 5000); do : >f$i; done; sleep 100", "disk_files", "limit"),
        ("for i in $(seq 9); do head -c 2000000 /dev/zero >/tmp/f$i; done; false", "scratch_bytes", "exited"),
        ("exec python -c 'while True: pass'", "cpu_s", "limit"),
        ("python -c 'while True: pass'; exit $?", "cpu_s", "exited"),
        ("yes", "output_bytes", "limit"),
        ("python -c 'x = [open(\"/dev/null\") for _ in range(99)]'", "open_files", "exited"),
    ],
)
def test_limit_that_was_reached_is_named(
    tmp_path: Path, nothing_left: Watched, command: str, limit: str, reason: str | None
) -> None:
    """Bombs of every kind end, the machine goes on, and the result says which limit it was."""
    with nothing_left():
        # Others must not be reached in the same moment.
        apart = {"disk_files": {"disk_files": 1_000}, "sessions": {"processes": 100}}
        bounds = replace(SMALL, **apart.get(limit, {}))
        finished = run(tmp_path, command, bounds=bounds)
    assert (finished.limit, finished.allowed) == (limit, getattr(bounds, limit)), finished
    assert reason in {None, finished.reason}


@pytest.mark.slow
def test_many_short_processes_one_after_another_are_no_bomb(tmp_path: Path) -> None:
    """A long script may start any number, and pipe them too."""
    told = output_of(tmp_path, "for i in $(seq 700); do /bin/true; done; seq 9 | sort -r | head -1 | cat")
    assert told == "9\n"


@pytest.mark.covers("REL-L66")
def test_bounds_are_the_kernels_own(tmp_path: Path) -> None:
    """What every process of the command finds as its limits."""
    bounds = replace(Bounds(), open_files=77, cpu_s=55, file_bytes=8 * MIB)
    finished = run(tmp_path, "ulimit -n; ulimit -t; ulimit -f; ulimit -c; ulimit -Hn", bounds=bounds)
    assert finished.head.split() == ["77", "55", "8192", "0", "77"]


def test_shells_run_side_by_side(tmp_path: Path) -> None:
    """Commands of one workspace do not wait for each other, and see only their own processes."""

    async def both() -> list[Finished]:
        shell = CommandShell(tmp_path)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(
                shell.run("until test -e go; do :; done; ps ax | grep -c slee[p]", timeout_s=LONG_S)
            )
            second = group.create_task(shell.run("sleep 0.2 & touch go; wait", timeout_s=LONG_S))
        return [first.result(), second.result()]

    first, second = asyncio.run(both())
    assert (first.head, second.exit_code) == ("0\n", 0)
