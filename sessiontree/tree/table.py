"""Tables and groups that may lie as a thin layer over others.

A decision is taken on a layer: it sees what its own facts change, and the state below stays as it was.
Making a layer and touching one entry cost the same however large the tree is.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound="TableRecord")


class TableRecord(Protocol):
    """A mutable value that can give an independent copy of itself."""

    def copy(self: R) -> R:
        """Return a copy; changing one leaves the other as it is."""
        ...


class Table(Generic[K, V]):
    """Values by key, in the order they were first put.

    Args:
        below: The table this one lies over; it is read, never changed.
    """

    __slots__ = ("_below", "_here")

    def __init__(self, below: Table[K, V] | None = None) -> None:
        """Start empty, or as what lies below."""
        self._below = below
        self._here: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        """Return the value for reading only, or None."""
        if key in self._here:
            return self._here[key]
        return None if self._below is None else self._below.get(key)

    def __getitem__(self, key: K) -> V:
        """Return the value for reading only.

        Raises:
            KeyError: there is none.
        """
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        """Whether there is a value."""
        return self.get(key) is not None

    def put(self, key: K, value: V) -> None:
        """Set a value."""
        self._here[key] = value

    def drop(self, key: K) -> None:
        """Remove a value, if there is one."""
        if self._below is None:
            self._here.pop(key, None)
        else:
            self._here[key] = None

    def open(self: Table[K, R], key: K) -> R | None:
        """Return a record to be changed, or None; a layer makes its own copy first."""
        value = self._here.get(key)
        if value is not None or self._below is None or key in self._here:
            return value
        value = self._below.get(key)
        if value is not None:
            value = self._here[key] = value.copy()
        return value

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values: what lies below first, then what was added here."""
        if self._below is not None:
            for key, value in self._below.items():
                if key not in self._here:
                    yield key, value
        for key, own in self._here.items():
            if own is not None:
                yield key, own

    def values(self) -> Iterator[V]:
        """Yield the values in the order of :meth:`items`."""
        return map(itemgetter(1), self.items())


class Groups:
    """Ordered sets of ids by a key; empty ones take no room.

    Args:
        below: The groups these lie over; they are read, never changed.
    """

    __slots__ = ("_below", "_gone", "_here")

    def __init__(self, below: Groups | None = None) -> None:
        """Start empty, or as what lies below."""
        self._below = below
        self._here: dict[str, dict[str, None]] = {}
        self._gone: dict[str, set[str]] = {}

    def add(self, key: str, member: str) -> None:
        """Put a member last in a group it is not in yet."""
        self._here.setdefault(key, {})[member] = None

    def discard(self, key: str, member: str) -> None:
        """Take a member out, if it is in."""
        own = self._here.get(key)
        if own is not None and member in own:
            del own[member]
            if not own:
                del self._here[key]
        elif self._below is not None:
            self._gone.setdefault(key, set()).add(member)

    def members(self, key: str) -> list[str]:
        """Return a group's members in the order they were added; the list is the caller's."""
        own = self._here.get(key, {})
        if self._below is None:
            return list(own)
        gone = self._gone.get(key, ())
        return [*(member for member in self._below.members(key) if member not in gone), *own]
