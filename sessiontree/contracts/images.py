"""Images on their way to a model: how large they may be, and which a file may be.

Not here: making them so (the room ``images``), and results that carry them (results.py).
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from sessiontree.contracts.settings import StrictSettings

MAX_SOURCE_BYTES: Final = 20 * 2**20
"""Largest encoded image that is looked at, before base64."""
MAX_SOURCE_PIXELS: Final = 40_000_000
"""Most pixels an image may have by its header; one that says more is never decoded."""
MAX_IMAGES: Final = 20
"""Most images of one result."""


class ImageLimits(StrictSettings):
    """How large an image may be when it reaches a model; larger ones are shrunk in proportion."""

    max_width: int = Field(default=1200, ge=16, le=8192)
    """Pixels."""
    max_height: int = Field(default=1200, ge=16, le=8192)
    """Pixels."""
    max_bytes: int = Field(default=2**20, ge=4096, le=16 * 2**20)
    """Encoded, before base64."""


def image_mime_type(head: bytes) -> str | None:
    """Return the type of a file that begins with these bytes; None where it is no image models take.

    Args:
        head: At least 12 bytes, or the whole file.

    Source: the PNG, JPEG (JFIF), GIF and WebP (RIFF) file formats.
    """
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None
