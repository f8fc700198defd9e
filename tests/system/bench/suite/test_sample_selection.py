"""The selection of samples: ids, patterns, ranges and tags."""

from __future__ import annotations

import pytest

from sessiontree import ConfigError
from sessiontree.bench import Sample
from sessiontree.bench.suite.sample_selection import select_samples

SAMPLES = [
    Sample("add-1", metadata={"tags": ["easy", "sum"]}),
    Sample("add-2", metadata={"tags": "hard"}),
    Sample("a,b"),
    Sample("1..2", metadata={"tags": ["hard"]}),
]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["add-2"], ["add-2"]),
        (["add-2, add-1"], ["add-1", "add-2"]),
        (["add-*"], ["add-1", "add-2"]),
        (["2..3"], ["add-2", "a,b"]),
        (["4..99"], ["1..2"]),
        (["tag:hard"], ["add-2", "1..2"]),
        (["a,b"], ["a,b"]),
        (["1..2"], ["1..2"]),
        (["tag:easy", "3..3"], ["add-1", "a,b"]),
    ],
)
def test_selection_names_samples(wanted: list[str], found: list[str]) -> None:
    """In the suite's order, each once; what is an id is that sample, whatever else it looks like."""
    assert [sample.id for sample in select_samples(SAMPLES, wanted)] == found


@pytest.mark.parametrize("word", ["add-3", "tag:none", "7..9", "x*"])
def test_what_names_nothing_is_refused(word: str) -> None:
    """With the forms, and what is near."""
    with pytest.raises(ConfigError, match="no sample of the suite; give an id, a pattern"):
        select_samples(SAMPLES, [word])
    with pytest.raises(ConfigError, match="did you mean 'add-"):
        select_samples(SAMPLES, ["add-3"])
