"""A program in the environment of its own workspace, whose model goes for what our processes import."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import mine  # type: ignore[import-not-found]

from sessiontree import ScriptedModel, SessionTree, ToolCall, script_call
from sessiontree.contracts.values.messages import ToolResultMessage

ROOT = Path(sys.argv[1])
PACKAGES = next((ROOT / ".venv/lib").glob("python*/site-packages")).relative_to(ROOT)
PLACES = {
    "a line of a .pth file": f"{PACKAGES}/x.pth",
    "a package": f"{PACKAGES}/pydantic.py",
    "the environment's settings": ".venv/pyvenv.cfg",
    "its interpreter": ".venv/bin/python3.99",
    "the script": "program.py",
    "a loaded module": "mine.py",
    "in place of an installed module": "pydantic.py",
    "in place of one of Python's": "json.py",
    "what sites look for": "sitecustomize.py",
}
COMMANDS = {
    "a line of a .pth file": f"echo 'import os' > {PACKAGES}/y.pth",
    "the environment's settings": "echo >> .venv/pyvenv.cfg",
    "the script": "echo '# more' >> program.py",
    "a loaded module": "echo '# more' >> mine.py",
    "the environment": "mv .venv venv",
}


async def main() -> None:
    """Let the model try all of it, and print what came of it."""
    assert mine
    calls: list[str | ToolCall] = []
    calls += [script_call("write", path=path, content="raise SystemExit\n") for path in PLACES.values()]
    calls += [script_call("exec", command=command) for command in COMMANDS.values()]
    calls.append(script_call("write", path="fresh.py", content=""))
    model = ScriptedModel([calls, "done"])
    tree = SessionTree(ROOT, model=model, channel=None, state_dir=sys.argv[2], backend=sys.argv[3])  # type: ignore[arg-type]
    async with tree:
        await tree.main.send("go")
        texts = [each.text for each in tree.main.history() if isinstance(each, ToolResultMessage)]
    names = [f"write {name}" for name in PLACES] + [f"exec {name}" for name in COMMANDS] + ["fresh"]
    print(json.dumps(dict(zip(names, texts, strict=True))))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    asyncio.run(main())
