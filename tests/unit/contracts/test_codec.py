"""The codec of everything journaled: what is packed comes back equal, and what is unknown is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.facts import rewind, session_facts, stimuli, tree_config, tree_facts
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded import (
    approvals,
    child_workspaces,
    client_calls,
    codec,
    cron,
    programs,
    senders,
    tool_inputs,
)
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.testing.strategies import instances_of
from tests.unit.tree.tree_fixtures import config

SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
ROOMS = (
    senders, cron, session_facts, tree_facts, stimuli, tree_config, approvals, client_calls, child_workspaces,
    programs, rewind, tool_inputs,
)  # fmt: skip
Pack = Callable[[Any], str]

RECORDED = sorted(
    {
        each
        for room in ROOMS
        for each in vars(room).values()
        if dataclasses.is_dataclass(each) and isinstance(each, type) and each.__module__ == room.__name__
        if each in codec._KIND_OF
    },
    key=lambda cls: cls.__name__,
)
"""Every class that is journaled."""


def comes_back(pack: Pack, value: Any) -> None:
    """Property: S38, P34, a journaled value comes back equal, field by field and type by type."""
    text = pack(value)
    assert text.isascii()
    wire = json.loads(text)
    back = codec.from_wire(wire)
    assert repr(back) == repr(value)
    assert wire == json.loads(dump_json(codec.to_wire(value)))
    assert list(wire)[:2] == ["kind", "v"]


def test_every_kind_is_among_those_tried() -> None:
    """No class is recorded in a room this test does not know."""
    tried = {codec._KIND_OF[cls] for cls in RECORDED}
    own = {
        kind
        for cls, kind in codec.list_recorded_classes().items()
        if cls.__module__.startswith("sessiontree.")
    }
    assert tried == own
    assert len(tried) > 40


@pytest.mark.short(42)
@pytest.mark.slow
@pytest.mark.parametrize("cls", RECORDED, ids=lambda cls: cls.__name__)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_recorded_value_comes_back_equal(cls: type[Any], data: st.DataObject) -> None:
    """P34: lone surrogates, integers beyond 2^53, empty tuples and None included."""
    comes_back(codec.pack, data.draw(instances_of(cls)))


def test_text_of_shared_rows_is_that_of_the_same_tuple_alone() -> None:
    """An equal tuple and another one get texts of their own, whatever was written in between."""
    one = config()
    rows = (dataclasses.replace(one.tools[0], schema_digest="d2"),)
    others = [dataclasses.replace(one, tools=rows), dataclasses.replace(one, tools=()), one]
    for each in (one, one, *others, dataclasses.replace(one, purpose="again")):
        assert codec.pack(each) == dump_json(codec.to_wire(each))


def test_sparse_field_is_written_only_where_it_says_something() -> None:
    """A default costs no byte, and its absence is read as the default."""
    message = UserMessage((TextContent("go"),), 1)
    plain = session_facts.MessageReceived("m1", message, steer=False, wakes=True)
    assert "settings" not in codec.pack(plain)
    assert codec.from_wire(json.loads(codec.pack(plain))) == plain
    asked = dataclasses.replace(plain, settings=ModelSettings(temperature=0.0))
    assert "settings" in codec.pack(asked)
    assert codec.from_wire(json.loads(codec.pack(asked))) == asked


def test_field_that_a_later_release_adds_is_read_from_the_journals_before_it() -> None:
    """Declared sparse it needs no version: what lacks it means the default. Any other field must be there."""

    @codec.register_kind("noted_by_a_test")
    @dataclass(frozen=True, slots=True)
    class NotedByATest:
        text: str
        loud: bool = False
        since: int = codec.declare_sparse(0)

    try:
        before = {"kind": "noted_by_a_test", "v": 1, "text": "a", "loud": True}
        assert codec.from_wire(before) == NotedByATest("a", loud=True)
        assert json.loads(codec.pack(NotedByATest("a", loud=True))) == before
        comes_back(codec.pack, NotedByATest("a", since=5))
        with pytest.raises(KeyError, match="loud"):
            codec.from_wire({"kind": "noted_by_a_test", "v": 1, "text": "a"})
    finally:
        del codec._SHAPES["noted_by_a_test"], codec._KIND_OF[NotedByATest]


def _without_depth(value: Any) -> str:
    wire = codec.to_wire(value)
    wire["message"]["content"] = [
        {**block, "text": block.get("text", "").strip()} for block in wire["message"]["content"]
    ]
    return dump_json(wire)


def _as_doubles(value: Any) -> str:
    return json.dumps(json.loads(codec.pack(value), parse_int=lambda digits: int(float(digits))))


def _replaced(value: Any) -> str:
    return (
        codec.pack(value).encode("ascii").decode("unicode_escape").encode("utf-8", "replace").decode("utf-8")
    )


def _sorted(value: Any) -> str:
    return json.dumps(json.loads(codec.pack(value)), sort_keys=True)


@pytest.mark.parametrize("broken", [_without_depth, _as_doubles, _replaced, _sorted])
def test_round_trip_property_notices_a_lossy_codec(broken: Pack) -> None:
    """The property fails where texts are trimmed, integers are doubles, surrogates lost, members sorted."""

    def fails(value: Any) -> bool:
        try:
            comes_back(broken, value)
        except (AssertionError, ValueError):
            return True
        return False

    assert find(instances_of(session_facts.CallResolved), fails, settings=SEARCH)


def test_hard_values_come_back() -> None:
    """P34: the values other codecs lose, written out."""
    hard: dict[str, JsonValue] = {
        "\ud800": 2**53 + 1,
        "": [],
        "none": None,
        "zero": -0.0,
        "deep": [[{}]],
        "kind": "v",
        "true": True,
    }
    message = ToolResultMessage("c1", "look", (), {"details": hard}, False, 2**53 + 1)
    comes_back(codec.pack, session_facts.CallResolved("1.0", "ok", message, (), None))
    comes_back(codec.pack, session_facts.CallOpened("call.x", "x", "look", hard))
    calls = (ToolCall("", "\udfff", hard), TextContent("\ud800 alone"))
    reply = AssistantMessage(calls, "toolUse", Usage(2**60, 0, 1e-300, 1, 2), 0)
    comes_back(codec.pack, session_facts.TurnReplied(1, reply))
    comes_back(codec.pack, session_facts.RunFinished("", (), None, None, has_result=False))


@pytest.mark.covers("REL-L70")
@pytest.mark.parametrize(
    "wire",
    [
        {"kind": "never heard of", "v": 1},
        {"kind": "acts_for", "v": 2},
        {"kind": "acts_for", "v": 0},
        {"kind": "acts_for", "v": "1"},
        {"kind": None, "v": 1},
    ],
)
def test_unknown_kind_or_version_is_refused(wire: dict[str, Any]) -> None:
    """What another release wrote is never guessed at."""
    with pytest.raises(ValueError, match="this release can't read"):
        codec.from_wire(wire)


def test_missing_member_is_refused() -> None:
    """A default of the class is not one of the journal: what is missing is damage."""
    wire = codec.to_wire(session_facts.CallHeld("call.x", held=True))
    del wire["held"]
    with pytest.raises(KeyError, match="held"):
        codec.from_wire(wire)


def test_unknown_class_is_not_packed() -> None:
    """Only what is recorded is journaled."""
    with pytest.raises(KeyError):
        codec.pack(stimuli.Rang(1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", object(), {1, 2}])
def test_value_without_a_json_form_is_not_packed(value: Any) -> None:
    """What JSON has no word for is an error where it is written, not where it is read."""
    with pytest.raises((ValueError, TypeError)):
        codec.pack(session_facts.CallOpened("call.x", "x", "look", {"value": value}))


def test_two_classes_of_one_kind_are_refused() -> None:
    """A kind names one class for ever."""

    @dataclass(frozen=True, slots=True)
    class Other:
        key: str

    with pytest.raises(ValueError, match="two classes are recorded as 'message_received'"):
        codec.register_kind("message_received")(Other)
    assert (
        codec.get_kind(session_facts.MessageReceived("m", UserMessage((), 0), steer=False, wakes=True))
        == "message_received"
    )


def test_fields_named_like_the_codecs_own_keep_apart() -> None:
    """A field ``kind`` never hides the kind of the value."""
    denied = tree_facts.SpawnDenied("main", SessionKind.WORKER, None, 0.0, 0.0, "no")
    assert get_type_hints(tree_facts.SpawnDenied)["kind"] is SessionKind
    wire = codec.to_wire(denied)
    assert (wire["kind"], wire["kind_"]) == ("spawn_denied", "worker")
    comes_back(codec.pack, denied)


def test_kind_is_the_class_name_in_snake_case() -> None:
    """Whoever reads a journal finds the class by its kind."""
    for cls in RECORDED:
        assert codec._KIND_OF[cls] == re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def test_call_of_a_model_is_never_taken_for_a_value_of_ours() -> None:
    """Arguments that look like a fact stay what they are."""
    given: dict[str, JsonValue] = {"kind": "acts_for", "v": 0, "call": {"kind": "acts_for", "v": 9}}
    comes_back(codec.pack, session_facts.CallOpened("call.x", "x", "look", given))


def test_every_kind_has_a_version() -> None:
    """Upcasters start from here."""
    versions = codec.list_current_versions()
    assert set(versions) >= {codec._KIND_OF[cls] for cls in RECORDED}
    assert all(isinstance(version, int) and version >= 1 for version in versions.values())
