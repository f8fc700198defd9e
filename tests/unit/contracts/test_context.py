"""The context of a call: what the session's rights hold, and nothing that they do not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.handles.ports import Status
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.capabilities import (
    BROWSER,
    CANVAS,
    CAPABILITIES,
    CHANNEL,
    CHILD_WORKSPACES,
    CRON,
    HTTP,
    IMAGES,
    JOBS,
    MCP,
    MEMORY,
    MEMORY_WRITER,
    NODES,
    OBSERVING,
    PREVIEWS,
    READER,
    RUNTIME,
    SESSIONS,
    SHELL,
    SPEECH,
    SUBTREE,
    VISION,
    WEB,
    WRITER,
    Capability,
    list_capabilities,
)
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import CallSignals, SessionRights, ToolContext

SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
ALL: tuple[Capability[Any], ...] = (
    READER,
    MEMORY,
    WEB,
    WRITER,
    SHELL,
    JOBS,
    CHANNEL,
    MEMORY_WRITER,
    SESSIONS,
    SUBTREE,
    HTTP,
    IMAGES,
    VISION,
    SPEECH,
    NODES,
    PREVIEWS,
    BROWSER,
    CHILD_WORKSPACES,
    CANVAS,
    CRON,
    RUNTIME,
    MCP,
)
Require = Callable[[ToolContext, Capability[Any]], Any]
Narrow = Callable[[SessionRights, str, set[str]], SessionRights]
held_names = st.sets(st.sampled_from(CAPABILITIES))


class Handle:
    """Stands for a handle of any kind."""

    def __init__(self, name: str) -> None:
        self.name = name


def context(*held: str, kind: SessionKind = SessionKind.BRANCH, deadline: float = 0.0) -> ToolContext:
    """Return a context that holds these handles alone."""
    handles = cast("dict[str, Any]", {name: Handle(name) for name in held})
    rights = SessionRights(
        "main/b1",
        "writer",
        kind,
        Path("/somewhere"),
        AgentConfig(),
        cast("Status", Handle("status")),
        **handles,
    )
    return ToolContext(rights, "main/b1#1.0", CallSignals(deadline))


def gives_what_it_holds(require: Require, held: set[str]) -> None:
    """Property: P10, every handle held is given, every other is denied with the tier its work has."""
    ctx = context(*held)
    for capability in ALL:
        if capability.name in held:
            assert require(ctx, capability) is getattr(ctx, capability.name)
            continue
        assert getattr(ctx, capability.name) is None
        try:
            require(ctx, capability)
        except PermissionDenied as denied:
            assert denied.tier is capability.tier
            assert denied.reason == f"session 'main/b1' is a branch and holds no {capability.name}"
        else:
            raise AssertionError(f"{capability.name} is given and not held")


@given(held=held_names)
def test_context_gives_what_it_holds_and_denies_the_rest(held: set[str]) -> None:
    """What a session may do is what its context contains."""
    gives_what_it_holds(ToolContext.require, held)


@pytest.mark.parametrize(
    "broken",
    [
        lambda ctx, capability: getattr(ctx, capability.name),
        lambda ctx, capability: ctx.require(WRITER),
        lambda ctx, capability: getattr(ctx, capability.name) or ctx.require(Capability("web", WEB.tier)),
    ],
    ids=["gives-none", "one-for-all", "another-instead"],
)
def test_rights_property_notices_planted_bugs(broken: Require) -> None:
    """The property fails on a context that hands out nothing, too much, or something else."""

    def fails(held: set[str]) -> bool:
        try:
            gives_what_it_holds(broken, held)
        except (AssertionError, PermissionDenied):
            return True
        return False

    assert find(held_names, fails, settings=SEARCH) is not None


def narrows(narrowed: Narrow, held: set[str], declared: set[str]) -> None:
    """Property: a tool holds what its session holds and it declares; each denial says which of them lacks."""
    whole = context(*held)._rights
    ctx = ToolContext(narrowed(whole, "look", declared), "main/b1#1.0", CallSignals(0.0))
    for capability in ALL:
        name = capability.name
        got = getattr(ctx, name)
        assert got is (getattr(whole, name) if name in declared else None)
        if got is not None:
            assert ctx.require(capability) is got
            continue
        with pytest.raises(PermissionDenied) as denied:
            ctx.require(capability)
        assert denied.value.tier is capability.tier
        assert denied.value.reason == (
            f"session 'main/b1' is a branch and holds no {name}"
            if name in declared
            else f"tool 'look' does not declare capability {name!r}; add it to capabilities"
        )
    assert (ctx.session_id, ctx.agent_id, ctx.kind) == (whole.session_id, whole.agent_id, whole.kind)
    assert (ctx.workspace_root, ctx.config, ctx.status) == (whole.workspace_root, whole.config, whole.status)


@given(held=held_names, declared=held_names)
def test_tool_s_rights_are_what_it_declares_of_the_session_s(held: set[str], declared: set[str]) -> None:
    """Seed 004: tools receive only what they need."""
    narrows(SessionRights.narrowed, held, declared)


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        lambda rights, tool, declared: rights,
        lambda rights, tool, declared: rights.narrowed(tool, {*declared, "channel"}),
        lambda rights, tool, declared: rights.narrowed(tool, set(declared) - {"reader"}),
        lambda rights, tool, declared: rights.narrowed("other", declared),
        lambda rights, tool, declared: replace(rights.narrowed(tool, declared), agent_id="default"),
        lambda rights, tool, declared: replace(rights.narrowed(tool, declared), writer=rights.writer),
        lambda rights, tool, declared: replace(rights, tool=tool, declared=frozenset(declared)),
    ],
    ids=["all", "one-more", "one-less", "another-tool", "another-agent", "a-handle", "by-name-alone"],
)
def test_narrowing_property_notices_planted_bugs(broken: Narrow) -> None:
    """The property fails on rights that hold too much, too little, or of somebody else."""

    def fails(sets: tuple[set[str], set[str]]) -> bool:
        try:
            narrows(broken, *sets)
        except (AssertionError, pytest.fail.Exception):
            return True
        return False

    assert find(st.tuples(held_names, held_names), fails, settings=SEARCH)


def test_context_tells_who_calls_and_where() -> None:
    """Identity comes from the rights, the call's id from the call."""
    ctx = context("reader", kind=SessionKind.WORKER)
    assert (ctx.session_id, ctx.agent_id, ctx.kind) == ("main/b1", "writer", SessionKind.WORKER)
    assert (ctx.workspace_root, ctx.call_id) == (Path("/somewhere"), "main/b1#1.0")
    assert ctx.config == AgentConfig()
    assert cast("Handle", ctx.status).name == "status"


@pytest.mark.parametrize("name", ["writer", "session_id", "workspace_root", "cancelled", "new"])
def test_rights_cannot_be_widened_through_a_context(name: str) -> None:
    """A tool can set nothing on the context it is given."""
    with pytest.raises(AttributeError):
        setattr(context(), name, Handle(name))


def test_rights_are_frozen() -> None:
    """Rights are built once per adoption."""
    rights = SessionRights(
        "main", "a", SessionKind.MAIN, Path("/"), AgentConfig(), cast("Status", Handle("status"))
    )
    with pytest.raises(AttributeError):
        rights.writer = None  # type: ignore[misc]


def test_call_counts_as_cancelled_once_its_deadline_passed() -> None:
    """Loops in threads see both a cancel and the deadline."""
    now = time.monotonic()
    assert context(deadline=now - 1).cancelled
    ctx = context(deadline=now + 3_600)
    assert not ctx.cancelled
    assert ctx.deadline == now + 3_600
    signals = CallSignals(now + 3_600)
    signals.cancelled = True
    assert signals.cancelled


def test_cancel_of_a_call_is_seen_by_its_tool() -> None:
    """The signals move while the call runs."""
    signals = CallSignals(time.monotonic() + 3_600)
    rights = SessionRights(
        "main", "a", SessionKind.MAIN, Path("/"), AgentConfig(), cast("Status", Handle("status"))
    )
    ctx = ToolContext(rights, "main#1.0", signals)
    assert not ctx.cancelled
    signals.cancelled = True
    assert ctx.cancelled


@pytest.mark.covers("I24", "S2")
def test_progress_goes_to_whoever_watches() -> None:
    """Without a watcher it goes nowhere, and no tool has to know."""
    seen: list[object] = []
    quiet = context()
    quiet.update({"done": 1})
    signals = CallSignals(0.0, seen.append)
    rights = SessionRights(
        "main", "a", SessionKind.MAIN, Path("/"), AgentConfig(), cast("Status", Handle("status"))
    )
    ToolContext(rights, "main#1.0", signals).update({"done": 2})
    assert seen == [{"done": 2}]


def test_names_of_capabilities_are_those_of_the_rights() -> None:
    """Every capability has a handle in the rights, and no handle is without a name."""
    names = {capability.name for capability in ALL}
    assert names == set(CAPABILITIES)
    optional = {name for name in SessionRights.__dataclass_fields__ if name in names}
    assert optional == names


@pytest.mark.parametrize("kind", list(SessionKind))
def test_kind_decides_what_may_be_held(kind: SessionKind) -> None:
    """A Worker only observes; Main may hold everything, and a Branch everything but timed jobs."""
    may = {
        SessionKind.MAIN: set(CAPABILITIES),
        SessionKind.BRANCH: set(CAPABILITIES) - {"cron"},
        SessionKind.WORKER: OBSERVING,
    }
    assert list_capabilities(kind) == may[kind]


def test_what_observes_changes_nothing() -> None:
    """The handles a Worker may hold are those whose work is ReadOnly, without children and image models."""
    read_only = {each.name for each in ALL if each.tier is PermissionTier.READ_ONLY}
    assert read_only - {"subtree", "vision"} == OBSERVING
