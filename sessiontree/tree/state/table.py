"""Tables of a tree's state, and layers over them: a decision changes a layer and never the table below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound="TableRecord")


class TableRecord(Protocol):
    """A mutable value that can return an independent copy of itself."""

    def copy(self: R) -> R:
        """Return a copy; changing the copy does not change the original, and vice versa."""
        ...


class Table(Generic[K, V]):
    """Values by key, in the order in which they were first added."""

    __slots__ = ("_here", "get")

    def __init__(self) -> None:
        self._here: dict[K, V | None] = {}
        self.get: Callable[[K], V | None] = self._here.get
        """Returns the value for reading only, or None. Bound, because every rule looks something up."""

    def __getitem__(self, key: K) -> V:
        """Return the value for reading only.

        Raises:
            KeyError: the key has no value.
        """
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        """Whether there is a value for the key."""
        return self.get(key) is not None

    def put(self, key: K, value: V) -> None:
        """Set a value."""
        self._here[key] = value

    def drop(self, key: K) -> None:
        """Remove a value, if there is one."""
        self._here.pop(key, None)

    def open(self: Table[K, R], key: K) -> R | None:
        """Return a record to be changed, or None; a layer makes its own copy first."""
        return self.get(key)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values in the order in which they were added."""
        for key, own in self._here.items():
            if own is not None:
                yield key, own

    def values(self) -> Iterator[V]:
        """Yield the values in the order of :meth:`items`."""
        return map(itemgetter(1), self.items())


class TableLayer(Table[K, V]):
    """A table that covers another one.

    Args:
        below: The table that is covered; it is read, never changed.
    """

    __slots__ = ("_below",)

    def __init__(self, below: Table[K, V]) -> None:
        self._here = {}
        self._below = below

    def get(self, key: K) -> V | None:
        """Return the value for reading only, or None."""
        if key in self._here:
            return self._here[key]
        return self._below.get(key)

    def drop(self, key: K) -> None:
        """Hide the value of the table below, if there is one."""
        self._here[key] = None

    def open(self: TableLayer[K, R], key: K) -> R | None:
        """Return a record to be changed, or None; the first time, a copy of the one below."""
        value = self._here.get(key)
        if value is not None or key in self._here:
            return value
        value = self._below.get(key)
        if value is not None:
            value = self._here[key] = value.copy()
        return value

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values: those of the table below first, then those added here."""
        for key, value in self._below.items():
            if key not in self._here:
                yield key, value
        yield from super().items()


class Groups:
    """Ordered sets of ids by key; empty sets take no room.

    Args:
        below: The groups these cover; they are read, never changed.
    """

    __slots__ = ("_below", "_gone", "_here")

    def __init__(self, below: Groups | None = None) -> None:
        self._below = below
        self._here: dict[str, dict[str, None]] = {}
        self._gone: dict[str, set[str]] = {}

    def add(self, key: str, member: str) -> None:
        """Append a member to a group unless it is already in it."""
        self._here.setdefault(key, {})[member] = None

    def discard(self, key: str, member: str) -> None:
        """Remove a member, if it is in the group."""
        own = self._here.get(key)
        if own is not None and member in own:
            del own[member]
            if not own:
                del self._here[key]
        elif self._below is not None:
            self._gone.setdefault(key, set()).add(member)

    def list_members(self, key: str) -> list[str]:
        """Return a group's members in the order in which they were added, as a new list."""
        own = self._here.get(key, {})
        if self._below is None:
            return list(own)
        gone = self._gone.get(key, ())
        return [*(member for member in self._below.list_members(key) if member not in gone), *own]
