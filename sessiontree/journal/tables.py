"""The tables of a journal, connections to them, and what SQLite's errors mean.

``segments`` is the truth; ``touched`` (where the chunks of each session are), ``heads`` (the last segment)
and ``blob_uses`` can be rebuilt from it. ``quarantine`` keeps what was cut off.

The writer inserts into ``intake``, a view of its own connection whose triggers fill the tables. A whole
commit is then one statement, and the writer thread waits for the interpreter once, not once per statement.
While an event loop is busy, each wait takes a switch interval.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessiontree.contracts.errors import (
    JournalCorrupt,
    JournalError,
    JournalLocked,
    JournalTooNew,
    JournalUnwritable,
)

FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""What the driver raises: its own errors, and a decoding error if SQLite quotes altered bytes."""
_REFUSED = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed",
    sqlite3.SQLITE_READONLY: "it may not be written",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened",
    sqlite3.SQLITE_PERM: "access is not permitted",
    sqlite3.SQLITE_NOMEM: "memory ran out",
}
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def write_error(path: Path, error: sqlite3.Error | UnicodeDecodeError | OSError) -> JournalError:
    """Return the error to raise after a failed write."""
    if isinstance(error, OSError):
        return JournalUnwritable(str(path), f"{error.strerror or error}; remove the cause and open it again")
    code = _get_code(error)
    if code in _BUSY:
        return JournalLocked(str(path), f"another process keeps it busy ({error}); end that process")
    if code in _REFUSED:
        return JournalUnwritable(str(path), f"{_REFUSED[code]} ({error}); remove the cause and open it again")
    return _make_corrupt_error(path, error)


def read_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> JournalError:
    """Return the error to raise after a failed read."""
    code = _get_code(error)
    if code in _BUSY:
        return JournalLocked(str(path), f"another process keeps it busy ({error}); try again")
    if code in _REFUSED and code != sqlite3.SQLITE_IOERR:
        return JournalError(str(path), f"can't read it: {_REFUSED[code]} ({error})")
    return _make_corrupt_error(path, error)


@contextmanager
def convert_read_errors(path: Path) -> Iterator[None]:
    """Turn the errors that SQLite raises while reading into :class:`JournalError`."""
    try:
        yield
    except FAULTS as error:
        raise read_error(path, error) from error


def _get_code(error: Exception) -> int:
    """Return the primary result code; errors of the driver itself have no code and mean damaged content."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _make_corrupt_error(path: Path, error: Exception) -> JournalCorrupt:
    return JournalCorrupt(str(path), f"the database file is damaged ({error}); restore it from a backup")


SCHEMA_VERSION = 1
_APPLICATION_ID = 0x73747265
_PAGE_BYTES = 4096
_BUSY_TIMEOUT_S = 5.0

_TABLES = {
    "trees": """CREATE TABLE trees(
        tree_id TEXT PRIMARY KEY NOT NULL, created_ms INTEGER NOT NULL, row0 TEXT NOT NULL, hash BLOB NOT NULL
    )""",
    "segments": """CREATE TABLE segments(
        tree_id TEXT NOT NULL, n INTEGER NOT NULL, first_seq INTEGER NOT NULL, count INTEGER NOT NULL,
        prev_hash BLOB NOT NULL, hash BLOB NOT NULL, body BLOB NOT NULL, PRIMARY KEY(tree_id, n)
    )""",
    "touched": """CREATE TABLE touched(
        tree_id TEXT NOT NULL, session TEXT NOT NULL, n INTEGER NOT NULL,
        offset INTEGER NOT NULL, length INTEGER NOT NULL, PRIMARY KEY(tree_id, session, n)
    ) WITHOUT ROWID""",
    "heads": """CREATE TABLE heads(
        tree_id TEXT PRIMARY KEY NOT NULL, n INTEGER NOT NULL, seq INTEGER NOT NULL,
        written_ms INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "blob_uses": """CREATE TABLE blob_uses(
        digest TEXT NOT NULL, tree_id TEXT NOT NULL, PRIMARY KEY(digest, tree_id)
    ) WITHOUT ROWID""",
    "quarantine": """CREATE TABLE quarantine(
        tree_id TEXT NOT NULL, n INTEGER NOT NULL, first_seq INTEGER, count INTEGER, prev_hash BLOB,
        hash BLOB, body BLOB, found_ms INTEGER NOT NULL, reason TEXT NOT NULL
    )""",
}

INTAKE_COLUMNS = "kind, tree_id, n, first_seq, count, prev_hash, hash, body, at_ms, touched, blobs"
"""One row is a tree (its row 0 in ``body``) or a segment."""
_INTAKE = (
    f"CREATE TEMP VIEW intake({INTAKE_COLUMNS}) AS SELECT "
    + ", ".join("NULL" for _ in INTAKE_COLUMNS.split(", ")),
    """CREATE TEMP TRIGGER intake_tree INSTEAD OF INSERT ON intake WHEN new.kind = 'tree' BEGIN
        INSERT INTO trees VALUES (new.tree_id, new.at_ms, new.body, new.hash);
        INSERT INTO heads VALUES (new.tree_id, 0, 0, new.at_ms);
    END""",
    """CREATE TEMP TRIGGER intake_segment INSTEAD OF INSERT ON intake WHEN new.kind = 'segment' BEGIN
        INSERT INTO segments VALUES (
            new.tree_id, new.n, new.first_seq, new.count, new.prev_hash, new.hash, new.body);
        INSERT INTO touched SELECT new.tree_id, json_extract(value, '$[0]'), new.n,
            json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(new.touched);
        INSERT INTO heads VALUES (new.tree_id, new.n, new.first_seq + new.count - 1, new.at_ms)
            ON CONFLICT(tree_id) DO UPDATE SET n = excluded.n, seq = excluded.seq,
                written_ms = excluded.written_ms;
        INSERT OR IGNORE INTO blob_uses SELECT value, new.tree_id FROM json_each(new.blobs);
    END""",
)


def check_header(header: bytes, path: Path) -> None:
    """Check the first 100 bytes of a database file before SQLite sees it.

    SQLite deletes or overwrites the log of a file with a damaged header, and that log may hold everything
    that can still be saved.

    Raises:
        JournalCorrupt, JournalTooNew: it is not a journal that this release can read.
    """
    starts = header.startswith(b"SQLite format 3\0" + _PAGE_BYTES.to_bytes(2, "big") + b"\2\2")
    if not starts or int.from_bytes(header[68:72], "big") != _APPLICATION_ID:
        raise JournalCorrupt(
            str(path), "it is not a journal, or its header is damaged; restore it from a backup"
        )
    _check_version(int.from_bytes(header[60:64], "big"), path)


def create_tables(path: Path) -> None:
    """Turn an empty file into a journal without trees; on return everything is in that one file, durable.

    No other process opens the file before that, so SQLite needs no log here; one sync at the end is enough.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode=MEMORY")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.values():
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def connect_writer(path: Path) -> sqlite3.Connection:
    """Open the one connection that writes. A statement without a BEGIN before it commits by itself.

    Raises:
        sqlite3.Error: the file can't be opened or is not a database.
        JournalCorrupt, JournalTooNew: it is a database, but not a journal that this release can read.
    """
    connection = _connect(path, "mode=rw", "wal")
    try:
        # With NORMAL, a commit that was acknowledged could be lost in a power failure. Without autocheckpoint
        # no commit has to wait while SQLite empties the log; the writer empties it when nothing waits. Erased
        # bytes are overwritten because of secure_delete.
        for pragma in ("synchronous=FULL", "wal_autocheckpoint=0", "temp_store=MEMORY", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        for statement in _INTAKE:
            connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that only reads; raises as :func:`connect_writer` does.

    If the directory is read-only and holds no log of an open writer, the file is read as an immutable
    file.
    """
    try:
        return _connect(path, "mode=ro", "wal")
    except sqlite3.OperationalError:
        # An immutable read ignores the log, and would miss the commits in it.
        if get_log_path(path).exists() and get_log_path(path).stat().st_size > 0:
            raise
        return _connect(path, "mode=ro&immutable=1", "delete")  # the mode SQLite then reports


@contextmanager
def disable_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Let statements fail at once if another connection holds a lock they need."""
    connection.execute("PRAGMA busy_timeout=0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout={int(_BUSY_TIMEOUT_S * 1000)}")


def get_log_path(path: Path) -> Path:
    """Return the path of a database's write-ahead log."""
    return path.with_name(f"{path.name}-wal")


def _connect(path: Path, query: str, expected_mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=_BUSY_TIMEOUT_S,
        # The driver would begin transactions by itself, in places that this room does not choose.
        isolation_level=None,
        # Readers share a connection under their lock; the writer's is opened by one thread and used by
        # another.
        check_same_thread=False,
        # A commit's statement has one form for each number of rows, up to 400; each is compiled once.
        cached_statements=512,
    )
    try:
        connection.text_factory = _decode_leniently
        # The file may come from anywhere: its tables must not call functions with effects, and a damaged page
        # must raise an error when it is read.
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        _check_tables(connection, path, expected_mode)
    except BaseException:
        connection.close()
        raise
    return connection


def _decode_leniently(data: bytes) -> str:
    """Decode altered bytes too: they must reach the checks above and not fail in the driver."""
    return data.decode("utf-8", "replace")


def _check_version(version: int, path: Path) -> None:
    if version > SCHEMA_VERSION:
        raise JournalTooNew(
            str(path), f"it has schema {version}, this release knows {SCHEMA_VERSION}; use a later release"
        )


def _check_tables(connection: sqlite3.Connection, path: Path, expected_mode: str) -> None:
    names = ("application_id", "user_version", "journal_mode")
    connection.execute("BEGIN")  # all of these statements see one state of the file
    application, version, mode = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    if application != _APPLICATION_ID:
        raise JournalCorrupt(
            str(path), "it is not a journal, or its header is damaged; restore it from a backup"
        )
    _check_version(version, path)
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    connection.execute("COMMIT")
    if mode != expected_mode or version != SCHEMA_VERSION or found != _TABLES:
        raise JournalCorrupt(str(path), "its header or its tables are damaged; restore it from a backup")
