"""How long an idle session takes to wake on another host of Ray, with a short and with a long transcript.

Three Branches of one tree share two hosts, so that a message to the one that has been idle longest wakes it
on a host that was somebody else's: the process id shows that it is not the session's last. The clock starts
in the program, right before ``send``, and stops in the first line of the session's next turn, in its model's
``reply``; all processes of one machine share the clock. Between them: the call to the supervisor, the release
of the session that was there, and the adoption with its facts.

- `wake_2kb_us`, `wake_100kb_us`: with a message of 2 kB and of 100 kB in the transcript; `wake_2kb_ratio`,
  `wake_100kb_ratio`: over `raw_rpc_us`.
- `resident_us`, `resident_ratio`: the same message to a session that is on its host already.
- `raw_rpc_us`: ``await actor.method.remote()`` on a plain async actor of the same Ray, from this program.

All are taken in turn, medians of the rounds' medians.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence

from benchmarks.places import places
from benchmarks.raw_actor import RawActors
from benchmarks.report import Options, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import AssistantMessage, Limits, ModelRequest, Runtime, SessionHandle, SessionTree
from sessiontree.contracts.values.messages import TextContent

HOSTS = 2
BRANCHES = HOSTS + 1
SIZES = {"2kb": 2_000, "100kb": 100_000}
PATIENCE_S = 20.0


class FirstLine:
    """Answers with the time at which it was asked, and the process it was asked in."""

    name = "first-line"

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return both as JSON."""
        asked_ns = time.monotonic_ns()
        return AssistantMessage((TextContent(json.dumps([asked_ns, os.getpid()])),))


class Circle:
    """Branches that take turns on fewer hosts; each holds a message of one size."""

    def __init__(self, branches: list[SessionHandle]) -> None:
        """Begin with the first of them."""
        self._branches = branches
        self._next = 0
        self._pids: dict[str, int] = {}

    async def turn_us(self, branch: SessionHandle) -> tuple[float, bool]:
        """Return the microseconds to a session's turn, and whether its process is another one than before."""
        started_ns = time.monotonic_ns()
        asked_ns, pid = json.loads(await branch.send("And now?"))
        before = self._pids.get(branch.session_id)
        self._pids[branch.session_id] = pid
        return (asked_ns - started_ns) / 1e3, before not in {None, pid}

    async def wake_us(self) -> tuple[float, float]:
        """Return the microseconds to a turn on another host, and of one more on that host.

        Raises:
            RuntimeError: for a long time every session was on its host, or did not stay there.
        """
        ends_s = time.monotonic() + PATIENCE_S  # the second host may still be starting
        while time.monotonic() < ends_s:
            branch = self._branches[self._next % len(self._branches)]
            self._next += 1
            taken_us, is_elsewhere = await self.turn_us(branch)
            again_us, has_moved = await self.turn_us(branch)
            if is_elsewhere and not has_moved:
                return taken_us, again_us
        raise RuntimeError("no session was woken on another host")


async def open_circle(tree: SessionTree, size: int) -> Circle:
    """Spawn Branches that each hold a message of so many bytes."""
    branches = [await tree.main.spawn("branch", "x" * size) for _ in range(BRANCHES)]
    circle = Circle(branches)
    for branch in branches:
        await circle.turn_us(branch)
    return circle


async def measure(options: Options) -> dict[str, float]:
    """Return the figures."""
    rounds, each = (2, 3) if options.quick else (9, 10)
    taken = Rounds()
    limits = Limits(branch_ttl_s=None)
    with places() as (workspace, state):
        async with Runtime(state, slots=HOSTS) as runtime, RawActors() as raw:
            for _ in range(rounds):
                taken.begin()
                for name, size in SIZES.items():
                    tree = SessionTree(
                        workspace, model=FirstLine(), builtin_tools=False, limits=limits, runtime=runtime
                    )
                    async with tree:
                        circle = await open_circle(tree, size)
                        await circle.wake_us()
                        for _ in range(each):
                            taken.add("raw_rpc_us", await raw.call_us())
                            wake_us, resident_us = await circle.wake_us()
                            taken.add(f"wake_{name}_us", wake_us)
                            taken.add(f"resident_{name}_us", resident_us)
    raw_rpc_us, resident_us = taken.median("raw_rpc_us"), taken.median("resident_2kb_us")
    wakes = {name: taken.median(f"wake_{name}_us") for name in SIZES}
    return {
        "raw_rpc_us": raw_rpc_us,
        "resident_us": resident_us,
        "resident_ratio": resident_us / raw_rpc_us,
        **{f"wake_{name}_us": wake_us for name, wake_us in wakes.items()},
        **{f"wake_{name}_ratio": wake_us / raw_rpc_us for name, wake_us in wakes.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()
