"""The command `bench view`, the folder, and links to samples from a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sessiontree import ConfigError
from sessiontree.bench.results.recorded_run import RecordedRun
from sessiontree.bench.results.report import build_report
from sessiontree.bench.results.report_page import render_report_page
from sessiontree.bench.view.run_folder import make_address, write_folder
from sessiontree.bench.view_command import find_runs
from tests.system.bench.recorded_run_fixtures import HOSTILE, GivenSample, make_run


def test_directory_of_runs_is_all_of_its_runs(tmp_path: Path) -> None:
    """Each is found once; a place without one is refused by its name."""
    for name in ("one", "two"):
        make_run(tmp_path / name, [GivenSample("s", {"exact": 1.0})])
    found = find_runs([str(tmp_path), str(tmp_path / "one")])
    assert sorted(run.run_dir.name for run in found) == ["one", "two"]
    with pytest.raises(ConfigError, match="nothing"):
        find_runs([str(tmp_path / "nothing")])


def test_folder_replaces_only_its_like(tmp_path: Path) -> None:
    """A directory that holds something else stays as it is."""
    run = RecordedRun(make_run(tmp_path / "run", [GivenSample("s", {"exact": 1.0})]))
    place = tmp_path / "folder"
    for _ in range(2):
        written = write_folder([run], place)
        assert (written.samples, written.trees) == (1, 0)
        assert len(written.missing) == 1  # its journal is made up
    assert sorted(each.name for each in place.iterdir()) == ["data", "index.html", "view.js"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="something else"):
        write_folder([run], other)
    assert [each.name for each in other.iterdir()] == ["letter.txt"]


def test_report_links_to_the_pages_of_its_samples(tmp_path: Path) -> None:
    """Each sample that it names, by an address that holds no markup; without a folder nothing is linked."""
    run = RecordedRun(make_run(tmp_path / "run", [GivenSample(HOSTILE, {"exact": 0.0})]))
    index = write_folder([run], tmp_path / "folder").index
    report = build_report(run)

    def place_of(sample_id: str, epoch: int) -> str:
        return make_address(index, tmp_path / "reports", sample_id, epoch)

    (link,) = re.findall(r'<a href="([^"]*)">', render_report_page(report, [], place_of))
    assert link == "../folder/index.html#/run/0/sample/%3Cscript%3Ealert%281%29%3C%2Fscript%3E/1"
    assert "<a " not in render_report_page(report, [])
