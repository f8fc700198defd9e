"""Ids that leave a tree mean one thing: a call of this tree, and after a restart the same call still."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from sessiontree import (
    AnswerTooLate,
    ClientTool,
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    ScriptedModel,
    SessionKind,
    SessionTree,
    ToolContext,
    script_call,
    tool,
)
from sessiontree.contracts.facts.session_facts import CallDelegated, CallIntended, CallParked
from sessiontree.contracts.facts.tree_facts import ApprovalRequested, TreeCreated
from sessiontree.contracts.recorded.codec import to_wire
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, until
from tests.behaviour.tree_fixtures import Opener

ID = re.compile(r"[0-9a-f]{32}")
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
LONG = Limits(approval_patience_s=0)


@tool(tier=PermissionTier.READ_ONLY, kinds=set(SessionKind))
def named(ctx: ToolContext) -> str:
    """Say what the call is called."""
    return f"{ctx.tree_id} {ctx.call_id}"


async def idempotency_keys(open_tree: Opener) -> tuple[str, list[str]]:
    """Return a tree's id, and by what ids its tools knew the calls of two sessions."""

    def reply(request: ModelRequest) -> Answer:
        last = request.messages[-1]
        return script_call("named") if request.turn == 1 else last.text

    async with open_tree(FunctionModel(reply), tools=(named,)) as tree:
        branch = await tree.main.spawn("branch", "go")
        said = [(await branch.result()).summary, str(await tree.main.send("go"))]
        said.append((await tree.main.call("named")).text)
        found = [line.split() for line in said]
        assert {tree_id for tree_id, _ in found} == {tree.tree_id}
        return tree.tree_id, [call_id for _, call_id in found]


@pytest.mark.covers("IDS1")
@pytest.mark.own_runtime
async def test_no_tool_is_given_one_key_twice(open_tree: Opener) -> None:
    """The same calls in two trees have other ids; a tool can also see which tree it works in."""
    one, other = await idempotency_keys(open_tree), await idempotency_keys(open_tree.elsewhere("other"))
    assert one[0] != other[0]
    keys = [*one[1], *other[1]]
    assert len(set(keys)) == len(keys) == 6
    assert all(ID.fullmatch(key) for key in keys)


async def asking(open_tree: Opener, **options: Any) -> SessionTree:
    """Return an open tree whose first call asks for an approval; the caller closes it."""
    model = ScriptedModel([script_call("launch"), "went on", "done"])
    tree = await open_tree(model, tools=TOOLS, limits=LONG, **options).start()
    tree.main.send("go")
    await asked(tree)
    return tree


@pytest.mark.covers("A15", "REL-L15")
async def test_answer_means_the_request_that_was_shown(open_tree: Opener) -> None:
    """What was copied in one tree is unknown to the next one in the same state."""
    first = await asking(open_tree)
    try:
        (copied,) = first.approvals.pending()
        await copied.deny()
    finally:
        await first.close()
    second = await asking(open_tree)
    try:
        (waiting,) = second.approvals.pending()
        assert waiting.request.digest == copied.request.digest
        assert waiting.request.request_id != copied.request.request_id
        stale = replace(
            copied,
            request=replace(waiting.request, request_id=copied.request.request_id),
            _desk=waiting._desk,
        )
        with pytest.raises(AnswerTooLate, match="unknown to this tree"):
            await stale.approve()
        assert second.approvals.pending() != []
        assert effects(open_tree.workspace) == []
        await waiting.approve()
    finally:
        await second.close()


@pytest.mark.covers("IDS1")
@pytest.mark.own_runtime
async def test_ids_are_the_same_after_a_restart(open_tree: Opener) -> None:
    """A request and a call that wait for the program keep their ids when the tree is taken up elsewhere."""
    desk = ClientTool("desk", "Ask the desk.", NO_PARAMETERS, tier=PermissionTier.READ_ONLY)
    model = ScriptedModel([[script_call("launch"), script_call("desk")], "went on", "done", "done", "done"])
    tree = await open_tree(model, tools=(*TOOLS, desk), limits=LONG).start()
    try:
        tree.main.send("go")
        (pending,) = await asked(tree)
        await until(tree, CallDelegated)
        (delegated,) = await facts_of(tree, CallDelegated)
        assert [each.call_id for each in tree.client_calls.pending()] == [delegated.client_id]
    finally:
        await tree.close()
    again = await open_tree.resume(tree.tree_id, model, tools=(*TOOLS, desk))
    async with again:
        (shown,) = again.approvals.pending()
        assert shown.request.request_id == pending.request.request_id
        assert [each.call_id for each in again.client_calls.pending()] == [delegated.client_id]
        await until(again, CallParked)
        await shown.approve()
        await until(again, CallIntended)
        assert {fact.question.request_id for fact in await facts_of(again, ApprovalRequested)} == {
            pending.request.request_id
        }


@pytest.mark.covers("A15", "REL-L15")
async def test_every_tree_has_a_nonce_of_its_own(open_tree: Opener) -> None:
    """It is in the tree's first fact and in row 0; nobody gives it."""
    nonces = []
    for _ in range(2):
        async with open_tree(ScriptedModel(["hi"])) as tree:
            (created,) = await facts_of(tree, TreeCreated)
            nonces.append(to_wire(created.config)["nonce"])
    assert all(ID.fullmatch(nonce) for nonce in nonces)
    assert len(set(nonces)) == 2
