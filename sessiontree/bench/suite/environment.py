"""A suite's environment: a virtual environment with what its lock names, over the one that runs this package.

Suites pin other libraries than each other and than this package, so each lock gets its own environment.
Its packages come first; ``sessiontree`` and what it needs are found in the environment that made it. A file
with the hashes of everything is a lock, and is installed as it is. Any other file is resolved where it is
built first, with all that its lines depend on; ``lock.txt`` in the environment says what came of it. Other
machines build the same from that.

A finished environment has a file ``suite.json`` that says from what it was built, and the name of its
directory has a digest of the same. A changed lock or another interpreter has another directory, so nothing is
built where a run imports from. Every interpreter of an environment holds a shared lock on it. A later build
removes an environment that is out of date and that no process holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

from platformdirs import user_cache_path

from sessiontree.api.runtime.paths import make_absolute
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass

LOCKS: Final = Path(__file__).parents[1] / "suites" / "locks"
"""Locks of the suites that come with this package."""
_MARK: Final = "suite.json"
_LOCK: Final = "lock.txt"
"""What is installed, as requirements that need no resolving."""
_REPORT: Final = "report.json"
_LINK: Final = "sessiontree_suite.pth"
_FORM: Final = 2
"""Changes when environments are built in another way; earlier ones are then built again."""
_TAIL_CHARS: Final = 2_000
"""Maximum characters of pip's complaint in an error."""
_HOLD: Final = """\
try:
    import fcntl, os
    fcntl.flock(os.open({lock!r}, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
except OSError:
    pass
"""
"""How an interpreter of an environment holds it from its start to its end; a sandbox may not see the lock."""
_NAME_CHARS: Final = 16
"""Characters of a digest in the name of a directory."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SuiteEnvironment:
    """The environment of one lock; it may not be built yet.

    Args:
        lock: A requirements file; one that pins every version, with hashes, is installed as it is.
        folder: Directory of environments; it has one subdirectory for each thing that they were built from.
        base: Prefix of the environment that holds ``sessiontree``.
        libraries: Directories of that environment's packages.
        resolved: What another machine has installed for the file; empty = it is resolved here.
    """

    lock: Path
    folder: Path
    base: Path
    libraries: tuple[str, ...]
    resolved: str = ""

    @property
    def place(self) -> Path:
        """Its directory; another one as soon as anything differs that it is built from.

        Raises:
            ConfigError: the lock can't be read.
        """
        text = json.dumps(self._describe_wanted(), sort_keys=True)
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        return self.folder / f"{self.lock.stem}-{digest[:_NAME_CHARS]}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.place / "bin" / "python"

    @property
    def is_ready(self) -> bool:
        """Whether it was built from the present lock, for this interpreter and base."""
        is_same = not self.resolved or _read_text(self.place / _LOCK) == self.resolved
        return is_same and _mark_in(self.place) == self._describe_wanted()

    def locked(self) -> str:
        """Return what is installed, as requirements that another machine installs without resolving.

        Raises:
            ConfigError: it is not ready.
        """
        text = _read_text(self.place / _LOCK) if self.is_ready else ""
        if not text:
            raise ConfigError(f"the suite's environment {self.place} is not prepared from {self.lock}")
        return text

    @property
    def is_current(self) -> bool:
        """Whether this process runs in it."""
        return Path(sys.prefix) == self.place

    def prepare(self, say: Say = lambda line: None) -> None:
        """Build it if it is not ready; waits while another process builds it.

        Args:
            say: Gets a line before anything that takes long.

        Raises:
            ConfigError: it could not be built; says at which command, and what that printed last.
        """
        if self.is_ready:
            return
        place = self.place
        with _hold_lock(place, say) as held:
            # Looked at again: another process may have built it while this one waited for the lock.
            if self.is_ready:
                return
            say(f"preparing {place} from {self.lock.name} (once; it may take a minute)")
            try:
                self._build(place, held)
                self._remove_outdated(place)
            except (OSError, subprocess.CalledProcessError) as failure:
                raise ConfigError(
                    f"suite environment {place}: it could not be built from {self.lock}: "
                    f"{_describe_failure(failure)}\nThe next attempt starts again."
                ) from failure

    def _build(self, place: Path, held: int) -> None:
        """Build it in a place whose lock is held by this descriptor."""
        wanted = self._describe_wanted()
        if place.exists():
            # Without its mark it is what a killed build has left, and pip would take parts of it for
            # installed.
            shutil.rmtree(place)
        venv.EnvBuilder(symlinks=True).create(place)
        python = str(place / "bin" / "python")
        if importlib.util.find_spec("ensurepip") is not None:
            _run([python, "-I", "-m", "ensurepip", "--upgrade", "--default-pip"], place, held)
            pip = [python, "-m", "pip"]
        else:
            pip = [*_find_pip(), "--python", python]
        lock, report = self.lock, place / _REPORT
        if self.resolved:
            lock = place / _LOCK
            lock.write_text(self.resolved, "utf-8")
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--report", str(report)]
        options += ["--no-deps"] if self.resolved else choose_pip_options(lock)
        _run([*pip, "install", *options, "-r", str(lock)], self.lock.parent, held)
        if not self.resolved:
            (place / _LOCK).write_text(_lock_of_report(report, lock_text(self.lock)), "utf-8")
        # A closed interpreter imports only from the directories of known prefixes.
        adding = f"site.PREFIXES.append({str(self.base)!r})"
        adding = "; ".join([adding, *(f"site.addsitedir({each!r})" for each in self.libraries)])
        holding = f"import sys; exec({_HOLD.format(lock=str(_name_lock(place)))!r})"
        packages = Path(sysconfig.get_path("purelib", vars=_make_path_variables(place)))
        (packages / _LINK).write_text(f"import site; {adding}\n{holding}\n", "utf-8")
        fresh = place / f"{_MARK}.new"
        fresh.write_text(json.dumps(wanted), "utf-8")
        # The mark comes last and in one step: whoever finds it may rely on everything else.
        fresh.replace(place / _MARK)

    def _remove_outdated(self, place: Path) -> None:
        """Remove what was built from other releases of a lock of this package, unless a process holds it."""
        if self.folder != self.base / "suites":  # elsewhere, other programs have environments of their own
            return
        for other in self.folder.glob(f"{self.lock.stem}-*"):
            if other != place and other.is_dir() and _name_lock(other).is_file():
                with contextlib.suppress(OSError, ConfigError), _hold_lock(other, None):
                    (other / _MARK).unlink(missing_ok=True)  # first: nobody takes what is half removed
                    shutil.rmtree(other)

    def _describe_wanted(self) -> dict[str, Any]:
        return {
            "form": _FORM,
            "lock": _compute_digest(self.lock),
            "python": sys.version,
            "base": str(self.base),
            "libraries": list(self.libraries),
        }

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command line that runs its interpreter with arguments.

        Raises:
            ConfigError: it is not ready; says how to prepare it.
        """
        if not self.is_ready:
            raise ConfigError(
                f"the suite's environment {self.place} is not prepared from {self.lock}; "
                "run `sessiontree bench prepare` first, or in a checkout `make setup-suites`"
            )
        return [str(self.python), *arguments]

    def take_over(self, arguments: Sequence[str]) -> NoReturn:
        """Replace this process by its interpreter with arguments; nothing after the call runs.

        Raises:
            ConfigError: as :meth:`command`.
        """
        command = self.command(arguments)
        # What is still buffered would be lost with this program's image.
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(command[0], command)  # noqa: S606 - the environment's interpreter, and this program's words


def locate_environment(lock: Path) -> SuiteEnvironment:
    """Return the environment of a lock, built or not.

    That of a lock of this package is in ``suites/`` of the virtual environment that holds ``sessiontree``;
    without one, or if that can't be written, and for any other lock, it is in the user's cache directory.
    Asked inside a suite's environment, this answers the same.

    Raises:
        ConfigError: the file can't be read.
    """
    lock = make_absolute(lock, "the suite's env").resolve()
    mark = _mark_in(Path(sys.prefix))
    if mark:
        base, libraries = Path(mark["base"]), tuple(mark["libraries"])
    else:
        base = Path(sys.prefix)
        libraries = tuple(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))
    is_own = mark or (sys.prefix != sys.base_prefix and os.access(base, os.W_OK))
    _compute_digest(lock)  # refused here if it can't be read
    is_beside = lock.parent == LOCKS and is_own and base != Path(sys.base_prefix)
    above = base if is_beside else user_cache_path("sessiontree", appauthor=False)
    return SuiteEnvironment(lock, above / "suites", base, libraries)


def prepare_here(name: str, text: str, resolved: str = "") -> str:
    """Build the environment of a requirements file, given by its text, on this machine; return its place.

    For the nodes of a cluster: they may not have the file. A path in it must be absolute there.

    Args:
        name: Of the file.
        text: What it says; its environment has the same place wherever it is built.
        resolved: What another machine has installed for it, and this one installs too; empty = it is
            resolved here.

    Raises:
        ConfigError: it could not be built.
    """
    lock = LOCKS / name
    if not lock.is_file() or lock.read_text("utf-8") != text:
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        lock = user_cache_path("sessiontree", appauthor=False) / "suites" / "files" / digest / name
        lock.parent.mkdir(parents=True, exist_ok=True)
        fresh = lock.with_name(f"{name}.{os.getpid()}")
        fresh.write_text(text, "utf-8")
        fresh.replace(lock)  # a machine may have several nodes
    environment = replace(locate_environment(lock), resolved=resolved)
    environment.prepare()
    return str(environment.place)


def choose_pip_options(lock: Path) -> list[str]:
    """Return how pip installs a file: one with hashes by them alone, without resolving it again."""
    wanted = [line for line in _split_lines(lock_text(lock)) if not line.startswith("-")]
    if not any("--hash=" in line for line in wanted):
        return []
    return (
        ["--no-deps", "--require-hashes"]
        if all("--hash=" in line for line in wanted)
        else ["--require-hashes"]
    )


def _split_lines(text: str) -> list[str]:
    lines = [line.partition(" #")[0].strip() for line in text.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _lock_of_report(report: Path, text: str) -> str:
    """Return what pip has installed, as requirements; options of the file for its places stay.

    Args:
        report: What pip wrote.
        text: The requirements file.
    """
    others = ("-r", "--requirement", "-c", "--constraint", "-e", "--editable")
    lines = [line for line in _split_lines(text) if line.startswith("-") and not line.startswith(others)]
    found, hashes = [], []
    for each in json.loads(report.read_text("utf-8"))["install"]:
        place = each["download_info"]
        name, version = each["metadata"]["name"], each["metadata"]["version"]
        digest = place.get("archive_info", {}).get("hashes", {}).get("sha256")
        found.append(f"{name} @ {place['url']}" if each.get("is_direct") else f"{name}=={version}")
        hashes.append(f" --hash=sha256:{digest}" if digest else "")
    if not all(hashes):  # pip wants all of them or none
        hashes = [""] * len(found)
    lines += sorted(line + digest for line, digest in zip(found, hashes, strict=True))
    return "\n".join(["# what pip has resolved and installed", *lines, ""])


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def lock_text(lock: Path) -> str:
    """Return what a requirements file says.

    Raises:
        ConfigError: it can't be read, or is not text in UTF-8.
    """
    try:
        return _read_lock(lock).decode("utf-8")
    except UnicodeDecodeError as failure:
        raise ConfigError(
            f"the suite's env {lock}: it is not text in UTF-8 ({failure}); save it as that"
        ) from failure


def _compute_digest(lock: Path) -> str:
    return hashlib.sha256(_read_lock(lock)).hexdigest()


def _read_lock(lock: Path) -> bytes:
    try:
        return lock.read_bytes()
    except OSError as failure:
        raise ConfigError(f"the suite's env {lock}: it can't be read: {failure.strerror}") from failure


def prepare_shipped(say: Say = print) -> None:
    """Build the environment of every suite that comes with this package; ready ones are left as they are.

    Raises:
        ConfigError: one could not be built.
    """
    for lock in list_shipped_locks():
        locate_environment(lock).prepare(say)


def list_shipped_locks() -> list[Path]:
    """Return the locks of the suites that come with this package, sorted."""
    return sorted(LOCKS.glob("*.txt"))


def _mark_in(place: Path) -> dict[str, Any]:
    """Return from what an environment was built; empty if it is unfinished or not a suite's."""
    try:
        mark = parse_json((place / _MARK).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) else {}


def _make_path_variables(prefix: Path) -> dict[str, str]:
    return {"base": str(prefix), "platbase": str(prefix)}


def _find_pip() -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise ConfigError(
            "a suite's environment needs pip: this Python has neither ensurepip nor pip; install one of them"
        )
    return [sys.executable, "-m", "pip"]


def _describe_failure(failure: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(failure, OSError):
        return str(failure)
    said = (failure.stdout or failure.output or "").strip()
    return f"pip ended with exit code {failure.returncode}\n{said[-_TAIL_CHARS:]}"


def _run(command: Sequence[str], folder: Path, held: int) -> None:
    """Run a step of a build; it holds the lock as long as it runs, even if this process is killed."""
    subprocess.run(  # noqa: S603 - this interpreter's pip, fixed words and the owner's file
        command,
        cwd=folder,  # a path in the file starts there
        env={**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        pass_fds=(held,),
    )


def _name_lock(place: Path) -> Path:
    return place.with_name(f".{place.name}.lock")


@contextlib.contextmanager
def _hold_lock(place: Path, say: Say | None) -> Iterator[int]:
    """Hold the lock of an environment's place alone; with ``say``, wait for it.

    Raises:
        BlockingIOError: another process holds it, and this one is not to wait.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_name_lock(place), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as failure:
        raise ConfigError(f"suite environment {place}: its place can't be written: {failure}") from failure
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if say is None:
                raise
            say(f"waiting for another process that builds or uses {place}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
