"""One conversation through every door: the same journal up to ids, the same inbox, the same refusals."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sessiontree import SessionTree
from sessiontree.facts import RunFinished
from tests.behaviour.effect_fakes import effects
from tests.behaviour.fact_fixtures import records, until
from tests.system.doors.talker_fixtures import DOORS, Inbox, Talker, open_talker

KEPT = frozenset({"text", "tool", "outcome", "kind", "decision", "status", "error", "origin"})
"""Members of facts that are the same through every door; others hold ids, times and who answered."""


HOSTING = frozenset({"session_adopted", "session_reactivated", "result_held", "usage_charged"})
"""Facts of the tree about hosts and accounts, whose place among the others depends on who is quicker."""


async def journal_of(tree: SessionTree, name: str) -> dict[str, list[Any]]:
    """Return what each session's journal says, in order.

    Args:
        tree: The tree.
        name: The principal's name, which differs.
    """
    found: dict[str, list[Any]] = {}
    for record in await records(tree):
        row = record.to_row()
        if row["kind"] not in HOSTING:
            said = json.dumps(_kept(row["fact"])).replace(f"cancelled by {name}", "cancelled")
            found.setdefault(record.session, []).append((row["kind"], said))
    return found


def _kept(value: Any) -> Any:
    """Return the members that are kept, at any depth."""
    if isinstance(value, list):
        found = [_kept(each) for each in value]
        return [each for each in found if each]
    if not isinstance(value, dict):
        return None
    said = {name: each for name, each in value.items() if name in KEPT and isinstance(each, str)}
    below = {name: _kept(each) for name, each in value.items()}
    return said | {name: each for name, each in below.items() if each}


async def converse(door: str, place: Path) -> tuple[list[str], Inbox, dict[str, list[Any]]]:
    """Hold the conversation; return the answers, what waited for somebody, and the journal."""
    async with open_talker(door, place) as talker:
        said = [
            await talker.say("say one"),
            await talker.say("append two"),
            await talker.say_and_allow("launch three"),
            await talker.say_and_reply("ask", "blue"),
            await talker.say("child look four"),
        ]
        # The child's report starts one more turn, which nobody asked for by a message.
        await until((await talker.find()).tree, RunFinished, session="main", count=len(said) + 1)
    async with open_talker(door, place, talker) as talker:
        said.append(await talker.say("say five"))
        await talker.say_and_interrupt("fail 600")
        tree = (await talker.find()).tree
        return said, talker.inbox, await journal_of(tree, talker.principal.name)


@pytest.mark.parametrize("door", [door for door in DOORS if door != "responses"])
async def test_every_door_leads_to_the_same_journal(door: str, tmp_path: Path) -> None:
    """Text, a tool, an approval, a question, a child, a restart and an interruption."""
    for name in ("responses", door):
        (tmp_path / name).mkdir()
    expected = await converse("responses", tmp_path / "responses")
    found = await converse(door, tmp_path / door)
    assert expected[0][:2] == ["one", "done: appended two"]
    assert [each[:2] for each in expected[1]] == [("main", "launch"), ("main", "ask_user")]
    assert found[0] == expected[0]
    assert found[1] == expected[1]
    assert found[2] == expected[2]
    assert [text for _, text in effects(tmp_path / door / "workspace")] == ["two", "three"]


VERBS = ("append x", "launch x", "write x", "look x", "child append x", "branch launch x", "branch write x")
PROGRAMS = ("program await append(text='x')", "program await spawn('branch', 'append x')")


async def _try(talker: Talker, text: str) -> None:
    try:
        await talker.say(text)
    except AssertionError:
        raise
    except Exception:  # noqa: BLE001 - a refusal is as good as an answer
        return


@pytest.mark.parametrize("door", DOORS)
async def test_reader_changes_nothing_through_any_door(door: str, tmp_path: Path) -> None:
    """Whatever is asked for, by a session, its children or a program."""
    random = Random(f"reader {door}")
    async with open_talker(door, tmp_path, tier="ReadOnly", approves=True) as talker:
        for text in random.choices((*VERBS, *PROGRAMS), k=8):
            await _try(talker, text)
        assert (await talker.find()).tree.approvals.pending() == []
    assert list((tmp_path / "workspace").iterdir()) == []
