"""Calls and answers as JSON: values come back the same; a peer's wrong argument is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.handles.ports import SessionReport
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import ApprovalAnswer, ApprovalRequest
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import Usage, UserMessage
from sessiontree.control.call_codec import (
    SocketAnswer,
    answer_from_wire,
    answer_to_wire,
    decode_arguments,
    dump_wire,
    encode_arguments,
)
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.transport.rpc import (
    Count,
    PeerName,
    ProgramOnly,
    RpcMethod,
    Without,
    Words,
    allow,
    collect_methods,
    get_method,
    limit,
    rpc,
)
from sessiontree.runtime.transport.supervisor_api import (
    ActorRow,
    CallReply,
    Reply,
    SessionRecord,
    SupervisorApi,
)
from sessiontree.testing.strategies import floats, instances_of, json_objects, texts, tool_results
from sessiontree.tree.report import ReceiptLine

REPORTS = instances_of(SessionReport).flatmap(
    lambda report: st.dictionaries(texts, floats, max_size=3).map(
        lambda left: replace(report, budget_left=left)
    )
)
RECEIPTS = st.lists(
    st.builds(
        ReceiptLine,
        texts,
        st.sampled_from(SessionKind),
        st.sampled_from(SessionStatus),
        st.booleans(),
        texts,
        st.integers(0),
        instances_of(Usage),
    ),
    min_size=1,
).map(tuple)


def some(values: SearchStrategy[Any]) -> SearchStrategy[list[Any]]:
    """Return lists of values."""
    return st.lists(values, min_size=1, max_size=3)


CASES: dict[str, tuple[Callable[..., Any], SearchStrategy[Any]]] = {
    "report": (SupervisorApi.report, REPORTS),
    "request": (SupervisorApi.shown, instances_of(ApprovalRequest)),
    "requests": (SupervisorApi.pending, some(instances_of(ApprovalRequest))),
    "receipt": (SupervisorApi.receipt, RECEIPTS),
    "records": (SupervisorApi.read, some(instances_of(JournalRecord))),
    "reply": (SupervisorApi.send, instances_of(Reply)),
    "call": (SupervisorApi.call, st.builds(CallReply, texts, tool_results)),
    "actors": (SupervisorApi.actors, some(instances_of(ActorRow))),
    "history": (SupervisorApi.record_of, instances_of(SessionRecord)),
    "client calls": (SupervisorApi.client_calls, some(instances_of(ClientCall))),
    "security": (SupervisorApi.security, json_objects),
}


def travels(answer: SocketAnswer, spoiled: Callable[[str], str] = str) -> SocketAnswer:
    """Return an answer as it arrives: every part of it as JSON text, which a planted bug may spoil."""
    value = json.loads(spoiled(dump_wire(answer.value)))
    return SocketAnswer(value, [json.loads(spoiled(dump_wire(item))) for item in answer.items])


@pytest.mark.parametrize(("question", "values"), CASES.values(), ids=CASES)
def test_answer_comes_back(question: Callable[..., Any], values: SearchStrategy[Any]) -> None:
    """Answers of any content arrive unchanged."""
    method = get_method(question)

    @settings(max_examples=30)
    @given(values)
    def crosses(value: Any) -> None:
        assert answer_from_wire(method, travels(answer_to_wire(method, value))) == value

    crosses()


@pytest.mark.parametrize(("question", "values"), CASES.values(), ids=CASES)
def test_answer_that_loses_something_is_found(
    question: Callable[..., Any], values: SearchStrategy[Any]
) -> None:
    """The property fails where letters change on the way, for every kind of answer."""
    method = get_method(question)

    @settings(max_examples=60, database=None, derandomize=True, phases=[Phase.generate])
    @given(values)
    def crosses(value: Any) -> None:
        try:
            wire = travels(answer_to_wire(method, value), lambda text: text.replace("e", "E"))
            assert answer_from_wire(method, wire) == value
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AssertionError from error

    with pytest.raises(AssertionError):
        crosses()


def test_answer_that_is_no_tools_result_is_refused() -> None:
    """What comes back from a call is a tool's message, or an error."""
    wire = {"outcome": "ok", "message": UserMessage((), 0).to_wire()}
    with pytest.raises(TypeError, match="must be a ToolResultMessage, and is a UserMessage"):
        answer_from_wire(get_method(SupervisorApi.call), SocketAnswer(wire))


def test_every_question_for_peers_can_travel() -> None:
    """Each method that peers may call has a codec; what is not declared for them needs none."""
    for method in collect_methods(SupervisorApi).values():
        if method.for_peers:
            assert isinstance(encode_arguments(method, ()), dict)


NO = ApprovalAnswer(approve=False)


class Errands(Protocol):
    """An interface with an argument of every kind."""

    @rpc(for_peers=True)
    async def thing(
        self,
        text: str = "",
        words: Words = "x",
        truth: bool = False,
        count: Count = 0,
        seconds: Annotated[float, limit(20.0)] = 0.0,
        object: Mapping[str, JsonValue] = {},
        one_of: Literal["a", "b"] = "a",
        status: Annotated[SessionStatus, allow(SessionStatus.CANCELLED)] = SessionStatus.CANCELLED,
        answer: Annotated[ApprovalAnswer, Without(("sender",))] = NO,
        by: Annotated[str, PeerName] = "nobody",
        again: Annotated[bool, ProgramOnly] = False,
    ) -> None:
        """Take an argument of every kind."""


class Shares(Protocol):
    """An interface with numbers by name in its answer."""

    @rpc(for_peers=True)
    async def shares(self) -> Mapping[str, float]:
        """Return numbers."""
        ...


class Secret:
    """What has no JSON form."""


THING = get_method(Errands.thing)
GIVEN: dict[str, Any] = {
    "text": "t",
    "words": "w",
    "truth": True,
    "count": 2**63 - 1,
    "seconds": 20.0,
    "object": {"a": [1, None]},
    "one_of": "b",
    "status": SessionStatus.CANCELLED,
    "answer": ApprovalAnswer(approve=True, reason="r", always=True),
}
WRONG: list[tuple[str, Any]] = [
    ("text", 1),
    ("text", None),
    ("words", " \n"),
    ("truth", 1),
    ("count", -1),
    ("count", 2**63),
    ("count", True),
    ("count", 1.0),
    ("seconds", 20.5),
    ("seconds", True),
    ("seconds", "1"),
    ("seconds", float("nan")),
    ("seconds", float("inf")),
    ("seconds", -0.1),
    ("object", []),
    ("one_of", "c"),
    ("one_of", []),
    ("status", "active"),
    ("status", "asleep"),
    ("answer", {}),
    ("answer", {"approve": 1}),
    ("answer", {"approve": True, "sender": {"id": "ada"}}),
    ("answer", {"approve": True, "colour": "red"}),
    ("by", "the owner"),
    ("again", True),
    ("self", 1),
    ("colour", "red"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_wrong_argument_is_named(name: str, value: Any) -> None:
    """What is not as it must be, and what peers can't set, is refused with the argument's name."""
    with pytest.raises(ConfigError, match=rf"^'?{name}'? "):
        decode_arguments(THING, {name: value}, "person")


PLACED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (SupervisorApi.decide, {"answer": {"approve": 1}}, "answer must be true or false, not 1 (at approve)"),
    (
        SupervisorApi.answer_question,
        {"reply": {"answers": [{"text": "a"}, {"chosen": ["b", 2]}]}},
        "reply must be text, not 2 (at answers.1.chosen.1)",
    ),
    (
        SupervisorApi.answer_question,
        {"reply": {"answers": [{"words": "a"}]}},
        "reply has no member 'words' (at answers.0)",
    ),
    (SupervisorApi.stop, {"status": "active"}, "status 'active' is not one of cancelled, completed"),
    (SupervisorApi.stop, {"reason": None}, "reason must be text, not None"),
]


@pytest.mark.parametrize(("question", "wrong", "said"), PLACED)
def test_wrong_part_of_an_argument_is_placed(
    question: Callable[..., Any], wrong: dict[str, Any], said: str
) -> None:
    """The refusal says what was wrong, what should be there, and where in the argument it is."""
    method = get_method(question)
    needed = [name for name in method.parameters if name.endswith("_id") or name in {"session", "reason"}]
    with pytest.raises(ConfigError) as refused:
        decode_arguments(method, {**dict.fromkeys(needed, "x"), **wrong}, "person")
    assert str(refused.value) == said


def test_whole_number_stays_one_where_any_number_may_be() -> None:
    """A count under a budget's name is shown as a count, not as a fraction."""
    method = get_method(Shares.shares)
    answer = answer_from_wire(method, travels(answer_to_wire(method, {"tokens": 3, "usd": 0.5})))
    assert repr(answer) == "{'tokens': 3, 'usd': 0.5}"
    with pytest.raises(ValueError, match=r"must be a number, not True \(at usd\)"):
        answer_from_wire(method, SocketAnswer({"usd": True}))


def test_value_without_a_json_form_is_not_sent() -> None:
    """A class that nothing declares is refused where it would be written, not sent as its text."""
    method = get_method(Shares.shares)
    with pytest.raises(TypeError, match="a value of Secret has no JSON form"):
        travels(answer_to_wire(method, {"usd": Secret()}))


def test_arguments_arrive_as_they_were_given() -> None:
    """Every kind of argument arrives; the name of the peer is the socket's, and the rest has its default."""
    wire = json.loads(dump_wire(encode_arguments(THING, tuple(GIVEN.values()))))
    assert decode_arguments(THING, wire, "person 7") == [*GIVEN.values(), "person 7", False]
    assert decode_arguments(THING, {}, "person 7")[-2:] == ["person 7", False]


@pytest.mark.parametrize(
    ("method", "given_"),
    [
        (THING, (*GIVEN.values(), "nobody", True)),
        (get_method(SupervisorApi.send), ("t", "main", "x", "follow_up", "m1", Sender("ada"))),
        (get_method(SupervisorApi.decide), ("t", "r", ApprovalAnswer(approve=True, sender=Sender("ada")))),
    ],
)
def test_argument_of_the_program_is_not_sent(method: RpcMethod, given_: tuple[Any, ...]) -> None:
    """What only the creating program may set is refused by the sending side already, not left out."""
    with pytest.raises(ConfigError, match="can't be given from another process"):
        encode_arguments(method, given_)


def test_missing_argument_is_named() -> None:
    """An argument without a default must be there."""
    with pytest.raises(ConfigError, match=r"^tree_id must be text"):
        decode_arguments(get_method(SupervisorApi.pending), {}, "person")


def test_peer_says_where_a_person_answered_but_is_never_the_program() -> None:
    """Nothing said means the socket; the program's own surface, and any other word, is refused."""
    for method in (SupervisorApi.decide, SupervisorApi.answer_question):
        rpc_method = get_method(method)
        answer = (
            {"answer": {"approve": True}, "request_id": "r1"}
            if method is SupervisorApi.decide
            else {"reply": {"answers": []}, "question_id": "q1", "answer_id": "a1"}
        )
        wire: dict[str, Any] = {"tree_id": "t", **answer}
        assert decode_arguments(rpc_method, wire, "ada")[-1] == "socket"
        assert decode_arguments(rpc_method, {**wire, "surface": "browser"}, "ada")[-1] == "browser"
        for surface in ("program", "telepathy"):
            with pytest.raises(ConfigError, match="is not one of socket, terminal, notebook, browser"):
                decode_arguments(rpc_method, {**wire, "surface": surface}, "ada")
