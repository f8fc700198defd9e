"""Previews: a page of the workspace at an address of this machine, and which files a page consists of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from sessiontree.contracts.values.quick_dataclass import dataclass

PAGE_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "htm": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "json": "application/json",
    "webmanifest": "application/manifest+json",
    "txt": "text/plain; charset=utf-8",
    "xml": "application/xml",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "ico": "image/x-icon",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "ttf": "font/ttf",
    "otf": "font/otf",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "mp3": "audio/mpeg",
    "pdf": "application/pdf",
}
"""Media type by the ending of a file's name, in lower case. A page consists of such files only."""

MAX_PAGE_FILES: Final = 500
"""Most files of a page."""
MAX_PAGE_BYTES: Final = 32 * 2**20
"""Most bytes of all files of a page together."""


def page_type(path: str) -> str | None:
    """Return the media type of a file of a page; None if a page has no such files."""
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return PAGE_TYPES.get(ending.lower()) if stem and dot else None


@dataclass(frozen=True, slots=True)
class PublishedPage:
    """A page that people can look at."""

    url: str
    """Its address; nobody can guess it."""
    replaced: bool
    """Whether it replaced an earlier page at this address."""


class Previews(Protocol):
    """Publishes pages at addresses that only this machine reaches, until the session ends."""

    async def publish(self, name: str, files: Mapping[str, bytes], *, entry: str) -> PublishedPage:
        """Publish a page.

        Args:
            name: Names the page within the session: a page of that name is replaced, at the address it has.
            files: Content of each file, by its path relative to the page's folder.
            entry: The file that the address leads to.

        Raises:
            ExecutionError: there are too many pages or files, they are too large, or this machine can't
                serve them; says which.
        """
        ...
