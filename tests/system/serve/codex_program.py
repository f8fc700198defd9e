"""Codex CLI talks to a tree by its doors: it runs a tool of its own for the tree, and shows the answer."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from sessiontree import FunctionModel, ModelRequest, script_call
from sessiontree.contracts.messages import ToolResultMessage, UserMessage
from tests.system.serve.door_fixtures import open_door

CODEX = Path(__file__).parents[3] / ".ci" / "codex" / "node_modules" / ".bin" / "codex"
EFFECT = "runs.txt"
"""A file in which each run of the call adds a line."""
MAX_S = 120.0


def reply(request: ModelRequest) -> Any:
    """Have Codex run a command, and repeat what it printed."""
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return ["I look.", script_call("exec_command", cmd=f"echo once >> {EFFECT}; echo from-codex")]
    heard = [each.text for each in request.messages if isinstance(each, ToolResultMessage)]
    return f"The tree heard: {heard[-1]}"


async def talk(place: Path) -> None:
    """Start Codex at a door, and check what it said and did."""
    async with open_door(place, FunctionModel(reply)) as door:
        token, home = door.make_token(), place / "home"
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
            *("exec", "--skip-git-repo-check", "-s", "danger-full-access", "ask"),
            env=environment | {"TREE_TOKEN": token},
            cwd=door.workspace,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(codex.communicate(), MAX_S)
        text = said.decode()
        assert codex.returncode == 0, text
        assert "The tree heard:" in text, text
        assert "from-codex" in text, text
        assert (door.workspace / EFFECT).read_text() == "once\n"


def main() -> int:
    """Return 0 if Codex did what the tree asked, once."""
    if not CODEX.exists():
        print(f"{CODEX} is missing: make setup-codex installs it", file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(talk(Path(place)))
    print("Codex ran the tree's call once, and showed the tree's answer")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
