"""Vectors in memory: exact products over any number of blocks, and the best of them in a stable order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.memory.mirror.columns import VectorColumn, select_best


@pytest.mark.slow
@given(st.lists(st.integers(0, 12_000), min_size=1, max_size=4), st.integers(0, 2**32))
def test_products_are_exact_over_all_blocks(parts: list[int], seed: int) -> None:
    """Rows appended in parts of any size give the products of the whole."""
    chance = np.random.default_rng(seed)
    rows = chance.standard_normal((sum(parts), 3)).astype(np.float32)
    matrix, start = VectorColumn(3), 0
    for part in parts:
        matrix.extend(part)
        order = start + chance.permutation(part)
        matrix.put(order, rows[order])
        start += part
    query = chance.standard_normal(3).astype(np.float32)
    for count in {0, start // 2, start}:
        expected = rows[:count].astype(np.float64) @ query.astype(np.float64)
        assert matrix.scores(query, count) == pytest.approx(expected, abs=1e-4)
        assert matrix.scores(query, count, count // 3) == pytest.approx(expected[count // 3 :], abs=1e-4)


@pytest.mark.parametrize("zeros", [0, 5, 13])
def test_equal_vectors_have_equal_products(zeros: int) -> None:
    """Wherever they stand, to the last bit; otherwise records of one text would change places."""
    chance = np.random.default_rng(zeros)
    row, query = chance.standard_normal((2, 16)).astype(np.float32)
    query[chance.permutation(16)[:zeros]] = 0
    matrix = VectorColumn(16)
    for count in (1, 700, 3_001):
        start = matrix._rows
        matrix.extend(count)
        matrix.put(np.arange(start, start + count), np.tile(row, (count, 1)))
    for start in (0, 1, 2_047, 2_900):
        assert len(set(matrix.scores(query, 3_702, start).tolist())) == 1
    assert matrix.scores(query, 1)[0] == pytest.approx(float(row.astype(np.float64) @ query), abs=1e-5)


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=30), st.data(), st.integers(0, 31)
)
def test_best_are_sorted_and_ties_keep_their_order(
    values: list[float], data: st.DataObject, most: int
) -> None:
    """The same as sorting all candidates, however many scores are equal."""
    candidates = data.draw(st.lists(st.sampled_from(range(len(values))), unique=True).map(sorted))
    expected = sorted(candidates, key=lambda place: (-values[place], place))[:most]
    found = select_best(np.array(values, np.float32), np.array(candidates, np.intp), most)
    assert found.tolist() == expected


@given(st.integers(0, 300), st.integers(1, 12), st.sampled_from([2, 50, 10**6]), st.integers(0, 2**32))
def test_best_of_many_are_those_of_sorting_all(more: int, most: int, values: int, seed: int) -> None:
    """Where groups are compared first, with many equal scores and with candidates left out."""
    chance = np.random.default_rng(seed)
    scores = chance.integers(0, values, 150 * most + more).astype(np.float32)
    candidates = np.flatnonzero(chance.random(len(scores)) < 0.9)
    expected = candidates[np.lexsort((candidates, -scores[candidates]))][:most]
    assert select_best(scores, candidates, most).tolist() == expected.tolist()


def test_growing_copies_nothing() -> None:
    """What the matrix holds stays where it is when rows are added."""
    matrix = VectorColumn(2)
    matrix.extend(5_000)
    before = [block.ctypes.data for block in matrix._blocks]
    matrix.extend(50_000)
    assert [block.ctypes.data for block in matrix._blocks][: len(before)] == before
