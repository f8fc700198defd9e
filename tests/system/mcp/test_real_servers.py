"""Servers of others' making, in an environment of their own: ``make setup-servers``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree import AgentSpec, McpServer, ScriptedModel, SessionTree, script_call
from sessiontree.contracts.facts.session_facts import CallIntended
from tests.behaviour.fact_fixtures import facts_of, results
from tests.behaviour.mcp_fixtures import accept_listed

pytestmark = pytest.mark.long
CHECKOUT = Path(__file__).parents[3]
SERVERS = CHECKOUT / ".venv-servers" / "bin"
HASH = re.compile(r"\b[0-9a-f]{40}\b")
TOOLS = ("git_status", "git_log", "git_add", "git_commit", "git_reset")


def git(place: Path, *words: str) -> str:
    """Run git in a repository of a test."""
    named = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    done = subprocess.run(["git", *named, *words], cwd=place, check=True, capture_output=True, text=True)
    return done.stdout


async def test_workers_read_a_repository_and_a_branch_commits(tmp_path: Path) -> None:
    """``mcp-server-git`` under tiers: Workers hold what reads, and a Branch what writes."""
    place, state = tmp_path / "repository", tmp_path / "state"
    place.mkdir()
    git(place, "init", "--quiet")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        git(place, "config", name, value)
    (place / "a.txt").write_text("one\n")
    git(place, "add", "a.txt")
    git(place, "commit", "--quiet", "-m", "first")
    (place / "b.txt").write_text("two\n")
    server = McpServer(
        command=str(SERVERS / "mcp-server-git"),
        args=("--repository", str(place)),
        tiers={
            "git_status": "read-only",
            "git_log": "read-only",
            "git_add": "workspace",
            "git_commit": "workspace",
        },
    )
    await accept_listed(state, git=server)
    where = {"repo_path": str(place)}
    reads: Any = [script_call("mcp__git__git_status", **where), script_call("mcp__git__git_log", **where)]
    writes = [
        script_call("mcp__git__git_add", **where, files=["b.txt"]),
        script_call("mcp__git__git_commit", **where, message="second"),
    ]
    commit = script_call("mcp__git__git_commit", **where, message="never")
    model = ScriptedModel(
        {"main": ["hello"], "main/w1": [reads, commit, "read"], "main/b1": [*writes, "committed"]}
    )
    agents = {"default": AgentSpec(tools=tuple(f"mcp__git__{name}" for name in TOOLS))}
    tree = SessionTree(
        place, model=model, mcp={"git": server}, agents=agents, state_dir=state, backend="local"
    )
    async with tree:
        assert (await (await tree.main.spawn("worker", "read")).result()).summary == "read"
        status, log, refused = results(tree, "main/w1")
        assert "b.txt" in status.text
        assert "first" in log.text
        assert refused.is_error
        assert (await (await tree.main.spawn("branch", "commit")).result()).summary == "committed"
        assert [fact.call.tool for fact in await facts_of(tree, CallIntended)] == [
            "mcp__git__git_add",
            "mcp__git__git_commit",
        ]
    assert git(place, "log", "--format=%s").split() == ["second", "first"]


async def test_worker_asks_for_the_time(tmp_path: Path) -> None:
    """``mcp-server-time`` in the sandbox of commands: it needs no network and no directory of its own."""
    place, state = tmp_path / "place", tmp_path / "state"
    place.mkdir()
    server = McpServer(
        command=str(SERVERS / "mcp-server-time"),
        cwd=str(place),
        confine=True,
        tiers={"convert_time": "read-only"},
    )
    await accept_listed(state, time=server)
    call = script_call(
        "mcp__time__convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
    )
    model = ScriptedModel({"main": ["hello"], "main/w1": [call, "done"]})
    agents = {"default": AgentSpec(tools=("mcp__time__convert_time",))}
    tree = SessionTree(
        place, model=model, mcp={"time": server}, agents=agents, state_dir=state, backend="local"
    )
    async with tree:
        await (await tree.main.spawn("worker", "ask")).result()
        (message,) = results(tree, "main/w1")
        assert not message.is_error
        assert "21:00" in json.dumps(message.text)


def test_transcript_in_the_documents_is_what_the_program_prints(tmp_path: Path) -> None:
    """``docs/mcp.md`` shows a real run: a Worker reads, and the commit of a Branch waits for a yes."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.system.mcp.git_program", str(tmp_path)],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120.0,
    )
    shown = (CHECKOUT / "docs" / "mcp.md").read_text("utf-8").partition("```text\nmain/w1")[2]
    assert HASH.sub("", ran.stdout) == HASH.sub("", "main/w1" + shown.partition("```")[0])
