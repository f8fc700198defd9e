"""Who sees what: masks over the mirror against the rule in plain words, on random trees."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.values.memory import RECORD_TYPES, MemoryRecord, MemoryScope, Source
from sessiontree.memory.mirror.row_index import (
    Mask,
    RowIndex,
    select_overlapping,
    select_path,
    select_tree,
    select_types,
    select_visible,
)
from sessiontree.memory.tables import MIRROR_COLUMNS, ROW_ID, build_schema, to_table
from tests.unit.memory.record_strategies import PATHS, TREES, ToyEmbedder, may_see, scopes, stored_records

See = Callable[[RowIndex, MemoryScope | None, Collection[str]], Mask]
finished_trees = st.frozensets(st.sampled_from((*TREES, "elsewhere")))


def mirror_of(records: list[MemoryRecord]) -> RowIndex:
    """Return a mirror of records just written."""
    mirror = RowIndex(16)
    mirror.append(records, ToyEmbedder().embed([record.text for record in records]))
    return mirror


def check_visible(
    see: See, records: list[MemoryRecord], scope: MemoryScope | None, finished: frozenset[str], dead: set[int]
) -> None:
    """A row is seen if and only if it is alive and the rule says so."""
    mirror = mirror_of(records)
    mirror.drop(np.array(sorted(dead), np.intp))
    expected = [n not in dead and may_see(record, scope, finished) for n, record in enumerate(records)]
    assert see(mirror, scope, finished).tolist() == expected


@pytest.mark.covers("MEM3")
@pytest.mark.slow
@given(stored_records(), finished_trees, st.data())
def test_scope_is_the_rule(
    records: list[MemoryRecord], finished: frozenset[str], data: st.DataObject
) -> None:
    """Own path and ancestors, what finished trees left, never siblings or trees still at work."""
    own = st.sampled_from([record.scope for record in records]) if records else scopes
    scope = data.draw(st.one_of(st.none(), scopes, own, own))
    dead = data.draw(st.sets(st.sampled_from(range(len(records))))) if records else set()
    check_visible(select_visible, records, scope, finished, dead)


@pytest.mark.slow
@given(
    stored_records(),
    st.frozensets(st.sampled_from(RECORD_TYPES)),
    st.sampled_from((*PATHS, "src/", "nowhere")),
)
def test_filters_are_what_they_say(records: list[MemoryRecord], types: frozenset[str], path: str) -> None:
    """Types, a path and what is below it, and a tree."""
    mirror, rows = mirror_of(records), len(records)
    chosen = select_types(mirror, types, rows)  # type: ignore[arg-type]
    assert chosen.tolist() == [not types or record.type in types for record in records]
    below = [
        record.source is not None and f"{Source.of(record.source).path}/".startswith(f"{path.rstrip('/')}/")
        for record in records
    ]
    assert select_path(mirror, path, rows).tolist() == below
    assert select_tree(mirror, "t1", rows).tolist() == [record.scope.tree_id == "t1" for record in records]


@pytest.mark.slow
@given(stored_records(), st.none() | st.integers(1, 40), st.none() | st.integers(1, 40))
def test_lines_overlap_as_sources_do(
    records: list[MemoryRecord], first: int | None, last: int | None
) -> None:
    """A range of lines meets a source as :meth:`Source.overlaps` says; no bound is no bound."""
    found = select_overlapping(mirror_of(records), first, last, len(records)).tolist()
    for record, overlaps in zip(records, found, strict=True):
        source = Source("x") if record.source is None else Source.of(record.source)
        assert overlaps == source.overlaps(first or 1, last or 10**6)


@pytest.mark.slow
@given(stored_records(), st.permutations(range(25)), st.integers(0, 5))
def test_mirror_is_the_same_written_and_read(
    records: list[MemoryRecord], numbers: list[int], start: int
) -> None:
    """Rows taken from the table make the records that were written, found by number as by id."""
    numbers = sorted(numbers[: len(records)])
    table = to_table(
        records, ToyEmbedder().embed([record.text for record in records]), build_schema("toy", 16)
    )
    read, written = RowIndex(16), mirror_of(records)
    read.load(table.select(list(MIRROR_COLUMNS)).append_column(ROW_ID, pa.array(numbers, pa.uint64())))
    written.number([record.id for record in records][::-1], np.array(numbers[::-1], np.int64))
    for mirror in (read, written):
        assert [mirror.record(n, record.text) for n, record in enumerate(records)] == records
        assert not mirror.unnumbered
        asked = np.arange(start, start + 25)
        expected = [numbers.index(number) if number in numbers else -1 for number in asked.tolist()]
        assert mirror.find_positions(asked).tolist() == expected
        assert mirror.list_living_trees() == {record.scope.tree_id for record in records}


def with_siblings(mirror: RowIndex, scope: MemoryScope | None, finished: Collection[str]) -> Mask:
    """Planted: a path is taken for a mere beginning of a text."""
    mask = select_visible(mirror, scope, finished)
    if scope is not None:
        for row in range(mirror.rows):
            own = mirror.trees.at(row) == scope.tree_id
            mask[row] |= own and scope.session.startswith(mirror.sessions.at(row))
    return mask


def with_other_agents(mirror: RowIndex, scope: MemoryScope | None, finished: Collection[str]) -> Mask:
    """Planted: what finished is everybody's."""
    mask = select_visible(mirror, scope, finished)
    for row in range(mirror.rows):
        mask[row] |= mirror.trees.at(row) in finished
    return mask


def with_the_dead(mirror: RowIndex, scope: MemoryScope | None, finished: Collection[str]) -> Mask:
    """Planted: what was forgotten is still seen."""
    return np.array([may_see(mirror.record(n, ""), scope, finished) for n in range(mirror.rows)])


@pytest.mark.parametrize("planted", [with_siblings, with_other_agents, with_the_dead])
def test_planted_scope_is_found(planted: See) -> None:
    """A rule that shows too much fails the property."""
    records = [
        MemoryRecord(f"{n:032x}", "fact", "x", None, "session", MemoryScope(tree, session, agent, "/w"), 0)
        for n, (tree, session, agent) in enumerate(
            [("t1", "main/b1", "a1"), ("t1", "main/b10", "a1"), ("t2", "main", "a2"), ("t1", "main", "a1")]
        )
    ]
    with pytest.raises(AssertionError):
        check_visible(planted, records, MemoryScope("t1", "main/b10", "a1", "/w"), frozenset(("t2",)), {3})
