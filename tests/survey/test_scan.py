"""Scan: what is surveyed below a root, what is left out, and what cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, ToolError
from sessiontree.contracts.ports import Entry
from sessiontree.survey.ignored import ALWAYS, BESIDE, is_ignored_directory
from sessiontree.survey.scan import scan
from sessiontree.workspace import WorkspaceReader

MakeTree = Callable[[Mapping[str, str | bytes]], Path]


def test_files_come_by_path_with_their_size(make_tree: MakeTree) -> None:
    """Every regular file below the root, hidden ones too."""
    root = make_tree({"b.py": "12", "a/z": "1", "a/b/c": b"", ".github/x.yml": "123"})
    found = scan(WorkspaceReader(root))
    assert [(file.path, file.size) for file in found.files] == [
        (".github/x.yml", 3),
        ("a/b/c", 0),
        ("a/z", 1),
        ("b.py", 2),
    ]
    assert (found.ignored, found.problems) == (0, ())


def test_caches_packages_and_build_output_are_left_out(make_tree: MakeTree) -> None:
    """By name, by a neighbour that makes them, and by a file inside."""
    root = make_tree(
        {
            ".git/HEAD": "",
            "web/node_modules/x/a.js": "",
            "pkg/__pycache__/a.pyc": "",
            "x.egg-info/PKG-INFO": "",
            "Cargo.toml": "",
            "target/debug/a": "",
            "my env/pyvenv.cfg": "",
            "my env/lib/a.py": "",
            "cached/CACHEDIR.TAG": "",
            "SURVEY.md": "old report",
            "lib/build/kept.py": "",
            "lib/target/kept.py": "",
            "lib/SURVEY.md": "kept",
        }
    )
    found = scan(WorkspaceReader(root))
    assert [file.path for file in found.files] == [
        "Cargo.toml",
        "lib/SURVEY.md",
        "lib/build/kept.py",
        "lib/target/kept.py",
    ]
    assert found.ignored == 8


def test_the_root_itself_is_surveyed_whatever_it_is(make_tree: MakeTree) -> None:
    """Who asks for a virtual environment gets it."""
    root = make_tree({"pyvenv.cfg": "", "lib/a.py": ""})
    assert [file.path for file in scan(WorkspaceReader(root)).files] == ["lib/a.py", "pyvenv.cfg"]


def test_links_are_never_followed(make_tree: MakeTree) -> None:
    """A link to a file or directory, even a cycle, counts as left out."""
    root = make_tree({"a/b.py": ""})
    (root / "a" / "self").symlink_to(root / "a")
    (root / "copy.py").symlink_to(root / "a" / "b.py")
    (root / "broken").symlink_to("nowhere")
    found = scan(WorkspaceReader(root))
    assert [file.path for file in found.files] == ["a/b.py"]
    assert found.ignored == 3


def test_pipes_and_odd_names_are_problems_not_errors(make_tree: MakeTree) -> None:
    """What cannot be surveyed is named, everything else is found."""
    root = make_tree({"a.py": ""})
    os.mkfifo(root / "pipe")
    Path(os.fsdecode(os.fsencode(root) + b"/bad\xff.py")).touch()
    found = scan(WorkspaceReader(root))
    assert [file.path for file in found.files] == ["a.py"]
    assert [(one.path, one.text) for one in found.problems] == [
        ("bad\\udcff.py", "its name is no UTF-8"),
        ("pipe", "no regular file"),
    ]


class ClosedReader(WorkspaceReader):
    """A reader that is refused some directories."""

    __slots__ = ("closed",)

    def __init__(self, root: Path, closed: str) -> None:
        """Read beneath a root but for one directory."""
        super().__init__(root)
        self.closed = closed

    def list(self, path: str = ".") -> list[Entry]:
        """Return entries, or refuse."""
        if path == self.closed:
            raise ExecutionError(f"can't list {path!r}: no permission")
        return super().list(path)


def test_a_directory_that_cannot_be_listed_costs_itself_alone(make_tree: MakeTree) -> None:
    """Its name and the reason are reported, its neighbours surveyed."""
    root = make_tree({"a/x": "", "b/y": "", "c/z": ""})
    found = scan(ClosedReader(root, "b"))
    assert [file.path for file in found.files] == ["a/x", "c/z"]
    assert [(one.path, one.text) for one in found.problems] == [
        ("b", "can't be listed: can't list 'b': no permission")
    ]


def test_a_root_that_cannot_be_listed_is_an_error(make_tree: MakeTree) -> None:
    """There is nothing to survey, and silence would look like an empty tree."""
    with pytest.raises(ToolError):
        scan(ClosedReader(make_tree({}), "."))
    with pytest.raises(ToolError):
        scan(WorkspaceReader(make_tree({"a": ""})), "missing")


def test_a_part_of_the_tree_can_be_scanned(make_tree: MakeTree) -> None:
    """Paths stay relative to the reader's root."""
    root = make_tree({"a/b/c.py": "", "d.py": ""})
    assert [file.path for file in scan(WorkspaceReader(root), "a").files] == ["a/b/c.py"]


class DeepReader(WorkspaceReader):
    """A reader that sees directories in directories, and a file in the last."""

    __slots__ = ()

    def list(self, path: str = ".") -> list[Entry]:
        """Return one directory, or the file."""
        depth = 0 if path == "." else path.count("/") + 1
        inner = "/".join(["d"] * (depth + 1))
        return [Entry(inner, "directory" if depth < 5_000 else "file", 1, 0)]


def test_very_deep_directories_need_no_deep_stack(make_tree: MakeTree) -> None:
    """Five thousand levels are listed as any others: no level takes a frame of the stack."""
    found = scan(DeepReader(make_tree({})))
    assert [file.path.count("/") for file in found.files] == [5_000]


def test_the_tables_say_why() -> None:
    """Every name left out has a reason, and no name is in two tables."""
    assert all(ALWAYS.values())
    assert all(BESIDE.values())
    assert not ALWAYS.keys() & BESIDE.keys()
    assert is_ignored_directory("node_modules", ())
    assert is_ignored_directory("build", ("setup.py",))
    assert not is_ignored_directory("build", ("Makefile", "src"))
