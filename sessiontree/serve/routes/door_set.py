"""All doors of one server, as what programs may ask of it."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route

from sessiontree.serve.server import Api


class DoorSet:
    """Several doors as one.

    Args:
        doors: The doors; the first one is closed last.
    """

    def __init__(self, doors: Sequence[Api]) -> None:
        self._doors = tuple(doors)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the paths of their routes begin with."""
        return tuple(prefix for door in self._doors for prefix in door.prefixes)

    def routes(self) -> list[Route]:
        """Return the routes of all doors."""
        return [route for door in self._doors for route in door.routes()]

    async def close(self) -> None:
        """Let go of everything that is open."""
        for door in reversed(self._doors):
            await door.close()
