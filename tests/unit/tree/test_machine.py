"""The tree machine through any order of events, judged by a second opinion after every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.tree.harness_fixtures import Harness
from tests.unit.tree.story_fixtures import STORIES
from tests.unit.tree.tree_strategies import TreeRules


@pytest.mark.covers(
    "REL-P9", "REL-P10", "REL-S13", "REL-S14", "REL-S15", "REL-S17", "REL-S18", "REL-S19", "REL-S20", "STP11"
)
def test_nothing_that_must_never_be_is_ever_found() -> None:
    """P9, P10, P12, S13 to S20, P33, S38: after every step of any history, crashes included."""
    # Making a failing history smaller takes longer than a test may; as found it is short enough to read.
    phases = (Phase.explicit, Phase.reuse, Phase.generate)
    run_state_machine_as_test(TreeRules, settings=settings(stateful_step_count=40, phases=phases))


@pytest.mark.parametrize("story", STORIES)
def test_stories_end_well(story: Callable[[Harness], None]) -> None:
    """The same invariants hold in the places that chance seldom finds."""
    story(Harness())
