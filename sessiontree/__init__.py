"""A runtime for trees of LLM-agent sessions.

Main talks to a human through a channel, Branch works on behalf of its parent, Worker is a read-only leaf.
What a session may do is decided by what its context holds. Importing this package loads nothing but itself.
"""

# Not even a future statement comes before this: it would import a module, and that from anywhere.
from sessiontree.interpreter import import_guard

import_guard.guard_imports()

import importlib  # noqa: E402 - from here on
from typing import TYPE_CHECKING, Any  # noqa: E402

from sessiontree.version import VERSION  # noqa: E402

if TYPE_CHECKING:
    from sessiontree.api.inbox import Approvals as Approvals
    from sessiontree.api.inbox import PendingApproval as PendingApproval
    from sessiontree.api.runtime import Runtime as Runtime
    from sessiontree.api.session_handle import PendingReply as PendingReply
    from sessiontree.api.session_handle import SessionHandle as SessionHandle
    from sessiontree.api.session_tree import SessionTree as SessionTree
    from sessiontree.channels.callback import CallbackChannel as CallbackChannel
    from sessiontree.channels.queue import QueueChannel as QueueChannel
    from sessiontree.channels.terminal import TerminalChannel as TerminalChannel
    from sessiontree.contracts.agent import AgentConfig as AgentConfig
    from sessiontree.contracts.agent import AgentSpec as AgentSpec
    from sessiontree.contracts.approvals import ApprovalAnswer as ApprovalAnswer
    from sessiontree.contracts.approvals import ApprovalRequest as ApprovalRequest
    from sessiontree.contracts.approvals import Rule as Rule
    from sessiontree.contracts.capabilities import CHANNEL as CHANNEL
    from sessiontree.contracts.capabilities import MEMORY as MEMORY
    from sessiontree.contracts.capabilities import MEMORY_WRITER as MEMORY_WRITER
    from sessiontree.contracts.capabilities import READER as READER
    from sessiontree.contracts.capabilities import SESSIONS as SESSIONS
    from sessiontree.contracts.capabilities import SHELL as SHELL
    from sessiontree.contracts.capabilities import WEB as WEB
    from sessiontree.contracts.capabilities import WRITER as WRITER
    from sessiontree.contracts.client_tool import ClientTool as ClientTool
    from sessiontree.contracts.context import ToolContext as ToolContext
    from sessiontree.contracts.decorator import tool as tool
    from sessiontree.contracts.errors import ApprovalClosed as ApprovalClosed
    from sessiontree.contracts.errors import ClientAnswerRefused as ClientAnswerRefused
    from sessiontree.contracts.errors import ClientCallClosed as ClientCallClosed
    from sessiontree.contracts.errors import ConfigError as ConfigError
    from sessiontree.contracts.errors import EmbedderMismatch as EmbedderMismatch
    from sessiontree.contracts.errors import EngineLost as EngineLost
    from sessiontree.contracts.errors import ExecutionError as ExecutionError
    from sessiontree.contracts.errors import ExportRefused as ExportRefused
    from sessiontree.contracts.errors import ImageRefused as ImageRefused
    from sessiontree.contracts.errors import JournalCorrupt as JournalCorrupt
    from sessiontree.contracts.errors import JournalError as JournalError
    from sessiontree.contracts.errors import JournalLocked as JournalLocked
    from sessiontree.contracts.errors import JournalTooNew as JournalTooNew
    from sessiontree.contracts.errors import JournalUnwritable as JournalUnwritable
    from sessiontree.contracts.errors import LimitExceeded as LimitExceeded
    from sessiontree.contracts.errors import MemoryCorrupt as MemoryCorrupt
    from sessiontree.contracts.errors import MemoryFailed as MemoryFailed
    from sessiontree.contracts.errors import MemoryLocked as MemoryLocked
    from sessiontree.contracts.errors import MemoryUnwritable as MemoryUnwritable
    from sessiontree.contracts.errors import ModelError as ModelError
    from sessiontree.contracts.errors import PermissionDenied as PermissionDenied
    from sessiontree.contracts.errors import SessionClosed as SessionClosed
    from sessiontree.contracts.errors import SessionCrashed as SessionCrashed
    from sessiontree.contracts.errors import SessionError as SessionError
    from sessiontree.contracts.errors import SessionFailed as SessionFailed
    from sessiontree.contracts.errors import SessionInterrupted as SessionInterrupted
    from sessiontree.contracts.errors import SessionNotFound as SessionNotFound
    from sessiontree.contracts.errors import SessionTreeError as SessionTreeError
    from sessiontree.contracts.errors import SpawnRefused as SpawnRefused
    from sessiontree.contracts.errors import StartFailed as StartFailed
    from sessiontree.contracts.errors import Timeout as Timeout
    from sessiontree.contracts.errors import ToolAuthorizationError as ToolAuthorizationError
    from sessiontree.contracts.errors import ToolError as ToolError
    from sessiontree.contracts.errors import ToolInputError as ToolInputError
    from sessiontree.contracts.errors import TreeNotFound as TreeNotFound
    from sessiontree.contracts.errors import ValidationError as ValidationError
    from sessiontree.contracts.errors import WrongLoop as WrongLoop
    from sessiontree.contracts.flags import ToolFlag as ToolFlag
    from sessiontree.contracts.hook_sessions import EndedSession as EndedSession
    from sessiontree.contracts.hook_sessions import Reword as Reword
    from sessiontree.contracts.hook_sessions import Spawning as Spawning
    from sessiontree.contracts.hook_sessions import StartedSession as StartedSession
    from sessiontree.contracts.hook_sessions import Words as Words
    from sessiontree.contracts.hooks import Block as Block
    from sessiontree.contracts.hooks import CalledTool as CalledTool
    from sessiontree.contracts.hooks import Change as Change
    from sessiontree.contracts.hooks import EndedCall as EndedCall
    from sessiontree.contracts.hooks import Hook as Hook
    from sessiontree.contracts.hooks import HookContext as HookContext
    from sessiontree.contracts.hooks import KeptResult as KeptResult
    from sessiontree.contracts.hooks import Result as Result
    from sessiontree.contracts.images import ImageLimits as ImageLimits
    from sessiontree.contracts.kinds import SessionKind as SessionKind
    from sessiontree.contracts.kinds import SessionStatus as SessionStatus
    from sessiontree.contracts.limits import Budget as Budget
    from sessiontree.contracts.limits import Limits as Limits
    from sessiontree.contracts.memory import Hit as Hit
    from sessiontree.contracts.memory import MemoryQuery as MemoryQuery
    from sessiontree.contracts.memory import MemoryRecord as MemoryRecord
    from sessiontree.contracts.memory import NewRecord as NewRecord
    from sessiontree.contracts.memory import Selection as Selection
    from sessiontree.contracts.message_policy import MessagePolicy as MessagePolicy
    from sessiontree.contracts.messages import AssistantMessage as AssistantMessage
    from sessiontree.contracts.messages import Message as Message
    from sessiontree.contracts.messages import ToolCall as ToolCall
    from sessiontree.contracts.messages import ToolResultMessage as ToolResultMessage
    from sessiontree.contracts.messages import UserMessage as UserMessage
    from sessiontree.contracts.params import AllowEmpty as AllowEmpty
    from sessiontree.contracts.params import Trimmed as Trimmed
    from sessiontree.contracts.params import optional_string_enum as optional_string_enum
    from sessiontree.contracts.params import string_enum as string_enum
    from sessiontree.contracts.plugins import PluginContext as PluginContext
    from sessiontree.contracts.plugins import PluginSettings as PluginSettings
    from sessiontree.contracts.results import Artifact as Artifact
    from sessiontree.contracts.results import SessionResult as SessionResult
    from sessiontree.contracts.results import ToolResult as ToolResult
    from sessiontree.contracts.results import image_result as image_result
    from sessiontree.contracts.results import image_result_from_file as image_result_from_file
    from sessiontree.contracts.results import json_result as json_result
    from sessiontree.contracts.retry import Retry as Retry
    from sessiontree.contracts.schema_tool import schema_tool as schema_tool
    from sessiontree.contracts.senders import Sender as Sender
    from sessiontree.contracts.tiers import PermissionTier as PermissionTier
    from sessiontree.contracts.tool import RawTool as RawTool
    from sessiontree.contracts.tool import Tool as Tool
    from sessiontree.contracts.tree_summary import TreeSummary as TreeSummary
    from sessiontree.contracts.usage import Usage as Usage
    from sessiontree.hooks.metadata import AddMetadata as AddMetadata
    from sessiontree.hooks.redact import Redact as Redact
    from sessiontree.hooks.trim import Trim as Trim
    from sessiontree.journal.record import Record as Record
    from sessiontree.memory.settings import HashingSettings as HashingSettings
    from sessiontree.memory.settings import HTTPSettings as HTTPSettings
    from sessiontree.memory.settings import MemorySettings as MemorySettings
    from sessiontree.memory.settings import MiniLMSettings as MiniLMSettings
    from sessiontree.models.answers import call as call
    from sessiontree.models.deltas import CallPiece as CallPiece
    from sessiontree.models.deltas import StopPiece as StopPiece
    from sessiontree.models.deltas import ThinkingPiece as ThinkingPiece
    from sessiontree.models.port import ModelRequest as ModelRequest
    from sessiontree.models.scripted import AsyncFunctionModel as AsyncFunctionModel
    from sessiontree.models.scripted import FunctionModel as FunctionModel
    from sessiontree.models.scripted import ScriptedModel as ScriptedModel
    from sessiontree.models.scripted import StreamFunctionModel as StreamFunctionModel
    from sessiontree.policy.lint import PolicyWarning as PolicyWarning
    from sessiontree.policy.settings import PolicyConfig as PolicyConfig
    from sessiontree.policy.settings import ToolPolicy as ToolPolicy
    from sessiontree.runtime.progress import Progress as Progress
    from sessiontree.runtime.progress import ProgressReader as ProgressReader
    from sessiontree.schema.guardrails import SchemaWarning as SchemaWarning
    from sessiontree.schema.mcp import to_mcp as to_mcp
    from sessiontree.tree.receipt import ReceiptLine as ReceiptLine
    from sessiontree.web.settings import WebSettings as WebSettings

__version__ = VERSION

_ROOMS = {
    "channels.callback": ("CallbackChannel",),
    "channels.queue": ("QueueChannel",),
    "channels.terminal": ("TerminalChannel",),
    "contracts.agent": ("AgentConfig", "AgentSpec"),
    "contracts.approvals": ("ApprovalAnswer", "ApprovalRequest", "Rule"),
    "contracts.capabilities": (
        "CHANNEL",
        "MEMORY",
        "MEMORY_WRITER",
        "READER",
        "SESSIONS",
        "SHELL",
        "WEB",
        "WRITER",
    ),
    "contracts.client_tool": ("ClientTool",),
    "contracts.context": ("ToolContext",),
    "contracts.decorator": ("tool",),
    "contracts.errors": (
        "ApprovalClosed",
        "ClientAnswerRefused",
        "ClientCallClosed",
        "ConfigError",
        "EmbedderMismatch",
        "EngineLost",
        "ExecutionError",
        "ExportRefused",
        "ImageRefused",
        "JournalCorrupt",
        "JournalError",
        "JournalLocked",
        "JournalTooNew",
        "JournalUnwritable",
        "LimitExceeded",
        "MemoryCorrupt",
        "MemoryFailed",
        "MemoryLocked",
        "MemoryUnwritable",
        "ModelError",
        "PermissionDenied",
        "SessionClosed",
        "SessionCrashed",
        "SessionError",
        "SessionFailed",
        "SessionInterrupted",
        "SessionNotFound",
        "SessionTreeError",
        "SpawnRefused",
        "StartFailed",
        "Timeout",
        "ToolAuthorizationError",
        "ToolError",
        "ToolInputError",
        "TreeNotFound",
        "ValidationError",
        "WrongLoop",
    ),
    "contracts.flags": ("ToolFlag",),
    "contracts.images": ("ImageLimits",),
    "contracts.hook_sessions": ("EndedSession", "Reword", "Spawning", "StartedSession", "Words"),
    "contracts.hooks": (
        "Block",
        "CalledTool",
        "Change",
        "EndedCall",
        "Hook",
        "HookContext",
        "KeptResult",
        "Result",
    ),
    "contracts.kinds": ("SessionKind", "SessionStatus"),
    "contracts.limits": ("Budget", "Limits"),
    "contracts.memory": ("Hit", "MemoryQuery", "MemoryRecord", "NewRecord", "Selection"),
    "contracts.messages": ("AssistantMessage", "Message", "ToolCall", "ToolResultMessage", "UserMessage"),
    "contracts.params": ("AllowEmpty", "Trimmed", "optional_string_enum", "string_enum"),
    "contracts.message_policy": ("MessagePolicy",),
    "contracts.plugins": ("PluginContext", "PluginSettings"),
    "contracts.results": (
        "Artifact",
        "SessionResult",
        "ToolResult",
        "image_result",
        "image_result_from_file",
        "json_result",
    ),
    "contracts.retry": ("Retry",),
    "contracts.schema_tool": ("schema_tool",),
    "contracts.senders": ("Sender",),
    "contracts.tiers": ("PermissionTier",),
    "contracts.tool": ("RawTool", "Tool"),
    "contracts.tree_summary": ("TreeSummary",),
    "contracts.usage": ("Usage",),
    "api.inbox": ("Approvals", "PendingApproval"),
    "api.session_handle": ("PendingReply", "SessionHandle"),
    "hooks.metadata": ("AddMetadata",),
    "hooks.redact": ("Redact",),
    "hooks.trim": ("Trim",),
    "journal.record": ("Record",),
    "runtime.progress": ("Progress", "ProgressReader"),
    "memory.settings": ("HTTPSettings", "HashingSettings", "MemorySettings", "MiniLMSettings"),
    "models.answers": ("call",),
    "models.deltas": ("CallPiece", "StopPiece", "ThinkingPiece"),
    "models.port": ("ModelRequest",),
    "models.scripted": ("AsyncFunctionModel", "FunctionModel", "ScriptedModel", "StreamFunctionModel"),
    "web.settings": ("WebSettings",),
    "policy.settings": ("PolicyConfig", "ToolPolicy"),
    "policy.lint": ("PolicyWarning",),
    "api.runtime": ("Runtime",),
    "schema.guardrails": ("SchemaWarning",),
    "schema.mcp": ("to_mcp",),
    "api.session_tree": ("SessionTree",),
    "tree.receipt": ("ReceiptLine",),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table says where each name lives; a test compares it with the above


def __getattr__(name: str) -> Any:
    """Load a public name from its room when it is first used."""
    room = _HOMES.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{room}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
