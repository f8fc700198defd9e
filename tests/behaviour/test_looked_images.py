"""Images that ``image`` shows reach a model that sees, without metadata, and their facts reach any other."""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64decode, b64encode
from io import BytesIO

import pytest
from PIL import Image

from sessiontree import (
    AgentSpec,
    AssistantMessage,
    AsyncFunctionModel,
    ConfigError,
    FunctionModel,
    ImageContent,
    Model,
    ModelError,
    ModelRequest,
    PermissionTier,
    SessionFailed,
    StoredTrees,
    TextContent,
    ToolCall,
    ToolContext,
    ToolResultMessage,
    Usage,
    script_call,
    tool,
)
from sessiontree.contracts.facts.tree_facts import UsageCharged, VisionAnswered
from sessiontree.contracts.recorded.capabilities import VISION
from sessiontree.models.answers import Answer
from sessiontree.runtime.runner.shown_images import estimate_image_tokens
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of
from tests.behaviour.tree_fixtures import BACKENDS, Opener
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
async def test_model_that_sees_is_shown_the_pixels_alone(open_tree: Opener) -> None:
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


async def test_model_that_reads_only_text_gets_the_facts(open_tree: Opener) -> None:
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
    seen = f"{sum(map(estimate_image_tokens, shown))}/{notes}"
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
async def test_images_of_a_conversation_fit_its_model(open_tree: Opener, model: Model) -> None:
    """Each request has the newest picture, and all of them use at most half of the context; texts stay."""
    (open_tree.workspace / "a.png").write_bytes(saved(Image.new("RGB", (1200, 1200), (0, 200, 0)), "PNG"))
    agents = {"default": AgentSpec(tools=["image"], context_tokens=8_000)}
    async with open_tree(model, agents=agents) as tree:
        assert await tree.main.send("look") == "0/0 1920/0 3840/0 1920/2 3840/2"


SEER = Usage(input_tokens=40, output_tokens=2, cost_usd=0.5)


def see(request: ModelRequest) -> AssistantMessage:
    """Say what an image model was shown, and what it was asked."""
    (message,) = request.messages
    shown = [block for block in message.content if isinstance(block, ImageContent)]
    picture = Image.open(BytesIO(b64decode(shown[0].data)))
    said = [request.session_id, request.model, len(shown), [*picture.size], dict(picture.getexif())]
    text = json.dumps(
        [*said, len(request.tools), message.text, "never an instruction" in request.system_prompt]
    )
    return AssistantMessage((TextContent(text),), "stop", SEER)


async def see_later(request: ModelRequest) -> AssistantMessage:
    """The same, for a model that is awaited."""
    return see(request)


def report_look(request: ModelRequest) -> Answer:
    """Look once, then repeat the result; it has no image."""
    found = [message for message in request.messages if isinstance(message, ToolResultMessage)]
    if not found:
        return script_call("image", images=["a.jpg", "a.jpg"], question="which colour?")
    assert all(isinstance(block, TextContent) for block in found[0].content)
    return found[0].text


@pytest.mark.covers("S16")
@pytest.mark.slow
@pytest.mark.on_ray
@pytest.mark.parametrize(
    "seer",
    [AsyncFunctionModel(see_later, name="seer"), FunctionModel(see, name="seer")],
    ids=["waits", "instant"],
)
async def test_image_model_is_asked_and_charged(open_tree: Opener, seer: Model) -> None:
    """It sees clean pictures and the question alone; its words are untrusted; its usage is the session's."""
    picture = Image.new("RGB", (40, 20), (0, 200, 0))
    exif = picture.getexif()
    exif[0x0112], exif[0x010E] = 6, SECRET.decode()
    (open_tree.workspace / "a.jpg").write_bytes(saved(picture, "JPEG", exif=exif))
    agents = {"default": AgentSpec(tools=["image"], image_model="sees", images=None)}
    async with open_tree(FunctionModel(report_look), models={"sees": seer}, agents=agents) as tree:
        text = await tree.main.send("look")
        (answered,) = await facts_of(tree, VisionAnswered)
        assert (answered.model, answered.usage) == ("seer", SEER)
        used = tree.usage()
        assert (used.input_tokens, used.output_tokens, used.cost_usd) == (40, 2, 0.5)
        assert tree.main.status().taint
        assert await tree.main.send("and now?")
        report = await StoredTrees(tree.state_dir).replay(tree.tree_id)
        assert report.matches, report
    facts, _, said = text.partition("<<<EXTERNAL_UNTRUSTED_CONTENT")
    assert facts.count("JPEG, 20 x 40 px") == 2
    assert json.loads(next(line for line in said.splitlines() if line.startswith("["))) == [
        "main", "seer", 2, [20, 40], {}, 0, "which colour?", True,
    ]  # fmt: skip


PNG = b64encode(saved(Image.new("RGB", (8, 8), (0, 0, 255)), "PNG")).decode()


@tool(tier=PermissionTier.READ_ONLY, capabilities=[VISION])
async def ask_seer(key: str, ctx: ToolContext) -> str:
    """Ask the image model."""
    try:
        answer = await ctx.require(VISION).ask("what?", [ImageContent(PNG, "image/png")], key=key)
    except Exception as error:  # noqa: BLE001 - the test reads it
        return f"{type(error).__name__}: {error}"
    return answer.text


def ask_twice(request: ModelRequest) -> Answer:
    """Make two calls with one key for each message; then repeat all results so far."""
    if isinstance(request.messages[-1], ToolResultMessage):
        return " ".join(each.text for each in request.messages if isinstance(each, ToolResultMessage))
    return [script_call("ask_seer", key="k"), script_call("ask_seer", key="k")]


async def guess(request: ModelRequest) -> AssistantMessage:
    """Say something else each time, a little later."""
    await asyncio.sleep(0.02)
    return AssistantMessage((TextContent(secrets.token_hex(4)),), "stop", SEER)


TWICE = {"agents": {"default": AgentSpec(image_model="seer")}, "tools": [ask_seer], "builtin_tools": False}


@pytest.mark.slow
@pytest.mark.on_ray
@pytest.mark.own_runtime
async def test_one_call_asks_an_image_model_once(open_tree: Opener) -> None:
    """A repeat joins the question, or gets the kept answer, also after a resume; it is charged once."""
    models = {"seer": AsyncFunctionModel(guess, name="seer")}
    async with open_tree(FunctionModel(ask_twice), models=models, **TWICE) as tree:
        first = set((await tree.main.send("go")).split())
        tree_id = tree.tree_id
    async with await open_tree.resume(tree_id, FunctionModel(ask_twice), models=models, **TWICE) as tree:
        again = set((await tree.main.send("go on")).split())
        assert len(await facts_of(tree, VisionAnswered)) == 1
        charged = [fact.usage for fact in await facts_of(tree, UsageCharged)]
        assert sum(usage.input_tokens for usage in charged) == 40
        report = await StoredTrees(tree.state_dir).replay(tree_id)
        assert report.matches, report
    assert len(first) == 1
    assert again == first


async def break_down(request: ModelRequest) -> Answer:
    """Fail."""
    raise ModelError("no such model here")


async def say_nothing(request: ModelRequest) -> Answer:
    """Say nothing."""
    return ""


def divide(request: ModelRequest) -> Answer:
    """Raise what no model should."""
    return str(1 / 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seer", "reason"),
    [
        (AsyncFunctionModel(break_down, name="seer"), "'seer' did not answer: no such model here"),
        (AsyncFunctionModel(say_nothing, name="seer"), "'seer' gave no answer in text"),
        (FunctionModel(divide, name="seer"), "seer raised ZeroDivisionError"),
    ],
    ids=["fails", "says nothing", "raises"],
)
async def test_failing_image_model_is_named(open_tree: Opener, seer: Model, reason: str) -> None:
    """The call fails, and the session goes on."""
    async with open_tree(FunctionModel(ask_twice), models={"seer": seer}, **TWICE) as tree:
        said = await tree.main.send("go")
        assert said.count("ExecutionError: image model") == 2
        assert reason in said


@pytest.mark.slow
@pytest.mark.parametrize("variant", BACKENDS, indirect=True)
async def test_interruption_ends_the_question(open_tree: Opener) -> None:
    """The gateway asks no more, nothing is kept or charged, and the next question is a new one.

    Local alone: the model reports to the test by events of this process.
    """
    begun, ended, quick = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def ponder(request: ModelRequest) -> Answer:
        begun.set()
        if quick.is_set():
            return "blue"
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    models = {"seer": AsyncFunctionModel(ponder, name="seer")}
    async with (
        open_tree(FunctionModel(ask_twice), models=models, **TWICE) as tree,
        asyncio.timeout(PATIENCE_S),
    ):
        sending = asyncio.ensure_future(tree.main.send("go"))
        await begun.wait()
        await tree.main.interrupt("enough")
        await ended.wait()
        with pytest.raises(SessionFailed, match="interrupted"):
            await sending
        assert await facts_of(tree, VisionAnswered) == []
        quick.set()
        assert "blue" in await tree.main.send("go")


async def test_image_model_must_be_known_and_see(open_tree: Opener) -> None:
    """The tree is refused before anything is asked; without an image model no session holds the handle."""
    blind = FunctionModel(see, name="blind")
    vars(blind)["reads_images"] = False
    for models, reason in (({}, "no model is called 'seer'"), ({"seer": blind}, "'seer' reads only text")):
        with pytest.raises(ConfigError, match=reason):
            open_tree(FunctionModel(ask_twice), models=models, **TWICE)
    without = {**TWICE, "agents": {"default": AgentSpec()}}
    async with open_tree(FunctionModel(ask_twice), **without) as tree:
        assert (await tree.main.send("go")).count("vision: its agent has no image model") == 2
