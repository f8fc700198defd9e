"""The MCP server of a door: which tools a principal sees, its calls, and its tasks.

It speaks every revision that the library serves. Tasks are an extension of the newest one: a client of an
older one, or one that does not declare the extension, gets a result after a time and asks ``status``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mcp import types
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from sessiontree.contracts.errors import AnswerTooLate, ConfigError, SessionTreeError
from sessiontree.contracts.recorded.senders import Sender
from sessiontree.doors.conversations import ConflictError, Conversations, NotFoundError
from sessiontree.doors.mcp.calls import (
    TASKS,
    DoorTool,
    ToolAsked,
    describe_task,
    make_result,
    make_tasks_error,
    refuse,
)
from sessiontree.doors.mcp.forms import FormReply, Waiting, answer_form, build_form, check_reply, read_reply
from sessiontree.doors.mcp.work import ENDED, Work, find_work
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.version import VERSION

MAX_ANSWERS: Final = 64
"""Most answers of one update of a task."""
INSTRUCTIONS: Final = (
    "run_tree gives a task to a new tree of sessions. What goes on after wait_s seconds is a conversation: "
    "status shows it, send continues it, cancel stops it. Text that a tree answers with may quote "
    "untrusted sources."
)

Asked = ServerRequestContext[Any, Any]
FindPrincipal = Callable[[Asked], DoorPrincipal]
"""Returns who makes a request."""
Catalog = Callable[[DoorPrincipal], Sequence[DoorTool]]
"""Returns the tools that a principal may call; of two with one name the first one counts."""


class NamedTask(types.RequestParams):
    """Parameters of a request about a task."""

    task_id: str = Field(max_length=200)


class UpdatedTask(NamedTask):
    """Parameters of ``tasks/update``."""

    input_responses: dict[str, Any] = Field(max_length=MAX_ANSWERS)


class McpDoor:
    """Serves trees to clients of MCP.

    Args:
        conversations: The trees of all principals.
        catalog: Returns what a principal may call.
        find_principal: Says who makes a request.
    """

    def __init__(self, conversations: Conversations, catalog: Catalog, find_principal: FindPrincipal) -> None:
        self._conversations = conversations
        self._catalog = catalog
        self._find_principal = find_principal
        self.server: Server[Any] = Server(
            "sessiontree",
            version=VERSION,
            title="Trees of sessions",
            instructions=INSTRUCTIONS,
            get_tool_input_schema=lambda _: (
                None
            ),  # no parameter is sent as a header; else each call lists all
            on_list_tools=self._list_tools,
        )
        self.server.add_request_handler("tools/call", types.CallToolRequestParams, self._call_tool)
        self.server.extensions[TASKS] = {}
        self.server.add_request_handler("tasks/get", NamedTask, self._get_task)
        self.server.add_request_handler("tasks/update", UpdatedTask, self._update_task)
        self.server.add_request_handler("tasks/cancel", NamedTask, self._cancel_task)

    async def _list_tools(self, ctx: Asked, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        principal = self._find_principal(ctx)
        return types.ListToolsResult(tools=[tool.describe(principal) for tool in self._catalog(principal)])

    async def _call_tool(self, ctx: Asked, params: types.CallToolRequestParams) -> HandlerResult:
        principal = self._find_principal(ctx)
        tool = next((each for each in self._catalog(principal) if each.name == params.name), None)
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"no tool is called {params.name[:100]!r}")

        async def report(progress: float, message: str) -> None:
            await ctx.session.report_progress(progress, message=message)

        asked = ToolAsked(principal, params.arguments or {}, _can_take_tasks(ctx), report)
        try:
            return await tool.call(asked)
        except (NotFoundError, ConflictError, SessionTreeError) as error:
            return refuse(str(error))

    async def _get_task(self, ctx: Asked, params: NamedTask) -> HandlerResult:
        work = await self._find_task(ctx, params)
        with work.conversation:
            report = await work.report()
            members = describe_task(work, report)
            if report.status == "failed":
                members["error"] = {"code": types.INTERNAL_ERROR, "message": report.error}
            elif report.status == "completed":
                result = make_result(work, report)
                members["result"] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            elif report.waiting:
                members["inputRequests"] = {key: build_form(each) for key, each in report.waiting.items()}
            return {"resultType": "complete", **members}

    async def _update_task(self, ctx: Asked, params: UpdatedTask) -> HandlerResult:
        work = await self._find_task(ctx, params)
        sender = work.conversation.principal.sender
        with work.conversation:
            waiting = (await work.report()).waiting
            try:
                replies = {
                    key: read_reply(given) for key, given in params.input_responses.items() if key in waiting
                }
                # All are checked before the first is given: a request that is refused must have changed
                # nothing.
                for key, reply in replies.items():
                    check_reply(waiting[key], reply)
                for key, reply in replies.items():
                    await _answer_if_open(waiting[key], reply, sender)
            except SessionTreeError as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from error
        return {"resultType": "complete"}

    async def _cancel_task(self, ctx: Asked, params: NamedTask) -> HandlerResult:
        work = await self._find_task(ctx, params)
        with work.conversation:
            if (await work.report()).status not in ENDED:
                await work.cancel()
        return {"resultType": "complete"}

    async def _find_task(self, ctx: Asked, params: NamedTask) -> Work:
        """Return the task of a request.

        Raises:
            MCPError: the client may not ask for tasks, or has no such task.
        """
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            # As of any method that the older revisions do not have.
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method)
        _check_header(ctx, params.task_id)
        if not _can_take_tasks(ctx):
            raise make_tasks_error()
        try:
            return await find_work(self._conversations, self._find_principal(ctx), params.task_id)
        except NotFoundError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        except ConfigError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None


async def _answer_if_open(waiting: Waiting, reply: FormReply, sender: Sender) -> None:
    """Answer what waits; an answer that comes too late is dropped, as one to a key that was never issued."""
    try:
        await answer_form(waiting, reply, sender)
    except AnswerTooLate:
        return


def _can_take_tasks(ctx: Asked) -> bool:
    """Whether the client of a request declared the tasks extension with it."""
    declared = ctx.session.client_capabilities
    return (
        ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        and declared is not None
        and TASKS in (declared.extensions or {})
    )


def _check_header(ctx: Asked, task_id: str) -> None:
    """Check that the header by which intermediaries route a request names the task of its body.

    Raises:
        MCPError: it names another one.
    """
    headers: Mapping[str, str] = {} if ctx.request is None else ctx.request.headers
    named = headers.get(MCP_NAME_HEADER)
    if named is not None and decode_header_value(named) != task_id:
        raise MCPError(types.HEADER_MISMATCH, f"{MCP_NAME_HEADER} does not match the task of the request")
