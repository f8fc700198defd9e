"""``sessiontree cron``: jobs are read from the journal, and changed in a live tree, on either backend."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import FunctionModel, ModelRequest, PolicyConfig, SessionTree
from sessiontree.contracts.facts.session_facts import MessageReceived
from sessiontree.contracts.facts.tree_facts import CronJobRemoved
from sessiontree.models.answers import Answer
from sessiontree.policy.settings import ToolPolicy
from tests.behaviour.fact_fixtures import facts_of, until
from tests.behaviour.tree_fixtures import Opener
from tests.system.cli.command_fixtures import Done, Program

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))


def echo(request: ModelRequest) -> Answer:
    """Reply with the session's name."""
    return f"heard in {request.session_id}"


class Commands:
    """Runs ``sessiontree cron`` for one tree; others may have jobs of that name in its directory."""

    def __init__(self, home: Path, tree: SessionTree) -> None:
        self._program = Program(home)
        self._place = tree.state_dir
        self._tree = ("--tree", tree.tree_id[:-1])

    async def run(self, *words: str) -> Done:
        """Run a command to its end."""
        return await asyncio.to_thread(
            self._program.call, "cron", *words, *self._tree, "--state-dir", self._place
        )

    async def read(self, *words: str) -> Any:
        """Run a command and return what programs read."""
        done = await self.run(*words, "--json")
        assert (done.code, done.err) == (0, ""), done
        return json.loads(done.out)


@pytest.mark.covers("S14")
@pytest.mark.on_ray
async def test_jobs_of_a_live_tree_are_listed_and_changed(open_tree: Opener, tmp_path: Path) -> None:
    """A person at another terminal pauses, resumes, runs and removes a job with the owner's rights."""
    async with open_tree(FunctionModel(echo), policy=EVERYTHING) as tree:
        cron = Commands(tmp_path, tree)
        await tree.main.call(
            "cron", {"action": "add", "name": "look", "text": "look around", "every_s": 3600}
        )
        (listed,) = (await cron.read("list"))["jobs"]
        assert (listed["tree"], listed["job"]["job_id"], listed["runs"]) == (tree.tree_id, "c1", 0)
        assert listed["next_ms"] == listed["job"]["anchor_ms"] + 3_600_000
        assert (await cron.read("pause", "c1"))["job"]["status"] == "paused"
        assert (await cron.read("show", "c1"))["next_ms"] is None
        assert (await cron.read("resume", "c1"))["job"]["status"] == "active"
        assert (await cron.read("run", "c1"))["runs"] == 1
        (heard,) = await until(
            tree, MessageReceived, session="main", where=lambda fact: fact.message.origin == "cron"
        )
        assert json.loads(heard.message.text)["how"] == "manual"
        runs = (await cron.read("runs", "c1"))["runs"]
        assert [(run["how"], run["session"]) for run in runs] == [("manual", "main")]
        refused = await cron.run("resume", "c9")
        assert (refused.code, refused.out) == (2, "")
        assert "no timed job is called 'c9'; there are: c1" in refused.err
        assert (await cron.run("remove", "c1")).lines == [f"job c1 of tree {tree.tree_id} was removed"]
        assert len(await facts_of(tree, CronJobRemoved)) == 1
        assert (await cron.run("list")).lines == ["0 timed jobs"]


@pytest.mark.covers("S14")
async def test_jobs_of_a_tree_at_rest_are_read_and_not_changed(open_tree: Opener, tmp_path: Path) -> None:
    """Its journal is read; a change says that nobody has it open, and how to open it."""
    async with open_tree(FunctionModel(echo), policy=EVERYTHING) as tree:
        await tree.main.call(
            "cron",
            {"action": "add", "text": "wake\x1b[2J up", "expression": "0 9 * * *", "zone": "Europe/Vienna"},
        )
    cron = Commands(tmp_path, tree)
    shown = await cron.run("show", "c1")
    assert (shown.code, shown.err) == (0, "")
    assert "0 9 * * * (Europe/Vienna)" in shown.out
    assert "\x1b" not in shown.out
    assert "T09:00:00+0" in shown.out
    table = await cron.run("list")
    assert table.lines[-1] == "1 timed job"
    assert (await cron.run("runs", "c1")).lines[-1] == f"job c1 of tree {tree.tree_id}: 0 entries"
    for action in ("run", "pause", "resume", "remove"):
        done = await cron.run(action, "c1")
        assert (done.code, done.out) == (2, "")
        assert f"journal '{tree.tree_id}': no runtime has it open; continue it" in done.err


async def test_job_id_of_several_trees_needs_the_tree(open_tree: Opener, tmp_path: Path) -> None:
    """The list has the jobs of all trees; a command for one job names the trees that have it."""
    trees = []
    for text in ("wake up", "go to bed"):
        async with open_tree(FunctionModel(echo), policy=EVERYTHING) as tree:
            await tree.main.call("cron", {"action": "add", "text": text, "every_s": 3600})
            trees.append(tree)
    program, place = Program(tmp_path), trees[0].state_dir
    listed = await asyncio.to_thread(program.call, "cron", "list", "--json", "--state-dir", place)
    jobs = json.loads(listed.out)["jobs"]
    assert {(job["tree"], job["job"]["text"]) for job in jobs} >= {
        (trees[0].tree_id, "wake up"),
        (trees[1].tree_id, "go to bed"),
    }
    done = await asyncio.to_thread(program.call, "cron", "show", "c1", "--state-dir", place)
    assert (done.code, done.out) == (2, "")
    assert all(tree.tree_id in done.err for tree in trees)
