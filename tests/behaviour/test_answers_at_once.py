"""Answers to requests: of many at once one counts, and for its own call; a no holds nothing else."""

from __future__ import annotations

import asyncio

import pytest

from sessiontree import AnswerTooLate, Limits, ScriptedModel, script_call
from sessiontree.api.tree.inbox import PendingApproval
from sessiontree.contracts.facts.tree_facts import ApprovalDecided
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, results
from tests.behaviour.tree_fixtures import Opener

SEEN = "what only the first call saw"
PATIENT = Limits(approval_patience_s=None)


async def decide(request: PendingApproval, yes: bool) -> bool | None:
    """Answer a request; tell which answer counted, None where another one came first."""
    try:
        await (request.approve() if yes else request.deny("not this one"))
    except AnswerTooLate as error:
        assert error.request_id == request.request.request_id
        return None
    return yes


@pytest.mark.covers("REL-L15", "REL-L19", "APP6")
@pytest.mark.slow
async def test_of_a_hundred_answers_one_counts_for_its_own_call(open_tree: Opener) -> None:
    """REL-L15, REL-L16, REL-L19: yes and no at once, fifty each, to both of two requests that wait."""
    calls: Answer = [
        script_call("look", text=SEEN),
        script_call("launch", text="moon"),
        script_call("launch", text="mars"),
    ]
    async with open_tree(ScriptedModel([calls, "done"]), tools=TOOLS, limits=PATIENT) as tree:
        reply = tree.main.send("go")
        pending = await asked(tree, 2)
        assert len(pending) == 2
        tries = [(each, (number + at) % 2 == 0) for number in range(100) for at, each in enumerate(pending)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(decide(request, yes)) for request, yes in tries]
        counted = [task.result() for task in tasks]
        assert await reply == "done"
        won = {
            str(request.request.arguments["text"]): yes
            for (request, _), yes in zip(tries, counted, strict=True)
            if yes is not None
        }
        assert sum(yes is not None for yes in counted) == 2
        assert set(won) == {"moon", "mars"}
        decided = await facts_of(tree, ApprovalDecided)
        assert len(decided) == 2
        looked, *told = results(tree, "main")
    assert SEEN in looked.text
    ran = sorted(text for _, text in effects(open_tree.workspace))
    assert ran == sorted(each for each in won if won[each])
    for message, text in zip(told, ("moon", "mars"), strict=True):
        assert message.is_error is not won[text]
        assert ("not this one" in message.text) is not won[text]
        assert SEEN not in message.text


@pytest.mark.covers("REL-L16")
@pytest.mark.parametrize("first", ["moon", "mars"])
async def test_no_holds_nothing_of_what_ran(open_tree: Opener, first: str) -> None:
    """REL-L16: the result of a denied call is its own reason, whichever of two was answered before."""
    both: Answer = [script_call("launch", text="moon"), script_call("launch", text="mars")]
    script: list[Answer] = [script_call("append", text=SEEN), both, "done"]
    async with open_tree(ScriptedModel(script), tools=TOOLS, limits=PATIENT) as tree:
        reply = tree.main.send("go")
        pending = {str(each.request.arguments["text"]): each for each in await asked(tree, 2)}
        await pending.pop(first).deny(f"never {first}")
        (other,) = pending
        await pending[other].approve()
        assert await reply == "done"
        _, *told = results(tree, "main")
    texts = dict(zip(("moon", "mars"), (message.text for message in told), strict=True))
    assert f"never {first}" in texts[first]
    assert [word for word in (SEEN, other, "appended") if word in texts[first]] == []
    assert texts[other] == f"appended {other}"
