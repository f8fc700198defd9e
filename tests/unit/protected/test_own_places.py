"""What processes of ours import from, reported by a program that is asked in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

import pytest

from sessiontree.protected.own_places import OwnPlaces, derive_module_name, is_installed, own_places
from sessiontree.protected.protected_places import ProtectedPlaces

ASK = """
import json, sys
{more}
from sessiontree.protected import own_places, find_protected_places
own = own_places()
places = find_protected_places(sys.argv[1], own)
print(json.dumps({{"why": places._why, "folders": list(places._folders), "seen": places.see().paths}}))
"""


def told(python: Path, root: Path, script: Path | None, more: str = "") -> Any:
    """Return what a Python says is protected in a workspace, as a script of its own or as ``-c``."""
    code = ASK.format(more=more)
    words = ["-c", code]
    if script is not None:
        script.write_text(code)
        words = [str(script)]
    env = {"PATH": os.environ["PATH"], "HOME": str(root)}
    done = subprocess.run(
        [python, *words, str(root)], cwd=root, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment in the workspace whose packages are this one's, by a line of a ``.pth`` file."""
    root = tmp_path / "project"
    venv.create(root / ".venv", with_pip=False, symlinks=True)
    packages = next((root / ".venv/lib").glob("python*/site-packages"))
    here = sysconfig.get_paths()["purelib"]
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return root


@pytest.mark.slow
def test_environment_and_editable_packages_are_whole(environment: Path) -> None:
    """All of ``.venv``; of the project the package that is installed editable, not what is next to it."""
    root = environment
    for name in ("app/__init__.py", "tests/__init__.py", "setup.py", "notes.md"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("")
    packages = next((root / ".venv/lib").glob("python*/site-packages"))
    (packages / "app.pth").write_text(f"{root}\n")
    info = packages / "app-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: app\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(json.dumps({"url": "file", "dir_info": {"editable": True}}))
    found = told(root / ".venv/bin/python", root, None)
    assert {".venv", "app"} <= found["why"].keys()
    assert {"tests", "setup.py", "notes.md"}.isdisjoint(found["why"])
    assert {str(root / ".venv"), str(root / "app")} <= set(found["seen"])
    assert str(root) not in found["seen"]


@pytest.mark.slow
def test_what_the_program_runs_is_protected_by_file(environment: Path) -> None:
    """Its script and the modules it has loaded; a neighbour that it has not is left to the session."""
    root = environment
    (root / "mine").mkdir()
    for name in ("mine/__init__.py", "mine/deep.py", "mine/other.py", "beside.py"):
        (root / name).write_text("")
    found = told(root / ".venv/bin/python", root, root / "script.py", "import mine.deep")
    names = {name for name in found["why"] if not name.startswith(".venv") and (root / name).exists()}
    assert names == {"script.py", "mine/__init__.py", "mine/deep.py"}
    assert found["folders"] == ["."]


@pytest.mark.slow
def test_project_that_is_its_own_environment_stays_usable(tmp_path: Path) -> None:
    """``python -m venv .``: its parts are protected, the rest of the directory is the session's."""
    root = tmp_path / "project"
    venv.create(root, with_pip=False, symlinks=True)
    packages = next((root / "lib").glob("python*/site-packages"))
    here = sysconfig.get_paths()["purelib"]
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    found = told(root / "bin/python", root, None)
    assert {"bin", "lib", "pyvenv.cfg"} <= found["why"].keys()
    assert "." not in found["why"]


def test_links_on_the_way_are_named(tmp_path: Path) -> None:
    """Whoever changes one decides what is found there, however it is spelled."""
    (tmp_path / "elsewhere/venv/bin").mkdir(parents=True)
    root = tmp_path / "project"
    root.mkdir()
    (root / ".venv").symlink_to("first")
    (root / "first").symlink_to(tmp_path / "elsewhere/venv")
    places = ProtectedPlaces(str(root), OwnPlaces((str(root / ".venv/bin"),)))
    assert set(places._why) == {".venv", "first"}
    seen = places.see()
    assert dict(seen.links) == {
        str(root / ".venv"): "first",
        str(root / "first"): str(tmp_path / "elsewhere/venv"),
    }


def test_this_process_names_its_own(tmp_path: Path) -> None:
    """The interpreter, the directories of packages, this package; not the workspace of a test."""
    own = own_places()
    assert {sys.prefix, sysconfig.get_paths()["purelib"]} <= set(own.trees)
    assert any(tree.endswith("/sessiontree") for tree in own.trees)
    assert own_places() == own
    assert ProtectedPlaces(str(tmp_path), own).see().paths == ()


def test_file_s_module() -> None:
    """By every ending that an importer takes, the longest that fits; a directory is called as it is."""
    for ending in all_suffixes():
        assert derive_module_name(f"a{ending}") == "a"
    assert [derive_module_name(name) for name in ("a", "a.txt", "a.b.py")] == ["a", "a.txt", "a.b"]


def test_what_is_installed_is_known(tmp_path: Path) -> None:
    """The standard library, what sites look for, packages; not what the program's own directory alone has."""
    assert all(is_installed(name, ()) for name in ("json", "sitecustomize", "pydantic", "builtins", "sys"))
    assert not is_installed("nobody_has_this", (str(tmp_path),))
