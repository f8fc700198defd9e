"""The content of a prompt as a message of the client: its text, what it quotes, and its images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from acp.schema import (
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.truncation import cut_line

MAX_BLOCKS: Final = 256
MAX_PROMPT_CHARS: Final = 2_000_000
"""Longest text of a prompt, with the resources that are embedded in it."""
MAX_IMAGE_CHARS: Final = 8_000_000
"""Longest image, as base64."""
MAX_URI_CHARS: Final = 2_000
_FENCE: Final = "```"


def read_prompt(blocks: Sequence[Any]) -> tuple[str, tuple[ImageContent, ...]]:
    """Return the text and the images of a prompt.

    Raises:
        ConfigError: it is empty or too long, or a block is of a kind that sessions do not take.
    """
    if len(blocks) > MAX_BLOCKS:
        raise ConfigError(f"a prompt has at most {MAX_BLOCKS} blocks, not {len(blocks):,}")
    images = tuple(_read_image(block) for block in blocks if isinstance(block, ImageContentBlock))
    text = "\n\n".join(_read_texts(blocks))
    if len(text) > MAX_PROMPT_CHARS:
        raise ConfigError(f"a prompt has at most {MAX_PROMPT_CHARS:,} characters, not {len(text):,}")
    if not text.strip():
        text = "(see the image)" if images else ""
    if not text:
        raise ConfigError("the prompt is empty")
    return text, images


def _read_texts(blocks: Sequence[Any]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, TextContentBlock):
            yield block.text
        elif isinstance(block, ResourceContentBlock):
            yield f"[{_to_line(block.name)}]({_to_line(block.uri)})"
        elif isinstance(block, EmbeddedResourceContentBlock):
            yield _quote(block)
        elif not isinstance(block, ImageContentBlock):
            raise ConfigError("a prompt has text, images and resources; audio is not supported")


def _quote(block: EmbeddedResourceContentBlock) -> str:
    resource = block.resource
    if not isinstance(resource, TextResourceContents):
        raise ConfigError(f"the resource {_to_line(resource.uri)!r} is not text; name its file instead")
    fence = _FENCE
    while fence in resource.text:  # the quotation ends where its own fence is, and nowhere before
        fence += "`"
    return f"{_to_line(resource.uri)}:\n{fence}\n{resource.text}\n{fence}"


def _read_image(block: ImageContentBlock) -> ImageContent:
    if len(block.data) > MAX_IMAGE_CHARS:
        raise ConfigError(f"an image has at most {MAX_IMAGE_CHARS:,} characters of base64")
    return ImageContent(block.data, block.mime_type)


def _to_line(text: str) -> str:
    return cut_line(make_visible(text), MAX_URI_CHARS)
