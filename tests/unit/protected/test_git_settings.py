"""Where a repository's settings say its hooks are: read as git reads them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sessiontree.protected.git_settings import hook_directories


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def places(tmp_path: Path, text: str) -> set[str]:
    """Return what a repository with these settings says, relative to its worktree."""
    repository = tmp_path / "w/.git"
    repository.mkdir(parents=True, exist_ok=True)
    (repository / "config").write_text(text)
    found = hook_directories(str(repository), str(tmp_path / "w"))
    return {os.path.relpath(place, tmp_path / "w") for place in found}


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\thooksPath = .hooks\n",
        "[CORE]\nHOOKSPATH=.hooks",
        "[core] hooksPath = .hooks ; why",
        '[core]\n hooksPath = ".ho"oks   # why\n',
        "[core]\n\thooksPath = .ho\\\noks\n",
        "[core]\r\n\thooksPath = .hooks\r\n",
        '[remote "x"]\n url = [core]\n[core]\nhooksPath = .hooks',
        '[a "b]c"][core]hooksPath=.hooks',
        "[core]\nhooksPath = a\nhooksPath = .hooks",
    ],
)
def test_every_way_to_write_it_is_read(tmp_path: Path, text: str) -> None:
    """Case, quotes, comments, lines that go on, several sections in a line; and git agrees."""
    assert ".hooks" in places(tmp_path, text)
    file = tmp_path / "w/.git/config"
    said = subprocess.run(
        ["git", "config", "--file", str(file), "core.hookspath"], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == ".hooks"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# [core]\n# hooksPath = .hooks",
        "[core]\n;hooksPath = .hooks",
        '[other "core"]\nhooksPath = .hooks',
        "[core]\nhooksPath",
        "\0\0\0",
        "[core",
        "[core]\nhooksPathology = .hooks",
    ],
)
def test_what_says_nothing_gives_nothing(tmp_path: Path, text: str) -> None:
    """Comments, other sections, a key without value, and what is no such file."""
    assert places(tmp_path, text) == set()


def test_files_it_includes_are_read_and_named(tmp_path: Path) -> None:
    """Relative to the file that names them, conditional ones too; a circle ends."""
    (tmp_path / "w").mkdir()
    (tmp_path / "w/more").write_text(
        "[core]\nhooksPath = .hooks\n[include]\npath = .git/config\npath = more\n"
    )
    text = '[include]\n\tpath = ../more\n[includeIf "gitdir:/x/"]\n\tpath = ../absent'
    assert places(tmp_path, text) == {"more", ".hooks", "absent", ".git/config"}


def test_person_s_own_settings_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the home and of the place that XDG says; ``~`` is the home."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.gitconfig").write_text("[core]\nhooksPath = ~/mine\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    (tmp_path / "xdg/git").mkdir(parents=True)
    (tmp_path / "xdg/git/config").write_text("[core]\nhooksPath = .everywhere\n")
    assert places(tmp_path, "") == {"../home/mine", ".everywhere"}


def test_further_worktree_has_the_settings_of_its_repository(tmp_path: Path) -> None:
    """Its own directory names where they are."""
    own = tmp_path / "repository/worktrees/w"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (tmp_path / "repository/config").write_text("[core]\nhooksPath = .hooks\n")
    (own / "config.worktree").write_text("[core]\nhooksPath = .own\n")
    found = hook_directories(str(own), str(tmp_path / "w"))
    assert {Path(place).name for place in found} == {".hooks", ".own"}


def test_change_is_seen_at_once(tmp_path: Path) -> None:
    """What was read is kept by the file's version."""
    assert places(tmp_path, "[core]\nhooksPath = .one") == {".one"}
    assert places(tmp_path, "[core]\nhooksPath = .two") == {".two"}
