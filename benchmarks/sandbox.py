"""How long a confined command takes to start, and how many ways out of its sandbox are closed.

- `start_p50_ms`, `start_p95_ms`: from asking for a command to its first own instruction, on an otherwise idle
  loop: bubblewrap's namespaces, the launcher's interpreter, Landlock, the filter of calls. The command tells
  the kernel's clock by itself. `bare_p50_ms`: the same shell command without a sandbox.
- `whole_p50_ms`: from asking for `true` to its result, with everything it started gone.
- `attempts`: ways out that are tried (`--quick`: one in five), each in a command of its own; `blocked_root`,
  `blocked_user`: how many were refused with nothing outside changed, as root and as nobody. Who is not root
  tries as itself alone, then `blocked_root` is 0.

The times are taken in turn, one of each after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.escape_trials.attempts import ATTEMPTS, SUCCEEDED
from benchmarks.escape_trials.outside import Outside, outside
from benchmarks.escape_trials.trial import try_all
from benchmarks.escape_trials.unprivileged import NOBODY, run_as_nobody, words_as_nobody
from benchmarks.report import Options, percentile, read_options, show
from sessiontree.sandbox import CommandShell

TRIAL = "benchmarks.escape_trials.trial"
TIMEOUT_S = 30.0
QUICK_STEP = 5


async def started_ms(shell: CommandShell) -> float:
    """Return the milliseconds from asking to the command's own first moment."""
    asked = time.time()
    finished = await shell.run("echo $EPOCHREALTIME", timeout_s=TIMEOUT_S)
    return (float(finished.head) - asked) * 1e3


async def whole_ms(shell: CommandShell) -> float:
    """Return the milliseconds that ``true`` takes."""
    asked = time.perf_counter()
    await shell.run("true", timeout_s=TIMEOUT_S)
    return (time.perf_counter() - asked) * 1e3


def bare_ms() -> float:
    """Return the milliseconds a shell takes to its first moment without a sandbox."""
    asked = time.time()
    done = subprocess.run(["/bin/bash", "-c", "echo $EPOCHREALTIME"], capture_output=True, check=True)
    return (float(done.stdout) - asked) * 1e3


async def measure_times(shell: CommandShell, rounds: int) -> dict[str, float]:
    """Return the figures of time."""
    started, whole, bare = [], [], []
    await shell.run("true", timeout_s=TIMEOUT_S)
    for _ in range(rounds):
        started.append(await started_ms(shell))
        whole.append(await whole_ms(shell))
        bare.append(bare_ms())
    return {
        "start_p50_ms": statistics.median(started),
        "start_p95_ms": percentile(started, 95),
        "whole_p50_ms": statistics.median(whole),
        "bare_p50_ms": statistics.median(bare),
    }


def blocked(place: Outside, told: Mapping[str, str]) -> int:
    """Return how many attempts were refused; none where something outside changed."""
    if changes := place.changes():
        print("changed outside:", *changes, sep="\n", file=sys.stderr)
        return 0
    return sum(outcome != SUCCEEDED for outcome in told.values())


def as_oneself(names: Sequence[str]) -> int:
    """Return how many of these attempts are refused as this user."""
    with outside() as place:
        shell = CommandShell(place.workspace, hidden=(place.hidden,))
        return blocked(place, asyncio.run(try_all(shell, place.facts, names)))


def as_nobody(names: Sequence[str]) -> int:
    """Return how many of these attempts are refused as nobody."""
    with outside(NOBODY) as place, words_as_nobody(TRIAL) as words:
        return blocked(place, json.loads(run_as_nobody(words, json.dumps(place.facts), *names)))


def measure(options: Options) -> dict[str, float]:
    """Return the figures."""
    with outside() as place:
        shell = CommandShell(Path(place.workspace))
        figures = asyncio.run(measure_times(shell, 5 if options.quick else 200))
    is_root = os.geteuid() == 0
    names = list(ATTEMPTS)[:: QUICK_STEP if options.quick else 1]
    own = as_oneself(names)
    return {
        **figures,
        "attempts": len(names),
        "blocked_root": own if is_root else 0,
        "blocked_user": as_nobody(names) if is_root else own,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(measure(options), options)


if __name__ == "__main__":
    main()
