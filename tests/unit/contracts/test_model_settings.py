"""How a model is asked: the narrowest setting counts, and what is wrong is refused with its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree import ConfigError, ModelSettings
from sessiontree.contracts.settings.model_settings import NO_SETTINGS, merge_settings
from sessiontree.testing.strategies import model_settings

Merge = Callable[..., ModelSettings]
THREE = st.tuples(*[st.none() | model_settings] * 3)
SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])


def narrowest_counts(merge: Merge, given_: tuple[ModelSettings | None, ...]) -> None:
    """Property: of each setting the last that is given counts; what nobody gives stays None."""
    found = merge(*given_)
    for name in ModelSettings.model_fields:
        said = [getattr(each, name) for each in given_ if each is not None]
        said = [value for value in said if value is not None]
        assert getattr(found, name) == (said[-1] if said else None)


@given(THREE)
def test_settings_merge_narrowest_wins(given_: tuple[ModelSettings | None, ...]) -> None:
    """Agent, session, message: each setting by itself."""
    narrowest_counts(merge_settings, given_)


def _widest_wins(*given_: ModelSettings | None) -> ModelSettings:
    return merge_settings(*reversed(given_))


def _whole_at_once(*given_: ModelSettings | None) -> ModelSettings:
    return next((each for each in reversed(given_) if each is not None), NO_SETTINGS)


def _falsy_is_absent(*given_: ModelSettings | None) -> ModelSettings:
    found: dict[str, object] = {}
    for each in given_:
        found |= {} if each is None else {name: value for name, value in each if value}
    return ModelSettings.model_validate(found)


@pytest.mark.parametrize("broken", [_widest_wins, _whole_at_once, _falsy_is_absent])
def test_merge_property_notices_a_wrong_merge(broken: Merge) -> None:
    """It fails for the other order, for whole values, and for a temperature of 0 that counts as none."""

    def fails(given_: tuple[ModelSettings | None, ...]) -> bool:
        try:
            narrowest_counts(broken, given_)
        except AssertionError:
            return True
        return False

    assert find(THREE, fails, settings=SEARCH)


@pytest.mark.parametrize(
    ("given_", "named"),
    [
        ({"max_tokens": 5}, "did you mean 'max_output_tokens'"),
        ({"temperature": -1}, "temperature"),
        ({"thinking": "much"}, "thinking"),
        ({"thinking": 0}, "thinking"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"on_length": "cry"}, "on_length"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_settings_name_what_is_wrong(given_: dict[str, Any], named: str) -> None:
    """The error says which setting it is, or the nearest name."""
    with pytest.raises(ConfigError, match=named):
        ModelSettings(**given_)
