"""Conversations: the trees of principals, open as long as somebody talks to them.

What another principal made does not exist here. All that is remembered about a conversation is in its
journal, so that it goes on after a restart of the door.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from sessiontree.api.agents.model_choice import ModelLike
from sessiontree.api.options.app import take_app
from sessiontree.api.options.options import make_nonce
from sessiontree.api.programs.program_files import read_programs
from sessiontree.api.programs.program_grants import grant_program
from sessiontree.api.runtime.runtime import Runtime
from sessiontree.api.stored.stored_trees import StoredTrees
from sessiontree.api.tree.session_tree import SessionTree
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.errors import SessionTreeError, TreeNotFound
from sessiontree.contracts.facts.tree_config import TreeConfig, TreeSummary
from sessiontree.contracts.recorded.client_calls import ClientAnswer
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.tools.program_tool import SavedText
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.doors.client_tools import add_hosted, find_declared, find_tier
from sessiontree.doors.journal_feed import JournalFeed
from sessiontree.doors.open_places import OpenPlaces
from sessiontree.doors.principals import DEFAULT_AGENT, DoorPrincipal, Spending
from sessiontree.doors.response_log import ResponseLog
from sessiontree.doors.turns import HeardTurn, Turn, TurnLog, make_turn_id
from sessiontree.runtime.replay.stored_trees import find_summary, read_main_model
from sessiontree.runtime.replay.tree_fork import group_around
from sessiontree.schema.dialect import SchemaWarning
from sessiontree.tree.report import ReceiptLine

OptionsFor: TypeAlias = Callable[[str, "str | None"], dict[str, Any]]
"""Returns the arguments of a new tree, for a workspace and an agent's name; raises ConfigError."""
IDLE_S: Final = 300.0
"""How long a tree stays open when nobody uses it."""
_TREE: Final = re.compile(r"t[0-9a-f]{16}")
_TURN: Final = re.compile(r"(t[0-9a-f]{16})_[0-9a-f]{24}")


class NotFoundError(Exception):
    """A principal asks for something that is not its own, or does not exist; the two look the same."""


class ConflictError(Exception):
    """What is asked for does not fit what the conversation waits for."""


class SpentError(ConflictError):
    """The budget of a principal is used up."""


class Conversation:
    """One tree of one principal.

    It is a context: while it is entered, by however many, its tree stays open.

    Args:
        principal: Whose it is.
        tree: Its tree, open.
        config: The configuration of the tree.
        feed: Reads the journal of the tree.
        close_later: Called when nobody uses it any more.
        spending: What all trees of the principal have cost.
    """

    def __init__(
        self,
        principal: DoorPrincipal,
        tree: SessionTree,
        config: TreeConfig,
        feed: JournalFeed,
        close_later: Callable[[Conversation], None],
        spending: Spending,
    ) -> None:
        self.principal = principal
        self.tree = tree
        self.config = config
        self.log = TurnLog(feed)
        self.responses = ResponseLog(feed)
        self.instructions = ""
        """The last instructions that a client gave with a message."""
        self.deciding = asyncio.Lock()
        """Held by one who looks what the conversation waits for, and acts on it."""
        self.closing: asyncio.TimerHandle | None = None
        self.users = 0
        """How many keep its tree open."""
        self.entered = 0
        """How often it was entered."""
        self._close_later = close_later
        self._spending = spending

    @property
    def conversation_id(self) -> str:
        """Its id, which is that of its tree."""
        return self.tree.tree_id

    @property
    def agent(self) -> str:
        """The name of Main's agent."""
        return self.config.agents[0].name

    @property
    def hosted(self) -> Mapping[str, Mapping[str, JsonValue]]:
        """What its client declared of the tools that it hosts, by name."""
        return find_declared(self.config)

    @property
    def is_kept(self) -> bool:
        """Whether clients find it by its id."""
        return self.config.purpose != self.principal.passing_purpose

    def __enter__(self) -> Conversation:
        """Keep its tree open."""
        self.users += 1
        self.entered += 1
        if self.closing is not None:
            self.closing.cancel()
            self.closing = None
        return self

    def __exit__(self, *_: object) -> None:
        """Let its tree be closed once it has been without users, and without a turn, for a while."""
        self.users -= 1
        self.note_cost()
        if self.users == 0:
            self._close_later(self)

    def send(
        self,
        text: str,
        images: Sequence[ImageContent] = (),
        settings: ModelSettings | None = None,
        group: str = "",
        turn_id: str | None = None,
    ) -> Turn:
        """Send a message as the principal, and return its turn.

        Args:
            text: The message.
            images: Images that belong to it.
            settings: Settings of the model until the reply; None = the tree's.
            group: Group of the policy in which it is sent, which can only remove rights; empty = none.
            turn_id: Id of the turn, of this tree; a turn that was heard runs once. None = a new one.

        Raises:
            ConfigError: the text is empty, or an image is not valid.
            SpentError: the budget of the principal is used up.
        """
        self.note_cost()
        check_budget(self.principal, self._spending)
        turn_id = turn_id or make_turn_id(self.conversation_id)
        sender = replace(self.principal.sender, group=group)
        send = self.tree.main.send
        reply = send(text, sender=sender, images=images, message_id=turn_id, settings=settings)
        return Turn(turn_id, reply)

    def note_cost(self) -> None:
        """Count what its tree has cost by now."""
        if self.principal.rights.budget_usd is not None:
            with suppress(SessionTreeError):  # a tree that was closed was counted when it was
                self._spending.note(self.conversation_id, self.tree.usage().cost_usd)

    async def find_turn(self, turn_id: str) -> HeardTurn:
        """Return a turn.

        Raises:
            NotFoundError: it has no such turn.
        """
        turn = (await self.log.read()).get(turn_id)
        if turn is None:
            raise _make_not_found(turn_id)
        return turn

    async def answer_call(self, call_id: str, answer: ClientAnswer, answer_id: str) -> None:
        """Give a call that the client hosts its result; durable when this returns.

        Args:
            call_id: The call.
            answer: The result.
            answer_id: Names the answer; the same answer again changes nothing.

        Raises:
            AnswerTooLate: the call does not wait, and has not this answer.
            ValidationError: the answer can't be its result; the call still waits.
        """
        supervisor = self.log.supervisor
        await supervisor.answer(self.conversation_id, call_id, answer, answer_id, again=True)

    async def is_at_work(self) -> bool:
        """Return whether a turn goes on, or waits for an answer; false if nobody can know."""
        try:
            turns = await self.log.read()
            if await self.is_over():
                return False
            if not turns:  # a saved program works without a turn of Main
                return bool(self.tree.main.status().children)
            return bool(self.log.unfinished)
        except SessionTreeError:
            return False

    async def is_over(self) -> bool:
        """Return whether its tree has ended: it takes no message any more."""
        return await self.log.is_over()

    async def interrupt(self) -> tuple[ReceiptLine, ...]:
        """End the turn that goes on, if one does, and what its children do.

        Returns:
            Every session of the tree, and its state.

        Raises:
            SessionClosed: the tree has ended.
        """
        return await self.tree.main.interrupt(f"cancelled by {self.principal.name}")


class Conversations:
    """The conversations of all principals of one door.

    Args:
        make_runtime: Returns where their trees run; called once, with the first conversation.
        options_for: Returns the arguments of a new tree before its principal bounds them.
        channel_for: Returns the channel of a tree's Main; a channel of another kind than the principal's own
            lists the same owners.
    """

    def __init__(
        self,
        make_runtime: Callable[[], Runtime],
        options_for: OptionsFor,
        channel_for: Callable[[DoorPrincipal], HumanChannel] = DoorPrincipal.channel,
    ) -> None:
        self._make_runtime = make_runtime
        self._channel_for = channel_for
        self._made: Runtime | None = None
        self._options_for = options_for
        self._open: dict[str, Conversation] = {}
        self._spending: dict[str, Spending] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closing: set[asyncio.Task[None]] = set()
        self._places = OpenPlaces(self._open, self._close_soon)
        self._over: list[str] = []
        """Ids of closed trees of which nothing is to be kept."""

    async def begin(
        self,
        principal: DoorPrincipal,
        agent: str = DEFAULT_AGENT,
        *,
        workspace: str | None = None,
        hosted: Mapping[str, Mapping[str, JsonValue]] | None = None,
        is_kept: bool = True,
        program: str | None = None,
        tree_id: str | None = None,
    ) -> Conversation:
        """Open a new tree.

        Args:
            principal: Whose it is.
            agent: Main's agent.
            workspace: Its directory; None = that of the principal's rights. A door checks that it may be.
            hosted: What the client declared of the tools that it hosts, by name.
            is_kept: False = no client finds it by an id, and it is erased when the door is closed.
            program: A saved program of :meth:`list_programs` that its sessions may run.
            tree_id: Id of the tree; None = a new one.

        Raises:
            ConfigError: the agent is unknown or not one of the principal's, a tool can't be used, or too many
                trees are open.
            SpentError: the budget of the principal is used up.
        """
        principal.check_agent(agent)
        left = check_budget(principal, await self._load_spending(principal))
        place = workspace or principal.rights.workspace
        options = principal.limit(self._options_for(place, agent), tuple(hosted or ()), budget_usd=left)
        options["channel"] = self._channel_for(principal)
        if hosted:
            options = add_hosted(options, hosted, options["policy"].max_tier)
        if not is_kept:
            options["purpose"] = principal.passing_purpose
        async with self._places.reserve(principal):
            with warnings.catch_warnings():
                # The client's schemas are not the owner's to mend.
                warnings.simplefilter("ignore", SchemaWarning)
                if program is not None:
                    grant_program(options, program)
                tree = SessionTree(place, runtime=self._runtime, _new_id=tree_id, **options)
            return await self._keep(principal, await tree.start())

    def list_programs(self, principal: DoorPrincipal) -> list[SavedText]:
        """Return the saved programs of the owner that a principal may run: those that its rights name.

        Raises:
            ConfigError: the owner's configuration can't be used.
        """
        named = principal.rights.tools or ()
        folder = self._options_for(principal.rights.workspace, None).get("programs") if named else None
        found = read_programs(Path(folder))[0] if folder is not None else {}
        return [found[name] for name in named if name in found]

    async def fork(self, conversation: Conversation, seq: int, tree_id: str | None = None) -> Conversation:
        """Return a new conversation that shares the first facts of another one.

        Args:
            conversation: The other one.
            seq: Number of a fact that both share, and all that belongs together with it.
            tree_id: Id of the new tree, which is made once; None = a new one.

        Raises:
            ConfigError: no tree can be forked there, or too many trees are open.
            SpentError: the budget of the principal is used up.
            JournalError: the journal can't be read or written.
        """
        principal = conversation.principal
        check_budget(principal, await self._load_spending(principal))
        with conversation:  # it is not what is closed to make room for its fork
            async with self._places.reserve(principal):
                records = await conversation.log.feed.list_records()
                end = group_around(records, seq)[1]
                if tree_id is None:
                    forked = await conversation.tree.fork(at=end, channel=principal.channel())
                    return await self._keep(principal, forked)
                supervisor = conversation.log.supervisor
                await supervisor.fork(conversation.conversation_id, end, tree_id, make_nonce(), {})
            return await self.find(principal, tree_id, is_named=False)

    @property
    def state_dir(self) -> Path:
        """Where the journals of its trees are."""
        return self._runtime.state_dir

    async def find(
        self,
        principal: DoorPrincipal,
        conversation_id: str,
        *,
        is_named: bool = True,
        model: ModelLike | None = None,
    ) -> Conversation:
        """Return a conversation, whose tree is resumed if need be.

        Args:
            principal: Whose it is.
            conversation_id: Its id.
            is_named: False = also one of which nothing is to be kept.
            model: What answers from now on if the tree is resumed; None = the configured model.

        Raises:
            NotFoundError: the principal has no such conversation.
            ConfigError: too many trees are open.
        """
        if _TREE.fullmatch(conversation_id) is None:
            raise _make_not_found(conversation_id)
        async with self._get_change_lock(conversation_id):
            # Race: two requests for a conversation that is closed would both resume its tree.
            held = self._open.get(conversation_id)
            if held is None:
                if not await self._is_own(principal, conversation_id, is_named=is_named):
                    raise _make_not_found(conversation_id)
                held = await self._resume(principal, conversation_id, model)
        is_hidden = is_named and not held.is_kept
        if is_hidden or held.principal.principal_id != principal.principal_id:
            raise _make_not_found(conversation_id)
        return held

    async def find_by_turn(
        self, principal: DoorPrincipal, turn_id: str, *, is_named: bool = True
    ) -> Conversation:
        """Return the conversation of a turn, whose tree is resumed if need be.

        Args:
            principal: Whose it is.
            turn_id: The turn.
            is_named: False = also one of which nothing is to be kept.

        Raises:
            NotFoundError: the principal has no conversation of such a turn.
            ConfigError: too many trees are open.
        """
        form = _TURN.fullmatch(turn_id)
        if form is None:
            raise _make_not_found(turn_id)
        try:
            return await self.find(principal, form[1], is_named=is_named)
        except NotFoundError:
            raise _make_not_found(turn_id) from None

    async def find_last_model(self, principal: DoorPrincipal, conversation_id: str) -> tuple[str, str]:
        """Return Main's agent and the own name of the model that Main had last; empty = it had none.

        Raises:
            NotFoundError: the principal has no such conversation in this journal.
            JournalError: the journal can't be read.
        """
        if not await self._is_own(principal, conversation_id, is_named=True):
            raise _make_not_found(conversation_id)
        return await asyncio.to_thread(read_main_model, self._runtime.journal_dir, conversation_id)

    async def find_tree(self, principal: DoorPrincipal, conversation_id: str) -> TreeSummary:
        """Return the summary of one conversation, in whichever journal of the state directory it is.

        Raises:
            NotFoundError: the principal has no such conversation.
            JournalError: no journal can be read.
        """
        if _TREE.fullmatch(conversation_id) is not None:
            found = await asyncio.to_thread(find_summary, self.state_dir, conversation_id)
            if found is not None and found.purpose == principal.purpose:
                return found
        raise _make_not_found(conversation_id)

    async def list_trees(self, principal: DoorPrincipal) -> list[TreeSummary]:
        """Return the trees of a principal, newest first."""
        return await self._runtime.trees(principal.purpose)

    async def _is_own(self, principal: DoorPrincipal, tree_id: str, *, is_named: bool) -> bool:
        try:
            purpose = (await self._runtime.backend.read_config(tree_id)).purpose
        except TreeNotFound:
            return False
        return purpose == principal.purpose or (not is_named and purpose == principal.passing_purpose)

    async def _load_spending(self, principal: DoorPrincipal) -> Spending:
        """Return what a principal has spent; its journals are read with its first conversation."""
        known = self._spending.get(principal.principal_id)
        if known is None:
            bounded = principal.rights.budget_usd is not None
            trees = await self.list_trees(principal) if bounded else []
            trees += await self._runtime.trees(principal.passing_purpose) if bounded else []
            made = Spending({each.tree_id: each.cost_usd for each in trees})
            # Race: another request may have read the journals meanwhile, and its sum has counted what was
            # spent since.
            known = self._spending.setdefault(principal.principal_id, made)
        return known

    async def release(self, released: Conversation) -> None:
        """Close the tree of a conversation at once if nobody uses it; it can be continued later."""
        await asyncio.shield(self._close_soon(released, even_at_work=True))

    async def close(self) -> None:
        """Close all trees, and what they ran on; their conversations can be continued later.

        Those of which nothing is to be kept are erased, unless a turn of theirs goes on.
        """
        for each in tuple(self._open.values()):
            async with self._get_change_lock(each.conversation_id):
                await self._close(each)
        if self._closing:
            await asyncio.wait(self._closing)
        made, self._made = self._made, None
        if made is not None:
            await made.close()
            stored = StoredTrees(made.state_dir)
            for tree_id in self._over:
                with suppress(SessionTreeError):  # another program has it: it is erased by hand
                    await stored.erase(tree_id, keep_memory=True)
            self._over.clear()

    def _get_change_lock(self, conversation_id: str) -> asyncio.Lock:
        """Return what one who opens or closes a tree holds; it is forgotten with its last holder."""
        return self._locks.setdefault(conversation_id, asyncio.Lock())

    @property
    def _runtime(self) -> Runtime:
        if self._made is None:
            self._made = self._make_runtime()
        return self._made

    async def _keep(self, principal: DoorPrincipal, tree: SessionTree) -> Conversation:
        backend = self._runtime.backend
        try:
            config = await backend.read_config(tree.tree_id)
            spending = await self._load_spending(principal)
        except BaseException:
            # Nobody knows the tree yet: one that stayed open could be neither found nor resumed.
            with suppress(SessionTreeError):
                await tree.close()
            raise
        feed = JournalFeed(backend.supervisor, tree.tree_id)
        kept = Conversation(principal, tree, config, feed, self._close_later, spending)
        self._open[tree.tree_id] = kept
        # Nobody has entered it yet: without this its tree would stay open if the request fails before that.
        self._close_later(kept)
        return kept

    async def _resume(self, principal: DoorPrincipal, tree_id: str, model: ModelLike | None) -> Conversation:
        options = self._options_for(principal.rights.workspace, None)
        if model is not None:
            options["model"] = model
        async with self._places.reserve(principal):
            try:
                config = await self._runtime.backend.read_config(tree_id)
                if hosted := find_declared(config):
                    options = add_hosted(options, hosted, find_tier(config))
                app, channel = take_app(None, options), self._channel_for(principal)
                tree = await SessionTree.resume(tree_id, app, runtime=self._runtime, channel=channel)
            except TreeNotFound as error:
                raise NotFoundError(f"the conversation is gone: {error}") from error
            return await self._keep(principal, tree)

    def _close_later(self, unused: Conversation) -> None:
        if self._open.get(unused.conversation_id) is not unused:
            return  # it was closed while it was used
        if unused.closing is not None:
            unused.closing.cancel()
        unused.closing = asyncio.get_running_loop().call_later(IDLE_S, self._close_soon, unused)

    def _close_soon(self, unused: Conversation, *, even_at_work: bool = False) -> asyncio.Task[None]:
        """Begin to close a conversation unless somebody uses it, and return the task that does it.

        A request that waits for that may be cancelled: half closed, its tree could be neither found nor
        resumed.
        """
        closing = asyncio.create_task(self._close_unused(unused, even_at_work=even_at_work))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    async def _close_unused(self, unused: Conversation, *, even_at_work: bool) -> None:
        async with self._get_change_lock(unused.conversation_id):  # nobody resumes it before it is closed
            entered = unused.entered
            if unused.users:
                return
            is_at_work = not even_at_work and await unused.is_at_work()
            # Race: somebody may have entered it while its journal was read, and have left a new turn there.
            if unused.entered != entered:
                return
            if is_at_work:
                self._close_later(unused)
            else:
                await self._close(unused)

    async def _close(self, closed: Conversation) -> None:
        # Race: while one waited to close it, it may have been closed and resumed; that one stays.
        if self._open.get(closed.conversation_id) is not closed:
            return
        del self._open[closed.conversation_id]
        # What a tree has cost is in its journal alone: one that counts against a budget stays.
        has_budget = closed.principal.rights.budget_usd is not None
        if not closed.is_kept and not has_budget and not await closed.is_at_work():
            self._over.append(closed.conversation_id)
        if closed.closing is not None:
            closed.closing.cancel()
        closed.note_cost()
        with suppress(SessionTreeError):
            await closed.tree.close()


def check_budget(principal: DoorPrincipal, spending: Spending) -> float | None:
    """Return what a principal may still spend, in US dollars; None = its budget has no end.

    Raises:
        SpentError: it is used up.
    """
    left = spending.left(principal)
    if left is not None and left <= 0:
        raise SpentError(
            f"the budget of {principal.name} is used up: {principal.rights.budget_usd:g} US dollars; "
            "its owner makes another token, or gives another budget"
        )
    return left


def _make_not_found(name: str) -> NotFoundError:
    return NotFoundError(f"nothing is called {name[:100]!r}")
