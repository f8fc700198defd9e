"""Images that go along with a message reach the model and the transcript."""

from __future__ import annotations

import io
from base64 import b64encode

import pytest
from PIL import Image

from sessiontree import ConfigError, FunctionModel, ImageContent, ModelRequest, UserMessage
from tests.behaviour.tree_fixtures import Opener


def picture(size: int = 20) -> ImageContent:
    """Return a small image."""
    data = io.BytesIO()
    Image.new("RGB", (size, size)).save(data, "PNG")
    return ImageContent(b64encode(data.getvalue()).decode(), "image/png")


def seen(request: ModelRequest) -> str:
    """Say which images the model was shown, message by message."""
    shown = [
        [block.mime_type for block in message.content if isinstance(block, ImageContent)]
        for message in request.messages
        if isinstance(message, UserMessage)
    ]
    return str(shown)


async def test_image_of_a_message_reaches_the_model(open_tree: Opener) -> None:
    """Beside the text, in order; the transcript keeps it."""
    async with open_tree(FunctionModel(seen), builtin_tools=False) as tree:
        assert await tree.main.send("two", images=[picture(), picture(30)]) == "[['image/png', 'image/png']]"
        assert await tree.main.send("none") == "[['image/png', 'image/png'], []]"
        first = tree.main.history()[0]
        assert isinstance(first, UserMessage)
        assert first.content[1:] == (picture(), picture(30))


@pytest.mark.parametrize(
    ("images", "error"),
    [
        ("picture.png", "give a list of ImageContent"),
        ([b"x"], "images.0 is b'x'; give an ImageContent"),
        ([ImageContent("no base64!", "image/png")], "is not of that type"),
        ([ImageContent(picture().data, "image/jpeg")], "declared as 'image/jpeg'"),
        ([picture()] * 21, "21 are given; a message takes 20 at most"),
    ],
)
async def test_what_is_no_image_is_refused(open_tree: Opener, images: list[ImageContent], error: str) -> None:
    """Before anything is sent."""
    async with open_tree(FunctionModel(seen), builtin_tools=False) as tree:
        with pytest.raises(ConfigError, match=error):
            tree.main.send("look", images=images)
        assert len(tree.main.history()) == 0
