"""Questions and replies of a model that calls tools through a JSON Schema: its endpoint ignores tools.

The question to the endpoint has no tools. Its ``result_schema`` is the schema that the endpoint must hold the
reply to (``response_format``), its system prompt describes the form of a reply, and earlier calls and results
are text. Not here: the schema and the form of a reply (``schema.constrained``).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ProviderForm,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.models.port import CallPiece, ModelRequest, Piece, StopPiece, ToolSpec
from sessiontree.schema.constrained import (
    ARGUMENTS,
    REPLY,
    RESULT,
    TOOL,
    ConstrainedCall,
    ConstrainedTool,
    ReplyDecoder,
    read_reply,
    reply_schema,
    shape,
)

MAX_DESCRIPTION_CHARS: Final = 80
"""Maximum length of a tool's description in the prompt."""


Ask: TypeAlias = Callable[[ModelRequest], AsyncGenerator[Piece]]
"""Asks an endpoint that holds the reply to the request's ``result_schema``."""


async def stream_constrained(ask: Ask, request: ModelRequest) -> AsyncGenerator[Piece]:
    """Yield the pieces of a reply to a question that may have tools; it calls at most one of them.

    The text of a plain reply is yielded as it arrives; a call or a result is yielded as a whole.

    Raises:
        ModelError: as ``ask``.
    """
    reader = ReplyReader() if _choose_tools(request) else None
    pieces = ask(constrain_request(request))
    try:
        async for piece in pieces:
            if isinstance(piece, ProviderForm):
                continue  # a replay is not the conversation that the endpoint is shown again
            if reader is None or not isinstance(piece, str | StopPiece):
                yield piece
            elif isinstance(piece, str):
                for text in reader.take(piece):
                    yield text
            else:
                for each in reader.end():
                    yield each
                reader = None
                yield piece
    finally:
        # A caller may stop reading, and the endpoint would go on making a reply that nobody reads.
        await pieces.aclose()
    if reader is not None:
        for each in reader.end():
            yield each


class ReplyReader:
    """Converts a constrained reply's JSON to pieces while it arrives."""

    def __init__(self) -> None:
        self._decoder = ReplyDecoder()
        self._parts: list[str] = []

    def take(self, text: str) -> Iterator[str]:
        """Yield the text of a plain reply that a new piece adds."""
        self._parts.append(text)
        yield from self._decoder.take(text)

    def end(self) -> Iterator[Piece]:
        """Yield everything that was not yielded before; call it once."""
        if self._decoder.is_reply:
            return
        found = read_reply("".join(self._parts))
        if isinstance(found, ConstrainedCall):
            yield CallPiece(found.arguments, index=0, name=found.name, ends=True)
        elif found:
            yield found


def constrain_request(request: ModelRequest) -> ModelRequest:
    """Return the question for the endpoint: without tools, with the schema of its reply.

    Contract: pure; if the conversation was only extended, the question is only extended.
    """
    chosen = _choose_tools(request)
    must_call = bool(chosen) and request.settings.tool_choice not in {None, "auto"}
    tools = [ConstrainedTool(tool.name, tool.parameters) for tool in chosen]
    form = _form(chosen, request.result_schema, must_call=must_call)
    return replace(
        request,
        system_prompt="\n\n".join(part for part in (request.system_prompt, form) if part),
        tools=(),
        messages=constrain_messages(request.messages, has_tools=bool(tools)),
        result_schema=reply_schema(tools, request.result_schema, must_call=must_call),
        # The schema carries the choice, and the endpoint is shown no tools that a choice could name.
        settings=request.settings.model_copy(update={"tool_choice": None}),
    )


def _choose_tools(request: ModelRequest) -> Sequence[ToolSpec]:
    """Return the tools that the reply may call."""
    choice = request.settings.tool_choice
    if choice in {None, "auto", "required"}:
        return request.tools
    return [tool for tool in request.tools if tool.name == choice]


def _form(tools: Sequence[ToolSpec], result: Mapping[str, JsonValue] | None, *, must_call: bool) -> str:
    """Return the required form of a reply, in words; empty if any text is valid."""
    if not tools:
        return "" if result is None else f"Answer with this JSON and nothing else: {shape(result)}"
    final = f'{{"{REPLY}": "your answer"}}' if result is None else f'{{"{RESULT}": {shape(result)}}}'
    lines = [
        "Answer with one JSON object and nothing else.",
        *([] if must_call else [f"To answer: {final}"]),
        f'To call a tool: {{"{TOOL}": "its name", "{ARGUMENTS}": {{…}}}}. The tools:',
        *map(_describe_tool, tools),
        *([] if must_call else [f"Call a tool only if you need it. Else answer with {final}."]),
    ]
    return "\n".join(lines)


def _describe_tool(tool: ToolSpec) -> str:
    said = tool.description.strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    if len(said) > MAX_DESCRIPTION_CHARS:
        said = f"{said[:MAX_DESCRIPTION_CHARS]}…"
    return f"{tool.name} {shape(tool.parameters)}" + (f": {said}" if said else "")


def constrain_messages(messages: Sequence[Message], *, has_tools: bool) -> list[Message]:
    """Return a conversation whose calls and results are text, in the form of replies.

    Neighbouring messages of one role are merged, because many templates of local models require alternating
    roles. Without tools a reply's text does not change.
    """
    found: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            lines = [line for block in message.content if (line := _format_line(block, has_tools=has_tools))]
            if not lines:
                continue
            found.append(replace(message, content=(TextContent("\n".join(lines)),), replay=None))
        elif isinstance(message, ToolResultMessage):
            said = "failed" if message.is_error else "gave"
            head = TextContent(f"The tool {message.tool_name} {said}:")
            found.append(UserMessage((head, *message.content), message.timestamp, "notice"))
        else:
            found.append(message)
    return _merge_messages(found)


def _format_line(block: object, *, has_tools: bool) -> str:
    if isinstance(block, TextContent):
        return dump_readable({REPLY: block.text}) if block.text and has_tools else block.text
    if isinstance(block, ToolCall):
        arguments = dict(block.arguments) if block.unread is None else block.unread
        return dump_readable({TOOL: block.name, ARGUMENTS: arguments})
    return ""


def _merge_messages(messages: list[Message]) -> list[Message]:
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else None
        if isinstance(message, UserMessage) and isinstance(last, UserMessage):
            found[-1] = replace(last, content=_join_texts((*last.content, *message.content)))
        elif isinstance(message, UserMessage):
            found.append(replace(message, content=_join_texts(message.content)))
        else:
            found.append(message)
    return found


def _join_texts(content: Sequence[TextContent | ImageContent]) -> tuple[TextContent | ImageContent, ...]:
    """Return the blocks with adjacent texts joined."""
    blocks: list[TextContent | ImageContent] = []
    for block in content:
        last = blocks[-1] if blocks else None
        if isinstance(block, TextContent) and isinstance(last, TextContent):
            blocks[-1] = TextContent(f"{last.text}\n{block.text}")
        else:
            blocks.append(block)
    return tuple(blocks)
