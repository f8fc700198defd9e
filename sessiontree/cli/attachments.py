"""Files that a person attaches to a task: text becomes a part of the message, images go with it."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sessiontree import AgentSpec, ConfigError, ImageContent, ImageLimits
from sessiontree.contracts.errors import ImageRefused
from sessiontree.contracts.settings.settings import MAX_SOURCE_BYTES, detect_image_type
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.untrusted import clean_source, defuse
from sessiontree.dispatch.images import ImageCleaner

MAX_FILES: Final = 20
MAX_TEXT_BYTES: Final = 256 * 2**10
"""Maximum bytes of all attached texts together."""
_KINDS: Final = "UTF-8 text and PNG, JPEG, GIF or WebP images can be attached"


@dataclass(frozen=True, slots=True)
class Attachments:
    """What is attached to one message."""

    texts: tuple[str, ...] = ()
    """Each with lines around it that name its file."""
    images: tuple[ImageContent, ...] = ()

    def add_to(self, task: str) -> str:
        """Return a task with the attached texts below it."""
        return "\n\n".join((task, *self.texts))


def read_attachments(paths: Sequence[Path], agents: Mapping[str, AgentSpec], agent: str) -> Attachments:
    """Return files as parts of a message; images are fitted.

    Args:
        paths: The files, in order.
        agents: The tree's agents by name.
        agent: The one that gets the message; its configuration has the limits of images.

    Raises:
        ConfigError: a file can't be read, is of another type, or is too large; names it.
    """
    if len(paths) > MAX_FILES:
        raise ConfigError(f"--attach: {len(paths)} files are given; attach {MAX_FILES} at most")
    limits = agents.get(agent, AgentSpec()).config.images
    texts, images, left = [], [], MAX_TEXT_BYTES
    for path in paths:
        place = f"--attach {str(path)!r}"
        data = _read_data(path, place)
        kind = detect_image_type(data)
        if kind is not None:
            images.append(_fit_image(data, kind, place, limits))
            continue
        left -= len(data)
        if left < 0:
            raise ConfigError(
                f"{place}: the attached texts are longer than {MAX_TEXT_BYTES:,} bytes; put long files into "
                "the workspace and name them in the task"
            )
        texts.append(_frame_text(path, _decode_text(data, place)))
    return Attachments(tuple(texts), tuple(images))


def _read_data(path: Path, place: str) -> bytes:
    try:
        descriptor = os.open(path.expanduser(), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - what was opened is what is checked
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{place} is not a regular file; {_KINDS}")
            # One byte more than is accepted, and not the size of the file, which may grow.
            data = file.read(MAX_SOURCE_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: no such home
        raise ConfigError(f"{place} can't be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_SOURCE_BYTES:
        raise ConfigError(f"{place} is longer than {MAX_SOURCE_BYTES:,} bytes")
    return data


def _decode_text(data: bytes, place: str) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise ConfigError(f"{place} is of another type; {_KINDS}")
    if not text.strip():
        raise ConfigError(f"{place} is empty")
    return text


def _frame_text(path: Path, text: str) -> str:
    """Return a text between two lines that it can't contain: they have an unpredictable number."""
    number = secrets.token_hex(8)
    begin = f'<attachment id="{number}" name="{clean_source(path.name)}">'
    return f'{begin}\n{defuse(text)}\n</attachment id="{number}">'


def _fit_image(data: bytes, kind: str, place: str, limits: ImageLimits | None) -> ImageContent:
    if limits is None:
        raise ConfigError(f"{place}: the agent's model reads only text (images is None)")
    image = ImageContent(b64encode(data).decode(), kind)
    try:
        return asyncio.run(ImageCleaner(limits).clean(image, place)).content
    except ImageRefused as error:
        raise ConfigError(f"{place}: {error}") from error
