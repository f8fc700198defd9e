"""Steps and edges on the disk, until the trajectories that they belong to are written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

from sessiontree.api.trajectories.semantic_edges import SemanticEdge

_SCHEMA: Final = (
    """CREATE TABLE steps (
        session TEXT, number INTEGER, body BLOB, PRIMARY KEY (session, number)
    ) WITHOUT ROWID""",
    "CREATE TABLE edges (number INTEGER PRIMARY KEY, body BLOB)",
)


class StepSpool:
    """A nameless temporary database, which SQLite keeps in memory only as far as its cache goes."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.execute("PRAGMA journal_mode = OFF")
        for statement in _SCHEMA:
            self._rows.execute(statement)
        self._rows.execute("BEGIN")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what it holds."""
        self._rows.close()

    def put(self, session: str, number: int, step: dict[str, Any]) -> None:
        """Keep a step of a session; steps may come in any order."""
        self._rows.execute("INSERT INTO steps VALUES (?, ?, ?)", (session, number, to_bytes(step)))

    def put_edge(self, edge: SemanticEdge) -> None:
        """Keep an edge."""
        self._rows.execute("INSERT INTO edges (body) VALUES (?)", (to_bytes(edge._asdict()),))

    def read_steps(self, session: str) -> Iterator[bytes]:
        """Yield a session's steps as JSON, by number."""
        found = self._rows.execute("SELECT body FROM steps WHERE session = ? ORDER BY number", (session,))
        return (body for (body,) in found)

    def read_edges(self) -> Iterator[bytes]:
        """Yield the edges as JSON, in the order in which they came."""
        return (body for (body,) in self._rows.execute("SELECT body FROM edges ORDER BY number"))


def to_bytes(value: Any) -> bytes:
    """Return a value as JSON in UTF-8; half of a surrogate pair becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8", "replace"
    )
