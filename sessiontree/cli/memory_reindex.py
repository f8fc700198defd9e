"""Memory's embedder, changed: what ``sessiontree memory reindex`` does."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

from sessiontree.cli.memory_place import MemoryPlace, embedder_named
from sessiontree.cli.plural import counted
from sessiontree.cli.screen import RichScreen
from sessiontree.contracts.jsonable import dump_json
from sessiontree.memory.reindex import reindex as reindex_store


def reindex(
    screen: RichScreen,
    *,
    embedder: str,
    workspace: Path | None,
    state_dir: Path | None,
    uri: str | None,
    as_json: bool,
) -> int:
    """Embed all records anew, and return the exit code; until all are, the store stays as it is.

    With ``as_json`` one object: ``uri``, ``records``, ``before`` and ``after`` (identities of embedders).

    Raises:
        ConfigError: an option is wrong, or the embedder can't be made.
        MemoryLocked: a runtime writes the store.
        MemoryFailed: there is none, or the embedder failed.
    """
    place = MemoryPlace.of(workspace, state_dir, uri)
    done = asyncio.run(reindex_store(place.uri, embedder_named(embedder)))
    if as_json:
        screen.raw(dump_json({"uri": place.uri, **asdict(done)}))
    else:
        records = counted(done.records, "record")
        screen.line(f"{records} in {place.uri} embedded by {done.after}, before by {done.before}")
    return 0
