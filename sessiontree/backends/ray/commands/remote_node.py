"""What the actors of this runtime on other nodes share: options, comparisons with the program, a watcher."""

from __future__ import annotations

import asyncio
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

import ray

from sessiontree.backends.ray.engine import engine_home
from sessiontree.contracts.errors import describe_error
from sessiontree.version import VERSION
from sessiontree.workspace.identity import DirectoryView, explain_difference, look_at_directory

ANSWER_S: Final = 15.0
AGENT_OPTIONS: Final[dict[str, Any]] = {
    "num_cpus": 0,
    "max_restarts": 0,
    "max_task_retries": 0,
    "max_concurrency": 1000,
}


def release() -> tuple[str, str, str]:
    """Return the releases of sessiontree, Python and Ray in this process."""
    return (VERSION, platform.python_version(), ray.__version__)


def compare_releases(wanted: tuple[str, str, str]) -> str | None:
    """Return which releases of this process differ from those of the creating program; None = none."""
    names = ("sessiontree", "Python", "Ray")
    found = zip(names, wanted, release(), strict=True)
    return (
        "; ".join(f"{name} {there} instead of {here}" for name, here, there in found if here != there) or None
    )


async def look_at(workspace: Path, entries: bool) -> DirectoryView | str:
    """Return what this machine sees of a workspace, or why it sees none."""
    try:
        return await asyncio.to_thread(look_at_directory, workspace, entries=entries)
    except OSError as error:
        return f"no such directory can be read there: {describe_error(error)}"


async def compare_workspace(workspace: Path, agent: Any) -> str | None:
    """Return why a path leads to another directory on an agent's node; None = it is the same one.

    Raises:
        RayError: the agent is gone.
    """

    async def look(entries: bool) -> DirectoryView | str:
        try:
            async with asyncio.timeout(ANSWER_S):
                seen: DirectoryView | str = await agent.look.remote(workspace, entries)
        except TimeoutError:
            return f"the node did not answer within {ANSWER_S:g} s"
        return seen

    return await explain_difference(workspace, look)


def start_watch(scratch: Path) -> None:
    """Start the process that removes the directory when this one has ended, however it ends.

    It is not a child of this process: Ray ends the children of its workers.
    """
    subprocess.run(  # noqa: S603 - fixed words, and this package's own file
        ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *engine_home.watch_command(scratch)],
        cwd="/",
        start_new_session=True,
        check=True,
    )
