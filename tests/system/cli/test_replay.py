"""``sessiontree replay``: what was compared, the first difference, and the exit code."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessiontree import ScriptedModel, SessionTree, script_call
from sessiontree.journal.export import Manifest
from sessiontree.journal.journal import Journal
from tests.system.cli.command_fixtures import Program


async def _made(place: Path) -> str:
    (place / "workspace").mkdir()
    model = ScriptedModel([[script_call("write", path="a.txt", content="x")], "done"])
    async with SessionTree(
        place / "workspace", model=model, state_dir=place / "state", backend="local"
    ) as tree:
        await tree.main.send("go")
    return tree.tree_id


def _altered(place: Path, tree_id: str, kind: str, old: str, new: str) -> int:
    """Write the tree to another journal with one altered fact; return the fact's number."""
    with Journal.open(place / "state", read_only=True) as journal:
        row0, records = journal.row0(tree_id), journal.read(tree_id)
    at = next(at for at, record in enumerate(records) if f'"kind":"{kind}"' in record.text)
    assert old in records[at].text
    records[at] = replace(records[at], text=records[at].text.replace(old, new))
    with Journal.open(place / "altered") as journal:
        journal.import_tree(Manifest(tree_id, 0, row0), records)
    return records[at].seq


@pytest.fixture
def tree_id(tmp_path: Path) -> str:
    """A tree that wrote a file."""
    return asyncio.run(_made(tmp_path))


def test_same_is_said_in_two_lines(tmp_path: Path, program: Program, tree_id: str) -> None:
    """How many facts were compared, and that none differs; as JSON the whole report."""
    done = program.call("replay", tree_id, "--state-dir", tmp_path / "state")
    assert done.code == 0, done.err
    assert done.lines[0].startswith(f"tree {tree_id}: ")
    assert done.lines[1:] == ["no difference"]
    report: dict[str, Any] = json.loads(
        program.call("replay", tree_id, "--state-dir", tmp_path / "state", "--json").out
    )
    assert report["compared"] == report["facts"] > 0
    assert (report["matches"], report["is_decided"], report["difference"]) == (True, True, None)


def test_difference_is_shown_and_ends_with_1(tmp_path: Path, program: Program, tree_id: str) -> None:
    """Session, number, field, expected and found."""
    end = '"kind":"run_finished","v":1,"text":'
    seq = _altered(tmp_path, tree_id, "run_finished", f'{end}"done"', f'{end}"\\u001b[2Jgone"')
    done = program.call("replay", tree_id, "--state-dir", tmp_path / "altered")
    assert done.code == 1
    assert f"first difference: fact {seq} (run_finished) of session main, /text" in done.out
    assert 'expected: "done"' in done.out
    assert "\\u001b[2Jgone" in done.out
    assert "\x1b" not in done.out
    as_json = json.loads(program.call("replay", tree_id, "--state-dir", tmp_path / "altered", "--json").out)
    assert as_json["difference"]["seq"] == seq
    assert as_json["matches"] is False


def test_tree_that_is_not_there_ends_with_2(tmp_path: Path, program: Program, tree_id: str) -> None:
    """An id that nobody gave, and a directory without a journal."""
    done = program.call("replay", "t0000", "--state-dir", tmp_path / "state")
    assert (done.code, done.out) == (2, "")
    assert "t0000" in done.err
    done = program.call("replay", tree_id, "--state-dir", tmp_path / "nothing")
    assert done.code == 2
    assert not (tmp_path / "nothing").exists()
