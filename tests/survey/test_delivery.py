"""Putting the report in its place: one approval, no doubt left, nothing of anybody else's touched."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from sessiontree.contracts.kinds import SessionKind
from sessiontree.survey.report import is_report
from sessiontree.survey.words import LastWord, SurveyOrder, last_word_of
from tests.survey.talks import Talk

Words: TypeAlias = dict[str, Any]

ABSENT: Words = {"path": "SURVEY.md", "exists": False, "is_report": False}
EARLIER: Words = {"path": "SURVEY.md", "exists": True, "is_report": True}
OTHER: Words = {"path": "SURVEY.md", "exists": True, "is_report": False}
REMOVED: Words = {"removed": "SURVEY.md", "bytes": 9}
WRITTEN: Words = {"path": "SURVEY.md", "bytes": 9, "created": True}
REMEMBERED: Words = {"files": 2, "records": 5, "dropped": 1}
KNOWN: list[Any] = [{"tree": "t1", "records": 5}, {"tree": "t2", "records": 7}]
EMPTY_PLAN: Words = {
    "folders": [],
    "next": None,
    "files": 0,
    "ignored": 0,
    "problems": [],
    "problems_dropped": 0,
}


@pytest.fixture
def talk() -> Talk:
    """Main, with everything gathered, looking what stands in the report's place."""
    talk = Talk(SessionKind.MAIN, SurveyOrder(name="place", out="SURVEY.md"))
    talk.reply()
    talk.answer(EMPTY_PLAN)
    assert talk.only_call("find_survey") == {"path": "SURVEY.md"}
    return talk


def last_word(talk: Talk) -> LastWord:
    """Ask the model for what must be its last word."""
    word = last_word_of(talk.reply().text)
    assert word is not None
    return word


def writes(talk: Talk) -> None:
    """The report itself is written, whole."""
    arguments = talk.only_call("write")
    assert arguments["path"] == "SURVEY.md"
    assert is_report(arguments["content"].partition("\n")[0])


def test_free_place_is_written_at_once(talk: Talk) -> None:
    """Nothing there: nothing is removed, nobody is asked."""
    talk.answer(ABSENT)
    writes(talk)
    talk.answer(WRITTEN)
    assert (last_word(talk).survey, talk.turn) == ("written", 4)


def test_earlier_report_is_removed_first(talk: Talk) -> None:
    """An earlier report takes one removal, then the new one is written."""
    talk.answer(EARLIER)
    assert talk.only_call("remove_survey") == {"path": "SURVEY.md"}
    talk.answer(REMOVED)
    writes(talk)
    talk.answer(WRITTEN)
    word = last_word(talk)
    assert (word.survey, word.path, word.report) == ("written", "SURVEY.md", "")


def test_denied_removal_keeps_the_place_and_hands_the_report_over(talk: Talk) -> None:
    """After a no the report travels in the last word, with the reason."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("error", "remove_survey was denied by person", tier="Elevated")
    word = last_word(talk)
    assert (word.survey, word.reason) == ("kept", "remove_survey was denied by person")
    assert is_report(word.report.partition("\n")[0])


def test_anything_else_in_the_place_is_left_alone(talk: Talk) -> None:
    """What is no report is never removed, and no approval is asked for it."""
    talk.answer(OTHER)
    word = last_word(talk)
    assert word.survey == "kept"
    assert "no report of a survey" in word.reason


def test_removal_that_fails_is_not_asked_again(talk: Talk) -> None:
    """A report the system will not remove stays, after one approval."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("error", "can't remove 'SURVEY.md': permission denied")
    talk.only_call("find_survey")
    talk.answer(EARLIER)
    word = last_word(talk)
    assert (word.survey, word.reason) == ("kept", "can't remove 'SURVEY.md': permission denied")


def test_report_that_vanished_meanwhile_needs_no_removal(talk: Talk) -> None:
    """Somebody else removed it: the place is free."""
    talk.answer(EARLIER)
    talk.reply()
    talk.refuse("error", "can't remove 'SURVEY.md': it does not exist")
    talk.only_call("find_survey")
    talk.answer(ABSENT)
    writes(talk)


@pytest.mark.parametrize("found", [ABSENT, EARLIER])
def test_removal_that_may_have_run_is_looked_after(talk: Talk, found: Words) -> None:
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


def test_removal_in_doubt_again_and_again_ends(talk: Talk) -> None:
    """Three times without knowing are enough."""
    for _ in range(3):
        talk.answer(EARLIER)
        talk.only_call("remove_survey")
        talk.refuse("unknown", "lost", may_have_run=True)
        talk.only_call("find_survey")
    talk.answer(EARLIER)
    assert last_word(talk).survey == "kept"


@pytest.mark.parametrize(("found", "end"), [(EARLIER, "written"), (OTHER, "kept")])
def test_write_that_may_have_run_is_looked_after(talk: Talk, found: Words, end: str) -> None:
    """A report that stands there after a crash in the middle of writing is the new one, whole."""
    talk.answer(ABSENT)
    talk.reply()
    talk.refuse("unknown", "lost", may_have_run=True)
    talk.only_call("find_survey")
    talk.answer(found)
    assert last_word(talk).survey == end


def test_write_that_did_not_run_is_made_again(talk: Talk) -> None:
    """Nothing there after a crash in the middle of writing: it is written."""
    talk.answer(ABSENT)
    talk.reply()
    talk.refuse("unknown", "lost", may_have_run=True)
    talk.reply()
    talk.answer(ABSENT)
    writes(talk)


def test_write_that_fails_hands_the_report_over(talk: Talk) -> None:
    """A workspace that takes no file loses no report."""
    talk.answer(ABSENT)
    talk.reply()
    talk.refuse("error", "can't write 'SURVEY.md': no space left")
    word = last_word(talk)
    assert (word.survey, word.reason) == ("failed", "can't write 'SURVEY.md': no space left")
    assert word.report


def test_pending_approval_is_waited_for(talk: Talk) -> None:
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
    """Main, with one folder gathered and put into memory, looking what stands in the report's place."""
    talk = Talk(SessionKind.MAIN, SurveyOrder(name="place", out="SURVEY.md"))
    talk.reply()
    talk.answer({**EMPTY_PLAN, "folders": [{"folder": "a", "files": 2, "groups": 1}], "files": 2})
    talk.calls()
    talk.answer({"status": "accepted", "session_id": "main/b1", "kind": "branch"})
    talk.answer(REMEMBERED)
    talk.reply()
    talk.hear_child("main/b1", output={"files": 2, "folders": {"a": {"files": 2}}})
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


def test_what_is_in_memory_is_marked_before_the_last_word(remembering: Talk) -> None:
    """The mark comes when the report stands; the last word tells the amounts."""
    remembering.answer(ABSENT)
    writes(remembering)
    remembering.answer(WRITTEN)
    marks(remembering)
    remembering.answer("stored")
    word = last_word(remembering)
    assert (word.survey, word.records, word.records_dropped, word.memory_problem) == ("written", 5, 1, "")


def test_mark_that_fails_is_told(remembering: Talk) -> None:
    """The survey is written all the same."""
    remembering.answer(ABSENT)
    remembering.reply()
    remembering.answer(WRITTEN)
    remembering.reply()
    remembering.refuse("error", "memory: the disk is full")
    word = last_word(remembering)
    assert (word.survey, word.memory_problem) == ("written", "memory: the disk is full")


@pytest.mark.parametrize("report", [EARLIER, ABSENT])
def test_earlier_records_go_with_the_report_in_one_call(remembering: Talk, report: Words) -> None:
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
def test_denied_removal_keeps_earlier_records_and_marks_the_new_ones(
    remembering: Talk, report: Words, end: str
) -> None:
    """A no leaves the earlier survey whole; where no report stands the new one is written all the same."""
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
    assert last_word(remembering).survey == end


def test_session_without_memory_marks_nothing() -> None:
    """Where every store was denied there is nothing to mark, and nothing is wrong."""
    talk = Talk(SessionKind.MAIN, SurveyOrder(name="place", out="SURVEY.md"))
    talk.reply()
    talk.answer({**EMPTY_PLAN, "folders": [{"folder": "a", "files": 2, "groups": 1}], "files": 2})
    talk.calls()
    talk.answer({"status": "accepted", "session_id": "main/b1", "kind": "branch"})
    talk.refuse("error", "main holds no memory_writer", tier="Workspace")
    talk.reply()
    talk.hear_child("main/b1", output={"files": 2, "folders": {"a": {"files": 2}}})
    talk.reply()
    talk.answer(ABSENT)
    talk.reply()
    talk.answer(WRITTEN)
    word = last_word(talk)
    assert (word.survey, word.records, word.problems) == ("written", 0, 0)
