"""Broken tree machines: each has one bug a person could write, and names the invariant that must find it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from sessiontree.contracts.errors import SessionNotFound
from sessiontree.contracts.facts.stimuli import (
    ApprovalAnswered,
    ApprovalAsked,
    ApproverReturned,
    Incoming,
    ResultOffered,
    WorkInterrupted,
)
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalStepRecorded,
    ApprovalWaiting,
    BudgetSpent,
    CancelBegun,
    CanvasChanged,
    DenialLifted,
    DigestDenied,
    MessagePassed,
    Posted,
    SessionEnded,
    SessionSpawned,
    ToolAlwaysAllowed,
    TreeCreated,
    TreeFact,
    UsageCharged,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.tree.decide import decide
from sessiontree.tree.state.evolve import evolve
from sessiontree.tree.state.protocol import (
    AcceptSessionMessage,
    CanvasActionSent,
    CanvasAsked,
    ChangesFound,
    ClockRang,
    Decided,
    Deliver,
    FromSession,
    InterruptAsked,
    RefuseChannelMessage,
    RefuseStop,
    SendAsked,
    SessionEmbodied,
    SettleAsked,
    SpawnAsked,
    StopAsked,
    TreeInstruction,
    TreeStimulus,
    VisionReported,
    WakeTreeAt,
)
from sessiontree.tree.state.state import TreeState
from tests.unit.tree.harness_fixtures import Machine
from tests.unit.tree.tree_fixtures import AGENTS, TOOLS, is_event
from tests.unit.tree.tree_state_oracle import restore, snapshot

Answer = tuple[list[TreeFact], list[TreeInstruction]]


def changing(change: Callable[[TreeState, TreeStimulus, list[TreeFact]], list[TreeFact]]) -> Machine:
    """Return a machine whose facts are changed after they were decided."""

    def broken(state: TreeState, stimulus: TreeStimulus) -> Answer:
        facts, told = decide(state, stimulus)
        return change(state, stimulus, facts), told

    return Machine(decide=broken)


def begun_again() -> Machine:
    """Return a machine in which a passivated session gets its whole time to live again."""

    def broken(state: TreeState, stimulus: TreeStimulus) -> Answer:
        session = state.sessions.get(getattr(stimulus, "session", ""))
        if (
            isinstance(stimulus, SessionEmbodied)
            and session is not None
            and session.expires_at_ms is not None
        ):
            state = restore(snapshot(state))
            state.sessions[stimulus.session].expires_at_ms = None
        return decide(state, stimulus)

    return Machine(decide=broken)


def each(change: Callable[[TreeState, TreeFact], TreeFact]) -> Machine:
    """Return a machine that changes facts one by one."""
    return changing(lambda state, _, facts: [change(state, fact) for fact in facts])


def _without_policy(state: TreeState, fact: TreeFact) -> TreeState:
    if isinstance(fact, TreeCreated):
        fact = replace(fact, config=replace(fact.config, policy=None))
    return evolve(state, fact)


def without(*kinds: type[Any]) -> Machine:
    """Return a machine that leaves facts of some kinds out."""
    return changing(lambda _state, _, facts: [fact for fact in facts if not isinstance(fact, kinds)])


def with_limits(**members: Any) -> Machine:
    """Return a machine that decides by other limits than the tree's."""

    def broken(state: TreeState, stimulus: TreeStimulus) -> Answer:
        if state.config is None:
            return decide(state, stimulus)
        loose = state.make_layer()
        loose.alarms = state.alarms
        changed = {name: getattr(state.limits, name) + step for name, step in members.items()}
        loose.config = replace(state.config, limits=state.limits.model_copy(update=changed))
        return decide(loose, stimulus)

    return Machine(decide=broken)


def deaf_to_time() -> Machine:
    """Return a machine that takes no stimulus's time, so that nothing expires or is forced."""
    return Machine(decide=lambda state, stimulus: decide(state, replace(stimulus, at_ms=0)))


def _whole_table(_state: TreeState, fact: TreeFact) -> TreeFact:
    if not isinstance(fact, SessionSpawned):
        return fact
    tools = tuple(row.name for row in TOOLS if fact.spec.kind in row.kinds)
    return replace(fact, spec=replace(fact.spec, tools=tools))


def _using_delegates(_state: TreeState, fact: TreeFact) -> TreeFact:
    if not isinstance(fact, SessionSpawned):
        return fact
    spec = fact.spec
    return replace(
        fact, spec=replace(spec, tools=tuple(sorted({*spec.tools, *spec.delegates})), delegates=())
    )


def _passing_all_on(state: TreeState, fact: TreeFact) -> TreeFact:
    if not isinstance(fact, SessionSpawned) or fact.spec.kind is not SessionKind.BRANCH:
        return fact
    assert fact.spec.parent is not None
    above = state.sessions[fact.spec.parent].spec
    passed_on = sorted({*above.tools, *above.delegates} - {*fact.spec.tools})
    return replace(fact, spec=replace(fact.spec, delegates=tuple(passed_on)))


def _delegating_all(_state: TreeState, fact: TreeFact) -> TreeFact:
    if not isinstance(fact, SessionSpawned) or fact.spec.kind is not SessionKind.BRANCH:
        return fact
    named = next(row for row in AGENTS if row.name == fact.spec.agent).delegates
    return replace(fact, spec=replace(fact.spec, delegates=tuple(set(named) - {*fact.spec.tools})))


def _spawning_with(fact: TreeFact, **members: Any) -> TreeFact:
    return replace(fact, spec=replace(fact.spec, **members)) if isinstance(fact, SessionSpawned) else fact


def _deciding_twice(state: TreeState, stimulus: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    if not isinstance(stimulus, Decided):
        return facts
    known = stimulus.request_id in state.decisions
    return [*facts, ApprovalDecided(stimulus.request_id, "approved", "ada", "again")] if known else facts


def _by_model(fact: SessionSpawned) -> SessionSpawned:
    return replace(fact, spec=replace(fact.spec, via="model"))


def _model_gives_channel(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, SpawnAsked) and stimulus.via == "model":
        facts, told = decide(state, replace(stimulus, via="handle"))
        changed: list[TreeFact] = [_by_model(f) if isinstance(f, SessionSpawned) else f for f in facts]
        return changed, told
    return decide(state, stimulus)


def _to_a_sibling(state: TreeState, stimulus: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    if not is_event(stimulus, ApprovalAsked):
        return facts
    above, _, _ = stimulus.session.rpartition("/")
    beside = [name for name in state.children.list_members(above) if name != stimulus.session]
    changed: list[TreeFact] = [
        replace(fact, session=beside[0]) if beside and isinstance(fact, ApprovalWaiting) else fact
        for fact in facts
    ]
    return changed


def _self_judging(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(state, stimulus)
    if is_event(stimulus, ApprovalAsked) and facts:
        hops = [f for f in facts if isinstance(f, ApprovalStepRecorded) and f.by == "rule"]
        if hops:
            facts[facts.index(hops[0])] = replace(hops[0], session=stimulus.session)
    return facts, told


def _waiting_for_nobody(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(state, stimulus)
    if any(isinstance(fact, ApprovalDecided) and fact.by == "nobody" for fact in facts):
        kept: list[TreeFact] = [f for f in facts if not isinstance(f, (ApprovalDecided, Posted))]
        return kept, [one for one in told if not isinstance(one, Deliver)]
    return facts, told


def _no_answer(kind: str) -> Machine:
    def broken(state: TreeState, stimulus: TreeStimulus) -> Answer:
        facts, told = decide(state, stimulus)
        lost = {
            fact.post_id
            for fact in facts
            if isinstance(fact, Posted) and getattr(fact.stimulus, "decision", "") == kind
        }
        kept = [fact for fact in facts if not isinstance(fact, Posted) or fact.post_id not in lost]
        return kept, [each for each in told if not isinstance(each, Deliver) or each.post_id not in lost]

    return Machine(decide=broken)


def _answering_twice(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(state, stimulus)
    for fact in list(facts):
        mail = cast("Any", fact.stimulus) if isinstance(fact, Posted) else None
        if isinstance(fact, Posted) and isinstance(mail, ApprovalAnswered):
            post_id = f"{fact.post_id}b"
            facts.append(replace(fact, post_id=post_id))
            told.append(Deliver(fact.session, post_id, mail))
    return facts, told


def _telling_approved(_state: TreeState, fact: TreeFact) -> TreeFact:
    mail = cast("Any", fact.stimulus) if isinstance(fact, Posted) else None
    if isinstance(fact, Posted) and isinstance(mail, ApprovalAnswered):
        return replace(fact, stimulus=cast("Any", replace(mail, decision="approved")))
    return fact


def _not_cancelling(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(state, stimulus)
    ended = {fact.session for fact in facts if isinstance(fact, SessionEnded)}
    gone = {
        fact.request_id
        for fact in facts
        if isinstance(fact, ApprovalDecided)
        and fact.decision == "cancelled"
        and (request := state.requests.get(fact.request_id)) is not None
        and request.question.session in ended
    }
    kept = [fact for fact in facts if not (isinstance(fact, ApprovalDecided) and fact.request_id in gone)]
    return kept, told


def _only_the_head(_state: TreeState, fact: TreeFact) -> TreeFact:
    return replace(fact, sessions=fact.sessions[:1]) if isinstance(fact, CancelBegun) else fact


def _completing_at_once(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if is_event(stimulus, ResultOffered):
        session = state.find_live_session(stimulus.session)
        if session is not None and session.live_below and session.stop is None:
            loose = state.make_layer()
            found = loose.sessions.open(stimulus.session)
            if found is not None:
                found.live_below = found.owed = found.pending = 0
            return decide(loose, stimulus)
    return decide(state, stimulus)


def _ending_twice(_state: TreeState, _: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    ended = [fact for fact in facts if isinstance(fact, SessionEnded)]
    return [*facts, *(replace(fact, status=SessionStatus.COMPLETED) for fact in ended)]


def _forgetting_keys(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, SpawnAsked) and stimulus.key is not None:
        child = state.keys.get((stimulus.parent, stimulus.key))
        if child is not None and state.find_live_session(child) is None:
            return decide(state, replace(stimulus, key=f"{stimulus.key} again"))
    return decide(state, stimulus)


def _any_answer_is_yes(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, Decided):
        return decide(state, replace(stimulus, approve=True))
    return decide(state, stimulus)


def _function_may_stray(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, FromSession) and isinstance(stimulus.event, ApproverReturned):
        request_id = stimulus.event.reply.request_id
        request = state.requests.get(request_id)
        if request is not None and request.rests_at is not None:
            loose = state.make_layer()
            opened = loose.requests.open(request_id)
            if opened is not None:
                opened.how, opened.rests_at = "consult", stimulus.session
            return decide(loose, stimulus)
    return decide(state, stimulus)


def _own_rules(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if is_event(stimulus, ApprovalAsked) and state.config is not None:
        loose = state.make_layer()
        loose.config = replace(state.config, mode="smart", smart_rules=(Rule(answer="approve"),))
        return decide(loose, stimulus)
    return decide(state, stimulus)


def _silent(*kinds: type[Any]) -> Machine:
    def broken(state: TreeState, stimulus: TreeStimulus) -> Answer:
        facts, told = decide(state, stimulus)
        return facts, [one for one in told if not isinstance(one, kinds)]

    return Machine(decide=broken)


def _keeping_budgets(state: TreeState, fact: TreeFact) -> TreeState:
    if isinstance(fact, SessionEnded):
        account = state.accounts.get(fact.session)
        above = None if account is None or account.above is None else state.accounts.open(account.above)
        before = None if above is None else dict(above.used)
        evolve(state, fact)
        if above is not None and before is not None:
            above.used = before
        return state
    return evolve(state, fact)


def _covering_all(state: TreeState, fact: TreeFact) -> TreeState:
    return evolve(state, replace(fact, covers=None) if isinstance(fact, ToolAlwaysAllowed) else fact)


def _covering_any(state: TreeState, fact: TreeFact) -> TreeState:
    if isinstance(fact, ApprovalRequested) and fact.precedent is not None:
        shapes = fact.precedent.shapes[:1]
        return evolve(state, replace(fact, precedent=replace(fact.precedent, shapes=shapes)))
    return evolve(state, fact)


def _taking_all_for_harmless(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if not is_event(stimulus, ApprovalAsked) or stimulus.precedent is None:
        return decide(state, stimulus)
    known = stimulus.precedent
    facts, told = decide(state, replace(stimulus, precedent=replace(known, is_harmless=True)))
    return [replace(f, precedent=known) if isinstance(f, ApprovalRequested) else f for f in facts], told


def _reserving_nothing(state: TreeState, fact: TreeFact) -> TreeState:
    if isinstance(fact, SessionSpawned) and fact.spec.parent is not None:
        parent = state.sessions.get(fact.spec.parent)
        above = None if parent is None else state.accounts.open(parent.account)
        before = None if above is None else dict(above.used)
        evolve(state, fact)
        if above is not None and before is not None:
            above.used = before
        return state
    return evolve(state, fact)


def _not_stopping_at_caps(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(state, stimulus)
    if any(isinstance(fact, BudgetSpent) for fact in facts):
        cut = next(place for place, fact in enumerate(facts) if isinstance(fact, BudgetSpent))
        return facts[:cut], []
    return facts, told


class _Counting:
    """An evolve that remembers more than the state it is given."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, state: TreeState, fact: TreeFact) -> TreeState:
        self.seen += 1
        evolve(state, fact)
        if isinstance(fact, SessionSpawned) and self.seen % 2:
            session = state.sessions.open(fact.spec.session_id)
            if session is not None:
                session.posted += 1
        return state


def _deciding_in_place(state: TreeState, stimulus: TreeStimulus) -> Answer:
    answer = decide(state, stimulus)
    if isinstance(stimulus, ClockRang):
        state.now_ms = max(state.now_ms, stimulus.at_ms)
    return answer


def _forgetting_denials(value: Mapping[str, Any]) -> TreeState:
    return restore({**value, "denied": []})


def _forgetting_numbers(value: Mapping[str, Any]) -> TreeState:
    sessions = [{**wire, "workers": 0, "branches": 0} for wire in value["sessions"]]
    return restore({**value, "sessions": sessions})


def _interrupting(kept: Callable[[TreeState, str], bool]) -> Machine:
    """Return a machine whose interrupts are heard by some sessions alone."""

    def decide_so(state: TreeState, stimulus: TreeStimulus) -> Answer:
        facts, told = decide(state, stimulus)
        if not isinstance(stimulus, InterruptAsked):
            return facts, told
        lost = {
            fact.post_id
            for fact in facts
            if isinstance(fact, Posted)
            and isinstance(fact.stimulus, WorkInterrupted)
            and not kept(state, fact.session)
        }
        return (
            [fact for fact in facts if not (isinstance(fact, Posted) and fact.post_id in lost)],
            [one for one in told if not (isinstance(one, Deliver) and one.post_id in lost)],
        )

    return Machine(decide=decide_so)


def _interrupt_is_a_stop(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, InterruptAsked):
        below = list(state.children.list_members(stimulus.session))
        return decide(state, StopAsked(stimulus.at_ms, (*below, stimulus.session)[0], stimulus.reason))
    return decide(state, stimulus)


def _sibling_reached(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, StopAsked) and stimulus.by is not None and "/" in stimulus.by:
        return decide(state, replace(stimulus, by=stimulus.by.rpartition("/")[0]))
    return decide(state, stimulus)


def _stop_of_the_program(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, StopAsked) and stimulus.session != "main":
        return decide(state, replace(stimulus, by=None))
    return decide(state, stimulus)


def _sibling_written_to(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(state, stimulus)
    if isinstance(stimulus, SendAsked) and told and isinstance(told[0], RefuseChannelMessage):
        parent = stimulus.session.rpartition("/")[0]
        if parent and stimulus.to.startswith(f"{parent}/") and stimulus.to in state.sessions:
            sent = MessagePassed(stimulus.session, stimulus.to, stimulus.key, stimulus.mode, stimulus.at_ms)
            return [*facts, sent], [AcceptSessionMessage(stimulus.to)]
    return facts, told


def _worker_writes(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, SendAsked) and stimulus.session in state.sessions:
        loose = restore(snapshot(state))
        session = loose.sessions[stimulus.session]
        session.spec = replace(session.spec, kind=SessionKind.BRANCH)
        return decide(loose, stimulus)
    return decide(state, stimulus)


def _parent_steered(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(
        state, replace(stimulus, mode="follow_up") if isinstance(stimulus, SendAsked) else stimulus
    )
    mode = getattr(stimulus, "mode", "")
    return [replace(each, mode=mode) if isinstance(each, MessagePassed) else each for each in facts], told


def _forgetting_messages(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, SendAsked):
        state = restore({**snapshot(state), "sent": []})
    return decide(state, stimulus)


def _telling_apart(state: TreeState, stimulus: TreeStimulus) -> Answer:
    facts, told = decide(state, stimulus)
    if isinstance(stimulus, StopAsked) and stimulus.session in state.sessions:
        error = SessionNotFound(stimulus.session, "it is not below you")
        told = [RefuseStop(error) if isinstance(each, RefuseStop) else each for each in told]
    return facts, told


def _time_runs_back(state: TreeState, stimulus: TreeStimulus) -> Answer:
    loose = state.make_layer()
    loose.alarms = state.alarms
    loose.now_ms = 0
    return decide(loose, stimulus)


def _keeping_again(state: TreeState, stimulus: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    known = isinstance(stimulus, ChangesFound) and stimulus.kept.session in state.changes
    return [stimulus.kept] if isinstance(stimulus, ChangesFound) and known else facts


def _losing_failures(state: TreeState, stimulus: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    if isinstance(stimulus, ChangesFound):
        session = state.sessions.get(stimulus.kept.session)
        return facts if session is not None and session.status is SessionStatus.COMPLETED else []
    return facts


def _settling_again(state: TreeState, stimulus: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    if isinstance(stimulus, SettleAsked) and stimulus.settled.session in state.settled:
        return [stimulus.settled]
    return facts


def _drawing_again(state: TreeState, stimulus: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    canvas = state.canvases.get(stimulus.session) if isinstance(stimulus, CanvasAsked) else None
    if isinstance(stimulus, CanvasAsked) and canvas is not None and stimulus.key in canvas.keys:
        return [CanvasChanged(stimulus.session, stimulus.key, stimulus.action, stimulus.content, 0)]
    return facts


def _answering_again(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, VisionReported) and stimulus.answered.session in state.visions:
        loose = state.make_layer()
        loose.visions.drop(stimulus.answered.session)
        return decide(loose, stimulus)
    return decide(state, stimulus)


def _charging_no_answer(_state: TreeState, stimulus: TreeStimulus, facts: list[TreeFact]) -> list[TreeFact]:
    is_vision = isinstance(stimulus, VisionReported)
    return [fact for fact in facts if not (is_vision and isinstance(fact, UsageCharged))]


def _acting_again(state: TreeState, stimulus: TreeStimulus) -> Answer:
    if isinstance(stimulus, CanvasActionSent) and stimulus.session in state.canvases:
        loose = state.make_layer()
        loose.canvases.put(stimulus.session, replace(state.canvases[stimulus.session], keys=()))
        return decide(loose, stimulus)
    return decide(state, stimulus)


def _as_a_person(_state: TreeState, fact: TreeFact) -> TreeFact:
    mail = cast("Any", fact.stimulus) if isinstance(fact, Posted) else None
    if isinstance(fact, Posted) and isinstance(mail, Incoming) and mail.origin == "canvas":
        return replace(fact, stimulus=cast("Any", replace(mail, origin="user", taint="")))
    return fact


PLANTED: dict[str, tuple[Machine, str]] = {
    "changes are kept twice": (changing(_keeping_again), "COPY"),
    "changes of a failed child are lost": (changing(_losing_failures), "COPY"),
    "changes are settled twice": (changing(_settling_again), "COPY"),
    "an image model's answer counts twice": (Machine(decide=_answering_again), "VISION"),
    "an image model's answer is not charged": (changing(_charging_no_answer), "VISION"),
    "a canvas is changed twice by one call": (changing(_drawing_again), "CANVAS"),
    "an action on a canvas counts twice": (Machine(decide=_acting_again), "CANVAS"),
    "an action on a canvas is a person's word": (each(_as_a_person), "CANVAS"),
    "a snapshot forgets canvases": (Machine(restore=lambda value: restore({**value, "canvases": {}})), "S18"),
    "the ceiling forgets the parent and the agent": (each(_whole_table), "P9"),
    "a session uses what it delegates": (each(_using_delegates), "P9"),
    "a delegate passes through any child": (each(_passing_all_on), "P9"),
    "an agent delegates what its parent lacks": (each(_delegating_all), "P9"),
    "the owner's policy is forgotten": (Machine(evolve=_without_policy), "P9"),
    "System calls grow laxer": (each(lambda _, fact: _spawning_with(fact, system_tier="allow")), "P9"),
    "commands grow laxer": (each(lambda _, fact: _spawning_with(fact, exec_security="full")), "P9"),
    "a model may own a channel": (Machine(decide=_model_gives_channel), "P10"),
    "one child too many": (with_limits(max_children=1), "S13"),
    "one child too few": (with_limits(max_children=-1), "S13"),
    "one session too many lives": (with_limits(max_live=1), "S13"),
    "one session too many in all": (with_limits(max_total=1), "S13"),
    "one level too deep": (with_limits(max_depth=1), "S13"),
    "a life begins again with each host": (begun_again(), "S13"),
    "nothing expires": (deaf_to_time(), "S13|S16"),
    "the clock may step back": (Machine(decide=_time_runs_back), "S13|S16"),
    "children are not informed that a parent stops": (each(_only_the_head), "S13"),
    "a session completes above its children": (Machine(decide=_completing_at_once), "S13"),
    "nothing is returned at the end": (Machine(evolve=_keeping_budgets), "S13"),
    "nothing is set aside at spawn": (Machine(evolve=_reserving_nothing), "S13"),
    "a spent budget stops nobody": (Machine(decide=_not_stopping_at_caps), "S13"),
    "no bell is set": (_silent(WakeTreeAt), "S13|S20"),
    "a decision is taken twice": (changing(_deciding_twice), "S14"),
    "a session ends twice": (changing(_ending_twice), "S15"),
    "any answer of a person is yes": (Machine(decide=_any_answer_is_yes), "S16"),
    "whoever asks gets yes": (each(_telling_approved), "S16"),
    "smart rules in every mode": (Machine(decide=_own_rules), "S16"),
    "requests outlive who asked": (Machine(decide=_not_cancelling), "S17"),
    "a key is forgotten with its child": (Machine(decide=_forgetting_keys), "S18"),
    "a snapshot forgets numbers": (Machine(restore=_forgetting_numbers), "S18"),
    "a snapshot forgets denials": (Machine(restore=_forgetting_denials), "S18"),
    "a request goes to a sibling": (changing(_to_a_sibling), "S19"),
    "a session judges itself": (Machine(decide=_self_judging), "S19"),
    "a request waits for nobody": (Machine(decide=_waiting_for_nobody), "S19"),
    "anybody's function may answer": (Machine(decide=_function_may_stray), "S19"),
    "who was denied never hears of it": (_no_answer("denied"), "S20"),
    "an expiry is kept quiet": (_no_answer("expired"), "S20"),
    "a cancel is kept quiet": (_no_answer("cancelled"), "S20"),
    "an answer is posted twice": (Machine(decide=_answering_twice), "P33"),
    "a denial is not bound": (without(DigestDenied), "P12|S16"),
    "a denial outlives its lifting": (without(DenialLifted), "S16"),
    "an owner's always is forgotten": (without(ToolAlwaysAllowed), "S16"),
    "an always covers every command": (Machine(evolve=_covering_all), "S14|S16"),
    "an always looks at the first program alone": (Machine(evolve=_covering_any), "S14|S16"),
    "any command is harmless": (Machine(decide=_taking_all_for_harmless), "S16"),
    "evolve knows more than the facts": (Machine(evolve=_Counting()), "S38"),
    "decide changes the state": (Machine(decide=_deciding_in_place), "pure"),
    "an interrupt is heard by its head alone": (_interrupting(lambda _, name: "/" not in name), "CUT"),
    "an interrupt stops what is below": (Machine(decide=_interrupt_is_a_stop), "CUT"),
    "a session stops its siblings": (Machine(decide=_sibling_reached), "REACH"),
    "a session stops what it does not know": (Machine(decide=_stop_of_the_program), "REACH"),
    "a session writes to its siblings": (Machine(decide=_sibling_written_to), "REACH"),
    "a worker writes": (Machine(decide=_worker_writes), "REACH"),
    "a parent is steered": (Machine(decide=_parent_steered), "REACH"),
    "a message is sent twice": (Machine(decide=_forgetting_messages), "SENT|S18"),
    "a refusal tells what there is": (Machine(decide=_telling_apart), "REACH"),
}
"""By what goes wrong: the machine, and the invariants that say so."""
