"""Hostile programs: nothing outside changes, every end is typed, and the session goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from sessiontree import FunctionModel, ModelRequest, PolicyConfig, ToolPolicy, script_call
from sessiontree.contracts.facts.session_facts import ProgramAdvanced
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.sandbox.process_tree import find_descendants
from tests.behaviour.effect_fakes import LOG, TOOLS, effects
from tests.behaviour.fact_fixtures import facts_of, results
from tests.behaviour.hostile_programs_fixtures import ANY, FAMILIES, FINE
from tests.behaviour.tree_fixtures import Opener

HELD = ("read", "look", "append", "program", "sessions_spawn")
SHORT_STEP = 13
SLOW = re.compile(r"10\*\*6|while True|10\*\*7|, x\]")
"""Programs that use up a bound which takes its time."""


def cases_of(family: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pattern that is expected and the arguments of each program of a family."""
    for wanted, programs in FAMILIES[family].items():
        for each in programs:
            if isinstance(each, dict):
                yield wanted, {"code": next(iter(each)) or "1", "inputs": each}
            else:
                yield wanted, {"code": each}


def short_cases() -> list[tuple[str, dict[str, Any]]]:
    """Return a few quick programs of each family."""
    every = [case for family in FAMILIES for case in cases_of(family)]
    return list(islice((case for case in every if not SLOW.search(case[1]["code"])), 0, None, SHORT_STEP))


async def _try_all(open_tree: Opener, cases: list[tuple[str, dict[str, Any]]]) -> None:
    outside = open_tree.workspace.parent / "outside.txt"
    outside.write_text("as it was")
    given = [{**each, "code": each["code"].replace("OUTSIDE", str(outside))} for _, each in cases]

    def reply(request: ModelRequest) -> Any:
        if request.session_id != "main":
            return "done"
        last = request.messages[-1]
        return (
            "over" if isinstance(last, ToolResultMessage) else script_call("program", **given[int(last.text)])
        )

    policy = PolicyConfig(tools=ToolPolicy(allow=HELD))
    async with open_tree(FunctionModel(reply), policy=policy, tools=TOOLS) as tree:
        for number in range(len(cases)):
            assert await tree.main.send(str(number)) == "over", given[number]
        for (wanted, _), each, message in zip(cases, given, results(tree, "main"), strict=True):
            _check(wanted, each, message)
        assert (await tree.main.call("look", {"text": "again"})).text == "looked at again"
        asked = {call.tool for fact in await facts_of(tree, ProgramAdvanced) for call in fact.calls}
        assert asked <= {*HELD} - {"program"}
        assert {fact.spec.kind for fact in await facts_of(tree, SessionSpawned)} <= {"main", "worker"}
    assert outside.read_text() == "as it was"
    assert {each.name for each in open_tree.workspace.iterdir()} <= {LOG}
    assert {text for _, text in effects(open_tree.workspace)} <= {"../../x", "1", "2", "3"}
    if open_tree.backend == "local":
        async with asyncio.timeout(60):  # those that were killed end soon
            while any(_name_of(pid) == "monty" for pid in find_descendants(os.getpid())):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.05)


def _check(wanted: str, given: dict[str, Any], message: ToolResultMessage) -> None:
    if message.is_error:
        told = json.loads(message.text)
        assert told["tool"] == "program"
        assert wanted != FINE, (given, told)
        assert wanted == ANY or re.search(wanted, told["error"], re.DOTALL), (given, told)
    else:
        assert wanted in {FINE, ANY}, (given, message.text[:200])


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def test_few_hostile_programs_harm_nobody(open_tree: Opener) -> None:
    """One or more of each family, in one session."""
    await _try_all(open_tree, short_cases())


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
async def test_no_hostile_program_harms_anybody(open_tree: Opener, family: str) -> None:
    """All of a family, in one session."""
    await _try_all(open_tree, list(cases_of(family)))
