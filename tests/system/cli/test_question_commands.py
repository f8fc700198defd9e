"""``sessiontree approvals``: questions of a live tree, listed and answered from another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.contracts.facts.tree_facts import ClientCallEnded
from sessiontree.journal.journal import Journal
from tests.system.cli.command_fixtures import Program

pytestmark = pytest.mark.slow


def test_second_process_answers(program: Program, tmp_path: Path) -> None:
    """It lists the question, refuses what is no answer, gives one; the journal names the terminal."""
    workspace, state_dir = tmp_path / "workspace", tmp_path / "state"
    workspace.mkdir()
    asking = [sys.executable, "-m", "tests.behaviour.question_program", "local", str(workspace)]
    with subprocess.Popen([*asking, str(state_dir)], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            tree_id, question_id = running.stdout.readline().split()
            where = ("--state-dir", state_dir)
            (listed,) = json.loads(program.call("approvals", *where, "--json").out)["questions"]
            assert (listed["question_id"], listed["session"], listed["tree"]) == (
                question_id,
                "main/b1",
                tree_id,
            )
            shown = program.call("approvals", *where).out
            assert "2. blue - like the sea" in shown
            assert "1 question waits for a person" in shown
            wrong = program.call("approvals", *where, "--answer", question_id, "--text", "1,2")
            assert (wrong.code, "choose one of them" in wrong.err) == (2, True)
            given = program.run("approvals", *where, "--answer", question_id, "--text", "2")
            assert (given.code, given.out) == (0, f"answered: main/b1 ({question_id})\n")
            late = program.call("approvals", *where, "--answer", question_id, "--text", "1")
            assert "AnswerTooLate" in late.err
        finally:
            running.kill()
    with Journal.open(state_dir, read_only=True) as journal:
        facts = [fact for record in journal.read(tree_id, after_seq=0, max_n=1_000) for fact in record.facts]
    (ended,) = [fact for fact in facts if isinstance(fact, ClientCallEnded)]
    assert (ended.how, ended.surface) == ("ok", "terminal")
    assert ended.by.startswith("person (uid ")
