"""Calls the creating program answers: which wait, how the others ended. Their sessions decide all that."""

from __future__ import annotations

from sessiontree.contracts.tree_facts import ClientCallClosed, ClientCallOpened, SessionStirred
from sessiontree.tree.closing import CANCELLED
from sessiontree.tree.draft import Draft
from sessiontree.tree.stimuli import ClientCallDelegated, ClientCallWithdrawn


def delegate(draft: Draft, delegated: ClientCallDelegated) -> None:
    """Owe a live session's call to the program; one whose id is known changes nothing."""
    state = draft.state
    name = delegated.client_id
    session = state.live_session(delegated.session)
    if session is None or name in state.client_calls or name in state.client_ends:
        return
    draft.write(
        ClientCallOpened(
            name, delegated.session, delegated.tool, delegated.arguments, delegated.expires_at_ms
        )
    )
    if session.stop is not None:
        draft.write(ClientCallClosed(name, CANCELLED, ""))


def withdraw(draft: Draft, withdrawn: ClientCallWithdrawn) -> None:
    """Owe a call no more; its session goes on, so that a last word it had given counts no more."""
    state = draft.state
    call = state.client_calls.get(withdrawn.client_id)
    if call is None:
        return
    draft.write(ClientCallClosed(withdrawn.client_id, withdrawn.how, withdrawn.answer_id))
    session = state.live_session(call.session)
    if session is not None and session.held is not None and session.stop is None:
        draft.write(SessionStirred(call.session))
