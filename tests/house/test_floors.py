"""Imports only go down: the contracts of pyproject.toml hold, and each of them can break."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

LINT = """
import sys
installed = sys.modules["_sessiontree_site"].InstalledFirst
sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not installed]
from importlinter.cli import lint_imports_command
lint_imports_command()
"""
"""The linter on the packages of the working directory, not on those that are installed."""


def lint(checkout: Path, cache: Path, *contracts: str) -> tuple[bool, str]:
    """Run import-linter over a checkout; return whether everything held, and its report."""
    chosen = [argument for contract in contracts for argument in ("--contract", contract)]
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--no-logo", "--cache-dir", cache, *chosen],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "tools"), "COLUMNS": "300", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linter's cache, shared by the tests of this file."""
    return tmp_path_factory.mktemp("import-linter")


@pytest.fixture
def scratch(checkout: Path, tmp_path: Path) -> Path:
    """A copy of both packages and their configuration, to plant faults in."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("sessiontree", "tools"):
        shutil.copytree(checkout / name, tmp_path / name, ignore=ignore)
    shutil.copy(checkout / "pyproject.toml", tmp_path)
    return tmp_path


def test_house_keeps_its_floors(checkout: Path, cache: Path) -> None:
    """Every contract holds for the code as it is."""
    held, report = lint(checkout, cache)
    assert held, report
    assert "0 broken" in report


def rooms_of(checkout: Path) -> set[str]:
    """Return every folder and module right beneath the package, as imports name them."""
    return {
        f"sessiontree.{path.stem}"
        for path in (checkout / "sessiontree").iterdir()
        if (path.is_dir() or path.suffix == ".py") and not path.name.startswith(("_", "."))
    }


def contract_of(checkout: Path, name: str) -> dict[str, Any]:
    """Return one of the linter's contracts."""
    configuration = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    (found,) = [one for one in configuration["tool"]["importlinter"]["contracts"] if one["id"] == name]
    contract: dict[str, Any] = found
    return contract


FAULTS = [
    ("floors", "sessiontree/contracts/planted.py", "import sessiontree.session"),
    ("floors", "sessiontree/session/planted.py", "from sessiontree.runtime import __doc__"),
    ("floors", "sessiontree/session/planted.py", "import sessiontree.tree"),
    ("floors", "sessiontree/journal/planted.py", "import sessiontree.models"),
    ("floors", "sessiontree/cli/planted.py", "import sessiontree.survey"),
    ("floors", "sessiontree/runtime/planted.py", "import sessiontree.testing"),
    ("floors", "sessiontree/runtime/planted.py", "import sessiontree.control"),
    ("floors", "sessiontree/sandbox/planted.py", "import sessiontree.workspace"),
    ("floors", "sessiontree/web/planted.py", "import sessiontree.workspace"),
    ("backends", "sessiontree/backends/ray/planted.py", "import sessiontree.backends.local"),
    ("floors", "sessiontree/backends/local/planted.py", "import sessiontree.api.plugins"),
    ("floors", "sessiontree/sync/planted.py", "import sessiontree.cli"),
    ("floors", "sessiontree/runtime/planted.py", "from sessiontree import SessionTree"),
    ("floors", "sessiontree/attic/__init__.py", '"""A room without a floor."""'),
    ("fakes", "sessiontree/testing/planted.py", "import sessiontree.api.runtime"),
    ("fakes", "sessiontree/testing/planted.py", "import sessiontree.api.session_handle"),
    ("tools", "tools/sessiontree_tools/planted.py", "import sessiontree.runtime"),
    ("tools", "tools/sessiontree_tools/planted.py", "import sessiontree.schema"),
    ("unnamed-tools", "sessiontree/survey/planted.py", "import sessiontree_tools"),
    ("survey", "sessiontree/survey/planted.py", "from sessiontree.contracts.tool import Tool"),
    ("survey", "sessiontree/survey/planted.py", "import sessiontree.api.runtime"),
    ("engine", "sessiontree/runtime/planted.py", "import ray"),
    ("engine", "sessiontree/control/planted.py", "from ray import cloudpickle"),
    ("floors", "sessiontree/memory/planted.py", "import sessiontree.journal"),
    ("web", "sessiontree/runtime/planted.py", "import httpcore"),
    ("light", "sessiontree/models/planted.py", "import httpx"),
    ("providers", "sessiontree/runtime/planted.py", "from pydantic_ai import direct"),
    ("light", "sessiontree/runtime/planted.py", "import lancedb"),
    ("tables", "sessiontree/bench/planted.py", "import lancedb"),
    ("floors", "sessiontree/bench/planted.py", "import sessiontree.cli"),
    ("light", "tools/sessiontree_tools/planted.py", "from PIL import Image"),
    ("floors", "sessiontree/policy/planted.py", "import sessiontree.schema"),
    ("pure", "sessiontree/policy/planted.py", "import time"),
    ("pure", "sessiontree/session/planted.py", "import time"),
    ("pure", "sessiontree/tree/planted.py", "from random import random"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("contract", "file", "line"), FAULTS)
def test_planted_import_breaks_its_contract(
    scratch: Path, cache: Path, contract: str, file: str, line: str
) -> None:
    """Each contract finds the fault it is against."""
    held, report = lint(scratch, cache, contract)
    assert held, report
    planted = scratch / file
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f"{line}\n")
    held, report = lint(scratch, cache, contract)
    assert not held, f"{contract} does not see {line!r} in {file}"


def test_every_room_but_the_contracts_is_closed_to_tools(checkout: Path) -> None:
    """A new room is named in the contract that keeps the built-in tools out of it."""
    layers = contract_of(checkout, "tools")["layers"]
    closed = {name.strip(" ()") for name in layers[0].split(":")}
    assert rooms_of(checkout) - {"sessiontree.contracts", "sessiontree.interpreter"} <= closed
    assert layers[1:] == ["sessiontree_tools", "sessiontree.contracts", "sessiontree.interpreter"]


def test_every_room_but_the_ray_backend_is_kept_from_the_engine(checkout: Path) -> None:
    """A new room is named in the contract that leaves the engine to one backend."""
    kept = set(contract_of(checkout, "engine")["source_modules"])
    others = rooms_of(checkout) - {"sessiontree.backends"}
    assert kept == others | {"sessiontree.backends.local", "sessiontree_tools"}


def test_every_room_but_memory_is_kept_light(checkout: Path) -> None:
    """A new room is named in the contract that leaves databases and number crunching to one room.

    The room of dispatch is named by its modules: its image worker is never imported, but run by its path.
    Suites have a contract of their own: they read and write tables.
    """
    kept = set(contract_of(checkout, "light")["source_modules"])
    others = rooms_of(checkout) - {"sessiontree.memory", "sessiontree.dispatch", "sessiontree.bench"}
    tables = contract_of(checkout, "tables")
    assert tables["source_modules"] == ["sessiontree.bench"]
    heavy = set(contract_of(checkout, "light")["forbidden_modules"])
    assert heavy - set(tables["forbidden_modules"]) == {"numpy", "pyarrow"}
    modules = {path.stem for path in (checkout / "sessiontree" / "dispatch").glob("*.py")}
    imported = {f"sessiontree.dispatch.{name}" for name in modules - {"__init__", "image_worker"}}
    assert kept == others | imported | {"sessiontree_tools"}


def test_every_room_but_one_is_kept_from_providers(checkout: Path) -> None:
    """A new room, and a new module of models, is named in the contract that keeps providers' libraries out.

    The rest of ``models/providers`` is loaded by name, where a provider is asked.
    """
    kept = set(contract_of(checkout, "providers")["source_modules"])
    models = checkout / "sessiontree" / "models"
    modules = {path.stem for path in models.glob("*.py")} - {"__init__"}
    modules |= {path.parent.name for path in models.glob("*/__init__.py")} - {"providers"}
    light = {
        f"sessiontree.models.{name}"
        for name in (*modules, "sendable", "providers.call_limits", "providers.provider_model")
    }
    assert kept == rooms_of(checkout) - {"sessiontree.models"} | light | {"sessiontree_tools"}


def test_every_room_but_web_is_kept_from_the_web(checkout: Path) -> None:
    """A new room is named in the contract that leaves connections to one room."""
    kept = set(contract_of(checkout, "web")["source_modules"])
    assert kept == rooms_of(checkout) - {"sessiontree.web"} | {"sessiontree_tools"}


def test_no_contract_has_exceptions(checkout: Path) -> None:
    """The floors have no list of imports that do not count."""
    configuration = tomllib.loads((checkout / "pyproject.toml").read_text("utf-8"))
    for contract in configuration["tool"]["importlinter"]["contracts"]:
        assert not {key for key in contract if "ignore" in key}
