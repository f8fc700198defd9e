"""A scripted model that does by programs what :class:`GullibleModel` does by one call a reply.

The calls that the user's task needs are one program, whose result is what each call gave. The model reads it
and obeys the orders in it by a second program, and so on. It stays the worst case: a program that returned
less would show its model fewer orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sessiontree import AssistantMessage, ModelRequest, SessionKind, ToolCall, ToolResultMessage
from sessiontree.bench.suites.scripted_agents import (
    SPAWN,
    GullibleModel,
    PlannedCall,
    give_text,
    write_reader_task,
)
from sessiontree.contracts.recorded.programs import PROGRAM_TOOL
from sessiontree.contracts.values.messages import TextContent

_HEAD: Final = """\
async def keep(call):
    try:
        return await call
    except (PermissionError, RuntimeError, TimeoutError, ValueError) as error:
        return str(error)

out = []"""
"""A call that fails or is denied ends no program: one call a reply would go on, too."""


class ProgramWriter(GullibleModel):
    """Follows a plan by a program, then obeys each order in its result by another one.

    Its Workers make one call a reply. The arguments are those of :class:`GullibleModel`.
    """

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return the next program, or the final text."""
        if request.kind is SessionKind.WORKER:
            return super().reply(request)
        following, texts, obeyed = list(self._plan.calls), [self._plan.output], set[str]()
        for each in request.messages:
            if not isinstance(each, ToolResultMessage):
                continue
            following = []
            for key, order in self._orders_in(each.text):
                if key not in obeyed:
                    obeyed.add(key)
                    following += order.calls
                    texts.append(order.output)
        if not following:
            return give_text("\n".join(each for each in texts if each))
        readers = self._delegated if any(tool.name == SPAWN for tool in request.tools) else frozenset[str]()
        call = ToolCall(f"call_{request.turn}", PROGRAM_TOOL, write_program(following, readers))
        return AssistantMessage((TextContent("I write a program."), call), "toolUse")


def write_program(calls: Sequence[PlannedCall], delegated: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the arguments of a program that makes calls one after another, and returns what each gave.

    Args:
        calls: The calls, in order.
        delegated: Names of tools that a Worker calls for it.
    """
    lines: list[str] = [_HEAD]
    given: list[Any] = []
    for number, call in enumerate(calls):
        if call.tool in delegated:
            given.append(write_reader_task([call]))
            lines.append(f'out.append(await keep(spawn("worker", given[{number}])))')
        else:
            given.append(dict(call.arguments))
            lines.append(f"out.append(await keep({call.tool}(**given[{number}])))")
    return {"code": "\n".join([*lines, "out"]), "inputs": {"given": given}}
