"""Carrying a play out on a backend, and what came of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessiontree import (
    ApprovalRequest,
    CallbackChannel,
    Limits,
    PermissionTier,
    Rule,
    Runtime,
    SessionTree,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
)
from sessiontree.contracts.facts.tree_facts import ChannelSaid
from sessiontree.contracts.recorded.approvals import RuleAnswer
from tests.behaviour.effect_fakes import TOOLS, Look, Words, effects
from tests.behaviour.fact_fixtures import facts_of, results
from tests.system.backends.ray.plan_strategies import Play, asked_for, children_of, model_of, own_children

PATIENCE_S = 180.0


class Stumble(Look):
    """Fails."""

    name = "stumble"
    tier = PermissionTier.READ_ONLY

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        raise LookupError(f"{params.text} is not there")


@dataclass(frozen=True)
class Outcome:
    """All that must not depend on the backend."""

    receipt: list[tuple[Any, ...]]
    errands: list[tuple[str, str, Any]]
    """Status, final message and output of the program's own children."""
    replies: list[str]
    calls: list[str]
    told: dict[str, list[str]]
    """Results of tool calls by session, in their order."""
    effects: Counter[str]
    said: Counter[str]
    """What reached the person."""


def rule(name: str, answer: RuleAnswer) -> Rule:
    """Return the rule for calls of a name."""
    return Rule(tool="launch", where={"/text": f"{name} *"}, answer=answer)


class EffectRunner:
    """Carries plays out as they are meant; what it is made of can be replaced to plant a bug."""

    tools: tuple[Tool[Any], ...] = (*TOOLS, Stumble())
    rules: tuple[Rule, ...] = (rule("allowed", "approve"), rule("refused", "deny"))
    strict: tuple[Rule, ...] = (rule("allowed", "deny"),)
    result_type: Any = int

    def __init__(self, runtime: Runtime, workspace: Path) -> None:
        """Serve one play."""
        self._runtime = runtime
        self._workspace = workspace
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        self._cancels: list[asyncio.Task[Any]] = []

    async def carry_out(self, play: Play) -> Outcome:
        """Have a play done to its end."""
        tree = SessionTree(
            self._workspace,
            model=model_of(play),
            tools=self.tools,
            approver=self.rules,
            channel=CallbackChannel(lambda request: self.decide(tree, request), self.listen),
            limits=Limits(approval_patience_s=None),
            runtime=self._runtime,
        )
        async with tree, asyncio.timeout(PATIENCE_S):
            replies = [await tree.main.send("go")]
            children = [
                await tree.main.spawn(
                    plan.kind,
                    "go",
                    result_type=self.result_type if plan.typed else None,
                    approver=self.strict if is_strict else None,
                )
                for plan, is_strict in play.errands
            ]
            calls = [await self._call(tree, name, index) for index, name in enumerate(play.calls)]
            replies.append(await tree.main.send("and?"))
            errands = [await child.result() for child in children]
            for session, _ in children_of("main", own_children(play)):
                await tree.session(session).result()
            for cancel in self._cancels:
                await cancel
            receipt = await tree.finish("over")
            told = {
                line.session_id: [each.text for each in results(tree, line.session_id)] for line in receipt
            }
            return Outcome(
                [line[:6] for line in receipt],  # what a turn used is charged a moment after it
                [(str(result.status), result.summary, result.output) for result in errands],
                replies,
                calls,
                told,
                Counter(text for _, text in effects(self._workspace)),
                await self._said(tree),
            )

    def decide(self, tree: SessionTree, request: ApprovalRequest) -> bool | None:
        """Answer as the person would; None where the session is cancelled instead."""
        word = str(request.arguments["text"]).partition(" ")[0]
        if word == "cancelled":
            cancelling = tree.session(request.session_id).cancel("not needed any more")
            self._cancels.append(asyncio.create_task(cancelling))
            return None
        return word == "asked"

    def listen(self, text: str) -> None:
        """Hear a message."""
        self._heard.put_nowait(text)

    async def _call(self, tree: SessionTree, name: str, index: int) -> str:
        asked = asked_for(name, f"program {index}")
        try:
            return (await tree.main.call(asked.name, asked.arguments)).text
        except ToolError as error:
            return f"{type(error).__name__}: {error}"

    async def _said(self, tree: SessionTree) -> Counter[str]:
        """Return what was heard, once everything that was said has been."""
        heard = Counter([await self._heard.get() for _ in await facts_of(tree, ChannelSaid)])
        while not self._heard.empty():
            heard[self._heard.get_nowait()] += 1
        return heard
