"""The system prompt: what a session is told about itself, made from the tools that survived its rights.

Source: ADR-0004, "the system prompt is generated from the same declarations as the dispatcher".
"""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.spec import SessionSpec
from sessiontree.contracts.stimuli import ToolCard

_ROLES = {
    SessionKind.MAIN: (
        "You are the Main session: you talk to a person and answer for the whole tree. "
        "Hand larger parts of the work to Branch sessions and pure reading to Worker sessions."
    ),
    SessionKind.BRANCH: (
        "You are a Branch session, working on behalf of your parent. Do the task you were given; "
        "your last reply without tool calls is your report to the parent."
    ),
    SessionKind.WORKER: (
        "You are a Worker session: you read and report, you cannot change anything and have no children. "
        "Your last reply without tool calls is your report to the parent."
    ),
}


def system_prompt(spec: SessionSpec, prompt: str, tools: Sequence[ToolCard]) -> str:
    """Return the system prompt of a session; deterministic, tools in the order given."""
    parts = [prompt, _ROLES[spec.kind], f"Your session is {spec.session_id} at depth {spec.depth}."]
    if tools:
        parts.append("Tools you hold:\n" + "\n".join(map(_line_of, tools)))
    else:
        parts.append("You hold no tools.")
    if spec.result_schema is not None:
        parts.append(
            "Your last reply must be one JSON value that fits the schema your parent gave, and nothing else."
        )
    return "\n\n".join(part for part in parts if part)


def unlisted(prompt: str, tools: Sequence[ToolCard]) -> str:
    """Return a system prompt that does not list these of its tools."""
    for tool in tools:
        prompt = prompt.replace("\n" + _line_of(tool), "")
    return prompt


def _line_of(tool: ToolCard) -> str:
    return f"- {tool.name}: {tool.description.splitlines()[0]}"
