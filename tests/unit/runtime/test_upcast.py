"""Upcasting: a fact of an earlier version is brought to the current one, a later one is refused.

Every kind is of version 1 and the product has no step. One step of this file shows that the path works.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew
from sessiontree.contracts.recorded import codec
from sessiontree.contracts.recorded.codec import list_current_versions, list_recorded_members
from sessiontree.contracts.values.jsonable import dump_json
from sessiontree.journal import replay
from sessiontree.journal.export import load_export
from sessiontree.journal.record import JournalRecord
from sessiontree.journal.replay import UPCASTERS, Upcasters, read_config, read_fact
from tests.unit.golden.scenario_fixtures import GOLDEN


def name_lines(fact: dict[str, Any]) -> dict[str, Any]:
    """Version 2 calls the text ``lines``."""
    return {"lines": fact["text"].split("\n")}


def count_lines(fact: dict[str, Any]) -> dict[str, Any]:
    """Version 3 counts them."""
    return {**fact, "count": len(fact["lines"])}


STEPS = {("said", 1): name_lines, ("said", 2): count_lines}
CURRENT = {"said": 3, "heard": 1}
NESTED = {"said": (), "heard": ("what", "more")}


def test_fact_passes_every_step_up_to_its_current_version() -> None:
    """Each step is applied once, in order, and the argument is left as it was."""
    upcasters = Upcasters(STEPS, CURRENT, NESTED.__getitem__)
    old = {"kind": "said", "v": 1, "text": "a\nb"}
    new = {"kind": "said", "v": 3, "lines": ["a", "b"], "count": 2}
    assert upcasters.upcast(old) == new
    assert upcasters.upcast({"kind": "said", "v": 2, "lines": []}) == {
        "kind": "said",
        "v": 3,
        "lines": [],
        "count": 0,
    }
    assert old == {"kind": "said", "v": 1, "text": "a\nb"}


def test_current_fact_is_returned_as_it_is() -> None:
    """What is current already is not touched."""
    fact = {"kind": "heard", "v": 1, "text": "a"}
    assert Upcasters(STEPS, CURRENT, NESTED.__getitem__).upcast(fact) is fact


@pytest.mark.parametrize("fact", [{"kind": "said", "v": 4}, {"kind": "sung", "v": 1}])
def test_fact_of_a_later_release_is_too_new(fact: dict[str, Any]) -> None:
    """An unknown kind or a version beyond the current one asks for a later release."""
    with pytest.raises(JournalTooNew, match="later release"):
        Upcasters(STEPS, CURRENT, NESTED.__getitem__).upcast(fact)


@pytest.mark.covers("REL-L70")
@pytest.mark.parametrize(
    "fact", [{}, {"kind": "said"}, {"kind": 1, "v": 1}, {"kind": "said", "v": True}, {"kind": "said", "v": 0}]
)
def test_fact_no_release_wrote_is_corrupt(fact: dict[str, Any]) -> None:
    """A fact without kind and version, or of a version before the first, is damage."""
    with pytest.raises(JournalCorrupt):
        Upcasters(STEPS, CURRENT, NESTED.__getitem__).upcast(fact)


@pytest.mark.parametrize(
    "steps",
    [
        {("said", 1): name_lines},
        {("said", 3): name_lines},
        {("heard", 1): name_lines},
        {("sung", 1): name_lines},
    ],
    ids=["gap", "beyond", "from-current", "unknown-kind"],
)
def test_table_of_steps_with_a_hole_is_refused(steps: dict[tuple[str, int], Any]) -> None:
    """A table that leads nowhere is noticed when it is made, not when an old journal turns up."""
    with pytest.raises(ValueError, match="version"):
        Upcasters(steps, CURRENT, NESTED.__getitem__)


@pytest.mark.parametrize(
    "old", [{"kind": "said", "v": 2, "lines": []}, [{"kind": "said", "v": 2, "lines": []}]]
)
def test_what_a_fact_contains_is_brought_to_its_version_too(old: Any) -> None:
    """Alone or in a list, in a fact of the current version; the given fact is left as it was."""
    fact = {"kind": "heard", "v": 1, "what": old, "more": None, "text": {"kind": "said", "v": 1}}
    before = json.dumps(fact)
    new = {"kind": "said", "v": 3, "lines": [], "count": 0}
    upcast = Upcasters(STEPS, CURRENT, NESTED.__getitem__).upcast(fact)
    assert upcast == {**fact, "what": [new] if isinstance(old, list) else new}
    assert json.dumps(fact) == before


def test_members_that_contain_recorded_values_are_found_by_their_types() -> None:
    """A value, one of several, a list of them; arguments of a model are never taken for a value of ours."""
    assert list_recorded_members("tree_config") == ("tools", "agents", "policy", "forks")
    assert list_recorded_members("session_ended") == ("charged", "report")
    assert list_recorded_members("posted") == ("stimulus",)
    assert list_recorded_members("call_intended") == ("call",)
    assert list_recorded_members("checked_call") == ()


def test_every_kind_is_of_version_1_and_no_step_is_there() -> None:
    """Before the first release nobody has a journal of another version."""
    assert set(list_current_versions().values()) == {1}
    assert replay.STEPS == {}


def golden() -> tuple[dict[str, Any], tuple[JournalRecord, ...]]:
    """Return first row and facts of the golden journal."""
    with GOLDEN.open() as lines:
        export = load_export(lines)
    assert export.manifest is not None
    return dict(export.manifest.row0), export.records


def as_older(value: Any) -> Any:
    """Return a JSON value in which turns and tools are of an older version: a member had another name."""
    if isinstance(value, list):
        return [as_older(each) for each in value]
    if not isinstance(value, dict):
        return value
    wire = {name: as_older(member) for name, member in value.items()}
    for kind, (new, old) in RENAMED.items():
        if wire.get("kind") == kind:
            wire[old] = wire.pop(new)
    return wire


RENAMED = {"turn_started": ("fresh_run", "is_first"), "tool_row": ("schema_digest", "schema")}
"""By kind, a member, and what it was called in the version before."""


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds are of version 2, with one step each from version 1."""

    def renamed(kind: str) -> replay.Step:
        new, old = RENAMED[kind]
        return lambda wire: {**{name: each for name, each in wire.items() if name != old}, new: wire[old]}

    for kind in RENAMED:
        monkeypatch.setitem(codec._SHAPES, kind, replace(codec._SHAPES[kind], version=2))
    steps = {(kind, 1): renamed(kind) for kind in RENAMED}
    monkeypatch.setattr(replay, "UPCASTERS", Upcasters(steps, list_current_versions(), list_recorded_members))


@pytest.mark.usefixtures("next_version")
def test_journal_of_an_older_version_is_read_as_what_it_means() -> None:
    """Where a fact of an older version is held by another one, and in the tree's first row, too."""
    row0, records = golden()
    older = [replace(record, text=dump_json(as_older(record.to_json()))) for record in records]
    assert sum(each.text != record.text for each, record in zip(older, records, strict=True)) > 20
    read = [repr(read_fact(each.text)) for each in older]
    config = read_config(as_older(row0))
    with pytest.MonkeyPatch.context() as undone:
        for kind in RENAMED:
            undone.setitem(codec._SHAPES, kind, replace(codec._SHAPES[kind], version=1))
        assert read == [repr(read_fact(record.text)) for record in records]
        assert repr(config) == repr(read_config(row0))


@pytest.mark.parametrize("kind", RENAMED)
def test_journal_of_a_later_version_is_refused(kind: str) -> None:
    """This release knows version 1: it names the kind and asks for a later release, wherever the value is."""
    row0, records = golden()
    texts = [each.text.replace(f'{{"kind":"{kind}","v":1', f'{{"kind":"{kind}","v":2') for each in records]
    later = [text for text, record in zip(texts, records, strict=True) if text != record.text]
    assert later
    for text in later:
        with pytest.raises(JournalTooNew, match=f"{kind!r} version 2 is unknown here; use a later release"):
            read_fact(text)
    if kind == "tool_row":
        row0["tools"][0]["v"] = 2
        with pytest.raises(JournalTooNew, match="later release"):
            read_config(row0)
    assert UPCASTERS.upcast(records[0].to_json()) == records[0].to_json()
