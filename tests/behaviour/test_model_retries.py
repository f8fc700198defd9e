"""A model call that fails or hangs: asked again where that may help, waited for no longer than allowed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sessiontree import (
    AsyncFunctionModel,
    FunctionModel,
    Limits,
    ModelError,
    ModelRequest,
    ModelSettings,
    SessionFailed,
    SessionStatus,
)
from sessiontree.contracts.facts.session_facts import (
    TurnCut,
    TurnFailed,
    TurnReplied,
    TurnRetried,
    TurnStarted,
)
from sessiontree.journal.record import read_kind
from sessiontree.models.answers import Answer
from sessiontree.models.port import Model
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, records, until
from tests.behaviour.tree_fixtures import Opener
from tests.system.house.error_fixtures import has_cause


class Flaky:
    """Fails at the first calls of each turn, then answers."""

    def __init__(self, failures: int, *, after_s: float | None = None) -> None:
        self.failures = failures
        self.after_s = after_s
        self.asked: dict[tuple[str, int], int] = {}

    def __call__(self, request: ModelRequest) -> Answer:
        """Answer at once."""
        place = (request.session_id, request.turn)
        self.asked[place] = self.asked.get(place, 0) + 1
        if self.asked[place] <= self.failures and "well" not in request.messages[-1].text:
            raise ModelError("the provider is busy", True, self.after_s)
        return f"heard {request.messages[-1].text}"

    async def later(self, request: ModelRequest) -> Answer:
        """Answer by way of the gateway."""
        return self(request)


def model_of(flaky: Flaky, *, waits: bool) -> Model:
    """Return a model of either sort."""
    return AsyncFunctionModel(flaky.later) if waits else FunctionModel(flaky)


both = pytest.mark.parametrize("waits", [False, True])


@both
async def test_failed_model_call_is_made_again(open_tree: Opener, waits: bool) -> None:
    """Each failure, its retry and when are facts; the turn is the same one, and one reply counts."""
    async with open_tree(model_of(Flaky(2), waits=waits)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send("go") == "heard go"
        failed = await facts_of(tree, TurnFailed)
        assert [fact.turn for fact in failed] == [1, 1]
        assert None not in [fact.retry_at_ms for fact in failed]
        assert await facts_of(tree, TurnRetried) == [TurnRetried(1), TurnRetried(1)]
        assert len(await facts_of(tree, TurnReplied)) == len(await facts_of(tree, TurnStarted)) == 1
        assert tree.main.status().usage.turns == 1


@both
async def test_model_that_goes_on_failing_fails_the_run(open_tree: Opener, waits: bool) -> None:
    """After the tree's number of retries; with none it fails at once, and hears the next message."""
    async with open_tree(model_of(Flaky(9), waits=waits), limits=Limits(model_retries=1)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(SessionFailed, match=r"the model failed \(2 attempts\): the provider is busy"):
                await tree.main.send("go")
            (result,) = await tree.main.map("worker", ["go"])
            assert result.status is SessionStatus.FAILED
            assert await tree.main.send("well?") == "heard well?"
    async with open_tree(model_of(Flaky(1), waits=waits), limits=Limits(model_retries=0)) as tree:
        with pytest.raises(SessionFailed, match="the model failed: the provider is busy"):
            await tree.main.send("go")
        assert [fact.retry_at_ms for fact in await facts_of(tree, TurnFailed)] == [None]


async def test_time_that_a_provider_asks_for_is_kept(open_tree: Opener) -> None:
    """Less than that is not waited; one that asks for an hour is not waited for."""
    async with open_tree(AsyncFunctionModel(Flaky(1, after_s=1.0).later)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            await tree.main.send("go")
        (failed,) = await facts_of(tree, TurnFailed)
        assert failed.retry_at_ms is not None
        times = {read_kind(each.text): each.at_ms for each in await records(tree, "main")}
        assert times["turn_failed"] + 1000 <= failed.retry_at_ms <= times["turn_retried"]
    async with open_tree(AsyncFunctionModel(Flaky(1, after_s=3600.0).later)) as tree:
        with pytest.raises(SessionFailed, match="the provider is busy"):
            await tree.main.send("go")


@both
async def test_wait_for_a_retry_ends_with_an_interrupt_or_a_steering_message(
    open_tree: Opener, waits: bool
) -> None:
    """Nobody waits for the provider then; the turn that was to be retried is cut."""
    async with open_tree(model_of(Flaky(1, after_s=200.0), waits=waits)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            waiting = tree.main.send("go")
            await until(tree, TurnFailed)
            await tree.main.interrupt("enough")
            with pytest.raises(SessionFailed, check=has_cause("interrupted")):
                await waiting
            first = tree.main.send("on")
            await until(tree, TurnFailed, count=2)
            steered = tree.main.send("well, stop that", "steer")
            assert await first == await steered == "heard well, stop that"
        assert [fact.turn for fact in await facts_of(tree, TurnCut)] == [1, 2]
        assert await facts_of(tree, TurnRetried) == []


@pytest.mark.own_runtime
async def test_retry_survives_the_end_of_the_program(open_tree: Opener) -> None:
    """The bell is set again when the tree is resumed."""
    async with open_tree(AsyncFunctionModel(Flaky(1, after_s=2.0).later)) as tree:
        tree.main.send("go")
        await until(tree, TurnFailed)
    async with await open_tree.resume(tree.tree_id, AsyncFunctionModel(Flaky(0).later)) as again:
        await until(again, TurnReplied)
        assert await facts_of(again, TurnRetried) == [TurnRetried(1)]


async def hang(request: ModelRequest) -> Answer:
    """Never answer, unless all is well."""
    if "well" not in request.messages[-1].text:
        await asyncio.get_running_loop().create_future()
    return f"heard {request.messages[-1].text}"


async def test_hung_model_call_ends_after_its_time(open_tree: Opener) -> None:
    """The tree's limit, or what a message allows; it is tried again like any failure, and Main goes on."""
    limits = Limits(model_timeout_s=0.3, model_retries=1)
    async with open_tree(AsyncFunctionModel(hang), limits=limits) as tree:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(SessionFailed, match=r"\(2 attempts\): no reply within 0.3 s"):
                await tree.main.send("go")
            with pytest.raises(SessionFailed, match=r"no reply within 0.1 s"):
                await tree.main.send("go", settings=ModelSettings(deadline_s=0.1))
            with pytest.raises(SessionFailed, match=r"no reply within 0.3 s"):
                await tree.main.send("go", settings=ModelSettings(deadline_s=50))
            heard = ""
            while not heard:
                with contextlib.suppress(SessionFailed):  # the machine was so busy that its time was over
                    heard = await tree.main.send("well?")
            assert heard == "heard well?"
