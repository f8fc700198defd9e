"""Tools: Workers count files whatever they are; memory gets every definition once, with its lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import MemoryFailed, PermissionDenied
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tools.tool import check_tool
from sessiontree.contracts.values.memory import NewRecord, Source
from sessiontree.schema.compiled import compile_tool
from sessiontree.survey.answer import find_answer, search_files
from sessiontree.survey.earlier import find_survey, remove_survey
from sessiontree.survey.source.citations import check_citations
from sessiontree.survey.source.records import parse_entry
from sessiontree.survey.tools import remember_files, survey_files, survey_plan
from sessiontree.testing.context import PlainMemory, call_tool, make_context

MakeTree = Callable[[Mapping[str, str | bytes]], object]


@dataclass(slots=True)
class CountingMemory(PlainMemory):
    """Keeps how many records came at once."""

    sizes: list[int] = field(default_factory=list)

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Count, and keep."""
        self.sizes.append(len(records))
        return await PlainMemory.store(self, records, key=key)


@pytest.mark.parametrize(
    "tool",
    [
        survey_plan,
        survey_files,
        remember_files,
        find_survey,
        remove_survey,
        find_answer,
        search_files,
        check_citations,
    ],
)
def test_tools_are_well_declared(tool: Any) -> None:
    """Workers hold the one tool that reads files, and nothing that stores or removes."""
    check_tool(tool)
    compile_tool(tool)
    assert (SessionKind.WORKER in tool.kinds) == (tool.name == "survey_files")


async def test_survey_files_counts_what_can_be_read(make_tree: MakeTree, tmp_path: Path) -> None:
    """A file that vanished, a directory and bytes that are not text cost themselves alone."""
    make_tree({"a.py": "def f():\n    pass\n", "b.py": b"\0\1", "c/d.md": "# x\n"})
    result = await call_tool(survey_files, make_context(tmp_path), paths=["a.py", "b.py", "gone.py", "c"])
    found: Any = result.output
    assert (found["totals"]["files"], found["totals"]["functions"], found["unread"]) == (4, 1, 2)
    assert [one["path"] for one in found["problems"]] == ["b.py", "c", "gone.py"]


async def test_remember_files_keeps_every_definition_with_its_lines(
    make_tree: MakeTree, tmp_path: Path
) -> None:
    """The cited lines hold the name; code comes apart from the rest; a repeated call stores nothing more."""
    make_tree(
        {
            "a/x.py": '"""What it is."""\ndef one():\n    pass\n\nclass Two:\n    pass\n',
            "a/b/n.md": "# Three\nfour\n",
            "a/test_x.py": "def test_one():\n    pass\n",
            "c.py": "",
        }
    )
    memory = PlainMemory()
    ctx = make_context(tmp_path, memory_writer=memory)
    result = await call_tool(remember_files, ctx, folder="a")
    assert result.output == {"files": 3, "records": 5, "dropped": 0}
    assert {record.trust for record in memory.records} == {"foreign"}
    names = {}
    for record in memory.records:
        source = Source.of(record.source or "")
        lines = (tmp_path / source.path).read_text().split("\n")[(source.first or 1) - 1 : source.last]
        parts = parse_entry(record.text, record.source or "")
        assert parts is not None
        assert parts.kind == "file" or parts.name in "\n".join(lines)
        names[parts.name] = record.type
    assert names == {"one": "fact", "Two": "fact", "a/x.py": "free", "Three": "free", "test_one": "free"}
    before = list(memory.records)
    await call_tool(remember_files, ctx, folder="a")
    assert memory.records == before
    assert (await call_tool(remember_files, ctx, folder=".")).output == {
        "files": 0,
        "records": 0,
        "dropped": 0,
    }


async def test_remember_files_stores_batches_that_memory_takes(make_tree: MakeTree, tmp_path: Path) -> None:
    """At most a thousand at once; of too many the longest stay, and the others are counted."""
    long = "def long():\n" + "    pass\n" * 9
    make_tree({f"a/{number}.py": "def f():\n    pass\n" * 120 + long for number in range(12)})
    memory = CountingMemory()
    ctx = make_context(tmp_path, memory_writer=memory)
    result = await call_tool(remember_files, ctx, folder="a")
    assert result.output == {"files": 12, "records": 1_200, "dropped": 12 * 21}
    assert memory.sizes == [1_000, 200]
    few = PlainMemory()
    await call_tool(remember_files, make_context(tmp_path, memory_writer=few), folder="a", records_per_file=1)
    assert {record.text.partition(" in ")[0] for record in few.records} == {"function long"}


async def test_remember_files_cites_no_name_that_could_deceive(make_tree: MakeTree, tmp_path: Path) -> None:
    """A file whose name holds invisible characters has no records and is counted."""
    make_tree({"a/x\u202e.py": "def f():\n    pass\n", "a/y.py": "def g():\n    pass\n"})
    memory = PlainMemory()
    result = await call_tool(remember_files, make_context(tmp_path, memory_writer=memory), folder="a")
    assert result.output == {"files": 1, "records": 1, "dropped": 1}


async def test_remember_files_fails_with_memory(make_tree: MakeTree, tmp_path: Path) -> None:
    """What memory says reaches the session; without a handle nothing is read at all."""
    make_tree({"a/x.py": "def f():\n    pass\n"})
    full = PlainMemory(failure=MemoryFailed("there", "the disk is full"))
    with pytest.raises(MemoryFailed, match="the disk is full"):
        await call_tool(remember_files, make_context(tmp_path, memory_writer=full), folder="a")
    with pytest.raises(PermissionDenied):
        await call_tool(remember_files, make_context(tmp_path), folder="a")
