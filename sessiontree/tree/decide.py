"""What the tree machine decides on each stimulus: the facts it writes, and the instructions that follow."""

from __future__ import annotations

from typing import assert_never

from sessiontree.contracts.facts.rewind import ReplacedChild
from sessiontree.contracts.facts.stimuli import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    ApproverAsked,
    ApproverReturned,
    ChildWithdrawn,
    ClientCallDelegated,
    ClientCallWithdrawn,
    ResultOffered,
    TaintReported,
    TroubleReported,
)
from sessiontree.contracts.facts.tree_facts import (
    ClientCallEnded,
    ClientCallOpened,
    LeftoversEnded,
    PostsTaken,
    SessionReactivated,
    TreeFact,
    TreeForked,
)
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.values.session_ids import MAIN
from sessiontree.tree.rules.approvals import (
    CANCELLED,
    ask,
    close,
    hear_function,
    hear_person,
    lift_denial,
    withdraw_request,
)
from sessiontree.tree.rules.canvas import act_on_canvas, change_canvas
from sessiontree.tree.rules.child_changes import keep_changes, settle_changes
from sessiontree.tree.rules.cron import change_job, pause_forked, ring_jobs
from sessiontree.tree.rules.lifecycle import (
    charge,
    interrupt,
    lose,
    offer,
    report_trouble,
    ring,
    stir,
    stop,
    taint,
    take,
    want_result,
    withdraw_child,
)
from sessiontree.tree.rules.messages import say, send
from sessiontree.tree.rules.spawn import adopt, find_channels, open_tree, spawn
from sessiontree.tree.rules.vision import keep_answer
from sessiontree.tree.state.evolve import Draft, evolve
from sessiontree.tree.state.protocol import (
    CanvasActionSent,
    CanvasAsked,
    ChangesFound,
    ChannelMessageAsked,
    ClockRang,
    Decided,
    ForkAsked,
    FromSession,
    HookFailedOutside,
    InterruptAsked,
    JobAsked,
    JobsRang,
    LeftoversFound,
    LiftAsked,
    PostsConsumed,
    ResultAsked,
    SendAsked,
    SessionEmbodied,
    SessionLost,
    SettleAsked,
    SpawnAsked,
    Stirred,
    StopAsked,
    TreeInstruction,
    TreeOpened,
    TreeStimulus,
    UsageReported,
    VisionReported,
    WakeTreeAt,
)
from sessiontree.tree.state.state import TreeState

_FORKED = "the tree was forked, and the request belongs to the other tree; it is made again"


def delegate(draft: Draft, asker: str, delegated: ClientCallDelegated) -> None:
    """Hand a live session's call over to the creating program, or a question to the nearest channel.

    A call with a known id changes nothing.
    """
    state = draft.state
    name, call = delegated.client_id, delegated.call
    session = state.find_live_session(asker)
    if session is None or name in state.client_calls or name in state.client_ends:
        return
    asked, at_ms = "", 0
    if delegated.to_person:
        shown_by = next(find_channels(state, asker), None)
        asked, at_ms = asker.partition("/")[0] if shown_by is None else shown_by.spec.session_id, draft.now_ms
    arguments = call.arguments if delegated.questions is None else delegated.questions
    waiting = ClientCall(name, asker, call.tool, arguments, delegated.expires_at_ms, asked, at_ms)
    draft.write(ClientCallOpened(waiting))
    if session.stop is not None:
        draft.write(ClientCallEnded(name, CANCELLED, ""))


def withdraw(draft: Draft, ended: ClientCallEnded) -> None:
    """Withdraw a call from the program; a final message that its session has offered no longer counts."""
    state = draft.state
    call = state.client_calls.get(ended.client_id)
    if call is None:
        return
    draft.write(ended)
    session = state.find_live_session(call.session_id)
    if session is not None and session.held is not None and session.stop is None:
        draft.write(SessionReactivated(call.session_id))


def _judge(draft: Draft, stimulus: TreeStimulus) -> None:  # noqa: C901, PLR0912, PLR0915 - one case for each type
    """Apply the rule for a stimulus."""
    match stimulus:
        case FromSession():
            _from_session(draft, stimulus)
        case SpawnAsked():
            spawn(draft, stimulus)
        case PostsConsumed():
            take(draft, stimulus)
        case UsageReported():
            charge(draft, stimulus)
        case SessionEmbodied():
            adopt(draft, stimulus)
        case TreeOpened():
            open_tree(draft, stimulus)
        case ForkAsked():
            _fork(draft, stimulus)
        case Stirred():
            stir(draft, stimulus)
        case ResultAsked():
            want_result(draft, stimulus)
        case SessionLost():
            lose(draft, stimulus)
        case Decided():
            hear_person(draft, stimulus)
        case LiftAsked():
            lift_denial(draft, stimulus)
        case StopAsked():
            stop(draft, stimulus)
        case InterruptAsked():
            interrupt(draft, stimulus)
        case ChannelMessageAsked():
            say(draft, stimulus)
        case SendAsked():
            send(draft, stimulus)
        case CanvasAsked():
            change_canvas(draft, stimulus)
        case CanvasActionSent():
            act_on_canvas(draft, stimulus)
        case HookFailedOutside():
            _note_hook(draft, stimulus)
        case VisionReported():
            keep_answer(draft, stimulus)
        case LeftoversFound():
            _note_leftovers(draft, stimulus)
        case ChangesFound():
            keep_changes(draft, stimulus)
        case SettleAsked():
            settle_changes(draft, stimulus)
        case JobsRang():
            ring_jobs(draft, stimulus)
        case JobAsked():
            change_job(draft, stimulus)
        case ClockRang():
            pass  # everything due by then has already been done
        case _:
            assert_never(stimulus)


def decide(state: TreeState, stimulus: TreeStimulus) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Return the facts and instructions that a stimulus leads to.

    The tree's time is the latest time it has seen. Everything due by then happens first, so a stimulus that
    comes too late finds it done. Stimuli may come in any order and more than once.

    Returns:
        Facts in the order in which to record them, and instructions in the order in which to carry them out
        once the facts are durable. No decision depends on the success of an instruction.

    Raises:
        ConfigError: a tree is opened without an agent.
        ValueError: a result or stop carries a status that no session can end with.

    Contract: pure; never changes the state. The cost depends on the facts, not on the size of the tree.
    """
    draft = Draft(state, stimulus.at_ms)
    if not isinstance(stimulus, ForkAsked):  # what was due before a fork is due later by the time between
        for alarm in state.alarms.list_due(draft.now_ms):
            ring(draft, alarm)
    _judge(draft, stimulus)
    if isinstance(stimulus, ClockRang):
        # A timer may fire early if the clock steps back, so every firing asks for the next time again.
        next_ms = state.alarms.find_next_after(draft.now_ms)
        if next_ms is not None:
            draft.tell(WakeTreeAt(next_ms))
    return draft.facts, draft.instructions()


def react(state: TreeState, stimulus: TreeStimulus) -> tuple[list[TreeFact], list[TreeInstruction]]:
    """Decide on a stimulus and apply its facts to the state, which is changed in place."""
    facts, instructions = decide(state, stimulus)
    for fact in facts:
        evolve(state, fact)
    return facts, instructions


def _fork(draft: Draft, asked: ForkAsked) -> None:
    """Begin a tree of its own: close what the other tree waits for. Its sessions ask again."""
    state = draft.state
    draft.write(TreeForked(asked.config, draft.now_ms, asked.shift_ms, asked.replaced))
    # A list, because closing a request changes the table that is walked.
    for request_id, _ in list(state.requests.items()):
        close(draft, request_id, "cancelled", "fork", _FORKED, tell_asker=False)
    for client_id, _ in list(state.client_calls.items()):
        draft.write(ClientCallEnded(client_id, CANCELLED, ""))
    # Answers on their way name requests of the other tree, and no call of this one waits for them.
    answers: dict[str, list[str]] = {}
    for post_id, post in state.posts.items():
        if isinstance(post.mail, ApprovalAnswered | ApproverAsked):
            answers.setdefault(post.session, []).append(post_id)
    for session, post_ids in answers.items():
        draft.write(PostsTaken(session, tuple(post_ids)))
    pause_forked(draft)
    for each in asked.replaced:
        _replace_child(draft, each)


def _replace_child(draft: Draft, replaced: ReplacedChild) -> None:
    """Start a child as another one was, with a new task; its parent waits for it."""
    spec = draft.state.sessions[replaced.session].spec
    parent = spec.parent or MAIN
    if draft.state.sessions[parent].held is not None:
        draft.write(SessionReactivated(parent))
    asked = SpawnAsked(
        draft.now_ms,
        parent,
        spec.kind,
        replaced.task,
        spec.via,
        label=spec.label,
        agent=spec.agent,
        result_schema=spec.result_schema,
        budget=spec.budget,
        rules=spec.rules,
        approver=spec.approver,
        owns_channel=spec.owns_channel,
        key=replaced.key,
        ttl_s=spec.ttl_s,
        dedicated=spec.dedicated and not draft.state.charter.dedicated,
        asked_by=spec.asked_by,
        settings=spec.settings,
        skills=spec.skills,
        wait=spec.wait,
        workspace="shared",
    )
    spawn(draft, asked)


def _note_hook(draft: Draft, failed: HookFailedOutside) -> None:
    draft.write(failed.failed)


def _note_leftovers(draft: Draft, found: LeftoversFound) -> None:
    if found.session in draft.state.sessions and found.count > 0:
        draft.write(LeftoversEnded(found.session, found.count))


def _from_session(draft: Draft, sent: FromSession) -> None:
    """Handle an event that a session sent."""
    match sent.event:
        case ResultOffered() as offered:
            offer(draft, sent, offered)
        case ApprovalAsked() as asked:
            ask(draft, sent, asked)
        case ApproverReturned(reply):
            hear_function(draft, sent.session, reply)
        case ApprovalWithdrawn(request_id, reason):
            withdraw_request(draft, sent.session, request_id, reason)
        case ChildWithdrawn(key, reason):
            withdraw_child(draft, sent.session, key, reason)
        case ClientCallDelegated() as delegated:
            delegate(draft, sent.session, delegated)
        case ClientCallWithdrawn(ended):
            withdraw(draft, ended)
        case TroubleReported(trouble):
            report_trouble(draft, sent.session, trouble)
        case TaintReported(source):
            taint(draft, sent.session, source)
        case _:
            assert_never(sent.event)
