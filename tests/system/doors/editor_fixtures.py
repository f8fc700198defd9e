"""An agent for editors in this process, and an editor that talks to it by a real client through a socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from acp import RequestError, connect_to_agent, text_block
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    RequestPermissionResponse,
    ToolCallProgress,
    ToolCallStart,
)

from sessiontree import Model, PermissionTier, PolicyConfig, Runtime, ToolPolicy
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.doors.acp.agent import EditorRights, serve_editor
from sessiontree.doors.acp.editor_session import EditorChannel
from sessiontree.doors.acp.json_lines import MessageLines
from sessiontree.doors.acp.options import ModelChoice
from sessiontree.doors.conversations import Conversation, Conversations, OptionsFor
from sessiontree.doors.principals import DoorPrincipal, DoorRights
from tests.behaviour.effect_fakes import TOOLS, Append, Words

ALLOW: Final = "allow_once"
CONTEXT_TOKENS: Final = 1_000
"""Size of the context of every model."""
Choose = Callable[[Any], Awaitable[str]]
"""Returns the id of the option that a person chooses for a tool call; empty = they cancel."""


async def allow(call: Any) -> str:
    """Allow every call once."""
    return ALLOW


class Sly(Append):
    """Says that it only reads, and changes the workspace if it is asked to."""

    name = "sly"
    tier = PermissionTier.READ_ONLY

    def tier_for(self, params: Words) -> PermissionTier:
        return PermissionTier.WORKSPACE if params.text != "x" else PermissionTier.READ_ONLY


class EditorFake:
    """An editor: keeps what it is sent, and answers what it is asked.

    Args:
        choose: Answers requests for a permission.
    """

    def __init__(self, choose: Choose = allow) -> None:
        self.choose = choose
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.options: list[list[str]] = []
        self.forms: list[Any] = []
        self.form_answer: dict[str, Any] = {}
        self.has_asked = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        """Need nothing of the connection."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        self.options.append([each.kind for each in options])
        self.has_asked.set()
        chosen = await self.choose(tool_call)
        outcome = (
            AllowedOutcome(outcome="selected", option_id=chosen)
            if chosen
            else DeniedOutcome(outcome="cancelled")
        )
        return RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> AcceptElicitationResponse:
        self.forms.append((message, mode))
        return AcceptElicitationResponse(action="accept", content=self.form_answer)

    @property
    def text(self) -> str:
        """All that the agent has said, in order."""
        return "".join(
            each.content.text for each in self.updates if each.session_update == "agent_message_chunk"
        )

    @property
    def calls(self) -> dict[str, list[str]]:
        """The states of each tool call, in order, by its id."""
        found: dict[str, list[str]] = {}
        for each in self.updates:
            if isinstance(each, ToolCallStart | ToolCallProgress) and each.status is not None:
                found.setdefault(each.tool_call_id, []).append(each.status)
        return found

    def shown(self) -> list[Any]:
        """Return what the updates show in the end: each text by its message, each call by its last state."""
        found: dict[str, Any] = {}
        for each in self.updates:
            if each.session_update in {"agent_message_chunk", "user_message_chunk", "agent_thought_chunk"}:
                key = f"{each.session_update} {each.message_id}"
                found[key] = found.get(key, "") + each.content.text
            elif isinstance(each, ToolCallStart | ToolCallProgress):
                found[each.tool_call_id] = (
                    each.status,
                    each.content or found.get(each.tool_call_id, ("", None))[1],
                )
        return list(found.items())


@dataclass
class OpenEditor:
    """An editor that is connected.

    Args:
        place: Where its state and its workspace are.
        fake: The editor.
        connection: Its connection to the agent.
        raw: Writes to the agent, past the connection.
    """

    place: Path
    fake: EditorFake
    connection: Any
    raw: asyncio.StreamWriter
    conversations: Conversations
    principal: DoorPrincipal

    @property
    def workspace(self) -> Path:
        """The directory of its sessions."""
        return self.place / "workspace"

    async def find(self, session_id: str) -> Conversation:
        """Return a session as its owner has it."""
        return await self.conversations.find(self.principal, session_id)

    async def begin(self) -> str:
        """Open a session and return its id."""
        return str((await self.connection.new_session(cwd=str(self.workspace))).session_id)

    async def prompt(self, session_id: str, text: str = "go") -> str:
        """Send a prompt and return why it stopped."""
        sent = self.connection.prompt(session_id=session_id, prompt=[text_block(text)])
        return str((await sent).stop_reason)


async def refusal_of(attempt: Awaitable[Any]) -> tuple[int, str]:
    """Return the code and the details with which an attempt is refused."""
    try:
        await attempt
    except RequestError as error:
        return error.code, str((error.data or {}).get("details", error))
    raise AssertionError("it was not refused")


@asynccontextmanager
async def open_editor(
    place: Path,
    model: Model | OptionsFor,
    fake: EditorFake | None = None,
    *,
    forms: bool = False,
    others: Sequence[Model] = (),
    backend: BackendName = "local",
    **rights: Any,
) -> AsyncIterator[OpenEditor]:
    """Connect an editor to an agent with local trees over one state directory.

    Args:
        place: The directory of state and workspace.
        model: The model of all trees, or what returns their arguments.
        fake: The editor; None = one that allows everything.
        forms: Whether it shows forms.
        others: Models that may answer instead, if ``model`` is one.
        backend: What runs the trees.
        rights: Members of DoorRights.
    """
    workspace = place / "workspace"
    workspace.mkdir(exist_ok=True)
    policy = PolicyConfig(tools=ToolPolicy(allow=("*",)))

    def options_for(_: str, agent: str | None) -> dict[str, Any]:
        return {"model": model, "tools": (*TOOLS, Sly()), "policy": policy, "agent": agent or "default"}

    def models_of(_: Path, __: str) -> list[ModelChoice]:
        usual = model if not callable(model) else model(str(workspace), None)["model"]
        return [
            ModelChoice(str(each.name), str(each.name), each, CONTEXT_TOKENS) for each in (usual, *others)
        ]

    conversations = Conversations(
        lambda: Runtime(place / "state", backend=backend),
        model if callable(model) else options_for,
        lambda principal: EditorChannel((principal.principal_id,)),
    )
    given = DoorRights(**{"tier": "Elevated", "approves": True, "workspace": str(workspace), **rights})
    principal = DoorPrincipal("acp", "editor", given)
    ours, theirs = socket.socketpair()
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(sock=theirs)

        async def write(line: bytes) -> None:
            writer.write(line)
            await writer.drain()

        serving = asyncio.create_task(
            serve_editor(
                MessageLines(reader, write),
                lambda _, __: conversations,
                EditorRights(principal, "default", models_of, (workspace.resolve(),)),
                lambda: (conversations,),
            )
        )
        own_reader, own_writer = await asyncio.open_connection(sock=ours, limit=2**24)
        fake = fake or EditorFake()
        connection = connect_to_agent(cast("Any", fake), own_writer, own_reader, use_unstable_protocol=True)
        try:
            form = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
            await connection.initialize(
                protocol_version=1, client_capabilities=ClientCapabilities(elicitation=form)
            )
            yield OpenEditor(place, fake, connection, own_writer, conversations, principal)
        finally:
            await connection.close()
            own_writer.close()
            await own_writer.wait_closed()
            await serving
            writer.close()
            with suppress(ConnectionError):  # the editor had gone before it read all
                await writer.wait_closed()
