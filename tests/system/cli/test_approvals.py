"""``sessiontree approvals``: requests of a live tree answered from elsewhere, or read from its journal."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.system.cli.command_fixtures import COMMAND, Done, Program
from tests.system.cli.errand_program import errands

pytestmark = pytest.mark.slow

TEXT = {"type": "string"}
APPROVAL = {
    "tree": TEXT,
    "request_id": TEXT,
    "session": TEXT,
    "tool": TEXT,
    "arguments": {"type": "object"},
    "tier": {"enum": ["ReadOnly", "Workspace", "System", "Elevated"]},
    "asked_by": {"type": "array", "maxItems": 0},
    "asked_at_ms": {"type": "integer"},
    "decision": {"enum": ["open", "approved", "denied", "expired", "cancelled"]},
    "by": TEXT,
    "reason": TEXT,
    "expires_at_ms": {"type": "integer"},
    "asked": {"type": ["string", "null"]},
}
LISTED = {
    "type": "object",
    "properties": {
        "state_dir": TEXT,
        "live": {"type": "array", "items": TEXT},
        "questions": {"type": "array", "maxItems": 0},
        "approvals": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": APPROVAL,
                "required": list(APPROVAL),
                "additionalProperties": False,
            },
        },
    },
    "required": ["state_dir", "live", "approvals", "questions"],
    "additionalProperties": False,
}


def listed(program: Program, state_dir: Path, *more: str) -> Any:
    """Return what programs read."""
    done = program.call("approvals", "--state-dir", state_dir, "--json", *more)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    jsonschema.validate(found, LISTED)
    return found


def refused(done: Done) -> str:
    """Return the one line a command says that can't do what it should."""
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    return line


@pytest.mark.covers("A13")
def test_second_process_approves(program: Program, tmp_path: Path) -> None:
    """The tree of one program goes on by the answer of another; the journal names who answered."""
    with errands(tmp_path, "sweep cellar\u202e") as running:
        (request,) = running.waiting()
        found = listed(program, running.state_dir)
        assert found["live"] == [running.tree_id]
        (approval,) = found["approvals"]
        assert (approval["request_id"], approval["decision"]) == (request.request_id, "open")
        assert (approval["arguments"], approval["asked"]) == ({"place": "cellar\u202e"}, "main")
        shown = program.call("approvals", "--state-dir", running.state_dir)
        assert "cellar\\u{202e}" in shown.out
        assert shown.lines[-1] == "1 request waits for a person"
        done = program.run("approvals", "--state-dir", running.state_dir, "--approve", request.request_id)
        assert (done.code, done.err) == (0, "")
        assert done.out == f"approved: sweep for main ({request.request_id})\n"
        assert running.hear("reply ") == "reply done: swept cellar\u202e"
        assert listed(program, running.state_dir)["approvals"] == []
        (approval,) = listed(program, running.state_dir, "--all")["approvals"]
        assert approval["decision"] == "approved"
        assert re.fullmatch(r"person \(uid \d+, pid \d+\)", approval["by"])
        assert "approved" in program.call("approvals", "--state-dir", running.state_dir, "--all").out
        late = program.call("approvals", "--state-dir", running.state_dir, "--deny", request.request_id)
        assert "AnswerTooLate: approval " in refused(late)
        assert "is already approved; the answer changes nothing" in refused(late)
        unknown = program.call("approvals", "--state-dir", running.state_dir, "--deny", "r0")
        assert "AnswerTooLate: approval r0 is already unknown" in refused(unknown)


def test_no_says_why(program: Program, tmp_path: Path) -> None:
    """The reason reaches the model; a program reads what was done."""
    with errands(tmp_path, "sweep hall") as running:
        (request,) = running.waiting()
        options = ("--deny", request.request_id, "--reason", "wet paint", "--json")
        done = program.call("approvals", "--state-dir", running.state_dir, *options)
        assert json.loads(done.out) == {
            "tree": running.tree_id,
            "request_id": request.request_id,
            "decision": "denied",
        }
        assert "wet paint" in running.hear("reply ")


def test_second_process_lifts_a_no(program: Program, tmp_path: Path) -> None:
    """The same call is asked about again; a denial that does not hold is a typed error."""
    with errands(tmp_path, "sweep hall") as running:
        (request,) = running.waiting()
        place = ("approvals", "--state-dir", running.state_dir)
        early = program.call(*place, "--forget", request.request_id)
        assert f"AnswerTooLate: approval {request.request_id} is already" in refused(early)
        assert program.call(*place, "--deny", request.request_id).code == 0
        running.hear("reply ")
        lifted = program.call(*place, "--forget", request.request_id)
        assert (lifted.code, lifted.err) == (0, "")
        assert (
            lifted.out
            == f"the denial of {request.request_id} is lifted: the same call is asked about again\n"
        )
        with program.at_terminal("chat", "--state-dir", running.state_dir) as person:
            person.wait_for("/quit leaves")
            person.type("sweep hall\n")
            person.wait_for("allow?")
            person.type("l\n")
            person.wait_for("(left open: ")
            (again,) = running.waiting()
            assert again.request_id != request.request_id
            denied = program.call(*place, "--deny", again.request_id)
            assert denied.code == 0
            person.wait_for("done: ")
            person.type("/quit\n")
            assert person.end() == 0
        done = program.call(*place, "--forget", again.request_id, "--json")
        assert json.loads(done.out) == {
            "tree": running.tree_id,
            "request_id": again.request_id,
            "decision": "forgotten",
        }
        assert "AnswerTooLate" in refused(program.call(*place, "--forget", again.request_id))


@pytest.mark.covers("REL-L19")
def test_of_two_answers_at_once_one_decides(program: Program, tmp_path: Path) -> None:
    """Two processes answer the same request: one is heard, the other learns that it came too late."""
    with errands(tmp_path, "sweep hall") as running:
        (request,) = running.waiting()
        answers = [
            subprocess.Popen(
                [COMMAND, "approvals", "--state-dir", running.state_dir, word, request.request_id],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=program.environment,
            )
            for word in ("--approve", "--deny")
        ]
        said = [each.communicate() for each in answers]
        codes = [each.returncode for each in answers]
        assert sorted(codes) == [0, 2]
        winner = codes.index(0)
        assert said[winner][0].startswith((b"approved: sweep", b"denied: sweep")[winner : winner + 1])
        what = ("approved", "denied")[winner]
        assert f"is already {what}; the answer changes nothing" in said[1 - winner][1].decode()
        running.hear("reply ")


def test_at_a_terminal_each_request_is_asked(program: Program, tmp_path: Path) -> None:
    """Requests are asked one after the other, and the command ends with the last answer."""
    with (
        errands(tmp_path, "sweep hall", "delegate sweep attic\x1b[31m") as running,
    ):
        running.waiting(2)
        with program.at_terminal("approvals", "--state-dir", running.state_dir) as person:
            person.wait_for("wants to call sweep (Elevated)")
            person.wait_for("allow?")
            person.type("what?\n")
            person.wait_for("allow?")
            person.type("y\n")
            person.wait_for("approved: sweep for main")
            person.wait_for("allow?")
            person.type("no dust is fine\n")
            person.wait_for("denied: sweep for main")
            assert person.end() == 0
            assert "attic\\u001b[31m" in person.said
            assert "\x1b[31m" not in person.said
        decisions = {each["decision"] for each in listed(program, running.state_dir, "--all")["approvals"]}
        assert decisions == {"approved", "denied"}


def test_always_answers_what_comes_later(program: Program, tmp_path: Path) -> None:
    """An always at a terminal of another process holds for the tree."""
    with errands(tmp_path, "sweep hall", "delegate sweep attic") as running:
        running.waiting(2)
        with program.at_terminal("approvals", "--state-dir", running.state_dir) as person:
            person.wait_for("allow?")
            person.type("a\n")
            person.wait_for("approved, from now on always: sweep for main")
            assert person.end() == 0
        assert running.waiting(0) == []
        decisions = [
            (each["decision"], each["by"][:6])
            for each in listed(program, running.state_dir, "--all")["approvals"]
        ]
        assert sorted(decisions) == [("approved", "always"), ("approved", "person")]


def test_what_another_person_answers_is_withdrawn(program: Program, tmp_path: Path) -> None:
    """Two people are asked the same; once one answered, the other's question and command are over."""
    with errands(tmp_path, "sweep hall") as running:
        running.waiting()
        with (
            program.at_terminal("approvals", "--state-dir", running.state_dir) as first,
            program.at_terminal("approvals", "--state-dir", running.state_dir) as second,
        ):
            first.wait_for("allow?")
            second.wait_for("allow?")
            first.type("y\n")
            second.wait_for("(the question was withdrawn: approved by person (uid ")
            assert (first.end(), second.end()) == (0, 0)
        running.hear("reply ")


def test_leaving_answers_nothing(program: Program, tmp_path: Path) -> None:
    """The end of the input is no answer: the request goes on waiting."""
    with errands(tmp_path, "sweep hall") as running:
        (request,) = running.waiting()
        with program.at_terminal("approvals", "--state-dir", running.state_dir) as person:
            person.wait_for("allow?")
            person.type("\x04")
            assert person.end() == 0
        assert running.waiting() == [request]


def test_watching_asks_as_requests_come(program: Program, tmp_path: Path) -> None:
    """A watch asks about what comes later, and ends when the tree does."""
    with (
        errands(tmp_path) as running,
        program.at_terminal("approvals", "--watch", "--state-dir", running.state_dir) as person,
        program.at_terminal("chat", "--state-dir", running.state_dir) as other,
    ):
        person.wait_for("nothing waits for an answer; what comes is asked here")
        for place in ("hall", "attic"):
            other.type(f"sweep {place}\n")
            person.wait_for(f'{{"place":"{place}"}}')
            person.wait_for("allow?")
            person.type("y\n")
            other.wait_for(f"done: swept {place}")
        other.type("/quit\n")
        assert other.end() == 0
        assert program.call("cancel", "--state-dir", running.state_dir).code == 0
        person.wait_for("was closed: its requests can't be answered any more")
        assert person.end() == 0


def test_without_a_runtime_the_journal_is_read(program: Program, tmp_path: Path) -> None:
    """A killed program's requests are listed, with what to do; nothing is answered until it is resumed."""
    with errands(tmp_path, "sweep hall") as running:
        (request,) = running.waiting()
        running.kill()
        assert (running.state_dir / "control").exists()
        found = listed(program, running.state_dir)
        assert (found["live"], [each["request_id"] for each in found["approvals"]]) == (
            [],
            [request.request_id],
        )
        shown = program.call("approvals", "--state-dir", running.state_dir)
        assert shown.code == 0
        assert request.request_id in shown.out
        assert shown.lines[-1].startswith(
            f"requests can't be answered: no runtime has tree {running.tree_id} open; "
        )
        for options in (("--approve", request.request_id), ("--deny", request.request_id), ("--watch",)):
            line = refused(program.call("approvals", "--state-dir", running.state_dir, *options))
            assert line.startswith(f"sessiontree: TreeNotFound: journal '{running.tree_id}': no runtime")
            assert line.endswith("SessionTree.resume a tree of a program")


def test_tree_of_another_program_is_told_apart(program: Program, tmp_path: Path) -> None:
    """A dead program's tree is listed alongside a live one; only what is open can be answered."""
    with errands(tmp_path, "sweep hall") as dead:
        (request,) = dead.waiting()
        dead.kill()
        with errands(tmp_path) as running:
            assert listed(program, running.state_dir)["approvals"] == []
            named = ("--tree", dead.tree_id)
            found = listed(program, running.state_dir, *named)
            assert (found["live"], len(found["approvals"])) == ([running.tree_id], 1)
            line = refused(
                program.call(
                    "approvals", "--state-dir", running.state_dir, "--approve", request.request_id, *named
                )
            )
            assert "TreeNotFound" in line


def test_copied_id_never_means_another_trees_request(program: Program, tmp_path: Path) -> None:
    """Two trees ask for the same thing at the same step; what was copied from the first is unknown now."""
    with errands(tmp_path, "sweep hall") as first:
        (copied,) = first.waiting()
        first.kill()
    with errands(tmp_path, "sweep hall") as second:
        (request,) = second.waiting()
        assert (request.digest, request.session_id) == (copied.digest, copied.session_id)
        for option in ("--approve", "--deny"):
            line = refused(
                program.call("approvals", "--state-dir", second.state_dir, option, copied.request_id)
            )
            assert f"AnswerTooLate: approval {copied.request_id} is already unknown" in line
        assert second.waiting() == [request]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--approve", "r1", "--deny", "r1"), "--approve and --deny exclude each other"),
        (("--all", "--watch"), "--all and --watch exclude each other"),
        (("--reason", "so"), "--reason says why"),
        (("--watch", "--json"), "--watch asks a person"),
    ],
)
def test_options_that_do_not_fit_are_said_so(
    program: Program, tmp_path: Path, options: tuple[str, ...], error: str
) -> None:
    """One typed line, before anything is looked at."""
    line = refused(program.call("approvals", "--state-dir", tmp_path / "none", *options))
    assert line.startswith(f"sessiontree: ConfigError: {error}")


def test_place_without_a_journal_is_one_typed_line(program: Program, tmp_path: Path) -> None:
    """Nothing is listed, and nothing is made on the way."""
    for place in (("--state-dir", tmp_path / "none"), (tmp_path,)):
        done = program.call("approvals", *place)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("sessiontree: nothing ran here yet: no journal is here")
        assert len(done.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
