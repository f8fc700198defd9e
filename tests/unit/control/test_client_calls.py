"""Client calls through the control socket: another process sees what waits and answers it by its id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

from sessiontree import ClientTool, PermissionTier, ScriptedModel, SessionTree, script_call
from sessiontree.contracts.errors import AnswerTooLate, ValidationError
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.client_tool import answer_failure, build_answer
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.control.client import ControlClient
from tests.behaviour.fact_fixtures import results

MAX_S = 60.0


class Question(BaseModel):
    """What to ask."""

    text: str


@pytest.mark.covers("I32")
async def test_call_is_answered_from_another_process(tmp_path: Path) -> None:
    """The socket lists what the program sees; an answer that does not fit, or is late, gets an error."""
    tool = ClientTool("ask", "Ask.", Question, tier=PermissionTier.WORKSPACE, result_type=dict[str, int])
    tree = SessionTree(
        tmp_path,
        model=ScriptedModel([script_call("ask", text="one"), script_call("ask", text="two"), "done"]),
        tools=[tool],
        state_dir=tmp_path / "state",
        backend="local",
    )
    async with tree, await ControlClient.connect(tree.state_dir) as client, asyncio.timeout(MAX_S):
        branch = await tree.main.spawn("branch", "go")
        coming = aiter(tree.client_calls)
        first = await anext(coming)
        assert await client.supervisor.client_calls(tree.tree_id) == [first.call]
        with pytest.raises(ValidationError) as refused:
            await client.supervisor.answer(
                tree.tree_id, first.call_id, build_answer(first.call_id, {"n": "x"}), "a1"
            )
        assert refused.value.field == "/n"
        await client.supervisor.answer(
            tree.tree_id, first.call_id, build_answer(first.call_id, {"n": 1}), "a2"
        )
        with pytest.raises(AnswerTooLate):
            await client.supervisor.answer(
                tree.tree_id, first.call_id, build_answer(first.call_id, {"n": 2}), "a3"
            )
        second = await anext(coming)
        await client.supervisor.answer(
            tree.tree_id, second.call_id, answer_failure(second.call_id, "no"), "a4"
        )
        await branch.result()
        assert [message.text for message in results(tree, "main/b1")] == [
            '{"n":1}',
            '{"status":"error","tool":"ask","error":"no"}',
        ]


def test_answers_cross_whole() -> None:
    """Every part of an answer is the same at the other end; what is not one is refused."""
    artifacts = (Artifact("file", "a table", path="t.csv"),)
    result = ToolResult({"n": 1}, "one", artifacts, {"seen": True}, (ImageContent("aGk=", "image/png"),))
    for answer in (ClientAnswer(result), ClientAnswer(None, "no")):
        assert ClientAnswer.from_wire(answer.to_wire()) == answer
    with pytest.raises((KeyError, TypeError, ValueError)):
        ClientAnswer.from_wire({"output": 1})


@pytest.mark.parametrize("word", ["", "  ", 3])
def test_failure_says_why(word: object) -> None:
    """A failure without words helps no model."""
    with pytest.raises(ValidationError, match="say why"):
        answer_failure("c1", word)
