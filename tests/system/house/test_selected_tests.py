"""``make test-changed`` runs the tests that a change concerns; ``make room`` those of a room."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

IMPORTERS = {
    "sessiontree.session.calls": {"sessiontree.session.machine"},
    "sessiontree.session.machine": {"sessiontree.runtime.runner"},
    "sessiontree.runtime.runner": {"sessiontree.api.tree"},
}
IMPORTS = {
    "tests/unit/session/test_machine.py": {"sessiontree.session.machine"},
    "tests/unit/session/session_fakes.py": {"sessiontree.session.calls"},
    "tests/unit/runtime/test_runner.py": {"sessiontree.runtime.runner"},
    "tests/unit/runtime/test_calls.py": {"sessiontree.session.calls"},
    "tests/unit/hooks/test_faked.py": {"tests.unit.session.session_fakes"},
    "tests/unit/api/test_tree.py": {"sessiontree.api.tree"},
    "tests/unit/api/test_words.py": set(),
}
TEXTS = {file: "reads README.md" if file.endswith("words.py") else "" for file in IMPORTS if "/test_" in file}
SESSION = ["tests/unit/runtime/test_calls.py", "tests/unit/session/test_machine.py"]


@pytest.fixture(scope="module")
def script(checkout: Path) -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("selected_tests", checkout / ".ci" / "selected_tests.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sources(script: ModuleType) -> Any:
    """Three rooms above each other, their tests, and one module that only tests use."""
    return script.Sources(IMPORTERS, IMPORTS, TEXTS)


@pytest.mark.parametrize(
    ("changed", "max_files", "selected"),
    [
        ("sessiontree/session/calls.py", 0, SESSION),
        ("sessiontree/session/calls.py", 3, ["tests/unit/hooks/test_faked.py", *SESSION]),
        (
            "sessiontree/session/calls.py",
            4,
            ["tests/unit/hooks/test_faked.py", *SESSION[:1], "tests/unit/runtime/test_runner.py", SESSION[1]],
        ),
        ("sessiontree/api/tree.py", 0, ["tests/unit/api/test_tree.py", "tests/unit/api/test_words.py"]),
        ("sessiontree/session/removed.py", 9, ["tests/unit/session/test_machine.py"]),
        ("tests/unit/session/session_fakes.py", 0, ["tests/unit/hooks/test_faked.py"]),
        ("tests/unit/api/test_tree.py", 0, ["tests/unit/api/test_tree.py"]),
        ("tests/unit/api/conftest.py", 0, ["tests/unit/api/test_tree.py", "tests/unit/api/test_words.py"]),
        ("README.md", 0, ["tests/unit/api/test_words.py"]),
        ("LICENSE", 9, []),
    ],
)
def test_nearest_tests_are_selected(
    script: ModuleType, sources: Any, changed: str, max_files: int, selected: list[str]
) -> None:
    """The room always, then what imports the change; each step further only as a whole, and while it fits."""
    assert script.select([changed], sources, max_files) == selected


def test_long_files_that_import_a_change_are_left_out(script: ModuleType, sources: Any) -> None:
    """The quickest come first, until the time is used up; then no file further away comes either."""
    limit = script.MAX_FURTHER_S
    runs, faked = "tests/unit/runtime/test_calls.py", "tests/unit/hooks/test_faked.py"
    for seconds, further in (
        ({runs: limit / 2}, [faked, runs]),
        ({runs: limit, faked: 1.0}, [runs]),
        ({runs: limit + 1}, []),
    ):
        measured = script.Sources(IMPORTERS, IMPORTS, TEXTS, seconds)
        found = script.select(["sessiontree/session/calls.py"], measured, 3)
        assert found == sorted([*further, "tests/unit/session/test_machine.py"])


def test_what_every_test_depends_on_selects_everything(script: ModuleType, sources: Any) -> None:
    """The configuration and the first conftest concern every test."""
    assert script.select(["LICENSE", "pyproject.toml"], sources) is None
    assert script.select(["tests/conftest.py"], sources) is None


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("sessiontree/session/calls.py", "sessiontree.session.calls"),
        ("sessiontree/session/__init__.py", "sessiontree.session"),
        ("sessiontree/__init__.py", "sessiontree"),
        ("tools/sessiontree_tools/files/write.py", "sessiontree_tools.files.write"),
        ("tests/unit/session/session_fakes.py", "tests.unit.session.session_fakes"),
        ("benchmarks/dispatch.py", "benchmarks.dispatch"),
        ("tests/unit/session/conftest.py", None),
        (".ci/setup.py", None),
        ("docs/tools.md", None),
    ],
)
def test_path_names_its_module(script: ModuleType, path: str, module: str | None) -> None:
    """Of the packages, of the tests and of the benchmarks; nothing else is a module."""
    assert script.module_of(path) == module


def test_imports_are_read_from_text(script: ModuleType) -> None:
    """On one line, over several, in a function, and in a program that a test starts."""
    text = 'import a.b\nfrom c import (\n    d,\n    e,\n)\ndef f():\n    from g import h\n"""\nimport i\n"""'
    assert set(script.list_imports(text)) == {"a.b", "c", "c.d", "c.e", "g", "g.h", "i"}


def test_change_in_a_pure_room_selects_its_tests(script: ModuleType, checkout: Path) -> None:
    """On the real graph: those of the room and of its nearest users, within the bound."""
    sources = script.read_sources(checkout)
    chosen = script.select(["sessiontree/session/calls.py"], sources)
    assert len(chosen) <= script.MAX_FILES
    assert {file for file in sources.texts if "session" in Path(file).parts[1:-1]} <= set(chosen)
    assert any("runtime" in Path(file).parts for file in chosen)


def run_git(place: Path, *words: str) -> None:
    """Run git in a checkout of its own settings."""
    settings = (
        "-c",
        "user.name=somebody",
        "-c",
        "user.email=somebody@example.org",
        "-c",
        "commit.gpgsign=false",
    )
    subprocess.run(["git", *settings, *words], cwd=place, check=True, capture_output=True)


def test_changes_are_those_since_the_branch_left_and_those_without_a_commit(
    script: ModuleType, tmp_path: Path
) -> None:
    """Committed, uncommitted, removed and new files; what main did meanwhile does not count."""
    for name in ("kept", "changed", "removed", "committed"):
        (tmp_path / name).write_text("before")
    run_git(tmp_path, "init", "--initial-branch=main")
    run_git(tmp_path, "add", "-A")
    run_git(tmp_path, "commit", "-m", "first")
    run_git(tmp_path, "checkout", "-b", "branch")
    (tmp_path / "committed").write_text("after")
    run_git(tmp_path, "commit", "-am", "second")
    run_git(tmp_path, "checkout", "main")
    (tmp_path / "kept").write_text("changed on main")
    run_git(tmp_path, "commit", "-am", "third")
    run_git(tmp_path, "checkout", "branch")
    (tmp_path / "changed").write_text("after")
    (tmp_path / "removed").unlink()
    (tmp_path / "new name").write_text("")
    assert script.list_changed(tmp_path, "main") == {"committed", "changed", "removed", "new name"}


def test_room_is_found_at_any_depth_or_refused(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every folder of the name; without one, the names that there are."""
    for folder in ("tests/journal", "tests/unit/journal", "tests/web"):
        (tmp_path / folder).mkdir(parents=True)
    assert script.find_room(tmp_path, "journal") == ["tests/journal", "tests/unit/journal"]
    assert script.main("room", "attic", checkout=tmp_path) == 2
    assert "journal, unit, web" in capsys.readouterr().err
    assert script.main("room", checkout=tmp_path) == script.main(checkout=tmp_path) == 2
