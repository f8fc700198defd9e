"""``sessiontree journal export --format atif``: others read what it writes; it says what is wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ScriptedModel, SessionTree
from sessiontree.contracts.values.request_names import EDGES_KEY, REQUEST_HEADER
from sessiontree.journal.journal import Journal
from tests.system.cli.command_fixtures import Done, Program
from tests.unit.api.trajectory_fixtures import grow
from tests.unit.api.trajectory_oracle import all_in

CHECKOUT = Path(__file__).parents[3]
READER = CHECKOUT / ".venv-formats" / "bin" / "python"
PROGRAM = Path(__file__).with_name("formats_program.py")
PATIENCE_S = 60
SEED = 4
"""A tree that was forked after retries, programs, summaries and stopped children."""

Export = Callable[..., Done]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place whose state directory holds a tree and its fork; nobody changes it."""
    place = tmp_path_factory.mktemp("grown")
    asyncio.run(grow(place, SEED))
    return place


@pytest.fixture
def export(program: Program, grown: Path, tmp_path: Path) -> Export:
    """Export from a copy of it."""
    shutil.copytree(grown / "state", tmp_path / "state")

    def run(*arguments: str | Path) -> Done:
        return program.call("journal", "export", *arguments, "--state-dir", tmp_path / "state")

    return run


def read_by_others(place: Path) -> dict[str, Any]:
    """Return what Harbor's and verifiers' models say of a file."""
    assert READER.exists(), "what reads the formats is missing: run `make setup-formats`"
    done = subprocess.run(
        [READER, "-I", PROGRAM, place], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_harbor_and_verifiers_read_it(export: Export, tmp_path: Path) -> None:
    """A file of its owner's replaces the earlier one, holds each session once, and passes their models."""
    file = tmp_path / "tree.json"
    file.write_text("an earlier file")
    done = export(file, "--format", "atif")
    assert done.code == 0
    assert f"exported to {file}" in done.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = json.loads(file.read_text("utf-8"))
    told = read_by_others(file)
    assert told == {
        "valid": True,
        "errors": [],
        "sessions": sum(1 for _ in all_in(found)),
        "edges": len(found["extra"][EDGES_KEY]["edges"]),
    }
    assert told["sessions"] > 5
    assert told["edges"] > 5
    assert found["schema_version"] == "ATIF-v1.8"
    assert json.loads(export("--format", "atif").out) == found


def test_broken_trajectory_is_refused_by_them(export: Export, tmp_path: Path) -> None:
    """Their models can say no: a result of a call that no step made."""
    file = tmp_path / "tree.json"
    export(file, "--format", "atif")
    found = json.loads(file.read_text("utf-8"))
    step = next(step for step in found["steps"] if "tool_calls" in step and "observation" in step)
    step["observation"]["results"][0]["source_call_id"] = "9.9"
    file.write_text(json.dumps(found))
    told = read_by_others(file)
    assert not told["valid"]
    assert "9.9" in str(told["errors"])


def test_damaged_tree_is_written_as_far_as_it_is_good(export: Export, tmp_path: Path) -> None:
    """The exit code is 1, the notes say what is missing, and the beginning is a valid trajectory."""
    with Journal.open(tmp_path / "state") as journal:
        connection = journal._writing()._writer._connection
        connection.execute("UPDATE segments SET hash = zeroblob(32) WHERE n = 2")
    file = tmp_path / "tree.json"
    done = export(file, "--format", "atif")
    assert (done.code, done.lines[-1][:20]) == (1, "the tree is damaged,")
    assert read_by_others(file)["valid"]
    assert "segment 2" in json.loads(file.read_text("utf-8"))["notes"]
    assert export("--format", "atif").err.startswith("sessiontree: the tree is damaged: segment 2")


def test_what_cannot_be_written_is_refused(export: Export, tmp_path: Path) -> None:
    """An unknown format, a directory as the file, a tree that does not exist: exit code 2, no file."""
    assert export(tmp_path / "x", "--format", "atif2").code == 2
    done = export(tmp_path, "--format", "atif")
    assert done.code == 2
    assert "not a regular file" in done.err
    assert export(tmp_path / "x", "--format", "atif", "--tree", "t0").code == 2
    assert not (tmp_path / "x").exists()


def test_exported_trajectory_is_not_imported(program: Program, export: Export, tmp_path: Path) -> None:
    """It does not hold all facts, and import says that it is not an export."""
    file = tmp_path / "tree.json"
    export(file, "--format", "atif")
    done = program.call("journal", "import", file, "--state-dir", tmp_path / "there")
    assert done.code == 2
    assert "nothing was imported" in done.err


async def test_tree_that_runs_is_exported(program: Program, tmp_path: Path) -> None:
    """Another process writes its journal meanwhile; what is durable is in the file."""
    place = tmp_path / "workspace"
    place.mkdir()
    state = tmp_path / "state"
    async with SessionTree(place, model=ScriptedModel(["done"]), state_dir=state, backend="local") as tree:
        await tree.main.send("a word")
        arguments = ("journal", "export", "--format", "atif", "--state-dir", state)
        done = await asyncio.to_thread(program.call, *arguments)
    assert done.code == 0
    found = json.loads(done.out)
    assert found["extra"]["status"] == "active"
    assert [step["message"] for step in found["steps"]][1:] == ["a word", "done"]


def test_names_are_those_that_verifiers_read() -> None:
    """The header that carries a request's name is the one that they take off."""
    code = f"import runpy,sys; sys.argv=['x']; exec(open({str(PROGRAM)!r}).read().rsplit('main(Path', 1)[0]);"
    code += "print(load_edges().ACP_MODEL_REQUEST_ID_HEADER)"
    done = subprocess.run([READER, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == REQUEST_HEADER
