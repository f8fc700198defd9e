"""What a session had answered already, read from its facts: for a program that asks again after a restart."""

from __future__ import annotations

from collections.abc import Iterable

from sessiontree.contracts.session_facts import CallResolved, Rested
from sessiontree.runtime.replay import fact_of
from sessiontree.runtime.replies import CallReply, Reply


def reply_in(facts: Iterable[str], message_id: str) -> Reply | None:
    """Return the last word for a message, None while there is none."""
    for text in facts:
        if text.startswith('{"kind":"rested"') and message_id in text:
            fact = fact_of(text)
            if isinstance(fact, Rested) and message_id in fact.answers:
                return Reply(fact.text, fact.error, fact.interrupted)
    return None


def call_in(facts: Iterable[str], call_id: str) -> CallReply | None:
    """Return how a call made outside the transcript ended, None while it has not."""
    for text in facts:
        if text.startswith('{"kind":"call_resolved"') and call_id in text:
            fact = fact_of(text)
            if isinstance(fact, CallResolved) and fact.key == f"call.{call_id}":
                return CallReply(fact.outcome, fact.message)
    return None
