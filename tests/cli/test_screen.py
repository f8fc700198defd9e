"""Screen: a command whose extra is missing ends with one line that names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sessiontree.cli.screen import UNUSABLE, run


def missing(name: str) -> Callable[[], Callable[..., int]]:
    """Return what loads a command whose module needs another that is not there."""

    def load() -> Callable[..., int]:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return load


@pytest.mark.parametrize("name", ["tree_sitter", "tree_sitter_go"])
def test_run_names_the_extra_that_is_missing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever wheel of the survey is missing: the exit code is that of a usage error."""
    assert run(missing(name), {}) == UNUSABLE
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert said.err.startswith(f"sessiontree: {name} is not installed; ")
    assert "pip install '.[survey]'" in said.err


def test_run_does_not_hide_any_other_missing_module() -> None:
    """A module of our own that can't be found is a fault, not an extra."""
    with pytest.raises(ModuleNotFoundError):
        run(missing("sessiontree.survey.nowhere"), {})
