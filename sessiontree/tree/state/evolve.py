"""How facts change the state: ``evolve`` applies recorded facts, a ``Draft`` those of a decision in progress.

Neither holds a rule or refuses anything. A fact about an unknown session, request or post is applied as far
as possible.

Long because each kind of fact is applied here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from sessiontree.contracts.facts.stimuli import ApproverAsked
from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.facts.tree_facts import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalStepRecorded,
    ApprovalWaiting,
    BudgetSpent,
    CancelBegun,
    CanvasActed,
    CanvasChanged,
    ChangesKept,
    ChangesSettled,
    ChannelSaid,
    ClientCallEnded,
    ClientCallOpened,
    CronJobRemoved,
    CronJobSaved,
    CronSlotClaimed,
    CronSlotsSkipped,
    DecisionRefused,
    DenialLifted,
    DigestDenied,
    InterruptBegun,
    LeftoversEnded,
    MessagePassed,
    OutsideHookFailed,
    Posted,
    PostsTaken,
    ResultAwaited,
    ResultHeld,
    SessionAdopted,
    SessionEnded,
    SessionReactivated,
    SessionSpawned,
    SessionTainted,
    SpawnDenied,
    ToolAlwaysAllowed,
    TreeCreated,
    TreeFact,
    TreeForked,
    UsageCharged,
    VisionAnswered,
)
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.recorded.client_calls import ClientCall
from sessiontree.contracts.recorded.codec import Recorded
from sessiontree.contracts.settings.settings import MINUTE_MS
from sessiontree.contracts.values.messages import NOTHING_USED
from sessiontree.tree.state.budgets import convert_usage, count, open_account
from sessiontree.tree.state.canvas_state import CanvasState, change_state
from sessiontree.tree.state.job_facts import claim_slot, remove_job, save_job, skip_slots
from sessiontree.tree.state.protocol import Deliver, TreeInstruction
from sessiontree.tree.state.state import (
    MAX_VISION_ANSWERS,
    Alarm,
    AlarmKind,
    Alarms,
    ClosedCall,
    Mail,
    Post,
    Request,
    Session,
    Stop,
    TreeState,
    VisionAnswers,
)


def evolve(state: TreeState, fact: TreeFact) -> TreeState:
    """Apply one fact.

    The function owns the given state: it changes it in place and returns it. Amortised O(depth of the
    session + length of the fact), independent of the size of the tree.
    """
    _BOOKS[type(fact)](state, fact)
    return state


def compute_allowed_tools(config: TreeConfig) -> dict[tuple[str, SessionKind], frozenset[str]]:
    """Return the tools that sessions may hold at most, by agent and kind."""
    by_kind = {kind: {row.name for row in config.tools if kind in row.kinds} for kind in SessionKind}
    removed = () if config.policy is None else config.policy.removed
    gone = {(each.agent, each.kind): each.tools for each in removed}
    return {
        (agent.name, kind): frozenset(
            names if agent.tools is None else names.intersection(agent.tools)
        ).difference(gone.get((agent.name, kind), ()))
        for agent in reversed(config.agents)
        for kind, names in by_kind.items()
    }


def set_session_alarms(state: TreeState, session: Session) -> None:
    """Set every alarm of a live session again."""
    spec = session.spec
    account = state.accounts.get(spec.session_id)
    if session.expires_at_ms is not None:
        _set_life(state, session, session.expires_at_ms)
    if account is not None and account.wall_at_ms is not None:
        state.alarms.set(Alarm(account.wall_at_ms, AlarmKind.WALL, spec.depth, spec.session_id))
    if session.stop is not None:
        _set_force(state, session, session.stop.force_at_ms)


def set_request_alarm(state: TreeState, request: Request) -> None:
    """Set the alarm of an open request."""
    state.alarms.set(Alarm(request.expires_at_ms, AlarmKind.APPROVAL, 0, request.question.request_id))


def index_request(state: TreeState, request: Request) -> None:
    """Add an open request to the table and to every index."""
    question, call = request.question, request.question.call
    state.requests.put(question.request_id, request)
    state.open_requests += 1
    state.requests_of.add(question.session, question.request_id)
    state.requests_for.add(call.tool, question.request_id)
    state.requests_like.add(call.digest, question.request_id)
    asker = state.sessions.open(question.session)
    if asker is not None:
        asker.pending += 1


def index_client_call(state: TreeState, call: ClientCall) -> None:
    """Add a call that waits for the program to the table, and count it."""
    state.client_calls.put(call.call_id, call)
    session = state.sessions.open(call.session_id)
    if session is not None:
        session.delegated += 1


def index_live(state: TreeState, session: Session) -> None:
    """Add a live session to every index and to its ancestors' counts."""
    spec = session.spec
    state.live += 1
    if spec.parent is None:
        return
    state.children.add(spec.parent, spec.session_id)
    if spec.label is not None:
        state.labels.put((spec.parent, spec.label), spec.session_id)
    parent = state.sessions.open(spec.parent)
    if parent is not None:
        parent.live_children += 1
    _count_below(state, session, 1)


def _count_below(state: TreeState, session: Session, step: int) -> None:
    above = session.spec.parent
    while above is not None:
        ancestor = state.sessions.open(above)
        if ancestor is None:
            return
        ancestor.live_below += step
        above = ancestor.spec.parent


def _set_life(state: TreeState, session: Session, expires_at_ms: int) -> None:
    spec = session.spec
    state.alarms.set(Alarm(expires_at_ms, AlarmKind.LIFE, spec.depth, spec.session_id))


def _set_force(state: TreeState, session: Session, force_at_ms: int) -> None:
    spec = session.spec
    state.alarms.set(Alarm(force_at_ms, AlarmKind.FORCE, -spec.depth, spec.session_id))


def _sweep(state: TreeState) -> None:
    # A live session has at most three alarms; an open request has one.
    state.alarms.sweep(state.is_still_valid, 3 * state.live + state.open_requests)


def _on_created(state: TreeState, fact: TreeCreated) -> None:
    state.config = fact.config
    state.allowed = compute_allowed_tools(fact.config)
    state.now_ms = max(state.now_ms, fact.config.created_at_ms)


def _on_forked(state: TreeState, fact: TreeForked) -> None:
    state.config = fact.config
    state.now_ms = max(state.now_ms, fact.at_ms)
    state.alarms = Alarms()
    live = [name for name, session in state.sessions.items() if session.is_live]
    for name in live:
        session, account = state.sessions.open(name), state.accounts.open(name)
        if session is None:
            continue
        session.spawned_at_ms += fact.shift_ms
        if session.expires_at_ms is not None:
            session.expires_at_ms += fact.shift_ms
        if session.stop is not None:
            session.stop = session.stop._replace(force_at_ms=session.stop.force_at_ms + fact.shift_ms)
        if account is not None and account.wall_at_ms is not None:
            account.wall_at_ms += fact.shift_ms
        set_session_alarms(state, session)
    for request in state.requests.values():
        set_request_alarm(state, request)


def _on_spawned(state: TreeState, fact: SessionSpawned) -> None:
    spec = fact.spec
    state.now_ms = max(state.now_ms, fact.at_ms)
    session = Session(spec, fact.account, fact.at_ms, taint=spec.taint)
    parent = None if spec.parent is None else state.sessions.open(spec.parent)
    above = None
    if parent is not None:
        above = state.accounts.get(parent.account)
        if spec.kind is SessionKind.BRANCH:
            parent.branches = fact.number
        else:
            parent.workers = fact.number
        count(state.accounts, parent.account, "sessions", 1)
        if spec.via == "model":
            session.joined = parent.batch
            parent.reporting[parent.batch] = parent.reporting.get(parent.batch, 0) + 1
    if fact.account == spec.session_id and spec.budget is not None:
        account = open_account(spec.session_id, spec.budget, above, fact.at_ms)
        state.accounts.put(spec.session_id, account)
        if above is not None:
            for name, cap in account.caps.items():
                count(state.accounts, above.session, name, cap)
    state.sessions.put(spec.session_id, session)
    state.total += 1
    if spec.parent is not None and spec.key is not None:
        state.keys.put((spec.parent, spec.key), spec.session_id)
    index_live(state, session)
    set_session_alarms(state, session)


def _on_adopted(state: TreeState, fact: SessionAdopted) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    session = state.sessions.open(fact.session)
    if session is not None:
        session.expires_at_ms = fact.expires_at_ms
        _set_life(state, session, fact.expires_at_ms)


def _on_tainted(state: TreeState, fact: SessionTainted) -> None:
    session = state.sessions.open(fact.session)
    if session is not None:
        session.taint = fact.source


def _on_stirred(state: TreeState, fact: SessionReactivated) -> None:
    session = state.sessions.open(fact.session)
    if session is not None:
        session.held = None
        session.status = SessionStatus.ACTIVE


def _on_awaited(state: TreeState, fact: ResultAwaited) -> None:
    session = state.sessions.open(fact.session)
    if session is not None:
        session.is_awaited = True


def _on_held(state: TreeState, fact: ResultHeld) -> None:
    session = state.sessions.open(fact.session)
    if session is not None:
        if session.held is None:
            session.batch += 1
        session.held = fact.result
        session.is_quiet = fact.quiet
        session.status = SessionStatus.SUSPENDED


def _on_ended(state: TreeState, fact: SessionEnded) -> None:
    if fact.charged is not None:
        _on_charged(state, fact.charged)
    _end(state, fact)
    if fact.report is not None:
        _on_posted(state, fact.report)


def _end(state: TreeState, fact: SessionEnded) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    session = state.sessions.open(fact.session)
    if session is None or not session.is_live:
        return
    session.status = fact.status
    session.result = fact.result
    if session.usage == fact.result.usage:
        session.usage = fact.result.usage  # one value, for as long as the tree is open
    session.was_forced = fact.forced
    session.ended_at_ms = fact.at_ms
    session.held = None
    session.owed = 0
    for post_id in state.owed_to.list_members(fact.session):
        _forget_post(state, fact.session, post_id)
    state.canvases.drop(fact.session)
    book = state.visions.get(fact.session)
    if book is not None:
        state.visions.put(fact.session, VisionAnswers((), book.usage))
    _unindex_live(state, session)
    _close_account(state, fact.session)
    _sweep(state)


def _on_leftovers_ended(state: TreeState, fact: LeftoversEnded) -> None:
    session = state.sessions.open(fact.session)
    if session is not None:
        session.leftovers += fact.count


def _unindex_live(state: TreeState, session: Session) -> None:
    spec = session.spec
    state.live -= 1
    if spec.parent is None:
        return
    state.children.discard(spec.parent, spec.session_id)
    if spec.label is not None:
        state.labels.drop((spec.parent, spec.label))
    parent = state.sessions.open(spec.parent)
    if parent is not None:
        parent.live_children -= 1
        if spec.via == "model":
            left = parent.reporting.pop(session.joined, 0) - 1
            if left > 0:
                parent.reporting[session.joined] = left
    _count_below(state, session, -1)


def _close_account(state: TreeState, session: str) -> None:
    account = state.accounts.open(session)
    if account is None:
        return
    account.is_closed = True
    if account.above is not None:
        # The whole cap was reserved at the spawn: the rest goes back, and what was overdrawn is charged.
        for name, cap in account.caps.items():
            count(state.accounts, account.above, name, account.used[name] - cap)


def _on_requested(state: TreeState, fact: ApprovalRequested) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    request = Request(fact.question, fact.expires_at_ms, precedent=fact.precedent)
    index_request(state, request)
    set_request_alarm(state, request)


def _on_waiting(state: TreeState, fact: ApprovalWaiting) -> None:
    request = state.requests.open(fact.request_id)
    if request is not None:
        request.rests_at = fact.session
        request.how = fact.how


def _on_decided(state: TreeState, fact: ApprovalDecided) -> None:
    request = state.requests.get(fact.request_id)
    state.decisions.put(fact.request_id, fact.decision)
    if request is None:
        return
    state.requests.drop(fact.request_id)
    state.open_requests -= 1
    question, call = request.question, request.question.call
    state.requests_of.discard(question.session, fact.request_id)
    state.requests_for.discard(call.tool, fact.request_id)
    state.requests_like.discard(call.digest, fact.request_id)
    asker = state.sessions.open(question.session)
    if asker is not None:
        asker.pending -= 1
    _sweep(state)


def _digest_denied(state: TreeState, fact: DigestDenied) -> None:
    for session in fact.sessions:
        state.denied.put((fact.digest, session), True)
    if fact.request_id:
        state.denials.put(fact.request_id, fact)


def _on_denial_lifted(state: TreeState, fact: DenialLifted) -> None:
    lifted = state.denials.get(fact.request_id)
    if lifted is None:
        return
    state.denials.drop(fact.request_id)
    for session in lifted.sessions:
        state.denied.drop((lifted.digest, session))


def _on_always_allowed(state: TreeState, fact: ToolAlwaysAllowed) -> None:
    if fact.covers is None:
        state.always.put(fact.tool, True)
        return
    for shape in fact.covers:
        state.always.put(f"{fact.tool}: {shape}", True)


def _on_client_call_opened(state: TreeState, fact: ClientCallOpened) -> None:
    index_client_call(state, fact.call)


def _on_client_call_closed(state: TreeState, fact: ClientCallEnded) -> None:
    call = state.client_calls.get(fact.client_id)
    state.client_ends.put(fact.client_id, ClosedCall(fact.how, fact.answer_id))
    if call is None:
        return
    state.client_calls.drop(fact.client_id)
    session = state.sessions.open(call.session_id)
    if session is not None:
        session.delegated -= 1


def _on_posted(state: TreeState, fact: Posted) -> None:
    mail = cast("Mail", fact.stimulus)
    state.now_ms = max(state.now_ms, mail.at_ms)
    state.posts.put(fact.post_id, Post(fact.session, mail))
    state.owed_to.add(fact.session, fact.post_id)
    session = state.sessions.open(fact.session)
    if session is not None:
        session.posted += 1
        session.owed += 1


def _on_taken(state: TreeState, fact: PostsTaken) -> None:
    session = state.sessions.open(fact.session)
    for post_id in fact.post_ids:
        _forget_post(state, fact.session, post_id)
    if session is not None:
        session.owed -= len(fact.post_ids)


def _forget_post(state: TreeState, session: str, post_id: str) -> None:
    state.posts.drop(post_id)
    state.owed_to.discard(session, post_id)


def _on_charged(state: TreeState, fact: UsageCharged) -> None:
    for name, amount in convert_usage(fact.usage).items():
        count(state.accounts, fact.account, name, amount)
    session = state.sessions.open(fact.session)
    if session is not None:
        session.usage += fact.usage


def _on_cancelling(state: TreeState, fact: CancelBegun) -> None:
    stop = Stop(fact.status, fact.reason, fact.force_at_ms, fact.cause)
    for name in fact.sessions:
        session = state.sessions.open(name)
        if session is not None:
            session.stop = stop
            _set_force(state, session, fact.force_at_ms)


def _on_passed(state: TreeState, fact: MessagePassed) -> None:
    state.sent.put((fact.session, fact.key), fact.to)
    _on_said(state, fact)


def _on_said(state: TreeState, fact: ChannelSaid | MessagePassed) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    session = state.sessions.open(fact.session)
    if session is None or all(policy.per_minute is None for policy in state.charter.messages):
        return
    recent = [at_ms for at_ms in session.said_at_ms if at_ms > fact.at_ms - MINUTE_MS]
    session.said_at_ms = (*recent, fact.at_ms)


def _on_kept(state: TreeState, fact: ChangesKept) -> None:
    state.changes.put(fact.session, fact)


def _on_settled(state: TreeState, fact: ChangesSettled) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    state.settled.put(fact.session, fact.state)


def _on_canvas_changed(state: TreeState, fact: CanvasChanged) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    if state.find_live_session(fact.session) is not None:
        canvas = state.canvases.get(fact.session) or CanvasState()
        state.canvases.put(fact.session, change_state(canvas, fact.action, fact.content).add_key(fact.key))


def _on_canvas_acted(state: TreeState, fact: CanvasActed) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    canvas = state.canvases.get(fact.session)
    if canvas is not None:
        state.canvases.put(fact.session, canvas.add_key(fact.key))


def _on_vision_answered(state: TreeState, fact: VisionAnswered) -> None:
    state.now_ms = max(state.now_ms, fact.at_ms)
    book = state.visions.get(fact.session) or VisionAnswers((), NOTHING_USED)
    answers = (*book.answers, fact)[-MAX_VISION_ANSWERS:]
    if state.find_live_session(fact.session) is None:
        answers = ()
    state.visions.put(fact.session, VisionAnswers(answers, book.usage + fact.usage))


def _ignore_fact(_state: TreeState, _fact: TreeFact) -> None:
    """Change nothing: no rule depends on the fact. It is there for readers of the journal."""


_BOOKS: Mapping[type[Any], Callable[[TreeState, Any], None]] = {
    TreeCreated: _on_created,
    TreeForked: _on_forked,
    SessionSpawned: _on_spawned,
    SessionAdopted: _on_adopted,
    SpawnDenied: _ignore_fact,
    SessionReactivated: _on_stirred,
    SessionTainted: _on_tainted,
    ResultHeld: _on_held,
    ResultAwaited: _on_awaited,
    SessionEnded: _on_ended,
    LeftoversEnded: _on_leftovers_ended,
    ApprovalRequested: _on_requested,
    ApprovalStepRecorded: _ignore_fact,
    ApprovalWaiting: _on_waiting,
    ApprovalDecided: _on_decided,
    DenialLifted: _on_denial_lifted,
    DigestDenied: _digest_denied,
    DecisionRefused: _ignore_fact,
    ToolAlwaysAllowed: _on_always_allowed,
    ClientCallOpened: _on_client_call_opened,
    ClientCallEnded: _on_client_call_closed,
    Posted: _on_posted,
    PostsTaken: _on_taken,
    UsageCharged: _on_charged,
    BudgetSpent: _ignore_fact,
    ChannelSaid: _on_said,
    MessagePassed: _on_passed,
    CanvasChanged: _on_canvas_changed,
    CanvasActed: _on_canvas_acted,
    VisionAnswered: _on_vision_answered,
    OutsideHookFailed: _ignore_fact,
    ChangesKept: _on_kept,
    ChangesSettled: _on_settled,
    CancelBegun: _on_cancelling,
    InterruptBegun: _ignore_fact,
    CronJobSaved: save_job,
    CronJobRemoved: remove_job,
    CronSlotClaimed: claim_slot,
    CronSlotsSkipped: skip_slots,
}


def make_next_post_id(session: Session) -> str:
    """Return the id of the next post to a session."""
    return f"{session.spec.session_id}#{session.posted + 1}"


class Draft:
    """The facts and instructions of one stimulus.

    Rules read ``state``, which includes every fact written here.

    Args:
        state: The state before the stimulus; it is read, never changed.
        at_ms: The stimulus's time.
    """

    __slots__ = ("_instructions", "facts", "now_ms", "state")

    def __init__(self, state: TreeState, at_ms: int) -> None:
        """Start a layer over the state. Clocks may step back; the tree's time does not."""
        self.state = state.make_layer()
        self.now_ms = max(state.now_ms, at_ms)
        self.facts: list[TreeFact] = []
        self._instructions: list[TreeInstruction] = []

    def write(self, fact: TreeFact) -> None:
        """Add a fact; the state includes it at once."""
        self.facts.append(fact)
        evolve(self.state, fact)

    def tell(self, instruction: TreeInstruction) -> None:
        """Add an instruction, to be carried out after those before it."""
        self._instructions.append(instruction)

    def post(self, session: str, mail_of: Callable[[str], Mail]) -> None:
        """Post something to a session if it is live.

        Posted input withdraws the result that the session had offered. There are two exceptions: an approval
        question, which a session answers in addition to its own work, and any post to a stopping session.

        Args:
            session: The session.
            mail_of: Makes the stimulus from the id of its post.
        """
        owed = self.state.find_live_session(session)
        if owed is None:
            return
        post_id = make_next_post_id(owed)
        # The stimulus carries the id of its own post, so the id must be known first.
        mail = mail_of(post_id)
        # Before the post: a reader of the journal sees why the session works again.
        if owed.held is not None and owed.stop is None and not isinstance(mail, ApproverAsked):
            self.write(SessionReactivated(session))
        self.write(Posted(post_id, session, cast("Recorded", mail)))
        self.tell(Deliver(session, post_id, mail))

    def instructions(self) -> list[TreeInstruction]:
        """Return the instructions, without deliveries to sessions that have ended since."""
        posts = self.state.posts
        return [
            instruction
            for instruction in self._instructions
            if not isinstance(instruction, Deliver) or instruction.post_id in posts
        ]
