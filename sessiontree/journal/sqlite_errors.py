"""What SQLite and the system say went wrong, in this library's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sessiontree.contracts.errors import JournalCorrupt, JournalError, JournalLocked, JournalUnwritable

FAULTS = (sqlite3.Error, UnicodeDecodeError)
"""What the driver raises: its own errors, and a decoding error where SQLite quotes altered bytes."""
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
    """Return the error to raise where writing failed."""
    if isinstance(error, OSError):
        return JournalUnwritable(str(path), f"{error.strerror or error}; free the cause and open it again")
    code = _code(error)
    if code in _BUSY:
        return JournalLocked(str(path), f"another process keeps it busy ({error}); end that one")
    if code in _REFUSED:
        return JournalUnwritable(str(path), f"{_REFUSED[code]} ({error}); free the cause and open it again")
    return _corrupt(path, error)


def read_error(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> JournalError:
    """Return the error to raise where reading failed."""
    code = _code(error)
    if code in _BUSY:
        return JournalLocked(str(path), f"another process keeps it busy ({error}); try again")
    if code in _REFUSED and code != sqlite3.SQLITE_IOERR:
        return JournalError(str(path), f"can't read it: {_REFUSED[code]} ({error})")
    return _corrupt(path, error)


@contextmanager
def typed_reads(path: Path) -> Iterator[None]:
    """Turn whatever SQLite raises while reading into a :class:`JournalError`."""
    try:
        yield
    except FAULTS as error:
        raise read_error(path, error) from error


def _code(error: Exception) -> int:
    """Return the primary result code; errors of the driver itself have none and mean odd content."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _corrupt(path: Path, error: Exception) -> JournalCorrupt:
    return JournalCorrupt(str(path), f"the database file is damaged ({error}); restore it from a backup")
