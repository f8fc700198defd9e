"""Samples from lists, functions and files: stable ids, and one clear error for what can't be read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessiontree import ConfigError
from sessiontree.bench import Sample, Score, Suite
from sessiontree.bench.suite.samples import SampleData, load_samples
from tests.system.bench.suite_fixtures import exact, solve

MEMBERS: list[dict[str, Any]] = [
    {"id": "a", "input": "one", "target": {"deep": [1, None]}, "metadata": {"kind": "x"}},
    {"id": "b", "input": "two", "files": "b"},
]
SAMPLES = [Sample(**members) for members in MEMBERS]


def read(samples: Any, folder: Path) -> list[Sample]:
    """Return the samples of a suite."""
    return load_samples(Suite("s", samples, solve, exact, folder=folder))


def jsonl(path: Path, *lines: str) -> Path:
    """Write lines."""
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def test_every_source_gives_the_same_samples(tmp_path: Path) -> None:
    """Samples, objects, a function, JSONL with empty lines, Parquet with JSON text or objects."""
    jsonl(tmp_path / "s.jsonl", json.dumps(MEMBERS[0]), "", json.dumps(MEMBERS[1]))
    columns = {
        "id": ["a", "b"],
        "input": ["one", "two"],
        "metadata": ['{"kind": "x"}', None],
        "files": [None, "b"],
        "target": [{"deep": [1, None]}, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "s.parquet")
    for source in (SAMPLES, MEMBERS, lambda: iter(SAMPLES), "s.jsonl", tmp_path / "s.jsonl", "s.parquet"):
        assert read(source, tmp_path) == SAMPLES
    assert len({SampleData.of(each, 0).digest for each in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['{"id": "a"}', "{"], r"bad\.jsonl, line 2 is not JSON"),
        (['{"id": "a"}', '{"id": "a"}'], "'a' is there twice, at line 1 and at line 2"),
        (['{"input": "x"}'], "line 1: .*id is None; give text of 1 to 200"),
        (["[1]"], r"line 1 is \[1\]"),
        (['{"id": "a", "inptu": "x"}'], "line 1: no member is called 'inptu'"),
        (['{"id": ""}'], "line 1: .*id is ''; give text of 1 to 200"),
        (['{"id": "a\\u0007"}'], "characters that can be shown"),
        ([json.dumps({"id": "x" * 201})], "give text of 1 to 200"),
        (['{"id": "a", "input": 5}'], "sample 'a': input is 5; give text"),
        (['{"id": "a", "metadata": 5}'], "sample 'a': metadata is 5; give an object"),
        ([], "has no samples"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path: Path, lines: list[str], said: str) -> None:
    """Nothing of such a file is used."""
    jsonl(tmp_path / "bad.jsonl", *lines)
    with pytest.raises(ConfigError, match=said):
        read("bad.jsonl", tmp_path)


@pytest.mark.parametrize("name", ["none.jsonl", "none.parquet", "s.csv", "damaged.parquet"])
def test_files_that_can_not_be_read_are_named(tmp_path: Path, name: str) -> None:
    """Missing, of another form, or damaged."""
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(ConfigError, match=name):
        read(name, tmp_path)


def failing() -> list[Sample]:
    """Fail at once."""
    raise KeyError("planted")


def ending() -> list[Sample]:
    """End the program."""
    sys.exit(3)


def breaking() -> Iterator[Sample]:
    """Fail behind the first sample."""
    yield SAMPLES[0]
    raise KeyError("planted")


@pytest.mark.parametrize(
    "source", [failing, ending, breaking, breaking()], ids=["raises", "ends", "later", "list"]
)
def test_what_a_function_of_samples_raises_is_one_error(tmp_path: Path, source: Any) -> None:
    """It names the suite."""
    with pytest.raises(
        ConfigError, match=r"suite 's': its samples can't be read: (KeyError: 'planted'|SystemExit: 3)"
    ):
        read(source, tmp_path)


def test_numbers_are_ids_too(tmp_path: Path) -> None:
    """As text."""
    assert [each.id for each in read([{"id": 7}], tmp_path)] == ["7"]


def test_targets_have_a_json_form() -> None:
    """Else nobody could compare two runs."""
    with pytest.raises(ConfigError, match="sample 'a': target and metadata must be JSON"):
        SampleData.of(Sample("a", target=object()), 0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1"])
def test_scores_are_finite_numbers(value: Any) -> None:
    """Nothing else can be averaged."""
    with pytest.raises(ConfigError, match="finite number"):
        Score(value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": " "}, "a suite's name is ' '"),
        ({"solver": 5}, "solver is 5"),
        ({"scorers": []}, "has no scorer"),
        ({"scorers": [exact, exact]}, "two scorers are named 'exact'"),
        ({"approvals": "always"}, "approvals 'always' is not one of"),
        ({"epochs": 0}, "epochs is 0"),
        ({"sample_timeout_s": 0}, "give seconds above 0"),
        ({"tree": {"runtime": None}}, "tree has 'runtime'"),
        ({"budget": 5}, "suite 's': budget is 5; give a Budget"),
        ({"rules": [5]}, "suite 's': rules.0 is 5; give a Rule"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
def test_wrong_suites_are_refused(options: dict[str, Any], said: str) -> None:
    """Where they are made, naming the suite."""
    given: dict[str, Any] = {"name": "s", "samples": SAMPLES, "solver": solve, "scorers": exact, **options}
    with pytest.raises(ConfigError, match=said):
        Suite(**given)


def test_relative_paths_start_at_the_suites_file() -> None:
    """Unless a folder is given."""
    assert Suite("s", SAMPLES, solve, exact).folder == Path(__file__).parent
