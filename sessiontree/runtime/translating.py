"""What sessions want of the tree machine, as stimuli for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sessiontree.contracts.approvals import Precedent
from sessiontree.policy.commands.verdict import precedent_of
from sessiontree.runtime.seat import Seat
from sessiontree.sandbox.program_finder import program_finder
from sessiontree.session import instructions as session_todo
from sessiontree.tree import stimuli as tree_stimuli
from sessiontree.tree.stimuli import TreeStimulus


def _offered(seat: Seat, instruction: session_todo.OfferResult, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ResultOffered(
        at_ms, seat.session, instruction.result, seat.quiet and not instruction.stays
    )


def _asked(seat: Seat, instruction: session_todo.AskApproval, at_ms: int) -> TreeStimulus:
    if instruction.intent is not None:
        seat.asked[instruction.request_id] = instruction.intent
    return tree_stimuli.ApprovalAsked(
        at_ms,
        seat.session,
        instruction.request_id,
        instruction.key,
        instruction.tool,
        instruction.arguments,
        instruction.digest,
        instruction.tier,
        _precedent(seat, instruction),
        instruction.asked_by,
    )


def _precedent(seat: Seat, instruction: session_todo.AskApproval) -> Precedent | None:
    config = seat.keeper.config
    member = next((row.command_in for row in config.tools if row.name == instruction.tool), "")
    if not member:
        return None
    return precedent_of(instruction.arguments, member, program_finder(os.path.realpath(config.workspace)))


def _delegated(seat: Seat, instruction: session_todo.DelegateCall, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ClientCallDelegated(
        at_ms,
        seat.session,
        instruction.client_id,
        instruction.tool,
        instruction.arguments,
        instruction.expires_at_ms,
    )


def _withdrawn(seat: Seat, instruction: session_todo.WithdrawCall, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ClientCallWithdrawn(
        at_ms, seat.session, instruction.client_id, instruction.how, instruction.answer_id
    )


def _returned(seat: Seat, instruction: session_todo.ReturnAnswer, at_ms: int) -> TreeStimulus:
    return tree_stimuli.ApproverReturned(
        at_ms, seat.session, instruction.request_id, instruction.answer, instruction.reason
    )


def _troubled(seat: Seat, instruction: session_todo.ReportTrouble, at_ms: int) -> TreeStimulus:
    return tree_stimuli.TroubleReported(
        at_ms,
        seat.session,
        instruction.tool,
        instruction.attempts,
        instruction.field,
        instruction.message,
    )


def _tainted(seat: Seat, instruction: session_todo.ReportTaint, at_ms: int) -> TreeStimulus:
    return tree_stimuli.TaintReported(at_ms, seat.session, instruction.source)


TO_TREE: dict[type[Any], Callable[[Seat, Any, int], TreeStimulus]] = {
    session_todo.OfferResult: _offered,
    session_todo.AskApproval: _asked,
    session_todo.DelegateCall: _delegated,
    session_todo.WithdrawCall: _withdrawn,
    session_todo.ReturnAnswer: _returned,
    session_todo.ReportTrouble: _troubled,
    session_todo.ReportTaint: _tainted,
}
"""By type of instruction; others are carried out where the session is kept."""
