"""A reply whose tokens were used up, and a refusal, are never an answer that looks complete."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    FunctionModel,
    ModelRequest,
    ModelSettings,
    SessionFailed,
    SessionStatus,
    StopPiece,
    StreamFunctionModel,
)
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, ToolCall
from sessiontree.models.port import Model, Piece
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener
from tests.system.house.error_fixtures import has_cause

PARTS = ('{"n": ', "3}")


def in_parts(request: ModelRequest) -> AssistantMessage:
    """Say a value in two parts, the first of them cut; refuse what is not wanted."""
    if "refuse" in request.messages[-1].text:
        return AssistantMessage((TextContent("I won't."),), "refusal")
    step = sum(isinstance(message, AssistantMessage) for message in request.messages) % 2
    return AssistantMessage((TextContent(PARTS[step]),), "stop" if step else "length")


async def streamed(request: ModelRequest) -> AsyncIterator[Piece]:
    """The same as a stream."""
    message = in_parts(request)
    yield message.text
    yield StopPiece(message.stop_reason, "not that" if message.stop_reason == "refusal" else "")


both = pytest.mark.parametrize("model", [FunctionModel(in_parts), StreamFunctionModel(streamed)])
GO_ON = ModelSettings(on_length="continue")


@both
async def test_cut_reply_fails_unless_it_may_be_gone_on_with(open_tree: Opener, model: Model) -> None:
    """The error is typed and has what there is; the setting of a message, a session or an agent decides."""
    agents = {"patient": AgentSpec(config=AgentConfig(settings=GO_ON))}
    async with open_tree(model, agents=agents) as tree:
        with pytest.raises(
            SessionFailed, check=has_cause("truncated"), match="raise max_output_tokens"
        ) as cut:
            await tree.main.send("go")
        assert cut.value.text == PARTS[0]
        (failed,) = await tree.main.map("worker", ["go"])
        assert (failed.status, failed.output) == (SessionStatus.FAILED, None)
        assert "tokens were used up" in failed.summary
        (whole,) = await tree.main.map("worker", ["go"], agent="patient", result_type=dict[str, int])
        assert whole.output == {"n": 3}
        (taken,) = await tree.main.map("worker", ["go"], settings=ModelSettings(on_length="accept"))
        assert (taken.status, taken.summary) == (SessionStatus.COMPLETED, PARTS[0])


@both
async def test_refusal_fails_with_its_reason(open_tree: Opener, model: Model) -> None:
    """A child's parent learns of it too; what the model said is in the transcript."""
    async with open_tree(model) as tree:
        with pytest.raises(
            SessionFailed, check=has_cause("refused"), match=r"the model refused to reply: (not that|I won't)"
        ):
            await tree.main.send("refuse")
        assert tree.main.history()[-1].text == "I won't."
        (failed,) = await tree.main.map("worker", ["refuse"])
        assert failed.status is SessionStatus.FAILED


UNCUT = ToolCall("c1", "read", {})
"""Without its path, and yet whole: another call follows it."""


@pytest.mark.parametrize(
    "cut",
    [ToolCall("c2", "read", {}), ToolCall("c2", "read", {}, '{"pa'), ToolCall("c2", "read", {"path": "a"})],
)
async def test_call_that_the_limit_cut_says_so_first(open_tree: Opener, cut: ToolCall) -> None:
    """A missing parameter is what came of it; a whole call runs; an earlier one is just wrong."""

    def cut_once(request: ModelRequest) -> AssistantMessage:
        if request.turn > 1:
            return AssistantMessage((TextContent("done"),))
        return AssistantMessage((UNCUT, cut), "length")

    async with open_tree(FunctionModel(cut_once)) as tree:
        assert await tree.main.send("go") == "done"
        first, last = results(tree, "main")
        words = "the reply was cut off at its length limit before this call was complete"
        assert json.loads(first.text)["error"].startswith("path")
        assert json.loads(last.text)["error"].startswith(words) is (not cut.arguments)
