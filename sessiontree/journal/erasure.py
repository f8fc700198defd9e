"""Taking trees out of a journal for good."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from sessiontree.journal.blobs import BlobStore
from sessiontree.journal.tables import without_waiting

_DIGEST = re.compile("[0-9a-f]{64}")
_TABLES = ("segments", "touched", "heads", "blob_uses", "snapshots", "quarantine", "trees")


def erase_trees(connection: sqlite3.Connection, blobs: BlobStore, tree_ids: Sequence[str]) -> None:
    """Delete everything of some trees in one transaction, then the blobs no other tree uses.

    The bytes are overwritten in the database and gone from its log, unless a reader holds on to that: then
    with the first commit after it lets go. Where SQLite moved a row within its page before, the page may keep
    the row's first few hundred bytes in a part it does not use, until it uses that; VACUUM takes them out.

    Raises:
        sqlite3.Error: nothing was deleted.
        OSError: the trees are gone, some of their blobs remain.
    """
    unused: set[str] = set()
    connection.execute("BEGIN IMMEDIATE")
    try:
        for tree_id in tree_ids:
            unused.update(_digests(connection, "SELECT digest FROM blob_uses WHERE tree_id = ?", tree_id))
        for tree_id in tree_ids:
            for table in _TABLES:
                connection.execute(f"DELETE FROM {table} WHERE tree_id = ?", (tree_id,))  # noqa: S608 - constants
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    unused.difference_update(_digests(connection, "SELECT DISTINCT digest FROM blob_uses"))
    blobs.remove(unused)
    empty_log(connection)


def empty_log(connection: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the database; False where a reader held on to it, which is no harm.

    Emptied, not only moved: a log that repeats what the database already has could, if it were cut,
    put old pages beside new ones.
    """
    with without_waiting(connection):
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return not busy


def _digests(connection: sqlite3.Connection, statement: str, *values: str) -> list[str]:
    """Return blob names; what is none, in a damaged file, is left out."""
    names = [str(row[0]) for row in connection.execute(statement, values).fetchall()]
    return [name for name in names if _DIGEST.fullmatch(name)]
