"""Places that cannot be used: each one clear typed error, and what is good stays usable."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    ConfigError,
    JournalCorrupt,
    JournalError,
    JournalLocked,
    JournalUnwritable,
    PermissionTier,
    RawTool,
    Runtime,
    ScriptedModel,
    Tool,
    ToolContext,
    ToolResult,
    TreeNotFound,
    script_call,
    tool,
)
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.journal.claim import JournalClaim
from tests.behaviour.effect_fakes import TOOLS, Append, Look
from tests.behaviour.tree_fixtures import Opener


@tool(name="READ")
async def other_read(path: str) -> str:
    """Read something else."""
    return path


class Legacy(Tool[Any]):
    """Takes what older releases of other systems gave."""

    name = "legacy"
    description = "Do it the old way."
    Params = Look.Params

    async def execute(  # type: ignore[override]
        self, tool_call_id: str, params: Any, signal: object, on_update: object
    ) -> ToolResult:
        return ToolResult("old")


class Nameless(Append):
    """Has a name no model could write."""

    name = "two words"


class Mute(Append):
    """Does not say what it does."""

    description = ""


class Blocking(Tool[Any]):
    """Would block the loop."""

    name = "blocking"
    description = "Block."
    Params = Look.Params

    def execute(self, params: Any, ctx: ToolContext) -> ToolResult:  # type: ignore[override]
        return ToolResult("blocked")


class Sly(Look):
    """Wants to be held by Workers, and to write."""

    name = "sly"
    capabilities = frozenset({"writer"})


class Crooked(RawTool):
    """Its schema is not valid."""

    name = "crooked"
    description = "Take anything."
    parameters: Mapping[str, JsonValue] = {"type": "object", "properties": {"a": {"type": "nonsense"}}}

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult("x")


WRONG_TOOLS: dict[str, tuple[list[Tool[Any]], str]] = {
    "two of one name": ([other_read], "two tools are called"),
    "one given twice": ([Append(), Append()], "two tools are called 'append'"),
    "an old signature": ([Legacy()], "execute(self, params, ctx)"),
    "a name of two words": ([Nameless()], "'two words'"),
    "no description": ([Mute()], "description is ''; give text"),
    "a body that is not async": ([Blocking()], "async def"),
    "a writer for Workers": ([Sly()], "Worker only observes"),
    "a schema that is not valid": ([Crooked()], "crooked"),
}


@pytest.mark.covers("A2", "U1")
@pytest.mark.own_runtime
@pytest.mark.parametrize("name", WRONG_TOOLS)
async def test_badly_declared_tool_is_refused_before_any_session(open_tree: Opener, name: str) -> None:
    """Tools are checked when the tree is made; the error says how to mend them."""
    tools, words = WRONG_TOOLS[name]
    with pytest.raises(ConfigError) as caught:
        open_tree(ScriptedModel(["done"]), tools=tools)
    assert words in str(caught.value)
    assert not open_tree.state_dir.exists()


def _made_here(text: str) -> Tool[Any]:
    @tool(tier=PermissionTier.READ_ONLY)
    async def twin() -> str:
        """Say a text."""
        return text

    return twin


def test_two_tools_of_one_name_are_told_apart() -> None:
    """By where each is defined: module, name, file and line; a tool that is there twice is one place."""

    @tool(tier=PermissionTier.READ_ONLY)
    async def twin() -> str:
        """Say nothing."""
        return ""

    class Grown(Append):
        name = "twin"

    for other, where in ((twin, "<locals>.twin"), (Grown(), "<locals>.Grown")):
        with pytest.raises(ConfigError) as caught:
            ToolTable([_made_here("a"), other])
        said = str(caught.value)
        assert said.startswith("two tools are called 'twin': ")
        assert said.count(f"{__file__}:") == 2
        assert f"{__name__}._made_here.<locals>.twin (" in said
        assert where in said.partition(" and ")[2]
    with pytest.raises(ConfigError, match=r"two tools are called 'twin': both are .*_made_here"):
        ToolTable([_made_here("a"), _made_here("b")])


@pytest.mark.own_runtime
@pytest.mark.parametrize("form", ["missing", "file"])
async def test_workspace_must_be_a_directory(open_tree: Opener, tmp_path: Path, form: str) -> None:
    """A workspace that is missing or a file is named in the error, and nothing is made."""
    place = tmp_path / "elsewhere"
    if form == "file":
        place.write_text("x")
    with pytest.raises(ConfigError, match="elsewhere"):
        open_tree(ScriptedModel(["done"]), workspace=place)
    assert not open_tree.state_dir.exists()


@pytest.mark.own_runtime
@pytest.mark.parametrize("place", [None, b"/", 5, "", "/a\0b", "/" + "a" * 5000, "~nobody-of-this-name/x"])
async def test_what_can_be_no_path_is_refused(open_tree: Opener, place: Any) -> None:
    """A workspace or a state directory that no system could have is a ConfigError that names the setting."""
    with pytest.raises(ConfigError, match="workspace"):
        open_tree(ScriptedModel(["done"]), workspace=place)
    if place is None or (isinstance(place, str) and len(place) > 4096):
        return  # None is the default there, and a path too long is the journal's to refuse
    with pytest.raises(ConfigError, match="state_dir"):
        open_tree(ScriptedModel(["done"]), state_dir=place)
    with pytest.raises(ConfigError, match="state_dir"):
        Runtime(place, backend="local")


@pytest.mark.own_runtime
@pytest.mark.parametrize("beneath", [".", "deeper/still"])
async def test_workspace_in_the_state_directory_is_refused_before_anything_is_made(
    open_tree: Opener, tmp_path: Path, beneath: str
) -> None:
    """The state directory is hidden from all tools; so would be the whole workspace."""
    place = tmp_path / "both"
    workspace = place / beneath
    workspace.mkdir(parents=True)
    before = sorted(place.rglob("*"))
    tree = open_tree(ScriptedModel(["done"]), workspace=workspace, state_dir=place)
    with pytest.raises(ConfigError, match=r"is in state_dir .* give a place outside"):
        await tree.start()
    assert sorted(place.rglob("*")) == before


async def test_workspace_that_vanishes_is_named_in_the_end_of_its_sessions(open_tree: Opener) -> None:
    """A session that cannot be given its files ends, typed and alone, and says which place is gone."""
    async with open_tree(ScriptedModel(["done"])) as tree:
        assert await tree.main.send("hello") == "done"
        open_tree.workspace.rmdir()
        worker = await tree.main.spawn("worker", "look")
        result = await worker.result()
        assert result.status == "failed"
        assert str(open_tree.workspace) in result.summary
        assert await tree.main.send("and you?") == "done"
    assert not open_tree.workspace.exists()
    with pytest.raises(ConfigError, match="workspace"):
        await open_tree.resume(tree.tree_id, ScriptedModel(["done"]))
    open_tree.workspace.mkdir()
    async with await open_tree.resume(tree.tree_id, ScriptedModel(["done"])) as again:
        assert await again.main.send("back?") == "done"


@pytest.mark.parametrize("place", ["file", "below a file", "no room for files"])
async def test_state_directory_that_cannot_be_written_is_said_so(
    open_tree: Opener, tmp_path: Path, place: str
) -> None:
    """The error names the path; the same tree opens elsewhere."""
    blocker = tmp_path / "blocker"
    blocker.write_text("kept")
    state_dir = {"file": blocker, "below a file": blocker / "state", "no room for files": Path("/proc/self")}
    tree = open_tree(ScriptedModel(["done"]), state_dir=state_dir[place])
    with pytest.raises(JournalUnwritable) as caught:
        await tree.start()
    assert str(state_dir[place]) in caught.value.path
    assert blocker.read_text() == "kept"
    await tree.close()
    async with open_tree(ScriptedModel(["done"])) as other:
        assert await other.main.send("x") == "done"


@pytest.mark.own_runtime
async def test_open_tree_is_not_taken_up_again(open_tree: Opener) -> None:
    """A second tree over the same directory joins the first one's runtime; the open tree goes on."""
    async with open_tree(ScriptedModel(["done"])) as tree:
        async with open_tree(ScriptedModel(["done"])) as other:
            assert await other.main.send("x") == "done"
        with pytest.raises(ConfigError, match="is open in this runtime"):
            await open_tree.resume(tree.tree_id, ScriptedModel(["done"]))
        assert await tree.main.send("x") == "done"
    async with open_tree(ScriptedModel(["done"])) as tree:
        assert await tree.main.send("x") == "done"


async def test_tree_nobody_wrote_is_not_found(open_tree: Opener) -> None:
    """Resuming an unknown id says so and leaves the directory usable, one that is missing included."""
    with pytest.raises(TreeNotFound, match="t0"):
        await open_tree.resume("t0", ScriptedModel(["done"]))
    async with open_tree(ScriptedModel(["done"])) as tree:
        assert await tree.main.send("x") == "done"
    with pytest.raises(TreeNotFound):
        await open_tree.resume("t0", ScriptedModel(["done"]))
    async with await open_tree.resume(tree.tree_id, ScriptedModel(["done"])) as again:
        assert again.main.history()[-1].to_wire()["role"] == "assistant"


@pytest.mark.own_runtime
@pytest.mark.parametrize("damage", ["the header", "everything", "the tree's first facts"])
async def test_damaged_journal_is_said_so_and_left_as_it_is(open_tree: Opener, damage: str) -> None:
    """A journal that cannot be read is JournalCorrupt, never another tree; the file is not touched."""
    async with open_tree(ScriptedModel(["done"])) as tree:
        await tree.main.send("x")
    (database,) = open_tree.state_dir.glob("*.db")
    if damage == "the tree's first facts":
        with sqlite3.connect(database) as connection:
            tables = [
                row[0] for row in connection.execute("select name from sqlite_master where type='table'")
            ]
            segments = next(name for name in tables if "segment" in name)
            connection.execute(f"delete from {segments}")  # noqa: S608 - the name comes from the file itself
        connection.close()
    else:
        size = database.stat().st_size
        with database.open("r+b") as file:
            file.write(b"\xa5" * (100 if damage == "the header" else size))
    before = database.read_bytes()
    with pytest.raises(JournalError) as caught:
        await open_tree.resume(tree.tree_id, ScriptedModel(["done"]))
    assert isinstance(caught.value, JournalCorrupt)
    if damage != "the tree's first facts":
        assert database.read_bytes() == before


@pytest.mark.slow
async def test_resuming_without_the_trees_agents_or_tools_is_told(open_tree: Opener) -> None:
    """Agents must be given again; a tool that is not given is gone, and its calls say so."""
    model = ScriptedModel([script_call("append"), "done"])
    async with open_tree(model, tools=TOOLS) as tree:
        pass
    async with await open_tree.resume(tree.tree_id, model) as again:
        assert await again.main.send("go") == "done"
        assert "no tool is named 'append'" in again.main.history()[2].to_wire()["content"][0]["text"]
    with pytest.raises(ConfigError, match="provider:model"):
        await open_tree.resume(tree.tree_id, "gpt")  # type: ignore[arg-type]


@pytest.mark.own_runtime
async def test_failed_start_can_be_tried_again(open_tree: Opener) -> None:
    """A tree whose journal another program wrote opens once that is free."""
    journal = open_tree.state_dir / "journals" / "7"
    late = open_tree(ScriptedModel(["done"]), state_dir=journal)
    claim = JournalClaim.take(journal)
    with pytest.raises(JournalLocked):
        await late.start()
    claim.release()
    async with late, asyncio.timeout(60):
        assert await late.main.send("x") == "done"
