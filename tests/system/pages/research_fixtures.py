"""A tree as a reader would have it: research in several cities, some of it failed, one request that waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from sessiontree import AsyncFunctionModel, Limits, ModelError, ModelRequest, SessionTree, script_call
from sessiontree.api.options import options
from sessiontree.backends.local import backend
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)
from sessiontree.models.answers import Answer
from sessiontree.runtime.host.host import HostCore
from sessiontree.runtime.timing.clock import TreeClock, read_machine_ms, read_monotonic_ms

PURPOSE: Final = "How do coastal cities pay for protection against the sea, and who decides?"
CITIES: Final = {
    "Rotterdam": ("Delta Fund accounts", "water board minutes", "Maeslant barrier audit", "insurers' reports",
                  "council debates", "dike levy history"),
    "Jakarta": ("giant sea wall tender", "subsidence survey", "World Bank loan papers", "resettlement law",
                "harbour plan", "press 2019 to 2025"),
    "Miami": ("bond prospectus", "pump station contracts", "FEMA grants", "county climate plan",
              "court files", "flood claims"),
    "Venice": ("MOSE contracts", "court of auditors", "port authority minutes", "maintenance budget",
               "UNESCO reports", "lagoon studies"),
    "Osaka": ("typhoon Jebi review", "river bureau budget", "seawall standards", "prefecture bonds",
              "airport repairs", "insurance pool"),
    "Alexandria": ("corniche project", "Green Climate Fund", "governorate budget", "fishery losses",
                   "university models", "press in Arabic"),
}  # fmt: skip
HOOK: Final = ".git/hooks/pre-commit"
CHECKS: Final = """#!/bin/sh
# Every figure of the report needs a source.
set -e
python check_sources.py report.md
"""
FAILING: Final = frozenset({"court files", "press in Arabic", "harbour plan"})
READ: Final = frozenset({"Rotterdam", "Jakarta"})
SLOW: Final = frozenset({"lagoon studies", "maintenance budget", "university models", "insurance pool"})
FINDING: Final = """**{source}**: the city carries about *a third* of the cost.

| source | share |
| --- | --- |
| state | 52 % |
| city | 31 % |
| private | 17 % |

1. The levy was raised in 2014 and 2021.
2. The accounts do not separate upkeep from new works.
"""


class _Stage:
    """A clock behind the machine's, by less and less: work of seconds looks like work of minutes."""

    behind_ms = 14 * 60_000

    def clock(self) -> TreeClock:
        return TreeClock(read_machine_ms() - read_monotonic_ms(), self.passed_ms)

    def passed_ms(self) -> int:
        return read_monotonic_ms() - self.behind_ms


class _Researchers:
    def __init__(self, stage: _Stage) -> None:
        self.never = asyncio.Event()
        self._stage = stage

    async def answer(self, request: ModelRequest) -> Answer:
        """Reply as the session that asks would."""
        path = request.session_id
        told = next(each.text for each in request.messages if getattr(each, "role", "user") == "user")
        name = told.partition(":")[2].strip()
        if path == "main":
            return self._main(request)
        if path.count("/") == 1:
            return await self._city(request, name)
        self._stage.behind_ms -= 400 * len(name)
        if request.turn == 1:
            found = ToolCall("", "read", {"path": f"sources/{name.replace(' ', '-')}.md"})
            return _said(request, ThinkingContent("The accounts come first, then who signed them."), found)
        if name in FAILING:
            raise ModelError(f"the source {name!r} is longer than the model's context")
        if name in SLOW:
            await self.never.wait()
        return _said(request, TextContent(FINDING.format(source=name)))

    def _main(self, request: ModelRequest) -> Answer:
        if request.turn == 1:
            return _said(request, TextContent("I ask one Branch a city, and compare what they find."))
        return _said(request, TextContent("Four of six cities are read."))

    async def _city(self, request: ModelRequest, name: str) -> Answer:
        if name == "Miami" and request.turn == 1:
            edit = script_call(
                "edit",
                path=HOOK,
                old_text="python check_sources.py report.md",
                new_text="python check_sources.py --strict report.md\npython check_figures.py report.md",
            )
            return _said(
                request, TextContent("Two figures of Miami had no source; the hook shall find such."), edit
            )
        if name in READ:
            return _said(request, TextContent(f"{name}: **six sources read**; the state pays most of it."))
        await self.never.wait()
        return ""


def _said(request: ModelRequest, *content: TextContent | ThinkingContent | ToolCall) -> AssistantMessage:
    size = 2_400 + 977 * (len(request.messages[0].text) % 7) + 1_300 * request.turn
    stop: StopReason = "toolUse" if any(isinstance(each, ToolCall) for each in content) else "stop"
    calls = tuple(
        ToolCall(f"c{request.turn}", each.name, each.arguments) if isinstance(each, ToolCall) else each
        for each in content
    )
    return AssistantMessage(calls, stop, Usage(size, size // 9, cost_usd=size * 4e-6, turns=1))


@asynccontextmanager
async def research_tree(place: Path) -> AsyncIterator[SessionTree]:
    """Run the tree until one request waits, six sessions work, and all others have ended."""
    workspace = place / "workspace"
    (workspace / "sources").mkdir(parents=True)
    hook = workspace / HOOK
    hook.parent.mkdir(parents=True)
    (workspace / ".git/HEAD").write_text("ref: refs/heads/main\n", "utf-8")
    (workspace / ".git/objects").mkdir()
    (workspace / ".git/refs").mkdir()
    hook.write_text(CHECKS, "utf-8")
    for sources in CITIES.values():
        for source in sources:
            path = workspace / "sources" / f"{source.replace(' ', '-')}.md"
            path.write_text(f"# {source}\n\nNotes, by year.\n", "utf-8")
    (workspace / "sources" / "UNESCO-reports.md").unlink()
    with pytest.MonkeyPatch.context() as patch:
        stage = _Stage()
        patch.setattr(backend, "TreeClock", stage.clock)
        patch.setattr(backend, "HostCore", partial(HostCore, passed_ms=stage.passed_ms))
        patch.setattr(options, "read_machine_ms", lambda: read_machine_ms() - stage.behind_ms)
        async with SessionTree(
            workspace,
            model=AsyncFunctionModel(_Researchers(stage).answer, name="claude"),
            backend="local",
            state_dir=place / "state",
            approvals="always",
            purpose=PURPOSE,
            slots=60,
            # The clock passes minutes at once, so a session's time to live would decide which ones fail.
            limits=Limits(max_live=100, branch_ttl_s=None, worker_ttl_s=None),
        ) as tree:
            await tree.main.send("Compare the cities, and write report.md.")
            await _spawn_all(tree, stage)
            yield tree


async def _spawn_all(tree: SessionTree, stage: _Stage) -> None:
    for number, (city, sources) in enumerate(CITIES.items()):
        stage.behind_ms = (12 - 2 * number) * 60_000
        branch = await tree.main.spawn("branch", f"city: {city}", label=city)
        for source in sources:
            stage.behind_ms -= 1_000
            worker = await branch.spawn("worker", f"source: {source}", label=source)
            if source not in SLOW:
                await worker.result()
        if city in READ:
            await branch.result()
    stage.behind_ms = 0
