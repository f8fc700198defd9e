"""One way to talk through any door: a turn, a request that is allowed, a question, an interruption.

Each talker is a real client of its protocol. A door that has no way to answer leaves that to the owner.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client
from openai import AsyncOpenAI

from sessiontree import AsyncFunctionModel, ModelRequest, Runtime, SessionTree, script_call
from sessiontree.contracts.facts.session_facts import CallDelegated, Interrupted, TurnStarted
from sessiontree.contracts.facts.tree_facts import ApprovalWaiting
from sessiontree.doors.conversations import Conversation, Conversations
from sessiontree.doors.principals import DoorPrincipal
from sessiontree.doors.tokens import TokenFile
from sessiontree.runtime.timing.clock import read_machine_ms
from sessiontree.serve.listen import Address, PageServer
from sessiontree.serve.routes.door_guard import DoorGuard
from sessiontree.serve.routes.door_routes import DoorRoutes
from sessiontree.serve.routes.door_set import DoorSet
from sessiontree.serve.routes.mcp_routes import McpRoutes, make_door
from tests.behaviour.fact_fixtures import facts, until
from tests.system.doors.editor_fixtures import ALLOW, EditorFake, OpenEditor, open_editor
from tests.system.doors.mcp_fakes import make_options, obey
from tests.system.doors.mcp_fixtures import http_client, make_token
from tests.system.serve.serve_fixtures import running

Inbox = list[tuple[str, str, dict[str, Any]]]


async def obey_all(request: ModelRequest) -> Any:
    """Do as :func:`obey`; ``child words`` spawns a Worker, ``branch words`` a Branch, and waits for it."""
    last = request.messages[-1]
    verb, _, words = last.text.partition(" ")
    if last.to_wire()["role"] == "user" and verb in {"child", "branch"}:
        kind = "worker" if verb == "child" else "branch"
        return script_call("sessions_spawn", kind=kind, task=words)
    if last.to_wire()["role"] == "user" and verb == "program":
        return script_call("program", code=words)
    if last.to_wire()["role"] == "user" and verb == "write":
        return script_call("write", path="effects.log", content=words)
    return await obey(request)


def options_for(workspace: str, agent: str | None) -> dict[str, Any]:
    """Return the arguments of a tree, the same for all doors."""
    return {**make_options(workspace, agent), "model": AsyncFunctionModel(obey_all)}


def inbox_of(tree: SessionTree) -> Inbox:
    """Return what waits for a person: the session, the tool, and what is asked."""
    calls = [
        (each.request.session_id, each.request.tool, dict(each.request.arguments))
        for each in tree.approvals.pending()
    ]
    asked = [
        (each.question.session_id, "ask_user", {"questions": [item.question for item in each.question.items]})
        for each in tree.questions.pending()
    ]
    return calls + asked


class Talker(ABC):
    """A client of a door, in one conversation; what waited for somebody is in :attr:`inbox`.

    Args:
        conversations: Those of its door, to look at.
    """

    def __init__(self, conversations: Conversations) -> None:
        self.conversations = conversations
        self.inbox: Inbox = []
        self.conversation_id = ""
        self.answered = {"approvals": 0, "questions": 0, "interrupts": 0, "turns": 0}

    @property
    @abstractmethod
    def principal(self) -> DoorPrincipal:
        """Who talks."""

    async def find(self) -> Conversation:
        """Return the conversation as its owner has it."""
        return await self.conversations.find(self.principal, self.conversation_id)

    @abstractmethod
    async def say(self, text: str) -> str:
        """Send a message and return the answer."""

    async def allow(self) -> None:
        """Allow the call that waits."""
        (request,) = (await self.find()).tree.approvals.pending()
        await request.approve(sender=self.principal.principal_id)

    async def reply(self, answer: str) -> None:
        """Answer the question that waits."""
        (question,) = (await self.find()).tree.questions.pending()
        await question.answer(answer, sender=self.principal.principal_id)

    async def interrupt(self) -> None:
        """End the turn that goes on."""
        await (await self.find()).interrupt()

    async def say_and_allow(self, text: str) -> str:
        """Send a message whose call waits, allow it, and return the answer."""
        return await self._meanwhile(text, self._until_asked, self.allow)

    async def say_and_reply(self, text: str, answer: str) -> str:
        """Send a message that leads to a question, answer it, and return the answer of the turn."""
        return await self._meanwhile(text, self._until_questioned, lambda: self.reply(answer))

    async def say_and_interrupt(self, text: str) -> None:
        """Send a message, and end its turn once the model was asked."""
        tree = (await self.find()).tree
        turns = sum(isinstance(each, TurnStarted) for each in await facts(tree, "main"))
        saying = asyncio.create_task(self._say_in_vain(text))
        await until(tree, TurnStarted, session="main", count=turns + 1)
        await self.interrupt()
        self.answered["interrupts"] += 1
        await until(tree, Interrupted, session="main", count=self.answered["interrupts"])
        await saying

    async def _say_in_vain(self, text: str) -> None:
        try:
            await self.say(text)
        except Exception as error:  # noqa: BLE001 - each client has errors of its own for it
            assert "cancelled by" in str(error) or "interrupted" in str(error), error

    async def _meanwhile(self, text: str, until_waiting: Callable[[], Any], answer: Callable[[], Any]) -> str:
        saying = asyncio.create_task(self.say(text))
        await until_waiting()
        self.inbox += inbox_of((await self.find()).tree)
        await answer()
        return await saying

    async def _until_asked(self) -> None:
        self.answered["approvals"] += 1
        await until((await self.find()).tree, ApprovalWaiting, count=self.answered["approvals"])

    async def _until_questioned(self) -> None:
        self.answered["questions"] += 1
        await until((await self.find()).tree, CallDelegated, count=self.answered["questions"])


class TokenTalker(Talker):
    """A client that holds a token.

    Args:
        place: Where the state is.
        token: The token.
        conversations: Those of its door.
    """

    def __init__(self, place: Path, token: str, conversations: Conversations) -> None:
        super().__init__(conversations)
        self._token = TokenFile(place / "state").find(token, read_machine_ms())

    @property
    def principal(self) -> DoorPrincipal:
        """Who talks."""
        return self._token.principal


class ResponsesTalker(TokenTalker):
    """A client of ``/v1/responses``, streaming."""

    client: AsyncOpenAI
    previous: str | None = None

    async def say(self, text: str) -> str:
        """Send a message and return the answer."""
        asked = self.client.responses.create(
            model="default", input=text, previous_response_id=self.previous, stream=True
        )
        response: Any = None
        async with await asked as stream:
            async for event in stream:
                if event.type == "response.created":
                    self.previous = event.response.id
                    self.conversation_id = event.response.id.partition("_")[0]
                response = getattr(event, "response", response)
        assert response.error is None, response.error.message
        return str(response.output_text)

    async def interrupt(self) -> None:
        """End the turn that goes on."""
        assert self.previous is not None
        await self.client.responses.cancel(self.previous)


class ChatTalker(TokenTalker):
    """A client of ``/v1/chat/completions``, which sends the whole history each time."""

    client: AsyncOpenAI

    def __init__(self, place: Path, token: str, conversations: Conversations) -> None:
        super().__init__(place, token, conversations)
        self.history: list[Any] = []

    async def say(self, text: str) -> str:
        """Send a message and return the answer."""
        self.history.append({"role": "user", "content": text})
        made = await self.client.chat.completions.create(model="default", messages=self.history)
        said = str(made.choices[0].message.content)
        self.history.append({"role": "assistant", "content": said})
        (tree,) = await self.conversations.list_trees(self.principal)
        self.conversation_id = tree.tree_id
        return said


class McpTalker(TokenTalker):
    """A client of MCP, which polls."""

    client: Client

    async def say(self, text: str) -> str:
        """Send a message and return the answer."""
        if self.conversation_id:
            found = await self._call("send", text=text, wait_s=0)
        else:
            found = await self._call("run_tree", task=text, wait_s=0)
            self.conversation_id = found["conversation"]
        while found["state"] in {"working", "input_required"}:
            found = await self._call("status", cursor=found.get("cursor"), wait_s=30)
        assert found["state"] == "completed", found
        return str(found["text"])

    async def allow(self) -> None:
        """Allow the call that waits."""
        await self._answer(confirm=True)

    async def reply(self, answer: str) -> None:
        """Answer the question that waits."""
        await self._answer(choice_1=answer)

    async def interrupt(self) -> None:
        """End the turn that goes on."""
        await self._call("cancel")

    async def _answer(self, **content: Any) -> None:
        (waiting,) = (await self._call("status"))["waiting"]
        await self._call("answer", request=waiting["request"], content=content)

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        if self.conversation_id:
            arguments["conversation"] = self.conversation_id
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        found: dict[str, Any] = result.structured_content
        return found


class EditorTalker(Talker):
    """An editor, which is asked for permissions and shows forms."""

    editor: OpenEditor

    def __init__(self, conversations: Conversations, fake: HeldEditor) -> None:
        super().__init__(conversations)
        self._fake = fake

    @property
    def principal(self) -> DoorPrincipal:
        """Who talks."""
        return self.editor.principal

    async def say(self, text: str) -> str:
        """Send a message and return the answer."""
        self._fake.updates.clear()
        reason = await self.editor.prompt(self.conversation_id, text)
        assert reason == "end_turn", "interrupted"
        return self._fake.text

    async def allow(self) -> None:
        """Allow the call that waits."""
        self._fake.permissions.put_nowait(ALLOW)

    async def reply(self, answer: str) -> None:
        """Answer the question that waits."""
        self._fake.replies.put_nowait({"answer_1": answer})

    async def interrupt(self) -> None:
        """End the turn that goes on."""
        await self.editor.connection.cancel(session_id=self.conversation_id)


class HeldEditor(EditorFake):
    """An editor whose person answers when a test says so."""

    def __init__(self) -> None:
        super().__init__(self._choose)
        self.permissions: asyncio.Queue[str] = asyncio.Queue()
        self.replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def _choose(self, call: Any) -> str:
        return await self.permissions.get()

    async def create_elicitation(self, message: str, mode: Any, **given: Any) -> Any:
        self.form_answer = await self.replies.get()
        return await super().create_elicitation(message, mode, **given)


DOORS = ("responses", "chat", "mcp", "acp")


@asynccontextmanager
async def open_talker(
    door: str, place: Path, before: Talker | None = None, **rights: Any
) -> AsyncIterator[Talker]:
    """Open a door of a state directory, and let somebody talk; after a restart, in the same conversation.

    Args:
        door: Which one of :data:`DOORS`.
        place: Where state and workspace are.
        before: Who talked before the restart; None = nobody.
        rights: Members of DoorRights.
    """
    opened: AbstractAsyncContextManager[Talker] = (
        _editor(place, before, rights) if door == "acp" else _client(door, place, before, rights)
    )
    async with opened as talker:
        if before is not None:
            talker.conversation_id, talker.answered = before.conversation_id, before.answered
            talker.inbox = before.inbox
        yield talker


@asynccontextmanager
async def _editor(place: Path, before: Talker | None, rights: dict[str, Any]) -> AsyncIterator[Talker]:
    fake = HeldEditor()
    async with open_editor(place, options_for, fake, forms=True, **rights) as editor:
        talker = EditorTalker(editor.conversations, fake)
        talker.editor = editor
        if before is None:
            talker.conversation_id = await editor.begin()
        else:
            await editor.connection.load_session(session_id=before.conversation_id, cwd=str(editor.workspace))
        yield talker


@asynccontextmanager
async def _client(
    door: str, place: Path, before: Talker | None, rights: dict[str, Any]
) -> AsyncIterator[Talker]:
    (place / "workspace").mkdir(exist_ok=True)
    trees = Conversations(lambda: Runtime(place / "state", backend="local"), options_for)
    guard = DoorGuard(TokenFile(place / "state"))
    doors = DoorSet([DoorRoutes(guard, trees, ("default",)), McpRoutes(guard, make_door(trees))])
    file = place / "token"
    if before is None:
        file.write_text(make_token(place, **{"tier": "Elevated", "approves": True, **rights}))
    token = file.read_text()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(PageServer(place / "state", Address(), doors)))
        if door == "mcp":
            mcp = McpTalker(place, token, trees)
            mcp.client = await stack.enter_async_context(http_client(server.origin, token))
            yield mcp
            return
        client = AsyncOpenAI(api_key=token, base_url=f"{server.origin}/v1", max_retries=0, timeout=60)
        await stack.enter_async_context(client)
        talker = (ResponsesTalker if door == "responses" else ChatTalker)(place, token, trees)
        talker.client = client
        if isinstance(talker, ResponsesTalker) and isinstance(before, ResponsesTalker):
            talker.previous = before.previous
        elif isinstance(talker, ChatTalker) and isinstance(before, ChatTalker):
            talker.history = before.history
        yield talker
