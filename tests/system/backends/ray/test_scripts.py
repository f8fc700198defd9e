"""What a script defines, and what is next to it, reaches the processes of its tree on Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 240.0

BESIDE = '''
"""A module beside the script."""

from sessiontree import PermissionTier, SessionKind, tool


class Missing(Exception):
    """Something is not there."""


@tool(tier=PermissionTier.READ_ONLY, kinds=SessionKind)
def look_up(name: str) -> str:
    """Look something up.

    Args:
        name: What.
    """
    raise Missing(f"no {name} here")


def approves(request):
    """Answer for whatever climbs to a Branch."""
    return "approve" if request.arguments["text"] == "fine" else "escalate"
'''

SCRIPT = '''
import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel
from typing_extensions import TypedDict

import beside
from sessiontree import (
    CallbackChannel, ExecutionError, FunctionModel, PermissionTier, SessionKind, SessionTree, Tool,
    ToolResult, script_call, tool,
)

PLACE = Path(sys.argv[1])
PREFIX = "so: "


class Size(TypedDict):
    lines: int


@dataclass
class Place:
    name: str
    size: Size


class Report(BaseModel):
    places: list[Place]


class Amount(BaseModel):
    count: int
    unit: str = "line"


class Broken(Exception):
    """Something is broken."""


def spelt(amount: Amount) -> str:
    return PREFIX + amount.unit * amount.count


class Measure(Tool[Amount]):
    name = "measure"
    description = "Measure something."
    Params: ClassVar = Amount
    tier = PermissionTier.READ_ONLY
    kinds = frozenset(SessionKind)

    async def execute(self, params, ctx):
        if params.count > 9:
            raise Broken(f"{params.count} is too much")
        return ToolResult([os.getpid(), spelt(params)])


@tool(tier=PermissionTier.ELEVATED)
def launch(text: str) -> str:
    """Launch something.

    Args:
        text: What.
    """
    return f"{PREFIX}launched {text}"


asked, heard = [], []


async def approve(request):
    asked.append([request.session_id, request.arguments["text"], os.getpid()])
    return request.arguments["text"] == "good"


WORDS = {
    "size": '{"lines": 3}',
    "place": '{"name": "north", "size": {"lines": 3}}',
    "report": '{"places": [{"name": "north", "size": {"lines": 3}}]}',
}


def reply(request):
    """Below a Branch: launch what the task says; Workers look for something; all others know their word."""
    task = request.messages[0].text
    if task in WORDS:
        return WORDS[task]
    if request.session_id == "main":
        return script_call("message", text="psst") if request.turn == 1 else "told"
    if request.turn > 1:
        return request.messages[-1].text
    if request.kind is SessionKind.WORKER:
        return script_call("look_up", name=task)
    if request.session_id.count("/") == 1:
        return script_call("sessions_spawn", kind="branch", task=task)
    return script_call("launch", text=task)


async def main():
    told = {}
    tree = SessionTree(
        PLACE / "workspace", model=FunctionModel(reply), tools=[Measure(), launch, beside.look_up],
        channel=CallbackChannel(approve, heard.append), state_dir=PLACE / "state",
    )
    async with tree:
        told["reply"] = await tree.main.send("go")
        wanted = {"size": Size, "place": Place, "report": Report}
        size, place, report = [
            (await (await tree.main.spawn("worker", task, result_type=kind)).result()).output
            for task, kind in wanted.items()
        ]
        told["typed"] = size == {"lines": 3}, place == Place("north", size), report == Report(places=[place])
        told["measured"] = (await tree.main.call("measure", {"count": 2, "unit": "ab"})).output
        for name, given in (("measure", {"count": 10}), ("look_up", {"name": "key"})):
            try:
                await tree.main.call(name, given)
            except ExecutionError as error:
                told[name] = str(error)
        told["worker"] = (await (await tree.main.spawn("worker", "door")).result()).summary
        for task in ("fine", "good", "bad"):
            branch = await tree.main.spawn("branch", task, approver="beside:approves")
            await branch.result()
            told[task] = tree.session(f"{branch.session_id}/b1").history()[-1].text
    print(json.dumps({**told, "asked": asked, "heard": heard, "pid": os.getpid()}))


asyncio.run(main())
'''

STAYS = """
import asyncio, json, os, sys, threading
from pathlib import Path
from pydantic import BaseModel
from sessiontree import ConfigError, PermissionTier, ScriptedModel, SessionTree, Tool, ToolResult

class Nothing(BaseModel):
    pass

class Guarded(Tool[Nothing]):
    name, description, Params, tier = "guarded", "Do it.", Nothing, PermissionTier.READ_ONLY

    def __init__(self):
        self.guard = threading.Lock()

    async def execute(self, params, ctx):
        with self.guard:
            return ToolResult("guarded")

async def main():
    place = Path(sys.argv[1])
    options = {"model": ScriptedModel(["done"]), "tools": [Guarded()], "state_dir": place / "state"}
    tree = SessionTree(place / "workspace", **options)
    try:
        await tree.start()
    except ConfigError as error:
        told = {"refused": str(error)}
    told["threads"] = [thread.name for thread in threading.enumerate()]
    told["children"] = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    told["state"] = (place / "state").exists()
    async with SessionTree(place / "workspace", backend="local", **options) as tree:
        told["here"] = (await tree.main.call("guarded")).text
    print(json.dumps(told))

asyncio.run(main())
"""


def run(script: Path, place: Path) -> dict[str, Any]:
    """Run a script from elsewhere, and return the JSON it printed; it must end well, without complaints."""
    (place / "workspace").mkdir()
    done = subprocess.run(
        [sys.executable, str(script), str(place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd="/",
        env={**os.environ, "PYTHONASYNCIODEBUG": ""},
    )
    # What the script's tools raise is logged, in two lines each; nothing else is said.
    said = [
        line for line in done.stderr.splitlines() if not line.startswith(("tool '", f"  {script.parent}"))
    ]
    assert (done.returncode, said) == (0, [])
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
def test_script_run_from_elsewhere_brings_all_it_defines(tmp_path: Path) -> None:
    """``python script.py``: classes of ``__main__``, a module next to it, approvers and errors of both."""
    folder = tmp_path / "somewhere"
    folder.mkdir()
    (folder / "beside.py").write_text(BESIDE)
    (folder / "script.py").write_text(SCRIPT)
    told = run(folder / "script.py", tmp_path)
    assert told["reply"] == "told"
    assert told["heard"] == ["psst"]
    assert told["typed"] == [True, True, True]
    assert told["measured"][1] == "so: abab"
    assert told["measured"][0] != told["pid"]
    assert "Broken: 10 is too much" in told["measure"]
    assert "Missing: no key here" in told["look_up"]
    assert "Missing: no door here" in told["worker"]
    assert [told["fine"], told["good"]] == ["so: launched fine", "so: launched good"]
    assert "launch was denied by person" in told["bad"]
    here = told["pid"]
    assert told["asked"] == [["main/b2/b1", "good", here], ["main/b3/b1", "bad", here]]


@pytest.mark.slow
def test_tool_that_cannot_travel_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """The error says what to do; no thread, no process and no directory is there; in this process it runs."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(STAYS))
    told = run(script, tmp_path)
    assert told.pop("refused") == (
        "can't pickle tool 'guarded' for the processes of the tree: TypeError: cannot pickle '_thread.lock' "
        "object; keep locks, connections and loops out of it, or use backend='local'"
    )
    assert told == {"threads": ["MainThread"], "children": [], "state": False, "here": "guarded"}
