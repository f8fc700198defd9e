"""The first step of the command line: it restarts itself so that nothing is imported from a workspace.

Installers start a command with an interpreter that obeys ``PYTHONPATH`` and ``.pth`` files.
"""

from __future__ import annotations

import gc
import os
import sys

from sessiontree.interpreter.import_guard import build_command, is_closed


def main() -> None:
    """Run the command line in a closed interpreter: this very process, with the same arguments."""
    if not is_closed():
        words = build_command(os.path.abspath(sys.argv[0]), *sys.argv[1:])  # noqa: PTH100 - links stay as they are
        os.execv(words[0], words)  # noqa: S606 - this interpreter, and our own file
    gc.disable()  # imports leave no garbage; a command that runs enables it
    from sessiontree.cli import app

    app.main()


if __name__ == "__main__":
    main()
