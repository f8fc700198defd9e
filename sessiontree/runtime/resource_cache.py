"""What a tree's frames need before they can be taken: fetched once per tree, kept for the latest ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from sessiontree.contracts.errors import SessionTreeError, words_of
from sessiontree.runtime.frames import Adopt
from sessiontree.runtime.model_gateway import Ask

T = TypeVar("T")
MOST_TREES = 64
_LET_GO = LookupError("they were let go for those of other trees; try again")


class ResourceCache(Generic[T]):
    """Trees' equipment by its name: a tree opened again may have another.

    Args:
        fetch: Gives equipment by its name, packed.
        unpack: Opens it.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[bytes]], unpack: Callable[[bytes], T]) -> None:
        self._fetch = fetch
        self._unpack = unpack
        self._held: OrderedDict[str, T | Exception] = OrderedDict()

    def of(self, name: str) -> T:
        """Return the equipment of a name.

        Raises:
            SessionTreeError: it could not be fetched or opened here.
        """
        held = self._held.get(name, _LET_GO)
        if isinstance(held, Exception):
            self._held.pop(name, None)
            raise SessionTreeError(f"its tools and models can't be had here: {words_of(held)}") from held
        return held

    async def fetch(self, frames: Sequence[tuple[int, Any]]) -> None:
        """Fetch what frames need; what fails is raised when it is used.

        The frames are to be taken at once when this returns: what they need is held until then at least.
        """
        needed = dict.fromkeys(frame.equipment for _, frame in frames if isinstance(frame, Adopt | Ask))
        while missing := [name for name in needed if name not in self._held]:
            # Others may be fetched meanwhile, and let go what was here before.
            for name in missing:
                self._held[name] = await self._fetched(name)
        for name in needed:
            self._held.move_to_end(name)
        while len(self._held) > max(MOST_TREES, len(needed)):
            self._held.popitem(last=False)

    async def _fetched(self, name: str) -> T | Exception:
        try:
            return self._unpack(await self._fetch(name))
        except Exception as error:  # noqa: BLE001 - opening runs the program's own code; its session is told
            return error
