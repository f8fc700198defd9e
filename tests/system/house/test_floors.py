"""Imports only go down: the contracts of pyproject.toml hold, and each of them can break."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

LINT = """
import contextlib, io, json, os, sys
from pathlib import Path
installed = sys.modules["_sessiontree_site"].InstalledFirst
sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not installed]
from importlinter.cli import lint_imports
from importlinter.application.output import console

table = []
for contract, file, text in json.load(sys.stdin):
    planted = Path(file)
    is_new_room, before = not planted.parent.is_dir(), planted.read_text() if planted.exists() else None
    planted.parent.mkdir(exist_ok=True)
    planted.write_text((before or "") + text)
    console.file = io.StringIO()
    chosen = (contract,) if contract else ()
    code = lint_imports(limit_to_contracts=chosen, cache_dir=sys.argv[1], no_logo=True)
    table.append((code == 0, console.file.getvalue()))
    planted.unlink() if before is None else planted.write_text(before)
    if is_new_room:
        planted.parent.rmdir()
json.dump(table, sys.stdout)
"""
"""The linter on the packages of the working directory, not on installed ones: a report per fault."""
NOTHING = ("", "sessiontree/contracts/values/planted.py", "")


def lint(checkout: Path, cache: Path, faults: Iterable[tuple[str, str, str]]) -> list[tuple[bool, str]]:
    """Plant one fault after the other in a checkout, and lint each time.

    Args:
        checkout: The directory of the packages and their configuration.
        cache: A directory for the linter.
        faults: For each run the contract, or all where it is empty, the file, and the text to add to it.

    Returns:
        Whether everything held, and the report, run by run.
    """
    done = subprocess.run(
        [sys.executable, "-c", LINT, cache],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "tools"), "COLUMNS": "300", "NO_COLOR": "1"},
        input=json.dumps(list(faults)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(held, report) for held, report in json.loads(done.stdout)]


FAULTS = [
    ("floors", "sessiontree/contracts/values/planted.py", "import sessiontree.session"),
    ("floors", "sessiontree/session/planted.py", "from sessiontree.runtime import __doc__"),
    ("floors", "sessiontree/session/planted.py", "import sessiontree.tree"),
    ("floors", "sessiontree/journal/planted.py", "import sessiontree.models"),
    ("floors", "sessiontree/survey/planted.py", "import sessiontree.cli"),
    ("floors", "sessiontree/runtime/host/planted.py", "import sessiontree.testing"),
    ("floors", "sessiontree/runtime/host/planted.py", "import sessiontree.control"),
    ("floors", "sessiontree/sandbox/planted.py", "import sessiontree.workspace"),
    ("floors", "sessiontree/web/planted.py", "import sessiontree.workspace"),
    ("floors", "sessiontree/backends/local/planted.py", "import sessiontree.api.configuration.plugins"),
    ("floors", "sessiontree/sync/planted.py", "import sessiontree.cli"),
    ("floors", "sessiontree/runtime/host/planted.py", "from sessiontree import SessionTree"),
    ("floors", "sessiontree/memory/planted.py", "import sessiontree.journal"),
    ("floors", "sessiontree/bench/planted.py", "import sessiontree.cli"),
    ("floors", "sessiontree/policy/planted.py", "import sessiontree.schema"),
    ("floors", "sessiontree/attic/__init__.py", '"""A room without a floor."""'),
    ("rooms", "sessiontree/tree/state/planted.py", "import sessiontree.tree.rules.spawn"),
    ("rooms", "tools/sessiontree_tools/files/planted.py", "import sessiontree_tools.web.html_process"),
    ("contracts", "sessiontree/contracts/values/planted.py", "import sessiontree.contracts.tools.tool"),
    ("contracts", "sessiontree/contracts/attic/__init__.py", '"""A room without a floor."""'),
    (
        "runtime",
        "sessiontree/runtime/host/planted.py",
        "import sessiontree.runtime.supervisor.controller.effects",
    ),
    ("ray", "sessiontree/backends/ray/client/planted.py", "import sessiontree.backends.ray.supervisor"),
    ("api", "sessiontree/api/agents/planted.py", "import sessiontree.api.tree.inbox"),
    ("backends", "sessiontree/backends/ray/planted.py", "import sessiontree.backends.local"),
    ("backends", "sessiontree/backends/third/__init__.py", "import sessiontree.backends.local"),
    ("fakes", "sessiontree/testing/planted.py", "import sessiontree.api.runtime.runtime"),
    ("fakes", "sessiontree/testing/planted.py", "import sessiontree.api.tree.session_handle"),
    ("tools", "tools/sessiontree_tools/planted.py", "import sessiontree.runtime"),
    ("tools", "tools/sessiontree_tools/planted.py", "import sessiontree.schema"),
    ("tools", "tools/sessiontree_tools/planted.py", "from sessiontree import SessionTree"),
    ("survey", "sessiontree/survey/planted.py", "from sessiontree.contracts.tools.tool import Tool"),
    ("survey", "sessiontree/survey/planted.py", "import sessiontree.api.runtime.runtime"),
    ("pure", "sessiontree/policy/planted.py", "import time"),
    ("pure", "sessiontree/schema/planted.py", "import os.path"),
    ("pure", "sessiontree/session/planted.py", "import time"),
    ("pure", "sessiontree/tree/planted.py", "from random import random"),
    ("libraries", "sessiontree/runtime/host/planted.py", "import ray"),
    ("libraries", "sessiontree/control/planted.py", "from ray import cloudpickle"),
    ("libraries", "sessiontree/backends/local/planted.py", "import ray"),
    ("libraries", "sessiontree/memory/planted.py", "import ray"),
    ("libraries", "sessiontree/runtime/host/planted.py", "import httpcore"),
    ("libraries", "sessiontree/memory/planted.py", "import httpcore"),
    ("libraries", "sessiontree/models/planted.py", "import httpx"),
    ("libraries", "sessiontree/dispatch/planted.py", "import PIL"),
    ("libraries", "sessiontree/runtime/host/planted.py", "from pydantic_ai import direct"),
    ("libraries", "sessiontree/models/planted.py", "import openai"),
    ("libraries", "sessiontree/models/planted.py", "import anthropic"),
    ("libraries", "sessiontree/runtime/host/planted.py", "import lancedb"),
    ("libraries", "sessiontree/bench/planted.py", "import lancedb"),
    ("libraries", "tools/sessiontree_tools/planted.py", "from PIL import Image"),
    ("libraries", "sessiontree/attic/__init__.py", "import ray"),
    ("closed", "sessiontree/survey/planted.py", "import sessiontree_tools"),
    ("closed", "sessiontree/api/tree/planted.py", "import sessiontree.backends.ray.engine.engine"),
    ("closed", "sessiontree/api/runtime/planted.py", "import sessiontree.backends.ray.backend"),
    ("closed", "sessiontree/cli/planted.py", "from sessiontree.models.providers import prices"),
    ("closed", "sessiontree/models/planted.py", "import sessiontree.models.providers.conversation"),
    ("closed", "sessiontree/attic/__init__.py", "import sessiontree.backends.ray.hosts.actors"),
    ("doors", "sessiontree/backends/ray/engine/cluster_report.py", "import ray"),
    (
        "doors",
        "sessiontree/backends/ray/engine/engine_settings.py",
        "import sessiontree.backends.ray.engine.engine",
    ),
    ("doors", "sessiontree/models/providers/call_limits.py", "import sessiontree.models.providers.prices"),
    ("doors", "sessiontree/models/providers/provider_model.py", "import pydantic_ai"),
]


@pytest.fixture(scope="module")
def scratch(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of both packages and their configuration, to plant faults in."""
    place = tmp_path_factory.mktemp("scratch")
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("sessiontree", "tools"):
        shutil.copytree(checkout / name, place / name, ignore=ignore)
    shutil.copy(checkout / "pyproject.toml", place)
    return place


@pytest.fixture(scope="module")
def reports(scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], bool]:
    """For each fault whether its contract held in spite of it; one process looks at all of them."""
    cache = tmp_path_factory.mktemp("import-linter")
    found = lint(scratch, cache, FAULTS)
    return {fault: held for fault, (held, _) in zip(FAULTS, found, strict=True)}


def test_house_keeps_its_floors(scratch: Path, tmp_path: Path) -> None:
    """Every contract holds for the code as it is."""
    ((held, report),) = lint(scratch, tmp_path, [NOTHING])
    assert held, report
    assert "0 broken" in report


@pytest.mark.short(12)
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=" ".join)
def test_planted_import_breaks_its_contract(
    reports: dict[tuple[str, str, str], bool], fault: tuple[str, str, str]
) -> None:
    """Each contract finds the fault it is against."""
    contract, file, line = fault
    assert not reports[fault], f"{contract} does not see {line!r} in {file}"


@pytest.fixture
def contracts(checkout: Path) -> dict[str, dict[str, Any]]:
    """The linter's contracts by their names."""
    configuration = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    return {contract["id"]: contract for contract in configuration["tool"]["importlinter"]["contracts"]}


def test_every_contract_has_a_fault(contracts: dict[str, dict[str, Any]]) -> None:
    """A contract that nothing is planted against would hold whatever it says."""
    assert set(contracts) == {contract for contract, _, _ in FAULTS}


def test_exception_names_one_room_and_one_library(contracts: dict[str, dict[str, Any]]) -> None:
    """Exceptions say where a library or a heavy room is used, and nothing else."""
    exceptions = {name: one["ignore_imports"] for name, one in contracts.items() if "ignore_imports" in one}
    assert set(exceptions) == {"tools", "libraries", "closed", "fakes"}
    assert exceptions["fakes"] == ["sessiontree.testing.tool_contract -> sessiontree.api.**"]
    assert exceptions["tools"] == ["** -> sessiontree.contracts.**"]
    pairs = [line.split(" -> ") for line in exceptions["libraries"]]
    assert {library for _, library in pairs} <= set(contracts["libraries"]["forbidden_modules"])
    assert all(room.startswith("sessiontree.") for room, _ in pairs)
    doors = contracts["doors"]["source_modules"]
    late = "sessiontree.api.runtime.ray_door -> sessiontree.backends.ray.**"
    assert exceptions["closed"] == [*(f"** -> {door}" for door in doors), late]


def test_contracts_are_short(checkout: Path) -> None:
    """They cover new rooms by wildcard, so they do not grow with them."""
    _, _, section = (checkout / "pyproject.toml").read_text("utf-8").partition("[tool.importlinter]\n")
    assert len(section.partition("\n[tool.")[0].splitlines()) < 62
