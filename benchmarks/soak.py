"""What a long conversation with many sessions costs in memory and time on Ray, from its beginning to its end.

A program sends 20,000 messages to one Main and has it hold 2,000 Workers, one after each ten messages; each
Worker answers and ends. The model answers at once. Memory is the proportional set size (PSS) of every process
of the runtime, by kind, read from ``smaps_rollup`` after the first twentieth of the messages, when caches and
hosts are there, and after the last one.

- `growth_KIND_mib`: how much the processes of a kind grew in between: ``program``, ``supervisor``,
  ``acting`` and ``observing`` (hosts), ``gcs_server``, ``raylet``, ``agent`` (of runtime environments).
- `beyond_KIND_percent`: the same in percent of what they held before; of the host that holds the
  conversation, and of the supervisor and the program, without the bytes of the transcript.
- `transcript_mib`: texts of the facts of Main between both readings.
- `p50_first_ms`, `p50_last_ms`: from ``send`` to the reply, in the first and in the last tenth.
- `messages`, `sessions`, `wall_s`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.places import places
from benchmarks.processes import MIB, measured, pss_bytes
from benchmarks.report import Figure, Options, percentile, read_options, show
from sessiontree import FunctionModel, ModelRequest, Runtime, SessionTree
from sessiontree.backends.ray.backend import RayBackend
from sessiontree.journal.journal import Journal

MESSAGES, QUICK_MESSAGES = 20_000, 100
PER_SESSION: Final = 10
"""Messages for each session that is spawned."""
WARM_UP: Final = 20
"""The first of so many parts of the messages comes before memory is read."""
HOLD_TRANSCRIPT = ("program", "supervisor", "acting")


def reply(request: ModelRequest) -> str:
    """Answer at once."""
    return f"answer to turn {request.turn}"


async def soak(options: Options) -> Mapping[str, Figure]:
    """Run it, and return the figures."""
    messages = QUICK_MESSAGES if options.quick else MESSAGES
    with places() as (workspace, state):
        async with (
            Runtime(state) as runtime,
            SessionTree(workspace, model=FunctionModel(reply), runtime=runtime) as tree,
        ):
            backend = runtime.backend
            assert isinstance(backend, RayBackend)
            began, times_ms, sessions = time.monotonic(), list[float](), 0
            before, seq_before = Counter[str](), 0
            for number in range(messages):
                sent = time.monotonic()
                await tree.main.send(f"message {number}")
                times_ms.append((time.monotonic() - sent) * 1000)
                if number % PER_SESSION == PER_SESSION - 1:
                    worker = await tree.main.spawn("worker", f"look at {number}")
                    await worker.result()
                    sessions += 1
                if number + 1 == messages // WARM_UP:
                    before, seq_before = (
                        await measured(runtime, pss_bytes),
                        await backend.supervisor.last_seq(tree.tree_id),
                    )
            wall_s = time.monotonic() - began
            after = await measured(runtime, pss_bytes)
            tree_id = tree.tree_id
        transcript = bytes_of_main(state, tree_id, seq_before)
    tenth = messages // 10
    figures: dict[str, Figure] = {
        "messages": messages,
        "sessions": sessions,
        "transcript_mib": transcript / MIB,
        "p50_first_ms": percentile(times_ms[:tenth], 50),
        "p50_last_ms": percentile(times_ms[-tenth:], 50),
        "wall_s": wall_s,
    }
    for kind in sorted(after):
        growth = after[kind] - before[kind]
        figures[f"growth_{kind}_mib"] = growth / MIB
        beyond = growth - transcript if kind in HOLD_TRANSCRIPT else growth
        figures[f"beyond_{kind}_percent"] = 100 * beyond / before[kind] if before[kind] else 0.0
    return figures


def bytes_of_main(state: Path, tree_id: str, after_seq: int) -> int:
    """Return how long the texts of Main's facts after a number are together."""
    total = 0
    with Journal.open(state, read_only=True) as journal:
        while records := journal.read_session(tree_id, "main", after_seq=after_seq, max_n=1_000):
            total += sum(len(record.text.encode()) for record in records)
            after_seq = records[-1].seq
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    options = read_options(f"{(__doc__ or '').splitlines()[0]}", arguments)
    show(asyncio.run(soak(options)), options)


if __name__ == "__main__":
    main()
