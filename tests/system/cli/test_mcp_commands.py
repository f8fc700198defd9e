"""``sessiontree mcp list|check|accept|allow|login``: what they show, change and refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.behaviour.mcp_fixtures import PROGRAM
from tests.system.cli.command_fixtures import MAX_S, Done, Program, read_until

pytestmark = pytest.mark.slow


class ServerCommands:
    """The command with a configuration of its own.

    Args:
        home: Where all of it is.
    """

    def __init__(self, home: Path) -> None:
        self.program = Program(home)
        self.notes = home / "notes"
        self.notes.mkdir()
        self.config = home / "sessiontree.toml"
        self.place = home / "state"
        words = json.dumps([str(PROGRAM), "modern", str(self.notes)])
        self.config.write_text(f'[mcp.fix]\ncommand = "{sys.executable}"\nargs = {words}\n')

    def run(self, command: str, *words: str, given: str = "") -> Done:
        """Run a command of ``mcp`` to its end."""
        state = () if command in {"allow", "login"} else ("--state-dir", self.place)
        where = ("--config", self.config, *state)
        return self.program.call("mcp", command, *words, *where, given=given)

    def read(self, command: str, *words: str) -> Any:
        """Return what a command says as JSON."""
        return json.loads(self.run(command, *words, "--json").out)


@pytest.fixture
def commands(tmp_path: Path) -> ServerCommands:
    """A configuration with the server of the tests."""
    return ServerCommands(tmp_path)


def test_server_is_checked_accepted_and_allowed(commands: ServerCommands) -> None:
    """Nothing is accepted without a yes; a change is shown by name, and accepted again by the owner alone."""
    (row,) = commands.read("list")["servers"]
    assert (row["name"], row["state"], row["tools"]) == ("fix", "not accepted", 0)
    refused = commands.run("accept", "fix")
    assert (refused.code, refused.lines[-1]) == (1, "nothing was accepted; accept it with --yes")
    assert commands.read("list")["servers"][0]["state"] == "not accepted"
    accepted = commands.run("accept", "fix", "--yes")
    assert accepted.code == 0, accepted.err
    assert "new: add: Adds." in accepted.lines
    (checked,) = commands.read("check")["servers"]
    assert (checked["state"], commands.run("check").code) == ("accepted", 0)
    tiers = {tool["name"]: tool["tier"] for tool in checked["tools"]}
    assert set(tiers.values()) == {"Elevated"}
    assert commands.run("allow", "fix", "add", "--tier", "read-only").code == 0
    (checked,) = commands.read("check", "fix")["servers"]
    assert {tool["name"]: tool["tier"] for tool in checked["tools"]} == {**tiers, "add": "ReadOnly"}
    (commands.notes / "changed").touch()
    assert commands.run("check").code == 1
    (checked,) = commands.read("check")["servers"]
    assert checked["state"] == "changed"
    pins = {tool["name"]: tool["pin"] for tool in checked["tools"]}
    assert [name for name, pin in pins.items() if pin != "accepted"] == ["add"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("check", "fxi"), "no MCP server is called 'fxi'"),
        (("accept", "none", "--yes"), "no MCP server is called 'none'"),
        (("allow", "fix", "add", "--tier", "read"), "--tier 'read' is not one of"),
        (("allow", "none", "add", "--tier", "system"), "no MCP server is called 'none'"),
        (("login", "fix"), "a server with a command needs no login"),
        (("login", "none"), "no MCP server is called 'none'"),
    ],
)
def test_bad_input_is_refused_by_name(commands: ServerCommands, words: tuple[str, ...], reason: str) -> None:
    """The exit code is 2, the configuration is as before, and nothing is started."""
    before = commands.config.read_text()
    done = commands.run(*words)
    assert (done.code, done.out) == (2, "")
    assert reason in " ".join(done.err.split())
    assert commands.config.read_text() == before


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ('command = "a"\nurl = "http://127.0.0.1"', "it has a command and a url"),
        ('url = "ftp://example.com"', "give an address such as"),
        ('url = "https://me:secret@example.com/mcp"', "not in the address"),
        ('command = "a"\nmore = 1', "more"),
        ("", "give a command or a url"),
    ],
)
def test_wrong_entry_is_named_without_its_values(commands: ServerCommands, entry: str, reason: str) -> None:
    """No command that reads it goes on."""
    commands.config.write_text(f"[mcp.fix]\n{entry}\n")
    for command in ("list", "check"):
        done = commands.run(command)
        assert done.code == 2
        assert reason in " ".join(done.err.split())
        assert "secret" not in done.err


def test_server_that_can_not_be_reached_says_why(commands: ServerCommands) -> None:
    """It is listed, check returns 1 with what it said last, and accept changes nothing."""
    commands.config.write_text(
        f"[mcp.fix]\ncommand = '{sys.executable}'\nargs = ['-c', 'exit(\"no place\")']\n"
    )
    assert commands.run("list").code == 0
    (checked,) = commands.read("check")["servers"]
    assert checked["state"] == "unreachable"
    assert "no place" in checked["reason"]
    done = commands.run("accept", "fix", "--yes")
    assert (done.code, "no place" in done.err) == (2, True)
    assert commands.read("list")["servers"][0]["state"] == "not accepted"


def test_person_logs_in_and_the_server_can_be_checked(commands: ServerCommands) -> None:
    """Before that, check says that it needs a login; no token is shown."""
    words = [sys.executable, "-m", "tests.unit.mcp.guarded_server_program"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            commands.config.write_text(f'[mcp.fix]\nurl = "http://127.0.0.1:{port}/mcp"\n')
            assert commands.read("check")["servers"][0]["state"] == "needs login"
            where = ("login", "fix", "--config", str(commands.config))
            with commands.program.start("mcp", *where) as login:
                said = read_until(login.stdout, ("http",))
                httpx.get(said.splitlines()[-1], follow_redirects=True, timeout=MAX_S)
                assert login.wait() == 0
            (checked,) = commands.read("check")["servers"]
            assert (checked["state"], checked["tools"][0]["name"]) == ("not accepted", "secret")
        finally:
            server.kill()
