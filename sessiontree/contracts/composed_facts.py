"""Composed facts: how the journal holds facts that always follow one another as one fact.

The machines decide on single facts. Before facts are journaled, :func:`composed` puts those that follow at
once into the fact before them, in the members that its class declares for them: the first message and turn
of a session are in its ``opened``, the end of a run is in the reply that ends it, and so on. Nothing is left
out, and :func:`parts_of` gives the single facts again. A composed fact changes a state as its parts do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from sessiontree.contracts.session_facts import (
    CallResolved,
    MessageReceived,
    Opened,
    RunFinished,
    TurnReplied,
    TurnStarted,
)
from sessiontree.contracts.tree_facts import Posted, SessionEnded, UsageCharged

Join: TypeAlias = Callable[[Any, Any], Any]
"""Takes two facts in their order; returns one that holds both, or None if they do not belong together."""
Split: TypeAlias = Callable[[Any], tuple[Any, ...]]
"""Takes a fact; returns the single facts that it holds, in their order."""


def composed(facts: Sequence[Any]) -> Sequence[Any]:
    """Return facts as they are journaled; all of them have one cause and one time.

    Facts that are journaled as they are stay the same objects. A sequence without others is returned itself.
    """
    if len(facts) < 2:
        return facts
    whole = [facts[0]]
    for fact in facts[1:]:
        join = _JOINS.get((type(whole[-1]), type(fact)))
        both = None if join is None else join(whole[-1], fact)
        if both is None:
            whole.append(fact)
        else:
            whole[-1] = both
    return whole


def parts_of(fact: Any) -> tuple[Any, ...]:
    """Return the single facts that a fact holds, in their order; a single fact itself."""
    split = _SPLITS.get(type(fact))
    return (fact,) if split is None else split(fact)


def _opened_with_task(fact: Opened, task: MessageReceived) -> Opened | None:
    if fact.task is not None or fact.turn is not None or task.turn is not None:
        return None
    return Opened(fact.system_prompt, fact.tools, fact.model, fact.compaction_model, task)


def _opened_with_turn(fact: Opened, turn: TurnStarted) -> Opened | None:
    if fact.turn is not None:
        return None
    return Opened(fact.system_prompt, fact.tools, fact.model, fact.compaction_model, fact.task, turn)


def _message_with_turn(fact: MessageReceived, turn: TurnStarted) -> MessageReceived | None:
    return None if fact.turn is not None else _message(fact, turn)


def _message(fact: MessageReceived, turn: TurnStarted | None) -> MessageReceived:
    return MessageReceived(
        fact.message_id, fact.message, fact.steer, fact.wakes, fact.asked_by, fact.settings, turn
    )


def _reply_with_end(fact: TurnReplied, finished: RunFinished) -> TurnReplied | None:
    return None if fact.finished is not None else TurnReplied(fact.turn, fact.message, finished)


def _call_with_turn(fact: CallResolved, turn: TurnStarted) -> CallResolved | None:
    return None if fact.turn is not None else _call(fact, turn)


def _call(fact: CallResolved, turn: TurnStarted | None) -> CallResolved:
    return CallResolved(fact.key, fact.outcome, fact.message, fact.artifacts, fact.resets, turn)


def _charge_with_end(charged: UsageCharged, fact: SessionEnded) -> SessionEnded | None:
    if charged.session != fact.session or fact.charged is not None:
        return None
    return _end(fact, charged, fact.report)


def _end_with_report(fact: SessionEnded, report: Posted) -> SessionEnded | None:
    is_parents = report.session == fact.session.rpartition("/")[0]
    return _end(fact, fact.charged, report) if is_parents and fact.report is None else None


def _end(fact: SessionEnded, charged: UsageCharged | None, report: Posted | None) -> SessionEnded:
    return SessionEnded(fact.session, fact.status, fact.result, fact.at_ms, fact.forced, charged, report)


_JOINS: Final[Mapping[tuple[type[Any], type[Any]], Join]] = {
    (Opened, MessageReceived): _opened_with_task,
    (Opened, TurnStarted): _opened_with_turn,
    (MessageReceived, TurnStarted): _message_with_turn,
    (TurnReplied, RunFinished): _reply_with_end,
    (CallResolved, TurnStarted): _call_with_turn,
    (UsageCharged, SessionEnded): _charge_with_end,
    (SessionEnded, Posted): _end_with_report,
}
"""By the classes of two facts that may be one."""


def _parts_of_opened(fact: Opened) -> tuple[Any, ...]:
    if fact.task is None and fact.turn is None:
        return (fact,)
    single = Opened(fact.system_prompt, fact.tools, fact.model, fact.compaction_model)
    task = () if fact.task is None else _parts_of_message(fact.task)
    return (single, *task) if fact.turn is None else (single, *task, fact.turn)


def _parts_of_message(fact: MessageReceived) -> tuple[Any, ...]:
    return (fact,) if fact.turn is None else (_message(fact, None), fact.turn)


def _parts_of_reply(fact: TurnReplied) -> tuple[Any, ...]:
    return (fact,) if fact.finished is None else (TurnReplied(fact.turn, fact.message), fact.finished)


def _parts_of_call(fact: CallResolved) -> tuple[Any, ...]:
    return (fact,) if fact.turn is None else (_call(fact, None), fact.turn)


def _parts_of_end(fact: SessionEnded) -> tuple[Any, ...]:
    if fact.charged is None and fact.report is None:
        return (fact,)
    before = () if fact.charged is None else (fact.charged,)
    after = () if fact.report is None else (fact.report,)
    return (*before, _end(fact, None, None), *after)


_SPLITS: Final[Mapping[type[Any], Split]] = {
    Opened: _parts_of_opened,
    MessageReceived: _parts_of_message,
    TurnReplied: _parts_of_reply,
    CallResolved: _parts_of_call,
    SessionEnded: _parts_of_end,
}
"""By the class of a fact that may hold others."""
