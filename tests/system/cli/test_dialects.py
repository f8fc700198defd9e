"""``sessiontree tools --dialect``: each tool's schema as a provider's models get it, and what that lost."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from sessiontree.schema.dialect import DIALECTS, GEMINI_STRIPPED
from sessiontree_tools import builtin_tools
from tests.system.cli.command_fixtures import Program

LOSS = {
    "type": "object",
    "properties": {
        "pointer": {"type": "string", "pattern": "^(/|$)"},
        "keyword": {"type": "string"},
        "effect": {"enum": ["same", "wider", "narrower"]},
        "done": {"type": "string", "minLength": 1},
    },
    "required": ["pointer", "keyword", "effect", "done"],
    "additionalProperties": False,
}


def told(program: Program, dialect: str) -> dict[str, Any]:
    """Return the object the command prints, by tool."""
    done = program.call("tools", "--dialect", dialect, "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["dialect"] == dialect
    jsonschema.validate([loss for tool in found["tools"] for loss in tool["losses"]], {"items": LOSS})
    return {tool["name"]: tool for tool in found["tools"]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_tool_is_shown_in_every_dialect(program: Program, dialect: str) -> None:
    """All of them, each with an object at the root."""
    found = told(program, dialect)
    assert found.keys() >= {tool.name for tool in builtin_tools()}
    assert all(tool["schema"]["type"] == "object" for tool in found.values())


def test_what_is_lost_stands_beside_what_is_shown(program: Program) -> None:
    """The older Gemini field knows no schema of further properties; the report says where that went."""
    found = told(program, "gemini-openapi")
    assert not GEMINI_STRIPPED & found["grep"]["schema"]["properties"]["pattern"].keys()
    assert not found["grep"]["is_lossy"], "models are shown no bounds, whatever their provider takes"
    command = found["exec"]
    assert not GEMINI_STRIPPED & command["schema"]["properties"]["env"].keys()
    assert command["is_lossy"]
    lost = {(loss["pointer"], loss["keyword"]) for loss in command["losses"]}
    assert lost == {("/properties/env", "additionalProperties")}
    assert not told(program, "anthropic")["exec"]["is_lossy"]


def test_people_get_a_table_of_losses(program: Program) -> None:
    """And how many tools are shown otherwise than they are."""
    done = program.call("tools", "--dialect", "gemini-openapi")
    assert done.code == 0
    assert "additionalProperties" in done.out
    assert "tools are shown otherwise" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dialect", "gemma"), "choose one of anthropic"),
        (("--dialect", "plain", "--explain", "exec"), "not both"),
    ],
)
def test_what_can_t_be_shown_is_told(program: Program, arguments: tuple[str, ...], said: str) -> None:
    """One line, no traceback."""
    done = program.call("tools", *arguments)
    assert done.code == 2
    assert said in done.err
