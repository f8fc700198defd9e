"""A tree, as programs open it.

Room: floor 6, over a runtime. Not here: a single rule about sessions; those are in ``session`` and ``tree``.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from sessiontree.api.event_feed import facts_after
from sessiontree.api.options import (
    ApproverLike,
    ChannelLike,
    PluginsLike,
    PolicyLike,
    agents_of,
    channel_of,
    channel_tools,
    check_given,
    check_reach,
    check_schemas,
    hooks_of,
    main_approver,
    message_policies,
    new_tree_id,
    plugin_context,
    plugins_of,
    policy_of,
    policy_row_of,
    restricted,
    tools_of,
    tree_config,
    without_tools,
)
from sessiontree.api.paths import absolute_path, check_not_around, default_state_dir, workspace_root
from sessiontree.api.plugins import check_claims, installed_tools
from sessiontree.api.runtime import BackendName, Cell, Runtime, Sharing, Tenant, late
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.agent import AgentSpec
from sessiontree.contracts.approvals import ApprovalMode, Rule
from sessiontree.contracts.errors import ConfigError, SessionTreeError
from sessiontree.contracts.hooks import Hook
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.limits import Budget, Limits
from sessiontree.contracts.plugins import PluginContext, PluginSettings
from sessiontree.contracts.tool import Tool
from sessiontree.contracts.usage import Usage
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.interpreter.import_guard import keep_out
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.port import Model
from sessiontree.runtime.session_policy import policy_in
from sessiontree.runtime.tree_resources import TreeSetup
from sessiontree.web.settings import PUBLIC_WEB, WebSettings

if TYPE_CHECKING:
    from sessiontree.api.backend import Backend, OwnerPort
    from sessiontree.api.client_calls import ClientCalls
    from sessiontree.api.inbox import Approvals, HumanInbox
    from sessiontree.api.program_hooks import ProgramHooks
    from sessiontree.api.session_handle import SessionHandle
    from sessiontree.contracts.tree_config import TreeConfig
    from sessiontree.journal.record import Record
    from sessiontree.runtime.progress import ProgressReader
    from sessiontree.tree.receipt import ReceiptLine


class SessionTree:
    """A tree of sessions over one workspace. Use it as an async context manager.

    Args:
        workspace: Directory all file tools work beneath.
        model: What answers for its sessions.
        tools: Tools besides those of installed distributions.
        limits: Bounds of the tree.
        budget: What the whole tree may spend.
        agents: Agents by name; ``default`` is Main's, and is made where it is missing.
        approvals: ``auto`` answers yes and records it, ``smart`` lets ``smart_rules`` answer before a person
            and says yes to commands known to be harmless, ``always`` asks each time, ``never`` refuses.
        approver: Who answers for Main: rules, or a callable; callables are channels.
        smart_rules: What mode ``smart`` answers by itself.
        channel: Where Main talks to a person; by default messages and requests wait in the tree until the
            program looks. None = nobody can be asked.
        state_dir: Where the journal lies; by default in the platform's state folder, by workspace.
        backend: ``ray``: sessions are actors on the Ray the program has initialised, or on a private one;
            ``local``: everything runs in this process.
        slots: Most sessions embodied at a time.
        memory: Where a private runtime's memory lies, and what embeds its texts.
        runtime: Serve the tree there instead of starting a private runtime.
        purpose: What listings say the tree was for.
        dedicated: Whether each session keeps a host of its own for life, never giving way to others.
        builtin_tools: False leaves out the tools of installed distributions.
        plugins: What plugins are told, by their ids, and which are left out; or a JSON or TOML file that says
            so. It is not journaled.
        web: What its sessions may read of the web: by default public pages, with no search provider; None =
            nothing.
        policy: Which tools its sessions may hold, or a JSON or TOML file that says so; None = all that kind
            and agent allow. It only removes.
        group: Group the channel belongs to, for the policy's ``groups``; every session below is of it too.
        hooks: What stands around the calls, messages and spawns of its sessions.
    """

    _tenant: Tenant | None = None
    """Its place in the runtime, while it is open."""
    _holder: tuple[object, Callable[[], Awaitable[None]]] | None = None
    _desk: HumanInbox | None = None
    _hook_desk: ProgramHooks | None = None
    _was_open: bool = False

    def __init__(  # noqa: PLR0913 - keyword-only settings of the public API
        self,
        workspace: str | Path,
        *,
        model: Model,
        tools: Iterable[Tool[Any]] = (),
        limits: Limits | None = None,
        budget: Budget | None = None,
        agents: Mapping[str, AgentSpec] | None = None,
        approvals: ApprovalMode = "always",
        approver: ApproverLike = None,
        smart_rules: Sequence[Rule] = (),
        channel: ChannelLike = "queue",
        state_dir: str | Path | None = None,
        backend: BackendName = "ray",
        slots: int | None = None,
        memory: MemorySettings | None = None,
        runtime: Runtime | None = None,
        purpose: str = "",
        dedicated: bool = False,
        builtin_tools: bool = True,
        plugins: PluginsLike = None,
        web: WebSettings | None = PUBLIC_WEB,
        policy: PolicyLike = None,
        group: str = "",
        hooks: Iterable[Hook] = (),
        _taken_up: TreeConfig | None = None,
    ) -> None:
        """Check everything that can be checked before anything is started.

        Raises:
            ConfigError: an argument is wrong; says which.
        """
        self._root = _guarded_root(workspace)
        self._model = model
        self._state_dir = _place_of(runtime, state_dir, self._root)
        tree_id = new_tree_id()
        if _taken_up is not None:
            tree_id, group = _taken_up.tree_id, _taken_up.policy.group if _taken_up.policy else ""
        self._tools = tools_of(tools)
        owners = policy_of(policy)
        self._agents = restricted(agents_of(agents, model), owners, group)
        rules, own_channel = main_approver(approver)
        self._channel = channel_of(channel, own_channel)
        context = plugin_context(self._root, self._agents, self._channel, group, self._state_dir, tree_id)
        self._table = self._all_tools(plugins_of(plugins), context, installed=builtin_tools)
        self._setup = TreeSetup.of(
            self._table,
            {name: spec.config for name, spec in self._agents.items()},
            model,
            web=web,
            policy=owners.model_copy(update={"strict": False}),  # slips are told here, once
            group=group,
            hooks=hooks_of(hooks),
        )
        model_name = self._setup.model_name
        self._config = tree_config(
            self._root,
            self._table,
            self._agents,
            tree_id=tree_id,
            model_name=model_name,
            limits=limits,
            budget=budget,
            approvals=approvals,
            rules=rules,
            smart_rules=smart_rules,
            channel=self._channel,
            purpose=purpose,
            dedicated=dedicated,
            policy=policy_row_of(owners, group, self._table, self._agents, model_name),
            messages=message_policies(owners, self._channel, self._agents),
            hooks=self._setup.hooks,
        )
        self._wishes: tuple[BackendName, int | None, MemorySettings | None] = (backend, slots, memory)
        if memory is not None and runtime is not None:
            raise ConfigError("memory is the runtime's; give it to the Runtime")
        self._runtime = self._given = runtime
        self._cell = Cell.now()

    def _all_tools(
        self, plugins: Mapping[str, PluginSettings], context: PluginContext, *, installed: bool
    ) -> ToolTable:
        found = installed_tools(context, plugins) if installed else ()
        given = (*self._tools, *channel_tools(self._channel))
        check_claims(found, given)
        brought = {each.tool.name: each.plugin for each in found if each.plugin}
        table = ToolTable((*(each.tool for each in found), *given), brought)
        own = {each.tool.name for each in found if not each.plugin}
        check_reach(table, self._agents, own)
        return check_schemas(table, own)

    @property
    def tree_id(self) -> str:
        """The tree's id, unguessable."""
        return self._config.tree_id

    @property
    def state_dir(self) -> Path:
        """Where the journal lies."""
        return self._runtime.state_dir if self._runtime is not None else self._state_dir

    @property
    def channel(self) -> HumanChannel | None:
        """Where Main talks to a person."""
        return self._channel

    async def start(self) -> Self:
        """Create the tree; durable when this returns.

        Raises:
            ConfigError: it is open, or was; or its workspace lies in the state directory.
            JournalError: the state directory can't be used.
        """
        if self._desk is not None:
            raise ConfigError("the tree is open already")
        if self._was_open:
            raise ConfigError(f"tree {self.tree_id} was closed; take it up with SessionTree.resume")
        check_not_around(self.state_dir, "state_dir", self._root)
        runtime = self._given or Sharing.join(self._state_dir, *self._wishes)
        async with self._entering(runtime):
            await runtime.backend.create(self._config, self._setup)
            self._open_desk(runtime.backend, after=0)
        return self

    def _belong_to(self, holder: object, close: Callable[[], Awaitable[None]]) -> None:
        """Say which object the program holds in this one's place, and how that is closed on the loop."""
        self._holder = (holder, close)

    @asynccontextmanager
    async def _entering(self, runtime: Runtime) -> AsyncIterator[None]:
        """Have the tree served by a runtime from now on, unless opening it fails."""
        holder, closing = self._holder or (self, None)
        tenant = Tenant(self.tree_id, self._cell, runtime, weakref.ref(holder), closing)
        self._tenant, self._runtime = tenant, runtime
        try:
            await runtime.sharing.enter(tenant)
            yield
            tenant.is_open = True
        except BaseException:
            self._tenant, self._runtime, self._desk = None, self._given, None
            await runtime.sharing.leave(tenant)
            raise

    @classmethod
    async def resume(  # noqa: PLR0913 - keyword-only settings of the public API
        cls,
        tree_id: str,
        *,
        model: Model,
        tools: Iterable[Tool[Any]] = (),
        state_dir: str | Path | None = None,
        approver: ApproverLike = None,
        channel: ChannelLike = "queue",
        agents: Mapping[str, AgentSpec] | None = None,
        backend: BackendName = "ray",
        slots: int | None = None,
        memory: MemorySettings | None = None,
        runtime: Runtime | None = None,
        builtin_tools: bool = True,
        plugins: PluginsLike = None,
        web: WebSettings | None = PUBLIC_WEB,
        hooks: Iterable[Hook] = (),
    ) -> SessionTree:
        """Take up a tree after a crash, or tomorrow: facts are replayed, owed work is done, nothing twice.

        Limits, rights, mode and rules are the journal's; tools, plugins, model, web and hooks are given
        again. Tools of the tree that are not given are gone; new ones are not added. Without ``state_dir``
        the tree is looked for where trees over the working directory are kept.

        Raises:
            TreeNotFound, JournalError: the tree can't be read.
        """
        if memory is not None and runtime is not None:
            raise ConfigError("memory is the runtime's; give it to the Runtime")
        cell = Cell.now()
        place = default_state_dir(workspace_root(".")) if state_dir is None else state_dir
        serving = runtime or Sharing.join(
            absolute_path(place, "state_dir"), backend, slots, memory, tree_id=tree_id
        )
        async with serving.sharing.kept():
            config = await serving.backend.config_of(tree_id)
            tree = cls(
                config.workspace,
                model=model,
                tools=tools,
                agents=without_tools(agents),
                approver=approver if callable(approver) else None,
                channel=channel if config.owns_channel else None,
                runtime=serving,
                builtin_tools=builtin_tools,
                plugins=plugins,
                web=web,
                hooks=hooks,
                _taken_up=config,
            )
            tree._config, tree._cell = config, cell
            tree._setup = tree._setup.under(*policy_in(config))
            check_given(config, tree._agents, tree._setup.hooks)
            after = serving.backend.owner.last_seq(tree_id)
            tree._runtime = tree._given = runtime
            async with tree._entering(serving):
                await serving.backend.resume(tree_id, tree._setup)
                tree._open_desk(serving.backend, after=after)
        return tree

    def _open_desk(self, backend: Backend, *, after: int) -> None:
        desk: HumanInbox = late("desk")(backend, self.tree_id)
        self._desk = desk
        self._was_open = True
        if self._channel is not None:
            desk.attach("main", self._channel)
        desk.open()
        self._hook_desk = late("hook_desk")(backend, self.tree_id, self._setup.hooks)
        self._hook_desk.open(after)
        if self._tenant is not None:
            self._tenant.desks += [self._hook_desk, desk]

    async def __aenter__(self) -> Self:
        """Create the tree, unless it was resumed."""
        return self if self._desk is not None else await self.start()

    def __enter__(self) -> NoReturn:
        """Say what to write: this tree is used with ``await``.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "write `async with SessionTree(…) as tree`; without await: "
            "from sessiontree.sync import SessionTree"
        )

    def __exit__(self, *_: object) -> None:
        """Stand beside :meth:`__enter__`; never called."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the tree; what lives stays in the journal and can be resumed."""
        await self.close()

    async def close(self) -> None:
        """Let the tree go in this process; it can be resumed."""
        tenant, self._tenant = self._tenant, None
        self._desk = None
        if tenant is not None:
            self._runtime = self._given
            await tenant.let_go()

    @property
    def _backend(self) -> Backend:
        if self._runtime is None:
            raise SessionTreeError("the tree is not open; use `async with SessionTree(…) as tree`")
        return self._runtime.backend

    @property
    def _owner(self) -> OwnerPort:
        self._open()
        return self._backend.owner

    def _open(self) -> HumanInbox:
        if self._desk is None:
            raise SessionTreeError("the tree is not open; use `async with SessionTree(…) as tree`")
        self._desk.check_loop()
        return self._desk

    @property
    def main(self) -> SessionHandle:
        """The session that talks to the person."""
        return self.session("main")

    def session(self, session_id: str) -> SessionHandle:
        """Return a handle of any session of the tree, by its path."""
        backend, desk = self._backend, self._open()
        handle: SessionHandle = late("handle")(backend, desk, self.tree_id, session_id, hooks=self._hook_desk)
        return handle

    @property
    def approvals(self) -> Approvals:
        """Requests that wait for a person."""
        return self._open().approvals

    @property
    def client_calls(self) -> ClientCalls:
        """Calls of client tools that wait for the program."""
        return self._open().client_calls(self._table)

    def events(self, *, after: int = 0) -> AsyncIterator[Record]:
        """Iterate over the tree's durable facts in order, then wait for more; ends when Main has ended.

        Args:
            after: Number of the last fact known already.
        """
        return facts_after(self._owner, self.tree_id, after)

    def progress(self, session_id: str | None = None) -> ProgressReader:
        """Return a reader of what is not journaled: deltas, calls beginning and ending, progress of tools."""
        return self._backend.watch(self.tree_id, session_id)

    async def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the whole tree.

        Returns:
            The receipt: every session and how it ended.
        """
        return await self.main.cancel(reason)

    async def finish(self, summary: str) -> tuple[ReceiptLine, ...]:
        """End the tree as completed, with Main's last word; children that still live are cancelled first.

        Raises:
            ConfigError: the last word is no text.
        """
        if not isinstance(summary, str):
            raise ConfigError(f"summary must be text, not {summary!r}")
        for child in self.main.status().children:
            await self.session(child).cancel(summary)
        return await self._owner.stop(self.tree_id, "main", summary, SessionStatus.COMPLETED)

    def receipt(self) -> tuple[ReceiptLine, ...]:
        """Return every session of the tree and how it stands."""
        return self._owner.receipt(self.tree_id)

    def usage(self) -> Usage:
        """Return what all sessions of the tree have used so far, those that have ended included."""
        return sum((line.usage for line in self.receipt()), Usage())


def _place_of(runtime: Runtime | None, state_dir: str | Path | None, root: Path) -> Path:
    if runtime is not None:
        return runtime.state_dir
    return default_state_dir(root) if state_dir is None else absolute_path(state_dir, "state_dir")


def _guarded_root(workspace: str | Path) -> Path:
    """Return a workspace's path; from now on no module in it stands in for an installed one.

    Raises:
        ConfigError: it can be no workspace.
    """
    root = workspace_root(workspace)
    keep_out(str(root))
    return root
