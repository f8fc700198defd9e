"""Models that start commands in the background, and find their ids again."""

from __future__ import annotations

import re
from collections.abc import Callable

from sessiontree import FunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.models.answers import Answer

JOB = re.compile(r"job-[0-9a-f]{6}")


def job_of(request: ModelRequest) -> str:
    """Return the id of the job that a conversation names first."""
    return next(found[0] for message in request.messages if (found := JOB.search(text_of(message))))


def text_of(message: object) -> str:
    """Return the words of a message for the model."""
    return message.text if isinstance(message, UserMessage | ToolResultMessage) else ""


def steps(*answers: Callable[[ModelRequest], Answer] | Answer) -> FunctionModel:
    """Return a model whose answer to its nth question is the nth of these."""

    def answer(request: ModelRequest) -> Answer:
        given = answers[request.turn - 1]
        return given(request) if callable(given) else given

    return FunctionModel(answer)


def process(action: str, **arguments: JsonValue) -> Callable[[ModelRequest], Answer]:
    """Return a call of ``process`` on the first job of the conversation."""
    return lambda request: script_call("process", action=action, job_id=job_of(request), **arguments)
