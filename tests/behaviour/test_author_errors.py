"""What an author's own code raised is shown to the author, and never to a model."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

import pytest

from sessiontree import (
    AsyncFunctionModel,
    ExecutionError,
    FunctionModel,
    ModelRequest,
    ScriptedModel,
    SessionFailed,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallResolved, TurnFailed
from sessiontree.contracts.tools import author_errors
from sessiontree.models.answers import Answer
from tests.behaviour.author_bug_fakes import confuse, confuse_later, divide
from tests.behaviour.fact_fixtures import facts_of
from tests.behaviour.tree_fixtures import Opener

PLACE = "author_bug_fakes.py"
LOGGER = "sessiontree"


async def wait_for_log(caplog: pytest.LogCaptureFixture, words: str) -> str:
    """Return the text of the first warning that holds words, as a person reads it."""
    formatter = logging.Formatter()
    async with asyncio.timeout(30):
        while True:
            told = [formatter.format(each) for each in caplog.records if each.levelno >= logging.DEBUG]
            if found := [each for each in told if words in each]:
                return found[0]
            await asyncio.sleep(0)


async def test_bug_in_a_tool_is_shown_to_its_author(
    open_tree: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    """The frames are in the journal and in the program's log; the model reads one line."""
    caplog.set_level(logging.DEBUG, LOGGER)
    seen: list[str] = []

    def answer(request: ModelRequest) -> Answer:
        seen.extend(message.text for message in request.messages)
        return script_call("divide", number=3) if request.turn == 1 else "went on"

    model = (
        FunctionModel(answer)
        if open_tree.backend == "local"
        else ScriptedModel([script_call("divide", number=3), "went on"])
    )
    async with open_tree(model, tools=[divide]) as tree:
        assert await tree.main.send("go") == "went on"
        (resolved,) = await facts_of(tree, CallResolved)
        details = resolved.message.details
        assert isinstance(details, dict)
        frames = details["raised"]
        assert isinstance(frames, list)
        assert [PLACE in str(frame) for frame in frames] == [True, True]
        assert str(frames[-1]).endswith("in halve: return number / 0")
        assert PLACE not in resolved.message.text
        told = await wait_for_log(caplog, "tool 'divide' of session main raised")
        assert "in halve" in told
        assert "dispatcher.py" not in told
        assert "call_outcomes.py" not in told
    assert not [text for text in seen if PLACE in text]


@pytest.mark.on_ray
async def test_failed_call_of_the_program_names_the_line(
    open_tree: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception itself is the cause where it was raised in this process, else its frames are a note."""
    monkeypatch.setattr(author_errors, "_raised", OrderedDict())  # nothing of another test in this process
    async with open_tree(ScriptedModel(["x"]), tools=[divide]) as tree:
        with pytest.raises(ExecutionError, match="divide failed: ZeroDivisionError") as raised:
            await tree.main.call("divide", {"number": 1})
    error = raised.value
    if open_tree.backend == "ray":
        assert "in halve: return number / 0" in "".join(error.__notes__)
    else:
        assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "model", [FunctionModel(confuse), AsyncFunctionModel(confuse_later)], ids=["plain", "async"]
)
async def test_bug_in_a_model_function_is_shown_to_its_author(
    open_tree: Opener, caplog: pytest.LogCaptureFixture, model: FunctionModel | AsyncFunctionModel
) -> None:
    """Its frames are with the failed turn, and in the program's log."""
    caplog.set_level(logging.DEBUG, LOGGER)
    async with open_tree(model) as tree:
        with pytest.raises(SessionFailed, match="KeyError: 'asked'") as raised:
            await tree.main.send("go")
        (failed,) = await facts_of(tree, TurnFailed)
        assert PLACE in failed.raised
        assert failed.raised.splitlines()[-1].endswith('in confuse: return {"known": "an answer"}["asked"]')
        await wait_for_log(caplog, "in confuse")
    if open_tree.backend == "local":
        assert isinstance(raised.value.__cause__, KeyError)
