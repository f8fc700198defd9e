"""How long a person waits: from a cold ``sessiontree run`` to the first request that its model gets.

The command runs in a process of its own, with a state directory of its own; nothing of it runs before. The
model is a fake provider on loopback, in this process: the time of its first request is when it arrives here.

- `local_ms`, `ray_ms`: from the start of the command to that request, by backend; medians.
- `local_line_ms`, `ray_line_ms`: to its first line on the terminal instead, which says that the tree is open.
- `local_least_ms`, `ray_least_ms`: the shortest time to the request: a busy machine only adds to it.
- `python_ms`: an interpreter of the same environment that ends at once; `help_ms`: ``sessiontree --help``.
- `ray_init_ms`: a private Ray without anything of this project: from nothing to a plain actor's first answer
  and the end of its process.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from benchmarks.places import places
from benchmarks.report import Options, read_options, show
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest

COMMAND: Final = (sys.executable, "-m", "sessiontree.cli")
PLAIN_RAY: Final = """
import ray
ray.init(include_dashboard=False, log_to_driver=False, num_cpus=1)
@ray.remote(num_cpus=0)
class Plain:
    def answer(self):
        return 1
ray.get(Plain.remote().answer.remote())
"""


async def measure_start(backend: str) -> tuple[float, float]:
    """Return the milliseconds from a command's start to its model's first request, and to its first line."""
    arrived: list[float] = []

    def answer(request: FakeRequest) -> FakeReply:
        arrived.append(time.perf_counter())
        return FakeReply("Done.")

    with places() as (workspace, state):
        async with FakeProvider(answer) as provider:
            environment = {
                **os.environ,
                "OPENAI_API_KEY": "fake-key",
                "OPENAI_BASE_URL": provider.url("openai-chat"),
                "HOME": str(state),
            }
            words = (
                "run",
                "--model",
                "openai:gpt-4o-mini",
                "--backend",
                backend,
                "--workspace",
                str(workspace),
            )
            started = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                *words,
                "--state-dir",
                str(state / "trees"),
                "Say that you are done.",
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert process.stdout is not None
            said = await process.stdout.readline()
            shown = time.perf_counter()
            said += await process.stdout.read()
            await process.wait()
    if not arrived:
        raise RuntimeError(f"the model was asked nothing: {said.decode()}")
    return (arrived[0] - started) * 1e3, (shown - started) * 1e3


def run_ms(words: Sequence[str]) -> float:
    """Return the milliseconds that a command takes."""
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1e3


async def measure(options: Options) -> dict[str, float]:
    """Return the figures."""
    times = 2 if options.quick else 7
    taken: dict[str, list[float]] = {}
    for _ in range(times):
        for backend in ("local", "ray"):
            request_ms, line_ms = await measure_start(backend)
            taken.setdefault(f"{backend}_ms", []).append(request_ms)
            taken.setdefault(f"{backend}_line_ms", []).append(line_ms)
        taken.setdefault("python_ms", []).append(run_ms([sys.executable, "-c", "pass"]))
        taken.setdefault("help_ms", []).append(run_ms([*COMMAND, "--help"]))
        taken.setdefault("ray_init_ms", []).append(run_ms([sys.executable, "-c", PLAIN_RAY]))
    least = {f"{backend}_least_ms": min(taken[f"{backend}_ms"]) for backend in ("local", "ray")}
    return {**{name: statistics.median(each) for name, each in taken.items()}, **least}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(asyncio.run(measure(options)), options)


if __name__ == "__main__":
    main()
