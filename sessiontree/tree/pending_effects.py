"""What must be carried out again after a recovery, read from the state: nothing is decided anew."""

from __future__ import annotations

from sessiontree.tree.instructions import (
    Deliver,
    ReleaseSession,
    TreeInstruction,
    WakeTreeAt,
)
from sessiontree.tree.state import TreeState


def owed(state: TreeState) -> list[TreeInstruction]:
    """Return every instruction that may not have been carried out, though its facts are durable.

    Returns:
        First the ends of sessions, leaves before what is above them, so that nobody waits for one that
        is over; then what live sessions have not taken, in the order it was posted; last one timer for
        every time something becomes due, earliest first. All of them are harmless when repeated. What
        waits for a person is read from the facts by whoever shows it.
    """
    instructions: list[TreeInstruction] = []
    ended = [
        (session.spec.session_id, session.result, session.was_forced)
        for session in state.sessions.values()
        if session.result is not None
    ]
    instructions += [ReleaseSession(name, result, forced) for name, result, forced in reversed(ended)]
    instructions += [Deliver(post.session, post_id, post.mail) for post_id, post in state.posts.items()]
    bells = {alarm.at_ms for alarm in state.alarms if state.still_means(alarm)}
    instructions += [WakeTreeAt(at_ms) for at_ms in sorted(bells)]
    return instructions
