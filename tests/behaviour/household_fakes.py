"""A small tree at work whose end is the same whatever happens on the way, as long as nothing is lost.

Main has two Branches; each appends twice, does one thing that needs an approval, has a Worker look, and
reports. The model looks only at the conversation, so it may be asked again after a crash.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from sessiontree import (
    AsyncFunctionModel,
    FunctionModel,
    ModelRequest,
    SessionKind,
    SessionStatus,
    SessionTree,
    script_call,
)
from sessiontree.contracts.facts.tree_facts import ResultHeld
from sessiontree.contracts.values.messages import AssistantMessage, UserMessage
from sessiontree.models.answers import Answer
from tests.behaviour.effect_fakes import effects
from tests.behaviour.fact_fixtures import until

BRANCHES = 2
EFFECTS = Counter({f"main/b{number}: {step}": 1 for number in (1, 2) for step in ("one", "two", "three")})
"""Every effect of the household, each once."""
LAST_WORD = "both are home"
RESULTS = {
    "main/b1": (SessionStatus.COMPLETED, "tidied up"),
    "main/b1/w1": (SessionStatus.COMPLETED, "looked around"),
    "main/b2": (SessionStatus.COMPLETED, "tidied up"),
    "main/b2/w1": (SessionStatus.COMPLETED, "looked around"),
}


def reply(request: ModelRequest) -> Answer:
    """Return what a session of the household says next."""
    step = sum(isinstance(message, AssistantMessage) for message in request.messages)
    heard = sum(isinstance(each, UserMessage) and each.origin == "child" for each in request.messages)
    if request.kind is SessionKind.WORKER:
        return script_call("look", text=str(step)) if step < 2 else "looked around"
    if request.kind is SessionKind.MAIN:
        if step == 0:
            return [script_call("sessions_spawn", kind="branch", task="tidy up") for _ in range(BRANCHES)]
        return LAST_WORD if heard == BRANCHES else "waiting"
    who = request.session_id
    steps: list[Answer] = [
        script_call("append", text=f"{who}: one"),
        [script_call("look"), script_call("append", text=f"{who}: two")],
        script_call("launch", text=f"{who}: three"),
        script_call("sessions_spawn", kind="worker", task="look around"),
    ]
    if step < len(steps):
        return steps[step]
    return "tidied up" if heard else "waiting"


async def reply_later(request: ModelRequest) -> Answer:
    """Reply the same, after others had their turn."""
    await asyncio.sleep(0)
    return reply(request)


MODEL = FunctionModel(reply)
WAITING = AsyncFunctionModel(reply_later)


async def finished(tree: SessionTree) -> None:
    """Wait until Main has said its final message."""
    await until(
        tree, ResultHeld, where=lambda fact: fact.session == "main" and fact.result.summary == LAST_WORD
    )


def outcome(tree: SessionTree) -> dict[str, tuple[SessionStatus, str]]:
    """Return how every session but Main ended."""
    return {line.session_id: (line.status, line.summary) for line in tree.receipt()[1:]}


def done(workspace: Path) -> Counter[str]:
    """Return how often each effect happened."""
    return Counter(text for _, text in effects(workspace))
