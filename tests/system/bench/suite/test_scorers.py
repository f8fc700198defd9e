"""Scorers that a program decides: what counts as right, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import ConfigError
from sessiontree.bench import Attempt, Sample, Score, Suite, exact, includes, json_fields, match, number
from sessiontree.bench.suite.scorers import are_equal, find_numbers
from sessiontree.bench.suite.suite import Scorer
from tests.system.bench.suite_fixtures import ended, samples, suite

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def scored(scorer: Scorer, output: Any, target: Any) -> Score:
    """Return what a scorer says of an output."""
    attempt: Attempt[Any] = Attempt(
        "suite",
        Sample("s", target=target),
        1,
        1,
        workspace=Path("/"),
        model=None,
        runtime=cast("Any", None),
        run_dir=Path("/"),
    )
    attempt.output = output
    return cast("Score", scorer(attempt))


@pytest.mark.parametrize(
    ("scorer", "output", "target", "is_right"),
    [
        (exact(), " Paris\n", "Paris", True),
        (exact(), "paris", "Paris", False),
        (exact(ignore_case=True), "paris", "PARIS", True),
        (exact(), "Paris.", "Paris", False),
        (exact(), "b", ["a", "b"], True),
        (exact(), 42, 42, True),
        (exact(), {"a": 1}, '{"a": 1}', True),
        (exact(), None, "x", False),
        (exact(), "", "", True),
        (includes(), "It is PARIS, I think", "paris", True),
        (includes(ignore_case=False), "It is PARIS", "paris", False),
        (includes(), "anything", "", False),
        (match(), "The answer is **Paris**.", "Paris", True),
        (match(), "Paris is the answer", "Paris", False),
        (match("begin"), "Paris is the answer", "paris", True),
        (match("any"), "it is Paris, yes", "Paris", True),
        (match("exact"), "(Paris)", "Paris", True),
        (number(), "so 3 + 4 = 7.", 7, True),
        (number(), "so 3 + 4 = 7.", "7.0", True),
        (number(which="first"), "3 + 4 = 7", 3, True),
        (number(which="only"), "3 + 4 = 7", 7, False),
        (number(), "$1,234.50", 1234.5, True),
        (number(), "about 9.9", 10, False),
        (number(absolute=0.2), "about 9.9", 10, True),
        (number(relative=0.02), "about 9.9", [5, 10], True),
        (number(), "none", 1, False),
    ],
)  # fmt: skip
def test_answers_are_judged(scorer: Scorer, output: Any, target: Any, is_right: bool) -> None:
    """By text, by place and by number; a list of targets holds several right answers."""
    assert scored(scorer, output, target).is_pass is is_right


def test_fields_of_an_object_are_judged_one_by_one() -> None:
    """The value is the share that is right, and a score says which are wrong."""
    target = {"name": "Ada", "age": 36, "address": {"city": "London"}}
    text = "Here it is:\n```json\n" + json.dumps({**target, "age": 37, "more": 1}) + "\n```"
    found = scored(json_fields(), text, target)
    assert found.value == pytest.approx(2 / 3)
    assert not found.is_pass
    assert found.metadata == {"wrong": ["age"]}
    assert "37, wanted 36" in found.explanation
    assert scored(json_fields(absolute=1), text, target).is_pass
    assert scored(json_fields(fields=["address.city"]), text, target).is_pass
    with pytest.raises(ConfigError, match="'gone', which the target"):
        scored(json_fields(fields=["gone"]), text, target)
    for nothing in ("no object", "[1]", None, "{", "[" * 100_000):
        assert scored(json_fields(), nothing, target).value == 0.0


@given(plain, plain)
def test_equal_values_are_those_of_the_same_text(given_value: Any, wanted: Any) -> None:
    """Two JSON values are equal if their canonical texts are; a truth value is not a number."""
    same = json.dumps(given_value, sort_keys=True) == json.dumps(wanted, sort_keys=True)
    assert are_equal(given_value, wanted) is same
    assert are_equal(given_value, given_value)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["{}", "is {}.", "({})", "{} or"]))
def test_number_is_found_as_it_is_written(value: float, form: str) -> None:
    """In any of the forms that Python writes, and with separators."""
    assert list(find_numbers(form.format(value))) == [value]
    if abs(value) < 1e15:
        assert list(find_numbers(form.format(f"{value:,.3f}"))) == [float(f"{value:.3f}")]


@pytest.mark.parametrize("text", ["v1.2.3", "x1", "", "one", "1e", "..", "-", "a.5b"])
def test_parts_of_words_are_hardly_numbers(text: str) -> None:
    """Nothing raises, whatever is there."""
    assert all(isinstance(each, float) for each in find_numbers(text))


def test_wrong_options_and_targets_are_refused() -> None:
    """When the scorer is made, or with the first sample."""
    with pytest.raises(ConfigError, match="location"):
        match(cast("Any", "middle"))
    for wrong in ({"which": "best"}, {"absolute": -1.0}, {"relative": float("nan")}):
        with pytest.raises(ConfigError, match="number takes"):
            number(**cast("Any", wrong))
    others: list[dict[str, Any]] = [{"fields": []}, {"fields": "name"}, {"absolute": -1}]
    for other in others:
        with pytest.raises(ConfigError, match="json_fields takes"):
            json_fields(**cast("Any", other))
    with pytest.raises(ConfigError, match="is a number"):
        scored(number(), "1", "one")
    with pytest.raises(ConfigError, match="is an object"):
        scored(json_fields(), "{}", "one")


def test_scorer_that_was_not_made_is_refused() -> None:
    """Before a run: ``exact`` makes a scorer and is not one."""
    with pytest.raises(ConfigError, match=r"call it: exact\(\)"):
        Suite("s", samples(1), suite().solver, cast("Any", exact))


@pytest.mark.anyio
async def test_suite_runs_with_them(tmp_path: Path) -> None:
    """Two of them by their names, with one score each."""
    found = await ended(suite(3, scorers=[exact(), includes(), match("any")]), tmp_path / "run")
    assert (found.scored, found.passed) == (3, 3)
