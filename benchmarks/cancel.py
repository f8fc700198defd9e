"""What is left, and how long it takes, when a tree of stubborn sessions is cancelled.

On Ray every session has its tools start processes that do what they can to stay (``stubborn.py``: daemons by
double fork in a session of their own with an empty environment, processes that ignore every signal, that fork
on and on, that are started as somebody else's children). Some sessions hold their hosts meanwhile: by a
coroutine that ignores its cancellation, by a thread, or by a command of `exec` that does not heed its end and
forks into sessions of its own. The others wait for an approval that nobody gives; their processes ended when
they left their hosts. With ``--backend local`` every session holds on by such a command, all at once.

The clock starts in ``tree.cancel()`` and stops when it returns; processes are counted right before and right
after, before the tree is closed, by a mark that each carries as the name it was started by.

- `processes`: processes of tools and commands that ran when the clock started.
- `survivors`: those that were still there; must be 0.
- `forced`: sessions that did not wrap up within the grace; `ended_leftovers`: processes that receipts count.
- `wall_s`: the whole; `after_grace_s`: what of it lay behind the grace of `grace_s`; aim 2 s.
- `cpu_s`: processor time of this process meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
import uuid
from pathlib import Path

from benchmarks import stubborn
from benchmarks.places import places
from benchmarks.report import Options, read_options, show
from sessiontree import (
    AssistantMessage,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    Runtime,
    SessionHandle,
    SessionKind,
    SessionTree,
    script_call,
    tool,
)
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.models.answers import Answer

ARRIVE_S = 300.0
HOLD_S = 120.0
HOLDS = ("coroutine", "thread", "exec")
GRACE_S = 3.0
"""Shorter than the 5 s that a call gets to heed its cancellation: sessions have to be ended by force."""
SHELL_COMMAND = (
    "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep 5; done' {mark} &"
    " sh -c 'trap \"\" TERM INT HUP; while :; do sleep 5; done' {mark}"
)
COMMAND = "trap '' TERM; setsid sh -c '({python} -c \"{deaf}\" {mark} &) &'; {python} -c \"{deaf}\" {mark}"
DEAF = "import signal; signal.signal(15, 1); signal.pause()"


@tool(tier=PermissionTier.WORKSPACE)
def leave(program: str, kind: str, mark: str) -> str:
    """Leave stubborn processes running.

    Args:
        program: What starts them.
        kind: Which.
        mark: What they carry.
    """
    subprocess.Popen([sys.executable, "-I", "-S", program, kind, mark])
    return "left"


@tool(tier=PermissionTier.WORKSPACE)
async def hold_a_coroutine(seconds: float) -> str:
    """Go on, whoever says stop.

    Args:
        seconds: How long.
    """
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1.0)
    return "held"


@tool(tier=PermissionTier.WORKSPACE)
def hold_a_thread(seconds: float) -> str:
    """Sleep in a thread.

    Args:
        seconds: How long.
    """
    subprocess.run(["/bin/sleep", str(seconds)], check=False)
    return "held"


@tool(tier=PermissionTier.ELEVATED)
def permitted() -> str:
    """Do what nobody permits."""
    return "done"


def reply(request: ModelRequest) -> Answer:
    """Leave processes first, then hold the host or wait for a person, as the task says."""
    task = next(each for each in request.messages if isinstance(each, UserMessage)).text.split()
    if request.kind is SessionKind.MAIN:
        return "here"
    program, kind, mark, hold = task
    if hold == "shell":
        return script_call("exec", command=SHELL_COMMAND.format(mark=mark))
    if not any(isinstance(each, ToolResultMessage) for each in request.messages):
        return script_call("leave", program=program, kind=kind, mark=mark)
    match hold:
        case "coroutine":
            return script_call("hold_a_coroutine", seconds=HOLD_S)
        case "thread":
            return script_call("hold_a_thread", seconds=HOLD_S)
        case "exec":
            return script_call("exec", command=COMMAND.format(python="python3", deaf=DEAF, mark=mark))
        case _:
            return script_call("permitted")


def marked(mark: str) -> list[int]:
    """Return the processes that were started under a name that begins with a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if any(word.startswith(mark.encode()) for word in words):
                found.append(int(folder.name))
    return found


async def measure(options: Options) -> dict[str, float]:
    """Return the figures."""
    sessions, is_local = options.sessions, options.backend == "local"
    slots = sessions + 1 if is_local else min(16, max(4, sessions // 4))
    holding = sessions if is_local else slots * 3 // 4
    mark = f"stubborn-{uuid.uuid4().hex}"
    kinds = [kind for kind in stubborn.KINDS if kind not in stubborn.BUSY]
    limits = Limits(max_children=sessions, max_live=sessions + 1, cancel_grace_s=GRACE_S)
    with places() as (workspace, state):
        async with (
            Runtime(state, backend="local" if is_local else "ray", slots=slots) as runtime,
            SessionTree(
                workspace,
                model=FunctionModel(reply),
                tools=(leave, hold_a_coroutine, hold_a_thread, permitted),
                limits=limits,
                runtime=runtime,
            ) as tree,
        ):
            for number in range(sessions):
                # Those who wait for a person come first: those who hold their hosts give none back.
                waits = number < sessions - holding
                hold = "person" if waits else "shell" if is_local else HOLDS[number % len(HOLDS)]
                task = f"{stubborn.__file__} {kinds[number % len(kinds)]} {mark}-{number}. {hold}"
                await tree.main.spawn(SessionKind.BRANCH, task)
                if waits and number == sessions - holding - 1:
                    await _until_waiting(tree, number + 1)
            if is_local:
                await _until_running(mark, 2 * sessions)
            else:
                await _until_held(tree, range(sessions - holding, sessions))
            processes = len(marked(mark))
            started, cpu_s = time.perf_counter(), time.process_time()
            receipt = await tree.cancel()
            wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
            survivors = len(marked(mark))
    return {
        "sessions": len(receipt) - 1,
        "processes": processes,
        "survivors": survivors,
        "forced": sum(line.forced for line in receipt),
        "ended_leftovers": sum(line.leftovers for line in receipt),
        "grace_s": GRACE_S,
        "wall_s": wall_s,
        "after_grace_s": max(0.0, wall_s - GRACE_S),
        "cpu_s": cpu_s,
    }


async def _until_running(mark: str, count: int) -> None:
    async with asyncio.timeout(ARRIVE_S):
        while len(await asyncio.to_thread(marked, mark)) < count:  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.5)


async def _until_waiting(tree: SessionTree, count: int) -> None:
    async with asyncio.timeout(ARRIVE_S):
        while len(tree.approvals.pending()) < count:  # noqa: ASYNC110 - it is asked about from here alone
            await asyncio.sleep(0.1)


async def _until_held(tree: SessionTree, numbers: range) -> None:
    """Wait until each of these sessions has made its second call."""
    async with asyncio.timeout(ARRIVE_S):
        for number in numbers:
            session = tree.session(f"main/b{number + 1}")
            while _turns(session) < 2:  # noqa: ASYNC110 - it is asked about from here alone
                await asyncio.sleep(0.1)


def _turns(session: SessionHandle) -> int:
    return sum(isinstance(message, AssistantMessage) for message in session.history())


def main() -> None:
    """Measure and print; exit code 1 if anything survived."""
    about = __doc__.splitlines()[0] if __doc__ else ""
    options = read_options(about, backends=("ray", "local"), sessions=(200, 10))
    figures = asyncio.run(measure(options))
    show(figures, options)
    sys.exit(bool(figures["survivors"]))


if __name__ == "__main__":
    main()
