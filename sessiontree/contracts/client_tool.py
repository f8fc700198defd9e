"""Tools that are declared here and run by the creating program, wherever the session is.

A call takes every gate another tool's call takes. Then it is owed to the program, which answers it by its id;
the host of the session is free meanwhile. Not here: how the program hears of calls (api/client_calls.py).
Source: seed 000, section 8.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self, cast

from pydantic import BaseModel

from sessiontree.contracts.context import ToolContext
from sessiontree.contracts.errors import ConfigError, ExecutionError
from sessiontree.contracts.flags import ToolFlag
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.results import ToolResult, Untrusted
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.contracts.tool import MAIN_AND_BRANCH, RawTool, Tool, check_tool

DELEGATED: Final = "Tool execution delegated to client"
"""What the pending envelope of such a call says."""


class ClientTool(Tool[Any]):
    """A tool whose calls the creating program answers.

    Args:
        name: Unique identifier, such as ``ask_user``.
        description: What it does, for the model.
        Params: The parameters' model, or a JSON Schema of an object as a mapping; the program gets arguments
            that fit it.
        tier: Tier every call needs at least; a tool that says nothing is Elevated.
        kinds: Kinds of session that may hold it.
        timeout_s: How long the program has for one answer; None = the tree's ``tool_timeout_s``.
        result_type: What an answer must fit: a pydantic model, dataclass, TypedDict, plain type, or a JSON
            Schema as a mapping; None = anything.
        aliases: Other names a model may call it by.
        flags: What else is to be known of it, such as ``owner_only``.
        untrusted: Whether answers are text from outside, such as mail: they are put between marks.

    Raises:
        ConfigError: a setting is wrong; says which. Whether a schema is one is checked when a tree opens.
    """

    result_type: Any
    """What an answer must fit; None = anything."""

    def __new__(cls, *given: Any, Params: object = None, **settings: Any) -> Self:  # noqa: N803 - as below
        """Make a tool of the sort its parameters are."""
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
            # To hand a call over twice is to hand it over once: nobody heard of it before it was durable.
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
        """Refuse: a runtime hands the call over instead.

        Raises:
            ExecutionError: always.
        """
        raise ExecutionError(f"{self.name} is run by the program that opened the tree, not in a session")


class _ClientSchemaTool(ClientTool, RawTool):
    """A client tool whose parameters are a JSON Schema."""
