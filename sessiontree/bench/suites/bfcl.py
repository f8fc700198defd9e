"""BFCL's multi-turn entries as a suite: 800 conversations over toy file systems, tickets, trades and trips.

Each function of an entry is a typed tool, and runs against instances of BFCL's classes that belong to the
attempt. The user's messages are sent to Main one after another. BFCL's own checker judges the calls that were
carried out, and the state after every turn. Needs the environment of ``locks/bfcl.txt``.
"""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from bfcl_eval.constants.default_prompts import MAXIMUM_STEP_LIMIT
from bfcl_eval.constants.executable_backend_config import STATELESS_CLASSES
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker, state_checker

from sessiontree import FunctionModel, Limits, PolicyConfig, Sender, SessionFailed, StreamFunctionModel
from sessiontree.bench.runnable_suite import Suite
from sessiontree.bench.suite.environment import LOCKS
from sessiontree.bench.suite.suite import Attempt, Sample, Score
from sessiontree.bench.suites.bfcl_entries import CLASSES, BfclEntry, BfclFunction, call_source, load_entries
from sessiontree.bench.suites.damaged_ground_truth import DamagedGroundTruth, DamageSettings
from sessiontree.bench.suites.ground_truth import GroundTruth, PlannedTurn
from sessiontree.bench.suites.hosted_tools import Arguments, HostedTool, serve_tools

EPISODE: Final = "bfcl"
"""Key of the episode in an attempt's state."""
DAMAGED: Final = "bfcl damaged"
"""Key of the damaged script, if there is one."""
SCRIPTED: Final = ("ground-truth", "damaged")
"""The suite's scripted models."""
SCRIPTED_TURNS: Final = 200
"""Replies that a scripted model may give to one message: it makes one call per reply."""


class Episode:
    """One conversation under way: the instances of the toy classes, and the calls that were carried out.

    Args:
        entry: The entry.
    """

    def __init__(self, entry: BfclEntry) -> None:
        self.entry = entry
        self.instances = {name: _make_instance(name, entry) for name in entry.classes}
        self.calls: list[list[tuple[str, dict[str, Any]]]] = []
        """Names and arguments of the calls, by turn."""
        self.stopped = ""
        """Why the conversation ended before the user's last message; empty = it did not."""
        self.tools = tuple(
            HostedTool(each.name, each.description, each.parameters, self._make_runner(each))
            for each in entry.functions
        )

    def _make_runner(self, function: BfclFunction) -> Callable[[Arguments], str]:
        owner = next(each for each in self.instances.values() if hasattr(each, function.name))
        method: Callable[..., object] = getattr(owner, function.name)

        def run(arguments: Arguments) -> str:
            given = copy.deepcopy(dict(arguments))
            self.calls[-1].append((function.name, copy.deepcopy(given)))
            try:
                return _to_text(method(**given))
            except Exception as error:  # noqa: BLE001 - whatever a toy function raises, BFCL reports so
                return f"Error during execution: {error}"

        return run

    def sources(self) -> list[list[list[str]]]:
        """Return the calls as the checker takes them: by turn and step, one call a step."""
        return [[[call_source(name, given)] for name, given in calls] for calls in self.calls]


def _make_instance(class_name: str, entry: BfclEntry) -> Any:
    made = CLASSES[class_name]()
    if class_name not in STATELESS_CLASSES:
        scenario = copy.deepcopy(entry.raw["initial_config"].get(class_name, {}))
        made._load_scenario(scenario, long_context=entry.is_long)  # noqa: SLF001 - BFCL has no other way
    return made


def _to_text(result: object) -> str:
    """Return a result as the text that BFCL shows a model."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except (TypeError, ValueError):
            return str(result)
    return str(result)


def load_samples() -> list[Sample]:
    """Return the 800 entries as samples."""
    return [
        Sample(
            each.id,
            each.messages[0],
            [list(calls) for calls in each.ground_truth],
            {"category": each.category},
        )
        for each in load_entries().values()
    ]


def plan_turns(entry: BfclEntry) -> list[PlannedTurn]:
    """Return what the ground truth does after each message of an entry."""
    return [
        PlannedTurn(calls, "Done." if calls else "Something that this needs is missing.")
        for calls in entry.plan_calls()
    ]


async def converse(attempt: Attempt[int]) -> int:
    """Send the user's messages one after another, and return how many were answered."""
    episode: Episode = attempt.state[EPISODE]
    async with serve_tools(attempt.tree, episode.tools):
        for number, message in enumerate(episode.entry.messages):
            episode.calls.append([])
            try:
                await attempt.tree.main.send(message, sender=Sender("user", group=_group(number)))
            except SessionFailed as failed:
                if "max_turns" not in str(failed):
                    raise
                episode.stopped = str(failed)
                break
    return len(episode.calls) - bool(episode.stopped)


def _group(turn: int) -> str:
    return f"turn-{turn}"


def _make_policy(entry: BfclEntry) -> PolicyConfig:
    """Return a policy that removes each function until the turn that offers it."""
    lists = {
        _group(turn): {"deny": tuple(each.name for each in entry.functions if each.offered_at > turn)}
        for turn in range(len(entry.messages))
    }
    return PolicyConfig.model_validate(
        {"groups": {name: each for name, each in lists.items() if each["deny"]}}
    )


def bfcl_checker(attempt: Attempt[int]) -> Score:
    """Judge the calls that were carried out with BFCL's checker.

    The metadata also list what became of damaged calls (``damage``): kind, outcome, and whether the errors
    named what was wrong.
    """
    episode: Episode = attempt.state[EPISODE]
    score = judge_episode(episode)
    script: DamagedGroundTruth | None = attempt.state.get(DAMAGED)
    if script is None:
        return score
    executed = [[given for _, given in calls] for calls in episode.calls]
    found = script.outcomes(attempt.tree.main.history(), executed)
    damage = [[each.kind, each.outcome, each.was_named] for each in found]
    return replace(score, metadata={**score.metadata, "damage": damage})


def judge_episode(episode: Episode) -> Score:
    """Return the verdict of BFCL's checker on an episode that has ended.

    The metadata say of which type the error is, and whether the instances that the tools changed are in the
    state that the checker reached by carrying out the same calls again (``same_state``; None if it stopped
    at an earlier turn).
    """
    if episode.stopped:
        return Score(0.0, explanation=episode.stopped, metadata={"error_type": "multi_turn:force_terminated"})
    entry, called = episode.entry, f"attempt_{secrets.token_hex(8)}"
    raw = dict(entry.raw)
    truth = [list(calls) for calls in entry.ground_truth]
    same_state: bool | None = None
    try:
        found = multi_turn_checker(episode.sources(), truth, raw, entry.category, called)
        if found["valid"]:
            # Without a call it only returns the instances, which it keeps by the name of the model.
            _, repeated = multi_turn_utils.execute_multi_turn_func_call(
                [],
                raw["initial_config"],
                list(entry.classes),
                called,
                entry.id,
                entry.is_long,
                is_evaL_run=True,
            )
            same_state = bool(state_checker(episode.instances, repeated)["valid"])
    finally:
        # The checker's module keeps them for ever.
        kept = vars(multi_turn_utils)
        for name in [each for each in kept if each.startswith(called)]:
            del kept[name]
    return Score(
        float(found["valid"]),
        explanation=str(found.get("error_message", "")),
        metadata={"error_type": str(found.get("error_type", "")), "same_state": same_state},
    )


def tree_options(attempt: Attempt[Any]) -> Mapping[str, Any]:
    """Return what a sample's tree is opened with; begins its episode."""
    entry = load_entries()[attempt.sample.id]
    episode = attempt.state[EPISODE] = Episode(entry)
    return {
        "tools": [each.to_client_tool() for each in episode.tools],
        "builtin_tools": False,
        "web": None,
        "policy": _make_policy(entry),
        "limits": Limits(
            max_turns=SCRIPTED_TURNS if attempt.model in SCRIPTED else MAXIMUM_STEP_LIMIT,
            max_repeats=None,  # BFCL has a rule of its own for a model that does not end
        ),
    }


def make_ground_truth_model(attempt: Attempt[Any]) -> FunctionModel:
    """Return the model that makes the calls of the sample's ground truth."""
    return GroundTruth(plan_turns(attempt.state[EPISODE].entry)).to_model()


def bfcl(seed: int = 0, rate: float = 0.5, persistence: float = 0.25) -> Suite:
    """Return the suite.

    Args:
        seed: Of the damage that the model ``damaged`` does.
        rate: Share of its calls that are damaged, from 0 to 1.
        persistence: How often a repeated call stays damaged, from 0 to 1.
    """
    settings = DamageSettings(seed, rate, persistence)

    def make_damaged_model(attempt: Attempt[Any]) -> StreamFunctionModel:
        entry: BfclEntry = attempt.state[EPISODE].entry
        schemas = {each.name: each.parameters for each in entry.functions}
        label = f"{entry.id}/{attempt.epoch}"
        script = DamagedGroundTruth(plan_turns(entry), schemas, settings, label)
        attempt.state[DAMAGED] = script
        return script.to_model()

    return Suite(
        "bfcl",
        load_samples,
        converse,
        bfcl_checker,
        tree=tree_options,
        models={"ground-truth": make_ground_truth_model, "damaged": make_damaged_model},
        model="ground-truth",
        env=LOCKS / "bfcl.txt",
    )
