"""The commands run and list: what they print, their exit codes, and the names and places that they refuse."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sessiontree import ConfigError
from sessiontree.bench.suite.suite_loader import find_environment_file, load_suite
from sessiontree.cli.app import app
from tests.system.bench.recorded_run_fixtures import make_run, passes

SUITE = """
from tests.system.bench.suite_fixtures import suite as of

def first_two(attempt):
    return attempt.sample.id in {"s0", "s1"}

suite = of(4, scorers=first_two)
"""


def said(*words: str | Path, code: int = 0) -> str:
    """Run a command of ``sessiontree bench``, and return what it printed or complained about."""
    done = CliRunner().invoke(app, ["bench", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_command_speaks_of_its_own_samples(tmp_path: Path) -> None:
    """Pass rate and exit code are those of its limit, whatever became of the run's other samples."""
    file = tmp_path / "two_of_four.py"
    file.write_text(SUITE)
    command = ("run", f"{file}:suite", "--backend", "local", "--dir", tmp_path / "run")
    assert "4 of 4 scored (coverage 100.0%), 2 passed (50.0%" in said(*command)
    assert "2 of 2 scored (coverage 100.0%), 2 passed (100.0%" in said(*command, "--limit", "2")
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as ledger:
        ledger.execute("UPDATE samples SET state = 'waiting', lease_id = NULL WHERE sample_id = 's3'")
        ledger.commit()
    result = json.loads(said(*command, "--limit", "2", "--json").splitlines()[-1])
    assert (result["scored"], result["passed"], result["waiting"]) == (2, 2, 0)


KEYED = """
from sessiontree import AgentSpec
from sessiontree.bench import Suite
from tests.system.bench.suite_fixtures import ECHO, exact, samples, solve, suite as of

plain = of(1)
of_its_own = of(1, model="openai:gpt-5")
in_the_tree = of(1, tree={"model": "openai:gpt-5"})
in_an_agent = of(1, tree={"agents": {"default": AgentSpec(), "other": AgentSpec(model="openai:gpt-5")}})
as_solver = of(1, solver=AgentSpec(model="openai:gpt-5"))
with_options = of(1, model="openai:gpt-5", tree=lambda attempt: {})
nameless = of(1, model=None)
"""
NEEDS_KEY = "openai needs a key: set OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("name", "options", "wrong"),
    [
        ("plain", ("--model", "openai:gpt-5"), NEEDS_KEY),
        ("of_its_own", (), NEEDS_KEY),
        ("in_the_tree", (), NEEDS_KEY),
        ("in_an_agent", (), NEEDS_KEY),
        ("as_solver", (), NEEDS_KEY),
        ("with_options", (), NEEDS_KEY),
        ("nameless", (), "names no model"),
        ("plain", ("--model", "opnai:gpt-5"), "opnai"),
        ("plain", ("--model", "recorded:none.json"), "none.json"),
        ("plain", ("--backend", "lokal"), "did you mean 'local'"),
        ("plain", ("--shards", "per-node"), "needs backend 'ray'"),
        ("plain", ("--shards", "0"), "shards is 0"),
    ],
)
def test_run_that_can_not_begin_makes_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: tuple[str, ...], wrong: str
) -> None:
    """What can be known before the first attempt is said before anything is written."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = tmp_path / "keyed.py"
    file.write_text(KEYED)
    command = ("run", f"{file}:{name}", "--dir", tmp_path / "run", "--backend", "local")
    assert wrong in said(*command, *options, code=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_directory_of_a_run_that_never_began_is_free(tmp_path: Path) -> None:
    """Its next run may have another model; ``config.json`` shows that one."""
    file = tmp_path / "late.py"
    file.write_text(
        "from sessiontree import FunctionModel\n"
        "from tests.system.bench.suite_fixtures import echo, suite as of\n"
        "broken = of(1, tree={'builtin_tools': False, 'no_such_option': 1})\n"
        "whole = of(1, model=FunctionModel(echo, name='other'))\n"
    )
    place = ("--dir", tmp_path / "run", "--backend", "local")
    assert "no_such_option" in said("run", f"{file}:broken", *place, code=2)
    assert "1 of 1 scored" in said("run", f"{file}:whole", *place)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"] == "other"
    assert "holds another run: model was 'other'" in said("run", f"{file}:broken", *place, code=2)


FACTORIES = """
import sys
from tests.system.bench.suite_fixtures import suite as of

ready = of(1)

def fails():
    raise KeyError("planted")

def needs(size):
    return of(size)

def ends():
    sys.exit(0)
"""


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ('suite = "FILE:fails"', "could not make its suite: KeyError: 'planted'"),
        ('suite = "FILE:needs"', "TypeError: .*size.* are .options. of a suite.toml"),
        ('suite = "FILE:ends"', "could not make its suite: SystemExit: 0"),
        ('suite = "FILE:needs"\n[options]\nother = 1', "could not make its suite: TypeError: .*other"),
        ('suite = "FILE:ready"\n[options]\nsize = 1', "its suite is not a function"),
        ('suite = "FILE:needs"\noptions = 3', "options is 3; give a table"),
        ('suite = "FILE:ready"\nenv = 3', "env is 3; give the name of a file"),
    ],
)
def test_suite_that_can_not_be_made_is_one_error(tmp_path: Path, lines: str, wrong: str) -> None:
    """It names the suite, and says what to write."""
    (tmp_path / "factories.py").write_text(FACTORIES)
    name = tmp_path / "suite.toml"
    name.write_text(lines.replace("FILE", "factories.py"))
    with pytest.raises(ConfigError, match=wrong):
        load_suite(str(name))


def test_suite_file_that_ends_the_program_is_one_error(tmp_path: Path) -> None:
    """A script without ``if __name__`` would end the command as if all were well."""
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ConfigError, match=r"script\.py:suite' can't be loaded: SystemExit: 0"):
        load_suite(f"{tmp_path / 'script.py'}:suite")


def test_options_reach_the_function(tmp_path: Path) -> None:
    """And ``env`` is in the same directory as the file."""
    (tmp_path / "factories.py").write_text(FACTORIES)
    name = tmp_path / "suite.toml"
    name.write_text('suite = "factories.py:needs"\nenv = "r.txt"\n[options]\nsize = 2\n')
    assert len(list(load_suite(str(name)).samples)) == 2  # type: ignore[arg-type]
    assert find_environment_file(str(name)) == tmp_path / "r.txt"


def test_damaged_run_is_a_row_among_others(tmp_path: Path) -> None:
    """It says why, for people and programs; the others are listed."""
    make_run(tmp_path / "good", passes(1, 0))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "ledger.sqlite").write_bytes(b"nothing" * 1_000)
    text = said("list", "--dir", tmp_path)
    assert "sums" in text
    assert "(can't be read)" in text
    assert "file is not a database" in text
    good, bad = json.loads(said("list", "--dir", tmp_path, "--json"))["runs"]
    assert good["scored"] == 2
    assert bad["run_dir"] == str(tmp_path / "bad")
    assert "file is not a database" in bad["error"]


@pytest.mark.parametrize(
    "words",
    [
        ("run", "tests.system.bench.suite_fixtures:suite", "--backend", "local", "--dir", ""),
        ("list", "--dir", ""),
        ("report", "RUN", "--html", ""),
        ("report", "RUN", "--plots", ""),
    ],
    ids=["run", "list", "html", "plots"],
)
def test_empty_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A variable that is not set does not stand for the working directory."""
    run = make_run(tmp_path / "run", passes(1))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "is empty; give a path" in said(*(str(run) if word == "RUN" else word for word in words), code=2)
    assert list((tmp_path / "here").iterdir()) == []
