"""Answers of a search provider, kept for a while: what is asked again soon is not asked of it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from sessiontree.contracts.ports import SearchHit, SearchQuery
from sessiontree.web.searxng import SearchProvider

KEPT_S: Final = 15 * 60.0
KEPT_QUERIES: Final = 100


class SearchCache:
    """A provider that remembers.

    Args:
        provider: Asked where nothing is remembered; its errors are not.
        now_s: A clock that never steps back, in seconds.
    """

    def __init__(self, provider: SearchProvider, now_s: Callable[[], float]) -> None:
        self._provider = provider
        self._now_s = now_s
        self._kept: OrderedDict[SearchQuery, tuple[float, tuple[SearchHit, ...]]] = OrderedDict()

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits, as the provider does; not older than 15 minutes."""
        kept = self._kept.get(query)
        if kept is not None and self._now_s() - kept[0] < KEPT_S:
            self._kept.move_to_end(query)
            return kept[1]
        hits = await self._provider.search(query)
        self._kept[query] = (self._now_s(), hits)
        self._kept.move_to_end(query)
        while len(self._kept) > KEPT_QUERIES:
            self._kept.popitem(last=False)
        return hits
