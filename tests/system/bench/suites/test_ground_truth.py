"""Scripted models of a ground truth through real sessions: every call in order, damaged ones repaired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import Runtime, SessionTree, script_call
from sessiontree.bench.suites.damaged_ground_truth import OUTCOMES, DamagedGroundTruth, DamageSettings
from sessiontree.bench.suites.ground_truth import GroundTruth, PlannedTurn, list_answered_calls
from sessiontree.bench.suites.hosted_tools import Arguments, HostedTool, HostedToolFailed, serve_tools

SCHEMA = {
    "type": "object",
    "properties": {
        "item_id": {"type": "string"},
        "amount": {"type": "integer"},
        "labels": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["item_id", "amount"],
    "additionalProperties": False,
}
TURNS = [
    PlannedTurn(
        (script_call("order", item_id="a1", amount=2), script_call("cancel", item_id="a1", amount=1)),
        "ordered",
    ),
    PlannedTurn((), "nothing to do"),
    PlannedTurn(
        tuple(script_call("order", item_id=f"b{n}", amount=n, labels=[n]) for n in range(9)), "all ordered"
    ),
]


NAMES = ("order", "cancel")


class Shop:
    """A state that tools change."""

    def __init__(self) -> None:
        self.turns: list[list[tuple[str, dict[str, Any]]]] = []
        self.tools = tuple(HostedTool(name, f"To {name}.", SCHEMA, self._runner(name)) for name in NAMES)

    def _runner(self, name: str) -> Any:
        def run(arguments: Arguments) -> object:
            self.turns[-1].append((name, dict(arguments)))
            return {"done": len(self.turns[-1])}

        return run


async def talk(place: Path, shop: Shop, model: Any, turns: int) -> list[Any]:
    """Send a message for each turn, and return the conversation."""
    (place / "workspace").mkdir(parents=True)
    tools = [each.to_client_tool() for each in shop.tools]
    async with (
        Runtime(place / "state", backend="local") as runtime,
        SessionTree(
            place / "workspace", model=model, tools=tools, builtin_tools=False, web=None, runtime=runtime
        ) as tree,
        serve_tools(tree, shop.tools),
    ):
        for number in range(turns):
            shop.turns.append([])
            await tree.main.send(f"message {number}")
        return list(tree.main.history())


def planned() -> list[list[tuple[str, dict[str, Any]]]]:
    """Return the calls of every turn as a shop notes them."""
    return [[(each.name, dict(each.arguments)) for each in turn.calls] for turn in TURNS]


async def test_every_planned_call_is_carried_out_in_order(tmp_path: Path) -> None:
    """Turn by turn, with the final messages, also in a turn without calls."""
    shop = Shop()
    history = await talk(tmp_path, shop, GroundTruth(TURNS).to_model(), len(TURNS))
    assert shop.turns == planned()
    assert [len(each) for each in list_answered_calls(history)] == [2, 0, 9]
    assert history[-1].text == "all ordered"


async def test_message_too_many_gets_no_call(tmp_path: Path) -> None:
    """After the last planned turn the script only says so."""
    shop = Shop()
    history = await talk(tmp_path, shop, GroundTruth(TURNS[:1]).to_model(), 2)
    assert shop.turns == [planned()[0], []]
    assert "no turn" in history[-1].text


async def test_failed_tool_does_not_stop_the_script(tmp_path: Path) -> None:
    """The model reads the failure and goes on; a failure is not counted as an attempt."""

    def fail(arguments: Arguments) -> object:
        raise HostedToolFailed(f"{arguments['item_id']} is sold out")

    shop = Shop()
    shop.tools = (HostedTool("order", "To order.", SCHEMA, fail), shop.tools[1])
    history = await talk(tmp_path, shop, GroundTruth(TURNS[:1]).to_model(), 1)
    ((first, second),) = list_answered_calls(history)
    assert first.result.is_error
    assert "a1 is sold out" in first.result.text
    assert first.rejection is None
    assert not second.result.is_error


async def test_error_of_the_suite_ends_the_conversation(tmp_path: Path) -> None:
    """A tool that raises anything else is a defect of the suite; it is raised as it is, and nobody hangs."""

    def crash(arguments: Arguments) -> object:
        raise KeyError("defect")

    shop = Shop()
    shop.tools = (HostedTool("order", "To order.", SCHEMA, crash), shop.tools[1])
    with pytest.raises(KeyError, match="defect"):
        await talk(tmp_path, shop, GroundTruth(TURNS[:1]).to_model(), 1)


async def repaired(place: Path, settings: DamageSettings) -> tuple[Shop, list[Any], list[Any]]:
    """Talk through every turn with damage; return the shop, the outcomes and the conversation."""
    shop = Shop()
    script = DamagedGroundTruth(TURNS, dict.fromkeys(NAMES, SCHEMA), settings, "sample")
    history = await talk(place, shop, script.to_model(), len(TURNS))
    executed = [[given for _, given in calls] for calls in shop.turns]
    return shop, list(script.outcomes(history, executed)), history


@pytest.mark.parametrize("seed", range(4))
async def test_named_damage_is_repaired_at_the_second_attempt(tmp_path: Path, seed: int) -> None:
    """Without persistence every call that is refused once is carried out as intended the next time."""
    shop, outcomes, _ = await repaired(tmp_path, DamageSettings(seed, rate=1.0, persistence=0.0))
    assert len(outcomes) == 11
    assert all(each.was_named for each in outcomes)
    assert {each.outcome for each in outcomes} <= {"corrected", "attempt_2", "other_arguments"}
    if all(each.outcome != "other_arguments" for each in outcomes):
        assert shop.turns == planned()


async def test_lasting_damage_is_given_up_and_nothing_of_it_runs(tmp_path: Path) -> None:
    """Three attempts at most; then the tool is refused until the next message, and the state is untouched."""
    shop, outcomes, history = await repaired(tmp_path, DamageSettings(0, rate=1.0, persistence=1.0))
    found = {each.outcome for each in outcomes}
    assert found <= set(OUTCOMES)
    assert "given_up" in found
    meant = [each for turn in planned() for each in turn]
    carried_out = [each for turn in shop.turns for each in turn]
    others = sum(each.outcome == "other_arguments" for each in outcomes)
    assert sum(each not in meant for each in carried_out) == others
    assert max(_attempts(history)) == 3


def _attempts(history: list[Any]) -> list[int]:
    """Return the count that each refusal of arguments gives."""
    refusals = [each.rejection for turn in list_answered_calls(history) for each in turn]
    return [refusal["attempt"] for refusal in refusals if refusal is not None]


async def test_same_seed_damages_the_same(tmp_path: Path) -> None:
    """Two runs of one seed have the same conversation; another seed has another one."""
    settings = DamageSettings(5, rate=0.7, persistence=0.5)
    _, _, first = await repaired(tmp_path / "a", settings)
    _, _, second = await repaired(tmp_path / "b", settings)
    _, _, third = await repaired(tmp_path / "c", DamageSettings(6, rate=0.7, persistence=0.5))
    assert _calls(first) == _calls(second)
    assert _calls(first) != _calls(third)


def _calls(history: list[Any]) -> list[tuple[str, str]]:
    answered = [each for turn in list_answered_calls(history) for each in turn]
    return [(each.call.name, json.dumps(dict(each.call.arguments))) for each in answered]


async def test_damage_never_changes_the_tool(tmp_path: Path) -> None:
    """In every turn exactly the planned tools are called."""
    _, _, history = await repaired(tmp_path, DamageSettings(3, rate=1.0, persistence=0.3))
    for answered, turn in zip(list_answered_calls(history), TURNS, strict=True):
        called = [each.call.name for each in answered]
        assert set(called) == {each.name for each in turn.calls}
