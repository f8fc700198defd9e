"""Bringing facts of earlier releases to the current form."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.contracts.errors import JournalCorrupt, JournalTooNew
from sessiontree.journal.replay import Upcasters


def name_lines(fact: dict[str, Any]) -> dict[str, Any]:
    """Version 2 calls the text ``lines``."""
    return {"lines": fact["text"].split("\n")}


def count_lines(fact: dict[str, Any]) -> dict[str, Any]:
    """Version 3 counts them."""
    return {**fact, "count": len(fact["lines"])}


STEPS = {("said", 1): name_lines, ("said", 2): count_lines}
CURRENT = {"said": 3, "heard": 1}


def test_fact_passes_every_step_up_to_its_current_version() -> None:
    """Each step is applied once, in order, and the argument is left as it was."""
    upcasters = Upcasters(STEPS, CURRENT)
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
    assert Upcasters(STEPS, CURRENT).upcast(fact) is fact


@pytest.mark.parametrize("fact", [{"kind": "said", "v": 4}, {"kind": "sung", "v": 1}])
def test_fact_of_a_later_release_is_too_new(fact: dict[str, Any]) -> None:
    """An unknown kind or a version beyond the current one asks for a later release."""
    with pytest.raises(JournalTooNew, match="later release"):
        Upcasters(STEPS, CURRENT).upcast(fact)


@pytest.mark.covers("REL-L70")
@pytest.mark.parametrize(
    "fact", [{}, {"kind": "said"}, {"kind": 1, "v": 1}, {"kind": "said", "v": True}, {"kind": "said", "v": 0}]
)
def test_fact_no_release_wrote_is_corrupt(fact: dict[str, Any]) -> None:
    """A fact without kind and version, or of a version before the first, is damage."""
    with pytest.raises(JournalCorrupt):
        Upcasters(STEPS, CURRENT).upcast(fact)


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
        Upcasters(steps, CURRENT)
