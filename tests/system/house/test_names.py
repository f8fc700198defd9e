"""Names and habits: telling file names, imports at the top, docstrings, and no address or private path."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

LINE_END = "\n"
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
DOORS = {
    "api/agents/configured_models.py": "a local model needs llama.cpp's package",
    "api/agents/model_choice.py": "a local model needs llama.cpp's package",
    "api/configuration/configuration.py": "variables need pydantic-settings; agents' files need YAML",
    "api/runtime/ray_door.py": "Ray takes a second to load, and only its backend needs it",
    "api/runtime/runtime.py": "only the chosen backend is loaded, and the journal with the first tree",
    "api/stored/journaled_trees.py": "memory needs LanceDB",
    "api/stored/stored_trees.py": "the journal is loaded when a stored tree is read",
    "api/telemetry/trace_export.py": "spans are exported with the extra otel",
    "api/telemetry/traces.py": "few trees are traced",
    "api/tree/running_tree.py": "what an open tree needs is loaded when it is used",
    "api/tree/session_tree.py": "what an open tree needs is loaded when one opens",
    "backends/ray/engine/environment_agent.py": "Ray's own agent is loaded if only it can answer",
    "bench/inspect_sets/worker_command.py": "inspect_ai is in the environment that the command enters",
    "bench/result_commands.py": "pictures need the extra plot; few reports have pages of samples",
    "bench/results/run_facts.py": "files of other nodes need PyArrow",
    "bench/run/place/run_place.py": "a cell shows progress in a notebook alone",
    "bench/run_results.py": "tables need PyArrow, statistics NumPy, and pages the extra serve",
    "bench/runnable_suite.py": "a file that defines suites does not run them",
    "bench/view/run_server.py": "pages need the extra serve",
    "cli/__main__.py": "the program restarts itself before it imports anything",
    "cli/acp.py": "an editor's protocol needs the extra acp",
    "cli/app.py": "help loads no command's body",
    "cli/bench_commands.py": "help loads no command's body",
    "cli/cron_commands.py": "help loads no command's body",
    "cli/door.py": "an editor's protocol needs the extra acp",
    "cli/journal_commands.py": "help loads no command's body",
    "cli/live_commands.py": "help loads no command's body",
    "cli/mcp_commands.py": "help loads no command's body",
    "cli/mcp_server.py": "MCP needs an extra",
    "cli/memory_commands.py": "help loads no command's body",
    "cli/options.py": "help loads no screen",
    "cli/program_commands.py": "help loads no command's body",
    "cli/resume.py": "the survey needs grammars",
    "cli/serve.py": "pages need the extra serve",
    "cli/token_commands.py": "help loads no command's body",
    "memory/embedders.py": "each embedder has libraries of its own",
    "models/cassettes/recorded_model.py": "a local model needs llama.cpp's package",
    "notebook/displays.py": "widgets need the extra notebook",
    "notebook/extension.py": "its function is a public name, which loads nothing of a notebook",
    "notebook/view_thread.py": "pages need the extra serve",
    "runtime/memory/memory_peers.py": "LanceDB takes a second to load",
    "runtime/supervisor/previews.py": "previews need the extra serve",
}
"""Where functions import, each with the reason; pyproject.toml allows the linter the same files."""
LOADED_BY_NAME = {
    "__init__.py": "the public names",
    "api/runtime/notebook_door.py": "the notebook is above the room that it shows",
    "backends/ray/engine/environment_agent.py": "Ray's own agent is a file that belongs to no package",
    "bench/run_results.py": "pandas is no dependency: its absence has an error of its own",
    "cli/edited_lines.py": "readline is not everywhere, and loading it alone changes the terminal",
    "contracts/values/data_frames.py": "pandas is no dependency: its absence has an error of its own",
    "interpreter/import_guard.py": "the guard decides which module a name means",
    "models/local/llama_program.py": "llama.cpp is no dependency: the owner hears of its absence",
    "models/providers/late_exports.py": "a library's own list names its modules",
    "models/providers/provider_model.py": "the provider that a user names brings its library",
    "notebook/figures.py": "matplotlib is of an extra: its absence has an error of its own",
    "sandbox/jobs/job_output.py": "pyte is of an extra, and has no types",
    "survey/source/languages.py": "the grammars of the survey's table",
}
"""Where a module is loaded by a name, each with where the name comes from."""

TABLED = re.compile(r"sessiontree(?:_tools)?(?:\.[a-z_]+)+:\w+")
"""``module:name`` of ours as a text: tools and readers can't follow it, and a module that moves breaks it."""
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


def late_imports(path: Path) -> tuple[set[int], set[int]]:
    """Return the lines of a module where a function imports, and those where a module is loaded by name."""
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
    }
    return inside, by_name


def misplaced_imports(paths: Iterable[Path], checkout: Path) -> list[str]:
    """Return the late imports outside the doors, and the doors that no late import goes through."""
    found = []
    unused = {*DOORS, *LOADED_BY_NAME}
    for path in paths:
        name = path.relative_to(checkout).as_posix().removeprefix("sessiontree/")
        for lines, doors in zip(late_imports(path), (DOORS, LOADED_BY_NAME), strict=True):
            if name not in doors:
                found += [f"{name}:{line}" for line in sorted(lines)]
            elif lines:
                unused.discard(name)
    return found + sorted(unused)


def tabled_modules(path: Path) -> list[str]:
    """Return the texts in a module that name an object of ours by its module."""
    return [
        node.value
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and TABLED.fullmatch(node.value)
    ]


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
    """Imports are at the top, but in the doors, and no door is without a reason or without a use."""
    assert shipped_modules
    assert misplaced_imports(shipped_modules, checkout) == []


def test_no_text_names_an_object_of_ours(shipped_modules: list[Path]) -> None:
    """A function imports what it needs late; texts name what users choose by a name: providers and suites."""
    named = {"catalog.py", "provider_model.py"}
    assert {path.name for path in shipped_modules if tabled_modules(path)} == named


def test_planted_text_that_names_an_object_is_found(tmp_path: Path) -> None:
    """A table of ``module:name`` is found; a module's name alone passes, and so does another package."""
    path = tmp_path / "room.py"
    path.write_text(
        "LATE = {'desk': 'sessiontree.api.tree.inbox:HumanInbox', 'a': 'sessiontree.api', 'b': 'x.y:z'}"
    )
    assert tabled_modules(path) == ["sessiontree.api.tree.inbox:HumanInbox"]


def test_linter_knows_the_same_doors(checkout: Path) -> None:
    """pyproject.toml lets functions import in the doors alone."""
    settings = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    allowed = settings["tool"]["ruff"]["lint"]["per-file-ignores"]
    files = [file for file, rules in allowed.items() if "PLC0415" in rules]
    assert files == [f"sessiontree/{door}" for door in DOORS]


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
    assert f"room.py:{source.count(LINE_END) + 1}" in misplaced_imports([path], tmp_path)


def test_door_is_open_for_its_own_kind_of_import(tmp_path: Path) -> None:
    """Where functions import, nothing is loaded by name; a door that nothing goes through is found."""
    by_name = "import importlib\n\ndef load(name):\n    return importlib.import_module(name)\n"
    door = tmp_path / "sessiontree" / "api/runtime/ray_door.py"
    door.parent.mkdir(parents=True)
    door.write_text("def load():\n    import ray\n")
    found = misplaced_imports([door], tmp_path)
    assert "api/runtime/notebook_door.py" in found
    assert not any(line.startswith("api/runtime/ray_door.py") for line in found)
    door.write_text(by_name)
    assert {"api/runtime/ray_door.py", "api/runtime/ray_door.py:4"} <= set(
        misplaced_imports([door], tmp_path)
    )


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
