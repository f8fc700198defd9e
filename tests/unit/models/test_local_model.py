"""A real model, small and local, asked as a tree asks it. All tests share one server of this process.

What it says is its own affair: the tests hold what it is asked, how its reply comes, and what is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentConfig, AgentSpec, ModelSettings, Runtime, SessionTree
from sessiontree.contracts.errors import ConfigError, ContextOverflow, ModelUnreachable
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.values.messages import AssistantMessage, TextContent, UserMessage
from sessiontree.models.local.local_model import TALK_TOKENS, LocalModel
from sessiontree.models.port import CallPiece, ModelRequest, Piece, ToolSpec
from sessiontree.models.stream_assembler import StreamAssembler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

ESTABLISHED = "01"
"""As ``/proc/net/tcp`` says it."""
READ = ToolSpec(
    "read",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"enum": ["small", "large"]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def shared() -> LocalModel:
    """What keeps the server running from test to test."""
    return LocalModel()


@pytest.fixture(scope="module", autouse=True)
def _ended_server(shared: LocalModel) -> Any:
    yield
    pid = shared.server.place(shared).pid
    asyncio.run(shared.close())
    assert not is_there(pid)


@pytest.fixture
async def model(shared: LocalModel) -> AsyncIterator[LocalModel]:
    """A model of one test's event loop, on the shared server."""
    shared.server.place(shared)
    model = LocalModel()
    yield model
    await model.close()


def request(
    text: str,
    *,
    tools: tuple[ToolSpec, ...] = (),
    result_schema: dict[str, Any] | None = None,
    tokens: int = 24,
) -> ModelRequest:
    """Return a question whose reply is short, and the same each time."""
    return ModelRequest(
        "main",
        SessionKind.MAIN,
        1,
        "You answer questions briefly.",
        tools,
        [UserMessage((TextContent(text),), 1)],
        result_schema,
        settings=ModelSettings(temperature=0, max_output_tokens=tokens, seed=1),
    )


async def replied(model: LocalModel, question: ModelRequest) -> tuple[AssistantMessage, list[Piece]]:
    """Return a reply, and the pieces it came in; asks again, as a session does, where a connection breaks."""
    assembly, pieces = StreamAssembler(1, lambda event: None), list[Piece]()
    for tries_left in (2, 1, 0):
        try:
            pieces = [piece async for piece in model.stream(question)]
            break
        except ModelUnreachable:
            if not tries_left:
                raise
    for piece in pieces:
        assembly.take(piece)
    return assembly.message(), pieces


def connections_of(model: LocalModel) -> int:
    """Return how many connections to a model's running server there are, of any process."""
    port = f":{int(model.server.place(model).address.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(port) and row[3] == ESTABLISHED for row in rows)


def is_there(pid: int) -> bool:
    """Whether there is such a process, be it only one that nobody has waited for."""
    return Path(f"/proc/{pid}").exists()


async def test_text_comes_in_pieces_with_its_usage_and_end(model: LocalModel) -> None:
    """As a provider's does."""
    message, pieces = await replied(model, request("What is the capital of France?", tokens=100))
    texts = [piece for piece in pieces if isinstance(piece, str) and piece]
    assert len(texts) >= 4
    assert "Paris" in message.text
    assert (message.stop_reason, message.model) == ("stop", "local:smollm2")
    assert (message.usage.input_tokens, message.usage.unpriced_tokens, message.usage.cost_usd) == (26, 0, 0)
    assert 5 < message.usage.output_tokens <= 100


async def test_reply_that_uses_up_its_tokens_says_so(model: LocalModel) -> None:
    """It is cut at the limit that the question set."""
    message, _ = await replied(model, request("Tell me a long story about a cat.", tokens=5))
    assert (message.stop_reason, message.usage.output_tokens) == ("length", 5)


async def test_text_without_a_set_length_ends_and_is_accepted(model: LocalModel) -> None:
    """So small a model goes on and on: where nobody sets a length, its text ends early, and is a reply."""
    question = ModelRequest(**{**fields_of(request("hi there")), "settings": ModelSettings()})
    message, _ = await replied(model, question)
    assert message.stop_reason == "stop"
    assert 0 < message.usage.output_tokens <= TALK_TOKENS
    fails = ModelSettings(max_output_tokens=5, on_length="fail")
    message, _ = await replied(model, ModelRequest(**{**fields_of(question), "settings": fails}))
    assert message.stop_reason == "length"


async def test_result_fits_its_schema_and_a_call_its_tool(model: LocalModel) -> None:
    """Two questions at once: the grammar holds whatever the model would rather say."""
    async with asyncio.TaskGroup() as both:
        question = request("Name a city of France.", result_schema=CITY, tokens=60)
        result = both.create_task(replied(model, question))
        must = ModelSettings(temperature=0, max_output_tokens=60, tool_choice="required")
        calling = request("Read the file notes.txt", tools=(READ,))
        call = both.create_task(replied(model, ModelRequest(**{**fields_of(calling), "settings": must})))
    value = json.loads(result.result()[0].text)
    assert (set(value), value["size"] in {"small", "large"}) == ({"city", "size"}, True)
    message, pieces = call.result()
    (made,) = message.tool_calls
    assert (made.name, set(made.arguments), made.unread) == ("read", {"path"}, None)
    assert [type(piece) for piece in pieces].count(CallPiece) == 1
    assert message.stop_reason == "toolUse"


def fields_of(question: ModelRequest) -> dict[str, Any]:
    """Return a question's fields by their names."""
    return {name: getattr(question, name) for name in type(question).__dataclass_fields__}


async def test_question_that_is_left_leaves_no_connection(model: LocalModel) -> None:
    """The server stops at once: the next question does not wait for the rest of the reply."""
    long = request("Write a long story about a house.", tokens=1_000)
    async with aclosing(model.stream(long)) as pieces:
        async for piece in pieces:
            if piece:
                assert connections_of(model) == 1
                break
    assert connections_of(model) == 0
    message, _ = await asyncio.wait_for(replied(model, request("Say yes.", tokens=2)), 60)
    assert message.usage.output_tokens == 2


async def test_conversation_beyond_the_context_is_its_own_error(model: LocalModel) -> None:
    """It is not worth asking again; the server goes on."""
    with pytest.raises(
        ContextOverflow, match=r"local:smollm2: .*exceeds the available context size"
    ) as found:
        await replied(model, request("The cat sat on the mat. " * 1_000))
    assert not found.value.retryable


async def test_server_killed_in_the_middle_is_an_error_worth_asking_again(
    model: LocalModel, shared: LocalModel
) -> None:
    """And asking again starts another; nothing of the first is left."""
    starts = model.server.starts
    first = model.server.place(model)
    with pytest.raises(ModelUnreachable, match="local:smollm2") as found:
        async for piece in model.stream(request("Write a long story about a house.", tokens=1_000)):
            if piece:
                os.kill(first.pid, signal.SIGKILL)
    assert found.value.retryable
    message, _ = await replied(model, request("Say yes.", tokens=2))
    assert message.usage.output_tokens == 2
    assert model.server.starts == starts + 1
    assert not is_there(first.pid)
    assert model.server.place(shared).key not in repr(model)


AGENT = AgentSpec(
    config=AgentConfig(settings=ModelSettings(temperature=0, max_output_tokens=60, on_length="accept")),
    tools=(),
)


async def asked_by(tree: SessionTree) -> None:
    """Ask for a typed result of a Worker, and for a reply that is streamed to the program."""
    child = await tree.main.spawn("worker", "How many legs has a dog?", result_type=int)
    result = await child.result()
    assert (type(result.output), result.usage.output_tokens > 0) == (int, True)
    assert len([piece async for piece in tree.main.send("Say hello.")]) > 1


async def test_tree_asks_it_by_name(tmp_path: Path) -> None:
    """On the local backend it is asked by the program's own process."""
    (tmp_path / "workspace").mkdir()
    async with SessionTree(
        tmp_path / "workspace",
        model="local:smollm2",
        agents={"default": AGENT},
        backend="local",
        state_dir=tmp_path / "state",
    ) as tree:
        await asked_by(tree)


@pytest.mark.long
async def test_tree_on_ray_asks_it_by_name(tmp_path: Path, ray_runtime: Runtime) -> None:
    """The gateway's process has a server of its own."""
    starts = LocalModel().server.starts
    async with SessionTree(
        tmp_path, model="local:smollm2", agents={"default": AGENT}, runtime=ray_runtime
    ) as tree:
        await asked_by(tree)
    assert LocalModel().server.starts == starts


def test_name_of_no_local_model_is_refused_with_those_there_are() -> None:
    """With the nearest one."""
    with pytest.raises(ConfigError, match=r"model 'local:smolm2': the local models are local:smollm2"):
        LocalModel("local:smolm2")
