"""The images of a result, made fit for the model that will see them.

Not here: what fit means (``contracts.images``) and how it is done (the room ``images``).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from sessiontree.contracts.agent import RESULT_SHARE
from sessiontree.contracts.errors import ImageRefused
from sessiontree.contracts.images import ImageLimits
from sessiontree.contracts.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.truncation import cut_text
from sessiontree.dispatch.finalize import NOTE_CHARS
from sessiontree.images.cleaner import ImageCleaner

PIXELS_PER_TOKEN: Final = 750
"""Of an image, about. Source: Anthropic, "Vision"; tiles of other providers take less of a context."""
LEAST_SIDE: Final = 16


class Pictures:
    """Makes the images of one session's results fit.

    Args:
        limits: How large they may be; None = its model reads text alone.
        context_tokens: Size of the model's context, None where it is not known. The images of one result
            take no more of it than its text may.
    """

    def __init__(self, limits: ImageLimits | None, context_tokens: int | None = None) -> None:
        self._most_tokens = None if context_tokens is None else max(1, int(context_tokens * RESULT_SHARE))
        if limits is not None and self._most_tokens is not None:
            side = max(LEAST_SIDE, math.isqrt(self._most_tokens * PIXELS_PER_TOKEN))
            width, height = min(limits.max_width, side), min(limits.max_height, side)
            limits = limits.model_copy(update={"max_width": width, "max_height": height})
        self._cleaner = ImageCleaner(limits) if limits is not None else None

    async def fit(self, message: ToolResultMessage, *, max_chars: int, harmless: bool) -> ToolResultMessage:
        """Return a result with its images fit to be seen, and a text block that tells what became of them.

        An image that can't be shown fails a harmless call. Where the call changed something, its text stays
        and the image is left out: a call that worked must not look as if it had not.

        Args:
            message: Of :func:`~sessiontree.dispatch.finalize.result_message`.
            max_chars: Most characters of the message's texts.
            harmless: Whether the call can simply be made again.

        Raises:
            ImageRefused: an image can't be shown, and the call is harmless.
        """
        images = [block for block in message.content if isinstance(block, ImageContent)]
        if not images:
            return message
        texts = [block for block in message.content if isinstance(block, TextContent)]
        shown, notes = await self._fitted(images, message.tool_name, harmless=harmless)
        if notes:
            texts.append(TextContent(cut_text("\n".join(notes), min(NOTE_CHARS, max_chars // 2) - 1)))
        return replace(message, content=(*texts, *shown))

    async def _fitted(
        self, images: list[ImageContent], tool: str, *, harmless: bool
    ) -> tuple[list[ImageContent], list[str]]:
        if self._cleaner is None:
            several = "1 image was" if len(images) == 1 else f"{len(images)} images were"
            return [], [f"[{several} left out: the model reads text alone]"]
        shown: list[ImageContent] = []
        notes: list[str] = []
        tokens = left_out = 0
        for at, image in enumerate(images, start=1):
            name = f"image {at} of {len(images)}"
            try:
                clean = await self._cleaner.clean(image, f"{name} from {tool}")
            except ImageRefused as refused:
                if harmless:
                    raise
                notes.append(f"[{name} was left out: {refused.reason}]")
                continue
            needed = -(-clean.width * clean.height // PIXELS_PER_TOKEN)
            if self._most_tokens is not None and shown and tokens + needed > self._most_tokens:
                left_out += 1
                continue
            tokens += needed
            shown.append(clean.content)
            if clean.was_shrunk:
                notes.append(
                    f"[{name} is shown at {clean.width} x {clean.height} px; "
                    f"it is {clean.source_width} x {clean.source_height}]"
                )
        if left_out:
            notes.append(
                f"[{left_out} of {len(images)} images were left out: no more fit the model's context]"
            )
        return shown, notes
