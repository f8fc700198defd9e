"""Programs that use an engine and come to different ends.

Run as ``python -m tests.system.backends.ray.engine_program MODE``. It prints a line of JSON when it is as
far as that goes.

- ``wait``: an actor with a child of its own and one in a session of its own; then it waits. A line on its
  standard input makes it call the actor and print the answer.
- ``raise`` and ``exit``: the same, then it fails, or just ends, without closing.
- ``linger``: like ``exit``, with an actor that is stopped: Ray kills it before it ends what it started.
- ``frozen FAILURES``: like ``wait``, in a Ray started with the engine's arguments, but a fiftieth of its
  periods and as many failures as are given; an answer that does not come is reported as null.
- ``share``: engines that start at once, end one by one, and what each of them left of the process.
- ``join``: an engine in a Ray of the program's own, and in none after it.
- ``nobody``: an engine asked twice to join a Ray at an address where nobody answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ray

from sessiontree.backends.ray.engine import engine_home
from sessiontree.backends.ray.engine.engine import RayConnection
from sessiontree.backends.ray.engine.engine_settings import build_init_arguments
from sessiontree.contracts.errors import ConfigError


class Sleeper:
    """An actor that starts programs which outlive it if they are let."""

    def __init__(self) -> None:
        self._calls = 0
        self._children: list[subprocess.Popen[bytes]] = []

    def launch(self) -> list[int]:
        """Start one child as usual and one that turned away from everything it was given."""
        self._children = [
            subprocess.Popen(["sleep", "1000"]),
            subprocess.Popen(["sleep", "1000"], start_new_session=True, env={}, stdout=-3, stderr=-3),
        ]
        return [child.pid for child in self._children]

    def pid(self) -> int:
        """Return the id of its process."""
        return os.getpid()

    def count(self) -> int:
        """Return how often this was asked."""
        self._calls += 1
        return self._calls

    def niceness(self) -> int:
        """Return how far its process steps back for others."""
        return os.nice(0)

    def umask(self) -> int:
        """Return the mode bits that files made here lose."""
        mask = os.umask(0)
        os.umask(mask)
        return mask


def sleeper(engine: RayConnection) -> Any:
    """Return an actor on the engine's node."""
    remote: Any = ray.remote(Sleeper)
    return remote.options(num_cpus=0, scheduling_strategy=engine.pin_to_node()).remote()


def tell(**words: object) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def wait(mode: str) -> None:
    """Start, say so, and come to the mode's end."""
    engine = RayConnection(num_cpus=1)
    await engine.start()
    actor = sleeper(engine)
    tell(home=str(engine.home), nodes=[engine.node_id], children=await actor.launch.remote())
    if mode == "linger":
        os.kill(await actor.pid.remote(), signal.SIGSTOP)
    if mode == "raise":
        raise RuntimeError("as asked")
    asked = await lines()
    while mode == "wait" and await asked.readline():
        tell(count=await asyncio.wait_for(actor.count.remote(), 60))


async def lines() -> asyncio.StreamReader:
    """Return the standard input."""
    asked = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    return asked


async def frozen(failures: int) -> None:
    """Count on, whatever happens to the raylet, or say that it is over."""
    arguments = build_init_arguments(Path(os.environ["OWN_RAY"]), 1)
    arguments["_system_config"] |= {
        "health_check_initial_delay_ms": 100,
        "health_check_period_ms": 60,
        "health_check_timeout_ms": 200,
        "health_check_failure_threshold": failures,
    }
    ray.init(**arguments)
    actor: Any = ray.remote(num_cpus=0)(Sleeper).remote()
    tell(count=await actor.count.remote())
    asked = await lines()
    while await asked.readline():
        try:
            count = await asyncio.wait_for(actor.count.remote(), 20)
        except (ray.exceptions.RayError, TimeoutError):
            count = None
        tell(count=count)


def surroundings() -> dict[str, Any]:
    """Return what a start might change of this process."""
    return {
        "environment": dict(os.environ),
        "handlers": [id(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)],
        "umask": Sleeper().umask(),
    }


async def share() -> None:
    """Start three engines at once, end them one by one, start again."""
    before = surroundings()
    engines = [RayConnection(num_cpus=1), RayConnection(), RayConnection()]
    async with asyncio.TaskGroup() as group:
        for engine in engines:
            group.create_task(engine.start())
    actor = sleeper(engines[0])
    told: dict[str, Any] = {
        "nodes": sorted({engine.node_id for engine in engines}),
        "cores": [engine.core_count for engine in engines],
        "home": str(engines[0].home),
        "logs_inside": engines[0].logs_dir.is_relative_to(engines[0].home or "nowhere"),
        "changed": [name for name, value in surroundings().items() if value != before[name]],
        "worker_umask": await actor.umask.remote(),
        "umask": before["umask"],
        "worker_niceness": await actor.niceness.remote(),
        "niceness": os.nice(0),
        "security": engines[0].describe_security(),
    }
    try:
        await RayConnection(num_cpus=7).start()
    except ConfigError as error:
        told["refused"] = str(error)
    await engines[0].close()
    await engines[2].close()
    told["count_after_two_closed"] = await actor.count.remote()
    home = engines[1].home
    await engines[1].close()
    told["left"] = _left(home)
    await engines[0].start()
    told["count_after_restart"] = await sleeper(engines[0]).count.remote()
    told["new_home"] = engines[0].home != home
    await engines[0].close()
    tell(**told)


def _left(home: Path | None) -> list[str]:
    assert home is not None
    left = [str(process) for process in engine_home.find_processes(home)]
    return [*left, str(home)] if home.exists() else left


async def join() -> None:
    """Join the program's own Ray, let go of it, do without it, and let the program have its own again."""
    own_ray: dict[str, Any] = {
        "address": "local",
        "num_cpus": 1,
        "include_dashboard": False,
        "log_to_driver": False,
        "namespace": "mine",
        "_temp_dir": os.environ["OWN_RAY"],
    }
    ray.init(**own_ray)
    before = surroundings()
    own = RayConnection()
    await own.start()
    actor = sleeper(own)
    told: dict[str, Any] = {"private": own.home is not None, "node_fits": own.node_id == _node_id()}
    told["cores"] = own.core_count
    told["token"] = str(own.token_path)
    told["open"] = bool(own.describe_security()["listening"])
    told["refused"] = []
    for options in ({"num_cpus": 1}, {"address": "192.0.2.1:6379"}):
        try:
            await RayConnection(**options).start()
        except ConfigError as error:
            told["refused"].append(str(error))
    await own.close()
    told["count_after_close"] = await actor.count.remote()
    told["namespace"] = ray.get_runtime_context().namespace
    told["changed"] = [name for name, value in surroundings().items() if value != before[name]]
    ray.shutdown()
    await own.start()
    told["private_then"] = own.home is not None
    await own.close()
    ray.init(**own_ray)
    again = RayConnection()
    await again.start()
    told["count_in_own_again"] = await sleeper(again).count.remote()
    ray.shutdown()
    tell(**told)


async def nobody() -> None:
    """Ask twice for a Ray that is not there."""
    refused = []
    for _ in range(2):
        try:
            await RayConnection(address="127.0.0.1:9").start()
        except ConfigError as error:
            refused.append(str(error))
    tell(refused=refused)


def _node_id() -> str:
    node_id: str = ray.get_runtime_context().get_node_id()
    return node_id


def main(mode: str, *rest: str) -> None:
    """Run one mode."""
    if mode == "share":
        asyncio.run(share())
    elif mode == "join":
        asyncio.run(join())
    elif mode == "nobody":
        asyncio.run(nobody())
    elif mode == "frozen":
        asyncio.run(frozen(int(rest[0])))
    else:
        asyncio.run(wait(mode))


if __name__ == "__main__":
    main(*sys.argv[1:])
