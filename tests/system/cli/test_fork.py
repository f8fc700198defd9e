"""``sessiontree fork``: a new tree of the first facts of another one, also while a program writes it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ScriptedModel, SessionTree
from sessiontree.runtime.replay.stored_trees import list_summaries
from tests.system.cli.command_fixtures import Program


def _open(place: Path) -> SessionTree:
    (place / "workspace").mkdir(exist_ok=True)
    return SessionTree(
        place / "workspace",
        model=ScriptedModel(["one", "two"]),
        state_dir=place / "state",
        backend="local",
        purpose="first",
    )


async def _made(place: Path) -> str:
    async with _open(place) as tree:
        await tree.main.send("go")
    return tree.tree_id


@pytest.fixture
def tree_id(tmp_path: Path) -> str:
    """A tree that answered once."""
    return asyncio.run(_made(tmp_path))


def test_new_tree_is_named_listed_and_resumed(tmp_path: Path, program: Program, tree_id: str) -> None:
    """Its id is new, its origin is shown, and it goes on from the shared conversation."""
    place = tmp_path / "state"
    done = program.call("fork", tree_id, "--state-dir", place)
    assert done.code == 0, done.err
    made = done.lines[0].partition(":")[0].removeprefix("tree ")
    assert made != tree_id
    assert f"forked from {tree_id} at fact " in done.lines[0]
    assert done.lines[1] == f"go on with: sessiontree resume {made} --state-dir {place}"
    (new,) = [tree for tree in list_summaries(place) if tree.tree_id == made]
    assert (new.forked_from, new.purpose) == (tree_id, "first")
    listed = program.call("tree", "--list", "--state-dir", place, "--json")
    (told,) = [each for each in json.loads(listed.out)["trees"] if each["tree"] == made]
    assert (told["forked_from"], told["forked_at"]) == (tree_id, new.forked_at)
    shown = program.call("tree", "--tree", made, "--state-dir", place)
    assert f"forked from: {tree_id} at fact {new.forked_at}" in shown.out
    as_json = json.loads(program.call("tree", "--tree", made, "--state-dir", place, "--json").out)
    assert as_json["forks"] == [{"tree": tree_id, "at": new.forked_at}]

    async def go_on() -> list[str]:
        model = ScriptedModel(["one", "two"])
        async with await SessionTree.resume(made, model=model, state_dir=place, backend="local") as tree:
            await tree.main.send("more")
            return [message.text for message in tree.main.history()]

    assert asyncio.run(go_on()) == ["go", "one", "more", "two"]
    assert program.call("replay", made, "--state-dir", place).code == 0


def test_command_to_go_on_names_the_place(tmp_path: Path, program: Program, tree_id: str) -> None:
    """It is written so that a shell reads it: with a state directory, and one with a space."""
    place = tmp_path / "a state"
    (tmp_path / "state").rename(place)
    done = program.call("fork", tree_id, "--state-dir", place)
    assert done.lines[1].endswith(f" --state-dir '{place}'")


def test_place_in_the_middle_is_taken(tmp_path: Path, program: Program, tree_id: str) -> None:
    """``--at`` names the last shared fact; one that is no place is refused, and nothing is made."""
    place = tmp_path / "state"
    told: dict[str, Any] = json.loads(
        program.call("fork", tree_id, "--at", "2", "--state-dir", place, "--json").out
    )
    assert (told["forked_from"], told["forked_at"], told["records"]) == (tree_id, 2, 3)
    assert told["state_dir"] == str(place)
    before = len(list_summaries(place))
    for at, words in (
        ("1", "fork at 2"),
        ("0", "the facts 1 to"),
        ("-1", "the facts 1 to"),
        ("99999", "the facts 1 to"),
    ):
        done = program.call("fork", tree_id, f"--at={at}", "--state-dir", place)
        assert (done.code, done.out) == (2, "")
        assert words in done.err
    assert program.call("fork", "t0000", "--state-dir", place).code == 2
    assert len(list_summaries(place)) == before


def test_tree_that_another_program_runs_is_forked_meanwhile(tmp_path: Path, program: Program) -> None:
    """The other tree goes on; the new one is in a journal that no program writes."""

    async def both() -> str:
        async with _open(tmp_path) as tree:
            await tree.main.send("go")
            done = await asyncio.to_thread(
                program.call, "fork", tree.tree_id, "--state-dir", tmp_path / "state", "--json"
            )
            assert done.code == 0, done.err
            assert (await tree.main.send("and now?"))[:] == "two"
        told: dict[str, Any] = json.loads(done.out)
        return str(told["tree_id"])

    made = asyncio.run(both())
    assert {tree.tree_id for tree in list_summaries(tmp_path / "state" / "journals" / "2")} == {made}


def test_dry_run_makes_nothing(tmp_path: Path, program: Program, tree_id: str) -> None:
    """Of a fork and of a resume: a table for people, an object for programs, and no new tree."""
    place = tmp_path / "state"
    for command, forked_at in (("resume", None), ("fork", 1)):
        done = program.call(command, "--dry-run", tree_id, "--state-dir", place)
        assert (done.code, done.err) == (0, "")
        assert f"of tree {tree_id}, from " in done.lines[0]
        assert "nothing was started" in done.lines[0]
        said = json.loads(program.call(command, "--dry-run", "--json", tree_id, "--state-dir", place).out)
        (main,) = said["sessions"]
        assert (said["tree_id"], main["session"], main["calls"]) == (tree_id, "main", [])
        assert (said["forked_at"] is None) == (forked_at is None)
        assert (main["served_replies"], said["most_usd"]) == (1, 0)
    assert [tree.tree_id for tree in list_summaries(place)] == [tree_id]


async def _divided(place: Path) -> str:
    async with _open(place) as tree:
        await tree.main.map("worker", ["count"])
    return tree.tree_id


def test_child_is_replaced(tmp_path: Path, program: Program) -> None:
    """By its id and the new task; what makes no sense is refused, and nothing is made."""
    place = tmp_path / "state"
    tree_id = asyncio.run(_divided(tmp_path))
    wrong = {"main/w1": "give SESSION=TASK", "main/w2=count": "has no session 'main/w2'"}
    for option, problem in wrong.items():
        done = program.call("fork", tree_id, "--replace", option, "--state-dir", place)
        assert (done.code, done.out) == (2, "")
        assert problem in done.err
    options = ("--replace", "main/w1=count again", "--state-dir", place)
    said = json.loads(program.call("fork", tree_id, "--dry-run", "--json", *options).out)
    assert {each["session"]: each["question"] is not None for each in said["sessions"]}["main/w2"]
    assert len(list_summaries(place)) == 1
    assert program.call("fork", tree_id, *options).code == 0
    assert len(list_summaries(place)) == 2
