"""Places inside the root that are closed to tools."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessiontree.contracts.errors import ConfigError, PermissionDenied
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter

if TYPE_CHECKING:
    from tests.unit.workspace.conftest import Grounds


@pytest.fixture
def state(grounds: Grounds) -> Path:
    """A state directory inside the workspace, with something in it."""
    folder = grounds.root / "sub" / ".state"
    (folder / "trees").mkdir(parents=True)
    (folder / "trees" / "journal").write_bytes(b"journal")
    return folder


def pair(grounds: Grounds, *hidden: Path) -> tuple[WorkspaceReader, WorkspaceWriter]:
    """Return a reader and a writer that hide some paths."""
    return (
        WorkspaceReader(grounds.root, hidden=hidden, resolver=grounds.resolver),
        WorkspaceWriter(grounds.root, hidden=hidden, resolver=grounds.resolver),
    )


def assert_closed(reader: WorkspaceReader, writer: WorkspaceWriter, folder: str) -> None:
    """Every verb refuses a hidden directory and what is in it."""
    for call in (
        lambda: reader.open(f"{folder}/trees/journal"),
        lambda: reader.stat(f"{folder}/trees/journal"),
        lambda: reader.stat(f"{folder}/missing"),
        lambda: reader.list(folder),
        lambda: reader.list(f"{folder}/trees"),
        lambda: list(reader.walk(folder)),
        lambda: writer.write(f"{folder}/trees/journal", b"forged"),
        lambda: writer.write(f"{folder}/new/file", b"planted"),
        lambda: writer.remove(f"{folder}/trees/journal"),
    ):
        with pytest.raises(PermissionDenied, match="closed to tools"):
            call()


@pytest.mark.covers("REL-L18")
def test_hidden_directory_is_closed_to_every_verb(
    grounds: Grounds, state: Path, count_descriptors: Callable[[], int]
) -> None:
    """The runtime's own files cannot be read, changed or listed by a path into them; nothing stays open."""
    before = count_descriptors()
    assert_closed(*pair(grounds, state), "sub/.state")
    assert_closed(*pair(grounds, state), str(state))
    assert count_descriptors() == before
    assert (state / "trees" / "journal").read_bytes() == b"journal"
    assert grounds.names("sub/.state") == ["trees"]


def test_hidden_directory_is_closed_through_links(grounds: Grounds, state: Path) -> None:
    """REL-L36: the rule holds for a link into the hidden place, relative or absolute."""
    (grounds.root / "one").symlink_to("sub/.state")
    (grounds.root / "two").symlink_to(state)
    for link in ("one", "two", "sub/../two"):
        assert_closed(*pair(grounds, state), link)


def test_hidden_directory_is_closed_under_a_new_name(grounds: Grounds, state: Path) -> None:
    """What was moved or is reached under another name is still what it was."""
    reader, writer = pair(grounds, state, state / "trees")
    (state / "trees").rename(grounds.root / "plain")
    (state / "trees").symlink_to(grounds.root / "plain")
    (grounds.root / "plain" / "deep").mkdir()
    for path in ("plain/journal", "plain/deep/new"):
        with pytest.raises(PermissionDenied, match="closed to tools"):
            writer.write(path, b"")
    assert [entry.path for entry in reader.walk()] == ["file", "sub/inner"]


def test_hidden_file_is_closed_under_a_new_name(grounds: Grounds) -> None:
    """A hidden file that was moved, with a link left in its place, is still closed."""
    reader, writer = pair(grounds, grounds.root / "file")
    (grounds.root / "file").rename(grounds.root / "plain")
    (grounds.root / "file").symlink_to("plain")
    for call in (lambda: reader.open("plain"), lambda: writer.write("plain", b"forged")):
        with pytest.raises(PermissionDenied, match="closed to tools"):
            call()
    assert [entry.path for entry in reader.walk()] == ["sub/inner"]


def test_hidden_link_is_itself_closed(grounds: Grounds) -> None:
    """Where the state directory is a link, the link cannot be removed or replaced either."""
    (grounds.root / "state").symlink_to(grounds.outside)
    reader, writer = pair(grounds, grounds.root / "state")
    with pytest.raises(PermissionDenied, match="closed to tools"):
        writer.remove("state")
    assert grounds.names() == ["file", "state", "sub"]
    assert [entry.path for entry in reader.list()] == ["file", "sub"]


def test_hidden_places_are_left_out_of_lists_and_walks(grounds: Grounds, state: Path) -> None:
    """A list or walk of the surroundings does not even name them."""
    reader, _ = pair(grounds, state, grounds.root / "file")
    assert [entry.path for entry in reader.list()] == ["sub"]
    assert [entry.path for entry in reader.list("sub")] == ["sub/deep", "sub/inner"]
    assert [entry.path for entry in reader.walk()] == ["sub/inner"]


@pytest.mark.covers("REL-L36")
def test_hidden_file_is_closed_under_a_second_name(grounds: Grounds) -> None:
    """REL-L36: a hard link to a hidden file is refused for reading and removing as well."""
    os.link(grounds.root / "file", grounds.root / "second")
    reader, writer = pair(grounds, grounds.root / "file")
    for call in (
        lambda: reader.open("second"),
        lambda: reader.stat("second"),
        lambda: writer.remove("second"),
    ):
        with pytest.raises(PermissionDenied, match="closed to tools"):
            call()
    assert [entry.path for entry in reader.list()] == ["sub"]


def test_hidden_place_cannot_be_made_by_a_tool(grounds: Grounds) -> None:
    """A place that does not exist yet is guarded by its name."""
    _, writer = pair(grounds, grounds.root / "later")
    (grounds.root / "link").symlink_to("later")
    for path in ("later", "later/file", "link", "link/file", "sub/../later"):
        with pytest.raises(PermissionDenied, match="closed to tools"):
            writer.write(path, b"planted")
    assert not (grounds.root / "later").exists()
    assert writer.write("later-on", b"").created


def test_hidden_place_outside_the_root_changes_nothing(grounds: Grounds) -> None:
    """Hiding what cannot be reached anyway is allowed."""
    reader, _ = pair(grounds, grounds.outside)
    assert [entry.path for entry in reader.walk()] == ["file", "sub/inner"]


@pytest.mark.parametrize("path", ["{root}", "{root}/sub/..", "{root}/..", "/", "sub", "link"])
def test_hiding_everything_or_a_relative_path_is_a_configuration_error(grounds: Grounds, path: str) -> None:
    """A hidden path that holds the workspace, or that depends on where one is, is a mistake."""
    with pytest.raises(ConfigError, match="can't hide"):
        pair(grounds, Path(path.format(root=grounds.root)))
