"""Failures of LanceDB and of the system, as errors of this library.

LanceDB raises plain RuntimeError, OSError or ValueError; only their text says what happened.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sessiontree.contracts.errors import MemoryFailed

FAULTS = (RuntimeError, OSError, ValueError)
"""What LanceDB raises; Arrow's own errors are subclasses."""

_PANIC: Final = "RustPanic"
"""Name of the class of LanceDB's panics, which no module exports."""
_SYSTEM: Final = re.compile(r"os error (\d+)")
_REFUSED: Final = frozenset(
    (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
)
_SHORT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_GONE: Final = re.compile(r"not found|no such file|was not found|does not exist", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?!file:)\w+://")
_LONGEST = 300


@contextmanager
def convert_write_errors(place: str) -> Iterator[None]:
    """Turn what LanceDB raises during a write into a :class:`MemoryFailed`."""
    try:
        yield
    except Exception as error:
        if not _is_fault(error):
            raise
        raise write_error(place, error) from error


@contextmanager
def convert_read_errors(place: str) -> Iterator[None]:
    """Turn what LanceDB raises during a read into a :class:`MemoryFailed`."""
    try:
        yield
    except Exception as error:
        if not _is_fault(error):
            raise
        raise read_error(place, error) from error


@contextmanager
def convert_search_errors(place: str) -> Iterator[None]:
    """As :func:`convert_read_errors`, but a ValueError does not mean damage: the query may be invalid."""
    try:
        yield
    except Exception as error:
        if not _is_fault(error):
            raise
        raise (search_error if isinstance(error, ValueError) else read_error)(place, error) from error


def _is_fault(error: Exception) -> bool:
    return isinstance(error, FAULTS) or type(error).__name__ == _PANIC


def search_error(place: str, error: Exception) -> MemoryFailed:
    """Return the error to raise when LanceDB refused a search."""
    what_next = "use other words; if every search fails, run `sessiontree memory reindex`"
    return MemoryFailed(place, f"this search was refused ({_shorten_error(error)}); {what_next}")


def write_error(place: str, error: Exception) -> MemoryFailed:
    """Return the error to raise when a write failed."""
    number = _number(error)
    if number in _REFUSED | _SHORT:
        return MemoryFailed(place, f"{os.strerror(number)}; remove the cause and try again", "unwritable")
    if number == errno.ENOENT or _GONE.search(str(error)):
        return _build_gone_error(place, error)
    return MemoryFailed(
        place, f"a write failed ({_shorten_error(error)}); nothing of it was acknowledged", "unwritable"
    )


def read_error(place: str, error: Exception) -> MemoryFailed:
    """Return the error to raise when a read failed."""
    number = _number(error)
    if number in (errno.EACCES, errno.EPERM) or number in _SHORT:
        return MemoryFailed(place, f"can't read it: {os.strerror(number)}")
    if number == errno.ENOENT or _GONE.search(str(error)):
        return _build_gone_error(place, error)
    if _ADDRESS.match(place):  # a refusal by a service or the network is not damage
        reason = (
            f"can't read it ({_shorten_error(error)}); check the address, the access rights and the network"
        )
        return MemoryFailed(place, reason)
    return MemoryFailed(
        place, f"its files are damaged ({_shorten_error(error)}); restore it from an export", "corrupt"
    )


def _build_gone_error(place: str, error: Exception) -> MemoryFailed:
    return MemoryFailed(
        place, f"some of its files are gone ({_shorten_error(error)}); restore it from an export", "corrupt"
    )


def refuse_embedder(place: str, stored: str, given: str) -> MemoryFailed:
    """Return the error of a store whose vectors another embedder made.

    Args:
        place: Path or address of the store.
        stored: Identity of the embedder that made them.
        given: Identity of the embedder that the store was opened with.
    """
    reason = (
        f"its vectors were made by embedder {stored!r} and {given!r} was given; open it with the former,"
        " or make new ones with `sessiontree memory reindex`"
    )
    return MemoryFailed(place, reason, "embedder")


def _number(error: Exception) -> int:
    """Return the system's error number, 0 if it has none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    found = _SYSTEM.search(str(error))
    return int(found[1]) if found else 0


def _shorten_error(error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} …"
