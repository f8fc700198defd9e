"""Saved programs: what an owner keeps in files, offered as tools, run from outside, and given to children."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    ExecutionError,
    FunctionModel,
    ModelRequest,
    PermissionDenied,
    PolicyConfig,
    SessionStatus,
    SpawnRefused,
    ToolPolicy,
    ValidationError,
    script_call,
)
from sessiontree.contracts.facts.session_facts import CallResolved, ProgramStarted
from sessiontree.contracts.facts.tree_facts import SessionSpawned
from sessiontree.contracts.recorded.programs import MAX_PROGRAM_DEPTH
from tests.behaviour.effect_fakes import TOOLS, effects
from tests.behaviour.fact_fixtures import asked, facts_of, until
from tests.behaviour.tree_fixtures import Opener

EVERYTHING = PolicyConfig(tools=ToolPolicy(allow=("*",)))
COUNT = '''"""Counts the letters of a file.

---
tools: [read]
---
"""


async def main(path: str, times: int = 1) -> dict[str, int]:
    text = await read(path=path)
    return {"letters": len(text.strip()) * times}
'''
TWICE = '''"""Counts twice."""


async def main(path: str) -> int:
    counted = await count(path=path, times=2)
    return counted["letters"]
'''
STEPS = '''"""Appends a line, waits for a person, and appends another one."""


async def main(word: str) -> str:
    await append(text=word)
    await launch(text=word)
    await append(text=word + "!")
    return word
'''


def saved(folder: Path, **programs: str) -> Path:
    """Return a folder with these saved programs."""
    folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def calling(tool: str, **arguments: Any) -> FunctionModel:
    """Return a model that calls one tool and says what came back."""

    def reply(request: ModelRequest) -> Any:
        return script_call(tool, **arguments) if len(request.messages) == 1 else request.messages[-1].text

    return FunctionModel(reply)


@pytest.mark.on_ray
async def test_saved_program_is_a_typed_tool_and_a_function(open_tree: Opener, tmp_path: Path) -> None:
    """A model calls it by name, another program calls it, and the creating program runs both sorts."""
    (open_tree.workspace / "a.txt").write_text("hello\n")
    programs = saved(tmp_path / "programs", count=COUNT, twice=TWICE)
    model = calling("twice", path="a.txt")
    async with open_tree(model, policy=EVERYTHING, programs=programs) as tree:
        assert await tree.main.send("go") == "10"
        keys = [fact.key for fact in await facts_of(tree, CallResolved)]
        assert keys == ["1.0/0/0", "1.0/0", "1.0"]
        assert await tree.main.run_program("count", path="a.txt") == {"letters": 5}
        assert await tree.main.run_program("str(number + 1)", number=4) == "5", "a text stays a text"
        assert await tree.main.run_program("[None]") == [None]
        with pytest.raises(ValidationError, match="times"):
            await tree.main.run_program("count", path="a.txt", times="many")
        with pytest.raises(ExecutionError, match="no tool is named 'coutn'"):
            await tree.main.run_program("coutn", path="a.txt")
        with pytest.raises(ExecutionError, match="ZeroDivisionError"):
            await tree.main.run_program("1 / 0")


async def test_only_sessions_whose_lists_name_a_saved_program_hold_it(
    open_tree: Opener, tmp_path: Path
) -> None:
    """Without a list nobody holds it, and a list that does not name it removes it."""
    programs = saved(tmp_path / "programs", count=COUNT)
    for policy in (PolicyConfig(), PolicyConfig(tools=ToolPolicy(allow=("read", "program")))):
        async with open_tree(calling("count", path="a.txt"), policy=policy, programs=programs) as tree:
            with pytest.raises(PermissionDenied):
                await tree.main.run_program("count", path="a.txt")


async def test_resumed_program_runs_the_text_of_its_journal(open_tree: Opener, tmp_path: Path) -> None:
    """A file that changed meanwhile changes later calls, and none that had begun."""
    programs = saved(tmp_path / "programs", steps=STEPS)
    model = calling("steps", word="old")
    tree = await open_tree(model, policy=EVERYTHING, tools=TOOLS, programs=programs).start()
    tree.main.send("go")
    await until(tree, CallResolved)
    await tree.close()
    saved(programs, steps=STEPS.replace('"!"', '"?"').replace("return word", "return word * 2"))
    async with await open_tree.resume(tree.tree_id, model, tools=TOOLS, programs=programs) as tree:
        (pending,) = await asked(tree)
        await pending.approve()
        (ended,) = await until(tree, CallResolved, where=lambda fact: fact.key == "1.0")
        assert ended.message.text == "old"
        (started,) = await facts_of(tree, ProgramStarted)
        assert started.source is not None
        assert started.source.code.startswith(STEPS)
        assert [text for _, text in effects(open_tree.workspace)] == ["old", "old", "old!"]


async def test_program_that_calls_itself_ends(open_tree: Opener, tmp_path: Path) -> None:
    """The depth is bounded, and the error reaches the outermost program."""
    main = "async def main(level: int) -> int:\n    return await deep(level=level + 1)\n"
    deep = f'"""Calls itself."""\n\n\n{main}'
    programs = saved(tmp_path / "programs", deep=deep)
    async with open_tree(calling("read"), policy=EVERYTHING, programs=programs) as tree:
        with pytest.raises(ExecutionError, match=f"at most {MAX_PROGRAM_DEPTH} deep"):
            await tree.main.run_program("deep", level=0)
        assert len(await facts_of(tree, ProgramStarted)) == MAX_PROGRAM_DEPTH


def refuse(request: ModelRequest) -> Any:
    """Fail the test: no model is to be asked."""
    raise AssertionError(f"a model was asked in {request.session_id}")


async def test_child_runs_a_program_instead_of_a_model(open_tree: Opener, tmp_path: Path) -> None:
    """Its value is the child's result, by handle and in a program; what can't begin never becomes a child."""
    (open_tree.workspace / "a.txt").write_text("hello\n")
    programs = saved(tmp_path / "programs", count=COUNT)
    async with open_tree(FunctionModel(refuse), policy=EVERYTHING, programs=programs) as tree:
        child = await tree.main.spawn("branch", "count", program="count", inputs={"path": "a.txt"})
        assert (await child.result()).output == {"letters": 5}
        typed = await tree.main.spawn("worker", "a text", program="str(number)", inputs={"number": 3})
        assert (await typed.result()).output == "3"
        code = """
one = await spawn("branch", program="count", inputs={"path": "a.txt"})
other = await spawn("worker", program="1 / 0", on_error="return")
[one, other["status"]]
"""
        assert await tree.main.run_program(code) == [{"letters": 5}, "failed"]
        wrong = await tree.main.spawn("branch", "a number", program="'three'", result_type=int)
        assert (await wrong.result()).status is SessionStatus.FAILED
        with pytest.raises(SpawnRefused, match="does not hold 'coutn'"):
            await tree.main.spawn("branch", "count", program="coutn")


async def test_child_with_a_program_survives_its_host(open_tree: Opener, tmp_path: Path) -> None:
    """Resumed, it goes on from its answers, and no call runs twice."""
    programs = saved(tmp_path / "programs", steps=STEPS)
    model = FunctionModel(refuse)
    tree = await open_tree(model, policy=EVERYTHING, tools=TOOLS, programs=programs).start()
    await tree.main.spawn("branch", "go", program="steps", inputs={"word": "once"})
    await until(tree, CallResolved)
    await tree.close()
    async with await open_tree.resume(tree.tree_id, model, tools=TOOLS, programs=programs) as tree:
        (pending,) = await asked(tree)
        await pending.approve()
        result = await asyncio.wait_for(tree.session("main/b1").result(), 60)
        assert result.output == "once"
        done = effects(open_tree.workspace)
        assert [text for _, text in done] == ["once", "once", "once!"]
        assert len({call for call, _ in done}) == len(done), "no call ran twice"
        assert len(await facts_of(tree, SessionSpawned)) == 2
