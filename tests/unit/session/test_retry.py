"""Validation retry: how often a model may try a tool's arguments, and what follows when they never fit."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import ArgumentsRejected, CallIntended, ToolGivenUp
from sessiontree.contracts.facts.stimuli import TroubleReported
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.codec import Outcome
from sessiontree.contracts.settings.settings import Limits
from sessiontree.session.calls import Decision
from sessiontree.session.decide import decide
from sessiontree.session.state import SessionState
from tests.unit.session.broken_machine_fakes import PLANTED, evolving, instead
from tests.unit.session.machine_fixtures import REAL, Machine
from tests.unit.session.session_fixtures import call, finished, spec
from tests.unit.session.world_fakes import World, opened

SEARCH = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
attempts = st.lists(st.integers(0, 9), min_size=1, max_size=8)
"""What an always-invalid model sends, attempt by attempt; equal numbers are equal arguments."""
programs = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8)
"""Programs that are never run; True = the arguments fit, and the text is refused."""


def fresh(machine: Machine) -> World:
    """Return a session that asks its model, judged by nobody."""
    world = World(spec(), Limits(max_repeats=None), machine, only=["nothing"])
    world.adopt()
    return world


def never_fits(machine: Machine, sent: Sequence[int], losses: bool = False) -> None:
    """Property: P24, a model that never fits stops at attempt three or at a repeat, reported once."""
    world = fresh(machine)
    allowed = next((n + 1 for n in range(1, min(3, len(sent))) if sent[n] == sent[n - 1]), min(3, len(sent)))
    given_up = allowed == 3 or (allowed > 1 and sent[allowed - 1] == sent[allowed - 2])
    for n in sent:
        world.replies(call("look", n, bad=True))
        world.work()
        assert not world.running
        if losses:
            world.lose_host()
    rejected = [fact for fact in world.durable if isinstance(fact, ArgumentsRejected)]
    assert [fact.attempt for fact in rejected] == list(range(1, allowed + 1))
    assert len([fact for fact in world.durable if isinstance(fact, ToolGivenUp)]) == given_up
    assert world.troubles == ["look"] * given_up
    world.replies(text="going on without it")
    assert world.live.offer is not None


def program_never_fits(machine: Machine, sent: Sequence[tuple[int, bool]], losses: bool = False) -> None:
    """Property: refused texts and arguments that do not fit are counted together, text by text."""
    world = fresh(machine)
    allowed = next((n + 1 for n in range(1, min(3, len(sent))) if sent[n] == sent[n - 1]), min(3, len(sent)))
    for n, is_checked_late in sent:
        world.replies(call("look", n, bad=not is_checked_late))
        key = f"{world.live.turn}.0"
        world.report()
        world.prepare(key)
        if key in world.running:
            world.begin_program(key)
            world.report()
            if losses:
                world.lose_host()
            world.refuse_program(key)
        world.report()
    rejected = [fact for fact in world.durable if isinstance(fact, ArgumentsRejected)]
    assert [fact.attempt for fact in rejected] == list(range(1, allowed + 1))
    given_up = allowed == 3 or (allowed > 1 and sent[allowed - 1] == sent[allowed - 2])
    assert world.troubles == ["look"] * given_up


def fits_at_last(machine: Machine, tool: str, wrong: int) -> None:
    """Property: P25, valid on attempt k means exactly one execution, and the count begins again."""
    world = fresh(machine)
    for n in range(wrong):
        world.replies(call(tool, n, bad=True))
        world.work()
    assert not world.begun
    world.replies(call(tool, 7))
    world.work()
    assert world.begun == [f"{wrong + 1}.0"]
    assert world.result_of(f"{wrong + 1}.0") == "ok"
    world.replies(call(tool, 8, bad=True))
    world.work()
    assert [tried.count for tried in world.live.ledger.values()] == [1]


@pytest.mark.covers("C7", "A28", "A30", "REL-P21", "REL-P24", "REL-L56")
@pytest.mark.slow
@given(sent=attempts, losses=st.booleans())
def test_model_that_never_fits_is_stopped_and_told_of_once(sent: list[int], losses: bool) -> None:
    """P21, P24, P26: at most three attempts, two for the same mistake, one report, on any number of hosts."""
    never_fits(REAL, sent, losses)


@pytest.mark.covers("REL-P21")
@pytest.mark.parametrize(
    "bug",
    [
        "the same mistake may be made three times",
        "a fourth attempt is allowed",
        "a tool given up is taken up again",
        "nobody learns that a tool is given up",
        "the count is lost with the host",
    ],
)
def test_retry_property_notices_planted_bugs(bug: str) -> None:
    """The property fails on machines that count wrongly or keep it to themselves."""

    def fails(sent: list[int]) -> bool:
        try:
            never_fits(PLANTED[bug][1], sent, losses=bug == "the count is lost with the host")
        except AssertionError:
            return True
        return False

    assert find(attempts, fails, settings=SEARCH)


@pytest.mark.slow
@given(sent=programs, losses=st.booleans())
def test_program_that_is_never_run_is_an_attempt(sent: list[tuple[int, bool]], losses: bool) -> None:
    """P21, P24, P26: whether its arguments do not fit or its text is refused, and on any number of hosts."""
    program_never_fits(REAL, sent, losses)


@pytest.mark.parametrize("bug", ["a program that is begun is valid", "refused texts do not count"])
def test_program_retry_property_notices_planted_bugs(bug: str) -> None:
    """The property fails on machines that forgive a text before it was checked, or never count it."""

    def forgive(state: SessionState, fact: facts.ProgramStarted) -> None:
        state.ledger.pop(fact.call.tool, None)

    def end(state: SessionState, stimulus: stimuli.CallRejected) -> Decision:
        call = state.calls.get(stimulus.call.key)
        if call is None or call.program is None:
            return decide(state, stimulus)
        return decide(state, finished(stimulus.at_ms, call.key, call.call, "invalid"))

    planted = {
        "a program that is begun is valid": evolving(facts.ProgramStarted, forgive),
        "refused texts do not count": instead(stimuli.CallRejected, end),
    }

    def fails(sent: list[tuple[int, bool]]) -> bool:
        try:
            program_never_fits(planted[bug], sent)
        except AssertionError:
            return True
        return False

    assert find(programs, fails, settings=SEARCH)


@pytest.mark.parametrize("outcome", ["ok", "error"])
def test_program_that_ran_begins_the_count_again(outcome: Outcome) -> None:
    """Its text fitted, whatever became of it; a stop before it was checked proves nothing."""
    world = fresh(REAL)
    outcomes: list[Outcome] = ["invalid", "aborted", "invalid", outcome, "invalid"]
    for n, then in enumerate(outcomes):
        world.replies(call("look", n))
        world.report()
        key = f"{world.live.turn}.0"
        world.prepare(key)
        world.begin_program(key)
        if then == "invalid":
            world.refuse_program(key)
        else:
            world.end_program(key, then)
        world.report()
    rejected = [fact.attempt for fact in world.durable if isinstance(fact, ArgumentsRejected)]
    assert rejected == [1, 2, 1]


@pytest.mark.covers("REL-P25")
@pytest.mark.parametrize("tool", ["look", "note"])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_valid_call_runs_once_on_whichever_attempt(tool: str, wrong: int) -> None:
    """P25: the valid attempt runs exactly once."""
    fits_at_last(REAL, tool, wrong)


@pytest.mark.covers("REL-P25")
@pytest.mark.parametrize("bug", ["what fits does not run", "what does not fit runs"])
def test_execution_property_notices_planted_bugs(bug: str) -> None:
    """The property fails where nothing runs, or too much."""
    with pytest.raises(AssertionError):
        fits_at_last(PLANTED[bug][1], "note", 1)


def test_failed_attempt_tells_the_model_what_to_mend() -> None:
    """P23: the result names the field, the schema, the attempt and what to do."""
    world = opened()
    world.replies(call("look", bad=True))
    world.work()
    told = json.loads(world.live.transcript[-1].text)
    assert (told["status"], told["tool"], told["field"]) == ("error", "look", "/bad")
    assert told["schema"] == {"type": "object"}
    assert (told["attempt"], told["advice"]) == (1, "attempt 1 of 3; correct the arguments and call again")
    world.replies(call("look", bad=True))
    world.work()
    again = json.loads(world.live.transcript[-1].text)
    assert again["attempt"] == 2
    assert again["advice"].startswith("these very arguments were refused just before; look is refused until")


def test_failures_of_one_reply_count_once() -> None:
    """Several bad calls of a tool in one reply are one attempt; the third reply is the last."""
    world = opened()
    for n in range(3):
        world.replies(*(call("look", 10 * n + index, bad=True) for index in range(3)))
        world.work()
        assert world.live.ledger["look"].count == n + 1
    assert world.troubles == ["look"]


@pytest.mark.covers("A30")
def test_tool_given_up_is_refused_until_the_next_message() -> None:
    """After the last attempt even a valid call is denied; a message lets it run again."""
    world = opened()
    for _ in range(2):
        world.replies(call("note", bad=True))
        world.work()
    world.runs(call("note"))
    assert world.result_of("3.0") == "denied"
    assert "until the next message" in world.live.transcript[-1].text
    world.replies(text="I give up")
    world.hear("m1")
    world.runs(call("note"))
    assert list(world.running) == ["5.0"]


def test_notice_of_the_runtime_is_no_new_message() -> None:
    """A late outcome starts a turn and forgives nothing."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe"))
    for _ in range(2):
        world.replies(call("look", bad=True))
        world.work()
    world.decide(world.requests[0], "denied")
    world.replies(call("look"))
    world.work()
    assert world.result_of(f"{world.live.turn - 1}.0") == "denied"


def test_late_result_does_not_take_up_a_tool_given_up() -> None:
    """A valid call of the reply that ended it finishes after the tool was given up: it stays given up."""
    world = opened()
    for n in range(2):
        world.replies(call("look", n, bad=True))
        world.work()
    world.runs(call("look"), call("look", 2, bad=True))
    assert world.troubles == ["look"]
    world.finish("3.0")
    world.runs(call("look"))
    assert world.result_of("4.0") == "denied"


def test_late_approval_does_not_reset_newer_failures() -> None:
    """What counts is when a call was found valid, not when somebody allowed it."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe"))
    world.replies(call("wipe", 1, bad=True))
    world.work()
    world.decide(world.requests[0], "approved")
    world.work()
    assert world.live.ledger["wipe"].count == 1


@pytest.mark.parametrize("tool", ["look", "note", "wipe"])
def test_calls_of_the_program_neither_count_nor_reset(tool: str) -> None:
    """The ledger is the model's: a program's calls leave it alone, whatever they do."""
    world = opened()
    world.replies(call(tool, bad=True))
    world.work()
    world.replies(text="done")
    world.asks_outside("o1", call(tool, bad=True))
    world.asks_outside("o2", call(tool))
    world.settle("done")
    assert world.answers == {"o1": "invalid", "o2": "denied" if tool == "wipe" else "ok"}
    assert world.live.ledger[tool].count == 1


def test_joining_call_counts_as_valid() -> None:
    """A repeat of a pending call fits, so the attempts begin again."""
    world = opened(patience_s=0.0)
    world.runs(call("wipe"))
    world.replies(call("wipe", bad=True))
    world.work()
    world.runs(call("wipe"))
    assert world.result_of("3.0") == "pending"
    assert world.live.ledger == {}


def test_trouble_in_main_is_reported_too() -> None:
    """P24: in Main the report goes to the channel; the machine says it all the same."""
    world = opened(SessionKind.MAIN)
    for _ in range(2):
        world.replies(call("look", bad=True))
        world.report()
        world.prepare(f"{world.live.turn}.0")
    assert world.found(TroubleReported) == [TroubleReported(ToolGivenUp("look", 2, "/bad", "bad: unknown"))]
    assert not [fact for fact in world.durable if isinstance(fact, CallIntended)]
