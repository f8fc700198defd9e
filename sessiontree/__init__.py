"""A runtime for trees of LLM-agent sessions.

Main talks to a person, a Branch works for its parent, and a Worker is a read-only leaf. A session can do
what its context holds, and nothing else. Importing this package loads nothing except itself.

Long because each public name is listed twice: for type checkers, and with its home.
"""

# Not even a future statement comes before this: it would import a module, and that from anywhere.
from sessiontree.interpreter import import_guard

import_guard.guard_imports()

import importlib  # noqa: E402 - from here on
from typing import TYPE_CHECKING, Any  # noqa: E402

from sessiontree.version import VERSION  # noqa: E402

if TYPE_CHECKING:
    from sessiontree.api.agents.agent_files import load_agents as load_agents
    from sessiontree.api.agents.agents import AgentSpec as AgentSpec
    from sessiontree.api.agents.configured_models import ModelEntry as ModelEntry
    from sessiontree.api.agents.configured_models import RateSettings as RateSettings
    from sessiontree.api.agents.configured_models import TimeoutSettings as TimeoutSettings
    from sessiontree.api.agents.model_choice import ModelLike as ModelLike
    from sessiontree.api.configuration.configuration import Configuration as Configuration
    from sessiontree.api.configuration.configuration_members import WorkspaceEntry as WorkspaceEntry
    from sessiontree.api.options.app import App as App
    from sessiontree.api.options.app import ProgramsLike as ProgramsLike
    from sessiontree.api.options.app import SkillsLike as SkillsLike
    from sessiontree.api.options.options import ApproverLike as ApproverLike
    from sessiontree.api.options.options import ChannelLike as ChannelLike
    from sessiontree.api.options.options import GuidanceSource as GuidanceSource
    from sessiontree.api.options.options import PluginsLike as PluginsLike
    from sessiontree.api.options.options import PolicyLike as PolicyLike
    from sessiontree.api.options.skills import SkillWarning as SkillWarning
    from sessiontree.api.programs.program_files import SavedProgramWarning as SavedProgramWarning
    from sessiontree.api.runtime.runtime import Runtime as Runtime
    from sessiontree.api.runtime.runtime_options import BackendName as BackendName
    from sessiontree.api.runtime.runtime_options import Enforcement as Enforcement
    from sessiontree.api.runtime.runtime_options import RuntimeOptions as RuntimeOptions
    from sessiontree.api.runtime.runtime_options import Shards as Shards
    from sessiontree.api.stored.stored_trees import StoredTrees as StoredTrees
    from sessiontree.api.telemetry.telemetry import Telemetry as Telemetry
    from sessiontree.api.telemetry.telemetry import TelemetryLike as TelemetryLike
    from sessiontree.api.tree.child_results import ChildResult as ChildResult
    from sessiontree.api.tree.child_results import OnChildError as OnChildError
    from sessiontree.api.tree.client_calls import ClientCalls as ClientCalls
    from sessiontree.api.tree.client_calls import WaitingCall as WaitingCall
    from sessiontree.api.tree.fact_reader import FactReader as FactReader
    from sessiontree.api.tree.inbox import Approvals as Approvals
    from sessiontree.api.tree.inbox import PendingApproval as PendingApproval
    from sessiontree.api.tree.keyword_options import ChildOptions as ChildOptions
    from sessiontree.api.tree.keyword_options import MapOptions as MapOptions
    from sessiontree.api.tree.keyword_options import ResumeOptions as ResumeOptions
    from sessiontree.api.tree.keyword_options import SpawnOptions as SpawnOptions
    from sessiontree.api.tree.keyword_options import TreeOptions as TreeOptions
    from sessiontree.api.tree.own_workspaces import MergeConflict as MergeConflict
    from sessiontree.api.tree.own_workspaces import Merged as Merged
    from sessiontree.api.tree.own_workspaces import OwnWorkspace as OwnWorkspace
    from sessiontree.api.tree.own_workspaces import OwnWorkspaces as OwnWorkspaces
    from sessiontree.api.tree.pending_reply import PendingReply as PendingReply
    from sessiontree.api.tree.questions import PendingQuestion as PendingQuestion
    from sessiontree.api.tree.questions import Questions as Questions
    from sessiontree.api.tree.session_handle import SessionHandle as SessionHandle
    from sessiontree.api.tree.session_tree import SessionTree as SessionTree
    from sessiontree.channels.port import HumanChannel as HumanChannel
    from sessiontree.channels.program_channels import Answerer as Answerer
    from sessiontree.channels.program_channels import AnswerLike as AnswerLike
    from sessiontree.channels.program_channels import Approver as Approver
    from sessiontree.channels.program_channels import BelowListener as BelowListener
    from sessiontree.channels.program_channels import CallbackChannel as CallbackChannel
    from sessiontree.channels.program_channels import DisplayListener as DisplayListener
    from sessiontree.channels.program_channels import Listener as Listener
    from sessiontree.channels.program_channels import QueueChannel as QueueChannel
    from sessiontree.channels.safe_text import make_visible as make_visible
    from sessiontree.channels.terminal import TerminalChannel as TerminalChannel
    from sessiontree.contracts.errors import AnswerTooLate as AnswerTooLate
    from sessiontree.contracts.errors import ConfigError as ConfigError
    from sessiontree.contracts.errors import ContextOverflow as ContextOverflow
    from sessiontree.contracts.errors import EngineLost as EngineLost
    from sessiontree.contracts.errors import ExecutionError as ExecutionError
    from sessiontree.contracts.errors import FailureReason as FailureReason
    from sessiontree.contracts.errors import ImageRefused as ImageRefused
    from sessiontree.contracts.errors import JournalCorrupt as JournalCorrupt
    from sessiontree.contracts.errors import JournalError as JournalError
    from sessiontree.contracts.errors import JournalLocked as JournalLocked
    from sessiontree.contracts.errors import JournalTooNew as JournalTooNew
    from sessiontree.contracts.errors import JournalUnwritable as JournalUnwritable
    from sessiontree.contracts.errors import LimitExceeded as LimitExceeded
    from sessiontree.contracts.errors import MemoryFailed as MemoryFailed
    from sessiontree.contracts.errors import ModelBusy as ModelBusy
    from sessiontree.contracts.errors import ModelError as ModelError
    from sessiontree.contracts.errors import ModelKeyRefused as ModelKeyRefused
    from sessiontree.contracts.errors import ModelUnreachable as ModelUnreachable
    from sessiontree.contracts.errors import PermissionDenied as PermissionDenied
    from sessiontree.contracts.errors import SessionClosed as SessionClosed
    from sessiontree.contracts.errors import SessionError as SessionError
    from sessiontree.contracts.errors import SessionFailed as SessionFailed
    from sessiontree.contracts.errors import SessionNotFound as SessionNotFound
    from sessiontree.contracts.errors import SessionTreeError as SessionTreeError
    from sessiontree.contracts.errors import ShardLost as ShardLost
    from sessiontree.contracts.errors import SpawnRefused as SpawnRefused
    from sessiontree.contracts.errors import SupervisorUnavailable as SupervisorUnavailable
    from sessiontree.contracts.errors import Timeout as Timeout
    from sessiontree.contracts.errors import ToolAuthorizationError as ToolAuthorizationError
    from sessiontree.contracts.errors import ToolError as ToolError
    from sessiontree.contracts.errors import ToolInputError as ToolInputError
    from sessiontree.contracts.errors import TreeNotFound as TreeNotFound
    from sessiontree.contracts.errors import ValidationError as ValidationError
    from sessiontree.contracts.errors import WrongLoop as WrongLoop
    from sessiontree.contracts.facts.stimuli import SendMode as SendMode
    from sessiontree.contracts.facts.tree_config import ShardRow as ShardRow
    from sessiontree.contracts.facts.tree_config import TreeSummary as TreeSummary
    from sessiontree.contracts.facts.tree_config import Via as Via
    from sessiontree.contracts.facts.tree_facts import Fact as Fact
    from sessiontree.contracts.handles.browser import ActionKind as ActionKind
    from sessiontree.contracts.handles.browser import Browser as Browser
    from sessiontree.contracts.handles.browser import BrowserStatus as BrowserStatus
    from sessiontree.contracts.handles.browser import ConsoleKind as ConsoleKind
    from sessiontree.contracts.handles.browser import ConsoleLine as ConsoleLine
    from sessiontree.contracts.handles.browser import PageAction as PageAction
    from sessiontree.contracts.handles.browser import PageFile as PageFile
    from sessiontree.contracts.handles.browser import PageFiles as PageFiles
    from sessiontree.contracts.handles.browser import PageSnapshot as PageSnapshot
    from sessiontree.contracts.handles.browser import Tab as Tab
    from sessiontree.contracts.handles.browser import Viewport as Viewport
    from sessiontree.contracts.handles.browser import World as World
    from sessiontree.contracts.handles.http_requests import HttpMethod as HttpMethod
    from sessiontree.contracts.handles.http_requests import HttpRequest as HttpRequest
    from sessiontree.contracts.handles.http_requests import HttpResponse as HttpResponse
    from sessiontree.contracts.handles.http_requests import HttpSender as HttpSender
    from sessiontree.contracts.handles.image_facts import ImageColour as ImageColour
    from sessiontree.contracts.handles.image_facts import ImageFacts as ImageFacts
    from sessiontree.contracts.handles.image_facts import ImageInspector as ImageInspector
    from sessiontree.contracts.handles.jobs import CommandRequest as CommandRequest
    from sessiontree.contracts.handles.jobs import Jobs as Jobs
    from sessiontree.contracts.handles.jobs import JobView as JobView
    from sessiontree.contracts.handles.jobs import OutputPart as OutputPart
    from sessiontree.contracts.handles.jobs import WindowSize as WindowSize
    from sessiontree.contracts.handles.mcp import InputResponses as InputResponses
    from sessiontree.contracts.handles.mcp import ServerCall as ServerCall
    from sessiontree.contracts.handles.mcp import ServerInput as ServerInput
    from sessiontree.contracts.handles.mcp import ServerReply as ServerReply
    from sessiontree.contracts.handles.mcp import ServerTools as ServerTools
    from sessiontree.contracts.handles.nodes import NodeInfo as NodeInfo
    from sessiontree.contracts.handles.nodes import Nodes as Nodes
    from sessiontree.contracts.handles.ports import AgentInfo as AgentInfo
    from sessiontree.contracts.handles.ports import Channel as Channel
    from sessiontree.contracts.handles.ports import Entry as Entry
    from sessiontree.contracts.handles.ports import EntryType as EntryType
    from sessiontree.contracts.handles.ports import Finished as Finished
    from sessiontree.contracts.handles.ports import Freshness as Freshness
    from sessiontree.contracts.handles.ports import HowEnded as HowEnded
    from sessiontree.contracts.handles.ports import Memory as Memory
    from sessiontree.contracts.handles.ports import MemoryWriter as MemoryWriter
    from sessiontree.contracts.handles.ports import Page as Page
    from sessiontree.contracts.handles.ports import Reader as Reader
    from sessiontree.contracts.handles.ports import SearchHit as SearchHit
    from sessiontree.contracts.handles.ports import SearchQuery as SearchQuery
    from sessiontree.contracts.handles.ports import SessionFilter as SessionFilter
    from sessiontree.contracts.handles.ports import SessionReport as SessionReport
    from sessiontree.contracts.handles.ports import SessionRow as SessionRow
    from sessiontree.contracts.handles.ports import SessionRows as SessionRows
    from sessiontree.contracts.handles.ports import Sessions as Sessions
    from sessiontree.contracts.handles.ports import Shell as Shell
    from sessiontree.contracts.handles.ports import SpawnRequest as SpawnRequest
    from sessiontree.contracts.handles.ports import Status as Status
    from sessiontree.contracts.handles.ports import Subtree as Subtree
    from sessiontree.contracts.handles.ports import Transcript as Transcript
    from sessiontree.contracts.handles.ports import TranscriptEntry as TranscriptEntry
    from sessiontree.contracts.handles.ports import Web as Web
    from sessiontree.contracts.handles.ports import Writer as Writer
    from sessiontree.contracts.handles.ports import Written as Written
    from sessiontree.contracts.handles.previews import Previews as Previews
    from sessiontree.contracts.handles.previews import PublishedPage as PublishedPage
    from sessiontree.contracts.handles.runtime_control import ConfigurationChange as ConfigurationChange
    from sessiontree.contracts.handles.runtime_control import OwnerConfiguration as OwnerConfiguration
    from sessiontree.contracts.handles.runtime_control import PoolStatus as PoolStatus
    from sessiontree.contracts.handles.runtime_control import RestartReport as RestartReport
    from sessiontree.contracts.handles.runtime_control import RuntimeControl as RuntimeControl
    from sessiontree.contracts.handles.runtime_control import RuntimeStatus as RuntimeStatus
    from sessiontree.contracts.handles.runtime_control import StoredConfiguration as StoredConfiguration
    from sessiontree.contracts.handles.speech import AudioFormat as AudioFormat
    from sessiontree.contracts.handles.speech import Speech as Speech
    from sessiontree.contracts.handles.speech import SpeechRequest as SpeechRequest
    from sessiontree.contracts.handles.speech import SpeechSynthesizer as SpeechSynthesizer
    from sessiontree.contracts.handles.vision import Vision as Vision
    from sessiontree.contracts.handles.vision import VisionAnswer as VisionAnswer
    from sessiontree.contracts.kinds import ChildKind as ChildKind
    from sessiontree.contracts.kinds import ExecSecurity as ExecSecurity
    from sessiontree.contracts.kinds import PermissionTier as PermissionTier
    from sessiontree.contracts.kinds import SessionKind as SessionKind
    from sessiontree.contracts.kinds import SessionStatus as SessionStatus
    from sessiontree.contracts.kinds import SystemAnswer as SystemAnswer
    from sessiontree.contracts.kinds import TierLabel as TierLabel
    from sessiontree.contracts.kinds import Wait as Wait
    from sessiontree.contracts.kinds import WorkspaceAccess as WorkspaceAccess
    from sessiontree.contracts.recorded.approvals import ApprovalAnswer as ApprovalAnswer
    from sessiontree.contracts.recorded.approvals import ApprovalMode as ApprovalMode
    from sessiontree.contracts.recorded.approvals import ApprovalRequest as ApprovalRequest
    from sessiontree.contracts.recorded.approvals import Rule as Rule
    from sessiontree.contracts.recorded.approvals import RuleAnswer as RuleAnswer
    from sessiontree.contracts.recorded.canvas import Canvas as Canvas
    from sessiontree.contracts.recorded.canvas import CanvasAction as CanvasAction
    from sessiontree.contracts.recorded.canvas import CanvasQuestionKind as CanvasQuestionKind
    from sessiontree.contracts.recorded.canvas import CanvasReport as CanvasReport
    from sessiontree.contracts.recorded.capabilities import BROWSER as BROWSER
    from sessiontree.contracts.recorded.capabilities import CANVAS as CANVAS
    from sessiontree.contracts.recorded.capabilities import CHANNEL as CHANNEL
    from sessiontree.contracts.recorded.capabilities import CHILD_WORKSPACES as CHILD_WORKSPACES
    from sessiontree.contracts.recorded.capabilities import CRON as CRON
    from sessiontree.contracts.recorded.capabilities import HTTP as HTTP
    from sessiontree.contracts.recorded.capabilities import IMAGES as IMAGES
    from sessiontree.contracts.recorded.capabilities import JOBS as JOBS
    from sessiontree.contracts.recorded.capabilities import MEMORY as MEMORY
    from sessiontree.contracts.recorded.capabilities import MEMORY_WRITER as MEMORY_WRITER
    from sessiontree.contracts.recorded.capabilities import NODES as NODES
    from sessiontree.contracts.recorded.capabilities import PREVIEWS as PREVIEWS
    from sessiontree.contracts.recorded.capabilities import READER as READER
    from sessiontree.contracts.recorded.capabilities import SESSIONS as SESSIONS
    from sessiontree.contracts.recorded.capabilities import SHELL as SHELL
    from sessiontree.contracts.recorded.capabilities import SPEECH as SPEECH
    from sessiontree.contracts.recorded.capabilities import SUBTREE as SUBTREE
    from sessiontree.contracts.recorded.capabilities import VISION as VISION
    from sessiontree.contracts.recorded.capabilities import WEB as WEB
    from sessiontree.contracts.recorded.capabilities import WRITER as WRITER
    from sessiontree.contracts.recorded.capabilities import Capability as Capability
    from sessiontree.contracts.recorded.child_workspaces import ChangesState as ChangesState
    from sessiontree.contracts.recorded.child_workspaces import ChildChanges as ChildChanges
    from sessiontree.contracts.recorded.child_workspaces import ChildWorkspaces as ChildWorkspaces
    from sessiontree.contracts.recorded.client_calls import ClientCall as ClientCall
    from sessiontree.contracts.recorded.codec import Outcome as Outcome
    from sessiontree.contracts.recorded.cron import Cron as Cron
    from sessiontree.contracts.recorded.cron import CronTable as CronTable
    from sessiontree.contracts.recorded.cron import JobAction as JobAction
    from sessiontree.contracts.recorded.cron import JobChange as JobChange
    from sessiontree.contracts.recorded.cron import JobRow as JobRow
    from sessiontree.contracts.recorded.cron import JobRun as JobRun
    from sessiontree.contracts.recorded.cron import JobWanted as JobWanted
    from sessiontree.contracts.recorded.questions import AnswerGiven as AnswerGiven
    from sessiontree.contracts.recorded.questions import QuestionAnswer as QuestionAnswer
    from sessiontree.contracts.recorded.questions import QuestionItem as QuestionItem
    from sessiontree.contracts.recorded.questions import QuestionOption as QuestionOption
    from sessiontree.contracts.recorded.questions import QuestionReply as QuestionReply
    from sessiontree.contracts.recorded.questions import QuestionRequest as QuestionRequest
    from sessiontree.contracts.recorded.questions import Surface as Surface
    from sessiontree.contracts.recorded.results import Artifact as Artifact
    from sessiontree.contracts.recorded.results import ArtifactKind as ArtifactKind
    from sessiontree.contracts.recorded.results import ChildOutcome as ChildOutcome
    from sessiontree.contracts.recorded.results import SessionResult as SessionResult
    from sessiontree.contracts.recorded.results import ToolResult as ToolResult
    from sessiontree.contracts.recorded.results import Untrusted as Untrusted
    from sessiontree.contracts.recorded.results import image_result as image_result
    from sessiontree.contracts.recorded.results import image_result_from_file as image_result_from_file
    from sessiontree.contracts.recorded.results import json_result as json_result
    from sessiontree.contracts.recorded.senders import Principal as Principal
    from sessiontree.contracts.recorded.senders import Sender as Sender
    from sessiontree.contracts.recorded.tool_inputs import AnsweredInput as AnsweredInput
    from sessiontree.contracts.recorded.tool_inputs import InputNeeded as InputNeeded
    from sessiontree.contracts.recorded.tool_inputs import ToolInput as ToolInput
    from sessiontree.contracts.reports.dry_run import CallForecast as CallForecast
    from sessiontree.contracts.reports.dry_run import DryCall as DryCall
    from sessiontree.contracts.reports.dry_run import DryQuestion as DryQuestion
    from sessiontree.contracts.reports.dry_run import DryRun as DryRun
    from sessiontree.contracts.reports.dry_run import DrySession as DrySession
    from sessiontree.contracts.reports.events import Done as Done
    from sessiontree.contracts.reports.events import Event as Event
    from sessiontree.contracts.reports.events import ModelEvent as ModelEvent
    from sessiontree.contracts.reports.events import TextDelta as TextDelta
    from sessiontree.contracts.reports.events import ThinkingDelta as ThinkingDelta
    from sessiontree.contracts.reports.events import ToolCallDelta as ToolCallDelta
    from sessiontree.contracts.reports.events import ToolCallEnd as ToolCallEnd
    from sessiontree.contracts.reports.events import ToolCallStart as ToolCallStart
    from sessiontree.contracts.reports.events import ToolEvent as ToolEvent
    from sessiontree.contracts.reports.events import ToolExecutionEnd as ToolExecutionEnd
    from sessiontree.contracts.reports.events import ToolExecutionRetry as ToolExecutionRetry
    from sessiontree.contracts.reports.events import ToolExecutionStart as ToolExecutionStart
    from sessiontree.contracts.reports.events import ToolExecutionUpdate as ToolExecutionUpdate
    from sessiontree.contracts.reports.events import TranscriptRepaired as TranscriptRepaired
    from sessiontree.contracts.reports.fan_outs import ChildResults as ChildResults
    from sessiontree.contracts.reports.fan_outs import FanOutCounts as FanOutCounts
    from sessiontree.contracts.reports.replay_report import ReplayDifference as ReplayDifference
    from sessiontree.contracts.reports.replay_report import ReplayReport as ReplayReport
    from sessiontree.contracts.settings.model_settings import ModelPrice as ModelPrice
    from sessiontree.contracts.settings.model_settings import ModelSettings as ModelSettings
    from sessiontree.contracts.settings.model_settings import OnLength as OnLength
    from sessiontree.contracts.settings.model_settings import ThinkingLevel as ThinkingLevel
    from sessiontree.contracts.settings.sandbox_spec import ContainerEngine as ContainerEngine
    from sessiontree.contracts.settings.sandbox_spec import ContainerScope as ContainerScope
    from sessiontree.contracts.settings.sandbox_spec import FilesWay as FilesWay
    from sessiontree.contracts.settings.sandbox_spec import SandboxSpec as SandboxSpec
    from sessiontree.contracts.settings.settings import Budget as Budget
    from sessiontree.contracts.settings.settings import ImageLimits as ImageLimits
    from sessiontree.contracts.settings.settings import Limits as Limits
    from sessiontree.contracts.settings.settings import MessagePolicy as MessagePolicy
    from sessiontree.contracts.tools.agent import AgentConfig as AgentConfig
    from sessiontree.contracts.tools.client_tool import ClientTool as ClientTool
    from sessiontree.contracts.tools.context import ToolContext as ToolContext
    from sessiontree.contracts.tools.decorator import FunctionTool as FunctionTool
    from sessiontree.contracts.tools.decorator import ToolFunction as ToolFunction
    from sessiontree.contracts.tools.decorator import tool as tool
    from sessiontree.contracts.tools.hooks import BlockCall as BlockCall
    from sessiontree.contracts.tools.hooks import CalledTool as CalledTool
    from sessiontree.contracts.tools.hooks import ChangeArguments as ChangeArguments
    from sessiontree.contracts.tools.hooks import EndedCall as EndedCall
    from sessiontree.contracts.tools.hooks import EndedSession as EndedSession
    from sessiontree.contracts.tools.hooks import Hook as Hook
    from sessiontree.contracts.tools.hooks import HookAnswer as HookAnswer
    from sessiontree.contracts.tools.hooks import HookContext as HookContext
    from sessiontree.contracts.tools.hooks import HookResult as HookResult
    from sessiontree.contracts.tools.hooks import HookText as HookText
    from sessiontree.contracts.tools.hooks import KeptResult as KeptResult
    from sessiontree.contracts.tools.hooks import OnError as OnError
    from sessiontree.contracts.tools.hooks import Rewrite as Rewrite
    from sessiontree.contracts.tools.hooks import SpawnAnswer as SpawnAnswer
    from sessiontree.contracts.tools.hooks import Spawning as Spawning
    from sessiontree.contracts.tools.hooks import Speaker as Speaker
    from sessiontree.contracts.tools.hooks import StartedSession as StartedSession
    from sessiontree.contracts.tools.own_program import keep_process as keep_process
    from sessiontree.contracts.tools.own_program import program_words as program_words
    from sessiontree.contracts.tools.own_program import release_process as release_process
    from sessiontree.contracts.tools.plugins import PluginContext as PluginContext
    from sessiontree.contracts.tools.plugins import PluginSettings as PluginSettings
    from sessiontree.contracts.tools.schema_tool import SchemaTool as SchemaTool
    from sessiontree.contracts.tools.schema_tool import schema_tool as schema_tool
    from sessiontree.contracts.tools.tool import AllowEmpty as AllowEmpty
    from sessiontree.contracts.tools.tool import RawTool as RawTool
    from sessiontree.contracts.tools.tool import Retry as Retry
    from sessiontree.contracts.tools.tool import Stripped as Stripped
    from sessiontree.contracts.tools.tool import Tool as Tool
    from sessiontree.contracts.tools.tool import ToolFlag as ToolFlag
    from sessiontree.contracts.tools.tool import optional_string_enum as optional_string_enum
    from sessiontree.contracts.tools.tool import string_enum as string_enum
    from sessiontree.contracts.values.jsonable import JsonValue as JsonValue
    from sessiontree.contracts.values.memory import MemoryHit as MemoryHit
    from sessiontree.contracts.values.memory import MemoryQuery as MemoryQuery
    from sessiontree.contracts.values.memory import MemoryRecord as MemoryRecord
    from sessiontree.contracts.values.memory import MemoryScope as MemoryScope
    from sessiontree.contracts.values.memory import NewRecord as NewRecord
    from sessiontree.contracts.values.memory import RecordType as RecordType
    from sessiontree.contracts.values.memory import Selection as Selection
    from sessiontree.contracts.values.memory import Trust as Trust
    from sessiontree.contracts.values.messages import AssistantMessage as AssistantMessage
    from sessiontree.contracts.values.messages import ImageContent as ImageContent
    from sessiontree.contracts.values.messages import Message as Message
    from sessiontree.contracts.values.messages import Origin as Origin
    from sessiontree.contracts.values.messages import ProviderForm as ProviderForm
    from sessiontree.contracts.values.messages import ReplyContent as ReplyContent
    from sessiontree.contracts.values.messages import StopReason as StopReason
    from sessiontree.contracts.values.messages import TextContent as TextContent
    from sessiontree.contracts.values.messages import ThinkingContent as ThinkingContent
    from sessiontree.contracts.values.messages import ToolCall as ToolCall
    from sessiontree.contracts.values.messages import ToolReply as ToolReply
    from sessiontree.contracts.values.messages import ToolResultMessage as ToolResultMessage
    from sessiontree.contracts.values.messages import Usage as Usage
    from sessiontree.contracts.values.messages import UserMessage as UserMessage
    from sessiontree.hooks.redact import Redact as Redact
    from sessiontree.hooks.results import AddMetadata as AddMetadata
    from sessiontree.hooks.results import TrimResults as TrimResults
    from sessiontree.journal.record import JournalRecord as JournalRecord
    from sessiontree.mcp.settings import McpServer as McpServer
    from sessiontree.mcp.settings import TierName as TierName
    from sessiontree.memory.settings import EmbedderSettings as EmbedderSettings
    from sessiontree.memory.settings import HashingSettings as HashingSettings
    from sessiontree.memory.settings import HTTPSettings as HTTPSettings
    from sessiontree.memory.settings import MemorySettings as MemorySettings
    from sessiontree.memory.settings import MiniLMSettings as MiniLMSettings
    from sessiontree.models.answers import Answer as Answer
    from sessiontree.models.answers import script_call as script_call
    from sessiontree.models.cassettes.recorded_model import RecordableModel as RecordableModel
    from sessiontree.models.cassettes.recorded_model import RecordedModel as RecordedModel
    from sessiontree.models.port import CallPiece as CallPiece
    from sessiontree.models.port import EmitEvent as EmitEvent
    from sessiontree.models.port import GatewayModel as GatewayModel
    from sessiontree.models.port import InProcessModel as InProcessModel
    from sessiontree.models.port import Model as Model
    from sessiontree.models.port import ModelPiece as ModelPiece
    from sessiontree.models.port import ModelRequest as ModelRequest
    from sessiontree.models.port import Piece as Piece
    from sessiontree.models.port import RemoteModel as RemoteModel
    from sessiontree.models.port import StopPiece as StopPiece
    from sessiontree.models.port import StreamingModel as StreamingModel
    from sessiontree.models.port import ThinkingPiece as ThinkingPiece
    from sessiontree.models.port import ToolSpec as ToolSpec
    from sessiontree.models.providers.call_limits import CallLimits as CallLimits
    from sessiontree.models.providers.provider_model import CallTimeouts as CallTimeouts
    from sessiontree.models.providers.provider_model import ProviderModel as ProviderModel
    from sessiontree.models.scripted import AsyncFunctionModel as AsyncFunctionModel
    from sessiontree.models.scripted import FunctionModel as FunctionModel
    from sessiontree.models.scripted import Script as Script
    from sessiontree.models.scripted import ScriptedModel as ScriptedModel
    from sessiontree.models.scripted import StreamFunctionModel as StreamFunctionModel
    from sessiontree.notebook.extension import load_ipython_extension as load_ipython_extension
    from sessiontree.policy.catalog import Profile as Profile
    from sessiontree.policy.compiled import PolicyWarning as PolicyWarning
    from sessiontree.policy.settings import ApplyPatchPolicy as ApplyPatchPolicy
    from sessiontree.policy.settings import PolicyConfig as PolicyConfig
    from sessiontree.policy.settings import PolicyEntry as PolicyEntry
    from sessiontree.policy.settings import ProfiledTools as ProfiledTools
    from sessiontree.policy.settings import ToolLists as ToolLists
    from sessiontree.policy.settings import ToolPolicy as ToolPolicy
    from sessiontree.runtime.transport.progress import Progress as Progress
    from sessiontree.runtime.transport.progress import ProgressReader as ProgressReader
    from sessiontree.schema.derive import to_mcp_tool as to_mcp_tool
    from sessiontree.schema.dialect import SchemaWarning as SchemaWarning
    from sessiontree.tree.report import ReceiptLine as ReceiptLine
    from sessiontree.web.settings import WebSettings as WebSettings

__version__ = VERSION

_ROOMS = {
    "contracts.facts.tree_facts": ("Fact",),
    "channels.program_channels": (
        "AnswerLike",
        "Answerer",
        "Approver",
        "BelowListener",
        "CallbackChannel",
        "DisplayListener",
        "Listener",
        "QueueChannel",
    ),
    "channels.safe_text": ("make_visible",),
    "channels.terminal": ("TerminalChannel",),
    "contracts.tools.agent": ("AgentConfig",),
    "contracts.recorded.approvals": (
        "ApprovalAnswer",
        "ApprovalMode",
        "ApprovalRequest",
        "Rule",
        "RuleAnswer",
    ),
    "contracts.recorded.client_calls": ("ClientCall",),
    "contracts.tools.client_tool": ("ClientTool",),
    "contracts.tools.context": ("ToolContext",),
    "contracts.recorded.capabilities": (
        "BROWSER",
        "CANVAS",
        "CHANNEL",
        "CHILD_WORKSPACES",
        "CRON",
        "Capability",
        "HTTP",
        "IMAGES",
        "JOBS",
        "MEMORY",
        "MEMORY_WRITER",
        "NODES",
        "PREVIEWS",
        "READER",
        "SESSIONS",
        "SHELL",
        "SPEECH",
        "SUBTREE",
        "VISION",
        "WEB",
        "WRITER",
    ),
    "contracts.tools.decorator": ("FunctionTool", "ToolFunction", "tool"),
    "contracts.errors": (
        "AnswerTooLate",
        "ConfigError",
        "MemoryFailed",
        "EngineLost",
        "ExecutionError",
        "FailureReason",
        "ImageRefused",
        "JournalCorrupt",
        "JournalError",
        "JournalLocked",
        "TreeNotFound",
        "JournalTooNew",
        "JournalUnwritable",
        "LimitExceeded",
        "ModelBusy",
        "ModelError",
        "ModelKeyRefused",
        "SessionFailed",
        "ModelUnreachable",
        "ContextOverflow",
        "PermissionDenied",
        "SessionClosed",
        "SessionError",
        "SessionNotFound",
        "SessionTreeError",
        "ShardLost",
        "SpawnRefused",
        "SupervisorUnavailable",
        "Timeout",
        "ToolAuthorizationError",
        "ToolError",
        "ToolInputError",
        "ValidationError",
        "WrongLoop",
    ),
    "contracts.tools.tool": (
        "AllowEmpty",
        "RawTool",
        "Retry",
        "Tool",
        "ToolFlag",
        "Stripped",
        "optional_string_enum",
        "string_enum",
    ),
    "contracts.handles.vision": ("Vision", "VisionAnswer"),
    "contracts.settings.sandbox_spec": ("ContainerEngine", "ContainerScope", "FilesWay", "SandboxSpec"),
    "contracts.settings.settings": ("Budget", "ImageLimits", "Limits", "MessagePolicy"),
    "contracts.tools.hooks": (
        "BlockCall",
        "CalledTool",
        "ChangeArguments",
        "EndedCall",
        "EndedSession",
        "Hook",
        "HookAnswer",
        "HookContext",
        "KeptResult",
        "OnError",
        "HookResult",
        "Rewrite",
        "SpawnAnswer",
        "Spawning",
        "Speaker",
        "StartedSession",
        "HookText",
    ),
    "contracts.kinds": (
        "ChildKind",
        "ExecSecurity",
        "PermissionTier",
        "SessionKind",
        "SessionStatus",
        "SystemAnswer",
        "TierLabel",
        "Wait",
        "WorkspaceAccess",
    ),
    "contracts.values.memory": (
        "MemoryHit",
        "MemoryQuery",
        "MemoryRecord",
        "MemoryScope",
        "NewRecord",
        "RecordType",
        "Selection",
        "Trust",
    ),
    "contracts.values.messages": (
        "AssistantMessage",
        "ImageContent",
        "Message",
        "Origin",
        "ProviderForm",
        "ReplyContent",
        "StopReason",
        "TextContent",
        "ThinkingContent",
        "ToolCall",
        "ToolReply",
        "ToolResultMessage",
        "Usage",
        "UserMessage",
    ),
    "contracts.settings.model_settings": ("ModelPrice", "ModelSettings", "OnLength", "ThinkingLevel"),
    "contracts.tools.own_program": ("keep_process", "program_words", "release_process"),
    "contracts.tools.plugins": ("PluginContext", "PluginSettings"),
    "contracts.reports.dry_run": ("CallForecast", "DryCall", "DryQuestion", "DryRun", "DrySession"),
    "contracts.reports.replay_report": ("ReplayDifference", "ReplayReport"),
    "contracts.recorded.questions": (
        "AnswerGiven",
        "QuestionAnswer",
        "QuestionItem",
        "QuestionOption",
        "QuestionReply",
        "QuestionRequest",
        "Surface",
    ),
    "contracts.reports.fan_outs": ("ChildResults", "FanOutCounts"),
    "contracts.recorded.results": (
        "Artifact",
        "ArtifactKind",
        "ChildOutcome",
        "SessionResult",
        "ToolResult",
        "Untrusted",
        "image_result",
        "image_result_from_file",
        "json_result",
    ),
    "contracts.tools.schema_tool": ("SchemaTool", "schema_tool"),
    "contracts.recorded.senders": ("Principal", "Sender"),
    "contracts.facts.tree_config": ("ShardRow", "TreeSummary", "Via"),
    "api.agents.agent_files": ("load_agents",),
    "api.agents.agents": ("AgentSpec",),
    "api.options.app": ("App", "ProgramsLike", "SkillsLike"),
    "api.tree.keyword_options": (
        "ChildOptions",
        "MapOptions",
        "ResumeOptions",
        "SpawnOptions",
        "TreeOptions",
    ),
    "api.tree.child_results": ("ChildResult", "OnChildError"),
    "api.configuration.configuration": ("Configuration",),
    "api.configuration.configuration_members": ("WorkspaceEntry",),
    "api.tree.fact_reader": ("FactReader",),
    "api.tree.inbox": ("Approvals", "PendingApproval"),
    "api.tree.own_workspaces": ("MergeConflict", "Merged", "OwnWorkspace", "OwnWorkspaces"),
    "api.programs.program_files": ("SavedProgramWarning",),
    "api.tree.questions": ("PendingQuestion", "Questions"),
    "api.tree.pending_reply": ("PendingReply",),
    "api.tree.session_handle": ("SessionHandle",),
    "api.options.skills": ("SkillWarning",),
    "hooks.redact": ("Redact",),
    "hooks.results": ("AddMetadata", "TrimResults"),
    "journal.record": ("JournalRecord",),
    "runtime.transport.progress": ("Progress", "ProgressReader"),
    "mcp.settings": ("McpServer", "TierName"),
    "contracts.handles.mcp": ("InputResponses", "ServerCall", "ServerInput", "ServerReply", "ServerTools"),
    "contracts.recorded.tool_inputs": ("AnsweredInput", "InputNeeded", "ToolInput"),
    "memory.settings": (
        "EmbedderSettings",
        "HTTPSettings",
        "HashingSettings",
        "MemorySettings",
        "MiniLMSettings",
    ),
    "models.answers": ("Answer", "script_call"),
    "models.port": (
        "CallPiece",
        "EmitEvent",
        "GatewayModel",
        "InProcessModel",
        "Model",
        "ModelPiece",
        "ModelRequest",
        "Piece",
        "RemoteModel",
        "StopPiece",
        "StreamingModel",
        "ThinkingPiece",
        "ToolSpec",
    ),
    "models.providers.call_limits": ("CallLimits",),
    "models.providers.provider_model": ("CallTimeouts", "ProviderModel"),
    "models.cassettes.recorded_model": ("RecordableModel", "RecordedModel"),
    "models.scripted": (
        "AsyncFunctionModel",
        "FunctionModel",
        "Script",
        "ScriptedModel",
        "StreamFunctionModel",
    ),
    "web.settings": ("WebSettings",),
    "notebook.extension": ("load_ipython_extension",),
    "policy.settings": (
        "ApplyPatchPolicy",
        "PolicyConfig",
        "PolicyEntry",
        "ProfiledTools",
        "ToolLists",
        "ToolPolicy",
    ),
    "policy.compiled": ("PolicyWarning",),
    "api.runtime.runtime": ("Runtime",),
    "api.runtime.runtime_options": ("BackendName", "Enforcement", "RuntimeOptions", "Shards"),
    "schema.dialect": ("SchemaWarning",),
    "schema.derive": ("to_mcp_tool",),
    "api.tree.session_tree": ("SessionTree",),
    "api.stored.stored_trees": ("StoredTrees",),
    "api.telemetry.telemetry": ("Telemetry", "TelemetryLike"),
    "tree.report": ("ReceiptLine",),
    "contracts.values.jsonable": ("JsonValue",),
    "api.agents.configured_models": ("ModelEntry", "RateSettings", "TimeoutSettings"),
    "contracts.recorded.codec": ("Outcome",),
    "contracts.reports.events": (
        "Done",
        "Event",
        "ModelEvent",
        "TextDelta",
        "ThinkingDelta",
        "ToolCallDelta",
        "ToolCallEnd",
        "ToolCallStart",
        "ToolEvent",
        "ToolExecutionEnd",
        "ToolExecutionRetry",
        "ToolExecutionStart",
        "ToolExecutionUpdate",
        "TranscriptRepaired",
    ),
    "api.options.options": ("ApproverLike", "ChannelLike", "GuidanceSource", "PluginsLike", "PolicyLike"),
    "contracts.facts.stimuli": ("SendMode",),
    "contracts.handles.ports": (
        "AgentInfo",
        "Channel",
        "Entry",
        "EntryType",
        "Finished",
        "Freshness",
        "HowEnded",
        "Memory",
        "MemoryWriter",
        "Page",
        "Reader",
        "SearchHit",
        "SearchQuery",
        "SessionFilter",
        "SessionReport",
        "SessionRow",
        "SessionRows",
        "Sessions",
        "Shell",
        "SpawnRequest",
        "Status",
        "Subtree",
        "Transcript",
        "TranscriptEntry",
        "Web",
        "Writer",
        "Written",
    ),
    "api.agents.model_choice": ("ModelLike",),
    "channels.port": ("HumanChannel",),
    "api.tree.client_calls": ("ClientCalls", "WaitingCall"),
    "policy.catalog": ("Profile",),
    "contracts.recorded.child_workspaces": (
        "ChangesState",
        "ChildChanges",
        "ChildWorkspaces",
    ),
    "contracts.handles.browser": (
        "ActionKind",
        "Browser",
        "BrowserStatus",
        "ConsoleKind",
        "ConsoleLine",
        "PageAction",
        "PageFile",
        "PageFiles",
        "PageSnapshot",
        "Tab",
        "Viewport",
        "World",
    ),
    "contracts.handles.jobs": (
        "CommandRequest",
        "JobView",
        "Jobs",
        "OutputPart",
        "WindowSize",
    ),
    "contracts.handles.http_requests": (
        "HttpMethod",
        "HttpRequest",
        "HttpResponse",
        "HttpSender",
    ),
    "contracts.handles.previews": (
        "Previews",
        "PublishedPage",
    ),
    "contracts.recorded.canvas": (
        "Canvas",
        "CanvasAction",
        "CanvasQuestionKind",
        "CanvasReport",
    ),
    "contracts.handles.image_facts": (
        "ImageColour",
        "ImageFacts",
        "ImageInspector",
    ),
    "contracts.handles.nodes": (
        "NodeInfo",
        "Nodes",
    ),
    "contracts.recorded.cron": (
        "Cron",
        "CronTable",
        "JobAction",
        "JobChange",
        "JobRow",
        "JobRun",
        "JobWanted",
    ),
    "contracts.handles.runtime_control": (
        "ConfigurationChange",
        "OwnerConfiguration",
        "PoolStatus",
        "RestartReport",
        "RuntimeControl",
        "RuntimeStatus",
        "StoredConfiguration",
    ),
    "contracts.handles.speech": (
        "AudioFormat",
        "Speech",
        "SpeechRequest",
        "SpeechSynthesizer",
    ),
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
