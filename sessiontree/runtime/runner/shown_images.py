"""Which images of a conversation its model still sees: the newest ones, within a share of its context.

Older ones become a line of text; the newest image is always shown. The choice depends on the messages alone,
one after the other: another host that embodies the session makes the same choice. If the share is passed,
images go until half of it is used: the beginning of the conversation changes rarely, and providers keep it.
Source of the headers: the PNG, JPEG (JFIF), GIF and WebP (RIFF) file formats.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolResultMessage,
    UserMessage,
    hide_details,
)
from sessiontree.dispatch.images import PIXELS_PER_TOKEN

IMAGE_SHARE: Final = 0.5
"""Largest share of a model's context that the images of a conversation may use."""
USED_AFTER: Final = 0.5
"""Largest part of that share which is used after images were omitted."""
UNKNOWN_TOKENS: Final = 2_000
"""Tokens of an image whose size its header does not say."""
HEADER_CHARS: Final = 128 * 1024
"""How much of an image is looked at for its size, in characters of base64."""
_NO_SIZE: Final = frozenset({0xC4, 0xC8, 0xCC})
"""Segments of JPEG that have a number like those with the size."""


class ShownImages:
    """Follows one conversation.

    Args:
        context_tokens: Size of the model's context.
    """

    def __init__(self, context_tokens: int) -> None:
        self._most = int(context_tokens * IMAGE_SHARE)
        self._source: Sequence[Message] | None = None
        self._reset()

    def _reset(self) -> None:
        self._seen = 0
        self._unread = 0
        """Place of the first message after the last reply."""
        self._tokens = 0
        self._kept: deque[tuple[int, int]] = deque()
        """Place of the message and tokens of each image that is shown, oldest first."""
        self._omitted: dict[int, int] = {}
        """How many of its first images a message has lost, by place."""
        self._changes: list[tuple[int, int]] = []
        """Place of a message that made images go, and of the first message that lost one; oldest first."""

    def follow(self, transcript: Sequence[Message]) -> None:
        """Take in what the conversation has in addition; another list is another conversation."""
        if transcript is not self._source:
            self._source = transcript
            self._reset()
        for at in range(self._seen, len(transcript)):
            self._take(at, transcript[at])
        self._seen = len(transcript)

    def find_first_changed(self, base: int) -> int:
        """Return the first of the first ``base`` messages that has changed since only these were there.

        It is ``base`` if none has.
        """
        first = base
        for cause, changed in reversed(self._changes):
            if cause < base:
                break
            first = min(first, changed)
        return first

    def view(self, at: int, message: Message) -> Message:
        """Return the message at a place as the model may see it."""
        seen = hide_details(message)
        omitted = self._omitted.get(at, 0)
        if omitted and isinstance(seen, UserMessage | ToolResultMessage):
            return _omit_images(seen, omitted)
        return seen

    def _take(self, at: int, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self._unread = at + 1
            return
        for block in message.content:
            if isinstance(block, ImageContent):
                tokens = estimate_image_tokens(block)
                self._kept.append((at, tokens))
                self._tokens += tokens
        if self._tokens <= self._most:
            return
        first = at
        while len(self._kept) > 1:
            # what the model has not replied to yet goes only if it passes the share by itself
            most = self._most * USED_AFTER if self._kept[0][0] < self._unread else self._most
            if self._tokens <= most:
                break
            place, tokens = self._kept.popleft()
            self._tokens -= tokens
            self._omitted[place] = self._omitted.get(place, 0) + 1
            first = min(first, place)
        self._changes.append((at, first))


def _omit_images(message: UserMessage | ToolResultMessage, omitted: int) -> Message:
    content: list[TextContent | ImageContent] = []
    for block in message.content:
        if omitted and isinstance(block, ImageContent):
            omitted -= 1
            content.append(TextContent(_note(message, block)))
        else:
            content.append(block)
    return replace(message, content=tuple(content))


def _note(message: Message, image: ImageContent) -> str:
    size = read_image_size(image)
    pixels = "" if size is None else f" of {size[0]} x {size[1]} px"
    origin = (
        f"call {message.tool_name} again" if isinstance(message, ToolResultMessage) else "ask for it again"
    )
    return f"[an image{pixels} was here; newer images need its room. To see it, {origin}]"


def estimate_image_tokens(image: ImageContent) -> int:
    """Return about how many tokens of a model's context an image uses."""
    size = read_image_size(image)
    return UNKNOWN_TOKENS if size is None else -(-size[0] * size[1] // PIXELS_PER_TOKEN)


def read_image_size(image: ImageContent) -> tuple[int, int] | None:
    """Return width and height in pixels as the image's header says; None if it does not."""
    text = image.data[:HEADER_CHARS]
    try:
        data = base64.b64decode(text[: len(text) // 4 * 4])
    except ValueError:
        return None
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP" and len(data) >= 30:
        return _read_webp_size(data)
    return _read_jpeg_size(data) if data.startswith(b"\xff\xd8\xff") else None


def _read_webp_size(data: bytes) -> tuple[int, int] | None:
    form = data[12:16]
    if form == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if form == b"VP8 ":
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
        return width, height
    if form == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def _read_jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a filling byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_SIZE:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
