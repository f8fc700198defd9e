"""Screen: what a command can't do, and what it warns of, is said in one line."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import typer

from sessiontree import PolicyWarning
from sessiontree.cli.options import open_screen
from sessiontree.cli.screen import UNUSABLE


def run(load: Callable[[], Callable[..., int]]) -> int:
    """Run a command as its function does, and return its exit code."""
    with pytest.raises(typer.Exit) as ended, open_screen({}) as run_body:
        run_body(load())
    return int(ended.value.exit_code)


def missing(name: str) -> Callable[[], Callable[..., int]]:
    """Return what loads a command whose module needs another that is not there."""

    def load() -> Callable[..., int]:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return load


@pytest.mark.parametrize("name", ["tree_sitter", "tree_sitter_go"])
def test_run_names_the_extra_that_is_missing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever wheel of the survey is missing: the exit code is that of a usage error."""
    assert run(missing(name)) == UNUSABLE
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert said.err.startswith(f"sessiontree: {name} is not installed; ")
    assert "pip install '.[survey]'" in said.err


def test_run_does_not_hide_any_other_missing_module() -> None:
    """A module of our own that can't be found is a fault, not an extra."""
    with pytest.raises(ModuleNotFoundError):
        run(missing("sessiontree.survey.nowhere"))


def test_our_warnings_are_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    """No place in a source and no quoted line; a warning of a library is shown as Python shows it."""

    def body(screen: object) -> int:
        warnings.warn(PolicyWarning("rule 1 matches \x1b[31mno tool"), stacklevel=1)
        warnings.warn(UserWarning("of a library"), stacklevel=1)
        return 0

    usual = warnings.showwarning
    with pytest.warns(UserWarning) as others:
        assert run(lambda: body) == 0
    assert capsys.readouterr().err == "sessiontree: PolicyWarning: rule 1 matches \\u{1b}[31mno tool\n"
    assert [str(each.message) for each in others] == ["of a library"]
    assert warnings.showwarning is usual
