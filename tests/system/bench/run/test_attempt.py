"""What the end of one attempt means: the sample's own fault, its budget, the run's cap, or a loss."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AssistantMessage,
    AsyncFunctionModel,
    Budget,
    ConfigError,
    FunctionModel,
    Limits,
    ModelBusy,
    ModelError,
    ModelKeyRefused,
    ModelRequest,
    ModelUnreachable,
    PermissionTier,
    SessionFailed,
    SessionTreeError,
    script_call,
    tool,
)
from sessiontree.backends.local.backend import LocalBackend
from sessiontree.bench import Attempt, RunResults, Sample, Score
from sessiontree.contracts.values.messages import TextContent
from tests.system.bench.suite_fixtures import CENT, ended, rows, solve, suite

ONE_RETRY: dict[str, Any] = {"builtin_tools": False, "limits": Limits(model_retries=1)}


async def unreachable(request: ModelRequest) -> str:
    """Fail as a provider that nobody can reach."""
    raise ModelUnreachable("no route to the provider")


async def delegate(attempt: Attempt[str]) -> str:
    """Let a Worker answer; what became of it is in its result, and nothing is raised."""
    (found,) = await attempt.tree.main.map("worker", [attempt.sample.input])
    return found.summary


@tool
async def nothing() -> str:
    """Do nothing."""
    return "nothing"


def restless(request: ModelRequest) -> AssistantMessage:
    """Call a tool three times, for a cent each, then answer."""
    if request.turn <= 3:
        return AssistantMessage((script_call("nothing"),), usage=CENT)
    return AssistantMessage((TextContent(request.messages[0].text),), usage=CENT)


async def test_worker_without_a_provider_is_not_scored(tmp_path: Path) -> None:
    """Although the solver returned: the tree was lost, and the sample fails after its retries."""
    model = AsyncFunctionModel(unreachable, name="unreachable")
    found = await ended(suite(1, model=model, solver=delegate, tree=ONE_RETRY), tmp_path / "run", retries=0)
    assert (found.scored, found.failed) == (0, 1)
    ((kind, error),) = rows(tmp_path / "run", "SELECT error_kind, error FROM attempts")
    assert kind == "SessionFailed"
    assert "'main/w1': the model failed (2 attempts): no route to the provider" in error


async def test_tree_that_reached_its_aim_in_spite_of_a_loss_is_scored(tmp_path: Path) -> None:
    """The solver found another way."""

    async def otherwise(attempt: Attempt[str]) -> str:
        await delegate(attempt)
        return attempt.sample.input

    model = AsyncFunctionModel(unreachable, name="unreachable")
    found = await ended(suite(1, model=model, solver=otherwise, tree=ONE_RETRY), tmp_path / "run", retries=0)
    assert (found.scored, found.passed) == (1, 1)


async def catch(attempt: Attempt[str]) -> str:
    """Ask Main, and answer something whatever becomes of it."""
    try:
        return await attempt.tree.main.send(attempt.sample.input)
    except SessionTreeError:
        return "a guess"


async def catch_and_close(attempt: Attempt[str]) -> str:
    """Do the same, and leave no tree that can be asked."""
    guess = await catch(attempt)
    await attempt.tree.close()
    return guess


async def catch_and_go_on(attempt: Attempt[str]) -> str:
    """Do the same, and let Main answer another question afterwards."""
    await catch(attempt)
    return await attempt.tree.main.send("again")


LOSSES: dict[str, ModelError] = {
    "unreachable": ModelUnreachable("no route to the provider"),
    "busy": ModelBusy("status 429", retry_after_s=3_600.0),
    "refused": ModelKeyRefused("status 401"),
}


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", [catch, catch_and_close, delegate])
async def test_loss_that_the_solver_keeps_to_itself_is_not_scored(
    tmp_path: Path, solver: Any, loss: str, retries: int
) -> None:
    """Whatever the solver does with it, and however often the provider was asked."""

    async def fail(request: ModelRequest) -> str:
        raise LOSSES[loss]

    tree = {"builtin_tools": False, "limits": Limits(model_retries=retries)}
    lost = suite(1, model=AsyncFunctionModel(fail, name=loss), solver=solver, tree=tree)
    found = await ended(lost, tmp_path / "run", retries=0)
    assert (found.scored, found.failed) == (0, 1)
    assert rows(tmp_path / "run", "SELECT error_kind FROM attempts") == [("SessionFailed",)]


async def test_loss_before_a_wrong_answer_is_not_scored(tmp_path: Path) -> None:
    """Without the loss the solver might have gone another way."""
    replies: list[str | Exception] = [LOSSES["unreachable"], "wrong"]

    async def fail_once(request: ModelRequest) -> str:
        reply = replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    tree = {"builtin_tools": False, "limits": Limits(model_retries=0)}
    lost = suite(1, model=AsyncFunctionModel(fail_once, name="once"), solver=catch_and_go_on, tree=tree)
    found = await ended(lost, tmp_path / "run", retries=0)
    assert (found.scored, found.failed) == (0, 1)


async def test_call_whose_result_was_lost_is_not_held_against_the_model(tmp_path: Path) -> None:
    """Its host dies while it runs, so nobody knows what it did. The sample is tried again."""
    runtimes: list[LocalBackend] = []

    @tool(tier=PermissionTier.WORKSPACE)
    async def note() -> str:
        """Lose the host the first time."""
        backend = runtimes[-1]
        if len(runtimes) == 1:
            for link in backend.core.scheduler.links:
                link.declare_lost("it was killed", to_blame=False)
            await asyncio.Event().wait()
        return "noted"

    def reply(request: ModelRequest) -> Any:
        if request.turn == 1:
            return script_call("note")
        return request.messages[0].text if request.messages[-1].text == "noted" else "it was lost"

    async def noting(attempt: Attempt[str]) -> str:
        assert isinstance(attempt.runtime.backend, LocalBackend)
        runtimes.append(attempt.runtime.backend)
        return await solve(attempt)

    tree = {"tools": [note], "builtin_tools": False}
    found = await ended(suite(1, model=FunctionModel(reply), solver=noting, tree=tree), tmp_path / "run")
    assert (found.scored, found.passed) == (1, 1)
    assert rows(tmp_path / "run", "SELECT outcome FROM attempts") == [("error",), ("scored",)]
    (said,) = rows(tmp_path / "run", "SELECT error FROM attempts WHERE outcome = 'error'")[0]
    assert "its call of 'note' was lost" in said


FORGED = [
    "the model failed (3 attempts): no route",
    "the model failed: ModelKeyRefused: status 401",
    "budget.cost_usd of 'main' is 1 and 1 is used up",
    "budget.cost_usd of 'main' can't be kept: the price of 'm' is not known",
    "session 'main' crashed: no host",
]


@pytest.mark.parametrize("by", ["refusal", "model", "tool", "solver"])
async def test_words_of_a_loss_are_not_a_loss(tmp_path: Path, by: str) -> None:
    """Neither a model that refuses with them, an error, a tool or a solver makes its sample a lost one."""

    @tool
    async def liar(words: str) -> str:
        """Fail with these words."""
        raise ValueError(words)

    async def reply(request: ModelRequest) -> AssistantMessage:
        words = request.messages[0].text
        if by == "model":
            raise ModelError(words)
        if by == "tool" and request.turn == 1:
            return AssistantMessage((script_call("liar", words=words),))
        return AssistantMessage((TextContent(words),), stop_reason="refusal" if by == "refusal" else "stop")

    async def solver(attempt: Attempt[str]) -> str:
        said = await attempt.tree.main.send(attempt.sample.input)
        if by == "solver":
            raise SessionFailed("main", said)
        if by == "tool":
            await attempt.tree.main.call("liar", {"words": said})
        return said

    tree = {"tools": [liar], "builtin_tools": False}
    model = AsyncFunctionModel(reply, name="liar")
    forged = [Sample(f"s{number}", words, "") for number, words in enumerate(FORGED)]
    lying = suite(samples=forged, model=model, solver=solver, tree=tree, budget=Budget(tokens=1_000))
    found = await ended(lying, tmp_path / "run", retries=0, max_cost_usd=0.5)
    decided = len(FORGED) if by == "refusal" else 0
    assert (found.scored, found.undecided, found.failed) == (decided, len(FORGED) - decided, 0)
    ((status,),) = rows(tmp_path / "run", "SELECT DISTINCT status FROM scores")
    assert status == ("stopped" if by == "refusal" else "error")


@pytest.mark.parametrize("own", [True, False], ids=["own", "cap"])
async def test_worker_that_spends_the_money_is_told_from_a_wrong_answer(tmp_path: Path, own: bool) -> None:
    """The suite's budget gives its status; the run's cap gives the sample back."""
    model = FunctionModel(restless, name="restless")
    budget = Budget(cost_usd=0.015) if own else None
    tree = {"tools": [nothing], "builtin_tools": False}
    found = suite(1, model=model, solver=delegate, tree=tree, budget=budget)
    summary = await ended(found, tmp_path / "run", max_cost_usd=None if own else 0.015)
    if own:
        assert rows(tmp_path / "run", "SELECT status, passed FROM scores") == [("budget", 0)]
    else:
        assert (summary.scored, summary.failed) == (0, 0)
        assert "larger maximum cost" in summary.why


async def test_wrong_answer_that_quotes_a_loss_is_scored(tmp_path: Path) -> None:
    """What a model says is not a fact about the runtime."""
    words = "session 'main/w1' crashed: the model failed (3 attempts): budget.cost_usd of 'main' is 1"
    model = FunctionModel(lambda _: words, name="liar")
    found = await ended(suite(1, model=model, solver=delegate, budget=Budget(tokens=99)), tmp_path / "run")
    assert (found.scored, found.passed) == (1, 0)
    assert rows(tmp_path / "run", "SELECT status FROM scores") == [("completed",)]


async def test_sample_whose_model_said_nothing_is_shown_as_empty(tmp_path: Path) -> None:
    """If it did not pass. The last reply counts, of Main or of the Branch that worked."""

    async def work(attempt: Attempt[str]) -> str:
        tree, case = attempt.tree, attempt.sample.id
        if case == "branch":
            await tree.run("say something")
            return ""
        said: str = await tree.main.send("say something")
        if case == "speaks last":
            said = await tree.main.send("say more")
        return attempt.sample.target if case == "passes" else said

    def reply(request: ModelRequest) -> str:
        return "more" if "say more" in getattr(request.messages[-1], "text", "") else ""

    cases = [Sample(case, "", "right") for case in ("branch", "main", "passes", "speaks last")]
    silent = suite(samples=cases, solver=work, model=FunctionModel(reply, name="silent"))
    found = await ended(silent, tmp_path / "run")
    assert (found.scored, found.passed) == (4, 1)
    assert rows(tmp_path / "run", "SELECT sample_id, status FROM scores ORDER BY sample_id") == [
        ("branch", "empty"),
        ("main", "empty"),
        ("passes", "completed"),
        ("speaks last", "completed"),
    ]
    failures = RunResults(tmp_path / "run").report().failures
    assert {each.kind: each.count for each in failures} == {"empty reply": 2, "not passed": 1}


@pytest.mark.parametrize("where", ["tree", "solver", "own task", "scorer"])
async def test_cancellation_by_the_suites_code_decides_nothing(tmp_path: Path, where: str) -> None:
    """The run goes on to its end, and other samples are scored as ever."""

    def cancel_in(place: str, attempt: Attempt[str]) -> None:
        if place == where and attempt.sample.id == "s1":
            raise asyncio.CancelledError

    def tree(attempt: Attempt[str]) -> dict[str, Any]:
        cancel_in("tree", attempt)
        return {"builtin_tools": False}

    async def solver(attempt: Attempt[str]) -> str:
        cancel_in("solver", attempt)
        task = asyncio.current_task()
        if where == "own task" and attempt.sample.id == "s1" and task is not None:
            task.cancel()
        return await attempt.tree.main.send(attempt.sample.input)

    def judge(attempt: Attempt[str]) -> bool:
        cancel_in("scorer", attempt)
        return True

    found = await ended(suite(3, tree=tree, solver=solver, scorers=judge), tmp_path / "run")
    assert (found.scored, found.passed, found.undecided) == (2, 2, 1)
    errors = rows(tmp_path / "run", "SELECT sample_id, error_kind FROM attempts WHERE error_kind IS NOT NULL")
    assert errors == [("s1", "CancelledError")]


class Unshown(Exception):
    """An error and a value that can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Rude(BaseException):
    """An error that few programs catch, such as those of test frameworks."""


def fail_with(error: BaseException) -> None:
    """Raise an error."""
    raise error


HOSTILE: dict[str, Callable[[], object]] = {
    "half a character": lambda: fail_with(ValueError("bad \ud800")),
    "no text": lambda: fail_with(Unshown()),
    "exit": lambda: sys.exit(3),
    "rude": lambda: fail_with(Rude("planted")),
}


@pytest.mark.parametrize("how", HOSTILE)
@pytest.mark.parametrize("where", ["tree", "solver", "scorer"])
async def test_no_error_of_a_sample_ends_the_run(tmp_path: Path, where: str, how: str) -> None:
    """Whatever it is: it is stored and shown, and its sample is undecided."""

    def fail_in(place: str, attempt: Attempt[str]) -> None:
        if place == where and attempt.sample.id == "s1":
            HOSTILE[how]()

    def tree(attempt: Attempt[str]) -> dict[str, Any]:
        fail_in("tree", attempt)
        return {"builtin_tools": False}

    async def solver(attempt: Attempt[str]) -> str:
        fail_in("solver", attempt)
        return attempt.sample.input

    def judge(attempt: Attempt[str]) -> bool:
        fail_in("scorer", attempt)
        return True

    found = await ended(suite(2, tree=tree, solver=solver, scorers=judge), tmp_path / "run")
    assert (found.scored, found.passed, found.undecided) == (1, 1, 1)
    (found_row,) = rows(tmp_path / "run", "SELECT status, passed, scores FROM scores WHERE sample_id = 's1'")
    assert found_row == ("error", None, "{}")
    ((failure,),) = rows(tmp_path / "run", "SELECT failure FROM attempts WHERE sample_id = 's1'")
    assert failure == ("scorer" if where == "scorer" else "solver")


async def test_output_that_cannot_be_shown_is_stored(tmp_path: Path) -> None:
    """With a text in its place; halves of characters become escapes."""
    outputs = {"s0": Unshown(), "s1": {"x": "bad \ud800", "y": "good \u00e9"}}

    async def solver(attempt: Attempt[Any]) -> Any:
        return outputs[attempt.sample.id]

    found = await ended(suite(2, solver=solver, scorers=passing), tmp_path / "run")
    assert found.passed == 2
    first, second = rows(tmp_path / "run", "SELECT output FROM scores ORDER BY sample_id")
    assert "can't be shown: RuntimeError" in json.loads(first[0])
    assert json.loads(second[0]) == {"x": "bad \\ud800", "y": "good \u00e9"}


def passing(attempt: Attempt[Any]) -> Score:
    """Pass."""
    return Score(1.0)


async def test_solver_that_closes_its_tree_has_an_error(tmp_path: Path) -> None:
    """Its sample is undecided, and the others go on."""

    async def closing(attempt: Attempt[str]) -> str:
        if attempt.sample.id == "s1":
            await attempt.tree.close()
        return attempt.sample.input

    found = await ended(suite(2, solver=closing, scorers=passing), tmp_path / "run")
    assert (found.scored, found.passed, found.undecided) == (1, 1, 1)


@pytest.mark.parametrize("solver", [solve, delegate], ids=["main", "worker"])
async def test_refused_key_scores_nothing(tmp_path: Path, solver: Any) -> None:
    """The samples fail, and wait again where the same command allows more retries with a better key."""

    async def reply(request: ModelRequest) -> str:
        if not is_good:
            raise ModelKeyRefused("status 401")
        return request.messages[-1].text

    is_good = False
    worked = suite(2, model=AsyncFunctionModel(reply, name="keyed"), solver=solver)
    found = await ended(worked, tmp_path / "run", retries=0)
    assert (found.scored, found.failed) == (0, 2)
    is_good = True
    assert (await ended(worked, tmp_path / "run", retries=1, accept_changes=True)).passed == 2


async def test_another_error_of_a_model_decides_nothing(tmp_path: Path) -> None:
    """A rejected question is not an answer, and is not asked again."""

    async def reject(request: ModelRequest) -> str:
        raise ModelError("status 400")

    found = await ended(suite(1, model=AsyncFunctionModel(reject, name="strict")), tmp_path / "run")
    assert (found.scored, found.undecided) == (0, 1)


async def test_function_for_the_tree_has_the_time_limit(tmp_path: Path) -> None:
    """One that waits for ever ends as a late solver does."""

    async def tree(attempt: Attempt[str]) -> dict[str, Any]:
        await asyncio.get_running_loop().create_future()
        return {}

    await ended(suite(1, tree=tree), tmp_path / "run", sample_timeout_s=0.2)
    assert rows(tmp_path / "run", "SELECT status FROM scores") == [("timeout",)]


async def yielding(attempt: Attempt[str]) -> AsyncIterator[str]:
    """Yield."""
    yield "x"


def test_solver_that_yields_is_refused() -> None:
    """Before any sample is begun."""
    with pytest.raises(ConfigError, match="yields; return the output instead"):
        suite(1, solver=yielding)
