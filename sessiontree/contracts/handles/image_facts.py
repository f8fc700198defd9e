"""What an image is, without its pixels, and the handle that finds it out."""

from __future__ import annotations

from typing import Protocol

from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ImageColour:
    """One of the colours of which an image has most."""

    code: str
    """``#rrggbb``."""
    share: float
    """Part of the image's opaque pixels that come closest to it, 0 to 1."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image is."""

    format: str
    """``PNG``, ``JPEG``, ``GIF`` or ``WEBP``."""
    width: int
    """In pixels, turned upright."""
    height: int
    bytes: int
    """Size of its file."""
    frames: int
    """Number of its pictures; more than 1 = it is animated."""
    is_transparent: bool
    """Whether it may have transparent pixels."""
    colours: tuple[ImageColour, ...]
    """At most five, the most frequent first; those of the first picture."""

    def describe(self) -> str:
        """Return the facts in one line."""
        size = f"{self.format}, {self.width} x {self.height} px, {self.bytes:,} bytes"
        parts = [size]
        if self.frames > 1:
            parts.append(f"animated ({self.frames} frames, only the first is shown)")
        if self.is_transparent:
            parts.append("with transparency")
        if self.colours:
            colours = ", ".join(f"{each.code} {each.share:.0%}" for each in self.colours)
            parts.append(f"colours {colours}")
        return "; ".join(parts)


class ImageInspector(Protocol):
    """Finds out what an image is, in a process that is ended if it takes too long."""

    async def inspect(self, data: bytes, name: str) -> ImageFacts:
        """Return the facts of an image file; its declared type and name do not count.

        Args:
            data: The whole file.
            name: The image's name in errors.

        Raises:
            ImageRefused: it is too large, of an unsupported format, damaged, or takes too long.
        """
        ...
