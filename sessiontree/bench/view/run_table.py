"""A run as viewers see it: its rows, what they come to, and what changed since a revision.

Looking again is cheap while nothing happens: the ledger's files are compared, and only rows whose state moved
are read again. A viewer is a revision; it gets the newest form of each changed row once.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

from sessiontree.bench.results.recorded_run import LEDGER, RecordedRun
from sessiontree.bench.view.run_head import RunHead
from sessiontree.bench.view.run_rows import COLUMNS, RunRows
from sessiontree.contracts.values.jsonable import dump_json

FEW: Final = 4
"""If fewer than one row of so many moved, they are read by their samples; otherwise all are."""

Json = dict[str, Any]
Key: TypeAlias = tuple[str, int]
_MOVES: Final = (
    "SELECT sample_id, epoch, state, attempts, lease_id, revision FROM samples ORDER BY position, epoch"
)


class RunTable:
    """The rows of one run, and its head. Any thread may call it, and every method may block.

    Args:
        run: The run.
        number: Its place among the runs that are shown together.

    Raises:
        ConfigError: the ledger can't be read.
    """

    def __init__(self, run: RecordedRun, number: int = 0) -> None:
        self.id = secrets.token_hex(8)
        """Random: a delta of another table is of no use to a viewer."""
        self.run = run
        self.revision = 0
        self._number = number
        self._lock = threading.Lock()
        self._making = RunRows(run, run.counts().total)
        self._head = RunHead(run)
        self._keys: list[Key] = []
        self._rows: list[list[Any]] = []
        self._changed: list[int] = []
        """By row the revision of its last change."""
        self._places: dict[Key, int] = {}
        self._moves: dict[Key, tuple[Any, ...]] = {}
        """By (sample, epoch) what in the ledger says that its row is another one."""
        self._seen: tuple[Any, ...] = ()
        self.refresh()

    def refresh(self) -> bool:
        """Read what changed in the ledger; return whether anything did.

        Raises:
            ConfigError: the ledger can't be read.
        """
        with self._lock:
            seen = _compute_signature(self.run.run_dir)
            moved = self._read_moved() if seen != self._seen else []
            self._seen = seen
            if not self._head.refresh(is_moved=bool(moved)):
                return False
            self.revision += 1
            for place in moved:
                self._changed[place] = self.revision
            return True

    def head(self) -> Json:
        """Return what the run is and comes to."""
        return {"number": self._number, **self._head.to_json(self._making.names)}

    def snapshot(self) -> Json:
        """Return the whole run; its rows are those of the table, not copies."""
        with self._lock:
            return {**self._make_news("snapshot"), "columns": COLUMNS, "rows": self._rows}

    def dump_changes(self, feed: str, revision: int) -> str:
        """Return what changed since a revision as JSON text; a snapshot if the revision is unknown here."""
        if feed != self.id or not 0 < revision <= self.revision:
            return dump_json(self.snapshot())
        with self._lock:
            rows = [[place, self._rows[place]] for place, at in enumerate(self._changed) if at > revision]
            return dump_json({**self._make_news("delta"), "from": revision, "rows": rows})

    def find_key(self, place: object) -> Key | None:
        """Return the (sample, epoch) of a row by its number; None for an unknown number."""
        is_place = isinstance(place, int) and not isinstance(place, bool) and 0 <= place < len(self._keys)
        return self._keys[place] if is_place and isinstance(place, int) else None

    def keys(self) -> list[Key]:
        """Return the (sample, epoch) of all rows, in their order."""
        return list(self._keys)

    def place_of(self, key: Key) -> int | None:
        """Return the number of a row; None for an unknown key."""
        return self._places.get(key)

    def _make_news(self, kind: str) -> Json:
        return {"kind": kind, "feed": self.id, "revision": self.revision, "head": self.head()}

    def _read_moved(self) -> list[int]:
        """Read rows whose state moved; return their numbers."""
        moves = {(str(row[0]), int(row[1])): tuple(row[2:]) for row in self.run.read_rows(_MOVES)}
        moved = {key for key, move in moves.items() if self._moves.get(key) != move}
        self._moves = moves
        if not moved:
            return []
        is_few = len(moved) * FEW < len(moves)
        found = self._making.read(sorted({key[0] for key in moved}) if is_few else None)
        return list(self._put(found, moved))

    def _put(self, found: Iterable[tuple[Key, list[Any]]], moved: set[Key]) -> Iterable[int]:
        for key, row in found:
            if key not in moved:
                continue
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = len(self._rows)
                self._keys.append(key)
                self._rows.append(row)
                self._changed.append(0)
                self._head.count(key[0], None, row)
            else:
                self._head.count(key[0], self._rows[place], row)
                self._rows[place] = row
            yield place


def _compute_signature(run_dir: Path) -> tuple[Any, ...]:
    """Return what differs after a commit to the ledger."""
    found = []
    for name in (LEDGER, f"{LEDGER}-wal"):
        try:
            stat = (run_dir / name).stat()
        except OSError:
            found.append((0, 0))
            continue
        found.append((stat.st_mtime_ns, stat.st_size))
    return tuple(found)
