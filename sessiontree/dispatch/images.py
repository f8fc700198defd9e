"""Fits the images of a result for a model, or inspects one, in a process that is killed if it takes long.

Not here: the limits (``contracts.images``) and the code of that process (``image_worker``).
"""

from __future__ import annotations

import asyncio
import binascii
import json
import math
import os
import select
import signal
import subprocess
import time
from base64 import b64encode
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

from sessiontree.contracts.errors import ImageRefused
from sessiontree.contracts.handles.image_facts import ImageColour, ImageFacts
from sessiontree.contracts.settings.settings import MAX_SOURCE_BYTES, MAX_SOURCE_PIXELS, ImageLimits
from sessiontree.contracts.tools.agent import RESULT_SHARE
from sessiontree.contracts.tools.thread_calls import Stop, run_until_stopped
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.dispatch.results import NOTE_CHARS
from sessiontree.interpreter.import_guard import build_command

LIMIT_S: Final = 15.0
"""Most seconds for one image, including the start of the interpreter."""
TICK_S: Final = 0.05
"""Seconds between two checks of a waiting thread whether to stop."""
PROGRAM: Final = Path(__file__).resolve().with_name("image_worker.py")


@dataclass(frozen=True, slots=True)
class CleanImage:
    """An image that a model may see."""

    content: ImageContent
    width: int
    """Pixels."""
    height: int
    source_width: int
    """Width of the original image, turned upright."""
    source_height: int

    @property
    def was_shrunk(self) -> bool:
        """Whether it has fewer pixels than the original."""
        return (self.width, self.height) != (self.source_width, self.source_height)


class ImageCleaner:
    """Fits one session's images, one after another, in one process at a time.

    Args:
        limits: Most pixels and bytes of an image.
        limit_s: Most seconds for one image.
    """

    def __init__(self, limits: ImageLimits, *, limit_s: float = LIMIT_S) -> None:
        self._limits = limits
        self._limit_s = limit_s
        self._turn = asyncio.Lock()

    async def clean(self, image: ImageContent, name: str, narrower: ImageLimits | None = None) -> CleanImage:
        """Return an image within the limits: the first frame, upright, encoded again, without metadata.

        Args:
            image: As a tool gave it; its declared type is not trusted.
            name: The image's name in errors.
            narrower: Further limits for this image.

        Raises:
            ImageRefused: it is not base64, too large, of an unsupported format, damaged, or takes too long.

        Contract: if the awaiting task is cancelled, it ends after the process has ended or 2 s have passed.
        """
        limits = self._limits.narrowed(narrower)
        async with self._turn:
            return await run_until_stopped(lambda stop: clean_image(image, limits, name, self._limit_s, stop))


def clean_image(
    image: ImageContent, limits: ImageLimits, name: str, limit_s: float, stop: Stop
) -> CleanImage:
    """Return an image within the limits. Blocks: call it from a thread.

    Raises:
        ImageRefused: as for :meth:`ImageCleaner.clean`, or because ``stop`` returned True.
    """
    order = limits.model_dump() | {"max_pixels": MAX_SOURCE_PIXELS}
    found, shown = _send_order(_decode(image.data, name), order, name, limit_s, stop)
    (width, height), (source_width, source_height) = found["shown"], found["source"]
    content = ImageContent(b64encode(shown).decode("ascii"), found["mime_type"])
    return CleanImage(content, width, height, source_width, source_height)


class ImageProcess:
    """Inspects one session's images, one after another, in one process at a time.

    Args:
        limit_s: Most seconds for one image.
    """

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._turn = asyncio.Lock()

    async def inspect(self, data: bytes, name: str) -> ImageFacts:
        """Return the facts of an image file.

        Raises:
            ImageRefused: it is too large, of an unsupported format, damaged, or takes too long.

        Contract: as for :meth:`ImageCleaner.clean`.
        """
        if len(data) > MAX_SOURCE_BYTES:
            raise ImageRefused(name, f"it has more than {MAX_SOURCE_BYTES:,} bytes")
        order = {"max_pixels": MAX_SOURCE_PIXELS, "only_facts": True}
        async with self._turn:
            found, _ = await run_until_stopped(
                lambda stop: _send_order(data, order, name, self._limit_s, stop)
            )
        facts = found["facts"]
        colours = tuple(ImageColour(code, share) for code, share in facts.pop("colours"))
        return ImageFacts(bytes=len(data), colours=colours, **facts)


def _send_order(
    data: bytes, order: dict[str, Any], name: str, limit_s: float, stop: Stop
) -> tuple[dict[str, Any], bytes]:
    """Return the process's answer to an order about an image: its first line, and the bytes after it.

    Raises:
        ImageRefused: the image was refused, or the process ended unexpectedly or took too long.
    """
    order = order | {"limit_s": limit_s * 2}
    with ExitStack() as open_files:
        # Files in memory instead of pipes: the kernel bounds the answer's length, and no side waits.
        given, answer, complaint = (open_files.enter_context(_open_memory_file()) for _ in range(3))
        given.write(json.dumps(order).encode() + b"\n")
        given.write(data)
        given.seek(0)
        _run(given, answer, complaint, name, limit_s, stop)
        answer.seek(0)
        found = _parse_answer(answer.readline(2**16))
        shown = answer.read(order.get("max_bytes", 0) + 1)
        complaint.seek(0)
        if found is None:
            last = complaint.read(2**16).decode(errors="replace").strip().rpartition("\n")[2][:200]
            raise ImageRefused(name, f"the process that read it ended unexpectedly ({last or 'no message'})")
    if "refused" in found:
        raise ImageRefused(name, found["refused"])
    return found, shown


def _decode(text: str, name: str) -> bytes:
    if len(text) > (MAX_SOURCE_BYTES + 2) // 3 * 4:
        raise ImageRefused(name, f"it has more than {MAX_SOURCE_BYTES:,} bytes")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ImageRefused(name, f"its data is not base64 ({str(error)[:80]})") from error


def _open_memory_file() -> IO[bytes]:
    return os.fdopen(os.memfd_create("image"), "w+b")


def _run(
    given: IO[bytes],
    answer: IO[bytes],
    complaint: IO[bytes],
    name: str,
    limit_s: float,
    stop: Stop,
) -> None:
    """Run the program until it ends; kill it if it must stop."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the interpreter that runs us, and our own file
            build_command("-B", str(PROGRAM)),
            stdin=given,
            stdout=answer,
            stderr=complaint,
            env={key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ImageRefused(name, f"no process could be started to read it: {error.strerror}") from error
    try:
        _await(process.pid, name, limit_s, stop)
    finally:
        # The process has not been waited for, so its id can't belong to another one.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await(pid: int, name: str, limit_s: float, stop: Stop) -> None:
    deadline = time.monotonic() + limit_s
    ending = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(ending, select.POLLIN)
        while not poll.poll(max(0, min(TICK_S, deadline - time.monotonic())) * 1000):
            if stop():
                raise ImageRefused(name, "the call was cancelled or its time ran out")
            if time.monotonic() >= deadline:
                raise ImageRefused(name, f"reading it takes longer than {limit_s:g} s")
    finally:
        os.close(ending)


def _parse_answer(line: bytes) -> dict[str, Any] | None:
    """Return the first line of an answer; None if the program did not write one."""
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


PIXELS_PER_TOKEN: Final = 750
"""Pixels of an image per token, about. Source: Anthropic, "Vision"; some providers need fewer tokens."""
LEAST_SIDE: Final = 16


class Pictures:
    """Fits the images of one session's results.

    Args:
        limits: Most pixels and bytes of an image; None = the session's model reads only text.
        context_tokens: Size of the model's context; None if it is not known. The images of one result
            take at most as much of it as its text may.
    """

    def __init__(self, limits: ImageLimits | None, context_tokens: int | None = None) -> None:
        self._most_tokens = None if context_tokens is None else max(1, int(context_tokens * RESULT_SHARE))
        if limits is not None and self._most_tokens is not None:
            side = max(LEAST_SIDE, math.isqrt(self._most_tokens * PIXELS_PER_TOKEN))
            width, height = min(limits.max_width, side), min(limits.max_height, side)
            limits = limits.model_copy(update={"max_width": width, "max_height": height})
        self._cleaner = ImageCleaner(limits) if limits is not None else None

    async def fit(
        self,
        message: ToolResultMessage,
        *,
        max_chars: int,
        harmless: bool,
        narrower: ImageLimits | None = None,
    ) -> ToolResultMessage:
        """Return a result with its images fitted, and a text block that describes what was done to them.

        If an image can't be shown, a harmless call fails. If the call changed something, its text is kept and
        the image is left out, because a call that worked must not look like a failed one.

        Args:
            message: Made by :func:`~sessiontree.dispatch.results.make_result_message`.
            max_chars: Most characters of the message's texts.
            harmless: Whether the call can be repeated without effect.
            narrower: Further limits for the images of this result.

        Raises:
            ImageRefused: an image can't be shown, and the call is harmless.
        """
        images = [block for block in message.content if isinstance(block, ImageContent)]
        if not images:
            return message
        texts = [block for block in message.content if isinstance(block, TextContent)]
        shown, notes = await self._fit_images(images, message.tool_name, harmless=harmless, narrower=narrower)
        if notes:
            texts.append(TextContent(cut_text("\n".join(notes), min(NOTE_CHARS, max_chars // 2) - 1)))
        return replace(message, content=(*texts, *shown))

    async def _fit_images(
        self, images: list[ImageContent], tool: str, *, harmless: bool, narrower: ImageLimits | None
    ) -> tuple[list[ImageContent], list[str]]:
        if self._cleaner is None:
            several = "1 image was" if len(images) == 1 else f"{len(images)} images were"
            return [], [f"[{several} left out: the model reads only text]"]
        shown: list[ImageContent] = []
        notes: list[str] = []
        tokens = left_out = 0
        for at, image in enumerate(images, start=1):
            name = f"image {at} of {len(images)}"
            try:
                clean = await self._cleaner.clean(image, f"{name} from {tool}", narrower)
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
                f"[{left_out} of {len(images)} images were left out: they do not fit the model's context]"
            )
        return shown, notes
