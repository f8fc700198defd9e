"""Layers: they show what changed on them, and what is below stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.tree.state.table import Groups, Table, TableLayer

keys = st.integers(0, 4)
changes = st.lists(st.tuples(st.sampled_from(["put", "drop", "open"]), keys, st.integers(0, 9)), max_size=12)
moves = st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.sampled_from("xyz")), max_size=12)


@dataclass
class Count:
    """A record."""

    value: int

    def copy(self) -> Count:
        """Return a copy."""
        return Count(self.value)


def apply(table: Table[int, Count], model: dict[int, int], made: list[tuple[str, int, int]]) -> None:
    """Make the same changes to a table and a plain dict."""
    for what, key, value in made:
        if what == "put":
            table.put(key, Count(value))
            model[key] = value
        elif what == "drop":
            table.drop(key)
            model.pop(key, None)
        else:
            record = table.open(key)
            assert (record is None) is (key not in model)
            if record is not None:
                record.value = model[key] = value


def assert_same(table: Table[int, Count], model: dict[int, int]) -> None:
    """Compare a table with a plain dict by every way of reading it."""
    assert {key: count.value for key, count in table.items()} == model
    assert sorted(count.value for count in table.values()) == sorted(model.values())
    for key in range(5):
        found = table.get(key)
        assert (None if found is None else found.value) == model.get(key)
        assert (key in table) is (key in model)


def check_layers(
    make: Callable[[Table[int, Count]], Table[int, Count]],
    first: list[tuple[str, int, int]],
    second: list[tuple[str, int, int]],
) -> None:
    """A layer is a copy that is changed alone."""
    table: Table[int, Count] = Table()
    model: dict[int, int] = {}
    apply(table, model, first)
    layer, layer_model = make(table), dict(model)
    apply(layer, layer_model, second)
    assert_same(layer, layer_model)
    assert_same(table, model)


@given(changes, changes)
def test_layer_is_a_copy_that_is_changed_alone(
    first: list[tuple[str, int, int]], second: list[tuple[str, int, int]]
) -> None:
    """For any changes below and on it."""
    check_layers(TableLayer, first, second)


def test_table_that_shares_is_found() -> None:
    """The property fails where the layer is the table itself."""

    @settings(phases=(Phase.generate,), database=None, derandomize=True)
    @given(changes, changes)
    def property_of_a_shared_table(
        first: list[tuple[str, int, int]], second: list[tuple[str, int, int]]
    ) -> None:
        check_layers(lambda table: table, first, second)

    with pytest.raises(AssertionError):
        property_of_a_shared_table()


def test_missing_key_is_an_error_where_it_is_certain() -> None:
    """Indexing names the key."""
    with pytest.raises(KeyError, match="7"):
        Table[int, Count]()[7]


def move(groups: Groups, model: dict[str, list[str]], made: list[tuple[bool, str, str]]) -> None:
    """Make the same changes to groups and plain lists; a member is added once."""
    for adds, key, member in made:
        members = model.setdefault(key, [])
        if not adds:
            groups.discard(key, member)
            if member in members:
                members.remove(member)
        elif member not in members:
            groups.add(key, member)
            members.append(member)


def check_groups(
    make: Callable[[Groups], Groups], first: list[tuple[bool, str, str]], second: list[tuple[bool, str, str]]
) -> None:
    """Layered groups keep their own order and leave those below alone."""
    groups, model = Groups(), dict[str, list[str]]()
    move(groups, model, first)
    layer, layer_model = make(groups), {key: list(members) for key, members in model.items()}
    move(layer, layer_model, second)
    for key in "ab":
        assert layer.list_members(key) == layer_model.get(key, [])
        assert groups.list_members(key) == model.get(key, [])


@given(moves, moves)
def test_groups_lie_over_groups(
    first: list[tuple[bool, str, str]], second: list[tuple[bool, str, str]]
) -> None:
    """For any members added and taken out below and on them."""
    check_groups(Groups, first, second)


def test_groups_that_share_are_found() -> None:
    """The property fails where the layer is the groups themselves."""

    @settings(phases=(Phase.generate,), database=None, derandomize=True)
    @given(moves, moves)
    def property_of_shared_groups(
        first: list[tuple[bool, str, str]], second: list[tuple[bool, str, str]]
    ) -> None:
        check_groups(lambda groups: groups, first, second)

    with pytest.raises(AssertionError):
        property_of_shared_groups()
