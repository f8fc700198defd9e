"""Where hosts may run: what a program may ask of a node, and which nodes fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import ConfigError, SessionKind
from sessiontree.contracts.settings.placement import Placement, Placements

NAMES = st.from_regex(r"[a-c]([a-c._-]{0,2}[a-c])?", fullmatch=True)
LABELS = st.dictionaries(st.sampled_from(["zone", "team/disk"]), NAMES)
CONDITIONS = st.tuples(st.booleans(), st.lists(NAMES, min_size=1, max_size=3), st.booleans())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"main": {}}, "placement can't move 'main': Main stays on the node of the state directory"),
        ({"wroker": {}}, "placement names 'wroker', .*did you mean 'worker'"),
        ({"gateway": {}}, "placement names 'gateway', .*place 'branch' and 'worker'"),
        ({"worker": {"cpus": 1}}, "worker.cpus: no setting is called that; did you mean 'num_cpus'"),
        ({"worker": {"num_cpus": -1}}, "worker.num_cpus: .*greater than or equal to 0 .given: -1"),
        ({"worker": {"num_cpus": 1.5}}, "worker.num_cpus: .*1.5 is not a whole number"),
        ({"worker": {"num_cpus": float("inf")}}, "worker.num_cpus: .*finite"),
        ({"branch": {"resources": {"fast": -2}}}, "branch.resources.fast: .*greater than 0"),
        ({"branch": {"resources": {"CPU": 2}}}, "branch.resources: .*CPUs are num_cpus"),
        ({"branch": {"label": {"zone": "in()"}}}, "branch.label: .*'in..' is not a condition"),
        ({"branch": {"label": {"zone": ""}}}, "branch.label: .*'' is not a condition"),
        ({"branch": {"label": {"-": "x"}}}, "branch.label: .*'-' is not a label's key"),
        ({"branch": {"label": "spot"}}, "branch.label: "),
        ({"branch": {"label": {"-a/b": "!x"}}}, "branch.label: .*'-a/b' is not a label's key"),
        ({"branch": {"label": {"x" * 64 + "/b": "x"}}}, "branch.label: .*/b' is not a label's key"),
        ({"worker": {"num_cpus": 0.00001}}, "worker.num_cpus: .*1e-05 is less than 0.0001, the smallest"),
        ({"worker": {"resources": {"disk": 0.00001}}}, "worker.resources: .*1e-05 is less than 0.0001"),
    ],
)
def test_wrong_placement_is_named(wrong: dict[str, object], words: str) -> None:
    """Each wrong kind, member and value gives one error that says which and what to give."""
    with pytest.raises(ConfigError, match=words):
        Placements.from_given(wrong)


def test_nothing_placed_is_no_placement() -> None:
    """An empty mapping means the same as none; kinds that are not named stay."""
    assert Placements.from_given(None) is None
    assert Placements.from_given({}) is None
    placed = Placements.from_given({"worker": {}})
    assert placed is not None
    assert placed.group_by_kind() == {SessionKind.WORKER: Placement()}


Fits = Callable[[Placement, Mapping[str, str], Mapping[str, float]], bool]


def _check_labels(fits: Fits, condition: tuple[bool, list[str], bool], labels: dict[str, str]) -> None:
    is_negated, values, is_set = condition
    text = f"in({', '.join(values)})" if is_set else values[0]
    wanted = {*values} if is_set else {values[0]}
    placement = Placement(label={"zone": f"{'!' * is_negated}{text}"})
    assert fits(placement, labels, {}) == ((labels.get("zone") in wanted) != is_negated)


def _check_room(fits: Fits, asked: dict[str, int], offered: dict[str, int]) -> None:
    placement = Placement(num_cpus=asked.get("CPU", 0), resources={"fast": asked["fast"]})
    enough = offered.get("CPU", 0) >= asked.get("CPU", 0) and offered.get("fast", 0) >= asked["fast"]
    assert fits(placement, {}, offered) == enough


AMOUNTS = st.integers(1, 3)


@given(CONDITIONS, LABELS)
def test_labels_decide(condition: tuple[bool, list[str], bool], labels: dict[str, str]) -> None:
    """A condition holds for exactly the values that it names, or with ``!`` for all others."""
    _check_labels(Placement.fits, condition, labels)


@given(
    st.fixed_dictionaries({"fast": AMOUNTS}, optional={"CPU": AMOUNTS}),
    st.fixed_dictionaries({}, optional={"CPU": AMOUNTS, "fast": AMOUNTS}),
)
def test_total_resources_decide(asked: dict[str, int], offered: dict[str, int]) -> None:
    """A node fits if it has as much as one host reserves, whatever is in use now."""
    _check_room(Placement.fits, asked, offered)


def _any_label(placement: Placement, labels: Mapping[str, str], resources: Mapping[str, float]) -> bool:
    return Placement(resources=placement.resources, num_cpus=placement.num_cpus).fits({}, resources)


def test_planted_bug_is_found() -> None:
    """A match that ignores labels does not pass."""
    with pytest.raises(AssertionError):
        _check_labels(_any_label, (False, ["a"], False), {"zone": "b"})


def test_error_text_says_what_is_asked() -> None:
    """Errors about nodes repeat the whole placement."""
    asked: dict[str, Any] = {"num_cpus": 1, "resources": {"fast": 0.5}, "label": {"zone": "!spot"}}
    assert str(Placement(**asked)) == "label zone=!spot, 0.5 fast, num_cpus=1"
    assert str(Placement()) == "nothing in particular"
