"""Print each word of files that is not plain English, as the test of prose finds it; a hook of commits.

``python -m tests.house.prose_program FILE…`` exits with 1 where it found one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.house.conftest import CHECKOUT
from tests.house.test_prose import findings


def main(*names: str) -> int:
    """Look at files, named from the working directory; return the exit code."""
    found = findings([Path(name).resolve() for name in names], CHECKOUT)
    print(*found, sep="\n", end="\n" if found else "")  # noqa: T201 - what it is for
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
