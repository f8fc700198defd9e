"""The built-in tools, one file each; they stand on ``sessiontree.contracts`` alone.

Room: reading, writing and searching files, running commands, speaking to the human, children, the web, and
memory.
Found through the entry point ``sessiontree.tools``.
Not here: deciding who may call what (policy), or how paths are kept beneath the workspace (its handles).
"""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.tool import Tool
from sessiontree_tools.edit import Edit
from sessiontree_tools.exec import Exec
from sessiontree_tools.find import Find
from sessiontree_tools.grep import Grep
from sessiontree_tools.memory_forget import MemoryForget
from sessiontree_tools.memory_get import MemoryGet
from sessiontree_tools.memory_search import MemorySearch
from sessiontree_tools.memory_store import StoreMemory
from sessiontree_tools.message import Message
from sessiontree_tools.read import Read
from sessiontree_tools.session_status import SessionStatusTool
from sessiontree_tools.sessions_spawn import SessionsSpawn
from sessiontree_tools.web_fetch import WebFetch
from sessiontree_tools.web_search import WebSearch
from sessiontree_tools.write import Write

__all__ = ["builtin_tools"]


def builtin_tools() -> tuple[Tool[Any], ...]:
    """Return one instance of each built-in tool, in the order a model sees them."""
    return (
        Read(),
        Write(),
        Edit(),
        Find(),
        Grep(),
        Exec(),
        Message(),
        SessionsSpawn(),
        SessionStatusTool(),
        WebSearch(),
        WebFetch(),
        MemorySearch(),
        MemoryGet(),
        StoreMemory(),
        MemoryForget(),
    )
