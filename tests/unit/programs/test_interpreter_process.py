"""The interpreters' process: what it can't reach, and how it ends."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.programs.found import FoundInterpreter, build_confined_command, find_interpreter
from sessiontree.programs.interpreter_process import InterpreterEndedError, InterpreterProcess
from sessiontree.programs.orders import order_opening
from sessiontree.programs.signatures import build_face
from sessiontree.sandbox.commands.environment import get_running_interpreter
from sessiontree.sandbox.process_tree import find_descendants


@pytest.fixture
async def process() -> AsyncIterator[InterpreterProcess]:
    """A process that takes orders."""
    made = InterpreterProcess()
    await made.start()
    yield made
    made.end()
    await made.ended()


def opening(code: str) -> dict[str, object]:
    """Return the order that opens a program without tools."""
    return order_opening(code, build_face({}, ""), clock_ms=86_400_000, seed="s")


def confinement(pid: int) -> tuple[list[str], str, set[str]]:
    """Return a process's open files, its seccomp mode, and the names of its variables."""
    place = Path("/proc", str(pid))
    files = [str(each.readlink()) for each in Path(place, "fd").iterdir()]
    filtered = next(line for line in Path(place, "status").read_text().splitlines() if "Seccomp:" in line)
    variables = Path(place, "environ").read_text().split("\0")
    return files, filtered.split()[1], {each.partition("=")[0] for each in variables}


async def test_its_processes_hold_nothing_and_are_filtered(process: InterpreterProcess) -> None:
    """No file of anybody, no environment of ours; every process below it is filtered, too."""
    assert (await process.ask("one", opening("1 + 1")))["value"] == 2
    own = process._process.pid
    assert own is not None
    pids = [own, *find_descendants(own)]
    assert len(pids) > 1
    for pid in pids:
        files, seccomp, names = confinement(pid)
        assert seccomp == "2"
        harmless = ("/dev/", "/memfd:")
        assert not [path for path in files if path.startswith("/") and not path.startswith(harmless)]
        assert names <= {"", "LC_CTYPE", "SESSIONTREE_JAIL"}


async def test_clock_and_chance_are_those_of_the_order(process: InterpreterProcess) -> None:
    """Twice the same, whenever it runs."""
    code = (
        "import datetime, random, time\n[datetime.datetime.now().isoformat(), time.time(), random.random()]"
    )
    first = await process.ask("one", opening(code))
    again = await process.ask("two", opening(code))
    assert first["value"] == again["value"]
    assert first["value"][:2] == ["1970-01-02T00:00:00", 86_400.0]


LEAVES = """
import json, math, random, asyncio, collections
def len(value): return "left behind"
sum = max = sorted = None
random.seed(5)
left = [random.random() for _ in range(3)]
for module in (json, math, asyncio, collections):
    try:
        module.dumps = module.sqrt = module.gather = lambda *given: "left behind"
    except Exception as error:
        left.append(str(error))
left
"""
LOOKS = """
import json, math, random, asyncio, collections
found = []
try:
    found.append(left)
except NameError:
    found.append("nothing")
[found, len("ab"), sum([1, 2]), json.dumps({"a": 1}), math.sqrt(4), sorted([2, 1]), random.random()]
"""


async def test_reused_interpreter_knows_nothing_of_the_program_before(process: InterpreterProcess) -> None:
    """Whatever that one rebound or seeded, the next one finds what the first one found."""
    unchecked = {"is_checked": True}
    first = await process.ask("one", opening(LOOKS) | unchecked)
    assert first["value"][:6] == [["nothing"], 2, 3, '{"a": 1}', 2.0, [1, 2]]
    own = process._process.pid
    assert own is not None
    for name in ("two", "three"):
        before = set(find_descendants(own))
        assert "failed" not in await process.ask(name, opening(LEAVES) | unchecked)
        again = await process.ask(f"{name} again", opening(LOOKS) | unchecked)
        assert again["value"] == first["value"]
        assert before <= set(find_descendants(own)), "its interpreter was used again"


async def test_its_end_is_said_to_all_that_wait(process: InterpreterProcess) -> None:
    """Killed from outside, it fails the orders that are open, and takes no more."""
    own = process._process.pid
    assert own is not None
    os.kill(own, 9)
    await process.ended()
    with pytest.raises(InterpreterEndedError):
        await process.ask("one", opening("1"))
    assert not process.is_running


def test_missing_part_is_named() -> None:
    """With what to install."""
    found = FoundInterpreter("", "", "the library pydantic-monty is missing; install sessiontree[programs]")
    with pytest.raises(ConfinementUnavailable, match=r"install sessiontree\[programs\]"):
        build_confined_command(found)


def test_interpreter_of_another_environment_s_packages_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment may use packages of another one; its own directory of programs has no interpreter."""
    elsewhere = replace(get_running_interpreter(), programs="/nonexistent")
    monkeypatch.setattr("sessiontree.programs.found.get_running_interpreter", lambda: elsewhere)
    found = find_interpreter.__wrapped__()
    assert found.is_ready
    assert os.access(found.binary, os.X_OK)
