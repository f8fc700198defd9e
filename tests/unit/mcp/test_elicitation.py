"""What servers ask: forms as questions, answers as typed values, addresses shown and never opened."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import ExecutionError
from sessiontree.contracts.handles.mcp import ServerInput
from sessiontree.contracts.recorded.questions import QuestionAnswer, QuestionsAsked, check_answers
from sessiontree.mcp.elicitation import Elicitation


def form(**members: dict[str, Any]) -> dict[str, Any]:
    """Return a request with a form."""
    schema = {"type": "object", "properties": members, "required": list(members)[:1]}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Say how.", "requestedSchema": schema},
    }


def begun(*requests: dict[str, Any]) -> Elicitation:
    """Return what a server wants, by numbered keys."""
    return Elicitation.begin("one", ServerInput({str(n): each for n, each in enumerate(requests)}, "state"))


def answered(asked: Elicitation, *answers: QuestionAnswer) -> Elicitation:
    """Return it with answers that passed the check of every surface, and went through the journal."""
    questions = QuestionsAsked(questions=tuple(asked.questions())).questions
    taken = check_answers("q", questions, answers)
    return Elicitation.from_state(asked.to_state()).take(taken)


def text(said: str) -> QuestionAnswer:
    """Return an answer of text."""
    return QuestionAnswer(text=said)


def chosen(*labels: str) -> QuestionAnswer:
    """Return an answer of labels."""
    return QuestionAnswer(labels)


def test_form_of_five_members_takes_two_rounds_of_questions() -> None:
    """Values have the types that the schema wants; an optional member may be left out."""
    asked = begun(
        form(
            name={"type": "string"},
            age={"type": "integer"},
            colour={"type": "string", "enum": ["red", "blue"]},
            sure={"type": "boolean"},
            many={"type": "array", "items": {"type": "string", "enum": ["a", "b", "c", "d", "e"]}},
        )
    )
    assert len(asked.questions()) == 3
    asked = answered(asked, text("Ada"), text("36"), chosen("blue"))
    assert not asked.is_complete
    asked = answered(asked, chosen("Leave it out"), text("a, c"))
    assert asked.is_complete
    content = {"name": "Ada", "age": 36, "colour": "blue", "many": ["a", "c"]}
    assert asked.responses() == {"0": {"action": "accept", "content": content}}
    assert asked.state == "state"


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "integer", "default": 30}, {"value": 30}),
        ({"type": "string", "enum": ["on", "off"], "default": "off"}, {"value": "off"}),
        ({"type": "boolean", "default": False}, {"value": False}),
        ({"type": "integer", "default": "thirty"}, {}),
        ({"type": "integer"}, {}),
    ],
)
def test_member_that_is_left_out_has_its_default(schema: dict[str, Any], sent: dict[str, Any]) -> None:
    """The question shows it; one that does not fit its own schema is not sent."""
    asked = begun(form(name={"type": "string"}, value=schema))
    assert ("if left out" in asked.questions()[1].question) is bool(sent)
    asked = answered(asked, text("Ada"), chosen("Leave it out"))
    assert asked.responses() == {"0": {"action": "accept", "content": {"name": "Ada", **sent}}}


def test_answer_that_does_not_fit_is_asked_again_with_the_reason() -> None:
    """Nothing is sent to the server before it fits."""
    asked = answered(begun(form(age={"type": "integer", "minimum": 18})), text("twelve"))
    assert not asked.is_complete
    assert asked.questions()[0].question.startswith("age: ")
    asked = answered(asked, text("12"))
    assert not asked.is_complete
    assert answered(asked, text("21")).responses()["0"] == {"action": "accept", "content": {"age": 21}}


@pytest.mark.parametrize(("label", "action"), [("Decline", "decline"), ("Cancel the request", "cancel")])
def test_person_may_decline_or_cancel_each_request(label: str, action: str) -> None:
    """Other requests of the round go on."""
    asked = begun(form(name={"type": "string"}), form(city={"type": "string"}))
    asked = answered(asked, chosen(label), text("Rome"))
    assert asked.responses() == {
        "0": {"action": action},
        "1": {"action": "accept", "content": {"city": "Rome"}},
    }


def test_address_is_shown_with_its_host() -> None:
    """A person says that it is done; nothing opens it."""
    params = {"mode": "url", "message": "Log in.", "url": "https://example.com/login?x=1"}
    asked = begun({"method": "elicitation/create", "params": params})
    (question,) = asked.questions()
    assert "a page of example.com" in question.question
    assert "Nothing opens it for you: https://example.com/login?x=1" in question.question
    assert answered(asked, chosen("Done")).responses() == {"0": {"action": "accept"}}


@pytest.mark.parametrize(
    "request_",
    [
        {"method": "sampling/createMessage", "params": {}},
        form(**{f"m{number}": {"type": "string"} for number in range(100)}),
        form(inner={"type": "object"}),
        "text",
    ],
)
def test_what_no_person_can_be_asked_is_refused(request_: Any) -> None:
    """The call fails with a typed error."""
    with pytest.raises(ExecutionError, match="the MCP server one"):
        begun(request_)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=300),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["string", "integer", "number", "boolean", "array"])},
            optional={
                "enum": st.lists(st.text(max_size=300), max_size=6),
                "description": st.text(max_size=3_000),
                "title": st.integers(),
                "items": st.just({"enum": ["a", "b"]}),
            },
        ),
        max_size=6,
    ),
    st.text(max_size=5_000),
)
def test_every_form_becomes_questions_that_can_be_asked(members: dict[str, Any], message: str) -> None:
    """Whatever a server sends, the questions are valid, and its state is kept as it is."""
    request_ = form(**members)
    request_["params"]["message"] = message
    asked = begun(request_)
    QuestionsAsked(questions=tuple(asked.questions()))
    assert Elicitation.from_state(asked.to_state()) == asked
