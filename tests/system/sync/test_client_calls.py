"""Client tools without ``await``: the calls that wait, iteration, answers, refusals."""

from __future__ import annotations

import threading

import pytest
from pydantic import BaseModel

from sessiontree import AnswerTooLate, ClientTool, PermissionTier, ScriptedModel, ValidationError, script_call
from tests.system.sync.tree_fixtures import Opener


class Question(BaseModel):
    """What to ask."""

    text: str


def ask_owner() -> ClientTool:
    """Return a tool that the program runs."""
    return ClientTool(
        "ask_owner", "Ask the user.", Question, tier=PermissionTier.WORKSPACE, result_type=dict[str, str]
    )


def test_calls_are_answered_as_they_come(open_tree: Opener) -> None:
    """A thread serves the calls of a session that another thread waits for; it ends with the tree."""
    model = ScriptedModel(
        [script_call("ask_owner", text="one"), script_call("ask_owner", text="two"), "done"]
    )
    with open_tree(model, tools=[ask_owner()]) as tree:
        served: list[str] = []

        def serve() -> None:
            for waiting in tree.client_calls:
                served.append(waiting.params.text)
                waiting.answer({"said": waiting.params.text})

        serving = threading.Thread(target=serve)
        serving.start()
        assert tree.main.spawn("branch", "go").result().summary == "done"
        tree.finish("enough")
        serving.join(60)
        assert served == ["one", "two"]


def test_answers_are_refused_by_type(open_tree: Opener) -> None:
    """What does not fit leaves the call open; what comes late, or goes nowhere, is reported."""
    with open_tree(
        ScriptedModel([script_call("ask_owner", text="one"), "done"]), tools=[ask_owner()]
    ) as tree:
        branch = tree.main.spawn("branch", "go")
        waiting = next(iter(tree.client_calls))
        assert (waiting.session_id, waiting.tool, waiting.arguments) == (
            "main/b1",
            "ask_owner",
            {"text": "one"},
        )
        with pytest.raises(ValidationError):
            waiting.answer("no mapping")
        assert [each.call_id for each in tree.client_calls.pending()] == [waiting.call_id]
        tree.client_calls.fail(waiting.call_id, "nobody is there")
        assert branch.result().summary == "done"
        with pytest.raises(AnswerTooLate):
            waiting.fail("again")
        with pytest.raises(AnswerTooLate):
            tree.client_calls.answer("made up", {})
