"""Results: the tables of finished, running and interrupted runs, in memory and as Parquet."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from sessiontree import ConfigError, FunctionModel, Runtime, SessionTree, TreeNotFound, Usage
from sessiontree.api.runtime.runtime import SharedRuntimes
from sessiontree.api.stored.journaled_trees import StoredFacts
from sessiontree.bench import RunResults
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.result_tables import ROWS_PER_GROUP, SCHEMAS, record_batches, write_tables
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.run_results import TABLES
from sessiontree.journal.claim import list_journal_dirs
from sessiontree.journal.journal import Journal
from tests.system.bench.recorded_run_fixtures import (
    HOSTILE,
    SUMS,
    GivenSample,
    answer,
    anyio_backend,
    make_run,
    passes,
    run_sums,
    run_sums_with_a_loss,
    tree_of,
)

__all__ = ["anyio_backend"]  # a fixture


@pytest.fixture(scope="module")
async def sums(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> RunResults:
    """A run of two epochs that really ran, with one attempt that was lost."""
    return await run_sums_with_a_loss(tmp_path_factory.mktemp("sums") / "run", epochs=2)


def run_with_scores(run_dir: Path, text: str) -> RunResults:
    """Return a run of one sample whose ledger holds this text as its scores."""
    make_run(run_dir, passes(1))
    with closing(sqlite3.connect(run_dir / "ledger.sqlite")) as ledger:
        ledger.execute("UPDATE scores SET scores = ?", (text,))
        ledger.commit()
    return RunResults(run_dir)


SCORE = {"value": 1.0, "passed": True, "answer": "a", "explanation": "", "metadata": {}}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '{"exact": 5}',
        json.dumps({"exact": {**SCORE, "value": "1"}}),
        json.dumps({"exact": {**SCORE, "passed": None}}),
        json.dumps({"exact": {"value": 1.0}}),
        "null",
        "",
    ],
)
def test_scores_that_are_not_scores_are_one_error(tmp_path: Path, text: str) -> None:
    """The ledger is damaged; what its text is at least is said."""
    results = run_with_scores(tmp_path / "run", text)
    for read in (results.to_arrow, results.write, results.report):
        if text:
            with pytest.raises(ConfigError, match="the ledger holds scores that can't be read"):
                read()
        else:
            read()


def test_values_whose_sum_overflows_are_one_error_of_the_report(tmp_path: Path) -> None:
    """Report and comparison name the score; the tables hold the values."""
    large, small = (
        RunResults(make_run(tmp_path / name, [GivenSample(f"s{n}", {"size": size}) for n in range(3)]))
        for name, size in (("large", 1e308), ("small", 1.0))
    )
    with pytest.raises(ConfigError, match=r"score 'size' can't be reported: .* finite"):
        large.report()
    with pytest.raises(ConfigError, match=r"score 'size' can't be compared: .* finite"):
        large.compare(small)
    assert large.to_arrow()["value"].to_pylist() == [1e308] * 3


def written(results: RunResults, table: str) -> pa.Table:
    """Return a table as other programs read it."""
    return ds.dataset(results.run_dir / "results" / table).to_table()


def journaled_usage(run_dir: Path) -> dict[str, Usage]:
    """Return what each tree used according to the facts of all journals, read without what is tested."""
    used: dict[str, Usage] = defaultdict(Usage)
    for place in list_journal_dirs(run_dir / "state"):
        with Journal.open(place, read_only=True) as journal:
            for row in journal.trees():
                for record in journal.read(row.tree_id):
                    for fact in record.to_json_parts():
                        if fact["kind"] == "usage_charged":
                            used[row.tree_id] += Usage.from_wire(fact["usage"])
    return used


def test_tables_have_the_columns_that_are_documented(sums: RunResults) -> None:
    """In memory and on the disk, with the same types; the documentation lists them all."""
    sums.write()
    text = (Path(__file__).parents[4] / "docs" / "results.md").read_text("utf-8")
    for table in TABLES:
        assert sums.to_arrow(table).schema.equals(SCHEMAS[table])
        assert written(sums, table).schema.equals(SCHEMAS[table])
        section = text.partition(f"### `{table}`")[2].partition("\n##")[0]
        listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert listed == SCHEMAS[table].names, table


def test_samples_hold_a_row_for_each_epoch(sums: RunResults) -> None:
    """What was scored, with its error, in the suite's order."""
    rows = sums.to_arrow().to_pylist()
    assert [(row["sample_id"], row["epoch"]) for row in rows] == [
        (sample.id, epoch) for sample in SUMS for epoch in (1, 2)
    ]
    by_id = {row["sample_id"]: row for row in rows}
    assert by_id["sum-1-1"]["passed"] is True
    assert by_id["sum-1-1"]["value"] == 1.0
    assert by_id["sum-1-1"]["output"] == '"2"'
    assert [score["name"] for score in by_id["sum-1-1"]["scores"]] == ["exact", "near"]
    assert by_id["sum-2-3"]["passed"] is False
    assert by_id["sum-2-3"]["scores"][1]["value"] == 0.5
    assert by_id[HOSTILE]["status"] == "error"
    assert by_id[HOSTILE]["error_kind"] == "ValueError"
    assert by_id[HOSTILE]["error"] == f"{HOSTILE} is not a sum \x1b[31m"
    assert {row["state"] for row in rows} == {"scored", "undecided"}
    assert by_id[HOSTILE]["passed"] is None


def test_usage_is_that_of_the_journals(sums: RunResults) -> None:
    """Sums over whole trees, by sample, epoch and model, are those of the facts; lost attempts are apart."""
    used = journaled_usage(sums.run_dir)
    rows = sums.to_arrow("usage").to_pylist()
    trees = {(row["sample_id"], row["epoch"]): row["tree_id"] for row in sums.to_arrow("samples").to_pylist()}
    scored = {(row["sample_id"], row["epoch"]): row for row in rows if row["scored"]}
    assert scored.keys() == trees.keys()
    for key, row in scored.items():
        expected = used.pop(trees[key], Usage())
        assert (row["input_tokens"], row["output_tokens"], row["turns"], row["tool_calls"]) == (
            expected.input_tokens,
            expected.output_tokens,
            expected.turns,
            expected.tool_calls,
        )
        assert row["cost_usd"] == pytest.approx(expected.cost_usd)
    assert scored["sum-1-1", 1]["input_tokens"] == 20  # a Worker and Main said "2"
    assert scored["sum-1-1", 1]["sessions"] == 2
    (lost,) = (row for row in rows if not row["scored"])
    ((_, expected),) = used.items()
    assert (lost["sample_id"], lost["epoch"], lost["model"]) == ("sum-1-1", 1, "adder")
    assert (lost["input_tokens"], lost["turns"]) == (expected.input_tokens, expected.turns)
    assert lost["input_tokens"] > 0


def test_sessions_are_those_of_the_scored_trees(sums: RunResults) -> None:
    """Each tree's Main and Worker, with what they used."""
    rows = sums.to_arrow("sessions").to_pylist()
    trees = {row["tree_id"] for row in sums.to_arrow().to_pylist()}
    assert {row["tree_id"] for row in rows} == trees
    kinds = {(row["session_id"], row["kind"], row["parent"]) for row in rows}
    assert kinds == {("main", "main", None), ("main/w1", "worker", "main")}
    totals = {row["sample_id"]: 0 for row in rows}
    for row in rows:
        totals[row["sample_id"]] += row["input_tokens"]
    assert totals["sum-1-1"] == 2 * 20


def test_events_are_the_facts_of_all_attempts(sums: RunResults) -> None:
    """One row per fact, in order, with its text; also those of the lost attempt."""
    rows = sums.to_arrow("events").to_pylist()
    facts = {}
    for place in list_journal_dirs(sums.run_dir / "state"):
        with Journal.open(place, read_only=True) as journal:
            facts.update({tree.tree_id: journal.read(tree.tree_id) for tree in journal.trees()})
    found = defaultdict(list)
    for row in rows:
        found[row["tree_id"]].append(row)
    assert found.keys() == facts.keys()
    for tree_id, records in facts.items():
        assert [row["text"] for row in found[tree_id]] == [record.text for record in records]
        assert [row["seq"] for row in found[tree_id]] == [record.seq for record in records]
        assert [row["kind"] for row in found[tree_id]] == [record.to_json()["kind"] for record in records]
        assert [row["session"] for row in found[tree_id]] == [record.session for record in records]


async def test_events_come_from_the_journals_of_all_shards(tmp_path: Path) -> None:
    """Trees in several journals are found; a tree that no journal holds is reported."""
    state, workspace = tmp_path / "state", tmp_path / "workspace"
    workspace.mkdir()
    trees = []
    async with Runtime(state, backend="local") as one, Runtime(state, backend="local") as other:
        for runtime in (one, other, one):
            model = FunctionModel(answer, name="adder")
            async with SessionTree(workspace, model=model, runtime=runtime) as tree:
                await tree.main.send("hello")
                trees.append(tree.tree_id)
    assert len(list_journal_dirs(state)) == 2
    with StoredFacts(state) as facts:
        for tree_id in trees:
            assert [each.seq for each in facts.read(tree_id)][:3] == [1, 2, 3]
        with pytest.raises(TreeNotFound):
            list(facts.read("t0"))
    run_dir = make_run(tmp_path, passes(1))
    report = RunResults(run_dir).write(["events"])
    assert report.rows == {"events": 0}
    assert list(report.unreadable) == [tree_of(0, 1, 1)]


async def test_events_of_another_node_are_fetched_when_an_attempt_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scored or not, they are there without the other node's disk; a damaged file is named."""
    monkeypatch.setattr(SharedRuntimes, "find_journal", lambda sharing, tree_id: None)
    results = await run_sums(tmp_path / "run")
    tree_ids = {str(each) for (each,) in RecordedRun(results.run_dir).rows("SELECT tree_id FROM attempts")}
    with StoredFacts(results.run_dir / "state") as stored:
        expected = {tree_id: list(stored.read(tree_id)) for tree_id in tree_ids}
    shutil.rmtree(results.run_dir / "state")
    with RunFacts(results.run_dir) as facts:
        assert {tree_id: list(facts.read(tree_id)) for tree_id in tree_ids} == expected
        with pytest.raises(TreeNotFound):
            list(facts.read("t0"))
    report = results.write()
    assert report.unreadable == {}
    assert report.rows["events"] == sum(map(len, expected.values()))
    damaged = min(tree_ids)
    (results.run_dir / "fetched" / f"{damaged}.jsonl").write_text("[1]\n")
    assert list(results.write(["events"]).unreadable) == [damaged]


def test_writing_again_makes_no_duplicates(tmp_path: Path) -> None:
    """Parts hold fixed ranges of samples; more epochs change rows, not ranges, and old parts go."""
    run_dir = make_run(tmp_path / "run", passes(*[1] * 10))
    run = RecordedRun(run_dir)
    results = run_dir / "results"
    for _ in range(2):
        write_tables(run, results, ["samples"], size=4)
        assert sorted(path.name for path in (results / "samples").iterdir()) == [
            f"part-{number:06d}.parquet" for number in range(3)
        ]
        assert [pq.read_metadata(path).num_rows for path in sorted((results / "samples").iterdir())] == [
            4,
            4,
            2,
        ]
    make_run(run_dir, [GivenSample(f"s{index}", {"exact": 1.0}, epoch=2) for index in range(10)])
    (results / "samples" / "part-000007.parquet").write_bytes(b"of an earlier write")
    write_tables(run, results, ["samples"], size=4)
    table = ds.dataset(results / "samples").to_table()
    keys = list(zip(table["sample_id"].to_pylist(), table["epoch"].to_pylist(), strict=True))
    assert keys == [(f"s{index}", epoch) for index in range(10) for epoch in (1, 2)]


def test_interrupted_write_leaves_whole_parts_and_no_row_twice(tmp_path: Path) -> None:
    """A part that can't be replaced stops the write; all parts can be read, and the next write is whole."""
    run_dir = make_run(tmp_path / "run", passes(*[0] * 10))
    run, samples = RecordedRun(run_dir), run_dir / "results" / "samples"
    write_tables(run, run_dir / "results", ["samples"], size=4)
    make_run(run_dir, passes(*[1] * 10))
    old = samples / "part-000001.parquet"
    kept = old.read_bytes()
    old.unlink()
    old.mkdir()
    with pytest.raises(OSError, match="part-000001"):
        write_tables(run, run_dir / "results", ["samples"], size=4)
    old.rmdir()
    old.write_bytes(kept)
    table = ds.dataset(samples).to_table()
    assert table["sample_id"].to_pylist() == [f"s{index}" for index in range(10)]
    assert table["passed"].to_pylist() == [True] * 4 + [False] * 6
    assert [path for path in samples.iterdir() if path.name.startswith(".")] == []
    write_tables(run, run_dir / "results", ["samples"], size=4)
    assert ds.dataset(samples).to_table()["passed"].to_pylist() == [True] * 10


WRITER = """
import sys
from pathlib import Path
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.result_tables import write_tables
run = RecordedRun(sys.argv[1])
print("ready", flush=True)
while True:
    write_tables(run, Path(sys.argv[1], "results"), ["samples", "usage"], size=50)
"""


@pytest.mark.slow
def test_killed_writer_leaves_what_can_be_read(tmp_path: Path) -> None:
    """A reader finds every sample once, while it writes and after it was killed at any moment."""
    run_dir = make_run(tmp_path / "run", passes(*[1] * 300))
    samples = run_dir / "results" / "samples"
    RunResults(run_dir)
    write_tables(RecordedRun(run_dir), run_dir / "results", ["samples"], size=50)
    for delay in range(2):
        command = [sys.executable, "-c", WRITER, str(run_dir)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            for _ in range(5 + 5 * delay):
                assert len(set(ds.dataset(samples).to_table()["sample_id"].to_pylist())) == 300
            os.kill(program.pid, signal.SIGKILL)
        found = ds.dataset(samples).to_table()["sample_id"].to_pylist()
        assert sorted(found) == sorted(f"s{index}" for index in range(300))
    write_tables(RecordedRun(run_dir), run_dir / "results", ["samples"], size=50)
    assert [path.name for path in samples.iterdir() if path.name.startswith(".")] == []


def test_run_that_goes_on_shows_what_there_is(tmp_path: Path) -> None:
    """Waiting, leased, scored and given-up samples each have a row; nothing is finished before all are."""
    run_dir = make_run(
        tmp_path / "run",
        [
            GivenSample("waits", state="waiting"),
            GivenSample("runs", state="leased"),
            GivenSample("done", {"exact": 1.0}, lost=2),
            GivenSample("lost", state="failed", lost=1, error_kind="EngineLost", error="Ray is gone"),
        ],
    )
    results = RunResults(run_dir)
    counts = results.counts
    assert (counts.waiting, counts.leased, counts.scored, counts.failed) == (1, 1, 1, 1)
    assert (counts.total, counts.unfinished, results.is_finished) == (4, 2, False)
    rows = {row["sample_id"]: row for row in results.to_arrow().to_pylist()}
    assert [rows[each]["state"] for each in ("waits", "runs", "done", "lost")] == [
        "waiting",
        "leased",
        "scored",
        "failed",
    ]
    assert (rows["done"]["attempts"], rows["done"]["scores"][0]["value"]) == (3, 1.0)
    assert json.loads(rows["done"]["scores"][0]["metadata"]) == {"position": 2}
    assert (rows["lost"]["error_kind"], rows["lost"]["tree_id"]) == ("EngineLost", tree_of(3, 1, 2))
    assert rows["waits"]["passed"] is None
    assert rows["waits"]["scores"] == []
    assert repr(results) == "RunResults(suite='sums', scored=1, failed=1, unfinished=2)"


def test_usage_adds_up_by_model(tmp_path: Path) -> None:
    """Sessions of two models in one tree make two rows."""
    run_dir = make_run(tmp_path / "run", [GivenSample("s", {"exact": 1.0}, models=("big", "small", "small"))])
    rows = RunResults(run_dir).to_arrow("usage").to_pylist()
    assert [(row["model"], row["sessions"], row["input_tokens"], row["trees"]) for row in rows] == [
        ("big", 1, 100, 1),
        ("small", 2, 200, 1),
    ]


def test_rows_are_taken_in_groups() -> None:
    """However many there are, only so many are in memory at a time."""
    taken = 0

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal taken
        for number in range(1, 2 * ROWS_PER_GROUP + 2):
            taken = number
            yield ("s", 1, "m", True, 1, 1, 0, 0, 0.0, 0, 0)

    sizes = []
    for batch in record_batches("usage", rows()):
        sizes.append(batch.num_rows)
        assert taken <= sum(sizes) + 1
    assert sizes == [ROWS_PER_GROUP, ROWS_PER_GROUP, 1]


def test_run_without_samples_has_empty_tables(tmp_path: Path) -> None:
    """A reader finds the columns."""
    results = RunResults(make_run(tmp_path / "run", []))
    report = results.write()
    assert report.rows == dict.fromkeys(TABLES, 0)
    assert written(results, "events").schema.equals(SCHEMAS["events"])


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A directory without a ledger, a file that is not a ledger, a table that does not exist."""
    with pytest.raises(ConfigError, match=r"holds no run: it has no ledger\.sqlite"):
        RunResults(tmp_path)
    (tmp_path / "ledger.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match="can't be read"):
        RunResults(tmp_path)
    results = RunResults(make_run(tmp_path / "run", passes(1)))
    with pytest.raises(
        ConfigError, match="'scores'; there are samples, history, commands, sessions, events, usage"
    ):
        results.to_arrow("scores")
    with pytest.raises(ConfigError, match="'scores'"):
        results.write(["samples", "scores"])


WITHOUT_PANDAS = """
import sys
sys.modules["pandas"] = None
from sessiontree import ConfigError
from sessiontree.bench import RunResults
try:
    RunResults(sys.argv[1]).to_pandas()
except ConfigError as error:
    print(error)
"""


def test_missing_pandas_is_named(tmp_path: Path) -> None:
    """The error says what to install, and what works without."""
    run_dir = make_run(tmp_path / "run", passes(1))
    command = [sys.executable, "-c", WITHOUT_PANDAS, str(run_dir)]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert "pip install pandas" in said
    assert "to_arrow()" in said


def test_results_are_loaded_without_what_is_heavy() -> None:
    """Neither PyArrow nor NumPy is loaded before a table is asked for."""
    probe = (
        "import sys, sessiontree.bench; print(sorted({'pyarrow', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True, text=True).stdout
    assert said == "[]\n"


def test_notebook_shows_scores_as_escaped_html(tmp_path: Path) -> None:
    """The table of scores; names are text."""
    name = f"exact{HOSTILE}"
    shown = RunResults(make_run(tmp_path / "run", passes(1, 0, name=name), suite=HOSTILE))._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    assert "50.0%" in shown
