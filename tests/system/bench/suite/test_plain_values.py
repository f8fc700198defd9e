"""Scores of any values: they are plain afterwards, or refused with one clear error."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import ConfigError
from sessiontree.bench import Score
from sessiontree.bench.suite.plain_values import format_value, to_json_text, to_plain_text

ANY_TEXT = st.text(st.characters())
ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | ANY_TEXT | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(ANY)
def test_every_value_has_a_text_that_a_file_can_hold(value: object) -> None:
    """As a message shows it, and as it is."""
    to_plain_text(value).encode()
    format_value(value).encode()


@given(ANY, ANY, ANY, ANY, ANY)
def test_score_is_plain_or_refused(
    value: object, passed: object, answer: object, explanation: object, metadata: object
) -> None:
    """Nothing else is ever committed."""
    try:
        made = Score(value, passed, answer, explanation, metadata)  # type: ignore[arg-type]
    except ConfigError:
        return
    assert type(made.value) is float
    assert made.passed is None or type(made.passed) is bool
    for text in (made.answer, made.explanation, to_json_text(made.metadata)):
        text.encode()
    assert json.loads(to_json_text(made.metadata)) == made.metadata


def test_scores_take_values_of_other_libraries() -> None:
    """NumPy's truth values and numbers, an answer that is a number, and none."""
    made = Score(np.float32(0.5), passed=np.bool_(True), answer=42, explanation=None)  # type: ignore[arg-type]
    assert (made.value, made.passed, made.answer, made.explanation) == (0.5, True, "42", "")
    assert made.is_pass is True
    assert Score(1.0, answer="\ud800").answer == "\\ud800"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"value": "1"}, "value is '1'; give a finite number"),
        ({"value": float("inf")}, "value is inf"),
        ({"value": 1.0, "passed": "no"}, "passed is 'no'; give True, False or None"),
        ({"value": 1.0, "passed": 1}, "passed is 1"),
        ({"value": 1.0, "metadata": {"x": object()}}, "metadata has no JSON form: TypeError"),
        ({"value": 1.0, "metadata": {"x": float("nan")}}, "metadata has no JSON form: ValueError"),
        ({"value": 1.0, "metadata": 3}, "give a dict"),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value),
)
def test_wrong_members_of_a_score_are_refused(members: dict[str, object], said: str) -> None:
    """The error says which one is wrong, and what to give."""
    with pytest.raises(ConfigError, match=said):
        Score(**members)  # type: ignore[arg-type]
