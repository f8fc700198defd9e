"""What is scored when a sample's time or budget is over, what its time is, and code that does not end.

The tables "limits", "own limiter" and "neighbours" are here.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from sessiontree import Budget, FunctionModel, Limits, ModelRequest, ProviderModel, script_call
from sessiontree.bench import Attempt, Sample, Score
from sessiontree.bench.run.attempts import own_code
from sessiontree.models.providers.call_limits import CallLimits
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.bench.suite_fixtures import ended, rows, solve, suite

STATUS = "SELECT sample_id, status, passed FROM scores ORDER BY sample_id"
LIMIT_S = 0.4


async def forever() -> None:
    """Wait for nothing."""
    await asyncio.get_running_loop().create_future()


async def write_and_stay(attempt: Attempt[str]) -> str:
    """Reach the aim, and never come back."""
    (attempt.workspace / "answer").write_text("42")
    attempt.state["answer"] = "42"
    await forever()
    return ""


def of_workspace(attempt: Attempt[str]) -> bool:
    """Read the file."""
    return (attempt.workspace / "answer").read_text() == "42"


def of_state(attempt: Attempt[str]) -> bool:
    """Read the state."""
    return bool(attempt.state["answer"] == "42")


@pytest.mark.parametrize(("on_limit", "passed"), [("score", 1), ("zero", 0)])
async def test_what_is_there_at_the_time_limit_is_scored(tmp_path: Path, on_limit: Any, passed: int) -> None:
    """The status says that the time was over; a suite may want 0 instead."""
    late = suite(1, solver=write_and_stay, scorers=[of_workspace, of_state], on_limit=on_limit)
    found = await ended(late, tmp_path / "run", sample_timeout_s=LIMIT_S)
    assert (found.scored, found.passed) == (1, passed)
    assert rows(tmp_path / "run", STATUS) == [("s0", "timeout", passed)]


async def test_last_output_at_the_time_limit_is_scored(tmp_path: Path) -> None:
    """What Main said last, or what the solver had set."""

    async def talk(attempt: Attempt[str]) -> str:
        await attempt.tree.main.send("first")
        await solve(attempt)
        if attempt.sample.id == "s1":
            attempt.output = "its own"
        await forever()
        return ""

    def output(attempt: Attempt[str]) -> Score:
        return Score(1.0, answer=attempt.output)

    await ended(suite(2, solver=talk, scorers=output), tmp_path / "run", sample_timeout_s=LIMIT_S)
    answers = rows(tmp_path / "run", "SELECT scores ->> '$.output.answer' FROM scores ORDER BY sample_id")
    assert answers == [("say 0",), ("its own",)]


async def test_scorer_that_finds_nothing_at_the_limit_gives_0(tmp_path: Path) -> None:
    """It says what it missed; the sample is scored, and its status stays."""

    async def stay(attempt: Attempt[str]) -> str:
        await forever()
        return ""

    found = await ended(
        suite(1, solver=stay, scorers=of_workspace), tmp_path / "run", sample_timeout_s=LIMIT_S
    )
    assert (found.scored, found.passed) == (1, 0)
    ((said,),) = rows(tmp_path / "run", "SELECT scores ->> '$.of_workspace.explanation' FROM scores")
    assert "FileNotFoundError" in said


async def test_what_is_there_is_scored_where_no_tree_was_open_in_time(tmp_path: Path) -> None:
    """The function that gives the tree's arguments did the work, and took too long."""

    async def prepare(attempt: Attempt[str]) -> dict[str, Any]:
        (attempt.workspace / "answer").write_text("42")
        await forever()
        return {}

    late = suite(1, tree=prepare, scorers=of_workspace)
    await ended(late, tmp_path / "run", sample_timeout_s=LIMIT_S)
    assert rows(tmp_path / "run", STATUS) == [("s0", "timeout", 1)]


async def test_what_is_there_when_the_budget_is_spent_is_scored(tmp_path: Path) -> None:
    """A model that did the work first and reads once too often."""

    def reply(request: ModelRequest) -> Any:
        if request.turn == 1:
            return script_call("write", path="answer", content="42")
        return script_call("read", path="answer")

    working = suite(2, model=FunctionModel(reply), scorers=of_workspace, budget=Budget(tool_calls=3))
    found = await ended(working, tmp_path / "run")
    assert (found.scored, found.passed) == (2, 2)
    assert rows(tmp_path / "run", STATUS) == [("s0", "budget", 1), ("s1", "budget", 1)]


@pytest.mark.parametrize("at_once", [1, 4])
async def test_time_in_the_queue_of_a_limiter_is_not_the_samples(tmp_path: Path, at_once: int) -> None:
    """The result is the same with any concurrency, as with inspect's working limit."""

    async def ask_twice(attempt: Attempt[str]) -> str:
        await attempt.tree.main.send("first")
        return await attempt.tree.main.send("second")

    async with FakeProvider([FakeReply("done", first_s=0.15)]) as fake:
        model = ProviderModel(
            "openai:gpt-5", api_key="sk-x", base_url=fake.url("openai"), limits=CallLimits(at_once=1)
        )
        asked = [Sample(f"s{number}", "", "done") for number in range(4)]
        limited = suite(samples=asked, solver=ask_twice, model=model, tree={"builtin_tools": False})
        found = await ended(limited, tmp_path / "run", sample_timeout_s=2.0, concurrency=at_once)
    assert (found.scored, found.passed) == (4, 4)
    assert {status for _, status, _ in rows(tmp_path / "run", STATUS)} == {"completed"}


async def test_time_before_a_retry_is_not_the_samples_unless_the_wall_counts(tmp_path: Path) -> None:
    """A provider asks for a pause that is longer than the sample's time; a limit by the wall ends it."""
    for wall_s, status in ((None, "completed"), (0.3, "timeout")):
        async with FakeProvider(
            [FakeReply("ok"), FakeReply(status=429, retry_after_s=1), FakeReply("x")]
        ) as fake:
            model = ProviderModel("openai:gpt-5", api_key="sk-x", base_url=fake.url("openai"))
            busy = suite(1, model=model, tree={"builtin_tools": False})
            place = tmp_path / status
            await ended(busy, place, sample_timeout_s=0.8, wall_timeout_s=wall_s)
            assert rows(place, "SELECT status FROM scores") == [(status,)]


async def test_neighbours_of_code_that_blocks_are_not_late(tmp_path: Path) -> None:
    """They are tried again by themselves; the one that blocks is late by itself, and alone is scored so."""

    async def block(attempt: Attempt[str]) -> str:
        if attempt.sample.id == "s0":
            threading.Event().wait(1.5)
        await asyncio.sleep(0.5)
        return await solve(attempt)

    found = await ended(suite(3, solver=block), tmp_path / "run", sample_timeout_s=1.0)
    assert (found.scored, found.passed) == (3, 2)
    statuses = {sample: status for sample, status, _ in rows(tmp_path / "run", STATUS)}
    assert statuses == {"s0": "timeout", "s1": "completed", "s2": "completed"}
    kinds = rows(tmp_path / "run", "SELECT DISTINCT failure FROM attempts WHERE outcome = 'error'")
    assert kinds == [("stalled",)]


async def test_plain_functions_may_block(tmp_path: Path) -> None:
    """They run in threads: nobody waits for them, and they ask the tree all the same."""
    running = [0, 0]

    def solver(attempt: Attempt[str]) -> str:
        running[0] += 1
        running[1] = max(running)
        said = attempt.wait(attempt.tree.main.send, attempt.sample.input)
        threading.Event().wait(0.2)
        running[0] -= 1
        return said

    found = await ended(suite(4, solver=solver), tmp_path / "run", concurrency=4)
    assert (found.scored, found.passed) == (4, 4)
    assert running[1] > 1


async def test_thread_of_code_that_returned_serves_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that still runs is left alone, and a thread for which nothing comes ends."""
    monkeypatch.setattr(own_code, "_THREADS", own_code._CodeThreads())
    monkeypatch.setattr(own_code, "IDLE_S", 3600.0)
    let_go = threading.Event()
    stays = asyncio.create_task(own_code.call_own(lambda _: let_go.wait(), None))
    await asyncio.sleep(0)
    threads = {await own_code.call_own(lambda _: threading.current_thread(), None) for _ in range(9)}
    assert len(threads) == 1
    monkeypatch.setattr(own_code, "IDLE_S", 0.0)
    assert await own_code.call_own(lambda _: threading.current_thread(), None) in threads
    (thread,) = threads
    await asyncio.to_thread(thread.join, 60.0)
    assert not thread.is_alive()
    assert await own_code.call_own(lambda given: given, 7) == 7
    let_go.set()
    assert await stays


async def test_late_return_after_the_cancellation_is_late(tmp_path: Path) -> None:
    """A solver that swallows its cancellation and answers: the answer is scored, the status stays."""

    async def swallow(attempt: Attempt[str]) -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            return str(attempt.sample.target)
        return ""

    await ended(suite(1, solver=swallow), tmp_path / "run", sample_timeout_s=LIMIT_S)
    assert rows(tmp_path / "run", "SELECT status FROM scores") == [("timeout",)]


@pytest.mark.parametrize("how", ["coroutine", "thread"])
async def test_solver_that_never_ends_is_given_up(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a grace; the run comes to its end, and so does its event loop."""
    monkeypatch.setattr(own_code, "GRACE_S", 0.2)
    monkeypatch.setattr("sessiontree.bench.run.attempts.attempt.GRACE_S", 0.2)
    may_end = asyncio.Event()

    async def stubborn(attempt: Attempt[str]) -> str:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue
        return ""

    def blocked(attempt: Attempt[str]) -> str:
        attempt.wait(may_end.wait)
        return ""

    solver = stubborn if how == "coroutine" else blocked
    await ended(suite(1, solver=solver), tmp_path / "run", sample_timeout_s=LIMIT_S)
    assert rows(tmp_path / "run", "SELECT status FROM scores") == [("timeout",)]
    may_end.set()


async def test_spent_limit_of_retries_is_the_providers(tmp_path: Path) -> None:
    """Time that passes while nobody answers is never a time-out of the sample."""
    script = [FakeReply("ok"), *[FakeReply(status=500)] * 2, FakeReply("say 0")]
    async with FakeProvider(script) as fake:
        model = ProviderModel("openai:gpt-5", api_key="sk-x", base_url=fake.url("openai"))
        tree: dict[str, Any] = {"builtin_tools": False, "limits": Limits(model_retries=4)}
        found = await ended(suite(1, model=model, tree=tree), tmp_path / "run", sample_timeout_s=0.6)
    assert (found.scored, found.passed) == (1, 1)
