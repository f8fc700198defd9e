"""``sessiontree tools``: the table, what a policy leaves of it, and why not the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sessiontree.contracts.tools.tool import ToolFlag
from sessiontree.policy.catalog import CATALOG
from sessiontree_tools import builtin_tools
from tests.system.cli.command_fixtures import MAX_S, Done, Program

TEXT, MAYBE, YES_NO = {"type": "string"}, {"type": ["string", "null"]}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}


def exactly(**members: Any) -> dict[str, Any]:
    """Return the schema of an object that has these members and no others."""
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


WHO = {
    "kind": TEXT, "agent": TEXT, "model": TEXT, "group": TEXT, "has_channel": YES_NO, "is_tainted": YES_NO,
    "policy": MAYBE, "warnings": TEXTS,
}  # fmt: skip
ROW = exactly(
    name=TEXT, label=TEXT, section=TEXT, tier=TEXT, kinds=TEXTS, capabilities=TEXTS,
    optional_capabilities=TEXTS, profiles=TEXTS,
    flags=TEXTS, aliases=TEXTS, plugin=TEXT, in_openclaw=YES_NO, is_ready=YES_NO,
    distribution=TEXT, source=TEXT, held=YES_NO, delegated=YES_NO,
)  # fmt: skip
TABLE = exactly(**WHO, tools={"type": "array", "items": ROW})
EXPLANATION = exactly(
    **WHO, tool=TEXT, kept=YES_NO, step=MAYBE, number={"type": ["integer", "null"]}, by=MAYBE, pattern=MAYBE,
    why=MAYBE, note=TEXT, is_ready=YES_NO,
)  # fmt: skip


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A file of an owner's lists."""
    path = tmp_path / "policy.toml"
    path.write_text(
        '[tools]\ndeny = ["group:runtime", "nothing"]\n[agents.clerk.tools]\nprofile = "minimal"\n'
        '[tools.byProvider.openai]\nallow = ["read", "apply_patch"]\n[groups.family]\nallow = []\n'
    )
    return path


OPTIONAL = {row.name for row in CATALOG if ToolFlag.OPTIONAL in row.flags}
"""Held only where a profile or list includes them."""
OF_OPENAI = {"apply_patch"}
"""Held only with a model that was trained on it."""
OF_PROGRAMS = {"tool_search"}
"""Held only where an agent is offered it in the place of all tools."""


def told(program: Program, *arguments: str | Path) -> Any:
    """Return the object the command prints, checked against what is promised of it."""
    done = program.call("tools", *arguments, "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    jsonschema.validate(found, EXPLANATION if "--explain" in arguments else TABLE)
    return found


def test_table_holds_every_tool_once_and_says_who_holds_it(program: Program) -> None:
    """All of the specification's, ready or to come; a Worker holds the eight that only observe."""
    table = told(program)
    assert [each["name"] for each in table["tools"]] == [row.name for row in CATALOG]
    ready = {tool.name for tool in builtin_tools()}
    assert {each["name"] for each in table["tools"] if each["is_ready"]} == ready
    assert {
        each["name"] for each in table["tools"] if each["held"]
    } == ready - OPTIONAL - OF_OPENAI - OF_PROGRAMS
    worker = told(program, "--kind", "worker")
    assert {each["tier"] for each in worker["tools"] if each["held"]} == {"ReadOnly"}
    assert sum(each["held"] for each in worker["tools"]) == 8


def test_policy_is_applied_to_the_session_that_is_asked_about(program: Program, policy: Path) -> None:
    """By agent, model and group; slips are among the warnings."""
    everybody = told(program, "--policy", policy)
    assert everybody["policy"] == str(policy)
    assert everybody["warnings"] == ["tools.deny: 'nothing' does not name a tool"]
    held = {each["name"] for each in everybody["tools"] if each["held"]}
    rest = OPTIONAL | OF_OPENAI | OF_PROGRAMS | {"exec", "process"}
    assert held == {tool.name for tool in builtin_tools()} - rest
    clerk = told(program, "--policy", policy, "--agent", "clerk")
    assert [each["name"] for each in clerk["tools"] if each["held"]] == ["session_status"]
    model = told(program, "--policy", policy, "--model", "openai/gpt-5")
    assert [each["name"] for each in model["tools"] if each["held"]] == ["read", "apply_patch"]
    family = told(program, "--policy", policy, "--group", "family")
    assert not any(each["held"] for each in family["tools"])


def test_one_tool_is_explained_by_any_of_its_names(program: Program, policy: Path) -> None:
    """The first step and entry that remove it, by number and label."""
    found = told(program, "--explain", "BASH", "--policy", policy)
    wanted = {"tool": "exec", "kept": False, "step": "tools.allow", "number": 3, "by": "deny"}
    assert found.items() >= {**wanted, "pattern": "group:runtime", "is_ready": True}.items()
    held = told(program, "--explain", "read", "--policy", policy)
    assert (held["kept"], held["step"], held["number"]) == (True, None, None)
    patch = told(program, "--explain", "apply_patch", "--policy", policy, "--model", "openai/gpt-5")
    assert (patch["kept"], patch["is_ready"]) == (True, True)
    for name, near in (("exce", "did you mean 'exec'?"), ("no_such_thing_at_all", "choose one of: ")):
        done = program.call("tools", "--explain", name)
        assert (done.code, done.out) == (2, "")
        assert near in done.err


def test_what_an_agent_only_delegates_is_shown(program: Program, tmp_path: Path) -> None:
    """Of a policy: in the table, and with the step that takes the tool from the agent itself."""
    path = tmp_path / "lead.toml"
    path.write_text('delegatesByAgent = {lead = ["exec", "read"]}\n[agents.lead.tools]\ndeny = ["exec"]\n')
    table = told(program, "--policy", path, "--agent", "lead")
    assert [each["name"] for each in table["tools"] if each["delegated"]] == ["exec"], "it holds the other"
    found = told(program, "--explain", "exec", "--policy", path, "--agent", "lead")
    note = "its children may hold it: its agent delegates it"
    assert (found["kept"], found["number"], found["note"]) == (False, 5, note)


def test_people_read_lines_and_a_table(program: Program, policy: Path) -> None:
    """The same for eyes, slips beneath it."""
    table = program.call("tools", "--policy", policy).lines
    assert len(table) == 1 + len(CATALOG) + 2
    (line,) = [each for each in table if each.startswith("exec ")]
    assert line.split()[-1] == "no"
    assert table[-1] == "beware: tools.deny: 'nothing' does not name a tool"
    said = program.call("tools", "--explain", "exec", "--kind", "worker").lines
    assert said == ["exec is removed by kind worker: no worker holds it"]
    patch = program.call("tools", "--explain", "apply_patch", "--model", "openai/gpt-5").lines
    assert patch == ["apply_patch is held"]
    process = program.call("tools", "--explain", "process").lines
    assert process == ["process is held"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--kind", "clerk"), "--kind 'clerk' is not one of main, branch, worker"),
        (("--policy", "nowhere.json"), "policy 'nowhere.json' can't be read"),
        (("--policy", "policy.txt"), "must end in .json or .toml"),
    ],
)
def test_what_can_t_be_asked_is_said_in_one_line(
    program: Program, arguments: tuple[str, str], error: str
) -> None:
    """Exit code 2, and what to do."""
    done = program.run("tools", *arguments)
    assert done.code == 2
    assert error in done.err
    assert len(done.err.splitlines()) == 1


PLUGIN = """
from sessiontree import PermissionTier, ToolFlag, tool

@tool(tier=PermissionTier.SYSTEM)
def tune() -> str:
    "Play."
    return "playing"

@tool(tier=PermissionTier.READ_ONLY, flags=[ToolFlag.OPTIONAL])
def {second}() -> str:
    "List the stations."
    return "none"

def tools():
    return [tune, {second}]
"""


def install(folder: Path, second: str) -> None:
    """Lay a distribution with a plugin into a folder, as an installer would."""
    info = folder / "radio-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: radio\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sessiontree.tools]\nradio = radio_tools:tools\n")
    (folder / "radio_tools.py").write_text(PLUGIN.format(second=second))


def tools_beside(program: Program, place: Path, *arguments: str | Path) -> Done:
    """Run ``tools`` with what is installed in a place; the command itself knows its own environment alone."""
    environment = {**program.environment, "PYTHONPATH": str(place)}
    code = "from sessiontree.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "tools", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=MAX_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_plugin_s_tools_stand_under_its_id(program: Program, tmp_path: Path) -> None:
    """In the table with the plugin's name; judged by its own lists; optional ones wait to be named."""
    install(tmp_path, "stations")
    lists = tmp_path / "lists.json"
    lists.write_text('{"plugins": {"radio": {"tools": {"deny": ["tune"], "allow": ["*", "stations"]}}}}')
    plain = json.loads(tools_beside(program, tmp_path, "--json").out)["tools"]
    assert {each["name"]: each["held"] for each in plain if each["plugin"] == "radio"} == {
        "stations": False,
        "tune": True,
    }
    judged = json.loads(tools_beside(program, tmp_path, "--policy", lists, "--json").out)
    assert judged["warnings"] == []
    assert {each["name"]: each["held"] for each in judged["tools"] if each["plugin"]} == {
        "stations": True,
        "tune": False,
    }
    assert {(each["distribution"], each["source"]) for each in judged["tools"] if each["plugin"]} == {
        ("radio 1.0", "radio_tools:tools")
    }
    assert "radio (radio 1.0)" in tools_beside(program, tmp_path).out
    settings = tmp_path / "plugins.toml"
    settings.write_text("[radio]\nenabled = false\n")
    without = json.loads(tools_beside(program, tmp_path, "--plugins", settings, "--json").out)["tools"]
    assert not [each for each in without if each["plugin"]]
    assert (
        sum(each["held"] for each in judged["tools"])
        == len(builtin_tools()) - len(OF_OPENAI | OF_PROGRAMS) + 1
    )


@pytest.mark.slow
def test_plugin_that_takes_a_name_is_refused(program: Program, tmp_path: Path) -> None:
    """A tool of this house is never replaced behind an owner's back."""
    install(tmp_path, "read")
    done = tools_beside(program, tmp_path)
    assert (done.code, "two tools are called 'read'" in done.err) == (2, True)
