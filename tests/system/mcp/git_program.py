"""A tree uses ``mcp-server-git`` under tiers, and prints what its sessions may do: ``python -m … FOLDER``.

A Worker reads the repository and tries to commit; a Branch commits, and its request waits for a person, whom
this program plays. ``docs/mcp.md`` shows the output. It needs ``make setup-servers``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

from sessiontree import AgentSpec, McpServer, ScriptedModel, SessionTree, script_call
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from tests.behaviour.fact_fixtures import results, until
from tests.behaviour.mcp_fixtures import accept_listed

SERVER: Final = Path(__file__).parents[3] / ".venv-servers" / "bin" / "mcp-server-git"
TOOLS: Final = ("git_status", "git_log", "git_add", "git_commit")
WIDTH: Final = 100
MARK: Final = "<<<"
"""Begins the lines around text from outside."""


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def git(place: Path, *words: str) -> str:
    """Run git in the repository."""
    done = subprocess.run(["git", *words], cwd=place, check=True, capture_output=True, text=True)
    return done.stdout


def make_repository(place: Path) -> None:
    """Make a repository with one commit, and a file that is not committed."""
    place.mkdir(parents=True)
    git(place, "init", "--quiet", "--initial-branch=main")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        git(place, "config", name, value)
    (place / "a.txt").write_text("one\n")
    git(place, "add", "a.txt")
    git(place, "commit", "--quiet", "-m", "first")
    (place / "b.txt").write_text("two\n")


def call(place: Path, tool: str, **arguments: Any) -> Any:
    """Return a scripted call of a tool of the server."""
    return script_call(f"mcp__git__{tool}", repo_path=str(place), **arguments)


def show_results(tree: SessionTree, session: str) -> None:
    """Print what a session's calls returned, without the lines around text from outside."""
    for message in results(tree, session):
        say(f"{session}  {message.tool_name}  {'error' if message.is_error else 'ok'}")
        lines = message.text.splitlines()[2:] if message.text.startswith(MARK) else message.text.splitlines()
        for line in lines:
            for part in textwrap.wrap(line, WIDTH) if not line.startswith(MARK) else ():
                say(f"    {part.strip()}")


async def main(folder: Path) -> None:
    """Read, try to commit, and commit."""
    place, state = folder / "repository", folder / "state"
    make_repository(place)
    server = McpServer(
        command=str(SERVER),
        args=("--repository", str(place)),
        tiers={"git_status": "read-only", "git_log": "read-only", "git_add": "workspace"},
    )
    await accept_listed(state, git=server)
    reads = [call(place, "git_status"), call(place, "git_commit", message="by a Worker"), "read"]
    writes = [call(place, "git_add", files=["b.txt"]), call(place, "git_commit", message="second"), "done"]
    model = ScriptedModel({"main": ["hello"], "main/w1": reads, "main/b1": writes})
    agents = {"default": AgentSpec(tools=tuple(f"mcp__git__{name}" for name in TOOLS))}
    options: dict[str, Any] = {"model": model, "mcp": {"git": server}, "agents": agents, "state_dir": state}
    os.chdir(place)
    async with SessionTree(place, backend="local", **options) as tree:
        await (await tree.main.spawn("worker", "What has changed?")).result()
        show_results(tree, "main/w1")
        branch = await tree.main.spawn("branch", "Commit it.")
        await until(tree, ApprovalWaiting)
        (pending,) = tree.approvals.pending()
        request = pending.request
        say(f"{request.session_id} asks for {request.tool}, tier {request.tier}")
        say(f"log before the answer: {git(place, 'log', '--format=%s').split()}")
        await pending.approve()
        await branch.result()
        show_results(tree, "main/b1")
    say(f"log after it: {git(place, 'log', '--format=%s').split()}")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve()))
