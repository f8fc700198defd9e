"""What LanceDB and the system say went wrong, in this library's errors.

LanceDB raises plain RuntimeError, OSError or ValueError; what happened stands in the text alone.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sessiontree.contracts.errors import MemoryCorrupt, MemoryFailed, MemoryUnwritable

FAULTS = (RuntimeError, OSError, ValueError)
"""What the driver raises; Arrow's own errors are among them."""

_SYSTEM: Final = re.compile(r"os error (\d+)")
_REFUSED: Final = frozenset(
    (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
)
_SHORT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_GONE: Final = re.compile(r"not found|no such file|was not found|does not exist", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?!file:)\w+://")
_LONGEST = 300


@contextmanager
def typed_writes(place: str) -> Iterator[None]:
    """Turn whatever the driver raises while writing into a :class:`MemoryFailed`."""
    try:
        yield
    except FAULTS as error:
        raise write_error(place, error) from error


@contextmanager
def typed_reads(place: str) -> Iterator[None]:
    """Turn whatever the driver raises while reading into a :class:`MemoryFailed`."""
    try:
        yield
    except FAULTS as error:
        raise read_error(place, error) from error


@contextmanager
def typed_searches(place: str) -> Iterator[None]:
    """As :func:`typed_reads`, but what the driver finds invalid is not called damage: it may be the query."""
    try:
        yield
    except FAULTS as error:
        raise (search_error if isinstance(error, ValueError) else read_error)(place, error) from error


def search_error(place: str, error: Exception) -> MemoryFailed:
    """Return the error to raise where a search was refused."""
    what_next = "use other words; where every search fails, `sessiontree memory reindex` makes it again"
    return MemoryFailed(place, f"this search was refused ({_said(error)}); {what_next}")


def write_error(place: str, error: Exception) -> MemoryFailed:
    """Return the error to raise where writing failed."""
    number = _number(error)
    if number in _REFUSED | _SHORT:
        return MemoryUnwritable(place, f"{os.strerror(number)}; free the cause and try again")
    if number == errno.ENOENT or _GONE.search(str(error)):
        return _gone(place, error)
    return MemoryUnwritable(place, f"a write failed ({_said(error)}); nothing of it was acknowledged")


def read_error(place: str, error: Exception) -> MemoryFailed:
    """Return the error to raise where reading failed."""
    number = _number(error)
    if number in (errno.EACCES, errno.EPERM) or number in _SHORT:
        return MemoryFailed(place, f"can't read it: {os.strerror(number)}")
    if number == errno.ENOENT or _GONE.search(str(error)):
        return _gone(place, error)
    if _ADDRESS.match(place):  # what a service or the network refuses is no damage
        reason = f"it can't be read ({_said(error)}); look at the address, what may reach it, and the network"
        return MemoryFailed(place, reason)
    return MemoryCorrupt(place, f"its files are damaged ({_said(error)}); restore it from an export")


def _gone(place: str, error: Exception) -> MemoryCorrupt:
    return MemoryCorrupt(place, f"files of it are gone ({_said(error)}); restore it from an export")


def _number(error: Exception) -> int:
    """Return the system's number of the failure, 0 where there is none."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    found = _SYSTEM.search(str(error))
    return int(found[1]) if found else 0


def _said(error: Exception) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} …"
