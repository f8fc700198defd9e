"""Directories outside the workspace: who reaches what, and what stays protected and hidden there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.protected import OwnPlaces
from sessiontree.workspace import OutsideReader, OutsideRoots, OutsideWriter, WorkspaceWriter


@pytest.fixture
def workspace(tmp_path: Path) -> WorkspaceWriter:
    """A workspace, a directory next to it, and one in that."""
    (tmp_path / "w").mkdir()
    (tmp_path / "out/.git").mkdir(parents=True)
    (tmp_path / "out/deep").mkdir()
    (tmp_path / "out/a.txt").write_text("a")
    return WorkspaceWriter(tmp_path / "w")


def roots(workspace: WorkspaceWriter, *names: Path, hidden: tuple[Path, ...] = ()) -> OutsideRoots:
    """Return the allowed directories."""
    return OutsideRoots(workspace, [str(name) for name in names], hidden=hidden, own=OwnPlaces())


def test_only_the_directories_of_the_places_are_reached(workspace: WorkspaceWriter, tmp_path: Path) -> None:
    """Of two allowed directories, the one that a call did not name stays closed to it."""
    (tmp_path / "second").mkdir()
    both = roots(workspace, tmp_path / "out", tmp_path / "second")
    places = both.place_at(str(tmp_path / "out/a.txt"))
    writer = OutsideWriter(workspace, both.lead_to(places).allow_places(frozenset()))
    reader = OutsideReader(workspace.reader(), both.lead_to(places))
    assert writer.write(str(tmp_path / "out/b.txt"), b"b").path == str(tmp_path / "out/b.txt")
    assert writer.write("own.txt", b"b").path == "own.txt"
    assert [entry.path for entry in reader.list(str(tmp_path / "out"))][1:] == [
        str(tmp_path / "out" / name) for name in ("a.txt", "b.txt", "deep")
    ]
    with pytest.raises(PermissionDenied, match="outside the workspace"):
        writer.write(str(tmp_path / "second/b.txt"), b"b")
    with pytest.raises(PermissionDenied, match="outside the workspace"):
        reader.open(str(tmp_path / "second/b.txt"))


def test_protected_and_hidden_places_hold(workspace: WorkspaceWriter, tmp_path: Path) -> None:
    """An approval of one file opens git's settings next to it no more than the runtime's own files."""
    config, secret = tmp_path / "out/.git/config", tmp_path / "out/deep"
    allowed = roots(workspace, tmp_path / "out", hidden=(secret,))
    places = allowed.place_at(str(tmp_path / "out/a.txt"))
    assert allowed.place_at(str(secret / "x")) == frozenset()
    assert allowed.find_protected(str(config))
    writer = OutsideWriter(workspace, allowed.lead_to(places).allow_places(frozenset()))
    with pytest.raises(PermissionDenied, match="it is protected"):
        writer.write(str(config), b"x")
    with pytest.raises(PermissionDenied, match="reserved for the runtime"):
        writer.write(str(secret / "x"), b"x")
    named = allowed.lead_to(places).allow_places(allowed.find_protected(str(config)))
    assert OutsideWriter(workspace, named).write(str(config), b"x").created


def test_root_around_the_workspace_does_not_open_it(workspace: WorkspaceWriter, tmp_path: Path) -> None:
    """What the workspace holds is reached through it alone; a missing or hidden root holds nothing."""
    around = roots(workspace, tmp_path, tmp_path / "missing", hidden=(tmp_path / "w/state",))
    assert around.place_at(str(tmp_path / "w/a.txt")) == frozenset()
    assert around.place_at("out/a.txt") == frozenset()
    assert around.place_at("/out\0") == frozenset()
    assert around.place_at(f"{tmp_path}/../x") == frozenset()
    assert around.place_at(str(tmp_path / "out/a.txt"))
    inside = roots(workspace, tmp_path / "out", hidden=(tmp_path,))
    assert inside.place_at(str(tmp_path / "out/a.txt")) == frozenset()


def test_place_is_named_by_its_directory(workspace: WorkspaceWriter, tmp_path: Path) -> None:
    """So an approval does not hold for another directory that took its name."""
    allowed = roots(workspace, tmp_path / "out")
    before = allowed.place_at(str(tmp_path / "out/deep/x"))
    (tmp_path / "out/deep").rename(tmp_path / "out/moved")
    (tmp_path / "out/deep").mkdir()
    assert before
    assert allowed.place_at(str(tmp_path / "out/deep/x")) not in (before, frozenset())
