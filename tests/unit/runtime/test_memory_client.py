"""A host asks memory again, by the same key, when its process is lost; and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sessiontree.contracts.errors import MemoryFailed, PermissionDenied, SessionClosed, SessionTreeError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.memory import MemoryQuery, MemoryScope, NewRecord, Selection
from sessiontree.runtime.memory.memory_api import (
    MAX_LOSSES,
    Ended,
    MemoryApi,
    MemoryClient,
    MemoryLink,
    MemoryRight,
    ScopeAnswer,
)
from sessiontree.runtime.transport.link import HostLost
from sessiontree.runtime.transport.rpc import RpcMethod

SCOPE = MemoryScope("t", "main", "default", "/w")
RECORDS = (NewRecord("the sky is blue"),)


@dataclass(slots=True)
class Process:
    """Memory's process as a host sees it: lost a number of times, then it answers.

    Args:
        losses: How often it is lost first.
        answer: What it says then; an exception is raised.
    """

    losses: int = 0
    answer: Any = ("id",)
    asked: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    found: int = 0

    async def find(self, grant: str) -> Process:
        """Return the way to it."""
        self.found += 1
        return self

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Answer, or be lost, having done what was asked or not."""
        self.asked.append((method.name, given))
        if len(self.asked) <= self.losses:
            raise HostLost(f"it was killed the {len(self.asked)}. time")
        if isinstance(self.answer, Exception):
            raise self.answer
        return list(self.answer)


def line_to(process: Process, answer_s: float = 20.0) -> MemoryApi:
    """Return a host's way to it."""
    return MemoryClient(process.find, answer_s=answer_s, again_s=0.0).memory


@pytest.mark.parametrize("losses", [0, 1, MAX_LOSSES - 1])
async def test_lost_process_is_asked_again_by_the_same_key(losses: int) -> None:
    """Each time the supervisor says which way; what is asked stays the same, key and all."""
    process = Process(losses)
    assert await line_to(process).store("grant", RECORDS, "key") == ["id"]
    assert process.asked == [("store", ("grant", RECORDS, "key"))] * (losses + 1)
    assert process.found == losses + 1


async def test_way_is_asked_for_once() -> None:
    """As long as memory answers, one call is one question."""
    process = Process()
    line = line_to(process)
    await line.search("a", MemoryQuery("x"))
    await line.select("b", Selection(ids=("x",)), 5)
    await line.forget("c", Selection(ids=("x",)), "key")
    assert [(given[0], name) for name, given in process.asked] == [
        ("a", "search"),
        ("b", "select"),
        ("c", "forget"),
    ]
    assert process.found == 1


async def test_process_that_is_lost_each_time_fails_the_call() -> None:
    """Typed, with the reason; the next call begins again."""
    process = Process(MAX_LOSSES)
    line = line_to(process)
    with pytest.raises(MemoryFailed, match=f"lost {MAX_LOSSES} times.*killed the {MAX_LOSSES}. time"):
        await line.store("grant", RECORDS, "key")
    assert await line.store("grant", RECORDS, "key") == ["id"]


async def test_memory_that_never_answers_fails_the_call() -> None:
    """It is not waited for longer than was said."""

    async def never(grant: str) -> Process:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(MemoryFailed, match=r"no answer within 0\.01 s"):
        await MemoryClient(never, answer_s=0.01).memory.search("grant", MemoryQuery("x"))


@pytest.mark.parametrize(
    "error",
    [
        SessionClosed("?", "no grant"),
        PermissionDenied(PermissionTier.WORKSPACE, "no right"),
        MemoryFailed("/memory", "full", "unwritable"),
        TimeoutError("of something inside"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_memory_says_is_not_asked_again(error: Exception) -> None:
    """A refusal is an answer."""
    process = Process(answer=error)
    with pytest.raises(type(error)):
        await line_to(process).store("grant", RECORDS, "key")
    assert len(process.asked) == 1


async def test_given_up_call_is_given_up() -> None:
    """Cancelling the tool ends the waiting at once; it is no failure of memory."""
    process = Process(losses=MAX_LOSSES)
    line = MemoryClient(process.find, again_s=1000.0).memory
    storing = asyncio.ensure_future(line.store("grant", RECORDS, "key"))
    while not process.asked:  # noqa: ASYNC110 - one turn of the loop
        await asyncio.sleep(0)
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storing


@dataclass(slots=True)
class Started:
    """Memory's process as its supervisor sees it."""

    connection: str = "the connection"
    told: list[tuple[Any, ...]] = field(default_factory=list)
    is_ended: bool = False

    def tell(self, name: str, *given: Any) -> None:
        """Keep it."""
        self.told.append((name, *given))

    async def end(self) -> None:
        """Note it."""
        self.is_ended = True


@dataclass(slots=True)
class Authority:
    """The supervisor as memory sees it: every grant counts, except those that are refused."""

    refused: Mapping[str, Exception] = field(default_factory=dict)

    async def resolve_grants(self, wanted: Sequence[tuple[str, MemoryRight]]) -> ScopeAnswer:
        """Return one scope for all."""
        return ScopeAnswer([self.refused.get(grant, SCOPE) for grant, _ in wanted])

    async def list_completed_trees(self, tree_ids: Sequence[str]) -> Sequence[Ended]:
        """Return none."""
        return ()


async def test_memory_is_started_by_its_first_use_and_told_what_it_must_know() -> None:
    """Before, nothing is reported; after, only what it has learned is taken back."""
    started: list[Started] = []

    def start() -> Started:
        started.append(Started())
        return started[-1]

    authority = Authority({"c": SessionClosed("?", "none")})
    link, end = MemoryLink(start, lambda: authority), Ended("t", "default", "/w", 1)
    link.revoked("a")
    link.ended(end)
    assert link.actors() == []
    assert started == []
    assert link.connection() == link.connection() == "the connection"
    assert [(row.name, row.role, row.pid) for row in link.actors()] == [("memory", "memory", 0)]
    await link.begun(77)
    told = await link.resolve_grants([("a", "recall"), ("b", "remember"), ("c", "recall")])
    assert told.ended == ()
    for grant in "abca":
        link.revoked(grant)
    link.ended(end)
    (process,) = started
    assert process.told == [("revoked", "a"), ("ended", end)]
    assert [(await link.resolve_grants([])).ended for _ in range(2)] == [(end,), ()], (
        "it is reported once more, in order"
    )
    assert [row.pid for row in link.actors()] == [77]
    await link.close()
    assert process.is_ended
    assert link.actors() == []


async def test_process_that_begins_again_knows_no_grant() -> None:
    """What the one before learned need not be taken back from it."""
    process = Started()
    link = MemoryLink(lambda: process, Authority)
    link.connection()
    await link.begun(1)
    await link.resolve_grants([("a", "recall")])
    await link.begun(2)
    link.revoked("a")
    assert process.told == []


async def test_memory_of_a_supervisor_that_is_not_open_does_not_begin() -> None:
    """Nothing is answered in its place, and no process is reported."""

    def find_authority() -> Authority:
        raise SessionTreeError("it is not open")

    link = MemoryLink(Started, find_authority)
    link.connection()
    for asking in (link.begun(7), link.resolve_grants([]), link.list_completed_trees([])):
        with pytest.raises(SessionTreeError, match="not open"):
            await asking
    assert [row.pid for row in link.actors()] == [0]
