"""Replay of a tree's own facts: which stimulus of the tree machine led to the next ones.

What sessions reported comes from the replay of these sessions; what the program and people asked, what was
used, and times are in the facts themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts import tree_facts as facts
from sessiontree.contracts.facts.stimuli import TreeEvent
from sessiontree.contracts.facts.tree_facts import TreeFact
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.approvals import APPROVER_ERROR
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.runtime.replay.job_replay import propose_job_stimuli
from sessiontree.tree.state import protocol
from sessiontree.tree.state.budgets import SCALE, find_payers, to_budget_units
from sessiontree.tree.state.protocol import FromSession, TreeStimulus
from sessiontree.tree.state.state import TreeState

AHEAD = 64
"""How many facts after the next one may show a part of the stimulus that led to it."""
_CRASHED = "crashed: "


@dataclass(slots=True)
class Reported:
    """What sessions reported to the tree so far, as their replay says; the tree's facts follow from it."""

    usage: dict[str, Usage] = field(default_factory=dict)
    """What each session has used."""
    offers: dict[str, stimuli.ResultOffered] = field(default_factory=dict)
    asked: dict[str, stimuli.ApprovalAsked] = field(default_factory=dict)
    returned: dict[str, stimuli.ApproverReturned] = field(default_factory=dict)
    delegated: dict[str, stimuli.ClientCallDelegated] = field(default_factory=dict)
    withdrawn: dict[str, stimuli.ClientCallWithdrawn] = field(default_factory=dict)
    unasked: dict[str, stimuli.ApprovalWithdrawn] = field(default_factory=dict)
    troubles: dict[str, list[stimuli.TroubleReported]] = field(default_factory=dict)
    taints: dict[str, stimuli.TaintReported] = field(default_factory=dict)

    def note(self, session: str, event: TreeEvent) -> None:
        """Note what a session reported."""
        match event:
            case stimuli.ResultOffered():
                self.offers[session] = event
            case stimuli.ApprovalAsked(request_id):
                self.asked.setdefault(request_id, event)
            case stimuli.ApproverReturned(reply):
                self.returned[reply.request_id] = event
            case stimuli.ClientCallDelegated(client_id):
                self.delegated[client_id] = event
            case stimuli.ApprovalWithdrawn(request_id):
                self.unasked[request_id] = event
            case stimuli.ClientCallWithdrawn(ended):
                self.withdrawn[ended.client_id] = event
            case stimuli.TroubleReported():
                self.troubles.setdefault(session, []).append(event)
            case stimuli.TaintReported():
                self.taints[session] = event


def propose_stimuli(
    state: TreeState, reported: Reported, at_ms: int, ahead: Sequence[TreeFact]
) -> Iterator[TreeStimulus]:
    """Yield the stimuli that may have led to the tree's next facts, the likeliest first.

    Args:
        state: The tree before these facts.
        reported: What sessions reported by then.
        at_ms: The recorded time. The stimulus may be a little older.
        ahead: The tree's next facts.
    """
    head = ahead[0]
    for time_ms in dict.fromkeys((at_ms, *_list_times(ahead))):
        if any(state.is_still_valid(alarm) for alarm in state.alarms.list_due(time_ms)):
            yield protocol.ClockRang(time_ms)
        yield from _rebuild_requests(state, time_ms, head, ahead)
        yield from _from_sessions(state, reported, time_ms, head, ahead)


def _list_times(ahead: Sequence[TreeFact]) -> Iterator[int]:
    for fact in ahead[:8]:
        match fact:
            case (
                facts.SessionSpawned()
                | facts.SessionAdopted()
                | facts.SessionEnded()
                | facts.ApprovalRequested()
                | facts.ChannelSaid()
                | facts.MessagePassed()
                | facts.CanvasChanged()
                | facts.CanvasActed()
            ):
                yield fact.at_ms
            case facts.Posted(stimulus=mail) if isinstance(at_ms := getattr(mail, "at_ms", None), int):
                yield at_ms


def _rebuild_requests(  # noqa: C901, PLR0912, PLR0915 - one case for each type
    state: TreeState, at_ms: int, head: TreeFact, ahead: Sequence[TreeFact]
) -> Iterator[TreeStimulus]:
    """Yield what the program, people and hosts may have asked or reported."""
    match head:
        case facts.TreeCreated(config):
            yield protocol.TreeOpened(at_ms, config)
        case facts.TreeForked(config, forked_at_ms, shift_ms, replaced):
            yield protocol.ForkAsked(forked_at_ms, config, shift_ms, replaced)
        case facts.SessionSpawned():
            yield _spawn(state, at_ms, head)
        case facts.SpawnDenied(limit=str(limit)):
            yield _propose_denied(state, at_ms, head, limit)
        case facts.SessionAdopted(session):
            yield protocol.SessionEmbodied(at_ms, session)
        case facts.SessionReactivated(session):
            yield protocol.Stirred(at_ms, session)
        case facts.ResultAwaited(session):
            yield protocol.ResultAsked(at_ms, session)
        case facts.LeftoversEnded(session, count):
            yield protocol.LeftoversFound(at_ms, session, count)
        case facts.PostsTaken(session, post_ids):
            yield protocol.PostsConsumed(at_ms, session, post_ids)
        case facts.ChannelSaid(session=session, text=text):
            yield protocol.ChannelMessageAsked(at_ms, session, text)
        case facts.MessagePassed():
            yield from _propose_message(at_ms, head, ahead)
        case facts.ChangesKept():
            yield protocol.ChangesFound(at_ms, head)
        case facts.ChangesSettled():
            yield protocol.SettleAsked(at_ms, head)
        case facts.CanvasChanged(session, key, action, content):
            yield protocol.CanvasAsked(at_ms, session, key, action, content)
        case facts.CanvasActed():
            yield from _propose_canvas_action(at_ms, head, ahead)
        case facts.VisionAnswered():
            yield protocol.VisionReported(at_ms, head)
        case facts.OutsideHookFailed():
            yield protocol.HookFailedOutside(at_ms, head)
        case facts.DenialLifted(request_id, by):
            yield protocol.LiftAsked(at_ms, request_id, by)
        case facts.DecisionRefused(request_id, by, approve, surface):
            yield protocol.Decided(at_ms, request_id, approve, False, by.id, "", by, surface)
        case facts.ApprovalStepRecorded(by="person" | "approver error"):
            yield _rebuild_decision(at_ms, head, ahead)
        case facts.InterruptBegun(sessions, reason):
            yield protocol.InterruptAsked(at_ms, sessions[0], reason)
        case facts.CancelBegun(sessions, reason, status):
            yield protocol.StopAsked(at_ms, sessions[0], reason, status)
        case (
            facts.CronJobSaved() | facts.CronJobRemoved() | facts.CronSlotClaimed() | facts.CronSlotsSkipped()
        ):
            yield from propose_job_stimuli(state, at_ms, head)


def _spawn(state: TreeState, at_ms: int, head: facts.SessionSpawned) -> TreeStimulus:
    spec = head.spec
    return protocol.SpawnAsked(
        at_ms,
        spec.parent or "",
        spec.kind,
        spec.task,
        spec.via,
        label=spec.label,
        agent=spec.agent,
        result_schema=spec.result_schema,
        budget=spec.budget,
        rules=spec.rules,
        approver=spec.approver,
        owns_channel=spec.owns_channel,
        key=spec.key,
        ttl_s=spec.ttl_s,
        dedicated=spec.dedicated and not state.charter.dedicated,
        asked_by=spec.asked_by,
        stays_open=spec.stays_open,
        settings=spec.settings,
        skills=spec.skills,
        wait=spec.wait,
        workspace="shared" if spec.copy is None else "own",
        copy=spec.copy,
        first_call=spec.first_call,
    )


def _propose_denied(state: TreeState, at_ms: int, head: facts.SpawnDenied, limit: str) -> TreeStimulus:
    """Return a spawn that exceeds the same limit; of a budget, by the same amount."""
    budget = None
    name = limit.removeprefix("budget.")
    session = state.sessions.get(head.parent)
    if name != limit and name in SCALE and session is not None:
        used = (
            state.accounts[payer].used[name] for payer in find_payers(state.accounts, session.account, name)
        )
        wanted = head.used - to_budget_units(name, next(used, 0))
        whole = round(wanted) if SCALE[name] == 1 else wanted
        if name == "sessions":
            whole -= 1
        if whole > 0:
            budget = Budget.model_validate({name: whole})
    return protocol.SpawnAsked(at_ms, head.parent, head.kind, "", "handle", budget=budget)


def _propose_message(
    at_ms: int, head: facts.MessagePassed, ahead: Sequence[TreeFact]
) -> Iterator[TreeStimulus]:
    posted = next((fact.stimulus for fact in ahead[1:3] if isinstance(fact, facts.Posted)), None)
    if isinstance(posted, stimuli.Incoming):
        text = str(json.loads(posted.text).get("message"))
        yield protocol.SendAsked(at_ms, head.session, head.to, text, posted.mode, head.key, posted.asked_by)


def _propose_canvas_action(
    at_ms: int, head: facts.CanvasActed, ahead: Sequence[TreeFact]
) -> Iterator[TreeStimulus]:
    posted = next((fact.stimulus for fact in ahead[1:3] if isinstance(fact, facts.Posted)), None)
    if isinstance(posted, stimuli.Incoming):
        yield protocol.CanvasActionSent(at_ms, head.session, head.key, posted.text)


def _rebuild_decision(
    at_ms: int, head: facts.ApprovalStepRecorded, ahead: Sequence[TreeFact]
) -> TreeStimulus:
    request_id, by, always, surface = head.request_id, head.by, False, ""
    for fact in ahead[1:AHEAD]:
        if isinstance(fact, facts.ApprovalDecided) and fact.request_id == request_id:
            by, surface = fact.by, fact.surface
        elif isinstance(fact, facts.ToolAlwaysAllowed):
            always = True
            break
        elif isinstance(fact, facts.ApprovalStepRecorded) and fact.by == "person":
            break
    by = APPROVER_ERROR if head.by == APPROVER_ERROR else by
    answer = head.answer == "approve"
    return protocol.Decided(at_ms, request_id, answer, always, by, head.reason, surface=surface)


def _from_sessions(  # noqa: C901, PLR0912 - one case for each type
    state: TreeState, reported: Reported, at_ms: int, head: TreeFact, ahead: Sequence[TreeFact]
) -> Iterator[TreeStimulus]:
    """Yield what a session may have reported."""
    match head:
        case facts.ResultHeld(session=session, quiet=quiet):
            yield from _offer(reported, at_ms, session, quiet=quiet)
        case facts.SessionEnded():
            yield from _end(state, reported, at_ms, head, ahead)
        case facts.UsageCharged(session=session, usage=usage):
            yield protocol.UsageReported(at_ms, session, _compute_usage(state, reported, session, usage))
        case facts.SessionTainted(session):
            if session in reported.taints:
                yield FromSession(at_ms, session, reported.taints[session])
        case facts.ApprovalRequested(question=question, precedent=precedent):
            asked = reported.asked.get(question.request_id)
            if asked is not None:
                yield FromSession(at_ms, question.session, asked, precedent=precedent)
        case facts.ApprovalStepRecorded(request_id, session):
            if request_id in reported.returned:
                yield FromSession(at_ms, session, reported.returned[request_id])
        case facts.ClientCallOpened(call):
            if call.call_id in reported.delegated:
                yield FromSession(at_ms, call.session_id, reported.delegated[call.call_id])
        case facts.ClientCallEnded(client_id=client_id):
            waiting = state.client_calls.get(client_id)
            withdrawn = reported.withdrawn.get(client_id)
            if waiting is not None and withdrawn is not None:
                ended = replace(withdrawn.ended, answer_id=head.answer_id, by=head.by, surface=head.surface)
                yield FromSession(at_ms, waiting.session_id, replace(withdrawn, ended=ended))
            yield from _propose_later_end(state, reported, at_ms, ahead)
        case facts.ApprovalDecided(request_id=request_id):
            if request_id in reported.unasked and (request := state.requests.get(request_id)) is not None:
                yield FromSession(at_ms, request.question.session, reported.unasked[request_id])
            yield from _propose_later_end(state, reported, at_ms, ahead)
        case facts.ChannelSaid(session=session):
            for trouble in reported.troubles.get(session, ()):
                yield FromSession(at_ms, session, trouble)
        case facts.Posted(stimulus=stimuli.ChildTroubled(child=child)):
            for trouble in reported.troubles.get(child, ()):
                yield FromSession(at_ms, child, trouble)


def _compute_usage(state: TreeState, reported: Reported, session: str, recorded: Usage) -> Usage:
    """Return what a session has used since it was charged; the recorded value if only rounding differs."""
    known, node = reported.usage.get(session), state.sessions.get(session)
    if known is None or node is None:
        return recorded
    book = state.visions.get(session)
    owed = known - (node.usage if book is None else node.usage - book.usage)
    matches = math.isclose(owed.cost_usd, recorded.cost_usd, abs_tol=1e-9)
    return recorded if matches and replace(owed, cost_usd=recorded.cost_usd) == recorded else owed


def _offer(reported: Reported, at_ms: int, session: str, *, quiet: bool) -> Iterator[TreeStimulus]:
    offered = reported.offers.get(session)
    if offered is not None:
        yield FromSession(at_ms, session, offered, quiet)


def _propose_later_end(
    state: TreeState, reported: Reported, at_ms: int, ahead: Sequence[TreeFact]
) -> Iterator[TreeStimulus]:
    """Yield what may have ended the session whose requests and calls are cancelled first."""
    ended = next((fact for fact in ahead[:AHEAD] if isinstance(fact, facts.SessionEnded)), None)
    if ended is not None:
        yield from _end(state, reported, at_ms, ended, ahead)


def _end(
    state: TreeState, reported: Reported, at_ms: int, ended: facts.SessionEnded, ahead: Sequence[TreeFact]
) -> Iterator[TreeStimulus]:
    _, found, reason = ended.result.summary.partition(_CRASHED)
    if ended.forced and found:
        yield protocol.SessionLost(at_ms, ended.session, reason)
    yield from _offer(reported, at_ms, ended.session, quiet=True)
    # Or the program stops a session above it; those that only stayed open for the program complete first.
    stop = next((fact for fact in ahead[:AHEAD] if isinstance(fact, facts.CancelBegun)), None)
    if stop is not None:
        yield protocol.StopAsked(at_ms, stop.sessions[0], stop.reason, stop.status)
    for link in state.list_chain(ended.session):
        for status in (SessionStatus.CANCELLED, SessionStatus.COMPLETED):
            yield protocol.StopAsked(at_ms, link.spec.session_id, "", status)
