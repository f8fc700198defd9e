"""The search of a session's tools: what it finds, in which order, and where it is offered."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree import (
    AgentSpec,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    SessionTree,
    ToolFlag,
    script_call,
    tool,
)
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.approvals import CheckedCall
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.contracts.values.messages import ToolCall
from sessiontree.dispatch.dispatcher import Dispatcher
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.policy.compiled import compile_policy
from sessiontree.programs.found import FoundInterpreter
from sessiontree.programs.tool_index import MAX_LINE_CHARS, HeldTool, ToolIndex
from sessiontree.runtime.host import host
from sessiontree.runtime.rights.session_rights import make_session_policy
from sessiontree.runtime.runner.calls.tool_searches import ToolSearches
from sessiontree.runtime.runner.model_requests import ToolOffer
from sessiontree.session.state import CallState
from sessiontree.testing.context import FixedStatus, fresh_report
from sessiontree_tools import builtin_tools
from tests.unit.session.session_fixtures import spec

TABLE = ToolTable(builtin_tools())
TOOLS = [
    HeldTool(each.name, each.tool.description, each.compiled.schema, each.tool.aliases) for each in TABLE
]
WORDS = [
    ("read file", "read"),
    ("run a shell command", "exec"),
    ("starting children", "sessions_spawn"),
    ("screenshots", "preview_screenshot"),
    ("remember", "memory_store"),
    ("bash", "exec"),
    ("MemoryGet", "memory_get"),
]


@tool(tier=PermissionTier.READ_ONLY, flags=[ToolFlag.OWNER_ONLY])
def vault() -> str:
    """Open the vault."""
    return "open"


def names(found: tuple[list[dict[str, Any]], int]) -> list[str]:
    """Return the names of what was found."""
    return [each["name"] for each in found[0]]


@pytest.mark.parametrize(("query", "wanted"), WORDS)
def test_words_find_the_tool_that_is_meant(query: str, wanted: str) -> None:
    """Stems, beginnings of words, and other names count; it is among the first three."""
    index = ToolIndex(TOOLS, "sessions_spawn")
    assert wanted in names(index.find(query, 3))
    index.close()


@given(query=st.text(max_size=60), limit=st.integers(1, 50), seed=st.integers(0, 99))
def test_any_query_finds_the_same_whatever_the_order_of_tools(query: str, limit: int, seed: int) -> None:
    """Never an error, no more than asked for, and nothing that is withheld."""
    index = ToolIndex(TOOLS, "sessions_spawn")
    mixed = ToolIndex(Random(seed).sample(TOOLS, len(TOOLS)), "sessions_spawn")
    found, more = index.find(query, limit)
    assert (found, more) == mixed.find(query, limit)
    assert len(found) == min(limit, len(found) + more)
    shown = names((found, more))
    assert not set(shown) & set(names(index.find(query, limit, withheld=shown)))
    index.close()
    mixed.close()


def test_what_it_shows_is_a_line_each() -> None:
    """Children are started by functions of a program; long descriptions are cut, odd characters stored."""
    odd = HeldTool("odd", "Odd \ud800 words\nin lines. " + "x" * 300, {"properties": {"at": {}}})
    index = ToolIndex([*TOOLS, odd], "sessions_spawn")
    (shown,) = index.find("odd", 1)[0]
    assert shown["signature"] == "odd(at: Any=)"
    assert len(str(shown["description"])) <= MAX_LINE_CHARS
    assert "\n" not in str(shown["description"])
    (child,) = index.find("sessions_spawn", 1)[0]
    assert str(child["signature"]).startswith("spawn(kind: 'branch'|'worker', task, ")
    index.close()


def test_what_is_offered_is_made_once_and_needs_both() -> None:
    """The same tools are the same object, turn by turn; without the search or programs, all are offered."""
    entries = list(TABLE)
    offer = ToolOffer(entries, "program")
    assert offer.names == ("program", "tool_search")
    assert offer.show("scripted") is offer.show("scripted")
    assert len(offer.show("scripted", frozenset({"program"}))) == len(entries) - 1
    for missing in offer.names:
        held = [entry for entry in entries if entry.name != missing]
        assert len(ToolOffer(held, "program").names) == len(held)
    assert len(ToolOffer(entries, "all").names) == len(entries)


async def test_without_an_interpreter_all_tools_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the one that could only fail; whoever calls it reads what to install."""

    def reply(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return script_call("program", code="1")
        return json.dumps([[spec.name for spec in request.tools], request.messages[-1].text])

    missing = FoundInterpreter("", "", "the library pydantic-monty is missing")
    monkeypatch.setattr(host, "find_interpreter", lambda: missing)
    (tmp_path / "ground").mkdir()
    async with SessionTree(
        tmp_path / "ground",
        model=FunctionModel(reply),
        agents={"default": AgentSpec(tools_offered="program")},
        backend="local",
        state_dir=tmp_path / "state",
    ) as tree:
        offered, said = json.loads(await tree.main.send("go"))
    assert {"read", "exec"} < set(offered)
    assert not {"program", "tool_search"} & set(offered)
    assert "install sessiontree[programs]" in said


@pytest.mark.parametrize("has_stranger", [False, True])
def test_search_for_somebody_else_finds_what_is_theirs(has_stranger: bool) -> None:
    """What only owners may have called is not found by a turn that acts for a stranger."""
    table = ToolTable([*builtin_tools(), vault])
    policy = make_session_policy(
        compile_policy(table.rows, PolicyConfig()), "", spec(SessionKind.MAIN), "scripted", has_channel=True
    )
    rights = SessionRights(
        "main",
        "default",
        SessionKind.MAIN,
        Path("/"),
        AgentConfig(),
        FixedStatus(fresh_report(SessionKind.MAIN)),
    )
    dispatcher = Dispatcher(
        table,
        frozenset({"read", "vault", "tool_search"}),
        rights,
        policy,
        tool_timeout_s=60.0,
        approval_expiry_s=900.0,
        now_ms=lambda: 5,
        command_fingerprint=lambda arguments, member: "",
    )
    stranger = Principal("bob", "Bob", "the control socket", "", is_owner=False)
    call = CallState("1.0", ToolCall("c1", "tool_search", {}), asked_by=(stranger,) if has_stranger else ())
    checked = CheckedCall("1.0", "tool_search", {"query": "read vault"}, "", 0, True)
    searches = ToolSearches(dispatcher)
    found = json.loads(searches.answer(call, checked, 5).message.text)["tools"]
    assert {each["name"] for each in found} == ({"read"} if has_stranger else {"read", "vault"})
    searches.close()
