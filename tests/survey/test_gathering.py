"""Sharing work out: one child per folder or group, page by page, and nothing lost when one fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.schema.result import compile_result
from sessiontree.survey import gathering
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.gathering import NOTHING_YET
from sessiontree.survey.joining import findings_of, merge
from sessiontree.survey.source import analyse
from sessiontree.survey.words import FINDINGS_SCHEMA, FolderOrder, GroupOrder, SurveyOrder
from tests.survey.talks import Talk

Merge = Callable[[Iterable[GroupFindings]], GroupFindings]


def findings(path: str) -> GroupFindings:
    """Return what one small file holds."""
    text = f"# TODO: {path}\ndef f():\n    pass\n".encode()
    return findings_of([analyse(path, text, len(text))])


def folder_page(*folders: str, after: str | None = None) -> dict[str, Any]:
    """Return a page of the plan of folders with two files each."""
    lines = [{"folder": folder, "files": 2, "groups": 1} for folder in folders]
    return {
        "folders": lines,
        "next": after,
        "files": 8,
        "ignored": 3,
        "problems": [{"path": "pipe", "text": "no regular file"}],
        "problems_dropped": 0,
        "roots": ["src"],
        "window": 64,
    }


def accept(talk: Talk, *sessions: str) -> None:
    """Let every spawn of a reply succeed."""
    for session in sessions:
        talk.answer({"status": "accepted", "session_id": session, "kind": "branch"})


def remember(talk: Talk, times: int) -> None:
    """Let folders be put into memory."""
    for _ in range(times):
        talk.answer({"files": 2, "records": 3, "dropped": 1})


def main_talk() -> Talk:
    """Return Main's conversation after its order."""
    return Talk(SessionKind.MAIN, SurveyOrder(name="place", out="SURVEY.md"))


def test_main_spawns_a_branch_for_every_folder_of_every_page() -> None:
    """One spawn per folder in one reply; the next page is asked for when all of them have answered."""
    talk = main_talk()
    assert talk.only_call("survey_plan") == {"leave_out": ["SURVEY.md"]}
    talk.answer(folder_page("a", "b", after="b"))
    *spawns, first, second = talk.calls()
    assert [call.name for call in spawns] == ["sessions_spawn", "sessions_spawn"]
    assert first.name == second.name == "remember_files"
    assert [one.arguments["folder"] for one in (first, second)] == ["a", "b"]
    assert first.arguments["leave_out"] == ["SURVEY.md"]
    assert [call.arguments["kind"] for call in spawns] == ["branch", "branch"]
    tasks = [FolderOrder.model_validate_json(str(call.arguments["task"])) for call in spawns]
    assert [task.folder for task in tasks] == ["a", "b"]
    assert {(task.roots, task.window) for task in tasks} == {(("src",), 64)}
    assert len({call.arguments["label"] for call in spawns}) == 2
    asked: Any = spawns[0].arguments["result_schema"]
    assert compile_result(asked).digest == compile_result(FINDINGS_SCHEMA).digest
    accept(talk, "main/b1", "main/b2")
    remember(talk, 2)
    assert talk.reply().text == "Waiting for the branches."
    talk.hear_child("main/b2", output=findings("b/1.py").model_dump(mode="json"))
    assert talk.reply().text == "Waiting for the branches."
    talk.hear_child("main/b1", output=findings("a/1.py").model_dump(mode="json"))
    assert talk.only_call("survey_plan") == {"after": "b", "leave_out": ["SURVEY.md"]}
    talk.answer(folder_page("c"))
    spawn, _ = talk.calls()
    assert str(spawn.arguments["label"]).startswith("3 c")
    accept(talk, "main/b3")
    remember(talk, 1)
    talk.reply()
    talk.hear_child("main/b3", output=findings("c/1.py").model_dump(mode="json"))
    assert talk.only_call("find_survey") == {"path": "SURVEY.md"}


def test_child_that_fails_becomes_a_problem_and_its_files_still_count() -> None:
    """A failed, expired or never started Branch costs its own files alone, each in one line."""
    talk = main_talk()
    talk.reply()
    talk.answer(folder_page("a", "b", "c"))
    talk.reply()
    accept(talk, "main/b1", "main/b2")
    talk.refuse("error", "no branch was started: max_total is 3")
    remember(talk, 2)
    talk.refuse("error", "memory: the disk is full")
    talk.reply()
    talk.hear_child("main/b1", "expired", summary="its time was over")
    talk.hear_child("main/b2", output=findings("b/1.py").model_dump(mode="json"))
    talk.reply()
    talk.answer({"path": "SURVEY.md", "exists": False, "is_report": False})
    report = talk.only_call("write")["content"]
    assert "- Files: 5 in 3 top folders" in report
    assert "- `pipe`: `no regular file`" in report
    assert "- `c`: `its files are not all in memory: memory: the disk is full`" in report
    assert "- `a`: `2 files not surveyed: session main/b1 expired: its time was over`" in report
    assert (
        "- `c`: `2 files not surveyed: no session was started: no branch was started: max_total is 3`"
        in report
    )


def test_branch_hands_up_all_groups_as_findings_that_fit() -> None:
    """A Branch joins its Workers' findings; while it waits, what it says fits the schema it owes too."""
    schema = compile_result(FINDINGS_SCHEMA)
    talk = Talk(SessionKind.BRANCH, FolderOrder(folder="a", leave_out=("a/x",), roots=("src",), window=64))
    assert talk.only_call("survey_plan") == {"folder": "a", "leave_out": ["a/x"]}
    talk.answer({"groups": [["a/1.py"], ["a/2.py"]], "next": None})
    spawns = talk.calls()
    tasks = [GroupOrder.model_validate_json(str(call.arguments["task"])) for call in spawns]
    assert [task.paths for task in tasks] == [("a/1.py",), ("a/2.py",)]
    assert {(task.roots, task.window) for task in tasks} == {(("src",), 64)}
    assert {call.arguments["kind"] for call in spawns} == {"worker"}
    accept(talk, "main/b1/w1", "main/b1/w2")
    assert talk.reply().text == NOTHING_YET
    schema.validate_text(NOTHING_YET)
    talk.hear_child("main/b1/w1", output=findings("a/1.py").model_dump(mode="json"))
    assert talk.reply().text == NOTHING_YET
    talk.hear_child("main/b1/w2", "failed", summary="gone")
    said = talk.reply().text
    schema.validate_text(said)
    total = GroupFindings.model_validate_json(said)
    assert (total.files, total.unread) == (2, 1)
    assert [problem.path for problem in total.problems] == ["a/2.py"]


def test_worker_surveys_its_group_and_says_what_the_tool_said() -> None:
    """A Worker calls one tool once and passes its output on; where the tool fails it fails."""
    talk = Talk(SessionKind.WORKER, GroupOrder(paths=("a/1.py", "a/2.py"), roots=("src",), window=32))
    assert talk.only_call("survey_files") == {
        "paths": ["a/1.py", "a/2.py"],
        "roots": ["src"],
        "window": 32,
    }
    output = findings("a/1.py").model_dump(mode="json")
    talk.answer(output)
    assert json.loads(talk.reply().text) == output
    talk = Talk(SessionKind.WORKER, GroupOrder(paths=("a/1.py",)))
    talk.reply()
    talk.refuse("error", "timed out after 5 s")
    with pytest.raises(ModelError, match="survey_files: timed out after 5 s"):
        talk.reply()


def test_session_without_a_plan_fails() -> None:
    """Where the files can't be listed nothing can be shared out."""
    talk = main_talk()
    talk.reply()
    talk.refuse("error", "can't list '.': permission denied")
    with pytest.raises(ModelError, match="there is no plan: can't list"):
        talk.reply()


def merges_like_one_after_another(merged: Merge) -> None:
    """Joining many findings at once is joining them one after another."""

    @settings(max_examples=30)
    @given(st.lists(st.integers(0, 50), max_size=9, unique=True))
    def holds(numbers: list[int]) -> None:
        parts = [findings(f"folder{number % 3}/{number}.py") for number in numbers]
        assert merged(parts) == reduce(merge, parts, GroupFindings())

    holds()


def test_merged_equals_one_after_another() -> None:
    """No part is lost or counted twice, whatever their number."""
    merges_like_one_after_another(gathering.merged)


def test_merge_property_notices_a_lost_part() -> None:
    """A merge of pairs that forgets the odd one out is found."""

    def forgetful(parts: Iterable[GroupFindings]) -> GroupFindings:
        level = list(parts)
        while len(level) > 1:
            level = [merge(level[index], level[index + 1]) for index in range(0, len(level) - 1, 2)]
        return level[0] if level else GroupFindings()

    with pytest.raises(AssertionError):
        merges_like_one_after_another(forgetful)
