"""A program with a private Ray: confined actors in it are asked to work and to break out.

Argument: an empty directory of its own, with a short path. Prints what came of it as one JSON object.
Ray reads its way of authentication from the environment when it is imported, so whoever starts this sets it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
from ray._private import worker as ray_worker

from sessiontree.sandbox import (
    Jail,
    build_py_executable,
    prepare_canaries,
    read_level_in_force,
    run_self_test,
)
from sessiontree.sandbox.self_test import collect_traces
from sessiontree.sandbox.write_probes import try_all

BIG = 5_000_000
PATIENCE_S = 90.0


class Inmate:
    """An async actor as a host of sessions is one."""

    def __init__(self) -> None:
        """Make a thread early."""
        self._ready = ThreadPoolExecutor(1)
        self._ready.submit(os.getpid).result()

    async def tell(self) -> tuple[int, str]:
        """Return this process's id and level."""
        return os.getpid(), str(read_level_in_force())

    async def test_itself(self, folder: str) -> list[str]:
        """Return the faults of the self-test, made on the event loop's thread."""
        return run_self_test(Path(folder), self._ready).faults()

    async def try_in_a_thread(self, folder: str) -> list[str]:
        """Return the outcomes of all attempts from one of asyncio's threads."""
        return sorted(set((await asyncio.to_thread(try_all, Path(folder))).values()))

    async def read(self, path: str) -> str:
        """Return a file's text, or the name of the error."""
        try:
            return Path(path).read_text("utf-8")  # noqa: ASYNC240 - a short file, and the loop's thread is meant
        except OSError as error:
            return type(error).__name__

    async def give(self, size: int) -> bytes:
        """Return so many bytes, which travel through shared memory."""
        return b"x" * size

    async def keep(self) -> int:
        """Put an object into the store, and read it again."""
        return len(ray.get(ray.put(b"y" * 300_000)))

    async def log(self, folder: str) -> str:
        """Write among the logs."""
        (Path(folder) / "of-the-inmate").write_text("a line", "utf-8")
        return (Path(folder) / "of-the-inmate").read_text("utf-8")

    async def have_a_child(self) -> tuple[int, str]:
        """Return what an actor started from here tells."""
        child: Any = ray.remote(Inmate).options(num_cpus=0).remote()
        told: tuple[int, str] = await child.tell.remote()
        ray.kill(child)
        return told


def get(reference: Any) -> Any:
    """Wait for an answer, not for ever."""
    return ray.get(reference, timeout=PATIENCE_S)


def start(words: str) -> Any:
    """Start an actor by these words for Python; returns it once it has answered."""
    options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0}
    actor: Any = ray.remote(Inmate).options(runtime_env={"py_executable": words}, **options).remote()
    get(actor.tell.remote())
    return actor


def told_after_a_kill(actor: Any) -> tuple[bool, str]:
    """Kill an actor's process; returns whether another one answers, and its level."""
    before, _ = get(actor.tell.remote())
    os.kill(before, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            after, level = get(actor.tell.remote())
        except ray.exceptions.RayActorError:
            if time.monotonic() > deadline:
                raise
            continue
        return after != before, level


def observe(home: Path, logs: Path) -> dict[str, Any]:
    """Start confined actors and a free one, and ask them for everything."""
    victims = {name: home / name for name in ("victims", "thread-victims", "free-victims")}
    prepared = {name: prepare_canaries(folder) for name, folder in victims.items()}
    token, state = home / "token", home / "state"
    jail = Jail(hidden=(state, token), writable=(logs,), secrets=(("RAY_AUTH_TOKEN", token),))
    words = build_py_executable("inmate", home, jail)
    inmate = start(words)
    found: dict[str, Any] = {
        "level": get(inmate.tell.remote())[1],
        "journal": get(inmate.read.remote(str(state / "journal"))),
        "token": get(inmate.read.remote(str(token))),
        "beside": get(inmate.read.remote(str(home / "beside"))),
        "given": len(get(inmate.give.remote(BIG))),
        "kept": get(inmate.keep.remote()),
        "logged": get(inmate.log.remote(str(logs))),
        "faults": get(inmate.test_itself.remote(str(victims["victims"]))),
        "in a thread": get(inmate.try_in_a_thread.remote(str(victims["thread-victims"]))),
        "child's level": get(inmate.have_a_child.remote())[1],
        "after a kill": told_after_a_kill(inmate),
        "faults after a kill": get(inmate.test_itself.remote(str(victims["victims"]))),
    }
    found["untouched"] = [
        collect_traces(victims[name]) == prepared[name] for name in ("victims", "thread-victims")
    ]
    free = start(sys.executable)
    found["faults of a free actor"] = get(free.test_itself.remote(str(victims["free-victims"])))
    return found


def main(home: Path) -> None:
    """Start Ray, observe, and end it with all its processes."""
    (home / "state").mkdir()
    for name in ("state/journal", "beside", "token"):
        (home / name).write_text("ab" * 32, "utf-8")
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=128 * 2**20,
        _temp_dir=str(home / "r"),
    )
    node: Any = ray_worker._global_node
    try:
        found = observe(home, Path(node.get_logs_dir_path()))
    finally:
        ray.shutdown(wait_for_processes=True)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
