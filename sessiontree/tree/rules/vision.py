"""Answers of image models: each is kept once and charged once, so a repeated call asks nothing again."""

from __future__ import annotations

from dataclasses import replace

from sessiontree.contracts.facts.tree_facts import VisionAnswered
from sessiontree.tree.rules.lifecycle import charge, correct_usage
from sessiontree.tree.state.evolve import Draft
from sessiontree.tree.state.protocol import UsageReported, VisionReported
from sessiontree.tree.state.state import TreeState


def keep_answer(draft: Draft, reported: VisionReported) -> None:
    """Keep an answer and charge it to the session, even after its end; a repeated report changes nothing."""
    # The usage comes from a provider and the time from the host; the tree trusts neither.
    answered = replace(reported.answered, usage=correct_usage(reported.answered.usage), at_ms=draft.now_ms)
    if answered.session not in draft.state.sessions:
        return
    if find_answer(draft.state, answered.session, answered.key) is None:
        draft.write(answered)
        charge(draft, UsageReported(draft.now_ms, answered.session, answered.usage))


def find_answer(state: TreeState, session: str, key: str) -> VisionAnswered | None:
    """Return a kept answer by its session and key; those of ended sessions are not kept."""
    book = state.visions.get(session)
    answers = () if book is None else book.answers
    return next((each for each in answers if each.key == key), None)
