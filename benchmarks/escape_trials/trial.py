"""Trying every way out of a command's sandbox, each in a command of its own.

``python -m benchmarks.escape_trials.trial FACTS NAME …`` does it as whoever starts it and prints one JSON
object, name to outcome: ``succeeded``, an errno's name, ``signal N``, or the limit that ended it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.escape_trials import attempts
from sessiontree.contracts.ports import Finished, Shell
from sessiontree.sandbox.command_shell import CommandShell

TIMEOUT_S: Final = 20.0
KEEP_BYTES: Final = 10_000


async def try_all(shell: Shell, facts: dict[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Make attempts one after another in a shell's workspace; return what came of each.

    Args:
        shell: Of the workspace that the facts speak of, hiding what they call hidden.
        facts: What is outside.
        names: Of ``attempts.ATTEMPTS``.
    """
    program = Path(facts["workspace"], "attempts.py")
    shutil.copyfile(attempts.__file__, program)
    words = ["python", "-I", "-S", str(program)]
    told = {}
    for name in names:
        command = shlex.join([*words, name, json.dumps(facts)])
        told[name] = _outcome(
            await shell.run(command, workdir=".", env={}, timeout_s=TIMEOUT_S, keep_bytes=KEEP_BYTES)
        )
    return told


def _outcome(finished: Finished) -> str:
    if finished.reason == "exited" and finished.exit_code == 0:
        return finished.head
    if finished.limit is not None:
        return finished.limit
    return finished.head if finished.reason == "exited" else f"{finished.reason} {finished.signal}"


def main(facts: dict[str, Any], names: Sequence[str]) -> None:
    """Try and print."""
    hidden = Path(facts["secret"]).parent
    shell = CommandShell(Path(facts["workspace"]), hidden=(hidden,))
    sys.stdout.write(json.dumps(asyncio.run(try_all(shell, facts, names))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
