"""Which places may reach into a workspace: never fewer than a walk to each place finds; planted bugs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessiontree.protected import reaching_places
from sessiontree.protected.reaching_places import PlaceTree, trace_links

NAMES = st.sampled_from(["a", "b", "c", "ws"])
WAYS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
ENTRIES = st.lists(
    st.tuples(WAYS, st.sampled_from(["dir", "file", "link"]), WAYS, st.booleans()), max_size=10
)
SEARCH = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make(base: Path, entries: list[tuple[str, str, str, bool]]) -> None:
    """Make directories, files and links below a directory, as far as that is possible; replace nothing."""
    for way, kind, target, is_absolute in entries:
        path = base / way
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "dir":
                path.mkdir(exist_ok=True)
            elif kind == "file":
                path.touch()
            else:
                path.symlink_to(base / target if is_absolute else target)
        except OSError:
            continue


def touches(place: str, root: str) -> bool:
    """Walk to one place, and say whether a link on the way, or what it is, is below the root."""
    ways = [*trace_links(place), os.path.realpath(place)]
    return any(way.startswith(f"{root}/") for way in ways)


def missed(found: set[str], places: list[str], root: str) -> Iterator[str]:
    """Yield the places that were left out."""
    return (place for place in places if place not in found and touches(place, root))


@given(ENTRIES, st.lists(ENTRIES, min_size=1, max_size=3), st.lists(WAYS, min_size=1, max_size=8))
@SEARCH
def test_no_place_that_reaches_is_left_out(
    tmp_path: Path,
    entries: list[tuple[str, str, str, bool]],
    later: list[list[tuple[str, str, str, bool]]],
    ways: list[str],
) -> None:
    """Also after directories and links have come and gone, with the same tree of places."""
    base = tmp_path.resolve() / "base"
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    places = [str(base / way) for way in ways]
    tree = PlaceTree(places)
    for step in (entries, *later):
        make(base, step)
        for root in (base / "ws", base / "a/ws", base):
            real = os.path.realpath(root)
            assert not list(missed(tree.find_reaching(real), places, real))
        shutil.rmtree(base / "c", ignore_errors=True)
        (base / "b").unlink(missing_ok=True) if (base / "b").is_symlink() else None


def test_other_workspaces_are_not_reached(tmp_path: Path) -> None:
    """Places elsewhere do not count, whether they are there or not."""
    for name in ("own/package", "ws", "ws-too"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "own/module.py").touch()
    names = ("own/module.py", "own/package/__init__.py", "gone/a.py", "ws-too/x.py", "ws/x.py")
    tree = PlaceTree(str(tmp_path / name) for name in names)
    assert tree.find_reaching(str(tmp_path / "ws")) == {str(tmp_path / "ws/x.py")}
    assert tree.find_reaching("/") == {str(tmp_path / name) for name in names}


def test_way_back_by_dots_always_counts(tmp_path: Path) -> None:
    """Names do not say where it leads."""
    odd = f"{tmp_path}/own/../ws/x.py"
    assert PlaceTree([odd]).find_reaching(str(tmp_path / "other")) == {odd}


def test_chain_of_links_through_the_workspace_counts(tmp_path: Path) -> None:
    """A link outside leads by a link inside to something outside: the link inside decides."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "away").mkdir()
    (tmp_path / "away/x.py").touch()
    (tmp_path / "ws/through").symlink_to(tmp_path / "away")
    (tmp_path / "own").symlink_to(tmp_path / "ws/through")
    place = str(tmp_path / "own/x.py")
    assert PlaceTree([place]).find_reaching(str(tmp_path.resolve() / "ws")) == {place}


def test_link_that_comes_later_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory has changed, so it is read again; a planted tree that trusts its first look misses it."""
    root = tmp_path.resolve()
    (root / "ws").mkdir()
    (root / "own").mkdir()
    place = str(root / "own/x.py")

    def comes_later() -> bool:
        tree = PlaceTree([place])
        assert tree.find_reaching(str(root / "ws")) == set()
        (root / "own/x.py").symlink_to(root / "ws/real.py")
        try:
            return tree.find_reaching(str(root / "ws")) == {place}
        finally:
            (root / "own/x.py").unlink()

    assert comes_later()
    first = reaching_places._read_again
    monkeypatch.setattr(reaching_places, "_read_again", lambda node, real: node.read or first(node, real))
    assert not comes_later()
