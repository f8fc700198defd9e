"""What a provider's library lists is there, and is loaded when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree.models.providers.late_exports import _read_homes, load_exports_late

LISTED = """
import importlib, sys
from sessiontree.models.providers.late_exports import load_exports_late
with load_exports_late():
    import openai
print(sum(name.startswith("openai.types.") for name in sys.modules), flush=True)
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChatCompletionChunk as direct
assert ChatCompletionChunk is direct
from openai import types
for package in (types, types.chat, types.responses):
    for name in package.__all__:
        assert getattr(package, name).__name__ or True
names = {}
exec("from openai.types.shared import *", names)
assert names["Reasoning"] is importlib.import_module("openai.types.shared.reasoning").Reasoning
assert not any(type(each).__name__ == "_ListFinder" for each in sys.meta_path)
for place in ("nothing", "__wrapped__"):
    assert not hasattr(types, place)
"""


def test_openai_loads_a_module_when_it_is_asked_for() -> None:
    """Few modules come with the library; every listed name is there, by attribute and by import."""
    done = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 150


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that is treated as a provider's list."""
    place = tmp_path / "listed"
    place.mkdir()
    (place / "first.py").write_text("class First: ...\n")
    (place / "broken.py").write_text("import module_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sessiontree.models.providers.late_exports._LISTS", ("listed",))
    for name in [name for name in sys.modules if name.partition(".")[0] == "listed"]:
        monkeypatch.delitem(sys.modules, name)
    return place


def import_listed() -> Any:
    """Import the package."""
    with load_exports_late():
        return __import__("listed")


def test_package_that_does_more_is_loaded_as_usual(library: Path) -> None:
    """Its code has run once the import returns."""
    (library / "__init__.py").write_text("from .first import First as Renamed\nDONE = [1]\n")
    package = import_listed()
    assert vars(package)["DONE"] == [1]
    assert vars(package)["Renamed"].__name__ == "First"


def test_error_of_a_listed_module_is_shown(library: Path) -> None:
    """A module that can't be loaded is not taken for a name that is missing."""
    (library / "__init__.py").write_text("from .broken import Broken\nfrom .first import First as Other\n")
    package = import_listed()
    assert "listed.first" not in sys.modules
    assert package.Other is vars(package)["Other"]
    with pytest.raises(ModuleNotFoundError, match="module_that_nobody_has"):
        _ = package.Broken


@pytest.mark.parametrize("source", ["import os", "from os import path", "from ..above import x", "x = 1"])
def test_file_that_does_more_is_no_list(source: str) -> None:
    """Only names of its own modules are listed."""
    assert _read_homes(f"from .first import First\n{source}\n") is None
