"""A runtime for trees of LLM-agent sessions.

Main talks to a person, a Branch works for its parent, and a Worker is a read-only leaf. A session can do
what its context holds, and nothing else. Importing this package loads nothing except itself.
"""

# Not even a future statement comes before this: it would import a module, and that from anywhere.
from sessiontree.interpreter import import_guard

import_guard.guard_imports()

import importlib  # noqa: E402 - from here on
from typing import TYPE_CHECKING, Any  # noqa: E402

from sessiontree.version import VERSION  # noqa: E402

if TYPE_CHECKING:
    from sessiontree.api.agents import AgentSpec as AgentSpec
    from sessiontree.api.agents import load_agents as load_agents
    from sessiontree.api.child_results import ChildResult as ChildResult
    from sessiontree.api.configuration import Configuration as Configuration
    from sessiontree.api.inbox import Approvals as Approvals
    from sessiontree.api.inbox import PendingApproval as PendingApproval
    from sessiontree.api.pending_reply import PendingReply as PendingReply
    from sessiontree.api.runtime import Runtime as Runtime
    from sessiontree.api.session_handle import SessionHandle as SessionHandle
    from sessiontree.api.session_tree import SessionTree as SessionTree
    from sessiontree.api.skills import SkillWarning as SkillWarning
    from sessiontree.api.telemetry import Telemetry as Telemetry
    from sessiontree.channels.program_channels import CallbackChannel as CallbackChannel
    from sessiontree.channels.program_channels import QueueChannel as QueueChannel
    from sessiontree.channels.safe_text import visible as visible
    from sessiontree.channels.terminal import TerminalChannel as TerminalChannel
    from sessiontree.contracts.agent import AgentConfig as AgentConfig
    from sessiontree.contracts.approvals import ApprovalAnswer as ApprovalAnswer
    from sessiontree.contracts.approvals import ApprovalRequest as ApprovalRequest
    from sessiontree.contracts.approvals import Rule as Rule
    from sessiontree.contracts.client_tool import ClientTool as ClientTool
    from sessiontree.contracts.context import CHANNEL as CHANNEL
    from sessiontree.contracts.context import MEMORY as MEMORY
    from sessiontree.contracts.context import MEMORY_WRITER as MEMORY_WRITER
    from sessiontree.contracts.context import READER as READER
    from sessiontree.contracts.context import SESSIONS as SESSIONS
    from sessiontree.contracts.context import SHELL as SHELL
    from sessiontree.contracts.context import SUBTREE as SUBTREE
    from sessiontree.contracts.context import WEB as WEB
    from sessiontree.contracts.context import WRITER as WRITER
    from sessiontree.contracts.context import ToolContext as ToolContext
    from sessiontree.contracts.decorator import tool as tool
    from sessiontree.contracts.errors import ApprovalClosed as ApprovalClosed
    from sessiontree.contracts.errors import ClientAnswerRefused as ClientAnswerRefused
    from sessiontree.contracts.errors import ClientCallClosed as ClientCallClosed
    from sessiontree.contracts.errors import ConfigError as ConfigError
    from sessiontree.contracts.errors import ContextOverflow as ContextOverflow
    from sessiontree.contracts.errors import ConversationTooLong as ConversationTooLong
    from sessiontree.contracts.errors import EmbedderMismatch as EmbedderMismatch
    from sessiontree.contracts.errors import EngineLost as EngineLost
    from sessiontree.contracts.errors import ExecutionError as ExecutionError
    from sessiontree.contracts.errors import ExportRefused as ExportRefused
    from sessiontree.contracts.errors import ImageRefused as ImageRefused
    from sessiontree.contracts.errors import JournalCorrupt as JournalCorrupt
    from sessiontree.contracts.errors import JournalError as JournalError
    from sessiontree.contracts.errors import JournalLocked as JournalLocked
    from sessiontree.contracts.errors import JournalMissing as JournalMissing
    from sessiontree.contracts.errors import JournalTooNew as JournalTooNew
    from sessiontree.contracts.errors import JournalUnwritable as JournalUnwritable
    from sessiontree.contracts.errors import LimitExceeded as LimitExceeded
    from sessiontree.contracts.errors import MemoryCorrupt as MemoryCorrupt
    from sessiontree.contracts.errors import MemoryFailed as MemoryFailed
    from sessiontree.contracts.errors import MemoryLocked as MemoryLocked
    from sessiontree.contracts.errors import MemoryUnwritable as MemoryUnwritable
    from sessiontree.contracts.errors import ModelBusy as ModelBusy
    from sessiontree.contracts.errors import ModelError as ModelError
    from sessiontree.contracts.errors import ModelKeyRefused as ModelKeyRefused
    from sessiontree.contracts.errors import ModelNotFound as ModelNotFound
    from sessiontree.contracts.errors import ModelRefused as ModelRefused
    from sessiontree.contracts.errors import ModelUnreachable as ModelUnreachable
    from sessiontree.contracts.errors import NotRecorded as NotRecorded
    from sessiontree.contracts.errors import PermissionDenied as PermissionDenied
    from sessiontree.contracts.errors import ReplyTruncated as ReplyTruncated
    from sessiontree.contracts.errors import SessionClosed as SessionClosed
    from sessiontree.contracts.errors import SessionCrashed as SessionCrashed
    from sessiontree.contracts.errors import SessionError as SessionError
    from sessiontree.contracts.errors import SessionFailed as SessionFailed
    from sessiontree.contracts.errors import SessionInterrupted as SessionInterrupted
    from sessiontree.contracts.errors import SessionNotFound as SessionNotFound
    from sessiontree.contracts.errors import SessionTreeError as SessionTreeError
    from sessiontree.contracts.errors import ShardLost as ShardLost
    from sessiontree.contracts.errors import SpawnRefused as SpawnRefused
    from sessiontree.contracts.errors import StartFailed as StartFailed
    from sessiontree.contracts.errors import SupervisorUnavailable as SupervisorUnavailable
    from sessiontree.contracts.errors import Timeout as Timeout
    from sessiontree.contracts.errors import ToolAuthorizationError as ToolAuthorizationError
    from sessiontree.contracts.errors import ToolError as ToolError
    from sessiontree.contracts.errors import ToolInputError as ToolInputError
    from sessiontree.contracts.errors import TreeNotFound as TreeNotFound
    from sessiontree.contracts.errors import ValidationError as ValidationError
    from sessiontree.contracts.errors import WrongLoop as WrongLoop
    from sessiontree.contracts.hooks import Block as Block
    from sessiontree.contracts.hooks import CalledTool as CalledTool
    from sessiontree.contracts.hooks import Change as Change
    from sessiontree.contracts.hooks import EndedCall as EndedCall
    from sessiontree.contracts.hooks import EndedSession as EndedSession
    from sessiontree.contracts.hooks import Hook as Hook
    from sessiontree.contracts.hooks import HookContext as HookContext
    from sessiontree.contracts.hooks import KeptResult as KeptResult
    from sessiontree.contracts.hooks import Result as Result
    from sessiontree.contracts.hooks import Reword as Reword
    from sessiontree.contracts.hooks import Spawning as Spawning
    from sessiontree.contracts.hooks import StartedSession as StartedSession
    from sessiontree.contracts.hooks import Words as Words
    from sessiontree.contracts.kinds import PermissionTier as PermissionTier
    from sessiontree.contracts.kinds import SessionKind as SessionKind
    from sessiontree.contracts.kinds import SessionStatus as SessionStatus
    from sessiontree.contracts.memory import Hit as Hit
    from sessiontree.contracts.memory import MemoryQuery as MemoryQuery
    from sessiontree.contracts.memory import MemoryRecord as MemoryRecord
    from sessiontree.contracts.memory import NewRecord as NewRecord
    from sessiontree.contracts.memory import Selection as Selection
    from sessiontree.contracts.messages import AssistantMessage as AssistantMessage
    from sessiontree.contracts.messages import ImageContent as ImageContent
    from sessiontree.contracts.messages import Message as Message
    from sessiontree.contracts.messages import Replay as Replay
    from sessiontree.contracts.messages import ToolCall as ToolCall
    from sessiontree.contracts.messages import ToolResultMessage as ToolResultMessage
    from sessiontree.contracts.messages import Usage as Usage
    from sessiontree.contracts.messages import UserMessage as UserMessage
    from sessiontree.contracts.model_settings import ModelPrice as ModelPrice
    from sessiontree.contracts.model_settings import ModelSettings as ModelSettings
    from sessiontree.contracts.own_program import keep_process as keep_process
    from sessiontree.contracts.own_program import program_words as program_words
    from sessiontree.contracts.own_program import release_process as release_process
    from sessiontree.contracts.plugins import PluginContext as PluginContext
    from sessiontree.contracts.plugins import PluginSettings as PluginSettings
    from sessiontree.contracts.replay_report import ReplayDifference as ReplayDifference
    from sessiontree.contracts.replay_report import ReplayReport as ReplayReport
    from sessiontree.contracts.results import Artifact as Artifact
    from sessiontree.contracts.results import SessionResult as SessionResult
    from sessiontree.contracts.results import ToolResult as ToolResult
    from sessiontree.contracts.results import image_result as image_result
    from sessiontree.contracts.results import image_result_from_file as image_result_from_file
    from sessiontree.contracts.results import json_result as json_result
    from sessiontree.contracts.schema_tool import schema_tool as schema_tool
    from sessiontree.contracts.senders import Sender as Sender
    from sessiontree.contracts.settings import Budget as Budget
    from sessiontree.contracts.settings import ImageLimits as ImageLimits
    from sessiontree.contracts.settings import Limits as Limits
    from sessiontree.contracts.settings import MessagePolicy as MessagePolicy
    from sessiontree.contracts.tool import AllowEmpty as AllowEmpty
    from sessiontree.contracts.tool import RawTool as RawTool
    from sessiontree.contracts.tool import Retry as Retry
    from sessiontree.contracts.tool import Tool as Tool
    from sessiontree.contracts.tool import ToolFlag as ToolFlag
    from sessiontree.contracts.tool import Trimmed as Trimmed
    from sessiontree.contracts.tool import optional_string_enum as optional_string_enum
    from sessiontree.contracts.tool import string_enum as string_enum
    from sessiontree.contracts.tree_config import ShardRow as ShardRow
    from sessiontree.contracts.tree_config import TreeSummary as TreeSummary
    from sessiontree.hooks.redact import Redact as Redact
    from sessiontree.hooks.results import AddMetadata as AddMetadata
    from sessiontree.hooks.results import Trim as Trim
    from sessiontree.journal.record import Record as Record
    from sessiontree.memory.settings import HashingSettings as HashingSettings
    from sessiontree.memory.settings import HTTPSettings as HTTPSettings
    from sessiontree.memory.settings import MemorySettings as MemorySettings
    from sessiontree.memory.settings import MiniLMSettings as MiniLMSettings
    from sessiontree.models.answers import call as call
    from sessiontree.models.port import CallPiece as CallPiece
    from sessiontree.models.port import ModelPiece as ModelPiece
    from sessiontree.models.port import ModelRequest as ModelRequest
    from sessiontree.models.port import StopPiece as StopPiece
    from sessiontree.models.port import ThinkingPiece as ThinkingPiece
    from sessiontree.models.providers.call_limits import CallLimits as CallLimits
    from sessiontree.models.providers.provider_model import CallTimeouts as CallTimeouts
    from sessiontree.models.providers.provider_model import ProviderModel as ProviderModel
    from sessiontree.models.recorded_model import RecordedModel as RecordedModel
    from sessiontree.models.scripted import AsyncFunctionModel as AsyncFunctionModel
    from sessiontree.models.scripted import FunctionModel as FunctionModel
    from sessiontree.models.scripted import ScriptedModel as ScriptedModel
    from sessiontree.models.scripted import StreamFunctionModel as StreamFunctionModel
    from sessiontree.policy.compiled import PolicyWarning as PolicyWarning
    from sessiontree.policy.settings import PolicyConfig as PolicyConfig
    from sessiontree.policy.settings import ToolPolicy as ToolPolicy
    from sessiontree.runtime.progress import Progress as Progress
    from sessiontree.runtime.progress import ProgressReader as ProgressReader
    from sessiontree.schema.derive import to_mcp as to_mcp
    from sessiontree.schema.dialect import SchemaWarning as SchemaWarning
    from sessiontree.tree.report import ReceiptLine as ReceiptLine
    from sessiontree.web.settings import WebSettings as WebSettings

__version__ = VERSION

_ROOMS = {
    "channels.program_channels": ("CallbackChannel", "QueueChannel"),
    "channels.safe_text": ("visible",),
    "channels.terminal": ("TerminalChannel",),
    "contracts.agent": ("AgentConfig",),
    "contracts.approvals": ("ApprovalAnswer", "ApprovalRequest", "Rule"),
    "contracts.client_tool": ("ClientTool",),
    "contracts.context": (
        "CHANNEL",
        "MEMORY",
        "MEMORY_WRITER",
        "READER",
        "SESSIONS",
        "SUBTREE",
        "SHELL",
        "ToolContext",
        "WEB",
        "WRITER",
    ),
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
        "JournalMissing",
        "JournalTooNew",
        "JournalUnwritable",
        "LimitExceeded",
        "MemoryCorrupt",
        "MemoryFailed",
        "MemoryLocked",
        "MemoryUnwritable",
        "ModelBusy",
        "ModelError",
        "ModelKeyRefused",
        "ModelNotFound",
        "ModelRefused",
        "ModelUnreachable",
        "ContextOverflow",
        "NotRecorded",
        "ConversationTooLong",
        "PermissionDenied",
        "ReplyTruncated",
        "SessionClosed",
        "SessionCrashed",
        "SessionError",
        "SessionFailed",
        "SessionInterrupted",
        "SessionNotFound",
        "SessionTreeError",
        "ShardLost",
        "SpawnRefused",
        "StartFailed",
        "SupervisorUnavailable",
        "Timeout",
        "ToolAuthorizationError",
        "ToolError",
        "ToolInputError",
        "TreeNotFound",
        "ValidationError",
        "WrongLoop",
    ),
    "contracts.tool": (
        "AllowEmpty",
        "RawTool",
        "Retry",
        "Tool",
        "ToolFlag",
        "Trimmed",
        "optional_string_enum",
        "string_enum",
    ),
    "contracts.settings": ("Budget", "ImageLimits", "Limits", "MessagePolicy"),
    "contracts.hooks": (
        "Block",
        "CalledTool",
        "Change",
        "EndedCall",
        "EndedSession",
        "Hook",
        "HookContext",
        "KeptResult",
        "Result",
        "Reword",
        "Spawning",
        "StartedSession",
        "Words",
    ),
    "contracts.kinds": ("PermissionTier", "SessionKind", "SessionStatus"),
    "contracts.memory": ("Hit", "MemoryQuery", "MemoryRecord", "NewRecord", "Selection"),
    "contracts.messages": (
        "AssistantMessage",
        "ImageContent",
        "Message",
        "Replay",
        "ToolCall",
        "ToolResultMessage",
        "Usage",
        "UserMessage",
    ),
    "contracts.model_settings": ("ModelPrice", "ModelSettings"),
    "contracts.own_program": ("keep_process", "program_words", "release_process"),
    "contracts.plugins": ("PluginContext", "PluginSettings"),
    "contracts.replay_report": ("ReplayDifference", "ReplayReport"),
    "contracts.results": (
        "Artifact",
        "SessionResult",
        "ToolResult",
        "image_result",
        "image_result_from_file",
        "json_result",
    ),
    "contracts.schema_tool": ("schema_tool",),
    "contracts.senders": ("Sender",),
    "contracts.tree_config": ("ShardRow", "TreeSummary"),
    "api.agents": ("AgentSpec", "load_agents"),
    "api.child_results": ("ChildResult",),
    "api.configuration": ("Configuration",),
    "api.inbox": ("Approvals", "PendingApproval"),
    "api.pending_reply": ("PendingReply",),
    "api.session_handle": ("SessionHandle",),
    "api.skills": ("SkillWarning",),
    "hooks.redact": ("Redact",),
    "hooks.results": ("AddMetadata", "Trim"),
    "journal.record": ("Record",),
    "runtime.progress": ("Progress", "ProgressReader"),
    "memory.settings": ("HTTPSettings", "HashingSettings", "MemorySettings", "MiniLMSettings"),
    "models.answers": ("call",),
    "models.port": ("CallPiece", "ModelPiece", "ModelRequest", "StopPiece", "ThinkingPiece"),
    "models.providers.call_limits": ("CallLimits",),
    "models.providers.provider_model": ("CallTimeouts", "ProviderModel"),
    "models.recorded_model": ("RecordedModel",),
    "models.scripted": ("AsyncFunctionModel", "FunctionModel", "ScriptedModel", "StreamFunctionModel"),
    "web.settings": ("WebSettings",),
    "policy.settings": ("PolicyConfig", "ToolPolicy"),
    "policy.compiled": ("PolicyWarning",),
    "api.runtime": ("Runtime",),
    "schema.dialect": ("SchemaWarning",),
    "schema.derive": ("to_mcp",),
    "api.session_tree": ("SessionTree",),
    "api.telemetry": ("Telemetry",),
    "tree.report": ("ReceiptLine",),
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
