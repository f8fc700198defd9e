"""Distributions laid into a folder as an installer lays them, and looked for there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Site:
    """A folder that Python looks for distributions in."""

    folder: Path

    def install(self, distribution: str, code: str, *, plugin: str = "", target: str = "tools") -> str:
        """Install a distribution of one module with one entry point; return the module's name."""
        module = f"plugin_{distribution.replace('-', '_')}"
        info = self.folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        entry = f"{plugin or distribution} = {module}:{target}"
        (info / "entry_points.txt").write_text(f"[sessiontree.tools]\n{entry}\n")
        (self.folder / f"{module}.py").write_text(
            f"from sessiontree import PermissionTier, ToolFlag, tool\n{code}"
        )
        return module

    @staticmethod
    def seen_by(distribution: str) -> list[Any]:
        """Return what a distribution's factory wrote down in its list ``seen``."""
        seen: list[Any] = sys.modules[f"plugin_{distribution}"].seen
        return seen


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A folder of its own for this test; what was imported from it is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    yield Site(folder)
    sys.path.remove(str(folder))
    sys.path_importer_cache.pop(str(folder), None)
    for name in set(sys.modules) - before:
        if name.startswith("plugin_"):
            del sys.modules[name]
