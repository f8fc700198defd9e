"""How a tool starts a file of its own package as a program: by words that no workspace can turn elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

from sessiontree.interpreter.import_guard import words_for


def program_words(program: Path, *, packages: bool) -> list[str]:
    """Return the words that start a file with the interpreter that runs us.

    Nothing it imports comes from the working directory, a variable or what a program put on its path.

    Args:
        program: Absolute path of the file.
        packages: Whether it may import what is installed, beside the standard library.
    """
    if packages:
        return words_for("-B", str(program))
    return [sys.executable, "-I", "-S", str(program)]
