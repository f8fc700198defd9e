"""Putting files into memory: every definition once, with its lines, within bounds, and nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.context import CallSignals
from sessiontree.contracts.errors import ExecutionError, MemoryFailed, PermissionDenied
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.memory import NewRecord, Source
from sessiontree.contracts.tool import check_tool
from sessiontree.schema.compiled import compile_tool
from sessiontree.survey.entries import MAX_FILE_ENTRIES, FileEntries
from sessiontree.survey.entry import SurveyEntry, named_in
from sessiontree.survey.remembering import (
    MAX_SURVEY_RECORDS,
    RememberFiles,
    records_per_file,
    within,
)
from sessiontree.testing.context import call_tool, make_context
from sessiontree.testing.memory import PlainMemory

MakeTree = Callable[[Mapping[str, str | bytes]], Path]
Within = Callable[[Sequence[tuple[str, FileEntries]], int], list[tuple[str, FileEntries]]]


@dataclass(slots=True)
class CountingMemory(PlainMemory):
    """Keeps how many records came at once."""

    sizes: list[int] = field(default_factory=list)

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Count, and keep."""
        self.sizes.append(len(records))
        return await PlainMemory.store(self, records, key=key)


def test_the_tool_is_well_declared() -> None:
    """It is held where something may be stored, and runs one folder after the other."""
    check_tool(RememberFiles())
    compile_tool(RememberFiles())
    assert SessionKind.WORKER not in RememberFiles.kinds
    assert RememberFiles.idempotent
    assert RememberFiles.sequential


async def test_every_definition_has_a_record_with_its_lines(make_tree: MakeTree) -> None:
    """The cited lines hold the name; text from files is foreign; a repeated call stores nothing more."""
    root = make_tree(
        {
            "a/x.py": "def one():\n    pass\n\nclass Two:\n    pass\n",
            "a/b/n.md": "# Three\nfour\n",
            "c.py": "",
        }
    )
    memory = PlainMemory()
    ctx = make_context(root, memory_writer=memory)
    result = await call_tool(RememberFiles(), ctx, folder="a")
    assert result.output == {"files": 2, "records": 5, "dropped": 0}
    assert {(record.type, record.trust) for record in memory.records} == {("free", "foreign")}
    for record in memory.records:
        source = Source.of(record.source or "")
        lines = (root / source.path).read_text().split("\n")[(source.first or 1) - 1 : source.last]
        name = named_in(record.text, source.path)[1]
        assert name == source.path or name in "\n".join(lines)
    before = list(memory.records)
    await call_tool(RememberFiles(), ctx, folder="a")
    assert memory.records == before
    assert (await call_tool(RememberFiles(), ctx, folder=".")).output == {
        "files": 1,
        "records": 1,
        "dropped": 0,
    }


async def test_stores_are_batches_that_memory_takes(make_tree: MakeTree) -> None:
    """Hundreds of records go at a time, also where a file has very many."""
    names = {f"a/{number}.py": "def f():\n    pass\n" * 150 for number in range(9)}
    memory = CountingMemory()
    await call_tool(RememberFiles(), make_context(make_tree(names), memory_writer=memory), folder="a")
    assert sum(memory.sizes) == 9 * 151
    assert memory.sizes == [1_000, 359]
    assert len(memory.records) == 9 * 151


async def test_bounds_are_kept_and_told(make_tree: MakeTree) -> None:
    """Of too many each file's own entry and the longest definitions stay."""
    long = "def long():\n" + "    pass\n" * 9
    root = make_tree({"a/1.py": "def f():\n    pass\n" * 20 + long, "a/2.py": "x = 1\n"})
    memory = PlainMemory()
    result = await call_tool(
        RememberFiles(), make_context(root, memory_writer=memory), folder="a", records_per_file=2
    )
    assert result.output == {"files": 2, "records": 4, "dropped": 19}
    assert [named_in(one.text, "a/1.py")[1] for one in memory.records] == ["a/1.py", "f", "long", "a/2.py"]


async def test_name_that_could_deceive_is_not_cited(make_tree: MakeTree) -> None:
    """A file whose name holds invisible characters has no records; they are counted."""
    root = make_tree({"a/x\u202e.py": "def f():\n    pass\n", "a/y.py": ""})
    memory = PlainMemory()
    result = await call_tool(RememberFiles(), make_context(root, memory_writer=memory), folder="a")
    assert result.output == {"files": 1, "records": 1, "dropped": 2}


async def test_failing_memory_is_told_and_nobody_stores_without_the_right(make_tree: MakeTree) -> None:
    """What memory says reaches the session; without a handle nothing is read at all."""
    root = make_tree({"a/x.py": ""})
    full = PlainMemory(failure=MemoryFailed("there", "the disk is full"))
    with pytest.raises(MemoryFailed, match="the disk is full"):
        await call_tool(RememberFiles(), make_context(root, memory_writer=full), folder="a")
    with pytest.raises(PermissionDenied):
        await call_tool(RememberFiles(), make_context(root), folder="a")


async def test_call_past_its_deadline_stops(make_tree: MakeTree) -> None:
    """Between two files, with an error that says so."""
    root = make_tree({"a/x.py": "", "a/y.py": ""})
    ctx = make_context(root, memory_writer=PlainMemory(), signals=CallSignals(time.monotonic() - 1))
    with pytest.raises(ExecutionError, match="the call was stopped"):
        await call_tool(RememberFiles(), ctx, folder="a")


def test_a_survey_of_any_size_stays_below_its_bound() -> None:
    """However many files there are."""
    for files in (0, 1, 999, 1_000, 150_000, 10**7):
        share = records_per_file(files)
        assert 1 <= share <= MAX_FILE_ENTRIES
        assert share * files <= max(MAX_SURVEY_RECORDS, files)


def keeps_the_best(within: Within) -> None:
    """No entry is lost uncounted, the bound holds, order stays, own entries go last."""

    @settings(max_examples=500, report_multiple_bugs=False)
    @given(st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=6), st.integers(0, 30))
    def holds(files: list[list[int]], most: int) -> None:
        found = [
            (
                str(number),
                FileEntries(
                    (
                        SurveyEntry("file", str(number), 1, 99, ""),
                        *(
                            SurveyEntry("function", f"{at}", 1, length, "")
                            for at, length in enumerate(lengths)
                        ),
                    ),
                    dropped=number,
                ),
            )
            for number, lengths in enumerate(files)
        ]
        kept = within(found, most)
        assert [path for path, _ in kept] == [path for path, _ in found]
        assert sum(len(file.entries) for _, file in kept) == min(most, sum(len(f.entries) for _, f in found))
        for (_, before), (_, after) in zip(found, kept, strict=True):
            assert after.dropped - before.dropped == len(before.entries) - len(after.entries)
            assert [one for one in before.entries if one in after.entries] == list(after.entries)
        left_out = [
            one
            for (_, b), (_, a) in zip(found, kept, strict=True)
            for one in b.entries
            if one not in a.entries
        ]
        kept_functions = [one.lines for _, file in kept for one in file.entries if one.kind == "function"]
        assert not (kept_functions and any(one.kind == "file" for one in left_out))
        assert max((one.lines for one in left_out if one.kind == "function"), default=0) <= min(
            kept_functions, default=9
        )

    holds()


@pytest.mark.slow
def test_too_many_entries_leave_the_best() -> None:
    """The rule of the bound holds for any files."""
    keeps_the_best(within)


def test_bound_property_notices_a_first_come_choice() -> None:
    """Planted bug: the first entries stay, not the longest."""

    def first(found: Sequence[tuple[str, FileEntries]], most: int) -> list[tuple[str, FileEntries]]:
        kept = []
        for path, file in found:
            entries = file.entries[:most]
            most -= len(entries)
            kept.append((path, FileEntries(entries, file.dropped + len(file.entries) - len(entries))))
        return kept

    with pytest.raises(AssertionError):
        keeps_the_best(first)
