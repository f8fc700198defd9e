"""Values: what the supervisor answers, as plain JSON and back; recorded values by the journal's codec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.contracts.client_call import ClientCall
from sessiontree.contracts.codec import from_wire, to_wire
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.limits import Limits
from sessiontree.contracts.messages import ToolResultMessage, message_from_wire
from sessiontree.contracts.ports import SessionReport
from sessiontree.contracts.usage import Usage
from sessiontree.journal.record import Record
from sessiontree.runtime.replies import CallReply, Reply
from sessiontree.runtime.session_reports import ActorRow
from sessiontree.runtime.supervisor_api import SessionRecord
from sessiontree.tree.receipt import ReceiptLine


def report_to_wire(report: SessionReport) -> dict[str, Any]:
    """Return a session's standing under the names of its members."""
    wire = _members(report)
    return {
        **wire,
        "kind": report.kind.value,
        "status": report.status.value,
        "usage": report.usage.to_wire(),
        "children": list(report.children),
        "budget_left": dict(report.budget_left),
    }


def report_from_wire(wire: Mapping[str, Any]) -> SessionReport:
    """Return the standing of a wire object."""
    return SessionReport(
        **{
            **wire,
            "kind": SessionKind(wire["kind"]),
            "status": SessionStatus(wire["status"]),
            "usage": Usage.from_wire(wire["usage"]),
            "children": tuple(wire["children"]),
        }
    )


def request_to_wire(request: ApprovalRequest) -> dict[str, Any]:
    """Return an approval request under the names of its members, its arguments complete."""
    asked_by = [to_wire(asker) for asker in request.asked_by]
    return {**_members(request), "arguments": dict(request.arguments), "asked_by": asked_by}


def request_from_wire(wire: Mapping[str, Any]) -> ApprovalRequest:
    """Return the approval request of a wire object."""
    covers = wire["covers"]
    asked_by = tuple(from_wire(asker) for asker in wire["asked_by"])
    return ApprovalRequest(
        **{**wire, "covers": None if covers is None else tuple(covers), "asked_by": asked_by}
    )


def client_call_to_wire(call: ClientCall) -> dict[str, Any]:
    """Return a call that waits for the creating program under the names of its members."""
    return {**_members(call), "arguments": dict(call.arguments)}


def client_call_from_wire(wire: Mapping[str, Any]) -> ClientCall:
    """Return the call of a wire object."""
    return ClientCall(**wire)


def line_to_wire(line: ReceiptLine) -> list[Any]:
    """Return a line of a receipt: session, kind, status, whether it was forced, last words and so on."""
    return [*line[:1], line.kind.value, line.status.value, *line[3:-1], line.usage.to_wire()]


def line_from_wire(wire: list[Any]) -> ReceiptLine:
    """Return the line of a receipt."""
    session, kind, status, forced, summary, leftovers, usage = wire
    how = (SessionKind(kind), SessionStatus(status), forced)
    return ReceiptLine(session, *how, summary, leftovers, Usage.from_wire(usage))


def record_to_wire(record: Record) -> list[Any]:
    """Return a fact: number, session, cause, time, text."""
    return [record.seq, record.session, record.cause, record.at_ms, record.text]


def record_from_wire(wire: list[Any]) -> Record:
    """Return the fact."""
    return Record(*wire)


def history_to_wire(record: SessionRecord) -> dict[str, Any]:
    """Return what a session's facts are read with; the facts travel beside it."""
    limits = record.limits.model_dump(mode="json")
    return {"spec": to_wire(record.spec), "limits": limits, "next_seq": record.next_seq}


def history_from_wire(wire: Mapping[str, Any], facts: list[Any]) -> SessionRecord:
    """Return a session's durable facts and what they are read with."""
    limits = Limits.model_validate(wire["limits"])
    return SessionRecord(from_wire(wire["spec"]), limits, tuple(facts), int(wire.get("next_seq", 0)))


def reply_to_wire(reply: Reply) -> list[Any]:
    """Return the last word for a message, why there is none, and whether the session was interrupted."""
    return [reply.text, reply.error, reply.interrupted]


def reply_from_wire(wire: list[Any]) -> Reply:
    """Return the last word for a message."""
    return Reply(*wire)


def call_to_wire(reply: CallReply) -> dict[str, Any]:
    """Return the result of a call asked from outside."""
    return {"outcome": reply.outcome, "message": reply.message.to_wire()}


def call_from_wire(wire: Mapping[str, Any]) -> CallReply:
    """Return the result of a call.

    Raises:
        ValueError: its message is no tool's.
    """
    message = message_from_wire(wire["message"])
    if not isinstance(message, ToolResultMessage):
        raise ValueError("the result of a call is no tool's message")
    return CallReply(wire["outcome"], message)


def actor_to_wire(actor: ActorRow) -> dict[str, Any]:
    """Return a process of the runtime under the names of its members."""
    return _members(actor)


def actor_from_wire(wire: Mapping[str, Any]) -> ActorRow:
    """Return the process of a wire object."""
    return ActorRow(**wire)


def security_from_wire(wire: Mapping[str, Any] | None) -> dict[str, JsonValue] | None:
    """Return what protects a runtime's engine.

    Raises:
        TypeError, ValueError: it is no object.
    """
    return None if wire is None else dict(wire)


def _members(value: Any) -> dict[str, Any]:
    return {member.name: getattr(value, member.name) for member in fields(value)}
