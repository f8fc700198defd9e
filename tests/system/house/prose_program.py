"""Print each word of files that is not plain English, as the test of prose finds it; a hook of commits.

``python -m tests.system.house.prose_program FILE…`` names files of the checkout; it exits with 1 if it found
any.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.system.house.conftest import CHECKOUT
from tests.system.house.test_prose import findings


def main(*names: str, checkout: Path = CHECKOUT) -> int:
    """Look at files of a checkout; return the exit code."""
    found = findings([checkout / name for name in names], checkout)
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
