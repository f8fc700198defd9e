"""Images that ``image`` shows reach a model that sees, without metadata, and their facts reach any other."""

from __future__ import annotations

import json
from base64 import b64decode
from io import BytesIO

import pytest
from PIL import Image

from sessiontree import (
    AgentSpec,
    AsyncFunctionModel,
    FunctionModel,
    ImageContent,
    Model,
    ModelRequest,
    TextContent,
    ToolCall,
    ToolResultMessage,
    script_call,
)
from sessiontree.models.answers import Answer
from sessiontree.runtime.shown_images import image_tokens
from tests.behaviour.tree_fixtures import Opener
from tests.unit.dispatch.image_fixtures import SECRET, saved


def answer(request: ModelRequest) -> Answer:
    """Look once, then say what the model was shown of it."""
    found = [message for message in request.messages if isinstance(message, ToolResultMessage)]
    if not found:
        return script_call("image", images=["a.jpg"], question="which colour?")
    shown = [block for block in found[0].content if isinstance(block, ImageContent)]
    colours = []
    for block in shown:
        picture = Image.open(BytesIO(b64decode(block.data)))
        colours.append([*picture.size, dict(picture.getexif()), picture.convert("RGB").getpixel((1, 1))])
    return json.dumps({"text": found[0].text, "shown": colours, "error": found[0].is_error})


@pytest.mark.covers("S16", "Z4")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_a_model_that_sees_is_shown_the_pixels_alone(open_tree: Opener) -> None:
    """The picture, turned upright, without what was written into its file; the question is in the text."""
    picture = Image.new("RGB", (40, 20), (0, 200, 0))
    exif = picture.getexif()
    exif[0x0112], exif[0x010E] = 6, SECRET.decode()
    (open_tree.workspace / "a.jpg").write_bytes(saved(picture, "JPEG", exif=exif, quality=95))
    agents = {"default": AgentSpec(tools=["image"])}
    async with open_tree(FunctionModel(answer), agents=agents) as tree:
        said = json.loads(await tree.main.send("look"))
    assert said["error"] is False
    assert "JPEG, 20 x 40 px" in said["text"]
    assert said["text"].endswith("which colour?")
    ((width, height, exif_left, pixel),) = said["shown"]
    assert (width, height, exif_left) == (20, 40, {})
    assert pixel[1] > 150 > 60 > max(pixel[0], pixel[2])


async def test_a_model_that_reads_only_text_gets_the_facts(open_tree: Opener) -> None:
    """Format, size and colours, and a note that the image was left out."""
    (open_tree.workspace / "a.jpg").write_bytes(saved(Image.new("RGB", (40, 20), (0, 0, 255)), "PNG"))
    agents = {"default": AgentSpec(tools=["image"], images=None)}
    async with open_tree(FunctionModel(answer), agents=agents) as tree:
        said = json.loads(await tree.main.send("look"))
    assert said["shown"] == []
    assert "PNG, 40 x 20 px" in said["text"]
    assert "#0000ff 100%" in said["text"]
    assert "1 image was left out: the model reads only text" in said["text"]


LOOKS = 4


def look_again(request: ModelRequest) -> Answer:
    """Look several times; each question says how many tokens of images and how many notes the model saw."""
    blocks = [block for message in request.messages for block in message.content]
    shown = [block for block in blocks if isinstance(block, ImageContent)]
    notes = sum("was here" in block.text for block in blocks if isinstance(block, TextContent))
    results = [each for each in request.messages if isinstance(each, ToolResultMessage)]
    seen = f"{sum(map(image_tokens, shown))}/{notes}"
    if len(results) < LOOKS:
        return script_call("image", images=["a.png"], question=f"{len(results)}. {seen}")
    asked = [str(block.arguments["question"])[3:] for block in blocks if isinstance(block, ToolCall)]
    assert all(question in each.text for question, each in zip(asked, results, strict=True))
    return " ".join([*asked, seen])


async def look_later(request: ModelRequest) -> Answer:
    """The same, for a model that is awaited."""
    return look_again(request)


@pytest.mark.covers("Z4")
@pytest.mark.slow
@pytest.mark.on_ray
@pytest.mark.parametrize("model", [AsyncFunctionModel(look_later), FunctionModel(look_again)])
async def test_the_images_of_a_conversation_fit_its_model(open_tree: Opener, model: Model) -> None:
    """Each request has the newest picture, and all of them use at most half of the context; texts stay."""
    (open_tree.workspace / "a.png").write_bytes(saved(Image.new("RGB", (1200, 1200), (0, 200, 0)), "PNG"))
    agents = {"default": AgentSpec(tools=["image"], context_tokens=8_000)}
    async with open_tree(model, agents=agents) as tree:
        assert await tree.main.send("look") == "0/0 1920/0 3840/0 1920/2 3840/2"
