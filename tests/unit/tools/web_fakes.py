"""A web that answers what it is asked to, and no network at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from sessiontree.contracts.handles.ports import Page, SearchHit, SearchQuery


def page_of(
    body: bytes,
    *,
    content_type: str = "text/html",
    charset: str | None = "utf-8",
    status: int = 200,
    truncated: bool = False,
) -> Page:
    """Return what an address answered."""
    return Page("http://site.example/final", status, content_type, charset, body, truncated, ("http://a.b/",))


@dataclass(slots=True)
class FixedWeb:
    """Answers every address with one page and every search with the same hits; keeps what it was asked."""

    page: Page | None = None
    hits: tuple[SearchHit, ...] = ()
    asked: list[str] = field(default_factory=list)
    searched: list[SearchQuery] = field(default_factory=list)

    async def get(self, url: str, *, max_bytes: int | None = None, accept: str = "*/*") -> Page:
        """Return the page."""
        self.asked.append(url)
        assert self.page is not None
        return self.page

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return the hits."""
        self.searched.append(query)
        return self.hits
