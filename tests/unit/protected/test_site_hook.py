"""What installing and importing the package changes in a process, and how to switch it off."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ASK = "import sys, site; site.addsitedir(sys.argv[1]); import sessiontree; print(sessiontree.PLACE)"


@pytest.mark.parametrize(("is_whole", "found"), [(True, "installed"), (False, "workspace")])
@pytest.mark.covers("HOS3")
def test_workspace_never_provides_the_package_itself(tmp_path: Path, is_whole: bool, found: str) -> None:
    """Nothing of the package runs before it is found; without the ``.pth`` file the wrong one is."""
    site, workspace = tmp_path / "site", tmp_path / "workspace"
    for place, name in ((site, "installed"), (workspace, "workspace")):
        (place / "sessiontree").mkdir(parents=True)
        (place / "sessiontree/__init__.py").write_text(f"PLACE = {name!r}")
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    shipped = build["targets"]["wheel"]["force-include"]
    assert any(name.endswith(".pth") for name in shipped.values())
    for source, name in shipped.items():
        if is_whole or not name.endswith(".pth"):
            shutil.copy(ROOT / source, site / name)
    words = [sys.executable, "-E", "-S", "-c", ASK, str(site)]
    done = subprocess.run(words, cwd=workspace, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found


@pytest.mark.parametrize(("switch", "entries"), [("on", 1), ("off", 0)])
def test_guard_is_two_entries_that_a_variable_leaves_out(switch: str, entries: int) -> None:
    """As docs/operators.md says."""
    ask = "import sys; before = len(sys.meta_path), len(sys.path_hooks); import sessiontree; "
    ask += "print(len(sys.meta_path) - before[0], len(sys.path_hooks) - before[1])"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "SESSIONTREE_GUARD": switch},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(entries)] * 2
