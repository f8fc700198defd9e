"""The scripts of releases and of mutation runs: what they cover, and what they keep."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest


def load(checkout: Path, name: str) -> ModuleType:
    """Return a script as a module."""
    spec = importlib.util.spec_from_file_location(name, checkout / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_release_tries_every_extra_alone_and_together(checkout: Path) -> None:
    """An extra without a trial would be published untried; the sdist is tried bare."""
    release = load(checkout, "release")
    table = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))["project"]
    extras = sorted(table["optional-dependencies"])
    assert set(release.MODULES) == set(extras)
    trials = list(release.plan(("3.11", "3.14"), Path("a.whl"), Path("a.tar.gz"), extras))
    alone = [(trial.python, *trial.extras) for trial in trials if len(trial.extras) == 1]
    assert alone == [(python, extra) for python in ("3.11", "3.14") for extra in extras]
    assert [str(trial) for trial in trials if not trial.extras] == [
        f"{python} {kind} bare" for python in ("3.11", "3.14") for kind in ("sdist", "wheel")
    ]
    assert str(trials[-1]) == "3.14 wheel every extra"
    assert set(trials[-1].extras) == set(extras) - release.APART


def test_mutation_run_tries_survivors_again(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that a test found stays found; what is kept otherwise would hide a new test's effect."""
    mutation = load(checkout, "mutation")
    monkeypatch.setattr(mutation, "CHECKOUT", tmp_path)
    for folder in ("sessiontree/policy", "tests/unit/policy", "tools/sessiontree_tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "sessiontree" / "policy" / "rules.py").touch()
    kept = tmp_path / "mutants" / "policy.rules" / "mutants"
    kept.mkdir(parents=True)
    (kept / "mutmut-stats.json").touch()
    (kept / "rules.py.meta").write_text(
        json.dumps({"exit_code_by_key": {"a": 1, "b": 0, "c": 33, "d": None}})
    )
    assert mutation.prepare("policy", "rules") == kept.parent
    codes = json.loads((kept / "rules.py.meta").read_text())["exit_code_by_key"]
    assert codes == {"a": 1, "b": None, "c": None, "d": None}
    assert not (kept / "mutmut-stats.json").exists()
    settings = tomllib.loads((kept.parent / "pyproject.toml").read_text())["tool"]["mutmut"]
    assert settings["only_mutate"] == ["sessiontree/policy/rules.py"]
    assert settings["pytest_add_cli_args_test_selection"][0] == "tests/unit/policy"


def test_mutation_run_refuses_what_is_not_there(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A room without code, and a room without tests: a run over nothing would find nothing."""
    mutation = load(checkout, "mutation")
    monkeypatch.setattr(mutation, "CHECKOUT", tmp_path)
    (tmp_path / "sessiontree" / "policy").mkdir(parents=True)
    (tmp_path / "sessiontree" / "policy" / "rules.py").touch()
    with pytest.raises(FileNotFoundError, match="no attic"):
        mutation.prepare("attic", "")
    with pytest.raises(FileNotFoundError, match="no folder policy"):
        mutation.prepare("policy", "rules")
