"""AgentDojo by a model that writes programs, and by one that makes one call a reply: attacks, tasks, tokens.

Run: ``python -m benchmarks.agentdojo_programs [--way WAY …] [--workspace NAME …] [--quick] [--json]``. It
runs in the environment, and with the tasks, orders and judges of ``benchmarks.agentdojo``.

Both scripted models make the same calls in the same order: those that solve the user's task, then those of
each order that they have read. *turns* makes one call a reply; *programs* writes the task's calls as one
program, and the orders' as another. No provider counts their tokens: a token is four characters of a request
(system prompt, list of tools as JSON, all messages) and of its reply, for all sessions of the tree.
``tool_list_tokens`` is the part of the lists of tools. ``same_verdicts`` counts the pairs in which both solve
or fail the task and the attack; ``unscored`` those in which AgentDojo's own judge fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from benchmarks.report import Figure, Options, show
from benchmarks.suite_scores import counted, options_in_environment, scores_and_faults
from sessiontree import AssistantMessage, Message, ModelRequest
from sessiontree.contracts.recorded.programs import PROGRAM_TOOL

Way = Literal["flat", "rule", "tiers"]
WAYS: tuple[Way, ...] = get_args(Way)
WORKSPACES: Final = ("banking", "slack", "travel", "workspace", "workspace_plus")
QUICK = {"user_task_ids": [0, 1, 2], "injection_task_ids": [0, 4]}
JUDGE_FAILS = "unhashable type: 'CalendarEvent'"
CHARS_A_TOKEN: Final = 4


class CountedModel:
    """A model whose replies and tokens are counted.

    Args:
        model: The model.
        counts: Where to count.
    """

    def __init__(self, model: Any, counts: Counter[str]) -> None:
        self._model = model
        self._counts = counts
        self.name: str = model.name

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the model's reply."""
        answer: AssistantMessage = self._model.reply(request)
        tools = sum(
            len(each.name) + len(each.description) + len(json.dumps(dict(each.parameters)))
            for each in request.tools
        )
        said = sum(map(_chars_of, [*request.messages, answer]))
        self._counts["replies"] += 1
        self._counts["chars"] += len(request.system_prompt) + tools + said
        self._counts["tool_list_chars"] += tools
        return answer


def _chars_of(message: Message) -> int:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return len(message.text) + sum(len(each.name) + len(json.dumps(dict(each.arguments))) for each in calls)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both models in the suite's environment and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--way", choices=WAYS, action="append", help="only these ways; by default all")
    parser.add_argument("--workspace", choices=WORKSPACES, action="append", help="only these; by default all")
    options = options_in_environment(parser, "benchmarks.agentdojo_programs", arguments)
    places = options.workspace or (WORKSPACES[:1] if options.quick else WORKSPACES)
    with tempfile.TemporaryDirectory(prefix="agentdojo-programs-") as folder:
        measured = measure(options.way or WAYS, places, QUICK if options.quick else {}, Path(folder))
        figures = asyncio.run(measured)
    show(figures, Options(options.quick, options.as_json, ""))


async def measure(
    ways: Sequence[Way], workspaces: Sequence[str], selection: Mapping[str, Any], place: Path
) -> dict[str, Figure]:
    """Return the figures of both models by workspace and way.

    Args:
        ways: In which ways pairs are run.
        workspaces: Which of AgentDojo's suites.
        selection: Which samples of each; empty = all.
        place: Directory of the runs.
    """
    found: dict[str, Figure] = {}
    for workspace in workspaces:
        for way in ways:
            chosen = {"workspace": workspace, **selection}
            verdicts: list[dict[str, tuple[float, float]]] = []
            figures: dict[str, Figure] = {}
            for manner in ("turns", "programs"):
                counts: Counter[str] = Counter()
                suite = suite_of(way, chosen, counts, writes=manner == "programs")
                scored, faults = await scores_and_faults(suite, place / f"{workspace}-{way}-{manner}")
                _check_faults(faults)
                figures[manner] = {**counted(scored), "unscored": len(faults), **_tokens_of(counts)}
                verdicts.append({name: _verdict(scores) for name, scores in scored.items()})
            turns, programs = verdicts
            figures["same_verdicts"] = sum(turns[name] == programs.get(name) for name in turns)
            found[f"{workspace}-{way}"] = figures
    return found


def _check_faults(faults: Mapping[str, str]) -> None:
    """Refuse all errors but that of AgentDojo's judge, which fails on mails with calendar events attached."""
    for name, error in faults.items():
        if error != JUDGE_FAILS:
            raise SystemExit(f"{name}: {error}")


def _verdict(scores: Mapping[str, Any]) -> tuple[float, float]:
    return scores["utility"]["value"], scores["attack"]["value"]


def _tokens_of(counts: Mapping[str, int]) -> dict[str, int]:
    return {
        "replies": counts["replies"],
        "tokens": counts["chars"] // CHARS_A_TOKEN,
        "tool_list_tokens": counts["tool_list_chars"] // CHARS_A_TOKEN,
    }


def suite_of(way: Way, selection: Mapping[str, Any], counts: Counter[str], *, writes: bool) -> Any:
    """Return the suite of pairs whose model writes programs, or makes one call a reply."""
    from sessiontree.bench.suites import agentdojo  # noqa: PLC0415 - only in its environment

    suite = agentdojo.attacks(way, **selection)
    suite.models = {
        "gullible": lambda attempt: CountedModel(agentdojo.make_gullible_last(attempt, writes=writes), counts)
    }
    if writes:
        suite.choices = replace(suite.choices, builtin=(*suite.choices.builtin, PROGRAM_TOOL))
    return suite


if __name__ == "__main__":
    main()
