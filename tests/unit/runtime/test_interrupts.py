"""An interrupt returns when what it reached is at rest: each has heard what was posted to it before."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from sessiontree.contracts.facts.stimuli import Incoming, WorkInterrupted
from sessiontree.contracts.facts.tree_facts import (
    CancelBegun,
    InterruptBegun,
    Posted,
    PostsTaken,
    ResultHeld,
    SessionEnded,
    SessionReactivated,
)
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.codec import pack, pack_joined
from sessiontree.contracts.recorded.results import SessionResult
from sessiontree.journal.record import JournalRecord
from sessiontree.runtime.supervisor.answers.interruption import Interruption

HEAD, BRANCH, WORKER = "main", "main/b1", "main/b1/w1"
RESULT: SessionResult[Any] = SessionResult(SessionStatus.CANCELLED, "interrupted")
CUT: Any = (WorkInterrupted(0, "p1", "enough"), WorkInterrupted(0, "p2", "enough"))
BEGUN: tuple[Any, ...] = (
    InterruptBegun((HEAD, BRANCH), "enough"),
    Posted("p1", HEAD, CUT[0]),
    Posted("p2", BRANCH, CUT[1]),
    CancelBegun((WORKER,), "enough", SessionStatus.CANCELLED, 1),
)
REPORT: Any = Incoming(0, "p3", "it ended", mode="follow_up", origin="child")
ENDED = (SessionEnded(WORKER, SessionStatus.CANCELLED, RESULT, 0, forced=False), Posted("p3", BRANCH, REPORT))


def is_over(*facts: Any) -> bool:
    """Return whether everything is at rest after these facts of the tree."""
    single, joined = Interruption(HEAD), Interruption(HEAD)
    for busy, texts in ((single, map(pack, facts)), (joined, pack_joined(facts))):
        for seq, text in enumerate(texts, 1):
            busy.take(JournalRecord(seq, "", "cause", 0, text))
    assert single.is_over == joined.is_over
    return single.is_over


def test_it_is_over_when_all_rest_and_have_heard_everything() -> None:
    """In whatever order that comes: a word given before the last post was heard is not the last."""
    rest = (
        (*ENDED,),
        (ResultHeld(HEAD, RESULT, quiet=True),),
        (ResultHeld(BRANCH, RESULT, quiet=True),),
        (PostsTaken(HEAD, ("p1",)),),
        (PostsTaken(BRANCH, ("p2",)),),
    )
    for order in permutations(rest):
        told = [*BEGUN, *(fact for group in order for fact in group)]
        assert not is_over(*told)
        assert is_over(*told, PostsTaken(BRANCH, ("p3",)))


def test_one_that_hears_something_new_is_busy_again() -> None:
    """Until it rests once more."""
    told = (
        *BEGUN,
        PostsTaken(HEAD, ("p1",)),
        PostsTaken(BRANCH, ("p2",)),
        ResultHeld(HEAD, RESULT, quiet=True),
        ResultHeld(BRANCH, RESULT, quiet=True),
        *ENDED,
        SessionReactivated(BRANCH),
        PostsTaken(BRANCH, ("p3",)),
    )
    assert not is_over(*told)
    assert is_over(*told, ResultHeld(BRANCH, RESULT, quiet=True))


def test_one_that_ended_owes_nothing() -> None:
    """What was posted to it and never heard keeps nobody waiting."""
    told = (*BEGUN, *ENDED, PostsTaken(HEAD, ("p1",)), ResultHeld(HEAD, RESULT, quiet=True))
    assert not is_over(*told)
    assert is_over(*told, SessionEnded(BRANCH, SessionStatus.CANCELLED, RESULT, 0, forced=False))


def test_facts_of_before_count_for_nothing() -> None:
    """Nothing is known to have been interrupted yet."""
    assert is_over()
    assert is_over(Posted("p0", BRANCH, REPORT), ResultHeld(BRANCH, RESULT, quiet=True))
