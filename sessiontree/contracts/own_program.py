"""Command line with which a tool starts a file of its own package; no workspace can redirect it."""

from __future__ import annotations

import sys
from pathlib import Path

from sessiontree.interpreter.import_guard import words_for


def program_words(program: Path, *, packages: bool) -> list[str]:
    """Return the arguments that start a file with the current interpreter.

    The program imports nothing from the working directory, from a directory named by an environment variable,
    or from entries that a program added to ``sys.path``.

    Args:
        program: Absolute path of the file.
        packages: Whether it may import installed packages in addition to the standard library.
    """
    if packages:
        return words_for("-B", str(program))
    return [sys.executable, "-I", "-S", str(program)]
