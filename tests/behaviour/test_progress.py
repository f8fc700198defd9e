"""What a running call reports: seen while it runs, cut, kept where the call is cut short, and never later."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from io import BytesIO
from typing import ClassVar

import pytest
from PIL import Image
from pydantic import BaseModel

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ImageContent,
    PermissionTier,
    ScriptedModel,
    SessionTreeError,
    TextContent,
    Tool,
    ToolResult,
    script_call,
    tool,
)
from sessiontree.contracts.reports.events import (
    Event,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from sessiontree.contracts.tools.context import ToolContext
from tests.behaviour.fact_fixtures import PATIENCE_S, results
from tests.behaviour.hook_fakes import Masking
from tests.behaviour.signal_fixtures import Flag
from tests.behaviour.switchboard_fixtures import Switchboard
from tests.behaviour.tree_fixtures import Opener
from tests.behaviour.waiting_fakes import Sleeper
from tests.unit.dispatch.image_fixtures import SECRET, saved

only_local = pytest.mark.parametrize("variant", ["local"], indirect=True)


class How(BaseModel):
    """What it reports, and whether it comes to an end."""

    text: str
    ends: bool = False


class Report(Tool[How]):
    """Reports, and waits for ever or is done."""

    name = "report"
    description = "Report."
    Params: ClassVar[type[BaseModel]] = How
    tier = PermissionTier.READ_ONLY

    def __init__(self, board: Switchboard, timeout_s: float | None = None) -> None:
        self.timeout_s = timeout_s  # type: ignore[misc]
        self.reported = Flag(board)

    async def execute(self, params: How, ctx: ToolContext) -> ToolResult:
        ctx.update("first")
        ctx.update({"content": [{"type": "text", "text": params.text}]})
        self.reported.set()
        if not params.ends:
            await asyncio.get_running_loop().create_future()
        return ToolResult("done")


@pytest.mark.covers("I24", "S2", "I20")
@pytest.mark.parametrize("how", ["message", "time-out"])
@pytest.mark.on_ray
async def test_what_was_reported_last_is_the_partial_result(
    open_tree: Opener, board: Switchboard, how: str
) -> None:
    """Of a call that a message or its deadline cuts short; past the hooks, like any result."""
    report = Report(board, 0.05 if how == "time-out" else None)
    script = ScriptedModel([script_call("report", text="half of it, secret"), "went on"])
    async with open_tree(script, tools=[report], hooks=[Masking("secret")]) as tree:
        sent = asyncio.ensure_future(tree.main.send("go"))
        if how == "message":
            await report.reported.wait()
            await tree.main.send("enough", mode="steer")
        async with asyncio.timeout(PATIENCE_S):
            assert await sent == "went on"
        (cut_short,) = results(tree, "main")
        told = json.loads(cut_short.text)
        assert told["status"] == "error"
        assert told["partial"] == {"content": [{"type": "text", "text": "half of it, ***"}]}


@only_local
async def test_call_that_ends_by_itself_has_no_partial_result(open_tree: Opener, board: Switchboard) -> None:
    """Its result is whole; every report before it was shown, long ones cut."""
    long = "é" * 100_000
    async with open_tree(
        ScriptedModel([script_call("report", text=long, ends=True), "went on"]), tools=[Report(board)]
    ) as tree:
        progress = tree.progress()
        await tree.main.send("go")
        assert results(tree, "main")[0].text == "done"
        seen: list[Event] = [each.event for each in progress.drain()]
        tools = [each for each in seen if not hasattr(each, "delta") and not hasattr(each, "stop_reason")]
        start, first, second, end = tools
        assert isinstance(start, ToolExecutionStart)
        assert isinstance(first, ToolExecutionUpdate)
        assert isinstance(second, ToolExecutionUpdate)
        assert isinstance(end, ToolExecutionEnd)
        assert first.partial == "first"
        assert "of 100000 characters shown" in str(second.partial)
        assert len(str(second.partial)) < 9_000


class Film(Tool[How]):
    """Reports with pictures, and ends once they were seen."""

    name = "film"
    description = "Film."
    Params: ClassVar[type[BaseModel]] = How
    tier = PermissionTier.READ_ONLY

    def __init__(self, board: Switchboard) -> None:
        self.seen = Flag(board)

    async def execute(self, params: How, ctx: ToolContext) -> ToolResult:
        picture = Image.new("RGB", (2400, 1200), (0, 0, 200))
        exif = picture.getexif()
        exif[0x010E] = SECRET.decode()
        large = ImageContent(b64encode(saved(picture, "JPEG", exif=exif)).decode(), "image/jpeg")
        broken = ImageContent("iVBORw0KGgo=", "image/png")
        ctx.update("secret first", [large, broken, "no image", ImageContent(7, "")])  # type: ignore[list-item, arg-type]
        await asyncio.sleep(0)  # its pictures are being fitted from now on
        ctx.update("second", [large])
        ctx.update("third", [broken] * 6)
        ctx.update("last")
        await self.seen.wait()
        return ToolResult("done")


@pytest.mark.covers("I24")
@pytest.mark.slow
@pytest.mark.on_ray
@pytest.mark.parametrize("hooks", [(), (Masking("secret"),)])
async def test_pictures_of_an_update_are_fitted_and_bounded(
    open_tree: Opener, board: Switchboard, hooks: tuple[Masking, ...]
) -> None:
    """In order; without metadata; the newest that waits keeps its pictures, and a note counts the others."""
    film = Film(board)
    script = ScriptedModel([script_call("film", text="x"), "went on"])
    async with (
        asyncio.timeout(PATIENCE_S),
        open_tree(
            script, tools=[film], hooks=list(hooks), agents={"default": AgentSpec(images=None)}
        ) as tree,
    ):
        progress = tree.progress()
        sent = asyncio.ensure_future(tree.main.send("go"))
        updates: list[ToolExecutionUpdate] = []
        while not updates or updates[-1].partial != "last":
            event = (await progress.next()).event
            updates += [event] if isinstance(event, ToolExecutionUpdate) else []
            assert not isinstance(event, ToolExecutionEnd)
        film.seen.set()
        assert await sent == "went on"
        assert "image" not in json.dumps(results(tree, "main")[0].to_wire()["content"])
    first, second, third, last = updates
    assert (second.partial, third.partial, last.content) == ("second", "third", ())
    assert first.partial == ("*** first" if hooks else "secret first")
    note, block = first.content
    assert isinstance(note, TextContent)
    assert "image 1 of 2 is shown at 1200 x 600 px" in note.text
    assert "image 2 of 2 was left out" in note.text
    assert isinstance(block, ImageContent)
    shown = Image.open(BytesIO(b64decode(block.data)))
    assert (shown.size, dict(shown.getexif())) == ((1200, 600), {})
    assert second.content == (TextContent("[1 of 1 images of this update were left out]"),)
    notes = [each.text for each in third.content if isinstance(each, TextContent)]
    assert notes[0] == "[2 of 6 images of this update were left out]"
    assert "image 4 of 4 was left out" in notes[1]
    wire = first.to_wire()["partialResult"]
    assert wire["details"] == first.partial
    assert [each["type"] for each in wire["content"]] == ["text", "image"]


@pytest.mark.slow
@only_local
async def test_small_share_of_the_context_is_all_a_partial_result_takes(
    open_tree: Opener, board: Switchboard
) -> None:
    """Half of what the agent lets a result have."""
    script = ScriptedModel([script_call("report", text="x" * 7_000), "went on"])
    report = Report(board, 0.05)
    agent = AgentSpec(config=AgentConfig(max_result_chars=1_000))
    async with open_tree(script, tools=[report], agents={"default": agent}) as tree:
        await tree.main.send("go")
        assert len(results(tree, "main")[0].text) < 1_500


@tool(tier=PermissionTier.READ_ONLY, sequential=True)
def alone() -> str:
    """Run alongside no other call."""
    return "alone"


@only_local
async def test_calls_that_never_began_begin_with_their_end(open_tree: Opener, board: Switchboard) -> None:
    """Those who watch see both of a call that a message overtook."""
    sleeper = Sleeper(board)
    model = ScriptedModel([[script_call("sleeper"), script_call("alone")], "as you like", "and more"])
    async with open_tree(model, tools=[sleeper, alone]) as tree:
        progress = tree.progress()
        first = tree.main.send("sleep")
        async with asyncio.timeout(PATIENCE_S):
            await sleeper.started.wait()
            second = tree.main.send("rather not", mode="steer")
            await second
            await first
        seen = [each.event for each in progress.drain()]
        tools = [each for each in seen if isinstance(each, ToolExecutionStart | ToolExecutionEnd)]
        calls = {each.tool_call_id: list[str]() for each in tools}
        for each in tools:
            calls[each.tool_call_id].append(type(each).__name__)
        assert list(calls.values()) == [["ToolExecutionStart", "ToolExecutionEnd"]] * 2


@only_local
async def test_loop_over_progress_ends_with_the_tree(open_tree: Opener) -> None:
    """Everything until then is yielded; a reader has no method by which events come in."""
    tree = open_tree(ScriptedModel([script_call("read", path="none"), "done"]))
    await tree.start()
    reader = tree.progress("main")

    async def watch() -> list[Event]:
        return [progress.event async for progress in reader]

    watching = asyncio.create_task(watch())
    await tree.main.send("go")
    await tree.close()
    async with asyncio.timeout(PATIENCE_S):
        seen = await watching
    assert [type(event) for event in seen if isinstance(event, ToolExecutionStart | ToolExecutionEnd)] == [
        ToolExecutionStart,
        ToolExecutionEnd,
    ]
    with pytest.raises(SessionTreeError, match=f"{tree.tree_id}.*is closed"):
        await reader.next()
    assert {name for name in dir(reader) if not name.startswith("_")} == {
        *("catch_up", "close", "drain", "dropped", "next", "session", "tree_id")
    }
