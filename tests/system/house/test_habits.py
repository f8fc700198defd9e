"""What a contributor runs: hooks that fetch nothing, and a page of instructions that name real targets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.system.house import prose_program

WORD = "lies"
HOOKS = ["ruff-check", "ruff-format", "floors", "prose"]


@pytest.fixture(scope="module")
def hooks(checkout: Path) -> list[dict[str, Any]]:
    """The hooks of commits."""
    repositories = yaml.safe_load((checkout / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert [each["repo"] for each in repositories] == ["local"]
    listed: list[dict[str, Any]] = repositories[0]["hooks"]
    return listed


def test_hooks_run_from_the_environment(checkout: Path, hooks: list[dict[str, Any]]) -> None:
    """Nothing is fetched: each is a program that ``make setup`` installs."""
    assert [hook["id"] for hook in hooks] == HOOKS
    assert {hook["language"] for hook in hooks} == {"system"}
    programs = {hook["entry"].split()[0] for hook in hooks}
    assert all(program.startswith(".venv/bin/") for program in programs)


def test_floors_are_checked_without_a_cache(checkout: Path) -> None:
    """A stale one breaks contracts that hold, or keeps those that are broken."""
    files = [checkout / "Makefile", checkout / ".pre-commit-config.yaml"]
    lines = [
        line for file in files for line in file.read_text("utf-8").splitlines() if "lint-imports" in line
    ]
    assert len(lines) == 2
    assert all("--no-cache" in line for line in lines)


@pytest.mark.parametrize(("word", "code"), [("is", 0), (WORD, 1)])
def test_prose_of_changed_files_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, code: int
) -> None:
    """The hook of prose finds what the test of prose finds, in the files it is given."""
    (tmp_path / "planted.md").write_text(f"The journal {word} here.\n")
    (tmp_path / "other.md").write_text(f"It {WORD} there.\n")
    assert prose_program.main("planted.md", checkout=tmp_path) == code
    assert capsys.readouterr().out == (f"planted.md:1: {WORD}\n" if code else "")


def list_targets(makefile: str) -> set[str]:
    """Return the targets of a Makefile."""
    return {name for line in re.findall(r"(?m)^([a-z -]+):(?!=)", makefile) for name in line.split()}


def test_contributing_is_a_page_of_real_targets(checkout: Path) -> None:
    """At most 60 lines; each ``make …`` that they name is there."""
    text = (checkout / "CONTRIBUTING.md").read_text("utf-8")
    assert len(text.splitlines()) <= 60
    named = set(re.findall(r"`make ([a-z-]+)", text))
    assert {"setup", "hooks", "test-changed", "room", "check", "test", "release", "mutation"} <= named
    assert named <= list_targets((checkout / "Makefile").read_text("utf-8"))
