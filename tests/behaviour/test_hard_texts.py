"""Texts that are hard to keep: what a tool returns of them is bounded, whole, and comes back."""

from __future__ import annotations

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    ExecutionError,
    PermissionTier,
    ScriptedModel,
    script_call,
    tool,
)
from sessiontree.contracts.reports.events import encode_for_screen
from sessiontree.contracts.values.jsonable import dump_json
from tests.behaviour.fact_fixtures import records, results
from tests.behaviour.tree_fixtures import Opener

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
MAX_CHARS = 1_000
TEXTS = {
    "nul": "a\0b\0",
    "controls": "\x1b[2J\x07\x08\r\x85\u2028\x9f",
    "half a pair": "\ud800 and \udfff",
    "a pair in halves": "\ud83d\udc69" * 10,
    "stray bytes": b"\xff\xfe caf\xc3\xa9 \x80".decode("utf-8", "surrogateescape"),
    "no line end": "x" * 2_000_000,
    "families": FAMILY * 400,
    "marks without end": "a" + "\u0301" * 50_000,
    "nothing but ends": "\n" * 100_000,
}


@tool(tier=PermissionTier.READ_ONLY)
async def tell(which: str, fail: bool = False) -> str:
    """Say something that is hard to keep, as a result or as an error."""
    if fail:
        raise ExecutionError(TEXTS[which])
    return TEXTS[which]


def in_json(text: str) -> str:
    """Return a text as JSON can say it: two halves of a pair are one character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@pytest.mark.covers("I40", "REL-L65")
async def test_any_text_is_bounded_kept_and_read_again(open_tree: Opener) -> None:
    """REL-L65: for the model, the journal, the screen, and a tree taken up again."""
    agents = {"default": AgentSpec(config=AgentConfig(max_result_chars=MAX_CHARS))}
    calls = [script_call("tell", which=which, fail=fail) for which in TEXTS for fail in (False, True)]
    async with open_tree(ScriptedModel([*calls, "done"]), tools=[tell], agents=agents) as tree:
        assert await tree.main.send("go") == "done"
        told = results(tree, "main")
        assert len(told) == len(calls)
        for message, asked in zip(told, calls, strict=True):
            text = in_json(TEXTS[str(asked.arguments["which"])])
            assert message.is_error is asked.arguments["fail"]
            assert len(message.text) <= MAX_CHARS
            assert len(dump_json(encode_for_screen(message))) <= 20 * MAX_CHARS
            if not message.is_error:
                head, _, _ = message.text.partition("\n… cut: ")
                assert text.startswith(head)
                assert (message.text == text) is (len(text) <= MAX_CHARS)
        families = told[2 * list(TEXTS).index("families")].text.partition("\n… cut: ")[0]
        assert set(families.split(FAMILY)) == {""}
        assert all(record.text.isascii() and "\n" not in record.text for record in await records(tree))
        history = tree.main.history()
    async with await open_tree.resume(
        tree.tree_id, ScriptedModel(["on"]), tools=[tell], agents=agents
    ) as again:
        assert again.main.history() == history
