"""Whether a place is protected: by name, by what is there, in repositories of any form; planted bugs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.protected import OwnPlaces, ProtectedPlaces, Seen
from sessiontree.protected.protected_places import DECIDING, UNDER_WAY, RepositoryFinder, fold_name
from sessiontree.workspace import WorkspaceWriter

Why: TypeAlias = Callable[[ProtectedPlaces, int, str, Sequence[str]], str]
NAMES = st.sampled_from(
    [
        "a",
        "sub",
        ".git",
        ".GIT",
        ".git.",
        "hooks",
        "Config",
        "config",
        "info",
        "x.py",
        "modules",
        "rebase-merge",
    ]
)
SEARCH = settings(
    max_examples=800,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def reference(names: Sequence[str]) -> bool:
    """Return whether names alone make a place protected, written another way."""
    text = "/" + "/".join(fold_name(name) for name in names) + "/"
    if text.endswith("/.git/"):
        return True
    deciding = [*DECIDING, *UNDER_WAY, "modules", "worktrees"]
    return any(f"/.git/{name}/" in text for name in deciding)


def names_decide(why: Why, root: Path) -> None:
    """Property: of a place that is not there yet, its names decide as git reads them."""
    places = ProtectedPlaces(str(root), OwnPlaces())
    fd = os.open(root, os.O_PATH)
    try:

        @SEARCH
        @given(names=st.lists(NAMES, min_size=1, max_size=5))
        def check(names: list[str]) -> None:
            assert bool(why(places, fd, ".", names)) is reference(names), names

        check()
    finally:
        os.close(fd)


@pytest.mark.slow
def test_names_decide_where_nothing_stands_yet(tmp_path: Path) -> None:
    """A repository that a session would make by and by is protected from its first file on."""
    names_decide(ProtectedPlaces.why, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        lambda places, fd, directory, names: places.why(fd, directory, names) if ".git" in names else "",
        lambda places, fd, directory, names: places.why(fd, directory, names[:2]),
        lambda places, fd, directory, names: places.why(fd, directory, [n for n in names if n != "modules"]),
        lambda places, fd, directory, names: "" if names[-1] == ".git" else places.why(fd, directory, names),
        lambda places, fd, directory, names: (
            places.why(fd, directory, names) or ("x" if "hooks" in names else "")
        ),
    ],
    ids=["case", "depth", "nested", "the-pointer", "too-much"],
)
def test_planted_bugs_in_names_are_found(tmp_path: Path, broken: Why) -> None:
    """Each is found by the property."""
    with pytest.raises(AssertionError):
        names_decide(broken, tmp_path)


def test_own_places_are_found_by_what_they_are(tmp_path: Path) -> None:
    """By name before they are there, by identity where another name leads to them, on the way up."""
    root = tmp_path / "w"
    (root / "env/lib").mkdir(parents=True)
    (root / "env/lib/x.py").write_text("")
    (root / "alias").symlink_to("env")
    os.link(root / "env/lib/x.py", root / "link.py")
    (root / "mine.py").write_text("")
    own = OwnPlaces((str(root / "env"), str(root / "later")), (str(root / "mine.py"),))
    writer = WorkspaceWriter(root, own=own)
    for path in (
        "env/lib/x.py",
        "env/new/y.py",
        "alias/lib/x.py",
        "later/z.py",
        "later",
        "mine.py",
        "env/../mine.py",
    ):
        assert writer.find_places(path), path
        with pytest.raises(PermissionDenied, match="it is protected"):
            writer.write(path, b"evil")
    for path in ("env/lib/x.py", "mine.py"):
        with pytest.raises(PermissionDenied, match="it is protected"):
            writer.remove(path)
    with pytest.raises(PermissionDenied, match="hard links"):
        writer.write("link.py", b"evil")
    assert not writer.find_places("environment/x.py")
    writer.write("environment/x.py", b"fine")
    (root / "env").rename(root / "other")
    (root / "env").symlink_to("other")
    assert writer.find_places("other/lib/x.py"), "by identity, through the name it is known by"


def test_module_in_front_of_what_is_installed_is_asked_about(tmp_path: Path) -> None:
    """Where the program imports from: a new ``json.py``, a package of an installed name, cached byte code."""
    writer = WorkspaceWriter(tmp_path, own=OwnPlaces(folders=(str(tmp_path),)))
    for path in (
        "json.py",
        "pydantic/__init__.py",
        "sitecustomize.py",
        "numpy.so",
        "ray/__init__.pyc",
        "__pycache__/mine.cpython-311.pyc",
        "deep/__pycache__/x.pyc",
    ):
        assert writer.find_places(path), path
    for path in (
        "mine.py",
        "json.txt",
        "json/notes.md",
        "src/json.py",
        "json",
        "mine/__init__.py",
        "pydantic.md",
    ):
        assert not writer.find_places(path), path


def test_allowed_writer_changes_what_it_was_allowed_and_no_other(tmp_path: Path) -> None:
    """By place, not by name: another place under the same name is refused."""
    root = tmp_path / "w"
    (root / "a/.git").mkdir(parents=True)
    (root / "b/.git").mkdir(parents=True)
    (root / "link").symlink_to("a")
    writer = WorkspaceWriter(root)
    allowed = writer.allow_places(writer.find_places("link/.git/config"))
    (root / "link").unlink()
    (root / "link").symlink_to("b")
    for path in ("link/.git/config", "b/.git/config", "a/.git/hooks/x"):
        with pytest.raises(PermissionDenied, match="it is protected"):
            allowed.write(path, b"x")
    assert allowed.write("a/.git/config", b"x").created
    assert allowed.write("plain.txt", b"x").created
    assert writer.allow_places(None).write("b/.git/hooks/x", b"x").created
    with pytest.raises(PermissionDenied):
        writer.write("a/.git/config", b"y")


def test_what_commands_make_is_taken_away_and_links_are_put_back(tmp_path: Path) -> None:
    """Files, folders, links in their place; never outside the root, whatever the way there is by then."""
    root, outside = tmp_path / "w", tmp_path / "outside"
    (root / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "new").write_text("kept")
    seen = Seen(str(root), (), ((str(root / "l"), "there"),), (str(root / "new"), str(root / "d/new")))
    assert seen.put_back() == (str(root / "l"),)
    assert seen.put_back() == ()
    (root / "new").mkdir()
    (root / "new/file").write_text("")
    (root / "l").unlink()
    (root / "l").mkdir()
    (root / "l/file").write_text("")
    assert seen.put_back() == (str(root / "new"), str(root / "l"))
    assert not (root / "new").exists()
    assert str((root / "l").readlink()) == "there"
    (root / "d").rmdir()
    (root / "d").symlink_to(outside)
    assert seen.put_back() == ()
    assert (outside / "new").read_text() == "kept"


def test_repositories_are_found_again_when_they_change(tmp_path: Path) -> None:
    """New ones, those that went, those in the same tick of the clock; links are not followed."""
    finder, now = RepositoryFinder(), [10**18]

    def found() -> set[str]:
        now[0] += 1
        return {os.path.relpath(each.path, tmp_path) for each in finder.find(str(tmp_path), (), now[0])}

    assert found() == set()
    (tmp_path / "a/b/.git").mkdir(parents=True)
    assert found() == {"a/b"}
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / "a/b/.git" / name).mkdir()
    assert found() == {"a/b", "a/b/.git"}
    (tmp_path / "c").symlink_to("a")
    assert found() == {"a/b", "a/b/.git"}
    (tmp_path / "a/b/.git").rename(tmp_path / "a/b/bare")
    assert found() == {"a/b/bare"}
    now[0] = 0  # what was read "before" the directories changed is read again, however often
    (tmp_path / "a/e/.git").mkdir(parents=True)
    assert found() == {"a/b/bare", "a/e"}


def test_other_names_of_a_protected_file_are_read_only_too(tmp_path: Path) -> None:
    """A hard link that was there before is found, wherever it is."""
    (tmp_path / ".git").mkdir()
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / ".git" / name).mkdir()
    (tmp_path / ".git/config").write_text("")
    (tmp_path / "deep").mkdir()
    os.link(tmp_path / ".git/config", tmp_path / "deep/other")
    seen = ProtectedPlaces(str(tmp_path), OwnPlaces()).see()
    names = {os.path.relpath(path, tmp_path) for path in seen.paths}
    assert names == {".git/config", ".git/hooks", ".git/info", "deep/other"}


def test_hooks_of_a_repository_above_the_workspace_are_protected(tmp_path: Path) -> None:
    """Its settings lie outside and may name a directory inside: asked about, and kept from commands."""
    git, root = tmp_path / ".git", tmp_path / "part"
    (root / "hooks").mkdir(parents=True)
    git.mkdir()
    (git / "config").write_text("[core]\n\thooksPath = part/hooks\n")
    assert WorkspaceWriter(root).find_places("hooks/pre-commit")
    assert not WorkspaceWriter(root).find_places("other/pre-commit")
    assert ProtectedPlaces(str(root), OwnPlaces()).see().paths == (str(root / "hooks"),)
    (git / "config").write_text("[core]\n\thooksPath = part/later\n")
    assert WorkspaceWriter(root).find_places("later/pre-commit")
    assert ProtectedPlaces(str(root), OwnPlaces()).see().absent == (str(root / "later"),)


def test_what_a_pointer_names_is_protected_before_it_is_whole(tmp_path: Path) -> None:
    """A ``.git`` file that leads to a directory which is no repository yet."""
    (tmp_path / "w").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/config").write_text("")
    (tmp_path / "w/.git").write_text("gitdir: ../kept\n")
    seen = ProtectedPlaces(str(tmp_path), OwnPlaces()).see()
    assert seen.paths == (str(tmp_path / "kept/config"), str(tmp_path / "w/.git"))
