"""Names and habits: telling file names, imports at the top, docstrings, and no address or private path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
LAZY_DOORS = {
    "sessiontree/__init__.py",
    "sessiontree/bench/inspect_sets/worker_command.py",
    "sessiontree/bench/result_commands.py",
    "sessiontree/bench/results/results.py",
    "sessiontree/bench/results/run_facts.py",
    "sessiontree/bench/run/place/progress.py",
    "sessiontree/bench/suite/suite.py",
    "sessiontree/bench/suite/suite_loader.py",
    "sessiontree/bench/view/view_command.py",
    "sessiontree/api/runtime/runtime.py",
    "sessiontree/contracts/values/data_frames.py",
    "sessiontree/notebook/displays.py",
    "sessiontree/notebook/figures.py",
    "sessiontree/notebook/view_thread.py",
    "sessiontree/interpreter/import_guard.py",
    "sessiontree/cli/__main__.py",
    "sessiontree/cli/options.py",
    "sessiontree/cli/edited_lines.py",
    "sessiontree/runtime/runner/approver_function.py",
    "sessiontree/runtime/memory/memory_peers.py",
    "sessiontree/runtime/supervisor/previews.py",
    "sessiontree/memory/embedders.py",
    "sessiontree/models/local/llama_program.py",
    "sessiontree/models/providers/provider_model.py",
    "sessiontree/sandbox/jobs/job_output.py",
    "sessiontree/survey/source/languages.py",
}
"""What loads modules by name: lazy exports, backends, commands, approvers, embedders, providers, a library
of local models, grammars, what an extra brings."""

PRIVATE = {
    "a package index or a place of packages": re.compile(r"(?<!emit-)(?:index[-_]url|find[-_]links)"),
    "a path of one machine": re.compile(r"(?<![\w.$})*~-])/(?:home|root|work|Users)/\w"),
}
ADDRESS = re.compile(r"[a-z+]+://|^\s*-", re.MULTILINE)


def vague_names(files: Iterable[Path], checkout: Path) -> list[str]:
    """Return the files whose name, or a folder's name on the way, says nothing."""
    return [
        str(path)
        for path in (file.relative_to(checkout) for file in files)
        if any(word in VAGUE for part in path.with_suffix("").parts for word in part.lower().split("_"))
    ]


def late_imports(path: Path, checkout: Path) -> list[str]:
    """Return the lines where a module is loaded inside a function, or by name outside the lazy doors."""
    name = path.relative_to(checkout).as_posix()
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    by_name = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr) in {"import_module", "__import__"}
        and name not in LAZY_DOORS
    }
    return [f"{name}:{line}" for line in sorted(inside | by_name)]


def private_words(path: Path) -> list[str]:
    """Return what a text file says about one machine; empty for a file that is not text."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return []
    found = [
        f"{path}: {what}: {match[0]!r}" for what, word in PRIVATE.items() for match in word.finditer(text)
    ]
    if path.suffix == ".lock" or path.name.startswith("requirements"):
        lines = text.replace("\\\n", " ")
        found += [f"{path}: an address or option: {match[0]!r}" for match in ADDRESS.finditer(lines)]
    return found


def without_docstring(path: Path) -> list[str]:
    """Return the module, where it has no docstring, and every test function in it that has none."""
    tree = ast.parse(path.read_text("utf-8"))
    found = [] if ast.get_docstring(tree) else [f"{path}: the module"]
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    return found + [
        f"{path}:{node.lineno}: {node.name}"
        for body in bodies
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]


def test_no_file_name_is_vague(all_modules: list[Path], checkout: Path) -> None:
    """One noun, one file: none is called utils, helpers, common, base or manager."""
    assert vague_names(all_modules, checkout) == []


def test_no_import_is_late(shipped_modules: list[Path], checkout: Path) -> None:
    """Imports stand at the top, so that the floors are what they seem."""
    assert shipped_modules
    assert [line for path in shipped_modules for line in late_imports(path, checkout)] == []


def test_no_file_names_a_machine_or_an_index(house_files: list[Path]) -> None:
    """Nothing committed holds a package index or a path of one machine; a lock holds no address at all."""
    assert house_files
    assert [word for path in house_files for word in private_words(path)] == []


def test_every_module_and_every_test_says_what_it_is_for(all_modules: list[Path]) -> None:
    """Modules and tests have docstrings."""
    assert [line for path in all_modules for line in without_docstring(path)] == []


@pytest.mark.parametrize("name", ["utils.py", "tree_helpers.py", "common/tree.py", "base.py", "Manager.py"])
def test_planted_vague_name_is_found(tmp_path: Path, name: str) -> None:
    """A vague word is found as a name, as a part of one, and as a folder; ``base64`` is not one."""
    assert vague_names([tmp_path / "base64_image.py", tmp_path / name], tmp_path) == [name]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    import os",
        "async def f():\n    if True:\n        from os import path",
        "class A:\n    def f(self):\n        import os",
        "import importlib\nx = importlib.import_module('ray')",
        "from importlib import import_module as load\nx = __import__('ray')",
    ],
)
def test_planted_late_import_is_found(tmp_path: Path, source: str) -> None:
    """Any depth counts, and so does loading by name."""
    path = tmp_path / "room.py"
    path.write_text(source)
    assert late_imports(path, tmp_path)


def test_lazy_door_may_load_by_name_but_not_import_late(tmp_path: Path) -> None:
    """The table of backends loads modules through importlib; a plain late import is refused there too."""
    door = tmp_path / "sessiontree" / "api/runtime/runtime.py"
    door.parent.mkdir(parents=True)
    door.write_text("import importlib\n\ndef load(name):\n    return importlib.import_module(name)\n")
    assert late_imports(door, tmp_path) == []
    door.write_text("def load():\n    import ray\n")
    assert late_imports(door, tmp_path) == ["sessiontree/api/runtime/runtime.py:2"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Makefile", "pip install --extra-index" + "-url x"),
        ("pip.conf", "find" + "_links = wheels"),
        ("notes.md", "see " + "/home" + "/someone/notes"),
        ("room.py", 'PLACE = "' + "/work" + '/main"'),
        ("requirements.lock", "a @ https:" + "//example.org/a.whl"),
        ("requirements.lock", "--index" + "-url x"),
        ("requirements-extra.txt", "-f wheels"),
    ],
)
def test_planted_private_word_is_found(tmp_path: Path, name: str, text: str) -> None:
    """Each kind of private word is seen."""
    path = tmp_path / name
    path.write_text(f"first line\n{text}\n")
    assert private_words(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Makefile", "uv pip compile --no-emit-index" + "-url"),
        ("room.py", "https:" + "//example.org/home/page docs/home/page ~/work/tree"),
        ("requirements.lock", "a==1 \\\n    --hash=sha256:00\n"),
    ],
)
def test_what_is_not_private_passes(tmp_path: Path, name: str, text: str) -> None:
    """Options that leave addresses out, addresses outside locks, and paths of nobody are no findings."""
    path = tmp_path / name
    path.write_text(text)
    assert private_words(path) == []


def test_planted_missing_docstring_is_found(tmp_path: Path) -> None:
    """A module without a docstring is found, and a test without one, in a class and async as well."""
    path = tmp_path / "test_room.py"
    path.write_text(
        "def test_a():\n    pass\nasync def test_b():\n    pass\n"
        "class TestC:\n    def test_c(self):\n        pass\n    def helper(self):\n        pass\n"
    )
    assert [line.rsplit(" ", 1)[-1] for line in without_docstring(path)] == [
        "module",
        "test_a",
        "test_b",
        "test_c",
    ]
