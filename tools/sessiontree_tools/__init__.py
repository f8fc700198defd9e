"""The built-in tools: files, commands, messages, children, timed jobs, the web, a canvas, and memory.

They import ``sessiontree.contracts`` only, and are found through the entry point ``sessiontree.tools``.
Not here: deciding who may call what (``policy``), or keeping paths beneath the workspace (its handles).
"""

from __future__ import annotations

from typing import Any

from sessiontree.contracts.tools.tool import Tool
from sessiontree_tools.commands.exec import Exec
from sessiontree_tools.commands.gateway import GatewayTool
from sessiontree_tools.commands.nodes import ListNodes
from sessiontree_tools.commands.process import ProcessTool
from sessiontree_tools.files.apply_patch import ApplyPatch
from sessiontree_tools.files.edit import Edit
from sessiontree_tools.files.find import Find
from sessiontree_tools.files.grep import Grep
from sessiontree_tools.files.read import Read
from sessiontree_tools.files.write import Write
from sessiontree_tools.image import LookAtImage
from sessiontree_tools.memory import MemoryForget, MemoryGet, MemorySearch, StoreMemory
from sessiontree_tools.pages.canvas import CanvasTool
from sessiontree_tools.pages.deploy_preview import DeployPreview
from sessiontree_tools.pages.preview_screenshot import PreviewScreenshot
from sessiontree_tools.pages.validate_page import ValidatePage
from sessiontree_tools.pages.write_html import WriteHtml
from sessiontree_tools.sessions.child_workspace import ChildWorkspace
from sessiontree_tools.sessions.cron import CronTool
from sessiontree_tools.sessions.message import AskUser, Message
from sessiontree_tools.sessions.program import RunProgram, ToolSearch
from sessiontree_tools.sessions.sessions import SessionsSpawn, SessionStatusTool
from sessiontree_tools.sessions.sessions_below import (
    AgentsList,
    SessionsHistory,
    SessionsList,
    SessionsSend,
    Subagents,
)
from sessiontree_tools.tts import Speak
from sessiontree_tools.web.browser import BrowserTool
from sessiontree_tools.web.http_request import SendRequest
from sessiontree_tools.web.web import WebFetch, WebSearch

__all__ = ["builtin_tools"]


def builtin_tools() -> tuple[Tool[Any], ...]:
    """Return one instance of each built-in tool, in the order a model sees them."""
    return (
        Read(),
        Write(),
        Edit(),
        ApplyPatch(),
        ChildWorkspace(),
        Find(),
        Grep(),
        Exec(),
        ProcessTool(),
        Message(),
        AskUser(),
        SessionsSpawn(),
        RunProgram(),
        ToolSearch(),
        SessionStatusTool(),
        Subagents(),
        SessionsList(),
        SessionsHistory(),
        SessionsSend(),
        AgentsList(),
        CronTool(),
        GatewayTool(),
        WebSearch(),
        WebFetch(),
        BrowserTool(),
        SendRequest(),
        CanvasTool(),
        MemorySearch(),
        MemoryGet(),
        StoreMemory(),
        MemoryForget(),
        WriteHtml(),
        PreviewScreenshot(),
        ValidatePage(),
        DeployPreview(),
        LookAtImage(),
        Speak(),
        ListNodes(),
    )
