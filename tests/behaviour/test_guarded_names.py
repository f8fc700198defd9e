"""A guard that looks at one parameter by its name is not passed by another spelling."""

from __future__ import annotations

import pytest

from sessiontree import BlockCall, Hook, HookContext, ScriptedModel, script_call
from sessiontree.contracts.tools.hooks import CalledTool, HookAnswer
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener

NAMES = ("path", "file_path", "filePath")
SECRET = "the-inside-of-it"


class Guard(Hook):
    """Keeps one file from being read; knows one name of the parameter."""

    def before_tool_call(self, call: CalledTool, ctx: HookContext) -> HookAnswer:
        return BlockCall("that file is private") if call.params.get("path") == "private.txt" else None


@pytest.mark.covers("REL-L40")
async def test_no_spelling_gets_past_a_guard(open_tree: Opener) -> None:
    """REL-L40: other spellings are names before anybody looks; two at once reach neither guard nor tool."""
    (open_tree.workspace / "private.txt").write_text(SECRET)
    (open_tree.workspace / "public.txt").write_text("for all")
    private = [script_call("read", **{name: "private.txt"}) for name in NAMES]
    twice = [script_call("read", **{name: "private.txt", "path": "public.txt"}) for name in NAMES[1:]]
    model = ScriptedModel({"main": [*private, *twice, script_call("read", filePath="public.txt"), "done"]})
    async with open_tree(model, hooks=[Guard()]) as tree:
        assert await tree.main.send("go") == "done"
        told = [message.text for message in results(tree, "main")]
    assert [("private" in text, SECRET in text) for text in told[:3]] == [(True, False)] * 3
    assert [SECRET in text or "for all" in text for text in told[3:5]] == [False, False]
    assert "for all" in told[5]
