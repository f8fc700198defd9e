"""Journals of these rules are decided again: every fact follows; what does not is found at its place."""

from __future__ import annotations

import copy
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import JournalError
from sessiontree.contracts.facts.session_facts import MessageReceived, SessionFact
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.facts.tree_facts import SessionSpawned, TreeFact
from sessiontree.contracts.recorded.codec import from_wire
from sessiontree.journal.export import load_export
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.replay.replay_check import Rules, TreeReplay, replay_records
from sessiontree.session.decide import react
from sessiontree.tree.decide import decide
from sessiontree.version import RULES, VERSION
from tests.unit.golden.scenario_fixtures import GOLDEN, HERE

JOURNALS = sorted(HERE.glob("*.ndjson"))


@cache
def stored(path: Path) -> tuple[TreeConfig, tuple[JournalRecord, ...]]:
    """Return the configuration and the facts of an export."""
    with path.open() as lines:
        export = load_export(lines)
    assert export.complete
    assert export.manifest is not None
    return from_wire(export.manifest.row0), export.records


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
@pytest.mark.covers("REL-S38")
def test_golden_journal_of_these_rules_is_decided_again_without_difference(path: Path) -> None:
    """Change a rule, and this fails: mend the rule, or raise RULES and record a journal."""
    config, records = stored(path)
    report = replay_records(config, records)
    assert report.is_decided == ((config.package_version, config.rules_number) == (VERSION, RULES))
    assert report.matches, report.difference
    assert (report.compared, report.given) == ((len(records), 0) if report.is_decided else (0, 0))


def test_these_rules_have_a_golden_journal() -> None:
    """Otherwise nothing notices that they changed."""
    assert any(stored(path)[0].rules_number == RULES for path in JOURNALS)


def test_every_prefix_is_the_same_too() -> None:
    """A tree that still runs ends anywhere; only a reaction that is cut in two is reported, at the cut."""
    config, records = stored(GOLDEN)
    for end in range(len(records)):
        report = replay_records(config, records[:end])
        assert report.difference is None or report.difference.seq == end + 1
        assert report.difference is None or report.difference.found is None


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield every plain value within a JSON value, with the way to it."""
    if isinstance(value, dict | list):
        for name, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(member, (*path, name))
    else:
        yield path, value


def altered(record: JournalRecord, path: tuple[str | int, ...]) -> JournalRecord:
    """Return a fact with one value changed to another of its type."""
    fact = copy.deepcopy(record.to_json())
    place: Any = fact
    for step in path[:-1]:
        place = place[step]
    value = place[path[-1]]
    match value:
        case bool():
            changed: Any = not value
        case int() | float():
            changed = value + 1
        case str():
            changed = f"{value}x"
        case _:
            changed = "x"
    place[path[-1]] = changed
    return replace(record, text=json.dumps(fact))


DERIVED = {
    "acts_for",
    "approval_decided",
    "approval_waiting",
    "run_finished",
    "session_adopted",
    "tool_given_up",
    "turn_started",
}
"""Kinds of facts in which nothing comes from outside, and times of their own stimuli apart."""
SHARE = 5
"""Of the values of other facts one in so many is altered: each takes a replay of the whole tree."""


def test_altered_value_is_found_at_its_fact() -> None:
    """In a fact of rules alone always; of the values in other facts, which hold what models said, of most."""
    config, records = stored(GOLDEN)
    found = total = 0
    for at, record in enumerate(records[1:], 1):
        fact = record.to_json()
        is_derived = fact["kind"] in DERIVED and fact.get("by") != "person"
        for number, (path, _) in enumerate(leaves(fact)):
            if path[-1] in {"kind", "v"} or (not is_derived and number % SHARE):
                continue
            changed = (*records[:at], altered(record, path), *records[at + 1 :])
            total += 1
            try:
                difference = replay_records(config, changed).difference
            except JournalError:
                found += 1  # it is not a fact any more
                continue
            assert difference is None or difference.seq >= record.seq
            is_found = difference is not None and difference.seq == record.seq
            found += is_found
            if is_derived and fact["kind"] != "session_adopted":
                assert is_found, (record, path)
    assert found / total > 0.7, (found, total)


def test_difference_names_session_number_field_and_values() -> None:
    """What a person needs to look for the cause."""
    config, records = stored(GOLDEN)
    at, record = next(
        (at, each) for at, each in enumerate(records) if each.to_json()["kind"] == "turn_started"
    )
    changed = (*records[:at], altered(record, ("turn",)), *records[at + 1 :])
    difference = replay_records(config, changed).difference
    assert difference is not None
    assert (difference.session, difference.seq, difference.kind) == (
        record.session,
        record.seq,
        "turn_started",
    )
    turn = record.to_json()["turn"]
    assert (difference.field, difference.expected, difference.found) == ("/turn", turn, turn + 1)


def test_missing_and_a_strange_fact_are_found() -> None:
    """A fact that was taken out, or put in, changes what follows."""
    config, records = stored(GOLDEN)
    kinds = [record.to_json()["kind"] for record in records]
    at = kinds.index("turn_started")
    missing = replay_records(config, (*records[:at], *records[at + 1 :])).difference
    assert missing is not None
    assert missing.seq <= records[at + 1].seq
    doubled = replay_records(config, (*records[: at + 1], records[at], *records[at + 1 :])).difference
    assert doubled is not None
    assert doubled.seq == records[at].seq
    assert "nothing recorded before it" in doubled.reason


def _said(facts: list[SessionFact], word: str) -> list[SessionFact]:
    return [
        replace(fact, message_id=f"{fact.message_id}{word}")
        if isinstance(fact, MessageReceived) and fact.message.origin == "notice"
        else fact
        for fact in facts
    ]


def _spawned(facts: list[TreeFact], number: int) -> list[TreeFact]:
    return [
        replace(fact, number=fact.number + number) if isinstance(fact, SessionSpawned) else fact
        for fact in facts
    ]


CLOCK: Callable[[], int] = time.monotonic_ns
RANDOM: Callable[[], int] = partial(random.Random(7).randint, 1, 9)
ORDER: Callable[[], int] = partial(next, itertools.count(1))


@pytest.mark.parametrize("source", [CLOCK, RANDOM, ORDER], ids=["clock", "random", "order"])
def test_rules_that_are_not_pure_are_found(source: Callable[[], int]) -> None:
    """A rule that reads a clock, draws a number or follows the order of a set gives other facts."""
    config, records = stored(GOLDEN)

    def careless_tree(state: Any, stimulus: Any) -> Any:
        facts, instructions = decide(state, stimulus)
        return _spawned(facts, source()), instructions

    found = TreeReplay(config, records, Rules(react, careless_tree)).difference()
    assert found is not None
    assert (found.kind, found.field) == ("session_spawned", "/number")

    def careless_session(state: Any, stimulus: Any) -> Any:
        facts, instructions = react(state, stimulus)
        return _said(facts, str(source())), instructions

    found = TreeReplay(config, records, Rules(careless_session, decide)).difference()
    assert found is not None
    assert (found.kind, found.field) == ("message_received", "/message_id")
