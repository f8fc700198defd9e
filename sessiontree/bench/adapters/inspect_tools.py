"""Tools of inspect_ai as client tools: sessions call them, and they run where inspect's sample runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, execute_tools
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolDef

from sessiontree import (
    AssistantMessage,
    ClientTool,
    PermissionTier,
    SchemaWarning,
    SessionKind,
    ToolCall,
    ToolResult,
)
from sessiontree.api.client_calls import WaitingCall
from sessiontree.bench.adapters.inspect_messages import images_in

TOOL_TIMEOUT_S: Final = 24 * 3600.0
"""Time limit of one call: inspect limits its samples itself."""
_ALL: Final = tuple(SessionKind)
_ACTING: Final = (SessionKind.MAIN, SessionKind.BRANCH)


@dataclass(frozen=True, slots=True)
class ToolTiers:
    """What is known of a harness's tools, as globs over their names.

    Args:
        read_only: Tools that change nothing: their calls are ReadOnly, and Workers may hold them.
        untrusted: Tools whose results hold text from outside.
    """

    read_only: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()

    def tier_of(self, name: str) -> PermissionTier:
        """Return a tool's tier: ReadOnly, or Workspace, which runs without an approval."""
        return PermissionTier.READ_ONLY if _matches(name, self.read_only) else PermissionTier.WORKSPACE

    def is_untrusted(self, name: str) -> bool:
        """Whether a tool's results hold text from outside."""
        return _matches(name, self.untrusted)


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def client_tools_of(definitions: Sequence[ToolDef], tiers: ToolTiers) -> list[ClientTool]:
    """Return client tools with the names, descriptions and parameters of inspect's tools.

    Raises:
        ConfigError: a name or a schema can't be used.
    """
    found: list[ClientTool] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)  # the harness's author can't be asked to change it
        for each in definitions:
            tier = tiers.tier_of(each.name)
            found.append(
                ClientTool(
                    each.name,
                    each.description,
                    each.parameters.model_dump(mode="json", exclude_none=True),
                    tier=tier,
                    kinds=_ALL if tier is PermissionTier.READ_ONLY else _ACTING,
                    timeout_s=TOOL_TIMEOUT_S,
                    untrusted=tiers.is_untrusted(each.name),
                )
            )
    return found


class CallDesk:
    """Runs the calls of a tree's client tools with inspect's tools, in the caller's context.

    Args:
        definitions: inspect's tools.
    """

    def __init__(self, definitions: Sequence[ToolDef]) -> None:
        self._definitions = list(definitions)
        self._said: dict[str, list[ToolCall]] = {}
        self.results: dict[str, ChatMessageTool] = {}
        """What inspect's tools returned, by the provider's call id."""

    def note(self, session_id: str, reply: AssistantMessage) -> None:
        """Remember the calls of a reply: inspect's log pairs calls and results by the provider's ids."""
        self._said[session_id] = list(reply.tool_calls)

    async def run(self, waiting: WaitingCall) -> None:
        """Run one call and answer it; an error of the tool is an answer too.

        Raises:
            Exception: what inspect raises for anything but a tool's error, such as a limit.
        """
        call = InspectCall(id=self._id_of(waiting), function=waiting.tool, arguments=dict(waiting.arguments))
        asking = ChatMessageAssistant(content="", tool_calls=[call], source="generate")
        messages, _ = await execute_tools([asking], self._definitions)
        result: Any = messages[0]
        self.results[call.id] = result
        if result.error is not None:
            await waiting.fail(result.error.message or result.error.type)
        else:
            await waiting.answer(ToolResult(result.text, images=images_in(result.content)))

    def _id_of(self, waiting: WaitingCall) -> str:
        """Return the provider's id of a call; arguments may have been coerced on the way."""
        said = self._said.get(waiting.session_id, [])
        named = [each for each in said if each.name == waiting.tool]
        same = [each for each in named if dict(each.arguments) == dict(waiting.arguments)]
        found = next(iter(same or named), None)
        if found is None:
            return waiting.call_id
        said.remove(found)
        return found.id
