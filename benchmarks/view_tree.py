"""A journal with one wide tree, as a program would have left it: for measurements of what reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts import tree_facts
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.codec import pack, to_wire
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.journal.journal import Journal
from sessiontree.journal.record import Packed

TREE_ID: Final = "t00000000000010ad"
BEGAN_MS: Final = 1_790_000_000_000
CHILDREN: Final = 100
"""Most children of one session."""


def spec_of(path: str) -> SessionSpec:
    """Return a session of the book, by its path."""
    step = path.rpartition("/")[2]
    kind = {"m": SessionKind.MAIN, "b": SessionKind.BRANCH, "w": SessionKind.WORKER}[step[0]]
    return SessionSpec(
        session_id=path,
        kind=kind,
        parent=path.rpartition("/")[0] or None,
        depth=path.count("/"),
        agent="default",
        task="Read the chapter and say what it claims.",
        label=f"chapter {step[1:]}",
        via="model",
        tools=("read",),
        result_schema=None,
        rules=(),
        approver=None,
        owns_channel=path == "main",
        budget=None,
        key=None,
    )


def _work(path: str, at_ms: int) -> Iterator[tuple[str, object]]:
    """Yield the facts of a session that looks once and reports, each with whose it is."""
    task = UserMessage((TextContent("Read the chapter and say what it claims."),), at_ms, "parent")
    call = ToolCall("c1", "read", {"path": f"chapters/{path.rpartition('/')[2]}.md"})
    used = Usage(input_tokens=1_200, output_tokens=90, cost_usd=0.002, turns=1)
    failed = path.endswith("7")
    result = ToolResultMessage("c1", "read", (TextContent("It claims **much**.\n" * 8),), is_error=failed)
    yield path, said.Opened("You are a session.", ("read",), "recorded")
    yield path, said.MessageReceived("m1", task, steer=False, wakes=True)
    yield path, said.TurnStarted(1, 1, fresh_run=True)
    yield path, said.TurnReplied(1, AssistantMessage((call,), "toolUse", used, at_ms))
    yield path, said.CallResolved("1.0", "error" if failed else "ok", result)
    yield path, said.TurnStarted(2, 0, fresh_run=False)
    yield path, said.TurnReplied(2, AssistantMessage((TextContent("It claims much."),), "stop", used, at_ms))
    yield "", tree_facts.UsageCharged(path, "main", used + used)
    status = SessionStatus.FAILED if failed else SessionStatus.COMPLETED
    yield (
        "",
        tree_facts.SessionEnded(path, status, SessionResult(status, "It claims much."), at_ms, forced=False),
    )


def paths_of(sessions: int) -> list[str]:
    """Return the paths of a tree: Main, Branches below it, Workers below them."""
    branches = max(1, (sessions - 1) // (CHILDREN + 1))
    paths = ["main", *(f"main/b{number}" for number in range(1, branches + 1))]
    return paths + [
        f"main/b{1 + number % branches}/w{1 + number // branches}" for number in range(sessions - len(paths))
    ]


def config_of_book() -> TreeConfig:
    """Return the configuration of a tree that reads a book."""
    return TreeConfig(
        tree_id=TREE_ID,
        workspace="/workspace",
        package_version="0",
        rules_number=1,
        nonce="0" * 32,
        created_at_ms=BEGAN_MS,
        model="recorded",
        limits=Limits(),
        mode="always",
        rules=(),
        smart_rules=(),
        owns_channel=True,
        budget=None,
        tools=(),
        agents=(),
        purpose="a book, chapter by chapter",
    )


async def write_tree(state_dir: Path, config: TreeConfig, facts: Iterable[tuple[str, object]]) -> int:
    """Write a tree whose facts are given, each with whose it is; return how many they are."""
    count = 0
    journal = Journal.open(state_dir)
    journal.start(asyncio.get_running_loop())
    try:
        written = journal.create_tree(config.tree_id, to_wire(config))
        for whose, fact in facts:
            _, written = journal.append(
                config.tree_id, [(whose, [Packed("cause", BEGAN_MS + count, pack(fact))])]
            )
            count += 1
        await written
    finally:
        await journal.close()
    return count


def _book(sessions: int) -> Iterator[tuple[str, object]]:
    for number, path in enumerate(paths_of(sessions)):
        at_ms = BEGAN_MS + number
        yield "", tree_facts.SessionSpawned(spec_of(path), "main", 1, at_ms)
        *work, end = _work(path, at_ms)
        yield from work
        if path != "main":
            yield end


async def record_tree(state_dir: Path, sessions: int) -> int:
    """Write a tree of so many sessions, all but Main ended; return how many facts it has."""
    return await write_tree(state_dir, config_of_book(), _book(sessions))
