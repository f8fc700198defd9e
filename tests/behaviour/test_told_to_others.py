"""What a session learns of itself holds nothing of the others, nor of how the tree is set up."""

from __future__ import annotations

import pytest

from sessiontree import (
    AgentConfig,
    AgentSpec,
    FunctionModel,
    ModelRequest,
    PolicyConfig,
    SessionKind,
    script_call,
)
from sessiontree.models.answers import Answer
from sessiontree.policy.settings import ToolLists
from tests.behaviour.fact_fixtures import results
from tests.behaviour.tree_fixtures import Opener

PRIVATE = {
    "what a person said to Main": "the launch code is 7-7-1",
    "Main's prompt": "you answer to the owner of the house",
    "a sibling's task": "count the silver spoons",
    "a sibling's label": "spoons",
    "the key of the model": "not-for-anybody-0001",
    "the owner's lists": "memory_forg*",
    "the group": "family-of-the-owner",
}


class Clerk:
    """Asks once for its state; its final message names what it could read of all that is private."""

    def __init__(self, key: str) -> None:
        """Keep a key, as models do."""
        self.key = key

    def __call__(self, request: ModelRequest) -> Answer:
        if request.session_id in {"main", "main/w1"}:
            return "noted"
        if request.turn == 1:
            return script_call("session_status")
        tools = "".join(f"{each.name} {each.description} {each.parameters}" for each in request.tools)
        shown = request.system_prompt + tools + "".join(message.to_json() for message in request.messages)
        return "read: " + ", ".join(what for what, text in PRIVATE.items() if text in shown)


@pytest.mark.covers("REL-L69")
@pytest.mark.parametrize("kind", [SessionKind.BRANCH, SessionKind.WORKER])
async def test_session_is_told_of_itself_alone(open_tree: Opener, kind: SessionKind) -> None:
    """REL-L69: status, prompt and conversation of a child; its status has the members of a report alone."""
    agents = {
        "default": AgentSpec(config=AgentConfig(prompt=PRIVATE["Main's prompt"])),
        "clerk": AgentSpec(config=AgentConfig(agent_id="clerk", prompt="you count")),
    }
    policy = PolicyConfig(subagents=ToolLists(deny=(PRIVATE["the owner's lists"],)))
    model = FunctionModel(Clerk(PRIVATE["the key of the model"]))
    async with open_tree(model, agents=agents, policy=policy, group=PRIVATE["the group"]) as tree:
        assert await tree.main.send(PRIVATE["what a person said to Main"]) == "noted"
        sibling = await tree.main.spawn(
            SessionKind.WORKER, PRIVATE["a sibling's task"], label=PRIVATE["a sibling's label"]
        )
        child = await tree.main.spawn(kind, "how do you stand?", agent="clerk")
        assert (await child.result()).summary == "read: "
        await sibling.result()
        (status,) = results(tree, child.session_id)
        text = status.to_json() + repr(child) + repr(child.status()) + repr(child.history())
    assert [what for what, private in PRIVATE.items() if private in text] == []
    assert str(open_tree.state_dir) not in text
    assert child.session_id in status.text
