"""What contracts of the built-in tools share: the tools, reasons, and checks of the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sessiontree import ToolReply
from sessiontree.testing.tool_contract import Part, ToolCase, ToolContract
from sessiontree_tools import builtin_tools

TOOLS: Final = {tool.name: tool for tool in builtin_tools()}
AT_ONCE: Final[dict[Part, str]] = {"slow": "it waits for nothing"}
SHORT: Final[dict[Part, str]] = {"huge": "its result has a bound of its own far below"}
TEXT: Final[dict[Part, str]] = {"undecodable": "it meets no bytes, only the text of its arguments"}
OUTSIDE: Final = "outside"
"""In the error for a path that is not beneath the workspace."""
LINES: Final = b"".join(b"line %d of many\n" % number for number in range(20_000))


def contract(name: str, *cases: ToolCase, not_checked: Mapping[Part, str], **more: Any) -> ToolContract:
    """Return the contract of a built-in tool."""
    return ToolContract(TOOLS[name], cases, not_checked=not_checked, **more)


def check_file(path: str, content: bytes) -> Any:
    """Return a check that a file of the workspace has a content."""

    def check(reply: ToolReply, workspace: Path) -> None:
        assert (workspace / path).read_bytes() == content

    return check
