"""Names that strangers make up cost nothing for long (REL-L67): whatever looks them up forgets them."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

from sessiontree import SessionClosed, SessionKind
from sessiontree.contracts.recorded.approvals import RejectedCall
from sessiontree.contracts.values.messages import ToolCall
from sessiontree.contracts.values.untrusted import wrap_untrusted
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.results import ImmediateOutcome
from sessiontree.policy.compiled import CompiledPolicy, compile_policy
from sessiontree.policy.settings import PolicyConfig
from sessiontree.policy.steps import Standing
from sessiontree.runtime.host.host import HostResources, build_tooling
from sessiontree.runtime.scheduling.grants import Grants
from tests.unit.runtime.test_session_policy import TABLE, adopt, now_ms, rights_of

Attack: TypeAlias = Callable[[int], None]
"""Says something with a name that nobody said before; the number makes it new."""

NAMES = 2048
"""Made up in each round; a multiple of what bounded tables hold, so that each round leaves them as full."""
ROUNDS = 5
LEAST_KEPT = NAMES * 16
"""Bytes that remembering them costs at the least: a place in a table each."""


def is_flat(make: Callable[[], Attack]) -> None:
    """After a first round, some round of names leaves no more behind than there was.

    What remembers grows in every round; what the interpreter or other threads do meanwhile does not.
    """
    attack = make()
    grown = []
    tracemalloc.start()
    try:
        held = 0
        for at in range(ROUNDS):
            for number in range(at * NAMES, (at + 1) * NAMES):
                attack(number)
            gc.collect()
            before, held = held, tracemalloc.get_traced_memory()[0]
            grown.append(held - before)
            if at > 0 and grown[-1] < LEAST_KEPT:
                return
    finally:
        tracemalloc.stop()
    raise AssertionError(grown)


def dispatcher() -> Dispatcher:
    """Return the dispatcher of a Main with every tool."""
    policy = compile_policy(TABLE.rows, PolicyConfig())
    equipment = HostResources(TABLE, {}, (), None, policy, "family", None)
    frame = adopt(SessionKind.MAIN, "clerk", tuple(entry.name for entry in TABLE), "openai/gpt-5")
    return build_tooling(equipment, frame, rights_of(frame), now_ms)[1]


def tools_nobody_has() -> Attack:
    """Calls of tools that are not there."""
    asked = dispatcher()

    def attack(number: int) -> None:
        outcome = asked.prepare(f"{number}.0", ToolCall(f"c{number}", f"tool_{number}", {}))
        assert isinstance(outcome, ImmediateOutcome)

    return attack


def parameters_nobody_has() -> Attack:
    """Calls of a tool by parameters it does not have."""
    asked = dispatcher()

    def attack(number: int) -> None:
        outcome = asked.prepare(f"{number}.0", ToolCall(f"c{number}", "read", {f"path_{number}": "x"}))
        assert isinstance(outcome, RejectedCall)

    return attack


def sessions_of_any_standing() -> Attack:
    """Sessions with agents, models and groups of ever new names, and tools that are asked about."""
    policy = CompiledPolicy(TABLE.rows, PolicyConfig())

    def attack(number: int) -> None:
        standing = Standing(SessionKind.MAIN, True, f"agent_{number}", f"x/{number}", f"group_{number}")
        assert not policy.explain(f"tool_{number}", standing).kept
        assert policy.explain("read", standing).kept

    return attack


def tokens_that_do_not_count() -> Attack:
    """Questions under tokens that were never issued."""
    grants = Grants()

    def attack(number: int) -> None:
        with suppress(SessionClosed):
            grants.check(f"{number:064x}", "report")

    return attack


def pages_of_any_source() -> Attack:
    """Text from outside, each from another place in other letters."""

    def attack(number: int) -> None:
        letters = "".join(chr(0x4E00 + 3 * number + at) for at in range(3))
        assert wrap_untrusted(f"<<< {letters} >>>", kind="web page", source=f"https://x.example/{number}")

    return attack


ATTACKS = [
    tools_nobody_has,
    parameters_nobody_has,
    sessions_of_any_standing,
    tokens_that_do_not_count,
    pages_of_any_source,
]


@pytest.mark.short(2)
@pytest.mark.covers("REL-L67")
@pytest.mark.slow
@pytest.mark.parametrize("make", ATTACKS)
def test_made_up_names_are_forgotten(make: Callable[[], Attack]) -> None:
    """Thousands of names that never came before, and never again."""
    is_flat(make)


def remembers_refusals() -> Attack:
    """Planted: refuses, and keeps the reason by the name."""
    asked, known = dispatcher(), dict[str, object]()

    def attack(number: int) -> None:
        name = f"tool_{number}"
        known[name] = asked.prepare(f"{number}.0", ToolCall(f"c{number}", name, {}))

    return attack


def remembers_tokens() -> Attack:
    """Planted: keeps nothing but what it was asked."""
    seen = set[str]()
    return lambda number: seen.add(f"{number:064x}")


@pytest.mark.covers("REL-L67")
@pytest.mark.slow
@pytest.mark.parametrize("planted", [remembers_refusals, remembers_tokens])
def test_planted_memory_is_found(planted: Callable[[], Attack]) -> None:
    """The least that could be kept of a name is noticed."""
    with pytest.raises(AssertionError):
        is_flat(planted)
