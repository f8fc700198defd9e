"""What waits for a person, as forms of MCP, and the answers that clients send to them.

A form has fields of simple types alone, so that every client can show it. Its key is the id of the approval
request or the question: it names one request for as long as the journal is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sessiontree.api.tree.inbox import PendingApproval
from sessiontree.api.tree.questions import PendingQuestion
from sessiontree.api.tree.session_tree import SessionTree
from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.questions import MAX_OPTIONS, MAX_TEXT_CHARS, QuestionAnswer, QuestionItem
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.contracts.settings.settings import describe_faults
from sessiontree.contracts.values.jsonable import dump_readable
from sessiontree.contracts.values.quick_dataclass import dataclass

Waiting: TypeAlias = PendingApproval | PendingQuestion
"""A request that waits for a person."""
METHOD: Final = "elicitation/create"
"""What a form is a request for."""


class _Approval(BaseModel):
    """What a person entered in the form of an approval request."""

    # Strict: no text or number that a client sends may count as a yes.
    model_config = ConfigDict(extra="ignore", strict=True)

    confirm: bool
    reason: str = Field(default="", max_length=MAX_TEXT_CHARS)


@dataclass(frozen=True, slots=True)
class FormReply:
    """A client's answer to a form; ``content`` is None unless its person accepted."""

    content: Mapping[str, Any] | None
    is_declined: bool = False


def list_waiting(tree: SessionTree) -> dict[str, Waiting]:
    """Return what waits for a person in a tree, by key, oldest first."""
    waiting: dict[str, Waiting] = {
        f"approval_{each.request.request_id}": each for each in tree.approvals.pending()
    }
    waiting |= {f"question_{each.question.question_id}": each for each in tree.questions.pending()}
    return waiting


def build_form(waiting: Waiting) -> dict[str, Any]:
    """Return the request that a client shows to its person."""
    if isinstance(waiting, PendingApproval):
        message, schema = _format_approval(waiting), _build_approval_schema()
    else:
        message, schema = _format_question(waiting), _build_question_schema(waiting.question.items)
    return {
        "method": METHOD,
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def read_reply(given: object) -> FormReply:
    """Return a client's answer to a form.

    Raises:
        ConfigError: it has no such form.
    """
    action = given.get("action") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or action not in ("accept", "decline", "cancel"):
        raise ConfigError("an answer is an object with an action: accept, decline or cancel")
    content = given.get("content")
    if action == "accept" and not isinstance(content, Mapping):
        raise ConfigError("an answer that accepts has a content: an object")
    return FormReply(content if action == "accept" else None, action == "decline")


async def answer_form(waiting: Waiting, reply: FormReply, sender: Sender) -> None:
    """Answer what waits; durable when this returns. Who dismisses a form leaves it open.

    Who declines denies the call of an approval request; a question stays open.

    Args:
        waiting: The request.
        reply: The answer, which :func:`check_reply` accepts.
        sender: Who answers.

    Raises:
        AnswerTooLate: it was answered, expired, or its session stopped.
        ConfigError: the answer does not fit the form.
        PermissionDenied: the sender does not own the tree.
        ValidationError: the answer does not fit the question, which still waits.
    """
    if isinstance(waiting, PendingQuestion):
        if reply.content is not None:
            answers = _read_answers(waiting.question.items, reply.content)
            await waiting.answer(*answers, sender=sender)
    elif reply.content is not None:
        given = _read_approval(reply.content)
        await (waiting.approve if given.confirm else waiting.deny)(reason=given.reason, sender=sender)
    elif reply.is_declined:
        await waiting.deny("declined", sender=sender)


def check_reply(waiting: Waiting, reply: FormReply) -> None:
    """Check the form of an answer before any of several answers has an effect.

    Raises:
        ConfigError: it does not fit the form.
    """
    if reply.content is None:
        return
    if isinstance(waiting, PendingQuestion):
        _read_answers(waiting.question.items, reply.content)
    else:
        _read_approval(reply.content)


def _read_approval(content: Mapping[str, Any]) -> _Approval:
    try:
        return _Approval.model_validate(dict(content))
    except ValidationError as error:
        raise ConfigError(f"the answer does not fit its form: {describe_faults(error)}") from None


def _format_approval(waiting: PendingApproval) -> str:
    request = waiting.request
    arguments = make_visible(dump_readable(dict(request.arguments)))
    opens = (
        f"\nIt may run files that it does not name: {make_visible(request.opens)}" if request.opens else ""
    )
    return (
        f"Session {request.session_id} asks to call {make_visible(request.tool)} (tier {request.tier}) with "
        f"these arguments:\n{arguments}{opens}"
    )


def _build_approval_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "confirm": {"type": "boolean", "title": "Allow this call"},
            "reason": {"type": "string", "title": "Reason", "maxLength": MAX_TEXT_CHARS},
        },
        "required": ["confirm"],
    }


def _format_question(waiting: PendingQuestion) -> str:
    asked = waiting.question
    lines = (make_visible(item.question) for item in asked.items)
    return f"Session {asked.session_id} asks:\n" + "\n".join(lines)


def _build_question_schema(items: tuple[QuestionItem, ...]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for number, item in enumerate(items, 1):
        title = make_visible(item.header or item.question)
        if item.options:
            chosen = [
                {
                    "const": each.label,
                    "title": make_visible(
                        f"{each.label}: {each.description}" if each.description else each.label
                    ),
                }
                for each in item.options
            ]
            properties[f"choice_{number}"] = (
                {"type": "array", "title": title, "items": {"anyOf": chosen}, "maxItems": len(chosen)}
                if item.multi_select
                else {"type": "string", "title": title, "oneOf": chosen}
            )
        if item.allow_free_text:
            properties[f"text_{number}"] = {"type": "string", "title": title, "maxLength": MAX_TEXT_CHARS}
        if not (item.options and item.allow_free_text):
            required.append(f"choice_{number}" if item.options else f"text_{number}")
    return {"type": "object", "properties": properties, "required": required}


def _read_answers(items: tuple[QuestionItem, ...], content: Mapping[str, Any]) -> list[QuestionAnswer]:
    answers = []
    for number in range(1, len(items) + 1):
        chosen, text = content.get(f"choice_{number}", []), content.get(f"text_{number}", "")
        # A form for one choice gives a text, one for several gives a list.
        labels = [chosen] if isinstance(chosen, str) else chosen
        if (
            not isinstance(labels, list)
            or len(labels) > MAX_OPTIONS
            or not all(isinstance(label, str) for label in labels)
            or not isinstance(text, str)
            or len(text) > MAX_TEXT_CHARS
        ):
            raise ConfigError(f"answer {number} does not fit its form: give labels of options, or a text")
        answers.append(QuestionAnswer(tuple(labels), text))
    return answers
