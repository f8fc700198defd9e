"""The environment a program runs in, and the program itself, where they lie in the workspace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", ["local"])  # on Ray what a .pth program adds counts as the program's own
def test_nothing_our_processes_import_from_is_changed_unasked(tmp_path: Path, backend: str) -> None:
    """Where nobody can be asked each write is denied as Elevated, and commands find it all read-only."""
    root = tmp_path / "project"
    venv.create(root / ".venv", with_pip=False, symlinks=True)
    packages = next((root / ".venv/lib").glob("python*/site-packages"))
    (packages / "ours.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n"
    )
    shutil.copyfile(Path(__file__).with_name("environment_program.py"), root / "program.py")
    (root / "mine.py").write_text("")
    before = standing(root)
    done = subprocess.run(
        [root / ".venv/bin/python", "program.py", str(root), str(tmp_path / "state"), backend],
        cwd=root,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for name, text in told.items():
        if name.startswith("write"):
            assert '"tier":"Elevated"' in text or "Elevated" in text, (name, text)
        elif name.startswith("exec"):
            assert any(word in text for word in ("Read-only file system", "resource busy")), (name, text)
    assert '"created":true' in told["fresh"]
    after = standing(root)
    assert after.pop("fresh.py") == ""
    assert after == before


def standing(root: Path) -> dict[str, str]:
    """Return every file and link of the project with what it says."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_text("utf-8", "replace")
    return found
