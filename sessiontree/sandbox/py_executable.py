"""The words that start Python through the launcher, confined or not, and a check of the jail.

This file builds and quotes the words; ``launcher.py`` reads them, and ``jail.py`` confines the process.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sessiontree.contracts.errors import ConfigError
from sessiontree.interpreter import import_guard
from sessiontree.sandbox import jail as jail_program
from sessiontree.sandbox import launcher
from sessiontree.sandbox.commands.kernel_support import Level

Enforcement = Literal["required", "best_effort"]

RAY_SITE: Final = Path(import_guard.__file__).resolve().with_name("ray_site")
"""The ``PYTHONPATH`` of Ray's own processes, which these words do not start."""
PROBE_TIMEOUT_S: Final = 10.0
_TELL_LEVEL: Final = f"import os; print(os.environ[{jail_program.LEVEL_VARIABLE!r}])"
_OPERATORS: Final = frozenset("();<>|&")


@dataclass(frozen=True, slots=True)
class Jail:
    """What a confined process may reach. Every path is absolute.

    Raises:
        ConfigError: a path is relative, hides everything, is hidden but in a writable directory, or can't be
            written on a command line; or a name is not a variable's.
    """

    hidden: tuple[Path, ...] = ()
    """Files and directories it can't read; they need not exist yet. New entries of a directory on the way to
    one of them are hidden too, so a hidden place should be deep in a directory of its own."""
    readable: tuple[Path, ...] = ()
    """Directories below a hidden one that it may read nevertheless; they must exist."""
    writable: tuple[Path, ...] = ()
    """Directories in which it may make, change and remove files, and single files; they must exist."""
    listed: tuple[Path, ...] = ()
    """Directories it may list although something in them is hidden; hidden names appear, content does not."""
    secrets: tuple[tuple[str, Path], ...] = ()
    """Environment variables, and the files whose text they get, hidden or not. Set variables stay."""
    enforcement: Enforcement = "required"
    """``required``: without Landlock (ABI 3) and seccomp the program does not start. ``best_effort``: it
    starts with what the kernel offers, and its level reports that."""

    def __post_init__(self) -> None:
        """Check every path."""
        secrets = (path for _, path in self.secrets)
        for path in (*self.hidden, *self.readable, *self.writable, *self.listed, *secrets):
            _check_path(path)
        if any(path.resolve() == Path("/") for path in self.hidden):
            raise ConfigError("can't hide '/' from a process: it could not even start")
        for place in self.hidden:
            for path in self.writable:
                if place.resolve().is_relative_to(path.resolve()):
                    raise ConfigError(f"can't hide {str(place)!r}: it is in {str(path)!r}, which is writable")
        for name, _ in self.secrets:
            if not name.isidentifier() or not name.isascii():
                raise ConfigError(f"{name!r} is not a name of an environment variable")


def _check_path(path: Path) -> None:
    if not path.is_absolute():
        raise ConfigError(f"can't confine a process by the relative path {str(path)!r}")
    try:
        text = str(path).encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"can't confine a process by {str(path)!r}: it is not UTF-8") from error
    if b"\0" in text:
        raise ConfigError(f"can't confine a process by {str(path)!r}: it holds a zero byte")


def build_py_executable(  # noqa: PLR0913 - the launcher's options, by keyword
    role: str,
    cwd: Path,
    jail: Jail | None,
    python: str | None = None,
    *,
    reports: Path | None = None,
    note: Path | None = None,
    keep: Sequence[str] | None = None,
    given: Path | None = None,
) -> str:
    """Return shell words that start Python through the launcher; the words of a program may follow them.

    They name launcher and interpreter by absolute paths, so every machine that uses the words needs both
    there.

    Args:
        role: What the process will be.
        cwd: Its working directory.
        jail: What the program may reach; None = it is not confined.
        python: Shell words that start Python, such as a job's own choice; None = this interpreter.
        reports: Directory where a reaper records how many processes it ended; None = no reaper is started.
        note: File where the launcher records the process; None = no file.
        keep: Environment variables it gets in addition to harmless ones; None = it gets all.
        given: File of variables that are set first, for ``keep``; None = no file.

    Raises:
        ConfigError: ``python`` is empty, badly quoted, or more than one command, so that the second one
            would not be confined; or a path can't be written on a command line.
    """
    _check_path(cwd)
    me = [
        "-I",
        "-S",
        launcher.__file__,
        "--role",
        role,
        "--cwd",
        str(cwd),
        *import_guard.list_user_site_words(),
    ]
    first = shlex.join([sys.executable, *me])
    if reports is not None:
        _check_path(reports)
        first = f"{first} {shlex.join(['--reap', str(reports)])}"
    if note is not None:
        _check_path(note)
        first = f"{first} {shlex.join(['--note', str(note)])}"
    if given is not None:
        _check_path(given)
        first = f"{first} {shlex.join(['--given', str(given)])}"
    if keep is not None:
        first = f"{first} {shlex.join(['--keep', ','.join(keep)])}"
    if jail is None and python is None:
        return f"{first} --run"
    own = shlex.quote(sys.executable) if python is None else _check_one_command(python)
    confined = "" if jail is None else f" {shlex.join(['--confine', *_build_options(jail)])}"
    return f"{first}{confined} --exec {own} {shlex.join(me)} --run"


def _build_options(jail: Jail) -> list[str]:
    words = []
    places = {"--hide": jail.hidden, "--read": jail.readable, "--write": jail.writable, "--list": jail.listed}
    for option, paths in places.items():
        for path in paths:
            words += [option, str(path)]
    for name, path in jail.secrets:
        words += ["--secret", f"{name}={path}"]
    if jail.enforcement == "best_effort":
        words.append("--best-effort")
    return words


def _check_one_command(words: str) -> str:
    lexer = shlex.shlex(words, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    try:
        found = list(lexer)
    except ValueError as error:
        raise ConfigError(f"py_executable {words!r} is badly quoted: {error}") from error
    is_simple = not any(sign in words for sign in ("\n", "`", "$(", "#"))
    if not found or not is_simple or any(_OPERATORS.issuperset(word) for word in found if word):
        raise ConfigError(f"py_executable {words!r} must be one command, without operators of the shell")
    return words.strip()


def probe(jail: Jail, python: str | None = None) -> Level:
    """Start a one-line program confined, and return the level that it reports. Blocks for about 0.1 s.

    Raises:
        ConfigError: it did not start, with the launcher's reason; or ``python`` can't be used.
    """
    words = build_py_executable("trial", Path("/"), jail, python)
    line = f"exec {words} -c {shlex.quote(_TELL_LEVEL)}"
    try:
        done = subprocess.run(  # noqa: S603 - every word of ours is quoted, the rest is the job's own
            ["/bin/bash", "-c", line],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"can't start a confined process: {error}") from error
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise ConfigError(f"can't start a confined process: {reason}")
    return Level.parse(done.stdout.decode(errors="replace").strip())
