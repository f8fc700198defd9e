"""Environments of suites: built from a lock, over the environment that runs this package."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from sessiontree import ConfigError
from sessiontree.bench.suite import environment as bench_environment
from sessiontree.bench.suite.environment import (
    SuiteEnvironment,
    choose_pip_options,
    list_shipped_locks,
    locate_environment,
    prepare_here,
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of wheels that is all that pip finds: two releases of a harness."""
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("1", "2"):
        with zipfile.ZipFile(folder / f"harness-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("harness.py", f"version = {version}")
            wheel.writestr("idna.py", "version = 'of the harness'")
            entry = f"harness-{version}.dist-info"
            wheel.writestr(f"{entry}/METADATA", f"Metadata-Version: 2.1\nName: harness\nVersion: {version}\n")
            wheel.writestr(f"{entry}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{entry}/RECORD", "")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            patch.delenv(name)
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.setenv("PIP_FIND_LINKS", folder.as_uri())
        yield folder


def environment_in(folder: Path, wheels: Path) -> SuiteEnvironment:
    """Return the environment of a lock that names the first release; not built."""
    lock = folder / "harness.txt"
    pin(lock, wheels, "1")
    libraries = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    return SuiteEnvironment(lock, folder / "suites", Path(sys.prefix), libraries)


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What was said while the environment was built."""
    return []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, wheels: Path, said: list[str]) -> SuiteEnvironment:
    """The environment, asked for twice."""
    environment = environment_in(tmp_path_factory.mktemp("built"), wheels)
    assert not environment.is_ready
    environment.prepare(said.append)
    environment.prepare(said.append)
    return environment


def pin(lock: Path, wheels: Path, version: str, digest: str = "") -> None:
    """Write a lock with one release; a wrong digest makes the installation fail."""
    wheel = wheels / f"harness-{version}-py3-none-any.whl"
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock.write_text(f"harness=={version} \\\n    --hash=sha256:{digest or right}\n")


def asked(environment: SuiteEnvironment, code: str) -> str:
    """Return what code prints in an environment."""
    command = environment.command(["-I", "-c", code])
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_lock_is_installed_once_and_its_packages_come_first(built: SuiteEnvironment, said: list[str]) -> None:
    """The base environment's packages are found behind them, this package among them."""
    (line,) = said
    assert line.startswith(f"preparing {built.place} from harness.txt")
    code = "import harness, idna, pydantic, sessiontree; print(harness.version, idna.version)"
    assert asked(built, code) == "1 of the harness"
    inside = (
        "from pathlib import Path; from sessiontree.bench.suite.environment import locate_environment as of; "
        f"found = of(Path({str(built.lock)!r})); print(found.base)"
    )
    assert asked(built, inside) == sys.prefix


@pytest.mark.slow
def test_program_is_replaced_by_the_environments_interpreter(built: SuiteEnvironment) -> None:
    """It keeps its process; nothing behind the call runs."""
    given = ", ".join(f"Path({str(each)!r})" for each in (built.lock, built.folder, built.base))
    code = (
        "import os; from pathlib import Path\n"
        "from sessiontree.bench.suite.environment import SuiteEnvironment\n"
        "print('before', os.getpid())\n"
        f"SuiteEnvironment({given}, {built.libraries!r}).take_over("
        "['-c', 'import harness, os, sys; print(harness.version, os.getpid(), sys.argv[1:])', 'a b'])\n"
        "print('after')"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    before, after = done.stdout.splitlines()
    assert after == f"1 {before.split()[1]} ['a b']"


@pytest.mark.slow
@pytest.mark.long
def test_changed_lock_and_broken_builds_are_built_again(tmp_path: Path, wheels: Path) -> None:
    """A wrong hash is refused with pip's words; without the note of a finished build nothing is used."""
    environment = environment_in(tmp_path, wheels)
    pin(environment.lock, wheels, "1", "0" * 64)
    with pytest.raises(ConfigError, match=r"pip ended with exit code 1\n[\s\S]*HASHES"):
        environment.prepare()
    assert not environment.is_ready
    pin(environment.lock, wheels, "2")
    environment.prepare()
    assert asked(environment, "import harness; print(harness.version)") == "2"
    pin(environment.lock, wheels, "1")
    assert not environment.is_ready
    pin(environment.lock, wheels, "2")
    (environment.place / "suite.json").unlink()
    with pytest.raises(ConfigError, match=r"is not prepared from .*harness\.txt; run `sessiontree bench"):
        environment.command([])


class Builds:
    """Stands in for what takes long in a build: it notes the steps, which leave an interpreter alone."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def create(self, builder: object, place: str | Path) -> None:
        """Make the directories of an environment, with this interpreter in it."""
        self.steps.append("venv")
        Path(place, "bin").mkdir(parents=True)
        Path(place, "bin", "python").symlink_to(sys.executable)
        packages = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
        Path(packages).mkdir(parents=True)

    def run(self, command: Sequence[str], folder: Path, held: int) -> None:
        """Note a command of the build."""
        self.steps.append("pip" if "install" in command else "ensurepip")
        if "--report" in command:
            Path(command[command.index("--report") + 1]).write_text('{"install": []}')


def test_each_text_of_a_lock_has_a_place_and_old_ones_are_removed(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built once; a place that a process holds stays while another text is built."""
    builds = Builds()
    monkeypatch.setattr(venv.EnvBuilder, "create", lambda builder, place: builds.create(builder, place))
    monkeypatch.setattr(bench_environment, "_run", builds.run)
    found = environment_in(tmp_path, wheels)
    environment = SuiteEnvironment(found.lock, tmp_path / "suites", tmp_path, found.libraries)
    environment.prepare()
    environment.prepare()
    once = builds.steps.copy()
    assert (once[0], once[-1]) == ("venv", "pip")
    first = environment.place
    with bench_environment._hold_lock(first, None):
        pin(environment.lock, wheels, "2")
        assert not environment.is_ready
        environment.prepare()
    second = environment.place
    assert first.is_dir()
    environment.lock.write_text(f"# of another release\n{environment.lock.read_text()}")
    environment.prepare()
    assert builds.steps == once * 3
    assert (first.exists(), second.exists(), environment.is_ready) == (False, False, True)


def add_wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """Write a wheel with one module."""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version}")
        entry = f"{name}-{version}.dist-info"
        more = f"Requires-Dist: {needs}\n" if needs else ""
        wheel.writestr(
            f"{entry}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}"
        )
        wheel.writestr(f"{entry}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{entry}/RECORD", "")


@pytest.mark.slow
@pytest.mark.long
def test_other_machines_install_what_the_first_one_has_resolved(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pinned line brings what it depends on; a release that appears meanwhile changes nothing."""
    add_wheel(wheels, "task", "1", "gadget")
    add_wheel(wheels, "gadget", "1")
    lock = tmp_path / "task.txt"
    lock.write_text("task==1\n")
    libraries = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    first = SuiteEnvironment(lock, tmp_path / "suites", Path(sys.prefix), libraries)
    first.prepare()
    code = "import task, gadget; print(task.version, gadget.version)"
    assert asked(first, code) == "1 1"
    assert "gadget==1 --hash=sha256:" in first.locked()
    add_wheel(wheels, "gadget", "2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = Path(prepare_here("task.txt", lock.read_text(), first.locked()))
    assert place.name == first.place.name
    second = replace(first, folder=place.parent)
    assert asked(second, code) == "1 1"
    changed = replace(second, resolved=first.locked().replace("task", "task "))
    assert not changed.is_ready, "another resolution is built again"


@pytest.mark.slow
@pytest.mark.long
def test_nothing_is_built_where_a_run_imports_from(tmp_path: Path, wheels: Path) -> None:
    """A running process finds its own release after another one was prepared; what nobody uses is removed."""
    found = environment_in(tmp_path, wheels)
    environment = SuiteEnvironment(found.lock, tmp_path / "suites", tmp_path, found.libraries)
    environment.prepare()
    first = environment.place
    code = "import sys; print('up', flush=True); sys.stdin.read(); import harness; print(harness.version)"
    with subprocess.Popen(
        environment.command(["-I", "-c", code]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "up\n"
        pin(environment.lock, wheels, "2")
        environment.prepare()
        assert asked(environment, "import harness; print(harness.version)") == "2"
        assert user.communicate()[0] == "1\n"
    second = environment.place
    assert first.is_dir()
    environment.lock.write_text(f"# of another release\n{environment.lock.read_text()}")
    environment.prepare()
    assert not first.exists()
    assert not second.exists()
    assert environment.is_ready


@pytest.mark.slow
@pytest.mark.long
def test_killed_build_does_not_disturb_the_next_one(tmp_path: Path, wheels: Path) -> None:
    """The pip that it left is waited for; the environment is then built from the start."""
    environment = environment_in(tmp_path, wheels)
    line, pipe, lines = environment.lock.read_bytes(), tmp_path / "more.txt", SimpleQueue[str]()
    os.mkfifo(pipe)  # pip waits at it
    environment.lock.write_text("-r more.txt\n")
    code = (
        "from pathlib import Path; from sessiontree.bench.suite.environment import SuiteEnvironment as of\n"
        f"of(Path({str(environment.lock)!r}), Path({str(environment.folder)!r}), "
        f"Path({str(environment.base)!r}), {environment.libraries!r}).prepare()"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", code]) as killed:
        left = os.open(pipe, os.O_WRONLY)
        killed.kill()
    with ThreadPoolExecutor() as pool:
        preparing = pool.submit(environment.prepare, lines.put)
        assert lines.get(timeout=30).startswith("waiting for another process that builds or uses ")
        os.write(left, line)
        os.close(left)
        assert lines.get(timeout=60).startswith("preparing ")
        own = os.open(pipe, os.O_WRONLY)
        os.write(own, line)
        os.close(own)
        preparing.result(60)
    assert asked(environment, "import harness; print(harness.version)") == "1"


def test_unreadable_lock_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Before anything is built."""
    with pytest.raises(ConfigError, match=r"the suite's env .*missing\.txt: it can't be read: No such file"):
        locate_environment(tmp_path / "missing.txt")


def test_lock_in_another_encoding_is_an_error_that_names_it(tmp_path: Path) -> None:
    """And so is a name that no file can have."""
    lock = tmp_path / "latin.txt"
    lock.write_bytes("# für alle\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"the suite's env .*latin\.txt: it is not text in UTF-8"):
        choose_pip_options(lock)
    with pytest.raises(ConfigError, match=r"the suite's env .*NUL"):
        locate_environment(tmp_path / "a\0b")


def test_shipped_locks_have_an_environment_of_their_own() -> None:
    """Beneath the environment that runs this."""
    found = {locate_environment(lock).place for lock in list_shipped_locks()}
    assert len(found) == len(list_shipped_locks()) >= 2
    assert all(place.parent == Path(sys.prefix) / "suites" for place in found)
