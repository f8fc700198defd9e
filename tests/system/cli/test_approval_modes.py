"""Approval modes from the command line: what the table says of commands, at a terminal and without one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from sessiontree.api.agents.approval_modes import MODES, Outcome, decide_outcome
from sessiontree.contracts.recorded.approvals import ApprovalMode
from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeRequest
from tests.system.cli.command_fixtures import Program, Terminal
from tests.system.cli.provider_fixtures import heard_provider

ROWS: tuple[ApprovalMode | None, ...] = (None, *MODES)
COMMANDS = ("wc -l precious", "rm precious")
"""The first is known to change nothing."""
EACH_RUN = """
import sys
from sessiontree.cli.app import app
for line in sys.argv[1:]:
    try:
        app(line.split("|"))
    except SystemExit as end:
        print("ended", end.code, flush=True)
"""
"""Runs several command lines in one process."""


class Played:
    """A model that runs the commands one after the other; keeps what came of the last conversation's."""

    def __init__(self) -> None:
        self.results: list[str] = []

    def __call__(self, request: FakeRequest) -> FakeReply:
        """Return the next call, then a text."""
        messages = request.body["messages"]
        self.results = [str(each["content"]) for each in messages if each["role"] == "tool"]
        if len(self.results) == len(COMMANDS):
            return FakeReply("I am through.")
        return FakeReply(calls=(FakeCall("exec", json.dumps({"command": COMMANDS[len(self.results)]})),))


def promised(named: ApprovalMode | None, *, with_person: bool) -> list[Outcome]:
    """Return what the table says of each command."""
    kinds = ("System, harmless", "System, other")
    return [decide_outcome(named, each, with_person=with_person) for each in kinds]  # type: ignore[arg-type]


def arguments(place: Path, named: ApprovalMode | None) -> list[str]:
    """Return the command line of a row, over a workspace of its own."""
    workspace = place / f"work-{named}"
    workspace.mkdir(parents=True)
    (workspace / "precious").write_text("gold\n")
    mode = [] if named is None else ["--approve", named]
    places = ["--workspace", str(workspace), "--state-dir", str(place / f"state-{named}")]
    return ["run", "Go.", "--model", "openai:gpt-5", "--backend", "local", *places, *mode]


def check(played: Played, place: Path, named: ApprovalMode | None, said: Sequence[Outcome]) -> None:
    """Judge what came of a row's commands; whoever was asked said yes."""
    ran = [outcome != "refused" for outcome in said]
    assert ["1 precious" in played.results[0], not (place / f"work-{named}" / "precious").exists()] == ran


@pytest.mark.slow
@pytest.mark.covers("A12")
def test_each_row_at_a_terminal_is_what_happens(program: Program, tmp_path: Path) -> None:
    """A person is asked about those commands that the table says, and about no other."""
    played = Played()
    with heard_provider(program, played):
        lines = ["|".join(arguments(tmp_path, named)) for named in ROWS]
        (tmp_path / "each_run.py").write_text(EACH_RUN, "utf-8")
        with Terminal(lines, program.environment, file=tmp_path / "each_run.py") as person:
            for named in ROWS:
                said = promised(named, with_person=True)
                begun = len(person.said)
                for line, outcome in zip(COMMANDS, said, strict=True):
                    if outcome == "asks":
                        person.wait_for(f'"{line}"')
                        person.wait_for("allow?")
                        person.type("y\n")
                person.wait_for("ended 0")
                assert person.said[begun:].count("wants to call exec") == said.count("asks"), named
                check(played, tmp_path, named, said)


@pytest.mark.slow
@pytest.mark.covers("A12")
def test_without_a_terminal_nobody_can_be_asked(program: Program, tmp_path: Path) -> None:
    """Unnamed, the mode governs no command; under ``smart``, what would be asked about is refused."""
    played = Played()
    with heard_provider(program, played):
        for named in (None, "smart"):
            done = program.call(*arguments(tmp_path, named))
            assert done.code == 0, done.err
            check(played, tmp_path, named, promised(named, with_person=False))
