"""A tool whose call asks a person in the middle, as often as its arguments say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.questions import QuestionItem
from sessiontree.contracts.recorded.results import ToolResult, json_result
from sessiontree.contracts.recorded.tool_inputs import InputNeeded
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import RawTool
from sessiontree.contracts.values.jsonable import JsonValue


class AskingTool(RawTool):
    """Asks ``rounds`` questions, one after the other, and returns the answers in their order."""

    name = "book"
    description = "Books a place; asks how."
    tier: ClassVar[PermissionTier] = PermissionTier.WORKSPACE
    parameters: Mapping[str, JsonValue] = {
        "type": "object",
        "properties": {"rounds": {"type": "integer"}},
        "required": ["rounds"],
        "additionalProperties": False,
    }

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        """Ask, or return what was answered."""
        taken: list[JsonValue] = []
        if ctx.answered is not None:
            state: Any = ctx.answered.state
            answers: Any = ctx.answered.answers
            taken = [*state["taken"], *[answer["text"] for answer in answers]]
        if len(taken) == params["rounds"]:
            return json_result({"taken": taken})
        question = QuestionItem(question=f"Part {len(taken) + 1}?")
        raise InputNeeded([question], {"taken": taken, "request_state": "opaque"})
