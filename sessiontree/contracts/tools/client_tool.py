"""Client tools, which the creating program runs: the tools, their calls and the answers.

A call passes the same checks as a call of any other tool. Then it waits for the program, which answers it by
its id; the session's host is free in the meantime. ``api/tree/client_calls.py`` reports the calls to the
program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self, cast

from pydantic import BaseModel

from sessiontree.contracts.errors import ConfigError, ExecutionError, ValidationError
from sessiontree.contracts.kinds import PermissionTier, SessionKind
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.recorded.questions import QuestionsAsked
from sessiontree.contracts.recorded.results import ToolResult, Untrusted, json_result
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.decorator import convert_classes
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, RawTool, Tool, ToolFlag, check_tool
from sessiontree.contracts.values.jsonable import JsonValue, dump_json, to_json_value

MAX_ANSWER_CHARS: Final = 32 * 2**20
"""Maximum length of an answer as JSON, including base64 images."""


def refuse_answer(call_id: str, reason: str, field: str | None = None) -> ValidationError:
    """Return the error of an answer to a call that is not a valid result; the call still waits for one.

    Args:
        call_id: The call.
        reason: What is wrong with the answer, and what is accepted.
        field: JSON pointer of the failing field, or None if the whole answer fails.
    """
    where = f" at {field}" if field else ""
    text = f"the answer to client call {call_id} is refused{where}: {reason}; answer it again"
    return ValidationError(text, field)


def build_answer(call_id: str, value: object) -> ClientAnswer:
    """Return a program's answer ready to send: a ToolResult is kept, anything else becomes JSON.

    Raises:
        ValidationError: the value has no JSON form or is too long.
    """
    try:
        result = value if isinstance(value, ToolResult) else json_result(convert_classes(value))
        answer = ClientAnswer(
            ToolResult(
                to_json_value(result.output),
                result.display,
                tuple(result.artifacts),
                to_json_value(result.details),
                tuple(result.images),
                result.untrusted,
                result.image_limits,
            )
        )
        chars = len(dump_json(answer.to_wire()))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise refuse_answer(call_id, f"it has no JSON form: {error}") from error
    if chars > MAX_ANSWER_CHARS:
        raise refuse_answer(call_id, f"it has {chars:,} characters, at most {MAX_ANSWER_CHARS:,} fit")
    return answer


def answer_failure(call_id: str, message: object) -> ClientAnswer:
    """Return the answer that reports a failed call.

    Raises:
        ValidationError: the message is not text.
    """
    if not isinstance(message, str) or not message.strip():
        raise refuse_answer(call_id, "say why it failed, as text")
    return ClientAnswer(None, message)


DELEGATED: Final = "Tool execution delegated to client"
"""Message in the pending envelope of such a call."""
PERSON_ASKED: Final = "a person was asked; go on with other work, the answer will be reported"
"""Message in the pending envelope of a call that a person answers."""


def is_question_tool(tool: Tool[Any]) -> bool:
    """Return whether a person answers the calls of a tool: its parameters are questions."""
    return isinstance(tool, ClientTool) and getattr(tool, "Params", None) is QuestionsAsked


class ClientTool(Tool[Any]):
    """A tool whose calls the creating program answers.

    Args:
        name: Unique identifier, such as ``ask_user``.
        description: What it does, for the model.
        Params: The parameters' model, or a JSON Schema of an object as a mapping; the program gets arguments
            that fit it.
        tier: Minimum tier of every call; Elevated by default.
        kinds: Kinds of session that may hold it.
        timeout_s: Time limit of one answer, in seconds; None = the tree's ``tool_timeout_s``.
        result_type: Type of an answer: a pydantic model, dataclass, TypedDict, plain type, or a JSON
            Schema as a mapping; None = anything.
        aliases: Other names a model may call it by.
        flags: Other properties, such as ``owner_only``.
        untrusted: Whether answers are text from outside, such as mail; they are put between marks.

    Raises:
        ConfigError: a setting is wrong; the error names it. A JSON Schema is checked when a tree opens.
    """

    result_type: Any
    """Type of an answer; None = anything."""
    declared: Mapping[str, JsonValue] | None = None
    """What the client of a door declared. The journal keeps it, so that the tool can be given again, and the
    tool hides others of its name in that tree. None = it is a program's own tool."""

    def __new__(cls, *given: Any, Params: object = None, **settings: Any) -> Self:  # noqa: N803 - as below
        """Create the subclass that suits the form of the parameters."""
        declared = given[2] if len(given) > 2 else Params
        is_schema = cls is ClientTool and isinstance(declared, Mapping)
        return super().__new__(cast("type[Self]", _ClientSchemaTool) if is_schema else cls)

    def __init__(  # noqa: PLR0913 - each is one thing a tool declares
        self,
        name: str,
        description: str,
        Params: type[BaseModel] | Mapping[str, JsonValue],  # noqa: N803 - as the class variable is called
        *,
        tier: PermissionTier = PermissionTier.ELEVATED,
        kinds: Iterable[SessionKind] = MAIN_AND_BRANCH,
        timeout_s: float | None = None,
        result_type: Any = None,
        aliases: Iterable[str] = (),
        flags: Iterable[ToolFlag] = (),
        untrusted: Untrusted = False,
    ) -> None:
        declared: Mapping[str, Any] = {
            "name": name,
            "description": description,
            **({"parameters": dict(Params)} if isinstance(Params, Mapping) else {"Params": Params}),
            "tier": tier,
            "kinds": frozenset(kinds),
            "timeout_s": timeout_s,
            "result_type": result_type,
            "aliases": tuple(aliases),
            "flags": frozenset(flags),
            "untrusted": untrusted,
            # Handing a call over again is safe: it is reported only once it is durable.
            "idempotent": True,
        }
        vars(self).update(declared)
        if timeout_s is not None and not 0 < timeout_s < math.inf:
            raise ConfigError(
                f"tool {name!r}: timeout_s is {timeout_s}; it must be a number above 0 seconds, or None for "
                "the tree's tool_timeout_s"
            )
        check_tool(self)

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        """Raise an error: a runtime hands the call to the program instead.

        Raises:
            ExecutionError: always.
        """
        raise ExecutionError(f"{self.name} is run by the program that opened the tree, not in a session")


class _ClientSchemaTool(ClientTool, RawTool):
    """A client tool whose parameters are a JSON Schema."""
