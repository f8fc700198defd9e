"""Approver rules: which calls a rule speaks of, and which of several answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sessiontree.contracts.recorded.approvals import Rule, RuleAnswer, answer_by_rules
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.testing.strategies import json_objects, json_values, rules, texts

SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
Matches = Callable[[Rule, str, JsonValue], bool]
Answers = Callable[[tuple[Rule, ...], str, JsonValue], RuleAnswer]


def pointer(*parts: str) -> str:
    """Return the JSON pointer of members on the way to a value."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


def literal(text: str) -> str:
    """Return the glob that fits one text alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else f"\\{letter}" for letter in text)


def finds(matches: Matches, parts: list[str], value: JsonValue, tool: str) -> None:
    """Property: a rule that names a value and its place fits it there, and nothing else there."""
    nested: JsonValue = value
    for part in reversed(parts):
        nested = {part: nested}
    said = value if isinstance(value, str) else dump_json(value)
    rule = Rule(tool=literal(tool), where={pointer(*parts): literal(said)}, answer="approve")
    assert matches(rule, tool, nested)
    assert not matches(rule, tool + "x", nested)
    other: JsonValue = said + "x"
    for part in reversed(parts):
        other = {part: other}
    assert not matches(rule, tool, other)
    assert not matches(rule, tool, {})


PLACES = st.tuples(
    st.lists(texts, min_size=1, max_size=3), json_values, texts.filter(lambda text: "\0" not in text)
)


@given(place=PLACES)
def test_rule_fits_the_value_at_its_pointer(place: tuple[list[str], JsonValue, str]) -> None:
    """Any member name, escaped as JSON pointers are, and any value, by its text or JSON."""
    finds(Rule.matches, *place)


@pytest.mark.parametrize(
    "broken",
    [
        lambda rule, tool, arguments: Rule(where=rule.where).matches(tool, arguments),
        lambda rule, tool, arguments: Rule(tool=rule.tool).matches(tool, arguments),
        lambda rule, tool, arguments: rule.matches(tool, arguments) or arguments == {},
    ],
    ids=["any-tool", "any-arguments", "nothing-fits"],
)
def test_pointer_property_notices_planted_bugs(broken: Matches) -> None:
    """The property fails on rules that look at less than they name."""

    def fails(place: tuple[list[str], JsonValue, str]) -> bool:
        try:
            finds(broken, *place)
        except AssertionError:
            return True
        return False

    assert find(PLACES, fails, settings=SEARCH)


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        (Rule(), True),
        (Rule(tool="exec"), True),
        (Rule(tool="ex*"), True),
        (Rule(tool="EXEC"), False),
        (Rule(where={"/argv/0": "git"}), True),
        (Rule(where={"/argv/1": "st?tus"}), True),
        (Rule(where={"/argv/2": "*"}), False),
        (Rule(where={"/argv/-1": "*"}), False),
        (Rule(where={"/argv": '[[]"git","status"]'}), True),
        (Rule(where={"/argv": '["git","status"]'}), False),
        (Rule(where={"/cwd": "src/*"}), True),
        (Rule(where={"/cwd": "SRC/*"}), False),
        (Rule(where={"/count": "3"}), True),
        (Rule(where={"/flag": "true"}), True),
        (Rule(where={"/none": "null"}), True),
        (Rule(where={"/a~1b/c~0d": "x"}), True),
        (Rule(where={"/cwd/deeper": "*"}), False),
        (Rule(where={"/missing": "*"}), False),
        (Rule(where={"/cwd": "src/*", "/count": "4"}), False),
        (Rule(where={"": "*git*"}), True),
    ],
)
def test_rule_matching(rule: Rule, fits: bool) -> None:
    """Globs mind case, pointers reach into objects and lists, and all parts of a rule must fit."""
    arguments: JsonValue = {
        "argv": ["git", "status"],
        "cwd": "src/lib",
        "count": 3,
        "flag": True,
        "none": None,
        "a/b": {"c~d": "x"},
    }
    assert rule.matches("exec", arguments) is fits


def first_wins(answers: Answers, given_rules: list[Rule], tool: str, arguments: JsonValue) -> None:
    """Property: the first rule that fits answers; where none does, the request climbs on."""
    fitting = [rule.answer for rule in given_rules if rule.matches(tool, arguments)]
    assert answers(tuple(given_rules), tool, arguments) == (fitting[0] if fitting else "escalate")


CASES = st.tuples(
    st.lists(rules | st.builds(Rule, answer=st.sampled_from(["approve", "deny"])), max_size=4),
    texts,
    json_objects,
)


@given(case=CASES)
def test_first_rule_that_fits_answers(case: tuple[list[Rule], str, JsonValue]) -> None:
    """The order an owner wrote counts."""
    first_wins(answer_by_rules, *case)


@pytest.mark.parametrize(
    "broken",
    [
        lambda found, tool, arguments: answer_by_rules(found[::-1], tool, arguments),
        lambda found, tool, arguments: answer_by_rules(found, tool, arguments) if found else "deny",
        lambda found, tool, arguments: (
            "approve" if answer_by_rules(found, tool, arguments) != "deny" else "deny"
        ),
    ],
    ids=["last-wins", "none-denies", "escalation-approves"],
)
def test_order_property_notices_planted_bugs(broken: Answers) -> None:
    """The property fails where another rule answers, or where silence is taken for a word."""

    def fails(case: tuple[list[Rule], str, JsonValue]) -> bool:
        try:
            first_wins(broken, *case)
        except AssertionError:
            return True
        return False

    assert find(CASES, fails, settings=SEARCH)


@pytest.mark.parametrize(
    "wrong", [{"answer": "yes"}, {"where": {"/a": 1}}, {"tools": "exec"}, {"tool": None}]
)
def test_rule_with_a_slip_is_refused(wrong: dict[str, object]) -> None:
    """A misspelt rule must not silently allow or deny nothing."""
    with pytest.raises(ValidationError):
        Rule.model_validate(wrong)


def test_rule_cannot_be_changed() -> None:
    """Rules are fixed when a tree is made."""
    with pytest.raises(ValidationError):
        Rule().answer = "approve"
