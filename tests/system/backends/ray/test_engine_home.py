"""Who belongs to a private directory is ended with it; nobody else is ever touched."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessiontree.backends.ray.engine import engine_home
from sessiontree.backends.ray.engine.engine_home import Process

LOG = f"{engine_home.RAY_FOLDER}/session_2026/logs/raylet.out"
READY = "import sys, time; sys.stdout.write('x'); sys.stdout.flush(); time.sleep(1000)"
WITH_CHILD = (
    "import subprocess, sys; child = subprocess.Popen(['sleep', '1000'], env={}, start_new_session=True,"
    f" stdout=-3); sys.stdout.write(str(child.pid) + ' '); {READY}"
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A private directory with a Ray session's logs, owned by this process until the test ends."""
    made, lock = engine_home.make_home()
    (made / LOG).parent.mkdir(parents=True)
    (made / LOG).touch()
    yield made
    os.close(lock)
    engine_home.end_processes(made, grace_s=0.0)
    with contextlib.suppress(FileNotFoundError):
        (made / engine_home.OWNER).write_text("0 0 nowhere")
    engine_home.clear(made, grace_s=0.0)


@contextlib.contextmanager
def running(code: str = READY, **options: object) -> Iterator[tuple[Process, str]]:
    """Run a program that has said what it had to say."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1, text=True, **options) as popen:  # type: ignore[call-overload]  # whatever Popen takes
        said = popen.stdout.read(1)
        while not said.endswith("x"):
            said += popen.stdout.read(1)
        process = engine_home.find_process(popen.pid)
        assert process is not None
        try:
            yield process, said
        finally:
            popen.kill()


def logging(home: Path, flags: str) -> str:
    """Return a program that holds a log of a directory open."""
    path = home / LOG
    return f"log = open({str(path)!r}, {flags!r}); {READY}"


def marks(home: Path, **others: str) -> dict[str, str]:
    """Return the environment Ray gives its processes."""
    return {"RAY_AUTH_TOKEN_PATH": str(home / engine_home.MARK), **others}


def test_who_writes_a_log_belongs_and_who_reads_it_does_not(home: Path) -> None:
    """A person may look at the logs without being ended for it."""
    with running(logging(home, "a")) as (writer, _), running(logging(home, "r")) as (reader, _):
        found = engine_home.find_processes(home)
        assert writer in found
        assert reader not in found


def test_who_descends_from_a_raylet_of_the_directory_belongs(home: Path) -> None:
    """Mark and raylet together tell a worker's child; the mark alone may be anybody's started then."""
    with (
        running(env=marks(home, RAY_RAYLET_PID="7")) as (child, _),
        running(env=marks(home)) as (bystander, _),
        running(env=marks(home / "other", RAY_RAYLET_PID="7")) as (stranger, _),
    ):
        found = engine_home.find_processes(home)
        assert child in found
        assert not found & {bystander, stranger}


def test_ending_takes_descendants_that_show_nothing_and_leaves_the_rest(home: Path) -> None:
    """A child with an empty environment in a session of its own goes too; a process alongside it lives."""
    with (
        running(WITH_CHILD, env=marks(home, RAY_RAYLET_PID="7")) as (parent, said),
        running() as (bystander, _),
    ):
        child = engine_home.find_process(int(said.split()[0]))
        assert child is not None
        assert engine_home.end_processes(home, grace_s=0.0)
        assert [engine_home.find_process(process.pid) for process in (parent, child)] == [None, None]
        assert engine_home.find_process(bystander.pid) == bystander


def test_directory_is_private_and_short(home: Path) -> None:
    """Mode 0700; sockets of Ray beneath it fit into 107 bytes."""
    assert home.stat().st_mode & 0o7777 == 0o700
    longest = (
        home / engine_home.RAY_FOLDER / "session_2026-11-20_12-29-05_342970_4194304/sockets/plasma_store"
    )
    assert len(os.fsencode(longest)) <= 107


def test_living_owner_keeps_its_directory(home: Path) -> None:
    """Neither sweeping nor a watcher that errs takes it away."""
    assert engine_home.is_owner_alive(home)
    assert home not in engine_home.sweep()
    assert not engine_home.clear(home, grace_s=0.0)
    assert home.exists()


@pytest.mark.parametrize("started", [0, 1])
def test_owner_whose_number_went_to_another_process_is_dead(home: Path, started: int) -> None:
    """The id alone says nothing: this process has it, and began at another time."""
    namespace = (home / engine_home.OWNER).read_text().split()[2]
    (home / engine_home.OWNER).write_text(f"{os.getpid()} {started} {namespace}\n")
    assert not engine_home.is_owner_alive(home)
    assert home in engine_home.sweep()
    assert not home.exists()


def test_in_another_world_of_process_ids_the_lock_decides(home: Path) -> None:
    """A container that shares the directory: locked lives, free does not, whatever the number says."""
    owner = home / engine_home.OWNER
    owner.write_text("1 1 pid:[elsewhere]\n")
    assert engine_home.is_owner_alive(home)
    owner.unlink()
    owner.write_text(f"{os.getpid()} 1 pid:[elsewhere]\n")
    assert not engine_home.is_owner_alive(home)


@pytest.mark.parametrize("is_begun", [False, True], ids=["no owner", "empty owner"])
def test_directory_that_is_just_being_made_is_let_be_and_an_old_one_is_not(is_begun: bool) -> None:
    """Without its owner's line a directory counts as living for a minute."""
    made = Path(tempfile.mkdtemp(prefix=engine_home.PREFIX))
    if is_begun:
        (made / engine_home.OWNER).touch()
    assert engine_home.is_owner_alive(made)
    assert made not in engine_home.sweep()
    os.utime(made, (1, 1))
    assert not engine_home.is_owner_alive(made)
    assert made in engine_home.sweep()
    assert not made.exists()


@pytest.mark.parametrize(
    "owner", [None, "", "ada\n", "1 2\n", "1 x pid:[1]\n", b"\xff\x00", "directory", "link"], ids=str
)
def test_somebody_elses_directory_of_such_a_name_is_not_swept(
    owner: str | bytes | None, tmp_path: Path
) -> None:
    """Old and private: without the line of an owner nothing in it is removed, whatever else it holds."""
    other = Path(tempfile.mkdtemp(prefix=engine_home.PREFIX))
    (other / "thesis.txt").write_text("years of work")
    line = other / engine_home.OWNER
    if owner == "directory":
        line.mkdir()
    elif owner == "link":
        (tmp_path / "line").write_text("0 0 pid:[elsewhere]\n")
        line.symlink_to(tmp_path / "line")
    elif owner is not None:
        line.write_bytes(owner if isinstance(owner, bytes) else owner.encode())
    os.utime(other, (1, 1))
    try:
        assert other not in engine_home.sweep()
        assert (other / "thesis.txt").read_text() == "years of work"
        assert os.path.lexists(line) == (owner is not None)
    finally:
        shutil.rmtree(other)


def test_two_that_clear_do_not_meet(home: Path) -> None:
    """While one clears, another one keeps off."""
    (home / engine_home.OWNER).write_text("0 0 pid:[elsewhere]\n")
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        assert not engine_home.clear(home, grace_s=0.0)
    finally:
        os.close(folder)


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_what_only_looks_like_a_directory_of_ours_is_not_swept(tmp_path: Path, kind: str) -> None:
    """A link, a directory others may fill, a file: each could be laid out by somebody else."""
    target = tmp_path / "kept"
    target.mkdir(mode=0o700)
    (target / engine_home.OWNER).write_text("0 0 pid:[elsewhere]\n")
    os.utime(target, (1, 1))
    bait = Path(tempfile.gettempdir()) / f"{engine_home.PREFIX}bait{kind}"
    if kind == "link":
        bait.symlink_to(target)
    elif kind == "open":
        target.rename(bait)
        bait.chmod(0o755)
    else:
        bait.write_text("")
    try:
        assert bait not in engine_home.sweep()
        assert bait.exists()
    finally:
        if kind == "open":
            bait.rename(target)
        else:
            bait.unlink()


@pytest.mark.slow
def test_watcher_stands_alone() -> None:
    """It runs by its path without this package, and clears the directory of an owner that is dead."""
    home, lock = engine_home.make_home()
    os.close(lock)
    (home / engine_home.OWNER).write_text(
        f"{os.getpid()} 1 {(home / engine_home.OWNER).read_text().split()[2]}"
    )
    subprocess.run(
        [sys.executable, "-I", "-S", engine_home.__file__, str(home), str(os.getpid()), "1"],
        check=True,
        timeout=120,
    )
    assert not home.exists()
