"""What a program names in its code is protected before it is loaded, and before it is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree.protected.named_modules import find_named_places
from sessiontree.protected.own_places import OwnPlaces
from sessiontree.protected.protected_places import ProtectedPlaces
from sessiontree.workspace.writer import WorkspaceWriter

CODE = """
import json, first as one, second.inner
from third import (
    part,
    other as more,
)
def later():
    import fourth
    importlib.import_module("fifth")
    return spawn(approver='sixth.rules:judge')
from . import beside
from .package import below
TEXT = "not:a-name", "http://x"
"""
NAMED = ("first", "second/inner", "third", "third/part", "fourth", "fifth", "sixth/rules")
OF_A_PACKAGE = ("app/beside", "app/package", "app/package/below")

PROGRAM = """
import asyncio, json, sys
from sessiontree import FunctionModel, PermissionDenied, SessionTree, script_call


COMMAND = "echo x > absent.py; mkdir lazy absent; touch lazy/__init__.py; echo planted >> rules.py"


def decide(request):
    return request.tool == "exec"


async def main():
    told = {}
    model, given = FunctionModel(lambda request: "ok"), dict(backend="local", state_dir="../state")
    async with SessionTree(".", model=model, approvals="always", approver=decide, **given) as tree:
        for name in ("rules", "lazy", "deep", "free"):
            try:
                await tree.main.call("write", {"path": f"{name}.py", "content": "planted"})
                told[name] = "written"
            except PermissionDenied:
                told[name] = "refused"
        done = await tree.main.call("exec", {"command": COMMAND})
        told["exec"] = done.text
        branch = await tree.main.spawn("branch", "do it", approver="rules:judge")
        await branch.result()
    print("TOLD", json.dumps(told))


def on_some_day():
    import absent
    import lazy


if __name__ == "__main__":
    asyncio.run(main())
"""


def test_names_in_code_are_found_in_the_programs_directories(tmp_path: Path) -> None:
    """Statements, calls and texts; of what is there, its own names too."""
    program = tmp_path / "app" / "program.py"
    program.parent.mkdir()
    program.write_text(CODE)
    (tmp_path / "fourth.py").write_text("def f():\n    from seventh import g\n")
    found = set(find_named_places([str(program)], (str(tmp_path),)))
    for name in (*NAMED, *OF_A_PACKAGE, "seventh"):
        assert {f"{tmp_path}/{name}.py", f"{tmp_path}/{name}/__init__.py"} <= found, name
    assert not [each for each in found if any(name in each for name in ("json", "not", "http"))]


def test_named_module_is_asked_about_and_kept_away_from_commands(tmp_path: Path) -> None:
    """Those that are there are read-only for a command, the others may not appear."""
    (tmp_path / "rules.py").write_text("")
    own = OwnPlaces(named=(str(tmp_path / "rules.py"), str(tmp_path / "absent.py")))
    places = ProtectedPlaces(str(tmp_path), own)
    writer = WorkspaceWriter(tmp_path, own=own)
    assert writer.find_places("rules.py")
    assert writer.find_places("absent.py")
    assert not writer.find_places("other.py")
    seen = places.see()
    assert seen.paths == (str(tmp_path / "rules.py"),)
    assert seen.absent == (str(tmp_path / "absent.py"),)


@pytest.mark.slow
@pytest.mark.covers("WSP13")
def test_approver_that_is_named_later_is_the_owners(tmp_path: Path) -> None:
    """No session writes the approver, or what it imports, before the program spawns with it."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    rules = "import deep\ndef judge(request): return 'deny'\n"
    for name, text in (("program", PROGRAM), ("rules", rules), ("deep", ""), ("lazy", "")):
        (workspace / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=workspace,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.partition("TOLD ")[2])
    assert {name: told[name] for name in ("rules", "lazy", "deep", "free")} == {
        "rules": "refused",
        "lazy": "refused",
        "deep": "refused",
        "free": "written",
    }
    assert "absent.py" in told["exec"]
    assert (workspace / "rules.py").read_text() == rules
    assert not (workspace / "absent.py").exists()
    assert list((workspace / "lazy").iterdir()) == []
