"""Events that a program writes for its own trees: read without their journals, and in the table once."""

from __future__ import annotations

from pathlib import Path

from sessiontree import TreeNotFound
from sessiontree.bench.results.recorded_run import RESULTS
from sessiontree.bench.results.run_facts import RunFacts
from sessiontree.bench.run_results import RunResults
from tests.system.bench.suite_fixtures import rows, suite


def events(run_dir: Path) -> list[tuple[object, ...]]:
    """Return the rows of the table, as they are computed."""
    return [tuple(each.values()) for each in RunResults(run_dir).to_arrow("events").to_pylist()]


def test_events_of_another_node_are_found_without_its_journals(tmp_path: Path) -> None:
    """All trees of the run, each fact as it was; another write of the tables repeats none of them."""
    place = tmp_path / "run"
    suite(5).run_sync(place, backend="local", writes="events")
    folder = place / RESULTS / "events"
    assert [each.name.partition("-")[0] for each in folder.iterdir()] == ["shard"]
    before = events(place)
    (place / "state").rename(tmp_path / "on another disk")
    assert events(place) == before
    written = RunResults(place).write()
    assert (written.rows["samples"], written.rows["events"], written.unreadable) == (5, 0, {})
    trees = [tree_id for (tree_id,) in rows(place, "SELECT tree_id FROM attempts")]
    with RunFacts(place) as facts:
        assert sum(len(list(facts.read(tree_id))) for tree_id in trees) == len(before)
        try:
            next(facts.read("0" * 32))
        except TreeNotFound:
            pass
        else:
            raise AssertionError("nobody has written it")


def test_damaged_file_hides_no_other(tmp_path: Path) -> None:
    """Its trees are listed as unreadable; those of the other file are there."""
    place = tmp_path / "run"
    suite(3).run_sync(place, backend="local", writes="events")
    (place / RESULTS / "events" / "shard-0.parquet").write_bytes(b"damaged")
    count = len(events(place))
    (place / "state").rename(tmp_path / "gone")
    assert len(events(place)) == count
