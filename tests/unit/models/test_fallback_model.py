"""Several models in the place of one: who answers, what is asked of them, and what is said when all fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from sessiontree import (
    ConfigError,
    ContextOverflow,
    ModelBusy,
    ModelError,
    ModelRequest,
    ModelUnreachable,
    ScriptedModel,
    SessionKind,
    StreamFunctionModel,
)
from sessiontree.models.fallback_model import FallbackModel
from sessiontree.models.port import ModelPiece, Piece, ToolSpec

UNION: dict[str, Any] = {
    "anyOf": [{"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}}]
}
QUESTION = ModelRequest(
    "main", SessionKind.MAIN, 1, "", [ToolSpec("t", "T.", UNION)], (), None, model="openai:gpt-5"
)


def speaking(name: str, *pieces: Piece | ModelError, asked: Callable[[ModelRequest], Any] = id) -> Any:
    """Return a model that yields pieces, and fails where there is an error among them."""

    async def stream(request: ModelRequest) -> AsyncIterator[Piece]:
        asked(request)
        for piece in pieces:
            if isinstance(piece, ModelError):
                raise piece
            yield piece

    return StreamFunctionModel(stream, name)


async def said(model: FallbackModel) -> list[Piece]:
    """Return all that a model says to the question."""
    return [piece async for piece in model.stream(QUESTION)]


async def test_next_one_answers() -> None:
    """After a failure the next is asked, in its own dialect and under its own name; who answers is said."""
    asked: list[ModelRequest] = []
    model = FallbackModel(
        [
            speaking("openai:gpt-5", ModelBusy("busy"), asked=asked.append),
            speaking("gemini-openapi:x", "hi", asked=asked.append),
        ]
    )
    assert model.name == "openai:gpt-5"
    assert (await said(model))[-2:] == [ModelPiece("gemini-openapi:x"), "hi"]
    assert [each.model for each in asked] == ["openai:gpt-5", "gemini-openapi:x"]
    assert "maxLength" in str(asked[0].tools[0].parameters)
    assert "maxLength" not in str(asked[1].tools[0].parameters)


async def test_who_failed_is_asked_last_for_a_while() -> None:
    """A model that was busy is asked only after the others; one that was wrong keeps its place."""
    asked: list[str] = []
    note = [lambda request, name=name: asked.append(name) for name in ("one", "two")]
    busy = FallbackModel(
        [speaking("one", ModelBusy("busy"), asked=note[0]), speaking("two", "hi", asked=note[1])]
    )
    await said(busy)
    await said(busy)
    assert asked == ["one", "two", "two"]
    asked.clear()
    wrong = FallbackModel(
        [speaking("one", ModelError("no"), asked=note[0]), speaking("two", "hi", asked=note[1])]
    )
    await said(wrong)
    await said(wrong)
    assert asked == ["one", "two", "one", "two"]


class AwaitedModel:
    """A model whose stream must be awaited, and fails before it yields anything."""

    name = "openai:gpt-5"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Fail.

        Raises:
            ModelBusy: always.
        """
        raise ModelBusy("busy")


async def test_stream_that_is_awaited_may_fail() -> None:
    """The next one answers, and the model that failed is asked last for a while."""
    awaited: Any = AwaitedModel()
    model = FallbackModel([awaited, speaking("two", "hi")])
    assert await said(model) == [ModelPiece("two"), "hi"]
    with pytest.raises(ModelBusy, match="busy"):
        await said(FallbackModel([awaited]))


async def test_tool_that_has_no_form_for_one_model_is_no_end() -> None:
    """A model whose dialect can't express a tool is passed over; if all are, the error names the model."""
    question = replace(QUESTION, tools=[ToolSpec("t", "T.", {"$ref": "#/$defs/none"})])
    strange = speaking("gemini-openapi:x", "never")
    model = FallbackModel([strange, speaking("openai:gpt-5", "hi")])
    assert [piece async for piece in model.stream(question)] == [ModelPiece("openai:gpt-5"), "hi"]
    with pytest.raises(ModelError, match="gemini-openapi:x") as caught:
        [piece async for piece in FallbackModel([strange]).stream(question)]
    assert not caught.value.retryable


async def test_half_a_reply_is_not_replaced() -> None:
    """A failure in the middle of a reply is the reply's failure."""
    model = FallbackModel([speaking("one", "half", ModelUnreachable("cut")), speaking("two", "hi")])
    with pytest.raises(ModelUnreachable, match="cut"):
        await said(model)


async def test_all_failures_are_said() -> None:
    """The error names every reason, is retryable if one is, and keeps a type that all share."""
    model = FallbackModel(
        [speaking("one", ModelBusy("busy", retry_after_s=9.0)), speaking("two", ModelError("wrong"))]
    )
    with pytest.raises(ModelError, match="busy; wrong") as caught:
        await said(model)
    assert (type(caught.value), caught.value.retryable, caught.value.retry_after_s) == (ModelError, True, 9.0)
    long = FallbackModel([speaking(name, ContextOverflow("too long")) for name in ("one", "two")])
    with pytest.raises(ContextOverflow) as overflow:
        await said(long)
    assert not overflow.value.retryable


def test_what_can_not_stand_in_a_list_is_refused() -> None:
    """An empty list, and a model that replies at once."""
    with pytest.raises(ConfigError, match="the list is empty"):
        FallbackModel([])
    with pytest.raises(ConfigError, match="does not stream"):
        FallbackModel([ScriptedModel(["x"])])  # type: ignore[list-item]
