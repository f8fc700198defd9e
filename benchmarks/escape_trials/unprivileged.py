"""Runs a module of this package as an unprivileged user, where this process is root.

The sandbox of a command confines root and other users by different means, so both are tried.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.escape_trials.outside import EVERYBODYS

NOBODY: Final = 65534
TIMEOUT_S: Final = 300.0
_CHECKOUT: Final = Path(__file__).parents[2]
_SETPRIV: Final = (
    "setpriv",
    "--reuid",
    str(NOBODY),
    "--regid",
    str(NOBODY),
    "--clear-groups",
    "--no-new-privs",
)
_LEFT_OUT: Final = ("site-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3", "config-*")


@contextlib.contextmanager
def words_as_nobody(module: str) -> Iterator[list[str]]:
    """Yield the command that runs a module of this checkout as nobody.

    Where nobody can't read this interpreter or the checkout, the command runs a temporary copy of the
    interpreter with the packages that the module imports. Making the copy takes about a second.
    """
    with tempfile.TemporaryDirectory(prefix="sessiontree-python-", dir=EVERYBODYS) as place:
        folder = Path(place)
        folder.chmod(0o755)
        words = [*_from_checkout(), "-m", module]
        if not _is_reachable(module):
            words = [*_SETPRIV, *_copied(folder, module), "-m", module]
        yield words


def run_as_nobody(words: Sequence[str], *arguments: str) -> str:
    """Run the words of ``words_as_nobody``; return what they print.

    Raises:
        subprocess.CalledProcessError: the program failed.
    """
    done = subprocess.run(
        [*words, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=TIMEOUT_S,
        cwd="/",
        env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.stdout


def _from_checkout() -> list[str]:
    return [*_SETPRIV, "env", f"PYTHONPATH={_CHECKOUT}", sys.executable]


def _is_reachable(module: str) -> bool:
    # The interpreter may start and then find the standard library of another one.
    program = f"import sys, {module}; sys.exit(sys.base_prefix != sys.argv[1])"
    words = [*_from_checkout(), "-c", program, sys.base_prefix]
    done = subprocess.run(words, cwd="/", check=False, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def _copied(folder: Path, module: str) -> list[str]:
    """Copy interpreter, library and what a module imports; return the words that start it."""
    library = Path(sysconfig.get_path("stdlib"))
    real = Path(sys.executable).resolve()
    prefix = folder / "python"
    copy = prefix / library.relative_to(sys.base_prefix)
    shutil.copytree(library, copy, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    (prefix / "bin").mkdir()
    shutil.copy2(real, prefix / "bin" / "python")
    for shared in (Path(sys.base_prefix) / "lib").glob("libpython*"):
        shutil.copy2(shared, prefix / "lib" / shared.name, follow_symlinks=False)
    for package in _imported(module):
        _copy_package(package, copy)
    return [str(prefix / "bin" / "python")]


def _imported(module: str) -> list[Path]:
    """Return the packages and modules, without the standard library's, that a module imports."""
    program = f"""
import sys, {module}
for name, found in list(sys.modules.items()):
    if "." not in name and name not in sys.stdlib_module_names and getattr(found, "__file__", None):
        print(found.__file__)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=_CHECKOUT, capture_output=True, check=True, text=True
    )
    return [Path(line) for line in done.stdout.splitlines()]


def _copy_package(file: Path, into: Path) -> None:
    if file.name == "__init__.py":
        shutil.copytree(file.parent, into / file.parent.name)
    elif file.name != "__main__.py":
        shutil.copy2(file, into / file.name)
