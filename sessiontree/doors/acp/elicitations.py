"""Questions of a session as forms, and what a form that was filled in answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acp.schema import (
    ElicitationMultiSelectPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    TitledMultiSelectItems,
)

from sessiontree.contracts.recorded.questions import QuestionAnswer, QuestionItem, QuestionReply
from sessiontree.contracts.recorded.senders import Sender


def build_form(items: Sequence[QuestionItem]) -> ElicitationSchema:
    """Return a form with a field for each question, and one for other text where options leave that open."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for number, item in enumerate(items, 1):
        properties[f"answer_{number}"] = _make_field(item)
        if item.options and item.allow_free_text:
            properties[f"text_{number}"] = ElicitationStringPropertySchema(
                type="string", title="Other", description="Your own words, instead or in addition."
            )
        else:
            required.append(f"answer_{number}")
    return ElicitationSchema(properties=properties, required=required or None)


def _make_field(item: QuestionItem) -> Any:
    said: dict[str, Any] = {"title": item.header or item.question, "description": item.question}
    choices = [
        EnumOption(const=option.label, title=option.label, description=option.description or None)
        for option in item.options
    ]
    if not choices:
        return ElicitationStringPropertySchema(type="string", **said)
    if item.multi_select:
        items = TitledMultiSelectItems(any_of=choices)
        return ElicitationMultiSelectPropertySchema(type="array", items=items, **said)
    return ElicitationStringPropertySchema(type="string", one_of=choices, **said)


def read_reply(items: Sequence[QuestionItem], content: Mapping[str, Any], sender: Sender) -> QuestionReply:
    """Return the answers in a form; whether they fit is checked by the tree, which asks again if not."""
    answers = []
    for number, item in enumerate(items, 1):
        given, text = content.get(f"answer_{number}"), content.get(f"text_{number}")
        words = text if isinstance(text, str) else ""
        labels = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        chosen = [label for label in labels if isinstance(label, str) and label]
        if not item.options:
            answers.append(QuestionAnswer(text="\n".join(chosen) or words))
        else:
            answers.append(QuestionAnswer(tuple(chosen), words))
    return QuestionReply(tuple(answers), sender)


def format_questions(items: Sequence[QuestionItem]) -> str:
    """Return questions as a message."""
    lines = []
    for item in items:
        lines.append(item.question)
        lines += [
            f"- {option.label}{f': {option.description}' * bool(option.description)}"
            for option in item.options
        ]
    return "\n".join(lines)
