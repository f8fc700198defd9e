"""The sync classes are what the script makes of the async ones, and their documentation is theirs."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sessiontree import sync


@pytest.fixture(scope="module")
def checkout() -> Path:
    """Return the checkout's root."""
    return Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script(checkout: Path) -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("generate_sync", checkout / ".ci" / "generate_sync.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_files_are_what_the_script_makes(checkout: Path, script: ModuleType) -> None:
    """A change of an async class, or of a generated file by hand, is found; `make sync-face` mends it."""
    for path, text in script.generated().items():
        assert (checkout / path).read_text("utf-8") == text, f"{path}: run make sync-face"


def test_script_finds_a_file_that_differs(checkout: Path, tmp_path: Path, script: ModuleType) -> None:
    """With --check it writes nothing, names the file and fails."""
    done = subprocess.run(
        [sys.executable, "-c", PLANTED.format(script=str(checkout / ".ci" / "generate_sync.py"))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "sessiontree/sync/session.py differs\n"), done.stderr


PLANTED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("generate_sync", {script!r})
script = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = script
spec.loader.exec_module(script)
made = script.generated()
made["sessiontree/sync/session.py"] += "# one line more"
script.generated = lambda: made
sys.argv = ["generate_sync.py", "--check"]
sys.exit(script.main())
"""


def test_script_says_what_an_async_class_lacks(script: ModuleType) -> None:
    """A method that is gone from the async class is named, not left out in silence."""
    twin = script.Twin("SessionHandle", "api.tree.session_handle", "SessionBase[R]", methods=("vanished",))
    with pytest.raises(SystemExit, match="SessionHandle has no vanished"):
        script.class_text(twin, script.Source(twin.module))


def test_generated_documentation_needs_no_await(checkout: Path, script: ModuleType) -> None:
    """No docstring of a generated class tells its reader to await something."""
    for path in script.generated():
        for node in ast.walk(ast.parse((checkout / path).read_text("utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                doc = (ast.get_docstring(node) or "").replace("without ``await``", "")
                assert "await" not in doc, f"{path}: {node.name}"


def test_generated_classes_are_exported(script: ModuleType) -> None:
    """Every generated class is part of the public room."""
    assert {twin.name for face in script.FACES for twin in face.twins} <= set(sync.__all__)
