"""``sessiontree chat``: talking to a live tree from another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cli.command_fixtures import Program
from tests.system.cli.errand_program import errands
from tests.system.cli.provider_fixtures import Serve

pytestmark = pytest.mark.slow


def test_lines_are_sent_and_replies_shown(program: Program, tmp_path: Path) -> None:
    """Each line of the input is a message, each reply is printed, and the end waits for the last of them."""
    with errands(tmp_path) as running:
        done = program.run("chat", "--state-dir", running.state_dir, given="hello\n\nand again\x1b[2J")
        assert (done.code, done.err) == (0, "")
        assert done.lines[0].startswith(f"tree {running.tree_id}, main: ")
        assert sorted(done.lines[1:]) == ["heard: and again\\u{1b}[2J", "heard: hello"]


def test_lines_are_edited_at_a_terminal(program: Program, tmp_path: Path) -> None:
    """There is a prompt and a sign of work, the up arrow recalls a line, and keys edit it."""
    program.environment["TERM"] = "xterm"
    with (
        errands(tmp_path) as running,
        program.at_terminal("chat", "--state-dir", running.state_dir) as person,
    ):
        person.wait_for("/quit leaves\n")
        person.wait_for("> ")
        person.type("hello\n")
        person.wait_for("(main works; /stop stops it)\n")
        person.wait_for("heard: hello\n")
        person.wait_for("> ")
        person.type("\x1b[A")
        person.wait_for("hello")
        person.type(" yo\b\bou\n")
        person.wait_for("heard: hello ou\n")
        person.type("/quit\n")
        assert person.end() == 0
    assert "^[[A" not in person.said


def test_replies_of_an_own_tree_are_shown_as_they_come(
    program: Program, tmp_path: Path, serve: Serve
) -> None:
    """The lines of a reply appear before it is whole, once each, and a cut one is reported as such."""
    program.environment["TERM"] = "xterm"
    serve({"text": "One.\nTwo.\n"}, {"text": "Half\n" + "more " * 200, "delta_chars": 5, "between_s": 0.5})
    (tmp_path / "workspace").mkdir()
    places = ("--workspace", tmp_path / "workspace", "--state-dir", tmp_path / "state")
    with program.at_terminal("chat", "--model", "openai:gpt-5", *places[1:], "--backend", "local") as person:
        person.wait_for("/quit leaves\n")
        person.type("hello\n")
        person.wait_for("Two.\n")
        person.type("again\n")
        person.wait_for("Half\n")
        person.type("/stop enough\n")
        person.wait_for("(no reply: the session was interrupted: enough)")
        person.wait_for("> ")
        person.type("\x04")
        person.wait_for("(go on with: ")
        assert person.end() == 1, "the last message has no reply"
    said = [person.said.count(word) for word in ("One.", "Two.", "Half", "(the reply was cut short)")]
    assert said == [1, 1, 1, 1]


@pytest.mark.covers("A22", "Z2")
def test_person_talks_approves_and_leaves(program: Program, tmp_path: Path) -> None:
    """Requests are asked inline, the channel's messages are shown, and steering is a command."""
    with (
        errands(tmp_path) as running,
        program.at_terminal("chat", "--state-dir", running.state_dir) as person,
    ):
        person.wait_for("/quit leaves")
        person.type("tell good news\n")
        person.wait_for("main: good news")
        person.wait_for("done: ")
        person.type("sweep hall\n")
        person.wait_for("main wants to call sweep (Elevated)")
        person.wait_for("allow?")
        person.type("y\n")
        person.wait_for("approved: sweep for main")
        person.wait_for("(sweep: hall is clean\\u{1b}[2J)")
        person.wait_for("done: swept hall")
        person.type("sweep attic\n")
        person.wait_for("allow?")
        person.type("n not today\n")
        person.wait_for("not today")
        person.type("sweep cellar\n")
        person.wait_for("allow?")
        person.type("/stop not now\n")
        person.wait_for("(no reply: the session was interrupted: not now)")
        person.wait_for("(main has stopped")
        assert running.waiting(0) == []
        person.type("/dance\n")
        person.wait_for("(/dance is not a command: ")
        person.type("/steer listen\n")
        person.wait_for("heard: listen")
        person.type("y\n")
        person.wait_for("heard: y")
        person.type("/quit\n")
        assert person.end() == 0
        again = program.call("chat", "--state-dir", running.state_dir, given="still there\n")
        assert again.lines[-1] == "heard: still there"


def test_what_waits_already_is_asked_first(program: Program, tmp_path: Path) -> None:
    """A request of a message the program itself sent is answered in the chat; the program gets its reply."""
    with (
        errands(tmp_path, "sweep hall") as running,
        program.at_terminal("chat", "--state-dir", running.state_dir) as person,
    ):
        running.waiting()
        person.wait_for("allow?")
        person.type("y\n")
        person.wait_for("approved: sweep for main")
        assert running.hear("reply ") == "reply done: swept hall"
        person.type("/quit\n")
        assert person.end() == 0


def test_end_of_a_session_ends_the_chat(program: Program, tmp_path: Path) -> None:
    """Whoever talks learns that the session ended, after its last reply."""
    with (
        errands(tmp_path, "delegate sweep attic") as running,
        program.at_terminal("chat", "--state-dir", running.state_dir, "--session", "main/b1") as person,
    ):
        running.waiting()
        person.wait_for("allow?")
        person.type("y\n")
        person.wait_for("(main/b1 ended completed)")
        assert person.end() == 0
        done = program.call("chat", "--state-dir", running.state_dir, "--session", "main/b1", given="x\n")
        assert (done.code, done.out) == (2, "")
        assert "SessionClosed: session 'main/b1': it ended as completed" in done.err


def test_cancelled_tree_ends_the_chat(program: Program, tmp_path: Path) -> None:
    """A person in front of a chat learns that another process ended the tree."""
    with (
        errands(tmp_path) as running,
        program.at_terminal("chat", "--state-dir", running.state_dir) as person,
    ):
        person.wait_for("/quit leaves")
        person.type("sweep hall\n")
        person.wait_for("allow?")
        assert program.call("cancel", "--state-dir", running.state_dir).code == 0
        person.wait_for("(main ended cancelled)")
        assert person.end() == 0


def test_killed_program_ends_the_chat(program: Program, tmp_path: Path) -> None:
    """A runtime that is gone is reported as such, and how to go on."""
    with (
        errands(tmp_path) as running,
        program.at_terminal("chat", "--state-dir", running.state_dir) as person,
    ):
        person.type("hello\n")
        person.wait_for("heard: hello")
        running.kill()
        person.wait_for(f"(tree {running.tree_id} was let go; resume it to go on)")
        assert person.end() == 0
        done = program.call("chat", "--state-dir", running.state_dir, given="x\n")
        assert (done.code, done.out) == (2, "")
        assert "TreeNotFound" in done.err
        assert "continue it first" in done.err


def test_session_that_never_was_is_one_typed_line(program: Program, tmp_path: Path) -> None:
    """There is nobody to talk to."""
    with errands(tmp_path) as running:
        done = program.call("chat", "--state-dir", running.state_dir, "--session", "main/w9", given="x\n")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("sessiontree: SessionNotFound: session 'main/w9'")
