"""What benchmarks are asked and how they print."""

from __future__ import annotations

import json

import pytest

from benchmarks.report import Figure, Options, percentile, read_options, show

PLAIN = Options(quick=False, as_json=False, backend="")


def test_first_backend_is_the_default() -> None:
    """A benchmark with a choice of backends measures the first where none is asked for."""
    assert read_options("", [], backends=("local", "ray")).backend == "local"
    asked = read_options("", ["--quick", "--json", "--backend", "ray"], backends=("local", "ray"))
    assert asked == Options(quick=True, as_json=True, backend="ray")


@pytest.mark.parametrize("backends", [(), ("local", "ray")])
def test_unknown_backend_ends_the_program(
    backends: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody gets figures of something else than was asked for."""
    with pytest.raises(SystemExit):
        read_options("", ["--backend", "other"], backends=backends)
    assert "--backend" in capsys.readouterr().err


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """``--json`` prints one object and nothing else, floats to four digits."""
    show({"call_us": 1234.56, "depth": 8}, Options(quick=False, as_json=True, backend=""))
    assert json.loads(capsys.readouterr().out) == {"call_us": 1235.0, "depth": 8}


def test_table_has_a_line_for_each_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--json`` each figure is on a line with its name."""
    show({"call_us": 1234.56, "depth": 8, "place": "disk"}, PLAIN)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["call_us", "1,235.0"], ["depth", "8"], ["place", "disk"]]


def test_other_libraries_are_measured_only_where_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A benchmark that compares has the option; the others refuse it."""
    assert not read_options("", [], peers=True).peers
    assert read_options("", ["--peers"], peers=True).peers
    with pytest.raises(SystemExit):
        read_options("", ["--peers"])
    assert "--peers" in capsys.readouterr().err


def test_figures_may_be_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    """In JSON as an object, in the table as lines with the names that lead there; rounded in both."""
    figures: dict[str, Figure] = {"peers": {"one": {"version": "1.2", "turn_us": 1234.56}}, "ratio": 5.0}
    show(figures, Options(quick=False, as_json=True, backend=""))
    rounded = {"peers": {"one": {"version": "1.2", "turn_us": 1235.0}}, "ratio": 5.0}
    assert json.loads(capsys.readouterr().out) == rounded
    show(figures, PLAIN)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    expected = [["peers", "one", "version", "1.2"], ["peers", "one", "turn_us", "1,235.0"], ["ratio", "5.0"]]
    assert lines == expected


def test_percentile_is_a_measured_value() -> None:
    """By nearest rank, as the docstring says; nothing measured is an error."""
    values = [float(value) for value in range(10, 0, -1)]
    assert [percentile(values, percent) for percent in (1, 50, 99, 100)] == [1.0, 5.0, 10.0, 10.0]
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_number_of_sessions_is_an_option_where_there_is_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    """The quick form has its own default; a number that is given counts in both; none below 1 is taken."""
    sizes = (1_000, 10)
    assert [read_options("", given, sessions=sizes).sessions for given in ([], ["--quick"])] == [1_000, 10]
    assert read_options("", ["--quick", "--sessions", "7"], sessions=sizes).sessions == 7
    for given, known in (
        (["--sessions", "0"], sizes),
        (["--sessions", "x"], sizes),
        (["--sessions", "7"], (0, 0)),
    ):
        with pytest.raises(SystemExit):
            read_options("", given, sessions=known)
        assert "--sessions" in capsys.readouterr().err
