"""A matrix: its file, its runs in one folder, going on, its cap, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ConfigError
from sessiontree.bench.matrix import matrix_run
from sessiontree.bench.matrix.matrix_file import MatrixPlan
from sessiontree.bench.matrix.matrix_page import render_matrix_page
from sessiontree.bench.matrix.matrix_report import MatrixReport, build_cell_report
from sessiontree.bench.matrix.matrix_run import NO_MONEY, PAGE, TABLE, run_matrix
from sessiontree.bench.results.recorded_run import LEDGER

SUITES = Path(__file__).with_name("matrix_program.py")
FILE = f"""
title = "Adders <b>"
models = ["right", "odd"]
suites = ["{SUITES}:small"]
backend = "local"
concurrency = 2

[settings.twice]
epochs = 2
limit = 2
"""


def read(tmp_path: Path, text: str) -> MatrixPlan:
    """Return the matrix of a file."""
    path = tmp_path / "adders.toml"
    path.write_text(text)
    return MatrixPlan.read(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("suites = [\n\nx", "it is no TOML: .*line 3"),
        ('title = "x"\n', "suites: Field required"),
        ('suites = ["a"]\nmodel = ["b"]\n', "line 2: model: .*'models'.*; a matrix has address"),
        ('suites = ["a"]\n[settings.x]\nepochs = 0\n', "line 3: settings.x.epochs: .*greater than or"),
        (
            'suites = ["a"]\n[settings."a b"]\n# c\nlimits = 3\n',
            "line 4: settings.a b.limits: .*'limit'.*; settings have epochs",
        ),
        ('models = ["m", "m"]\nsuites = ["a"]\n', "line 1: models: 'm': given twice"),
        ('suites = []\n', "line 1: suites: "),
        ('suites = ["a"]\nshards = 0\n', "line 2: shards: "),
        ('suites = ["a"]\n[settings]\nx = {keep = "some"}\n', "line 3: settings.x.keep: .*'failed', 'all'"),
    ],
)  # fmt: skip
def test_fault_of_the_file_names_its_line_and_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    """No run begins."""
    with pytest.raises(ConfigError, match=rf"adders\.toml: {said}"):
        read(tmp_path, text)


def test_cells_are_runs_of_their_own_in_one_folder(tmp_path: Path) -> None:
    """Each has a directory of its own, whatever letters the names have; files are found from the file."""
    found = read(tmp_path, 'models = ["a/b", "a:b"]\nsuites = ["dir/x.py:s", "y.toml", "m:s"]\n')
    assert [cell.suite for cell in found.cells[::2]] == [
        f"{tmp_path}/dir/x.py:s",
        f"{tmp_path}/y.toml",
        "m:s",
    ]
    places = [cell.run_dir for cell in found.cells]
    assert len(set(places)) == 6
    assert {place.parent for place in places} == {tmp_path / "runs" / "adders"}
    (one,) = read(tmp_path, 'suites = ["m:s"]\n').cells
    assert (one.model, one.settings) == ("", "usual")


@pytest.mark.slow
def test_matrix_runs_goes_on_and_has_one_page(tmp_path: Path) -> None:
    """A cell that is complete is not run again; the page links to each run's own."""
    found = read(tmp_path, FILE)
    said: list[str] = []
    report = run_matrix(found, said.append)
    assert [(each.model, each.cell.settings, each.coverage, each.state) for each in report.cells] == [
        ("right", "twice", "4 of 4", "complete"),
        ("odd", "twice", "4 of 4", "complete"),
    ]
    rates = [each.rate for each in report.cells]
    assert [rate.value for rate in rates if rate is not None] == [1.0, 0.5]
    assert all(rate is not None and rate.low != rate.high for rate in rates), "ten alike are no certainty"
    assert report.cost_usd == pytest.approx(0.08)
    table = json.loads((found.folder / TABLE).read_text())
    assert table == json.loads(json.dumps(report.to_json()))
    assert table["complete"]
    page = (found.folder / PAGE).read_text()
    assert "Adders &lt;b&gt;: benchmark matrix" in page
    assert "<script" not in page
    for each in report.cells:
        link = f"{each.cell.run_dir.name}/report.html"
        assert f'href="{link.replace(":", "%3A")}"' in page
        assert (found.folder / link).is_file()
    assert len(said) == 4
    assert run_matrix(found, said.append).is_complete
    assert len(said) == 4, "nothing was left to run"


@pytest.mark.slow
@pytest.mark.long
def test_run_that_can_not_begin_does_not_keep_the_others(tmp_path: Path) -> None:
    """The page says why; the exit code is 1; the same command goes on once the cause is mended."""
    found = read(tmp_path, f'suites = ["{SUITES}:none", "{SUITES}:small"]\nbackend = "local"\n')
    first, second = run_matrix(found, lambda _: None).cells
    assert (first.state, second.state) == ("refused", "complete")
    assert "has no 'none'" in first.problem
    assert "has no &#x27;none&#x27;" in (found.folder / PAGE).read_text()


def test_one_cap_bounds_all_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell gets what the others have left; when nothing is left, no run begins."""
    found = read(tmp_path, 'max_cost_usd = 0.10\nsuites = ["a:s", "b:s", "c:s", "d:s"]\n')
    asked: list[float] = []

    def spend(_: object, cell: Any, most: float) -> str:
        asked.append(most)
        costs[cell.run_dir] = 0.06
        return ""

    costs: dict[Path, float] = {}
    cost = property(lambda each: costs.get(each.cell.run_dir, 0.0))
    monkeypatch.setattr("sessiontree.bench.matrix.matrix_report.CellReport.cost_usd", cost)
    monkeypatch.setattr(matrix_run, "_run_cell", spend)
    report = run_matrix(found, lambda _: None)
    assert asked == pytest.approx([0.10, 0.04])
    assert [each.problem for each in report.cells] == ["", "", NO_MONEY, NO_MONEY]


def test_page_without_results_says_what_has_not_begun(tmp_path: Path) -> None:
    """It can be looked at before the first run has ended; a damaged ledger is reported."""
    found = read(tmp_path, FILE)
    broken = found.cells[0].run_dir
    broken.mkdir(parents=True)
    (broken / LEDGER).write_text("no ledger")
    page = render_matrix_page(MatrixReport(found, tuple(map(build_cell_report, found.cells))))
    assert page.count("not begun") == 2
    assert "Runs that could not go on" in page
