"""Nothing beyond the root is read, changed or listed (REL-L34, REL-L35, REL-L37)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.workspace import WorkspaceWriter

if TYPE_CHECKING:
    from tests.unit.workspace.conftest import Grounds

VERBS: dict[str, Callable[[Grounds, str], object]] = {
    "open": lambda grounds, path: grounds.reader().open(path).close(),
    "stat": lambda grounds, path: grounds.reader().stat(path),
    "list": lambda grounds, path: grounds.reader().list(path),
    "walk": lambda grounds, path: list(grounds.reader().walk(path)),
    "write": lambda grounds, path: grounds.writer().write(path, b"stolen"),
    "remove": lambda grounds, path: grounds.writer().remove(path),
}
EVERY_VERB = pytest.mark.parametrize("verb", sorted(VERBS))

LEADING_OUT = [
    "..",
    "../",
    "../secret",
    "../outside/secret",
    "./../outside/secret",
    "sub/../../outside/secret",
    "sub/deep/../../../outside/secret",
    "sub//..//..//outside//secret",
    "../ws/../outside/secret",
    "../ws/file",
    "../" * 40 + "etc/passwd",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "/./etc/passwd",
    "/../etc/passwd",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/proc/self/cwd",
    "/dev/fd/0",
]
"""Traversals a system would follow."""

ONLY_STRANGE = [
    "..%2foutside%2fsecret",
    "%2e%2e/outside/secret",
    "%252e%252e%252fsecret",
    "..%c0%afoutside",
    "..\\outside\\secret",
    "..\u2215outside",
    "\uff0e\uff0e/outside/secret",
    "..;/outside/secret",
    "....//....//outside/secret",
    ".../outside/secret",
    "..\u200b/outside/secret",
    ".. /outside/secret",
    "file:///etc/passwd",
    "~/secret",
    "$HOME/secret",
    "${PWD}/../outside/secret".replace("/../", "/%2e%2e/"),
    "C:\\outside",
    "\\\\server\\share",
    "*/secret",
]
"""Traversals something else would have to decode first: here they are names like any other."""


@pytest.mark.covers("I38", "REL-L34", "WSP1")
@EVERY_VERB
def test_traversal_is_denied_on_every_verb(grounds: Grounds, verb: str) -> None:
    """REL-L34: a path that leads outside is refused as Elevated, and nothing outside changes."""
    before = grounds.neighbours()
    for path in LEADING_OUT:
        with pytest.raises(PermissionDenied, match="outside the workspace") as caught:
            VERBS[verb](grounds, path)
        assert caught.value.tier is PermissionTier.ELEVATED
        assert repr(path) in str(caught.value)
    assert grounds.neighbours() == before


@pytest.mark.covers("REL-L34")
@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"write"}))
def test_encoded_traversal_is_a_missing_name(grounds: Grounds, verb: str) -> None:
    """REL-L34: nothing is decoded; such a name is looked up as it is."""
    for path in ONLY_STRANGE:
        with pytest.raises(ExecutionError, match="no such file"):
            VERBS[verb](grounds, path)


def test_encoded_traversal_is_written_as_a_plain_name(grounds: Grounds) -> None:
    """REL-L34: written, such a name is made inside the workspace as it is."""
    before = grounds.neighbours()
    for path in ONLY_STRANGE:
        written = grounds.writer().write(path, b"stolen")
        assert (grounds.root / written.path).read_bytes() == b"stolen"
    assert grounds.neighbours() == before


@pytest.mark.covers("REL-L37")
@EVERY_VERB
def test_absolute_path_into_a_sibling_with_the_same_prefix_is_denied(grounds: Grounds, verb: str) -> None:
    """REL-L37: ``ws-evil`` is not beneath ``ws``; names are compared whole."""
    for path in (f"{grounds.sibling}/secret", f"{grounds.root}-evil/secret", f"{grounds.root}/../ws-evil"):
        with pytest.raises(PermissionDenied):
            VERBS[verb](grounds, path)
    assert grounds.neighbours()[f"{grounds.sibling}/secret"] == b"outside"


def test_absolute_path_beneath_the_root_is_taken(grounds: Grounds) -> None:
    """An absolute path beneath the root means the same as the relative one, with spare slashes or without."""
    reader = grounds.reader()
    for path in (f"{grounds.root}/sub/inner", f"/{grounds.root}//sub/./inner"):
        assert reader.stat(path).path == "sub/inner"
    assert reader.stat(str(grounds.root)).path == "."


def test_root_reached_through_a_link_goes_by_both_names(grounds: Grounds, tmp_path: Path) -> None:
    """A workspace given through a link takes absolute paths in either spelling."""
    (tmp_path / "alias").symlink_to(grounds.root)
    aliased = type(grounds)(tmp_path / "alias", grounds.outside, grounds.sibling, grounds.resolver).reader()
    assert aliased.stat(f"{tmp_path}/alias/file") == aliased.stat(f"{grounds.root}/file")


@EVERY_VERB
@pytest.mark.parametrize("target", ["../outside", "{top}/outside", "sub/../../outside", "{top}/ws-evil"])
def test_link_to_outside_is_denied(grounds: Grounds, verb: str, target: str) -> None:
    """A link on the way that leads outside is refused, relative or absolute."""
    (grounds.root / "link").symlink_to(target.format(top=grounds.root.parent))
    before = grounds.neighbours()
    with pytest.raises(PermissionDenied, match="outside the workspace"):
        VERBS[verb](grounds, "link/secret")
    if verb != "remove":
        with pytest.raises(PermissionDenied, match="outside the workspace"):
            VERBS[verb](grounds, "link")
    assert grounds.neighbours() == before


@pytest.mark.covers("REL-L35")
@pytest.mark.parametrize("target", ["../outside/new", "{top}/outside/new", "hop"])
def test_first_write_through_a_dangling_link_to_outside_is_denied(grounds: Grounds, target: str) -> None:
    """REL-L35: a link to something outside that does not exist yet does not let it come into being."""
    (grounds.root / "hop").symlink_to("../outside/new")
    (grounds.root / "link").symlink_to(target.format(top=grounds.root.parent))
    before = grounds.neighbours()
    with pytest.raises(PermissionDenied, match="outside the workspace"):
        grounds.writer().write("link", b"planted")
    assert grounds.neighbours() == before


def test_root_swapped_for_a_link_stays_the_root(grounds: Grounds) -> None:
    """The root is the directory opened at the start, whatever later is at its path."""
    reader, writer = grounds.reader(), grounds.writer()
    grounds.root.rename(grounds.root.with_name("moved"))
    grounds.root.symlink_to(grounds.outside)
    assert [entry.path for entry in reader.list()] == ["file", "sub"]
    writer.write("new", b"")
    assert (grounds.root.with_name("moved") / "new").exists()
    with pytest.raises(ExecutionError, match="no such file"):
        reader.open("secret")


def test_another_directory_at_the_same_path_is_noticed(grounds: Grounds) -> None:
    """Who holds the root open can tell whether its path still leads there, also through a link."""
    writer, link = grounds.writer(), grounds.outside / "link"
    link.symlink_to(grounds.root)
    assert writer.is_at(grounds.root)
    assert writer.is_at(link)
    grounds.root.rename(grounds.root.with_name("moved"))
    assert not writer.is_at(grounds.root)
    grounds.root.mkdir()
    assert not writer.is_at(grounds.root)


def test_same_directory_at_another_path_is_noticed(grounds: Grounds) -> None:
    """A root's path that leads elsewhere now is not reused, although a link still leads to the directory."""
    link, moved = grounds.outside / "link", grounds.root.with_name("moved")
    link.symlink_to(grounds.root)
    writer = WorkspaceWriter(link, resolver=grounds.resolver)
    assert writer.is_at(link)
    grounds.root.rename(moved)
    link.unlink()
    link.symlink_to(moved)
    assert not writer.is_at(link)
    grounds.root.mkdir()
    assert not writer.is_at(link)
    again = WorkspaceWriter(link, resolver=grounds.resolver)
    assert again.is_at(link)
    assert again.root == str(moved)
