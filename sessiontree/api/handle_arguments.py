"""Validation of the arguments for several children, and of numbers and texts, before they are sent."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Sequence
from typing import cast

from sessiontree.api.options import check_settings, text_of
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.messages import ImageContent
from sessiontree.contracts.settings import MAX_IMAGES, image_mime_type, meant

SHOWN_CHARS = 80


def check_count(value: object, name: str) -> None:
    """Check that a value is a whole number, at least 0.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{name} is {value!r}; give a whole number, at least 0")


def tasks_of(tasks: Sequence[str]) -> list[str]:
    """Return tasks as a list; each must be a text that is not blank.

    Raises:
        ConfigError: the value is not such a sequence.
    """
    if isinstance(tasks, str):
        raise ConfigError(f"tasks must be texts in a list, not one text: {tasks[:SHOWN_CHARS]!r}")
    return [text_of(task, "task") for task in tasks]


def labels_of(labels: object, count: int) -> list[str | None]:
    """Return a label, or None, for each of ``count`` tasks."""
    if labels is None:
        return [None] * count
    if isinstance(labels, str) or not isinstance(labels, Sequence) or len(labels) != count:
        raise ConfigError(
            f"labels must be a list with one text for each of the {count} tasks, not {labels!r}"
        )
    return [text_of(label, "label") for label in labels]


def check_one_of(value: object, known: tuple[str, ...], name: str) -> None:
    """Check that a value is one of the known ones.

    Raises:
        ConfigError: it is not.
    """
    if value not in known:
        raise ConfigError(f"{name} {value!r} is not one of {', '.join(known)}{meant(value, known)}")


def images_of(images: object) -> tuple[ImageContent, ...]:
    """Return the images of a message.

    Raises:
        ConfigError: it is not a list of a few images of a type that models accept, as base64 text.
    """
    given = tuple(images) if isinstance(images, Sequence) and not isinstance(images, str) else None
    if given is None or not all(isinstance(each, ImageContent) for each in given):
        raise ConfigError("images: give a list of ImageContent")
    if len(given) > MAX_IMAGES:
        raise ConfigError(f"images: {len(given)} are given; a message takes {MAX_IMAGES} at most")
    for each in given:
        try:
            found = image_mime_type(b64decode(each.data, validate=True))
        except (ValueError, TypeError):
            found = None
        if found is None or found != each.mime_type:
            raise ConfigError(
                f"images: one declared as {each.mime_type!r} is not of that type; "
                "give PNG, JPEG, GIF or WebP as base64"
            )
    return given


def skill_names(skills: object) -> tuple[str, ...] | None:
    """Return the names of a child's skills; None = those of its agent.

    Raises:
        ConfigError: it is not a sequence of texts.
    """
    if skills is None:
        return None
    is_listed = isinstance(skills, Sequence) and not isinstance(skills, str | bytes)
    if not is_listed or not all(isinstance(each, str) for each in cast("Sequence[object]", skills)):
        raise ConfigError(f"skills must be a list of names, or None for those of its agent, not {skills!r}")
    return tuple(cast("Sequence[str]", skills))


def lifetimes_of(ttl_s: object, count: int) -> list[float | None]:
    """Return a time to live in seconds, or None, for each of ``count`` tasks.

    Raises:
        ConfigError: their number is not ``count``, or one is not a number above 0.
    """
    if isinstance(ttl_s, Sequence) and not isinstance(ttl_s, str):
        times = list(ttl_s)
        if len(times) != count:
            raise ConfigError(
                f"ttl_s must be one value, or a list with one for each of the {count} tasks, not {ttl_s!r}"
            )
    else:
        times = [ttl_s] * count
    for each in times:
        check_settings(None, each, None)
        if each is not None and not 0 < each < math.inf:
            raise ConfigError(f"ttl_s is {each!r}; give seconds above 0, or None for the default")
    return times


def checked_concurrency(concurrency: object) -> int:
    """Return the maximum number of children that are live at a time.

    Raises:
        ConfigError: it is not a whole number, at least 1.
    """
    if not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigError(f"concurrency is {concurrency!r}; it must be a whole number, at least 1")
    return concurrency
