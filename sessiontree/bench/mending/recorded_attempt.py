"""A recorded attempt: what a run has kept of an attempt, for scorers that judge it again.

Output, workspace and facts are there as far as they were kept. What is gone raises an error that says so, so
that no scorer takes a lost file for a wrong answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn, cast

from sessiontree import JournalRecord, SessionTreeError
from sessiontree.api.stored.transcript import TranscriptStep, build_transcript
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.suite.suite import Attempt, Sample


class RecordedTree:
    """The tree of an attempt that is over: its facts and its transcript, and nothing else.

    Args:
        run_dir: The run's directory.
        tree_id: The tree.
    """

    def __init__(self, run_dir: Path, tree_id: str) -> None:
        self._run_dir = run_dir
        self.tree_id = tree_id

    async def events(self, *, after: int = 0) -> AsyncIterator[JournalRecord]:
        """Yield the facts of the tree after a number, as an open tree does.

        Raises:
            JournalError: they can't be read.
        """
        for record in await asyncio.to_thread(self._read):
            if record.seq > after:
                yield record

    async def transcript(self) -> list[TranscriptStep]:
        """Return what its sessions were sent, replied, called and got back.

        Raises:
            JournalError: its facts can't be read.
        """
        return list(build_transcript(await asyncio.to_thread(self._read)))

    def _read(self) -> list[JournalRecord]:
        with RunFacts(self._run_dir) as facts:
            return list(facts.read(self.tree_id))

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what only an open tree can do."""
        raise SessionTreeError(
            f"attempt.tree.{name}: the tree is over; a new scoring can read its events() and transcript()"
        )


class _Missing:
    """Stands for something that was not kept: whatever is done with it raises."""

    def __init__(self, said: str) -> None:
        object.__setattr__(self, "_said", said)

    def _refuse(self, *_: object) -> NoReturn:
        raise SessionTreeError(object.__getattribute__(self, "_said"))

    __getattr__ = __getitem__ = __setitem__ = __contains__ = __iter__ = __len__ = _refuse
    __truediv__ = __fspath__ = __str__ = _refuse


def restore_attempt(
    suite: str,
    sample: Sample,
    epoch: int,
    *,
    run_dir: Path,
    workspace: Path | None,
    tree_id: str,
    output: str,
) -> Attempt[Any]:
    """Return an attempt as scorers get it, made of what a run has kept.

    Args:
        suite: Name of the suite.
        sample: The sample.
        epoch: Which repetition of it.
        run_dir: The run's directory.
        workspace: A copy of its workspace; None = it was not kept.
        tree_id: Its tree; empty = none was opened.
        output: What the solver returned, as JSON.
    """
    place: Any = workspace
    if workspace is None:
        place = _Missing("attempt.workspace was not kept; a run keeps all of them with --keep all")
    attempt: Attempt[Any] = Attempt(
        suite,
        sample,
        epoch,
        0,
        workspace=place,
        model=None,
        runtime=cast("Any", _Missing("attempt.runtime: a new scoring opens no runtime")),
        run_dir=run_dir,
    )
    attempt.state = cast("Any", _Missing("attempt.state holds objects of the attempt, which no run keeps"))
    attempt.output = json.loads(output)
    tree: Any = RecordedTree(run_dir, tree_id) if tree_id else _Missing("attempt.tree: no tree was opened")
    attempt.attach(tree)
    return attempt
