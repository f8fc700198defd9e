"""A conversation that outgrows its model's context goes on with a summary of its older part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sessiontree import (
    AgentSpec,
    AssistantMessage,
    AsyncFunctionModel,
    ContextOverflow,
    FunctionModel,
    Limits,
    ModelError,
    ModelRequest,
    PermissionTier,
    SessionFailed,
    SessionStatus,
    ToolCall,
    Usage,
    tool,
)
from sessiontree.contracts.facts.session_facts import (
    CompactionBegun,
    CompactionFailed,
    ContextCompacted,
    ContextFilled,
    MessagesShortened,
    Opened,
    RunFinished,
    TurnFailed,
    TurnRetried,
)
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage, UserMessage
from sessiontree.models.answers import Answer
from sessiontree.models.port import Model
from tests.behaviour.fact_fixtures import PATIENCE_S, facts_of, until
from tests.behaviour.tree_fixtures import Opener
from tests.system.house.error_fixtures import has_cause

LONG = "x" * 3_000
ROOM = 20_000
"""Characters that a narrow model takes."""


def chars(request: ModelRequest) -> int:
    """Return the length of a request's messages."""
    return sum(len(message.text) for message in request.messages if not isinstance(message, AssistantMessage))


def said_so_far(request: ModelRequest) -> Answer:
    """Return a summary that costs something."""
    return AssistantMessage(
        (TextContent(f"so far: {len(request.messages)} messages"),), usage=Usage(50, 7, 0.5)
    )


class Narrow:
    """Takes so many characters; answers with the first word of the newest message, and reports its usage."""

    def __init__(self, room: int = ROOM, summary: Callable[[ModelRequest], Answer] | None = None) -> None:
        self.room = room
        self.summary = summary or said_so_far

    def __call__(self, request: ModelRequest) -> Answer:
        """Answer at once."""
        size = chars(request)
        if size > self.room:
            raise ContextOverflow(f"{size} characters > {self.room} maximum")
        if request.summarises:
            return self.summary(request)
        words = f"heard {request.messages[-1].text.split()[0]}"
        return AssistantMessage((TextContent(words),), usage=Usage(size // 4, 5, 0.01))

    async def later(self, request: ModelRequest) -> Answer:
        """Answer by way of the gateway."""
        return self(request)


def model_of(narrow: Narrow, *, waits: bool, context_tokens: int | None = None) -> Model:
    """Return a model of either sort."""
    if waits:
        return AsyncFunctionModel(narrow.later, context_tokens=context_tokens)
    return FunctionModel(narrow, context_tokens=context_tokens)


both = pytest.mark.parametrize("waits", [False, True])


@pytest.mark.covers("REL-S44")
@both
async def test_overflow_leads_to_a_summary_and_the_session_goes_on(open_tree: Opener, waits: bool) -> None:
    """Every message is answered; the history is whole and shows the summary; its usage is charged."""
    async with open_tree(model_of(Narrow(), waits=waits)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            for number in range(9):
                assert await tree.main.send(f"m{number} {LONG}") == f"heard m{number}"
        (compacted,) = await facts_of(tree, ContextCompacted)
        (failed,) = await facts_of(tree, TurnFailed)
        assert failed.overflow
        assert "maximum" in failed.reason
        said = [each.text.split()[0] for each in tree.main.history() if isinstance(each, UserMessage)]
        assert [each for each in said if each != "Summary"] == [f"m{number}" for number in range(9)]
        assert tree.main.history().count(compacted.summary) == 1
        replies = [each.usage for each in tree.main.history() if isinstance(each, AssistantMessage)]
        assert tree.main.status().usage.turns == len(replies) + 1 == 10
        tokens = sum(each.output_tokens for each in (*replies, compacted.usage))
        assert tree.usage().output_tokens == tokens == 9 * 5 + 7


@both
@pytest.mark.on_ray
async def test_context_that_is_nearly_used_up_is_compacted_before_it_overflows(
    open_tree: Opener, waits: bool
) -> None:
    """At 85 % of the agent's context_tokens; the model never sees a question that is too long."""
    model = model_of(Narrow(), waits=waits, context_tokens=ROOM // 4)
    async with open_tree(model) as tree:
        async with asyncio.timeout(PATIENCE_S):
            for number in range(9):
                assert await tree.main.send(f"m{number} {LONG}") == f"heard m{number}"
        (filled,) = await facts_of(tree, ContextFilled)
        assert 0.85 * filled.context_tokens <= filled.input_tokens < filled.context_tokens == ROOM // 4
        assert await facts_of(tree, TurnFailed) == []
        assert len(await facts_of(tree, ContextCompacted)) == 1


@both
async def test_message_longer_than_the_context_is_shown_cut(open_tree: Opener, waits: bool) -> None:
    """The model sees its beginning and its length; the history has all of it; what comes next is answered."""
    async with open_tree(model_of(Narrow(), waits=waits)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            assert await tree.main.send(f"huge {LONG * 40}") == "heard huge"
            (result,) = await tree.main.map("worker", [f"huge {LONG * 8}"])
            assert result.status is SessionStatus.COMPLETED
            assert await tree.main.send("and now?") == "heard and"
        assert await facts_of(tree, MessagesShortened)
        assert tree.main.history()[0].text == f"huge {LONG * 40}"


@both
async def test_context_without_room_for_anything_fails_typed_with_numbers(
    open_tree: Opener, waits: bool
) -> None:
    """The error says what does not fit and what to do; a parent hears of it."""
    async with open_tree(model_of(Narrow(room=100), waits=waits)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(
                SessionFailed, check=has_cause("too_long"), match=r"\d+ characters > 100 maximum"
            ) as failed:
                await tree.main.send(f"huge {LONG * 8}")
            assert isinstance(failed.value, SessionFailed)
            assert "Use a model with a larger context" in failed.value.reason
            (result,) = await tree.main.map("worker", [f"huge {LONG * 8}"])
            assert result.status is SessionStatus.FAILED
            assert "does not fit the model's context" in result.summary
        assert await facts_of(tree, CompactionBegun) == []


@tool(tier=PermissionTier.READ_ONLY)
def long_text(number: int) -> str:
    """Return a text that takes half of the context."""
    return f"text {number} {LONG * 3}"


class Reading(Narrow):
    """Calls a tool several times at once, and then replies with how much of it came."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls = calls

    def __call__(self, request: ModelRequest) -> Answer:
        """Answer at once."""
        size = chars(request)
        if size > self.room:
            raise ContextOverflow(f"{size} characters > {self.room} maximum")
        used = Usage(size // 4, 5)
        if request.messages[-1].text.startswith("read"):
            calls = tuple(ToolCall(f"c{n}", "long_text", {"number": n}) for n in range(self.calls))
            return AssistantMessage(calls, "toolUse", used)
        results = [each for each in request.messages if isinstance(each, ToolResultMessage)]
        cut = sum("cut:" in each.text for each in results)
        return AssistantMessage((TextContent(f"{len(results)} results, {cut} cut"),), usage=used)


@pytest.mark.short(2)
@both
@pytest.mark.parametrize("knows", [False, True])
async def test_parallel_results_share_the_room_that_is_left(
    open_tree: Opener, waits: bool, knows: bool
) -> None:
    """However many; with a known context no question is too long. The session goes on."""
    for calls in (2, 6, 12):
        model = model_of(Reading(calls), waits=waits, context_tokens=ROOM // 4 if knows else None)
        async with open_tree(model, tools=[long_text]) as tree:
            async with asyncio.timeout(PATIENCE_S):
                said = await tree.main.send("read")
                assert said == f"{calls} results, {calls if calls > 2 or knows else 0} cut"
                assert (await tree.main.send("are you there?")).startswith(str(calls))
            assert not (knows and await facts_of(tree, TurnFailed))


@pytest.mark.short(2)
@pytest.mark.parametrize("summary", ["", "cut", "long", "raise"])
async def test_summary_that_can_not_be_used_is_asked_for_a_few_times(open_tree: Opener, summary: str) -> None:
    """Empty, or no shorter than what it replaces: messages are cut in the end; a cut one is used."""

    def write(request: ModelRequest) -> Answer:
        if summary == "raise":
            raise ContextOverflow("even the question for a summary is too long")
        if summary == "cut":
            return AssistantMessage((TextContent("so far"),), "length", Usage(100, 7))
        return summary

    async with open_tree(FunctionModel(Narrow(summary=write))) as tree:
        async with asyncio.timeout(PATIENCE_S):
            for number in range(6):
                await tree.main.send(f"m{number} {LONG}")
            if summary in {"cut", "long"}:
                assert await tree.main.send(f"m6 {LONG}") == "heard m6"
                (compacted,) = await facts_of(tree, ContextCompacted)
                assert ("tokens were used up" in compacted.summary.text) == (summary == "cut")
                return
            assert await tree.main.send(f"m6 {LONG}") == "heard m6"
        assert 2 <= len(await facts_of(tree, CompactionFailed)) <= 4
        assert len(await facts_of(tree, MessagesShortened)) == 1


def grown(request: ModelRequest) -> Answer:
    """Reply twice with no JSON; then the context is too long, until there is a summary."""
    if request.summarises:
        if request.result_schema is not None or request.settings.tool_choice != "none":
            raise ModelError("a summary fits no schema, and calls no tool")
        return "so far so good"
    if any(message.text.startswith("Summary") for message in request.messages):
        return '{"n": 3}'
    if request.turn == 3:
        raise ContextOverflow("too long")
    return f"no JSON {LONG}"


@both
async def test_typed_result_is_not_asked_of_the_summary(open_tree: Opener, waits: bool) -> None:
    """A child with a result type compacts, and still replies with a value that fits it."""

    async def later(request: ModelRequest) -> Answer:
        return grown(request)

    async with open_tree(AsyncFunctionModel(later) if waits else FunctionModel(grown)) as tree:
        async with asyncio.timeout(PATIENCE_S):
            (result,) = await tree.main.map("worker", ["count"], result_type=dict[str, int])
        assert result.output == {"n": 3}
        assert len(await facts_of(tree, ContextCompacted)) == 1


@pytest.mark.own_runtime
async def test_compaction_survives_the_end_of_the_program(open_tree: Opener) -> None:
    """A tree that is closed while a summary is written asks for it again when it is resumed."""

    async def hangs(request: ModelRequest) -> Answer:
        if request.summarises:
            await asyncio.Event().wait()
        if chars(request) > ROOM:
            raise ContextOverflow("too long")
        return "heard"

    async with open_tree(AsyncFunctionModel(hangs)) as tree:
        for number in range(6):
            await tree.main.send(f"m{number} {LONG}")
        tree.main.send(f"m6 {LONG}")
        await until(tree, CompactionBegun)
    async with await open_tree.resume(tree.tree_id, AsyncFunctionModel(Narrow().later)) as again:
        await until(again, ContextCompacted)
        await until(again, RunFinished, count=7)
        assert len(await facts_of(again, CompactionBegun)) == 1
        assert again.main.history()[-1].text == "heard m6"


CHEAP = "cheap:1"


def writer_of(summary: Callable[[ModelRequest], Answer], *, waits: bool) -> Model:
    """Return a compaction model of either sort; it refuses anything but the question for a summary."""

    def write(request: ModelRequest) -> Answer:
        assert request.summarises, "only summaries are asked of it"
        assert request.model == CHEAP
        return summary(request)

    async def later(request: ModelRequest) -> Answer:
        return write(request)

    return AsyncFunctionModel(later, CHEAP) if waits else FunctionModel(write, CHEAP)


def never(request: ModelRequest) -> Answer:
    """Refuse to write a summary."""
    raise ModelError("the session's model writes no summary here")


SUMMARISED = {"default": AgentSpec(compaction_model="cheap")}


@pytest.mark.short(2)
@pytest.mark.parametrize(
    ("waits", "cheap_waits"), [(False, False), (False, True), (True, False), (True, True)]
)
async def test_compaction_model_writes_the_summary(open_tree: Opener, waits: bool, cheap_waits: bool) -> None:
    """Journal and status name it; it is charged as it reports; the session's model answers all turns."""
    model = model_of(Narrow(summary=never), waits=waits)
    models = {"cheap": writer_of(said_so_far, waits=cheap_waits)}
    async with open_tree(model, models=models, agents=SUMMARISED) as tree:
        async with asyncio.timeout(PATIENCE_S):
            for number in range(9):
                assert await tree.main.send(f"m{number} {LONG}") == f"heard m{number}"
        (opened,) = await facts_of(tree, Opened)
        assert opened.compaction_model == tree.main.status().compaction_model == CHEAP
        assert tree.main.status().model == opened.model != CHEAP
        (begun,) = await facts_of(tree, CompactionBegun)
        (compacted,) = await facts_of(tree, ContextCompacted)
        assert begun.model == compacted.model == CHEAP
        assert tree.main.history().count(compacted.summary) == 1
        assert tree.usage().output_tokens == 9 * 5 + 7
        assert tree.usage().cost_usd == pytest.approx(9 * 0.01 + 0.5)


def _raises(error: Exception) -> Callable[[ModelRequest], Answer]:
    def write(request: ModelRequest) -> Answer:
        raise error

    return write


@pytest.mark.short(3)
@both
@pytest.mark.parametrize(
    ("summary", "reason"),
    [
        (_raises(ModelError("no such model")), "no such model"),
        (_raises(ContextOverflow("the cheap one is small")), "the cheap one is small"),
        (lambda request: "", "the summary is empty"),
        (lambda request: LONG * 9, ""),
    ],
    ids=["raises", "overflows", "empty", "long"],
)
async def test_compaction_model_that_fails_is_replaced_by_the_session_s(
    open_tree: Opener, waits: bool, summary: Callable[[ModelRequest], Answer], reason: str
) -> None:
    """For this summary only; the journal says why and who wrote it. A long one is cut, not refused."""
    models = {"cheap": writer_of(summary, waits=not waits)}
    model = model_of(Narrow(), waits=waits, context_tokens=ROOM // 4)
    async with open_tree(model, models=models, agents=SUMMARISED) as tree:
        async with asyncio.timeout(PATIENCE_S):
            for number in range(15):
                assert await tree.main.send(f"m{number} {LONG}") == f"heard m{number}"
        asked = [begun.model for begun in await facts_of(tree, CompactionBegun)]
        failed = await facts_of(tree, CompactionFailed)
        written = await facts_of(tree, ContextCompacted)
        assert len(written) >= 2
        if not reason:
            assert {each.model for each in written} == {CHEAP}
            assert failed == []
            return
        assert {each.model for each in written} == {""}
        assert asked == [CHEAP, ""] * len(written)
        assert {(each.model, each.reason, each.summary_limit) for each in failed} == {(CHEAP, reason, None)}


@both
async def test_compaction_model_that_is_busy_is_asked_again_first(open_tree: Opener, waits: bool) -> None:
    """A failure that may pass is retried, as any model's is; then the session's model is asked."""

    def busy(request: ModelRequest) -> Answer:
        raise ModelError("busy", retryable=True)

    models = {"cheap": writer_of(busy, waits=True)}
    limits = Limits(model_retries=1)
    model = model_of(Narrow(), waits=waits)
    async with open_tree(model, models=models, agents=SUMMARISED, limits=limits) as tree:
        async with asyncio.timeout(PATIENCE_S):
            for number in range(7):
                assert await tree.main.send(f"m{number} {LONG}") == f"heard m{number}"
        (failed,) = await facts_of(tree, CompactionFailed)
        assert (failed.model, failed.reason) == (CHEAP, "busy")
        assert len(await facts_of(tree, TurnRetried)) == 1
        (written,) = await facts_of(tree, ContextCompacted)
        assert written.model == ""
