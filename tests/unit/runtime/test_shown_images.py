"""Images of a conversation: their sum is bounded, new ones stay, deltas and other hosts agree on the view."""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.runtime.runner.shown_images import (
    IMAGE_SHARE,
    UNKNOWN_TOKENS,
    ShownImages,
    estimate_image_tokens,
    read_image_size,
)

CONTEXT = 8_000
MOST = CONTEXT * IMAGE_SHARE


def image_of(width: int, height: int, form: str = "PNG") -> ImageContent:
    """Return a plain image."""
    data = BytesIO()
    Image.new("RGB", (width, height), (9, 99, 199)).save(data, form)
    return ImageContent(b64encode(data.getvalue()).decode(), f"image/{form.lower()}")


SIZES = ((8, 8), (300, 400), (900, 900), (1200, 1200), (1700, 1500))
IMAGES = [image_of(*size) for size in SIZES]


def message_of(at: int, kind: str, images: list[int]) -> Message:
    """Return a message with a text and these images."""
    text = TextContent(f"message {at}")
    if kind == "assistant":
        return AssistantMessage((text,), timestamp=at)
    content: tuple[TextContent | ImageContent, ...] = (text, *[IMAGES[index] for index in images])
    if kind == "user":
        return UserMessage(content, at, "user")
    return ToolResultMessage(f"c{at}", "look", content, {"secret": at}, timestamp=at)


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool", "tool"]),
        st.lists(st.integers(0, len(SIZES) - 1), max_size=4),
    ),
    max_size=30,
)


def tokens_in(messages: list[Message]) -> list[int]:
    """Return the tokens of each image."""
    blocks = [block for each in messages for block in each.content]
    return [estimate_image_tokens(block) for block in blocks if isinstance(block, ImageContent)]


@pytest.mark.covers("Z4")
@settings(max_examples=200, deadline=None)
@given(MESSAGES, st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_sum_is_bounded_and_every_way_to_it_agrees(
    plan: list[tuple[str, list[int]]], asked: set[int], moved: set[int]
) -> None:
    """A question after any message; a gateway that holds the last question; other hosts that begin afresh."""
    transcript: list[Message] = []
    images, held, resent, total = ShownImages(CONTEXT), list[Message](), 0, 0
    for at, (kind, indexes) in enumerate(plan):
        message = message_of(at, kind, indexes)
        transcript.append(message)
        total += sum(tokens_in([message]))
        if at in moved:
            images = ShownImages(CONTEXT)
        if at not in asked:
            continue
        images.follow(transcript)
        base = len(held)
        if images.find_first_changed(base) < base:
            base, resent = 0, resent + 1
        held[base:] = [images.view(place, transcript[place]) for place in range(base, len(transcript))]
        sizes = tokens_in(held)
        assert sum(sizes) <= MOST or len(sizes) == 1
        fresh = max((place for place in range(at + 1) if plan[place][0] == "assistant"), default=-1) + 1
        new = tokens_in(transcript[fresh:])
        if sum(new) <= MOST:
            assert tokens_in(held[fresh:]) == new
        for before, after in zip(transcript, held, strict=True):
            assert len(before.content) == len(after.content)
            assert before.content[0] == after.content[0]
            assert not isinstance(after, ToolResultMessage) or after.details is None
    if total <= MOST:
        assert resent == 0
        assert tokens_in(held) == tokens_in(transcript[: len(held)])


def test_beginning_changes_rarely() -> None:
    """A hundred screenshots, one a turn: the conversation is sent as a whole in few of the questions."""
    images, transcript, resent = ShownImages(40_000), list[Message](), 0
    for at in range(0, 200, 2):
        transcript += [message_of(at, "assistant", []), message_of(at + 1, "tool", [3])]
        images.follow(transcript)
        resent += images.find_first_changed(len(transcript) - 2) < len(transcript) - 2
    assert 5 <= resent <= 25
    last = images.view(1, transcript[1]).content[1]
    assert last == TextContent(
        "[an image of 1200 x 1200 px was here; newer images need its room. To see it, call look again]"
    )


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_sizes_come_from_the_header(form: str) -> None:
    """Of each format that models accept; what is cut off or no image has no size and is counted as large."""
    image = image_of(317, 211, form)
    assert read_image_size(image) == (317, 211)
    for data in ("", "x", "AAAA" * 9, image.data[:4], "/9j/" * 99, image.data[:12] + "//79" * 4, "é"):
        broken = ImageContent(data, "image/png")
        assert read_image_size(broken) is None or data.startswith(image.data[:12])
        assert estimate_image_tokens(broken) == UNKNOWN_TOKENS or data.startswith(image.data[:12])


def test_further_forms_of_webp() -> None:
    """Without loss, and extended with transparency."""
    for options, mode in (({"lossless": True}, "RGB"), ({"exif": b"Exif\0\0MM\0*"}, "RGBA")):
        data = BytesIO()
        Image.new(mode, (77, 300)).save(data, "WEBP", **options)
        assert read_image_size(ImageContent(b64encode(data.getvalue()).decode(), "image/webp")) == (77, 300)
