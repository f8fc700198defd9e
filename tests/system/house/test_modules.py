"""Modules and classes are what a newcomer looks up: nouns, unique names, no crumb, no circle."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

MIN_LINES_OF_A_HELPER = 60
"""A module shorter than this whose only importer is a neighbour belongs into that neighbour."""
FACES = {"__init__.py", "__main__.py"}
MAX_FILES = 15
"""Most files of a folder, without its face; one with more has inner rooms."""
COMMANDS = "cli"
"""The folder with a file for each command."""
LEAST_COMMENTS = 0.015
"""Share of the lines that are comments: why the code is as it is."""
GERUND = re.compile(r"(?:^|_)(?!(?:string|setting|streaming|pricing|testing|docstring)$)[a-z]+ing$")
SILENCED = re.compile(r"# type: ignore(?:\[[\w-]+\])?")
TWIN = "sync"
"""The room whose classes bear the names of their asynchronous twins on purpose."""


def gerunds(files: Iterable[Path], root: Path) -> set[str]:
    """Return a line for every file named by a gerund: a file is a noun."""
    return {f"gerund {path.relative_to(root)}" for path in files if GERUND.search(path.stem)}


def repeated_classes(files: Iterable[Path]) -> set[str]:
    """Return a line for every class name that several modules define; a twin counts among twins alone."""
    homes: dict[tuple[bool, str], set[Path]] = defaultdict(set)
    for path in files:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes[TWIN in path.parts, node.name].add(path)
    return {f"class {name}" for (_, name), paths in homes.items() if len(paths) > 1}


def crumbs(files: Iterable[Path], root: Path) -> set[str]:
    """Return a line for every short module whose only importer is in the same folder.

    An importer that loads the module inside a function does not count: the module is apart to be loaded late.
    """
    homes = {_module(path, root): path for path in files}
    importers: dict[str, set[Path]] = defaultdict(set)
    for path in homes.values():
        for name in _imported(path, is_late=False):
            importers[name if name in homes else name.rpartition(".")[0]].add(path)
    return {
        f"crumb {path.relative_to(root)}"
        for module, path in homes.items()
        if path.name not in FACES
        and len(path.read_text("utf-8").splitlines()) < MIN_LINES_OF_A_HELPER
        and [user.parent for user in importers[module] - {path}] == [path.parent]
    }


def crowded(files: Iterable[Path]) -> dict[Path, int]:
    """Return the folders with too many files, each with how many it has."""
    counts = Counter(path.parent for path in files if path.name not in FACES)
    return {folder: n for folder, n in counts.items() if n > MAX_FILES and folder.name != COMMANDS}


def share_of_comments(files: Iterable[Path]) -> float:
    """Return the share of lines that have a comment, other than one that only quiets a type checker."""
    lines = comments = 0
    for path in files:
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                lines += token.type in {tokenize.NEWLINE, tokenize.NL}
                comments += token.type == tokenize.COMMENT and not SILENCED.fullmatch(token.string)
    return comments / lines


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    inside = parts[1:] if parts[0] == "tools" else parts
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)


def _imported(path: Path, *, is_late: bool = True) -> set[str]:
    """Return what a module imports, by full names: of modules, or of names in modules.

    Args:
        path: The module.
        is_late: Whether imports inside functions count.
    """
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while nodes:
        node = nodes.pop()
        if is_late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def circle(files: Iterable[Path], root: Path) -> list[str]:
    """Return one circle of modules that import each other; empty = none. Imports for type checking count."""
    homes = {_module(path, root): path for path in files if path.name not in FACES}
    graph = {
        module: {
            target
            for name in _imported(path)
            if (target := name if name in homes else name.rpartition(".")[0]) in homes and target != module
        }
        for module, path in homes.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def findings(files: list[Path], root: Path) -> set[str]:
    """Return every finding of the three rules."""
    return gerunds(files, root) | repeated_classes(files) | crumbs(files, root)


@pytest.mark.covers("C10")
def test_top_level_is_the_specification_s(checkout: Path) -> None:
    """Every folder of the specification holds what belongs there, and the two files are there."""
    folders = {"sessiontree": "py", "tools": "py", "tests": "py", "benchmarks": "py", "notebooks": "ipynb"}
    assert [name for name, ext in folders.items() if not any((checkout / name).rglob(f"*.{ext}"))] == []
    assert [name for name in ("pyproject.toml", "README.md") if not (checkout / name).read_text()] == []


def test_modules_and_classes_follow_the_rules(shipped_modules: list[Path], checkout: Path) -> None:
    """No gerund, no class name that means two things, no crumb."""
    assert shipped_modules
    assert sorted(findings(shipped_modules, checkout)) == []


def test_folders_fit_on_a_page(shipped_modules: list[Path], tmp_path: Path) -> None:
    """Fifteen files are looked through at a glance; a sixteenth is found."""
    assert shipped_modules
    assert crowded(shipped_modules) == {}
    room = [tmp_path / "room" / f"part{n}.py" for n in range(MAX_FILES + 1)]
    assert crowded(room[:-1]) == {}
    assert crowded(room) == {tmp_path / "room": MAX_FILES + 1}


def test_code_says_why(shipped_modules: list[Path], tmp_path: Path) -> None:
    """A race, an order, a limit: a comment names it where it is."""
    assert share_of_comments(shipped_modules) >= LEAST_COMMENTS
    path = tmp_path / "room.py"
    path.write_text(
        "# Race: the other task may be first.\nx = 1  # type: ignore[assignment]\ny = 2  # once\n\n"
    )
    assert share_of_comments([path]) == 0.5


def test_no_modules_import_each_other_in_a_circle(shipped_modules: list[Path], checkout: Path) -> None:
    """Inside a room neither; the floors keep rooms apart."""
    assert circle(shipped_modules, checkout) == []


def test_planted_circle_is_found(tmp_path: Path) -> None:
    """Also one that is closed for type checking alone."""
    room = tmp_path / "room"
    room.mkdir()
    files = [room / "a.py", room / "b.py", room / "c.py"]
    files[0].write_text("from room.b import y\n")
    files[1].write_text("from room import c\n")
    files[2].write_text("z = 1\n")
    assert circle(files, tmp_path) == []
    files[2].write_text("if TYPE_CHECKING:\n    from room.a import x\n")
    assert set(circle(files, tmp_path)) == {"room.a", "room.b", "room.c"}


@pytest.mark.parametrize("name", ["merging", "shell_parsing", "being"])
def test_planted_gerund_is_found(tmp_path: Path, name: str) -> None:
    """A gerund is found alone and at the end of a name."""
    assert gerunds([tmp_path / f"{name}.py"], tmp_path) == {f"gerund {name}.py"}


@pytest.mark.parametrize(
    "name", ["string", "docstring", "model_settings", "streaming", "ring_buffer", "ingest"]
)
def test_nouns_are_no_gerunds(tmp_path: Path, name: str) -> None:
    """Nouns that end like gerunds pass."""
    assert gerunds([tmp_path / f"{name}.py"], tmp_path) == set()


def test_planted_repeated_class_is_found(tmp_path: Path) -> None:
    """Two modules define one name; a twin in the synchronous room is no second meaning."""
    (tmp_path / "sync").mkdir()
    files = [tmp_path / "a.py", tmp_path / "b.py", tmp_path / "sync" / "c.py"]
    for path in files:
        path.write_text("class Line:\n    pass\n")
    files[1].write_text("class Row:\n    pass\n")
    assert repeated_classes(files) == set()
    files[1].write_text("class Line:\n    pass\n")
    assert repeated_classes(files) == {"class Line"}


def test_planted_crumb_is_found(tmp_path: Path) -> None:
    """A short module with one neighbour as importer is found; with two importers or 60 lines it passes."""
    room = tmp_path / "room"
    room.mkdir()
    small, user, other = room / "small.py", room / "user.py", tmp_path / "other.py"
    small.write_text("x = 1\n")
    user.write_text("from room.small import x\n" + "y = 1\n" * 60)
    other.write_text("z = 1\n" * 60)
    files = [small, user, other]
    assert crumbs(files, tmp_path) == {"crumb room/small.py"}
    other.write_text("from room import small\n" + "z = 1\n" * 60)
    assert crumbs(files, tmp_path) == set()
    other.write_text("z = 1\n" * 60)
    small.write_text("x = 1\n" * 60)
    assert crumbs(files, tmp_path) == set()
