"""Codex CLI talks to a tree by its doors: a person approves a call of each."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from sessiontree import FunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from tests.behaviour.effect_fakes import effects
from tests.system.serve.door_fixtures import Door, open_door

CODEX = Path(__file__).parents[3] / ".ci" / "codex" / "node_modules" / ".bin" / "codex"
COMMAND = Path(sys.executable).with_name("sessiontree")
EFFECT = "runs.txt"
"""A file in which each run of the call adds a line."""
MAX_S = 120.0
POLL_S = 0.05


def reply(request: ModelRequest) -> Any:
    """Launch something by the tree's own tool, then have Codex run a command, and repeat what both said."""
    heard = [each.text for each in request.messages if isinstance(each, ToolResultMessage)]
    if isinstance(request.messages[-1], UserMessage):
        return ["I ask somebody.", script_call("launch", text="by-the-tree")]
    if len(heard) == 1:
        return ["I look.", script_call("exec_command", cmd=f"echo once >> {EFFECT}; echo from-codex")]
    return f"The tree heard: {heard[0]}, then {heard[1]}"


async def run(*words: str | Path) -> str:
    """Run the project's command, and return what it prints."""
    command = await asyncio.create_subprocess_exec(COMMAND, *words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await command.communicate()
    assert command.returncode == 0, printed.decode()
    return printed.decode()


async def approve(door: Door, tool: str) -> str:
    """Approve a request of the tree as its owner does at another terminal, and return what that prints."""
    opened = door.conversations._open
    while not opened or not next(iter(opened.values())).tree.approvals.pending():  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
    where = ("approvals", door.workspace, "--state-dir", door.place / "state")
    (request,) = json.loads(await run(*where, "--json"))["approvals"]
    assert (request["tool"], request["decision"]) == (tool, "open")
    return await run(*where, "--approve", request["request_id"])


async def talk(place: Path) -> None:
    """Start Codex at a door, and check what it said and did."""
    async with open_door(place, FunctionModel(reply)) as door:
        token, home = door.make_token(tier="Elevated"), place / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            'model = "default"\nmodel_provider = "tree"\nweb_search = "disabled"\n'
            "[features]\nmulti_agent = false\n"
            f'[model_providers.tree]\nname = "tree"\nbase_url = "{door.origin}/v1"\n'
            'env_key = "TREE_TOKEN"\nwire_api = "responses"\n'
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
        codex = await asyncio.create_subprocess_exec(
            CODEX,
            *("exec", "--skip-git-repo-check", "-s", "danger-full-access", "launch it"),
            env=environment | {"TREE_TOKEN": token},
            cwd=door.workspace,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(MAX_S):
            assert effects(door.workspace) == []
            answered = await approve(door, "launch")
            assert not (door.workspace / EFFECT).exists()
            answered += await approve(door, "exec_command")
            said, _ = await codex.communicate()
        text = said.decode()
        print(answered, text, sep="\n")  # noqa: T201
        assert codex.returncode == 0, text
        assert "The tree heard: appended by-the-tree, then" in text, text
        assert "from-codex" in text, text
        assert [each for _, each in effects(door.workspace)] == ["by-the-tree"]
        assert (door.workspace / EFFECT).read_text() == "once\n"


def main() -> int:
    """Return 0 if a person's yes let the tree act, and Codex did what the tree asked; each once."""
    if not CODEX.exists():
        print(f"{CODEX} is missing: make setup-codex installs it", file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(talk(Path(place)))
    print("A person approved two calls; the tree ran one, and Codex the other")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
