"""The agent of the protocol: its methods, each of them an act on the conversations of one principal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from acp import PROTOCOL_VERSION, RequestError, run_agent
from acp.interfaces import Agent, Client
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.facts.tree_config import TreeSummary
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.acp.editor_session import Editor, EditorSession
from sessiontree.doors.acp.json_lines import MessageLines
from sessiontree.doors.acp.options import (
    MODEL,
    TIER,
    ModelChoice,
    check_model,
    check_tier,
    list_options,
    make_modes,
)
from sessiontree.doors.acp.prompts import read_prompt
from sessiontree.doors.conversations import ConflictError, Conversation, Conversations, NotFoundError
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.version import VERSION

MAX_NAMES: Final = 10
"""Names that one notice lists."""
PAGE: Final = 100
"""Sessions of one answer to ``session/list``."""
ConversationsAt = Callable[[Path, "str | None"], Conversations]
"""Returns what keeps the new trees of a workspace, the same for the same workspace; or, for the id of a tree
that is in another journal, what keeps those of that journal."""


@dataclass(frozen=True, slots=True)
class EditorRights:
    """What an editor may open."""

    principal: DoorPrincipal
    agent: str
    """Main's agent in new sessions."""
    models_of: Callable[[Path, str], Sequence[ModelChoice]]
    """Returns what may answer in sessions of an agent in a workspace, at least one, and first what answers
    where nobody chooses; raises ConfigError."""
    roots: tuple[Path, ...] = ()
    """Directories that a session may work in or below; empty = any."""

    def restrict_principal(self, root: Path) -> DoorPrincipal:
        """Return the principal, as it may act in a workspace: what the owner says of that applies."""
        given = self.principal.rights.model_copy(update={"workspace": str(root)})
        return replace(self.principal, rights=given)


@asynccontextmanager
async def _convert_errors() -> AsyncIterator[None]:
    """Raise the project's errors as those of the protocol."""
    try:
        yield
    except NotFoundError as error:
        raise RequestError(-32002, "Resource not found", {"details": str(error)}) from None
    except ConflictError as error:
        raise RequestError.invalid_request({"details": str(error)}) from None
    except ConfigError as error:
        raise RequestError.invalid_params({"details": str(error)}) from None
    except SessionTreeError as error:
        raise RequestError.internal_error({"details": str(error)}) from None


class TreeAgent:
    """Serves one editor.

    Args:
        transport: The connection's lines.
        conversations_at: What keeps the trees of a workspace.
        rights: What the editor may open.
    """

    def __init__(
        self, transport: MessageLines, conversations_at: ConversationsAt, rights: EditorRights
    ) -> None:
        self._transport = transport
        self._conversations_at = conversations_at
        self._rights = rights
        self._client: Client | None = None
        self._has_forms = False
        self._sessions: dict[str, EditorSession] = {}
        self._used: dict[Path, list[Conversations]] = {}
        """What keeps the trees of each workspace, by journal: editors that run at once have one each."""
        self._opening = asyncio.Lock()

    def on_connect(self, conn: Client) -> None:
        """Take the connection's other side."""
        self._client = conn

    async def close(self) -> None:
        """Close all sessions; they can be loaded later."""
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, **_: Any
    ) -> InitializeResponse:
        """Say what this agent can do; it speaks one version of the protocol, and needs no login."""
        asked = client_capabilities
        self._has_forms = bool(asked and asked.elicitation and asked.elicitation.form)
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
            agent_info=Implementation(name="sessiontree", title="sessiontree", version=VERSION),
        )

    async def new_session(self, cwd: str, **given: Any) -> NewSessionResponse:
        """Open a new tree over a directory."""
        async with _convert_errors():
            root = self._find_root(cwd, given)
            conversations = self._list_used(root)[0]
            conversation = await conversations.begin(
                self._rights.restrict_principal(root), self._rights.agent
            )
            models = self._rights.models_of(root, conversation.agent)
            session = self._keep(conversation, root, models)
        _begin_soon(lambda: session.begin(_write_notice(given)))
        return NewSessionResponse(session_id=session.session_id, **_list_choices(session))

    async def load_session(self, cwd: str, session_id: str, **given: Any) -> LoadSessionResponse:
        """Resume a tree, and send its whole history before this answers."""
        session = await self._reopen(cwd, session_id, given, is_shown=True)
        _begin_soon(lambda: session.begin(_write_notice(given)))
        return LoadSessionResponse(**_list_choices(session))

    async def resume_session(self, cwd: str, session_id: str, **given: Any) -> ResumeSessionResponse:
        """Resume a tree without its history."""
        session = await self._reopen(cwd, session_id, given, is_shown=False)
        _begin_soon(lambda: session.begin(_write_notice(given)))
        return ResumeSessionResponse(**_list_choices(session))

    async def _reopen(
        self, cwd: str, session_id: str, given: dict[str, Any], *, is_shown: bool
    ) -> EditorSession:
        async with _convert_errors(), self._opening:
            root = self._find_root(cwd, given)
            tree = await self._list_used(root)[0].find_tree(self._rights.principal, session_id)
            if tree.workspace != str(root):
                raise ConfigError(f"the session works in {tree.workspace!r}, not in {str(root)!r}")
            if (open_here := self._sessions.pop(session_id, None)) is not None:
                await open_here.close()
            session = await self._find(root, session_id)
            await session.replay(is_shown=is_shown)
            return session

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: Any
    ) -> ListSessionsResponse:
        """List the principal's sessions, newest first; those of this process's directory if none is named."""
        async with _convert_errors():
            root = self._find_root(cwd if cwd is not None else str(Path.cwd()), {})
            begin = int(cursor) if cursor is not None and cursor.isascii() and cursor.isdigit() else 0
            found = await self._list_used(root)[0].list_trees(self._rights.principal)
        here = [each for each in found if cwd is None or each.workspace == str(root)]
        here.sort(key=lambda tree: (-tree.written_at_ms, tree.tree_id))
        page = here[begin : begin + PAGE]
        more = begin + PAGE < len(here)
        return ListSessionsResponse(
            sessions=[_make_info(each) for each in page], next_cursor=str(begin + PAGE) if more else None
        )

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        """Close a session at once; it can be loaded later."""
        async with _convert_errors():
            session = self._find_session(session_id)
            del self._sessions[session_id]
            await session.close()
            for each in self._list_used(session.root):
                await each.release(session.conversation)
        return CloseSessionResponse()

    async def prompt(self, session_id: str, prompt: Sequence[Any], **_: Any) -> PromptResponse:
        """Send a message, and answer when its turn has ended."""
        async with _convert_errors():
            async with self._opening:  # a session that is being changed is open again then
                session = self._find_session(session_id)
            text, images = read_prompt(prompt)
            stopped = await session.prompt(text, images)
            return PromptResponse(stop_reason=stopped, field_meta=session.edges.take())

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Interrupt the turn of a session; a session that is not open has none."""
        if (session := self._sessions.get(session_id)) is not None:
            await session.cancel()

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> SetSessionModeResponse:
        """Set the tier of the prompts that follow, within that of the rights."""
        async with _convert_errors():
            session = self._find_session(session_id)
            session.tier = check_tier(mode_id, session.most_tier)
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: object, **_: Any
    ) -> SetSessionConfigOptionResponse:
        """Set an option of the prompts that follow, and return all options."""
        async with _convert_errors(), self._opening:
            session = self._find_session(session_id)
            if config_id == MODEL:
                session = await self._change_model(session, value)
            elif config_id == TIER:
                session.tier = check_tier(value, session.most_tier)
            else:
                raise ConfigError(f"an option is {TIER!r} or {MODEL!r}")
        return SetSessionConfigOptionResponse(config_options=_list_choices(session)["config_options"])

    async def _change_model(self, session: EditorSession, value: object) -> EditorSession:
        """Return a session whose tree is resumed with another model.

        Raises:
            ConfigError: the model is not one of those that may answer.
            ConflictError: a turn goes on.
        """
        held = session.conversation
        chosen = check_model(value, session.models)
        if chosen == session.models[0]:
            return session
        if session.has_prompts or await held.is_at_work():
            raise ConflictError("a turn goes on; the model can be changed once it has ended")
        await self.close_session(session.session_id)
        changed = await self._find(session.root, session.session_id, chosen)
        # It was not closed, because somebody else uses it, so it still has the old model.
        if changed.conversation is held:
            raise ConflictError("somebody else uses the session; the model was not changed")
        await changed.replay(is_shown=False)
        changed.tier = session.tier
        changed.begin()
        return changed

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Refuse: no method was offered.

        Raises:
            RequestError: always.
        """
        raise RequestError.invalid_params({"details": "this agent needs no login"})

    def _list_used(self, root: Path) -> list[Conversations]:
        if root not in self._used:
            self._used[root] = [self._conversations_at(root, None)]
        return self._used[root]

    async def _find(self, root: Path, session_id: str, chosen: ModelChoice | None = None) -> EditorSession:
        """Return a session from whichever journal has it.

        Args:
            root: Its workspace.
            session_id: Its id.
            chosen: What answers from now on; None = the model that it had, if that still may.

        Raises:
            JournalError: another process has that journal open.
        """
        used = self._list_used(root)
        for each in used:
            with suppress(NotFoundError):
                return await self._take_up(each, root, session_id, chosen)
        made = self._conversations_at(root, session_id)
        found = await self._take_up(made, root, session_id, chosen)
        used.append(made)
        return found

    async def _take_up(
        self, keeper: Conversations, root: Path, session_id: str, chosen: ModelChoice | None
    ) -> EditorSession:
        principal = self._rights.restrict_principal(root)
        agent, last = await keeper.find_last_model(principal, session_id)
        models = self._rights.models_of(root, agent)
        first = chosen or next((each for each in models if each.own_name == last), models[0])
        conversation = await keeper.find(principal, session_id, model=first.model)
        return self._keep(conversation, root, [first, *(each for each in models if each.name != first.name)])

    def _find_session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFoundError(f"no session {session_id[:100]!r} is open here; load it first")
        return session

    def _keep(self, conversation: Conversation, root: Path, models: Sequence[ModelChoice]) -> EditorSession:
        if self._client is None:
            raise ConfigError("the connection is not open")
        editor = Editor(self._client, self._transport, self._has_forms)
        session = EditorSession(conversation, editor, root, models)
        self._sessions[session.session_id] = session
        return session

    def _find_root(self, cwd: str, given: dict[str, Any]) -> Path:
        """Return the directory of a session.

        Raises:
            ConfigError: it is not one, or not one that sessions may work in, or more is asked for.
        """
        if given.get("additional_directories"):
            raise ConfigError("additional directories are not supported; a session works in one directory")
        if not cwd or "\0" in cwd or not Path(cwd).is_absolute():
            raise ConfigError(f"cwd is an absolute path, not {cwd[:200]!r}")
        try:
            # Resolved first: a link in an allowed directory must not lead out of it.
            root = Path(cwd).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"cwd {cwd[:200]!r} can't be used: {error}") from None
        if not root.is_dir():
            raise ConfigError(f"cwd {cwd[:200]!r} is not a directory")
        if self._rights.roots and not any(root.is_relative_to(each) for each in self._rights.roots):
            raise ConfigError(f"cwd {cwd[:200]!r} is not in a directory that sessions may work in")
        return root


def _list_choices(session: EditorSession) -> dict[str, Any]:
    """Return what may be chosen for a session, as members of an answer."""
    tier, most = session.tier, session.most_tier
    return {"modes": make_modes(tier, most), "config_options": list_options(tier, most, session.models)}


def _write_notice(given: dict[str, Any]) -> str:
    """Return what a person is shown of a request that is not fulfilled whole; empty = nothing."""
    names = [str(getattr(each, "name", ""))[:100] for each in given.get("mcp_servers") or ()]
    if not names:
        return ""
    listed = ", ".join(make_visible(name) for name in names[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (
        f"MCP servers that the editor lends are not used here ({listed}{more}). "
        "The owner's configuration names servers, and each of their tools is allowed there."
    )


def _begin_soon(begin: Callable[[], None]) -> None:
    """Begin once the answer that is about to be returned is written: no update of a session comes before."""
    asyncio.get_running_loop().call_soon(begin)


def _make_info(tree: TreeSummary) -> SessionInfo:
    at = datetime.fromtimestamp(tree.written_at_ms / 1000, UTC)
    return SessionInfo(
        session_id=tree.tree_id,
        cwd=tree.workspace or "",
        title=tree.task or None,
        updated_at=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )


async def serve_editor(
    transport: MessageLines,
    conversations_at: ConversationsAt,
    rights: EditorRights,
    opened: Callable[[], Iterable[Conversations]],
) -> None:
    """Serve one editor until it closes its side; then close all trees, which can be resumed.

    Args:
        transport: The connection's lines.
        conversations_at: What keeps the trees of a workspace.
        rights: What the editor may open.
        opened: Returns what ``conversations_at`` has returned.
    """
    agent = TreeAgent(transport, conversations_at, rights)
    try:
        await run_agent(cast("Agent", agent), transport, use_unstable_protocol=True)  # without every method
    finally:
        await agent.close()
        for each in opened():
            await each.close()
