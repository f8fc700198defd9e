"""What a model sees of results: pictures made fit, texts cut, and never a tool's details."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree import (
    AgentConfig,
    AgentSpec,
    AssistantMessage,
    AsyncFunctionModel,
    ConfigError,
    ExecutionError,
    FunctionModel,
    ImageLimits,
    ModelRequest,
    PermissionTier,
    ScriptedModel,
    ToolResult,
    image_result,
    script_call,
    tool,
)
from sessiontree.contracts.values.messages import (
    ImageContent,
    Message,
    TextContent,
    ToolResultMessage,
    UserMessage,
    hide_details,
)
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener
from tests.unit.dispatch.image_fixtures import content, corners, opened, png_of, saved

SECRET = "known-to-the-journal-alone"
BOMB = png_of(30_000, 30_000)


@tool(tier=PermissionTier.READ_ONLY)
def tell() -> ToolResult:
    """Tell something, and more to the journal."""
    return ToolResult({"n": 1}, display=f"shown {SECRET}", details={SECRET: [SECRET]})


@tool(tier=PermissionTier.READ_ONLY)
def fail() -> ToolResult:
    """Fail."""
    raise ExecutionError("no luck " * 10_000)


@tool(tier=PermissionTier.READ_ONLY)
def picture(bad: bool) -> ToolResult:
    """Show a picture."""
    data = BOMB if bad else saved(corners(2400, 1200), "PNG")
    return image_result("seen", data, mime_type="image/bmp", details={"from": SECRET})


@tool(tier=PermissionTier.WORKSPACE)
def photograph() -> ToolResult:
    """Take two pictures, one of which nobody can show."""
    images = (content(saved(corners(), "PNG")), content(BOMB))
    return ToolResult({"taken": 2}, images=images)


@tool(tier=PermissionTier.READ_ONLY)
def album() -> ToolResult:
    """Show ten pictures."""
    return ToolResult({"shown": 10}, images=(content(saved(corners(1000, 600), "PNG")),) * 10)


@tool(tier=PermissionTier.READ_ONLY)
def thumbnail(width: int, most_bytes: int) -> ToolResult:
    """Show a picture under limits of its own."""
    limits = ImageLimits(max_width=width, max_height=600, max_bytes=most_bytes)
    data = saved(corners(2400, 1200), "PNG")
    return image_result("seen", data, mime_type="image/png", image_limits=limits)


TOOLS = [tell, fail, picture, photograph, album, thumbnail]


class Script:
    """Replies as written; its final message says whether it was shown anything of the journal's own."""

    def __init__(self, *replies: Answer) -> None:
        self.replies = replies

    def __call__(self, request: ModelRequest) -> Answer:
        if request.turn <= len(self.replies):
            return self.replies[request.turn - 1]
        asked = repr(request)
        return "leaked" if SECRET in asked or "details={" in asked else "done"

    async def later(self, request: ModelRequest) -> Answer:
        return self(request)


@pytest.mark.covers("Z3")
@pytest.mark.slow
@pytest.mark.parametrize("waits", [False, True], ids=["instant", "waiting"])
async def test_details_reach_the_journal_and_no_model(open_tree: Opener, waits: bool) -> None:
    """Neither details nor the line for people are in any question, whichever way it goes."""
    script = Script(
        [script_call("tell"), script_call("fail"), script_call("picture", bad=False)], [script_call("tell")]
    )
    model = AsyncFunctionModel(script.later) if waits else FunctionModel(script)
    async with open_tree(model, tools=TOOLS) as tree:
        assert await tree.main.send("go") == "done"
        told, failed, drawn, again = results(tree, "main")
        assert told.details == again.details
        assert SECRET in repr(told.details)
        assert SECRET in repr(drawn.details)
        assert failed.details == {"code": "execution_error", "status": 500}
        assert len(failed.text) < 9_000


blocks = st.builds(TextContent, st.text(max_size=5)) | st.builds(ImageContent, st.just("QQ=="), st.just("i"))
details = st.none() | st.recursive(
    st.just(SECRET), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner)
)
messages = st.one_of(
    st.builds(UserMessage, st.lists(blocks, max_size=2).map(tuple), st.just(1)),
    st.builds(AssistantMessage, st.lists(st.builds(TextContent, st.just("t")), max_size=1).map(tuple)),
    st.builds(
        ToolResultMessage, st.just("c"), st.just("t"), st.lists(blocks, max_size=2).map(tuple), details
    ),
)


def nothing_of_details(view: Callable[[Message], Message]) -> None:
    """Of any message but its details a model sees everything, of those nothing."""

    @settings(max_examples=100, database=None, derandomize=True)
    @given(messages)
    def check(message: Message) -> None:
        seen = view(message)
        assert SECRET not in repr(seen)
        assert seen.to_wire() | {"details": None} == message.to_wire() | {"details": None}

    check()


@pytest.mark.slow
def test_model_sees_all_but_details() -> None:
    """Over messages of every kind."""
    nothing_of_details(hide_details)


@pytest.mark.covers("Z3")
@pytest.mark.slow
@pytest.mark.parametrize("bug", [lambda message: message, lambda message: UserMessage((), 1)])
def test_planted_view_is_found(bug: Callable[[Message], Message]) -> None:
    """One that shows everything, one that shows nothing."""
    with pytest.raises((AssertionError, ExceptionGroup)):
        nothing_of_details(bug)


@pytest.mark.covers("S34", "U3")
@pytest.mark.slow
@pytest.mark.on_ray
async def test_image_reaches_the_model_fit(open_tree: Opener) -> None:
    """Shrunk, under its true type, with a note that says so; JSON alongside it stays JSON for a program."""
    async with open_tree(FunctionModel(Script([script_call("picture", bad=False)])), tools=TOOLS) as tree:
        assert await tree.main.send("go") == "done"
        (message,) = results(tree, "main")
        text, note, image = message.content
        assert text == TextContent("seen")
        assert note == TextContent("[image 1 of 1 is shown at 1200 x 600 px; it is 2400 x 1200]")
        assert isinstance(image, ImageContent)
        assert image.mime_type == "image/png"
        assert opened(b64decode(image.data)).size == (1200, 600)


@pytest.mark.slow
async def test_image_that_can_not_be_shown(open_tree: Opener) -> None:
    """A call that changed nothing has failed; one that did keeps its word, and says what is missing."""
    script = Script([script_call("picture", bad=True), script_call("photograph")])
    async with open_tree(FunctionModel(script), tools=TOOLS) as tree:
        assert await tree.main.send("go") == "done"
        failed, taken = results(tree, "main")
        assert failed.is_error
        assert failed.details == {"code": "image_refused", "status": 500}
        assert "can't show image 1 of 1 from picture: its header says 30000 x 30000 px" in failed.text
        assert [type(block) for block in taken.content] == [TextContent, TextContent, ImageContent]
        assert not taken.is_error
        assert "[image 2 of 2 was left out: its header says 30000 x 30000 px" in taken.text
        reply = await tree.main.call("photograph", {})
        assert reply.output == {"taken": 2}


@pytest.mark.covers("U9")
async def test_agent_whose_model_reads_text_alone(open_tree: Opener) -> None:
    """No image is in its conversation; a line tells of each that was left out."""
    agent = AgentSpec(config=AgentConfig(images=None))
    script = FunctionModel(Script([script_call("photograph"), script_call("picture", bad=True)]))
    async with open_tree(script, tools=TOOLS, agents={"default": agent}) as tree:
        assert await tree.main.send("go") == "done"
        both, one = results(tree, "main")
        assert both.text == '{"taken":2}\n[2 images were left out: the model reads only text]'
        assert one.text == "seen\n[1 image was left out: the model reads only text]"
        assert not any(isinstance(block, ImageContent) for block in (*both.content, *one.content))


@pytest.mark.covers("I30")
@pytest.mark.slow
async def test_agents_limits_are_kept(open_tree: Opener) -> None:
    """Width and height of the session's agent."""
    agent = AgentSpec(config=AgentConfig(images=ImageLimits(max_width=100, max_height=20)))
    script = FunctionModel(Script([script_call("picture", bad=False)]))
    async with open_tree(script, tools=TOOLS, agents={"default": agent}) as tree:
        assert await tree.main.send("go") == "done"
        (message,) = results(tree, "main")
        image = message.content[-1]
        assert isinstance(image, ImageContent)
        assert opened(b64decode(image.data)).size == (40, 20)


@pytest.mark.covers("S34", "U3")
@pytest.mark.slow
async def test_result_narrows_the_limits_for_itself_alone(open_tree: Opener) -> None:
    """Never beyond the agent's limits, and the next result of a tool without limits has the agent's."""
    agent = AgentSpec(config=AgentConfig(images=ImageLimits(max_width=400, max_height=400)))
    calls = [
        script_call("thumbnail", width=60, most_bytes=2**20),
        script_call("thumbnail", width=8000, most_bytes=16 * 2**20),
        script_call("picture", bad=False),
    ]
    async with open_tree(FunctionModel(Script(*calls)), tools=TOOLS, agents={"default": agent}) as tree:
        assert await tree.main.send("go") == "done"
        sizes = []
        for message in results(tree, "main"):
            image = message.content[-1]
            assert isinstance(image, ImageContent), message.text
            sizes.append(opened(b64decode(image.data)).size)
    assert sizes == [(60, 30), (400, 200), (400, 200)]


@pytest.mark.short(1)
@pytest.mark.covers("Z4")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "count", "size"),
    [(8_000, 3, (1000, 600)), (1_000, 1, (474, 284)), (1_000_000, 10, (1000, 600))],
)
async def test_images_of_a_result_fit_the_models_context(
    open_tree: Opener, tokens: int, count: int, size: tuple[int, int]
) -> None:
    """Together they take 30 % of it at most; the first is shrunk to fit; the number left out is reported."""
    agent = AgentSpec(config=AgentConfig(context_tokens=tokens))
    script = FunctionModel(Script([script_call("album")]))
    async with open_tree(script, tools=TOOLS, agents={"default": agent}) as tree:
        assert await tree.main.send("go") == "done"
        (message,) = results(tree, "main")
    images = [block for block in message.content if isinstance(block, ImageContent)]
    assert len(images) == count
    assert {opened(b64decode(image.data)).size for image in images} == {size}
    told = f"[{10 - count} of 10 images were left out: they do not fit the model's context]"
    assert (told in message.text) is (count < 10)


@pytest.mark.covers("S34")
async def test_worker_reads_an_image(open_tree: Opener) -> None:
    """The MEDIA line, and the picture, from a session that can change nothing."""
    (open_tree.workspace / "shots").mkdir()
    (open_tree.workspace / "shots" / "one.txt").write_bytes(saved(corners(), "JPEG"))
    script = Script([script_call("read", path="shots/one.txt")])
    async with open_tree(FunctionModel(script)) as tree:
        worker = await tree.main.spawn("worker", "look")
        assert (await worker.result()).summary == "done"
        (message,) = results(tree, worker.session_id)
        text, image = message.content
        assert text == TextContent("MEDIA:shots/one.txt")
        assert isinstance(image, ImageContent)
        assert image.mime_type == "image/jpeg"
        assert opened(b64decode(image.data)).size == (40, 20)


@pytest.mark.covers("S40")
@pytest.mark.parametrize(
    ("given_settings", "most"),
    [({}, 12_000), ({"max_result_chars": 3_000}, 3_000), ({"context_tokens": 5_000}, 6_000)],
)
async def test_results_fit_the_context_that_the_model_tells(
    open_tree: Opener, given_settings: dict[str, Any], most: int
) -> None:
    """What reads scales by it, unless the agent says something else."""
    (open_tree.workspace / "long.txt").write_text("a line of a long file\n" * 4_000)
    model = ScriptedModel([script_call("read", path="long.txt"), "done"], context_tokens=10_000)
    agents = {"default": AgentSpec(config=AgentConfig(**given_settings))}
    async with open_tree(model, agents=agents) as tree:
        await tree.main.send("go")
        (message,) = results(tree, "main")
        assert most // 2 < len(message.text) <= most


async def test_context_that_is_no_number_is_refused(open_tree: Opener) -> None:
    """Before a tree is made; another model's context is not the agent's."""
    model = ScriptedModel(["done"], context_tokens=-1)
    with pytest.raises(ConfigError, match="context_tokens is -1"):
        open_tree(model)
    own = {"default": AgentSpec(config=AgentConfig(model="another"))}
    open_tree(model, models={"another": ScriptedModel(["done"])}, agents=own)
