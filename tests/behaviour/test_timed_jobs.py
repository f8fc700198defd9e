"""Timed jobs: a Main adds them with its tool, their times come, and each runs once, over restarts too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    ExecutionError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PolicyConfig,
    SessionStatus,
    script_call,
)
from sessiontree.contracts.facts.session_facts import MessageReceived
from sessiontree.contracts.facts.tree_facts import CronSlotClaimed, SessionEnded, SessionSpawned
from sessiontree.models.answers import Answer
from sessiontree.policy.settings import ToolPolicy
from tests.behaviour.fact_fixtures import facts_of, until
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))


def quiet(request: ModelRequest) -> Answer:
    """Reply with the session's name."""
    return f"heard in {request.session_id}"


@pytest.mark.covers("S14")
@pytest.mark.on_ray
async def test_job_of_the_model_gives_main_its_message(open_tree: Opener) -> None:
    """The model adds it, its only time comes while the session is idle, and Main reads who wrote it."""

    def planner(request: ModelRequest) -> Answer:
        said = request.messages[-1].text
        if said == "plan":
            return script_call("cron", action="add", name="look", text="look around", at="1s")
        return "looked" if "look around" in said else "planned"

    async with open_tree(FunctionModel(planner), policy=EVERYTHING) as tree:
        await tree.main.send("plan")
        (heard,) = await until(
            tree, MessageReceived, session="main", where=lambda fact: fact.message.origin == "cron"
        )
        said = json.loads(heard.message.text)
        assert (said["cron"], said["name"], said["how"]) == ("c1", "look", "due")
        assert said["message"] == "look around"
        (claim,) = await facts_of(tree, CronSlotClaimed)
        assert (claim.run_id, claim.how) == (f"c1:{claim.slot_ms}", "due")
        assert claim.wall_ms >= claim.slot_ms
        listed: Any = (await tree.main.call("cron", {"action": "list"})).output
        assert [(job["job_id"], job["status"], job["runs"]) for job in listed["jobs"]] == [("c1", "over", 1)]


@pytest.mark.covers("S14")
async def test_job_starts_a_session_that_reports(open_tree: Opener) -> None:
    """It has the agent and the budget of the job; Main gets its result; the history says how it ended."""
    async with open_tree(FunctionModel(quiet), policy=EVERYTHING, agents={"clerk": AgentSpec()}) as tree:
        await tree.main.call(
            "cron",
            {
                "action": "add", "text": "count the files", "every_s": 3600, "target": "session",
                "kind": "worker", "agent": "clerk", "max_tokens": 5000,
            },
        )  # fmt: skip
        started: Any = (await tree.main.call("cron", {"action": "run", "job_id": "c1"})).output
        assert started["status"] == "started"
        (ended,) = await until(tree, SessionEnded)
        assert (ended.session, ended.result.summary) == ("main/w1", "heard in main/w1")
        spec = next(
            fact.spec for fact in await facts_of(tree, SessionSpawned) if fact.spec.session_id == "main/w1"
        )
        assert (spec.via, spec.agent, spec.task) == ("cron", "clerk", "count the files")
        assert spec.budget is not None
        assert spec.budget.tokens == 5000
        await until(tree, MessageReceived, session="main", where=lambda fact: fact.message.origin == "child")
        runs: Any = (await tree.main.call("cron", {"action": "runs", "job_id": "c1"})).output
        (run,) = runs["runs"]
        assert (run["how"], run["session"], run["state"]) == ("manual", "main/w1", "completed")
        listed: Any = (await tree.main.call("cron", {"action": "list"})).output
        assert listed["jobs"][0]["next"] is not None


@pytest.mark.covers("S14")
async def test_time_that_came_while_the_tree_was_closed_runs_once(open_tree: Opener) -> None:
    """It runs when the tree is resumed, and a second restart runs nothing again."""
    tree = await open_tree(FunctionModel(quiet), policy=EVERYTHING).start()
    try:
        await tree.main.call("cron", {"action": "add", "text": "wake up", "at": "1s"})
    finally:
        await tree.close()
    for _ in range(2):
        again = await open_tree.resume(tree.tree_id, FunctionModel(quiet))
        async with again:
            await until(
                again, MessageReceived, session="main", where=lambda fact: fact.message.origin == "cron"
            )
            assert len(await facts_of(again, CronSlotClaimed)) == 1
            await again.main.send("are you there?")


@pytest.mark.covers("S14", "A35")
async def test_only_main_acting_for_an_owner_reaches_timed_jobs(open_tree: Opener) -> None:
    """A Branch has neither the tool nor the handle; without being asked for, Main does not hold the tool."""
    async with open_tree(FunctionModel(quiet), policy=EVERYTHING) as tree:
        branch = await tree.main.spawn("branch", "wait", stays_open=True)
        with pytest.raises((PermissionDenied, ExecutionError)):
            await branch.call("cron", {"action": "list"})
    async with open_tree(FunctionModel(quiet)) as tree:
        with pytest.raises((PermissionDenied, ExecutionError)):
            await tree.main.call("cron", {"action": "list"})
        assert tree.main.status().status is not SessionStatus.FAILED
