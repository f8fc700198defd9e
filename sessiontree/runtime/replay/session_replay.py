"""Replay of a session: which stimulus led to its next fact, and what its rules make of that again.

Stimuli are not journaled by themselves. What came from outside (messages, replies, results, answers, times)
is in the facts that they led to, so it is read from there; everything else in these facts is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sessiontree.contracts.facts import session_facts as facts
from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import SessionFact
from sessiontree.contracts.facts.stimuli import Stimulus, TreeEvent
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.approvals import CheckedCall, RejectedCall
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.session_ids import SessionIds
from sessiontree.session import instructions as todo
from sessiontree.session.compaction import reply_to_refuse, reply_to_summarise
from sessiontree.session.decide import find_given_parts
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState
from sessiontree.session.turns import MAX_RETRY_AFTER_S, compute_backoff_ms, keep_valid_instructions
from sessiontree.tree.state.state import Mail

Posts: TypeAlias = Mapping[str, tuple[str, Mail]]
"""By the id of a post, the session it was posted to, and the stimulus."""
React: TypeAlias = Callable[[SessionState, Stimulus], tuple[list[SessionFact], list[todo.SessionInstruction]]]
Mark: TypeAlias = tuple[int, dict[str, tuple[int, facts.CallIntended]], list[SessionFact] | None]
_AHEAD = 32
"""How many facts after the next one may show a part of the stimulus that led to it."""


class SessionReplay:
    """One session during a replay.

    Args:
        make: Makes its initial state.
        rules: The session machine.
    """

    def __init__(self, make: Callable[[], SessionState], rules: React) -> None:
        self._react = rules
        self._ids: SessionIds | None = None
        self._make = make
        self.state: SessionState = make()
        self._facts: list[SessionFact] = []
        self._early: dict[str, tuple[int, facts.CallIntended]] = {}
        """Intents that were written with the approval; the session's host learns of them by the answer."""

    def use_ids(self, key: str) -> None:
        """Make ids with this key from now on; a fork has another one than the tree that it is of."""
        if self.state.ids.key != key:
            self._ids = self.state.ids = SessionIds(self.state.spec.session_id, key)

    def take_early(self, fact: SessionFact) -> bool:
        """Take an intent that was written together with the approval of its call; False = it is not one."""
        if not isinstance(fact, facts.CallIntended):
            return False
        call = self.state.calls.get(fact.call.key)
        if call is None or call.phase != "asking" or call.checked != fact.call:
            return False
        self._early[fact.call.key] = (len(self._facts), fact)
        return True

    def expect(self, stimulus: Stimulus) -> tuple[list[SessionFact], list[TreeEvent]]:
        """Return the facts that a stimulus leads to, and what the tree hears; the state includes them."""
        if isinstance(stimulus, stimuli.Recovered):
            self._take_all_early()
        early = None
        if isinstance(stimulus, stimuli.ApprovalAnswered) and stimulus.decision == "approved":
            early = next((key for key in self._early if self._has_request(key, stimulus.request_id)), None)
            stimulus = replace(stimulus, intended=early is not None)
        made, told = self._react(self.state, stimulus)
        self._facts += made
        if early is not None:
            del self._early[early]
            made = [fact for fact in made if not isinstance(fact, facts.CallIntended)]
        events = [
            each.event for each in keep_valid_instructions(told, self.state) if isinstance(each, todo.ToTree)
        ]
        return made, events

    def mark(self) -> Mark:
        """Return the present point, for :meth:`back`."""
        # Early intents may be put between the facts; then their number alone does not lead back.
        return len(self._facts), dict(self._early), list(self._facts) if self._early else None

    def return_to(self, mark: Mark) -> None:
        """Return to an earlier point. O(length of the session)."""
        count, early, own = mark
        self._early = dict(early)
        self._facts = self._facts[:count] if own is None else list(own)
        self._rebuild()

    def _has_request(self, key: str, request_id: str) -> bool:
        call = self.state.calls.get(key)
        return call is not None and call.request_id == request_id

    def _take_all_early(self) -> None:
        # The host that learned of them by the answer is gone; another one read all facts in their order.
        if self._early:
            for at, fact in sorted(self._early.values(), key=lambda each: each[0], reverse=True):
                self._facts.insert(at, fact)
            self._early.clear()
            self._rebuild()

    def _rebuild(self) -> None:
        self.state = self._make()
        if self._ids is not None:
            self.state.ids = self._ids
        for fact in self._facts:
            evolve(self.state, fact)


def propose_stimuli(
    state: SessionState, posts: Posts, cause: str, at_ms: int, ahead: Sequence[SessionFact]
) -> Iterator[Stimulus]:
    """Yield the stimuli that may have led to a session's next facts, the likeliest first.

    Args:
        state: The session before these facts.
        posts: What the tree posted to sessions so far.
        cause: Id of the stimulus, as recorded.
        at_ms: The recorded time. The stimulus may be a little older.
        ahead: The next facts of the session with this cause.
    """
    head = ahead[0]
    for time_ms in dict.fromkeys((at_ms, *_list_times(ahead))):
        yield from _propose_by_cause(state, posts, cause, time_ms, head, ahead)


def _list_times(ahead: Sequence[SessionFact]) -> Iterator[int]:
    for fact in ahead[:_AHEAD]:
        match fact:
            case facts.MessageReceived(message=message) | facts.ContextCompacted(summary=message):
                yield message.timestamp
            case facts.CallResolved() | facts.CallParked():
                yield fact.message.timestamp
            case facts.ApprovalWanted(at_ms=at_ms) | facts.CallDelegated(at_ms=at_ms):
                yield at_ms


def _propose_by_cause(
    state: SessionState,
    posts: Posts,
    cause: str,
    at_ms: int,
    head: SessionFact,
    ahead: Sequence[SessionFact],
) -> Iterator[Stimulus]:
    source, _, name = cause.partition(":")
    if source == "recovered":
        yield stimuli.Recovered(at_ms)
    elif source == "adopted":
        yield _propose_adopted(state, at_ms, head)
    elif source == "clock":
        yield stimuli.Rang(at_ms)
    elif source == "committed":
        yield stimuli.IntentsCommitted(at_ms, (name,))
    elif source == "forked" and isinstance(head, facts.SessionForked):
        yield stimuli.Forked(head.at_ms, head.shift_ms, head.rewind, head.awaits)
    elif source == "post":
        yield from _propose_posted(state, posts, name, head)
    elif source == "model":
        yield from _rebuild_reply(state, at_ms, head, ahead)
    else:
        yield from _from_outside(state, at_ms, head, ahead, name if source == "call" else "")


def _propose_adopted(state: SessionState, at_ms: int, head: SessionFact) -> Stimulus:
    if isinstance(head, facts.Opened):
        prompt, further = find_given_parts(state.spec, head.tools, head.system_prompt)
        return stimuli.Adopted(at_ms, head.tools, head.model, prompt, further, head.compaction_model)
    named = head if isinstance(head, facts.ModelChanged) else state
    return stimuli.Adopted(at_ms, state.tools, named.model, "", "", named.compaction_model)


def _propose_posted(state: SessionState, posts: Posts, name: str, head: SessionFact) -> Iterator[Stimulus]:
    session, mail = posts.get(name, ("", None))
    if mail is None or session != state.spec.session_id:
        return
    yield mail
    if isinstance(mail, stimuli.Incoming) and isinstance(head, facts.MessageReceived):
        # Hooks may have changed the words of a message; nothing else.
        yield replace(mail, text=head.message.text)
        # Or the next report was there already.
        yield replace(mail, text=head.message.text, followed=True)


def _find_taint(ahead: Sequence[SessionFact]) -> str:
    return next((fact.source for fact in ahead[:_AHEAD] if isinstance(fact, facts.Tainted)), "")


def _rebuild_reply(
    state: SessionState, at_ms: int, head: SessionFact, ahead: Sequence[SessionFact]
) -> Iterator[Stimulus]:
    match head:
        case facts.TurnReplied(turn, message):
            filled = next((fact for fact in ahead[1:3] if isinstance(fact, facts.ContextFilled)), None)
            context = head.context_tokens if filled is None else filled.context_tokens
            for on_length in ("fail", "continue", "accept") if message.stop_reason == "length" else ("fail",):
                yield stimuli.ModelAnswered(at_ms, turn, message, on_length, context)
        case facts.ContextCompacted():
            yield stimuli.ModelAnswered(at_ms, state.turn, reply_to_summarise(head))
        case facts.CompactionFailed(usage=None):
            overflow = head.summary_limit is not None
            yield stimuli.ModelFailed(at_ms, state.turn, head.reason, overflow=overflow)
        case facts.CompactionFailed(usage=usage) if usage is not None:
            yield stimuli.ModelAnswered(at_ms, state.turn, reply_to_refuse(head, usage))
        case facts.TurnFailed():
            yield from _propose_model_failed(state, at_ms, head)


def _propose_model_failed(state: SessionState, at_ms: int, head: facts.TurnFailed) -> Iterator[Stimulus]:
    retry_at_ms = head.retry_at_ms
    might_pass = head.cause == "provider" and not head.is_final
    failed = stimuli.ModelFailed(
        at_ms,
        head.turn,
        head.reason,
        head.said,
        retryable=retry_at_ms is not None or might_pass,
        overflow=head.overflow,
        cause=head.cause,
        account=head.account,
        raised=head.raised,
    )
    yield failed
    if retry_at_ms is None and might_pass:
        # The attempts were not used up: the provider asked for a wait that is too long.
        yield replace(failed, retry_after_s=2 * MAX_RETRY_AFTER_S)
    if retry_at_ms is not None:
        # The provider asked for a longer wait; half a millisecond less, because the wait is rounded up.
        yield replace(failed, retry_after_s=(retry_at_ms - at_ms - 0.5) / 1000)
        yield replace(failed, at_ms=retry_at_ms - compute_backoff_ms(state, head.turn))


def _from_outside(  # noqa: C901, PLR0912 - one case for each type
    state: SessionState, at_ms: int, head: SessionFact, ahead: Sequence[SessionFact], key: str
) -> Iterator[Stimulus]:
    match head:
        case facts.MessageReceived(message=message):
            yield stimuli.Incoming(
                message.timestamp,
                head.message_id,
                message.text,
                "steer" if head.steer else "follow_up",
                message.origin,
                head.asked_by,
                _find_taint(ahead),
                head.settings,
                tuple(block for block in message.content if isinstance(block, ImageContent)),
                joins=message.origin == "notice" and not head.wakes,
            )
        case facts.JobStarted():
            yield stimuli.JobBegan(at_ms, head)
        case facts.JobEnded():
            yield stimuli.JobOver(at_ms, head)
        case facts.CallOpened():
            yield stimuli.CallAsked(at_ms, head.call_id, head.tool, head.arguments)
        case facts.CallHeld(key=key):
            call = state.calls.get(key)
            if call is not None:
                held = CheckedCall(
                    key, call.tool, call.call.arguments, "", int(PermissionTier.WORKSPACE), False
                )
                yield stimuli.CallPrepared(at_ms, held, needs_approval=False)
        case facts.CallIntended(call=checked):
            yield stimuli.CallPrepared(at_ms, checked, needs_approval=False)
        case facts.ApprovalWanted(call=checked):
            yield stimuli.CallPrepared(at_ms, checked, needs_approval=True)
        case facts.CallDelegated():
            yield stimuli.CallHandedOver(
                head.at_ms, head.client_id, head.call, head.expires_at_ms, head.to_person, head.input
            )
        case facts.InputGiven(key=key):
            call = state.calls.get(key)
            if call is not None:
                given = ToolResult({"answers": list(head.input.answers)})
                answer = ClientAnswer(given, by=head.by, surface=head.surface)
                yield stimuli.ClientAnswered(at_ms, call.client_id, "", answer)
        case facts.ArgumentsRejected():
            yield stimuli.CallRejected(at_ms, _rebuild_rejected(head, ahead))
        case facts.Tainted() | facts.CallResolved():
            yield from _propose_finish(state, at_ms, ahead, key)
        case facts.ProgramStarted():
            yield stimuli.ProgramBegan(head.at_ms, head.call, head.source)
        case facts.ProgramAdvanced():
            yield from _rebuild_said(state, at_ms, head)
        case facts.ChildAwaited():
            yield stimuli.CallFinished(at_ms, head.key, "ok", head.message)
        case facts.HookFailed():
            yield stimuli.HookErrorReported(at_ms, head)
        case facts.ApproverReplied():
            yield stimuli.ApproverAnswered(at_ms, head)


def _rebuild_rejected(head: facts.ArgumentsRejected, ahead: Sequence[SessionFact]) -> RejectedCall:
    """Return the call as it was rejected; the tool's schema is in the result."""
    schema: dict[str, Any] = {}
    answer = next((fact for fact in ahead[1:3] if isinstance(fact, facts.CallResolved)), None)
    if answer is not None:
        schema = _find_schema(answer)
    return RejectedCall(head.key, head.tool, head.reason, head.field, head.digest, schema)


def _find_schema(answer: facts.CallResolved) -> dict[str, Any]:
    try:
        said = parse_json(answer.message.text)
    except ValueError:
        return {}
    schema = said.get("schema") if isinstance(said, dict) else None
    return schema if isinstance(schema, dict) else {}


def _rebuild_said(state: SessionState, at_ms: int, head: facts.ProgramAdvanced) -> Iterator[Stimulus]:
    call = state.calls.get(head.key)
    if call is not None and (program := call.program) is not None:
        yield stimuli.ProgramSaid(
            head.at_ms or at_ms,
            head.key,
            len(program.asked),
            head.calls,
            program.notes,
            head.notes,
            head.withdrawn,
        )


def _propose_finish(
    state: SessionState, at_ms: int, ahead: Sequence[SessionFact], key: str
) -> Iterator[Stimulus]:
    own = state.calls.get(key)
    # The end of a program first ends the calls that it did not wait for.
    near = ahead if own is not None and own.program is not None else ahead[:2]
    results = [fact for fact in near if isinstance(fact, facts.CallResolved)]
    ended = next((fact for fact in results if fact.key == key), results[0] if results else None)
    if ended is None:
        return
    call = state.calls.get(ended.key)
    if call is not None and ended.outcome == "pending":
        same = [each for each in state.calls.values() if each.phase == "asking"]
        for other in same:
            checked = replace(other.final, key=ended.key)
            yield stimuli.CallPrepared(at_ms, checked, needs_approval=True)
        return
    message = ended.message if call is None else replace(ended.message, tool_call_id=call.call.id)
    untrusted = isinstance(ahead[0], facts.Tainted) or ended.untrusted
    yield stimuli.CallFinished(
        at_ms,
        ended.key,
        ended.outcome,
        message,
        ended.artifacts,
        untrusted=untrusted,
        is_json=ended.is_json,
    )
