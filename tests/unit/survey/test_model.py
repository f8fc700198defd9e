"""Model: work is shared out and nothing is lost; the report replaces nothing without an approval."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import pytest

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.survey.earlier import MARKER
from sessiontree.survey.model import (
    FINDINGS_SCHEMA,
    NOTHING_YET,
    FolderOrder,
    SurveyOrder,
    SurveyResult,
    parse_result,
)
from sessiontree.survey.source.census import Findings
from sessiontree.survey.source.source import collect_findings, read_source
from tests.unit.survey.model_fakes import Talk

Words: TypeAlias = dict[str, Any]

ABSENT: Words = {"exists": False, "is_report": False}
EARLIER: Words = {"exists": True, "is_report": True}
OTHER: Words = {"exists": True, "is_report": False}
REMOVED: Words = {"removed": "SURVEY.md", "bytes": 9}
WRITTEN: Words = {"path": "SURVEY.md", "bytes": 9, "created": True}
REMEMBERED: Words = {"files": 2, "records": 5, "dropped": 1}
KNOWN: list[Any] = [{"tree": "t1", "records": 5}, {"tree": "t2", "records": 7}]
EMPTY_PLAN: Words = {
    "folders": {},
    "next": None,
    "files": 0,
    "ignored": 0,
    "problems": [],
    "problems_dropped": 0,
}


@pytest.fixture
def talk() -> Talk:
    """Main, with everything gathered, looking at what is in the report's place."""
    talk = Talk(SessionKind.MAIN, SurveyOrder(name="place", out="SURVEY.md"))
    talk.reply()
    talk.answer(EMPTY_PLAN)
    assert talk.only_call("find_survey") == {"path": "SURVEY.md"}
    return talk


def survey_result(talk: Talk) -> SurveyResult:
    """Ask the model for what must be its final message."""
    word = parse_result(talk.reply().text)
    assert word is not None
    return word


def writes(talk: Talk) -> None:
    """The report itself is written, whole."""
    arguments = talk.only_call("write")
    assert arguments["path"] == "SURVEY.md"
    assert arguments["content"].startswith(f"{MARKER}\n")


def test_delivery_free_place_is_written_at_once(talk: Talk) -> None:
    """Nothing there: nothing is removed, nobody is asked."""
    talk.answer(ABSENT)
    writes(talk)
    talk.answer(WRITTEN)
    assert (survey_result(talk).survey, talk.turn) == ("written", 4)


def test_delivery_earlier_report_is_removed_first(talk: Talk) -> None:
    """An earlier report takes one removal, then the new one is written."""
    talk.answer(EARLIER)
    assert talk.only_call("remove_survey") == {"path": "SURVEY.md"}
    talk.answer(REMOVED)
    writes(talk)
    talk.answer(WRITTEN)
    word = survey_result(talk)
    assert (word.survey, word.path, word.report) == ("written", "SURVEY.md", "")


def test_delivery_denied_removal_keeps_the_place_and_hands_the_report_over(talk: Talk) -> None:
    """After a no the report travels in the final message, with the reason."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("error", "remove_survey was denied by person", tier="Elevated")
    word = survey_result(talk)
    assert (word.survey, word.reason) == ("kept", "remove_survey was denied by person")
    assert word.report.startswith(f"{MARKER}\n")


def test_delivery_anything_else_in_the_place_is_left_alone(talk: Talk) -> None:
    """What is no report is never removed, and no approval is asked for it."""
    talk.answer(OTHER)
    word = survey_result(talk)
    assert word.survey == "kept"
    assert "not the report of a survey" in word.reason


def test_delivery_removal_that_fails_is_not_asked_again(talk: Talk) -> None:
    """A report the system will not remove stays, after one approval."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("error", "can't remove 'SURVEY.md': permission denied")
    talk.only_call("find_survey")
    talk.answer(EARLIER)
    word = survey_result(talk)
    assert (word.survey, word.reason) == ("kept", "can't remove 'SURVEY.md': permission denied")


def test_delivery_report_that_vanished_meanwhile_needs_no_removal(talk: Talk) -> None:
    """Somebody else removed it: the place is free."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("error", "can't remove 'SURVEY.md': it does not exist")
    talk.only_call("find_survey")
    talk.answer(ABSENT)
    writes(talk)


@pytest.mark.parametrize("found", [ABSENT, EARLIER])
def test_delivery_removal_that_may_have_run_is_looked_after(talk: Talk, found: Words) -> None:
    """After a crash in the middle of the removal Main looks, and removes only what is still there."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("unknown", "the process running this call was lost", may_have_run=True)
    talk.only_call("find_survey")
    talk.answer(found)
    if found["exists"]:
        talk.only_call("remove_survey")
    else:
        writes(talk)


def test_delivery_removal_in_doubt_again_and_again_ends(talk: Talk) -> None:
    """Three times without knowing are enough."""
    for _ in range(3):
        talk.answer(EARLIER)
        talk.only_call("remove_survey")
        talk.refuse("unknown", "lost", may_have_run=True)
        talk.only_call("find_survey")
    talk.answer(EARLIER)
    assert survey_result(talk).survey == "kept"


@pytest.mark.parametrize(("found", "end"), [(EARLIER, "written"), (OTHER, "kept")])
def test_delivery_write_that_may_have_run_is_looked_after(talk: Talk, found: Words, end: str) -> None:
    """A report that is there after a crash in the middle of writing is the new one, whole."""
    talk.answer(ABSENT)
    talk.reply()
    talk.refuse("unknown", "lost", may_have_run=True)
    talk.only_call("find_survey")
    talk.answer(found)
    assert survey_result(talk).survey == end


def test_delivery_write_that_did_not_run_is_made_again(talk: Talk) -> None:
    """Nothing there after a crash in the middle of writing: it is written."""
    talk.answer(ABSENT)
    talk.reply()
    talk.refuse("unknown", "lost", may_have_run=True)
    talk.reply()
    talk.answer(ABSENT)
    writes(talk)


def test_delivery_write_that_fails_hands_the_report_over(talk: Talk) -> None:
    """A workspace that takes no file loses no report."""
    talk.answer(ABSENT)
    talk.reply()
    talk.refuse("error", "can't write 'SURVEY.md': no space left")
    word = survey_result(talk)
    assert (word.survey, word.reason) == ("failed", "can't write 'SURVEY.md': no space left")
    assert word.report


def test_delivery_pending_approval_is_waited_for(talk: Talk) -> None:
    """Where the tree does not let the turn wait, Main rests until the runtime says that it is settled."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("pending", "waiting", message="waiting for an approval", requestId="r")
    assert talk.reply().text == "Waiting for an answer about SURVEY.md."
    talk.hear("The pending call is settled (ok)", "notice")
    talk.only_call("find_survey")
    talk.answer(ABSENT)
    writes(talk)


@pytest.fixture
def remembering() -> Talk:
    """Main, with one folder gathered and put into memory, looking at what is in the report's place."""
    talk = Talk(SessionKind.MAIN, SurveyOrder(name="place", out="SURVEY.md"))
    talk.reply()
    talk.answer({**EMPTY_PLAN, "folders": {"a": 2}, "files": 2})
    talk.calls()
    talk.answer({"status": "accepted", "session_id": "main/b1", "kind": "branch"})
    talk.answer(REMEMBERED)
    talk.reply()
    talk.hear_child("main/b1", output={"totals": {"files": 2}, "folders": {"a": {"files": 2}}})
    talk.only_call("find_survey")
    return talk


def marks(talk: Talk) -> None:
    """What was put into memory is marked as a survey's."""
    arguments = talk.only_call("memory_store")
    assert arguments == {
        "text": "survey of place: 5 records of 2 files",
        "type": "fact",
        "source": "sessiontree:survey",
    }


def test_delivery_what_is_in_memory_is_marked_before_the_survey_result(remembering: Talk) -> None:
    """The mark comes when the report is written; the final message tells the amounts."""
    remembering.answer(ABSENT)
    writes(remembering)
    remembering.answer(WRITTEN)
    marks(remembering)
    remembering.answer("stored")
    word = survey_result(remembering)
    assert (word.survey, word.found.records, word.found.records_dropped, word.memory_problem) == (
        "written",
        5,
        1,
        "",
    )


def test_delivery_mark_that_fails_is_told(remembering: Talk) -> None:
    """The survey is written all the same."""
    remembering.answer(ABSENT)
    remembering.reply()
    remembering.answer(WRITTEN)
    remembering.reply()
    remembering.refuse("error", "memory: the disk is full")
    word = survey_result(remembering)
    assert (word.survey, word.memory_problem) == ("written", "memory: the disk is full")


@pytest.mark.parametrize("report", [EARLIER, ABSENT])
def test_delivery_earlier_records_go_with_the_report_in_one_call(remembering: Talk, report: Words) -> None:
    """The one removal names path, trees and how many records; also where the report is gone already."""
    remembering.answer({**report, "surveys": KNOWN})
    assert remembering.only_call("remove_survey") == {
        "path": "SURVEY.md",
        "trees": ["t1", "t2"],
        "records": 12,
    }
    remembering.answer({**REMOVED, "records": 12})
    writes(remembering)


@pytest.mark.parametrize(("report", "end"), [(EARLIER, "kept"), (ABSENT, "written")])
def test_delivery_denied_removal_keeps_earlier_records_and_marks_the_new_ones(
    remembering: Talk, report: Words, end: str
) -> None:
    """A no leaves the earlier survey whole; without a report the new one is written all the same."""
    found = {**report, "surveys": KNOWN}
    remembering.answer(found)
    remembering.reply()
    remembering.refuse("error", "remove_survey was denied by person", tier="Elevated")
    if end == "written":
        remembering.only_call("find_survey")
        remembering.answer(found)
        writes(remembering)
        remembering.answer(WRITTEN)
    marks(remembering)
    remembering.answer("stored")
    assert survey_result(remembering).survey == end


def test_delivery_session_without_memory_marks_nothing() -> None:
    """Where every store was denied nothing is marked, and nothing is wrong."""
    talk = Talk(SessionKind.MAIN, SurveyOrder(name="place", out="SURVEY.md"))
    talk.reply()
    talk.answer({**EMPTY_PLAN, "folders": {"a": 2}, "files": 2})
    talk.calls()
    talk.answer({"status": "accepted", "session_id": "main/b1", "kind": "branch"})
    talk.refuse("error", "main holds no memory_writer", tier="Workspace")
    talk.reply()
    talk.hear_child("main/b1", output={"totals": {"files": 2}, "folders": {"a": {"files": 2}}})
    talk.reply()
    talk.answer(ABSENT)
    talk.reply()
    talk.answer(WRITTEN)
    word = survey_result(talk)
    assert (word.survey, word.found.records, word.found.problems_dropped) == ("written", 0, 0)


def findings(path: str) -> Findings:
    """Return what one small file holds."""
    text = f"# TODO: {path}\ndef f():\n    pass\n".encode()
    return collect_findings(read_source(path, text, len(text)))


def folder_page(*folders: str, after: str | None = None) -> Words:
    """Return a page of the plan of folders with two files each."""
    return {
        "folders": dict.fromkeys(folders, 2),
        "next": after,
        "files": 8,
        "ignored": 3,
        "problems": [{"path": "pipe", "text": "not a regular file"}],
        "all_folders": 3,
        "all_groups": 3,
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
    assert len({call.arguments["label"] for call in spawns}) == 2
    assert spawns[0].arguments["result_schema"] == FINDINGS_SCHEMA
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
    talk.answer(ABSENT)
    report = talk.only_call("write")["content"]
    assert "- Files: 5 in 3 folders" in report
    assert "- `pipe`: `not a regular file`" in report
    assert "- `c`: `its files are not all in memory: memory: the disk is full`" in report
    assert "- `a`: `2 files not surveyed: session main/b1 expired: its time was over`" in report
    assert (
        "- `c`: `2 files not surveyed: no session was started: no branch was started: max_total is 3`"
        in report
    )


def test_branch_hands_up_all_groups_as_findings() -> None:
    """A Branch joins its Workers' findings; a Worker that failed is a problem."""
    talk = Talk(SessionKind.BRANCH, FolderOrder(folder="a", leave_out=("a/x",)))
    assert talk.only_call("survey_plan") == {"folder": "a", "leave_out": ["a/x"]}
    talk.answer({"groups": [["a/1.py"], ["a/2.py"]], "next": None})
    spawns = talk.calls()
    assert [json.loads(str(call.arguments["task"])) for call in spawns] == [["a/1.py"], ["a/2.py"]]
    assert {call.arguments["kind"] for call in spawns} == {"worker"}
    accept(talk, "main/b1/w1", "main/b1/w2")
    assert talk.reply().text == NOTHING_YET
    assert Findings.model_validate_json(NOTHING_YET) == Findings()
    talk.hear_child("main/b1/w1", output=findings("a/1.py").model_dump(mode="json"))
    assert talk.reply().text == NOTHING_YET
    talk.hear_child("main/b1/w2", "failed", summary="gone")
    total = Findings.model_validate_json(talk.reply().text)
    assert (total.totals.files, total.unread) == (2, 1)
    assert [problem.path for problem in total.problems] == ["a/2.py"]


def test_worker_surveys_its_group_and_hands_up_what_the_tool_said() -> None:
    """A Worker calls one tool once and passes its output on; where the tool fails it fails."""
    talk = Talk(SessionKind.WORKER, ["a/1.py", "a/2.py"])
    assert talk.only_call("survey_files") == {"paths": ["a/1.py", "a/2.py"]}
    output = findings("a/1.py").model_dump(mode="json")
    talk.answer(output)
    assert json.loads(talk.reply().text) == output
    talk = Talk(SessionKind.WORKER, ["a/1.py"])
    talk.reply()
    talk.refuse("error", "timed out after 5 s")
    with pytest.raises(ModelError, match="survey_files: timed out after 5 s"):
        talk.reply()


def test_session_without_a_plan_fails() -> None:
    """Where the files can't be listed nothing can be shared out."""
    talk = main_talk()
    talk.reply()
    talk.refuse("error", "can't list '.': permission denied")
    with pytest.raises(ModelError, match="the plan failed: can't list"):
        talk.reply()
