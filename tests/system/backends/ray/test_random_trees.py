"""Whatever a small tree does, it comes to the same on Ray as in one process."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sessiontree import ApprovalRequest, Rule, Runtime, SessionKind, SessionTree, ToolContext, ToolResult
from tests.behaviour.effect_fakes import TOOLS, Append, Words
from tests.system.backends.ray.plan_strategies import CALLS, ENDS, Plan, Play, Steps
from tests.system.backends.ray.play_fixtures import EffectRunner, Outcome, rule

pytestmark = pytest.mark.slow

EXAMPLES = settings(
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)
"""The same plays every time; nothing is made smaller, since each costs a second."""
Carrying = Callable[[Play], Awaitable[Outcome]]

replies = st.lists(st.sampled_from(CALLS), min_size=1, max_size=3).map(tuple)
mistakes = st.just(("wrong",))
kinds = st.sampled_from([SessionKind.BRANCH, SessionKind.WORKER])


def steps(*, least: int, may_fail: bool) -> st.SearchStrategy[Steps]:
    """Return replies of calls, some of which may be such that three in a row end their session."""
    each = st.one_of(replies, replies, mistakes) if may_fail else replies
    return st.lists(each, min_size=least, max_size=3).map(tuple)


leaves = st.builds(Plan, kinds, steps(least=0, may_fail=True), end=st.sampled_from(ENDS), typed=st.booleans())
families = st.builds(
    lambda done, children, typed: Plan(
        SessionKind.BRANCH, done, tuple(children), "number" if typed else "word", typed
    ),
    steps(least=0, may_fail=False),
    st.lists(leaves, min_size=1, max_size=2),
    st.booleans(),
)
children = st.one_of(leaves, families)
plays = st.builds(
    Play,
    st.builds(
        lambda done, born: Plan(SessionKind.MAIN, done, tuple(born)),
        steps(least=1, may_fail=False),
        st.lists(children, min_size=1, max_size=3),
    ),
    st.lists(st.tuples(children, st.booleans()), min_size=1, max_size=3).map(tuple),
    st.lists(st.sampled_from(CALLS), max_size=3).map(tuple),
    st.booleans(),
)


def comes_to_the_same(play: Play, one: Carrying, other: Carrying) -> Outcome:
    """The property: the outcome of a play does not depend on what carries it out."""

    async def both() -> list[Outcome]:
        carried = [asyncio.ensure_future(carrying(play)) for carrying in (one, other)]
        await asyncio.wait(carried)  # at the same time: they mostly wait for the disk
        return [each.result() for each in carried]

    expected, found = asyncio.run(both())
    assert found == expected
    return found


def on(runtime: Runtime, carrier: type[EffectRunner], place: Path) -> Carrying:
    """Return what carries plays out on a runtime, each in an empty workspace."""

    async def carry(play: Play) -> Outcome:
        return await carrier(runtime, Path(tempfile.mkdtemp(dir=place))).carry_out(play)

    return carry


def in_one_process(carrier: type[EffectRunner], place: Path) -> Carrying:
    """Return what carries plays out on a local runtime of their own."""

    async def carry(play: Play) -> Outcome:
        folder = Path(tempfile.mkdtemp(dir=place))
        workspace = folder / "workspace"
        workspace.mkdir()
        async with Runtime(folder / "state", backend="local") as runtime:
            return await carrier(runtime, workspace).carry_out(play)

    return carry


@pytest.mark.parametrize("number", [4, pytest.param(10, marks=pytest.mark.long)])
def test_random_trees_come_to_the_same_on_ray(ray_runtime: Runtime, tmp_path: Path, number: int) -> None:
    """Receipts, results, replies, effects, what models learned and people heard."""
    local, remote = in_one_process(EffectRunner, tmp_path), on(ray_runtime, EffectRunner, tmp_path)
    seen: Counter[str] = Counter()

    @settings(EXAMPLES, max_examples=number)
    @given(play=plays)
    def check(play: Play) -> None:
        outcome = comes_to_the_same(play, local, remote)
        seen.update(f"{line[1]} {line[2]}" for line in outcome.receipt)
        seen.update(text for texts in outcome.told.values() for text in texts)
        seen.update(outcome.said.keys(), effects=outcome.effects.total())

    check()
    assert {"branch completed", "branch failed", "branch cancelled"} <= seen.keys()
    assert {"worker completed", "worker failed"} <= seen.keys()
    assert seen["effects"] > 2 * number
    words = " ".join(seen)
    assert all(word in words for word in ("denied by rule", "denied by person", "sent", "is not there"))


class Twice(Append):
    """Has its effect twice."""

    async def execute(self, params: Words, ctx: ToolContext) -> ToolResult:
        await super().execute(params, ctx)
        return await super().execute(params, ctx)


class DoesTwice(EffectRunner):
    """Repeats an effect."""

    tools = (Twice(), *TOOLS[1:], *EffectRunner.tools[len(TOOLS) :])


class ForgetsRules(EffectRunner):
    """Asks the person what a rule should answer."""

    rules: tuple[Rule, ...] = ()


class ForgetsStrictness(EffectRunner):
    """Has Main answer what should be answered below."""

    strict: tuple[Rule, ...] = (rule("allowed", "approve"),)


class SaysYes(EffectRunner):
    """Takes a no for a yes."""

    def decide(self, tree: SessionTree, request: ApprovalRequest) -> bool | None:
        return None if super().decide(tree, request) is None else True


class NeverCancels(EffectRunner):
    """Refuses what should have been cancelled."""

    def decide(self, tree: SessionTree, request: ApprovalRequest) -> bool | None:
        return str(request.arguments["text"]).startswith("asked ")


class SaysTwice(EffectRunner):
    """Delivers a message twice."""

    def listen(self, text: str) -> None:
        super().listen(text)
        super().listen(text)


class Untyped(EffectRunner):
    """Takes any final message for a result."""

    result_type: Any = None


@pytest.mark.parametrize(
    "planted",
    [DoesTwice, ForgetsRules, ForgetsStrictness, SaysYes, NeverCancels, SaysTwice, Untyped],
)
@pytest.mark.long
def test_planted_bug_is_seen(planted: type[EffectRunner], tmp_path: Path) -> None:
    """Whatever a backend might do otherwise makes a difference in one of the plays that are tried."""
    one, other = in_one_process(EffectRunner, tmp_path), in_one_process(planted, tmp_path)

    @settings(EXAMPLES, max_examples=40)
    @given(play=plays)
    def check(play: Play) -> None:
        comes_to_the_same(play, one, other)

    with pytest.raises(AssertionError):
        check()


@pytest.mark.long
def test_one_process_agrees_with_itself(tmp_path: Path) -> None:
    """What comes of a play is decided by the play: no order of events between sessions shows in it."""
    one = in_one_process(EffectRunner, tmp_path)

    @settings(EXAMPLES, max_examples=40)
    @given(play=plays)
    def check(play: Play) -> None:
        comes_to_the_same(play, one, one)

    check()
