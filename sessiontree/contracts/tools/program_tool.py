"""Tools whose calls are programs: a call's own text, or a saved program, which an owner keeps in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.programs import SAVED_INPUTS, ProgramSource
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import ALL_KINDS, P, RawTool, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

SECTION: Final = "programs"
"""The section of saved programs: ``group:programs`` in an owner's lists means all of them."""
MAIN_CALL: Final = f"\n\nawait main(**{SAVED_INPUTS})\n"
"""What follows the file's text, so that the text's lines keep their numbers."""


class ProgramTool(Tool[P]):
    """A tool whose call is a program: an interpreter runs it, and its calls are calls of the session.

    Its parameters have the members ``code``, ``inputs`` and ``timeout_s``, unless its text is saved.
    """


class ToolFinder(Tool[P]):
    """A tool that searches the tools of its session: the session's host answers its calls.

    Its parameters have the members ``query`` and ``limit``.
    """


@dataclass(frozen=True, slots=True)
class SavedText:
    """What a file of a saved program says."""

    name: str
    """The file's name without its ending."""
    description: str
    text: str
    parameters: Mapping[str, JsonValue]
    """JSON Schema of ``main``'s parameters."""
    tools: tuple[str, ...] = ()
    """Names of the tools that it needs."""
    agents: tuple[str, ...] = ()
    """Names of the agents that it starts children as."""
    budget: Budget | None = None
    """Budget of a session that is started to run it; None = it uses its parent's."""
    timeout_s: float | None = None
    """After how many seconds each call is ended; None = never."""
    path: str = ""
    """The file."""


class SavedProgram(ProgramTool[Any], RawTool):
    """A saved program as a tool: its parameters are those of its ``main``, and its text is the file's.

    It is left out of every session unless a list, a profile or an agent names it. The text is the one of the
    time when the tree was opened; a call that has begun keeps its own in the journal.
    """

    section = SECTION
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.READ_ONLY
    kinds = ALL_KINDS
    idempotent = True

    def __init__(self, saved: SavedText) -> None:
        self.saved = saved
        self.name = saved.name  # type: ignore[misc]
        self.description = saved.description  # type: ignore[misc]
        self.parameters = saved.parameters
        code = saved.text + MAIN_CALL
        digest = hashlib.sha256(code.encode()).hexdigest()
        self.source = ProgramSource(saved.name, code, digest, saved.timeout_s)
        """What a call of it runs."""

    async def execute(self, params: Any, ctx: ToolContext) -> ToolResult:
        """Raise an error: a session's host gives the program to an interpreter instead.

        Raises:
            ExecutionError: always.
        """
        raise ExecutionError(f"{self.name} is run by a session's host")
