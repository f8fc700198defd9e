"""The public names: sorted, all there, and loaded only when asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROBE = """
import importlib, json, sys
sys.path[:0] = json.loads(sys.argv[2])
package = importlib.import_module(sys.argv[1])
names = list(getattr(package, "__all__", ()))
inner = sys.argv[1] + "."
front = {inner + name for name in ("version", "interpreter")}
front |= {inner + "interpreter." + name for name in ("import_guard", "asking_code")}
early = sorted(name for name in sys.modules if name.startswith(inner) and name not in front)
listed = set(dir(package))
missing = []
for name in names:
    try:
        getattr(package, name)
    except AttributeError:
        missing.append(name)
try:
    package.no_such_name
    unknown = "found"
except AttributeError as error:
    unknown = str(error)
print(json.dumps({
    "names": names, "early": early, "missing": missing, "unknown": unknown,
    "unlisted": sorted(set(names) - listed),
}))
"""


def exports(package: str, *places: Path) -> dict[str, Any]:
    """Import a package in a fresh interpreter and try each of its public names."""
    command = [sys.executable, "-c", PROBE, package, json.dumps([str(place) for place in places])]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_lazy_and_whole(found: dict[str, Any]) -> None:
    """Names are sorted, single, reachable and listed; no room was loaded before the first was used.

    The modules that hold the version alone and guard imports belong to the front and may be there.
    """
    names = found["names"]
    assert names == sorted(set(names)), "not sorted"
    assert found["missing"] == [], "missing"
    assert found["unlisted"] == [], "unlisted"
    assert found["early"] == [], "early"
    assert "no_such_name" in found["unknown"], "unknown"


def test_public_names_are_sorted_whole_and_lazy() -> None:
    """Each public name resolves on first use; importing the package loads no room."""
    assert_lazy_and_whole(exports("sessiontree"))


GOOD = """
import importlib
__all__ = ["Branch", "Tree"]
def __dir__():
    return __all__
def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"no {name}")
    return getattr(importlib.import_module("planted.rooms"), name)
"""


def plant(folder: Path, text: str) -> dict[str, Any]:
    """Write a package with one room and the given front, and try its names."""
    package = folder / "planted"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    (package / "rooms.py").write_text("class Branch: ...\nclass Tree: ...\n")
    return exports("planted", folder)


def test_lazy_front_passes(tmp_path: Path) -> None:
    """The property holds for a small package written as it should be."""
    found = plant(tmp_path, GOOD)
    assert found["names"] == ["Branch", "Tree"]
    assert_lazy_and_whole(found)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('["Branch", "Tree"]', '["Tree", "Branch"]', "not sorted"),
        ('["Branch", "Tree"]', '["Branch", "Leaf", "Tree"]', "missing"),
        ("return __all__", 'return ["Tree"]', "unlisted"),
        ("import importlib", "import importlib\nimport planted.rooms", "early"),
        ("raise AttributeError(f", "return (f", "unknown"),
    ],
)
def test_planted_fault_in_the_front_is_found(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    """Each way of spoiling the front fails the property with its own complaint."""
    assert old in GOOD
    found = plant(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(AssertionError, match=complaint):
        assert_lazy_and_whole(found)
