"""A program in another process that keeps a tree open, and what waits there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.control.client import ControlClient
from sessiontree.journal.replay import read_fact
from sessiontree.runtime.transport.supervisor_api import MAX_READ_WAIT_S
from tests.system.cli.command_fixtures import MAX_S, read_until
from tests.system.forked_fixtures import Forked, open_forked


@dataclass(frozen=True, slots=True)
class Errands:
    """A program that keeps a tree open until its Main ends; see :mod:`tests.unit.control.tree_program`."""

    process: Forked
    state_dir: Path
    tree_id: str

    def hear(self, *words: str) -> str:
        """Read what the program says up to the line that holds all words, and return that line."""
        return read_until(self.process.stdout, words).splitlines()[-1]

    def end(self) -> str:
        """Return what it says until it ends."""
        assert self.process.stdout is not None
        rest = self.process.stdout.read().decode()
        assert self.process.wait(MAX_S) == 0
        return rest

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def waiting(self, count: int = 1) -> list[ApprovalRequest]:
        """Wait until so many requests wait for a person, durably, and return them."""
        return asyncio.run(self._waiting(count))

    async def _waiting(self, count: int) -> list[ApprovalRequest]:
        seq = 0
        durable: set[str] = set()
        async with await ControlClient.connect(self.state_dir) as client, asyncio.timeout(MAX_S):
            while True:
                pending = await client.supervisor.pending(self.tree_id)
                if len(pending) == count and durable >= {request.request_id for request in pending}:
                    return pending
                for record in await client.supervisor.read_tree(self.tree_id, seq, MAX_READ_WAIT_S):
                    seq = record.seq
                    fact = read_fact(record.text)
                    if isinstance(fact, ApprovalWaiting):
                        durable.add(fact.request_id)


@contextmanager
def errands(home: Path, *messages: str) -> Iterator[Errands]:
    """Start the program over a workspace and a state directory below ``home``, and wait until it is open."""
    workspace, state_dir = home / "workspace", home / "journal"
    workspace.mkdir(exist_ok=True)
    running = open_forked("tests.unit.control.tree_program", workspace, state_dir, *messages, stderr=2)
    with running as process:
        try:
            opened = read_until(process.stdout, ("open ",))
            yield Errands(process, state_dir, opened.split()[1])
        finally:
            process.kill()
