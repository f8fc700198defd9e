"""Fan-outs of a program: a terminal error stops them, and the results say what became of each task."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from sessiontree import (
    AssistantMessage,
    Budget,
    FanOutCounts,
    FunctionModel,
    ModelKeyRefused,
    ModelRequest,
    SessionFailed,
)
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.values.messages import TextContent, Usage
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

AT_A_TIME = 4


def refused_after(count: int) -> FunctionModel:
    """Return a model whose key is withdrawn after so many Workers."""

    def reply(request: ModelRequest) -> Any:
        if int(request.session_id.removeprefix("main/w")) > count:
            raise ModelKeyRefused("the key was withdrawn")
        return "fine"

    return FunctionModel(reply)


@pytest.mark.on_ray
@pytest.mark.parametrize(("workers", "good"), [(40, 8), (200, 40)])
async def test_provider_that_refuses_for_good_ends_a_fan_out(
    open_tree: Opener, workers: int, good: int
) -> None:
    """The Workers in flight end; the rest is not started, and an error has the results of all."""
    tasks = [str(number) for number in range(workers)]
    async with open_tree(refused_after(good)) as tree:
        results = await tree.main.map("worker", tasks, concurrency=AT_A_TIME)
        counts = results.counts
        assert counts.done == good
        assert 1 <= counts.lost <= AT_A_TIME
        assert counts == FanOutCounts(good, 0, counts.lost, workers - good - counts.lost)
        assert not results.is_complete
        assert {each.outcome for each in results[good + counts.lost :]} == {"not_started"}
        assert "the key was withdrawn" in results[-1].summary
        assert len(await facts_of(tree, SessionSpawned)) == 1 + counts.done + counts.lost
        with pytest.raises(SessionFailed, match="0 done") as raised:
            await tree.main.map("worker", tasks, concurrency=AT_A_TIME, on_error="raise")
        carried: SessionFailed = pickle.loads(pickle.dumps(raised.value))
        assert carried.cause == "provider"
        assert carried.results is not None
        assert carried.results.counts.not_started >= workers - AT_A_TIME


def costly(request: ModelRequest) -> AssistantMessage:
    """Reply with 100 tokens."""
    return AssistantMessage((TextContent("fine"),), usage=Usage(0, 100))


async def test_used_up_budget_ends_a_fan_out(open_tree: Opener) -> None:
    """The budget that the children share; one of its own that a child uses up is its own affair."""
    tasks = [str(number) for number in range(20)]
    async with open_tree(FunctionModel(costly)) as tree:
        own = await tree.main.map("worker", tasks, concurrency=AT_A_TIME, budget=Budget(tokens=99))
        assert {each.outcome for each in own} == {"budget"}
        branch = await tree.main.spawn("branch", "look", budget=Budget(tokens=650))
        shared = await branch.map("worker", tasks, concurrency=AT_A_TIME)
        counts = shared.counts
        assert counts.done + counts.lost + counts.not_started == len(tasks)
        assert counts.not_started >= len(tasks) - 6 - AT_A_TIME
        spawned = [
            fact for fact in await facts_of(tree, SessionSpawned) if fact.spec.parent == branch.session_id
        ]
        assert len(spawned) == len(tasks) - counts.not_started
