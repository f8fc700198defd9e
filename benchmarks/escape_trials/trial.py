"""Trying every way out of a command's sandbox; what a limit would end has a command of its own.

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
from sessiontree.contracts.handles.ports import Finished, Shell
from sessiontree.sandbox.commands.command_shell import CommandShell

TIMEOUT_S: Final = 200.0
"""Ends what hangs; a busy machine leaves commands little of its processors."""
KEEP_BYTES: Final = 10_000


async def try_all(shell: Shell, facts: dict[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Make attempts one after another in a shell's workspace; return what came of each.

    One command makes all that no limit ends; each attempt is a process of its own there.

    Args:
        shell: Of the workspace that the facts speak of, hiding what they call hidden.
        facts: What is outside.
        names: Of ``attempts.ATTEMPTS``.
    """
    program = Path(facts["workspace"], "attempts.py")
    shutil.copyfile(attempts.__file__, program)
    words = ["python", "-I", "-S", str(program)]
    told: dict[str, str] = {}
    together = [name for name in names if name not in attempts.MEETING_A_LIMIT]
    alone = [[name] for name in names if name in attempts.MEETING_A_LIMIT]
    for command in filter(None, [together, *alone]):
        text = shlex.join([*words, json.dumps(facts), *command])
        finished = await shell.run(text, workdir=".", env={}, timeout_s=TIMEOUT_S, keep_bytes=KEEP_BYTES)
        told |= _outcomes(finished, command)
    return told


def _outcomes(finished: Finished, names: Sequence[str]) -> dict[str, str]:
    if finished.reason == "exited" and finished.exit_code == 0:
        told: dict[str, str] = json.loads(finished.head)
        return told
    ended = finished.limit or f"{finished.reason} {finished.signal} {finished.head}"
    return dict.fromkeys(names, ended)


def main(facts: dict[str, Any], names: Sequence[str]) -> None:
    """Try and print."""
    hidden = Path(facts["secret"]).parent
    shell = CommandShell(Path(facts["workspace"]), hidden=(hidden,))
    sys.stdout.write(json.dumps(asyncio.run(try_all(shell, facts, names))))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
