"""One process of an eval set: a definition with a document of the protocol, on this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sessiontree.bench.inspect_sets.set_documents import CAPTURE, SELECTION
from sessiontree.contracts.values.quick_dataclass import dataclass

START: Final = Path(__file__).with_name("definition_start.py")
"""Started by its path, so that a definition waits for no imports of this package."""
TAIL_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a process is to run. All paths are absolute, and the same on every node."""

    definition: Path
    """A Python file that calls ``eval_set()``."""
    folder: Path
    """The working directory; tasks are named after it."""
    variable: str
    """``CAPTURE`` or ``SELECTION``."""
    document: Path
    """The document that the variable names."""
    output: Path
    """Where it prints."""

    def command(self) -> list[str]:
        """Return the command line; this process is the one that it ends with."""
        return [sys.executable, str(START), str(os.getpid()), str(self.definition)]

    def build_variables(self) -> Mapping[str, str]:
        """Return its environment."""
        others = {name: value for name, value in os.environ.items() if name not in {CAPTURE, SELECTION}}
        return {**others, self.variable: str(self.document), "INSPECT_DISPLAY": "plain"}

    def read_tail(self) -> str:
        """Return the end of what it has printed."""
        try:
            return self.output.read_text("utf-8", "replace")[-TAIL_CHARS:].strip()
        except OSError as error:
            return f"(its output can't be read: {error.strerror})"


async def run_here(order: WorkerOrder) -> int:
    """Run it to its end; return its exit code. A cancelled call kills it."""
    with order.output.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *order.command(),
            cwd=order.folder,
            env=order.build_variables(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def run_on_node(order: WorkerOrder) -> int:
    """Run it to its end in a process of a cluster; return its exit code. Blocks."""
    if not order.document.parent.is_dir():
        raise FileNotFoundError(
            f"{str(order.document.parent)!r} is not on this node; give a --log-dir that every node mounts"
        )
    with order.output.open("wb") as out:
        return subprocess.run(  # noqa: S603 - this interpreter and the owner's definition
            order.command(),
            cwd=order.folder,
            env=order.build_variables(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
