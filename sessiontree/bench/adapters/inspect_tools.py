"""Tools of inspect_ai as client tools: sessions call them, and they run where inspect's sample runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, execute_tools
from inspect_ai.tool import ToolCall as InspectCall
from inspect_ai.tool import ToolDef

from sessiontree import ClientTool, PermissionTier, SessionKind, ToolCall, ToolResult
from sessiontree.api.tree.client_calls import WaitingCall
from sessiontree.bench.adapters.inspect_messages import extract_images
from sessiontree.contracts.recorded.programs import PROGRAM_TOOL
from sessiontree.contracts.values.quick_dataclass import dataclass

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
        """Return a tool's tier: ReadOnly, or System, because nothing is known of what it reaches."""
        return PermissionTier.READ_ONLY if _is_match(name, self.read_only) else PermissionTier.SYSTEM

    def is_untrusted(self, name: str) -> bool:
        """Whether a tool's results hold text from outside."""
        return _is_match(name, self.untrusted)


def _is_match(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def make_client_tools(definitions: Sequence[ToolDef], tiers: ToolTiers) -> list[ClientTool]:
    """Return client tools with the names, descriptions and parameters of inspect's tools.

    Raises:
        ConfigError: a name or a schema can't be used.
    """
    found: list[ClientTool] = []
    for each in definitions:
        tier = tiers.tier_of(each.name)
        found.append(
            ClientTool(
                each.name,
                each.description,
                build_parameters_schema(each),
                tier=tier,
                kinds=_ALL if tier is PermissionTier.READ_ONLY else _ACTING,
                timeout_s=TOOL_TIMEOUT_S,
                untrusted=tiers.is_untrusted(each.name),
            )
        )
    return found


def build_parameters_schema(definition: ToolDef) -> dict[str, Any]:
    """Return the JSON Schema of a tool's parameters.

    A parameter that may be null becomes one that may be missing: providers reject null as a variant, and a
    null argument counts as missing here.
    """
    schema: dict[str, Any] = definition.parameters.model_dump(mode="json", exclude_none=True)
    required = list(schema.get("required", ()))
    for name, member in schema.get("properties", {}).items():
        variants = [each for each in member.get("anyOf", ()) if each.get("type") != "null"]
        if len(variants) == len(member.get("anyOf", ())):
            continue
        if len(variants) == 1:
            del member["anyOf"]
            member.update({key: value for key, value in variants[0].items() if key not in member})
        else:
            member["anyOf"] = variants
        required = [each for each in required if each != name]
    schema["required"] = required
    return schema


class CallRunner:
    """Runs the calls of a tree's client tools with inspect's tools, in the caller's context.

    Args:
        definitions: inspect's tools.
        calls_of: Returns the calls of the newest reply of a session, which has some.
    """

    def __init__(self, definitions: Sequence[ToolDef], calls_of: Callable[[str], Sequence[ToolCall]]) -> None:
        self._definitions = list(definitions)
        self._calls_of = calls_of
        self._begun: set[tuple[str, str]] = set()
        self.results: dict[tuple[str, str], ChatMessageTool] = {}
        """What inspect's tools returned, by session and the provider's call id: the calls that ran."""
        self.in_programs: dict[tuple[str, str], list[InspectCall]] = {}
        """Calls of programs that ran, in order, by session and the id of the call of ``program``."""

    async def run(self, waiting: WaitingCall, then: Callable[[], None] | None = None) -> None:
        """Run one call and answer it; an error of the tool is an answer too.

        Args:
            waiting: The call.
            then: Called between the two; what it raises is raised, and the call stays open.

        Raises:
            Exception: what inspect raises for anything but a tool's error, such as a limit.
        """
        call = InspectCall(
            id=self._find_call_id(waiting), function=waiting.tool, arguments=dict(waiting.arguments)
        )
        asking = ChatMessageAssistant(content="", tool_calls=[call], source="generate")
        messages, _ = await execute_tools([asking], self._definitions)
        result: Any = messages[0]
        self.results[waiting.session_id, call.id] = result
        self._note_program(waiting.session_id, call)
        if then is not None:
            then()
        if result.error is not None:
            await waiting.fail(result.error.message or result.error.type)
        else:
            await waiting.answer(ToolResult(result.text, images=extract_images(result.content)))

    def _note_program(self, session: str, call: InspectCall) -> None:
        """Keep a call that no reply names: the newest reply's program made it."""
        said = self._calls_of(session)
        program = next((each.id for each in said if each.name == PROGRAM_TOOL), None)
        if program is not None and all(each.id != call.id for each in said):
            self.in_programs.setdefault((session, program), []).append(call)

    def _find_call_id(self, waiting: WaitingCall) -> str:
        """Return the provider's id of a call, by which inspect's log pairs calls and results.

        Arguments may have been coerced on the way; then the first open call of the tool is meant.
        """
        session = waiting.session_id
        said = [each for each in self._calls_of(session) if (session, each.id) not in self._begun]
        named = [each for each in said if each.name == waiting.tool]
        same = [each for each in named if dict(each.arguments) == dict(waiting.arguments)]
        found = next(iter(same or named), None)
        if found is None:
            return waiting.call_id
        self._begun.add((session, found.id))
        return found.id
