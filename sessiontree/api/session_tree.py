"""A tree, as programs open, resume, fork, export and erase it.

Long because programs look all of this up in one class: half of it is docstrings and overloads.

Floor 6, over a runtime. Not here: rules about sessions, which are in ``session`` and ``tree``.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from sessiontree.api.agents import AgentSpec, with_own_policies
from sessiontree.api.approval_modes import restricted
from sessiontree.api.backend import facts_after
from sessiontree.api.model_choice import ModelLike, models_of, warn_of_many_tools, with_models
from sessiontree.api.options import (
    GUIDANCE_FILE,
    ApproverLike,
    ChannelLike,
    GuidanceSource,
    PluginsLike,
    PolicyLike,
    agents_of,
    agents_without_readers,
    channel_of,
    channel_tools,
    check_given,
    check_reach,
    check_schemas,
    guidance_source,
    hooks_of,
    main_approver,
    message_policies,
    new_nonce,
    new_tree_id,
    own_program_name,
    plugin_context,
    plugins_of,
    policy_of,
    policy_row_of,
    text_of,
    tools_of,
    tree_config,
    without_tools,
)
from sessiontree.api.paths import (
    absolute_path,
    check_not_around,
    default_state_dir,
    make_folders,
    owner_folders,
    workspace_root,
)
from sessiontree.api.plugins import check_claims, installed_tools
from sessiontree.api.runtime import BackendName, Cell, Runtime, Sharing, Tenant, late
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.approvals import ApprovalMode, Rule
from sessiontree.contracts.errors import ConfigError, SessionTreeError, TreeNotFound
from sessiontree.contracts.hooks import Hook
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.messages import Usage
from sessiontree.contracts.model_settings import ModelSettings
from sessiontree.contracts.plugins import PluginSettings
from sessiontree.contracts.settings import Budget, Limits
from sessiontree.contracts.tool import Tool
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.interpreter.import_guard import keep_out
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.port import model_name
from sessiontree.runtime.progress import ProgressReader
from sessiontree.runtime.session_rights import journaled_policy
from sessiontree.runtime.tree_resources import TreeSetup
from sessiontree.web.settings import PUBLIC_WEB, WebSettings

if TYPE_CHECKING:
    from sessiontree.api.backend import Backend
    from sessiontree.api.client_calls import ClientCalls
    from sessiontree.api.inbox import Approvals, HumanInbox
    from sessiontree.api.program_hooks import ProgramHooks
    from sessiontree.api.session_handle import SessionHandle
    from sessiontree.api.skills import SkillsLike
    from sessiontree.contracts.replay_report import ReplayReport
    from sessiontree.contracts.results import SessionResult
    from sessiontree.contracts.skills import Skill
    from sessiontree.contracts.tree_config import PolicyRow, TreeConfig
    from sessiontree.journal.record import Record
    from sessiontree.runtime.supervisor_api import SupervisorApi
    from sessiontree.tree.report import ReceiptLine

T = TypeVar("T")
_GIVEN_AGAIN = ("model", "models", "tools", "agents", "builtin_tools", "plugins", "web", "skills")
"""What a tree is given that no journal holds; a fork is given the same."""


class SessionTree:
    """A tree of sessions over one workspace. Use it as an async context manager.

    Args:
        workspace: Root directory of all file tools.
        model: Model of its sessions: a model, or a provider's model by name, such as
            ``anthropic:claude-sonnet-5``; or a list of them: if one fails, the next is asked.
        models: Models for agents that name another one (``AgentConfig.model``), by any name.
        tools: Tools in addition to those of installed distributions.
        limits: Limits of the tree.
        budget: Budget of the whole tree.
        agents: Agents by name; ``default`` is created if it is missing.
        agent: Name of Main's agent.
        approvals: ``auto`` approves and records it, ``smart`` applies ``smart_rules`` before it asks a person
            and approves commands known to be harmless, ``always`` asks each time, ``never`` refuses. A mode
            that is named also governs System calls, such as commands; None = Elevated calls are asked about
            and System calls run.
        approver: Main's approver: rules, or a callable; callables are channels.
        smart_rules: Rules that mode ``smart`` applies by itself.
        channel: Where Main talks to a person; by default messages and requests wait in the tree until the
            program reads them. None = no person can be asked.
        state_dir: Directory of the journal; by default one per workspace in the platform's state folder.
        backend: ``ray``: sessions are actors on the Ray that the program has initialised, or on a private
            one; ``local``: everything runs in this process.
        slots: Maximum sessions in hosts at a time.
        memory: Place of a private runtime's memory, and the embedder of its texts.
        runtime: Serve the tree there instead of starting a private runtime.
        purpose: Purpose of the tree, for listings; empty = the name of the program.
        dedicated: Whether each session keeps its own host for life.
        builtin_tools: False leaves out the tools of installed distributions.
        plugins: Plugin settings by id, or the path of a JSON or TOML file with them. They are not journaled.
        web: What its sessions may read on the web: by default public pages, with no search provider; None =
            nothing.
        policy: Which tools its sessions may hold, or the path of a JSON or TOML file that says so; None = all
            that kind and agent allow. It only removes tools.
        group: Group of the channel and of every session, for the policy's ``groups``.
        hooks: Hooks on the calls, messages, spawns and lives of its sessions.
        skills: A folder of skills, or several: folders with a file ``SKILL.md``. Sessions see those that
            their agents name. None may be in the workspace.
        agents_md: Whose text the workspace's AGENTS.md is: the ``workspace``'s, marked as untrusted; that of
            a ``trusted`` workspace, quoted, which sessions may follow; or the ``owner``'s. It joins the
            prompts of sessions that read files; with None, it joins no prompt.
    """

    _tenant: Tenant | None = None
    """Its entry in the runtime while it is open."""
    _holder: tuple[object, Callable[[], Awaitable[None]]] | None = None
    _desk: HumanInbox | None = None
    _hook_desk: ProgramHooks | None = None
    _was_open: bool = False
    _readers: Collection[ProgressReader] = ()
    """Readers of its progress that are open; weakly held."""
    _wishes: tuple[BackendName, int | None, MemorySettings | None]
    _given_again: tuple[Any, ...]
    """Values of ``_GIVEN_AGAIN``, besides the hooks."""

    def __init__(  # noqa: PLR0913 - keyword-only settings of the public API
        self,
        workspace: str | Path,
        *,
        model: ModelLike,
        models: Mapping[str, ModelLike] | None = None,
        tools: Iterable[Tool[Any]] = (),
        limits: Limits | None = None,
        budget: Budget | None = None,
        agents: Mapping[str, AgentSpec] | None = None,
        agent: str = "default",
        approvals: ApprovalMode | None = None,
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
        skills: SkillsLike = None,
        agents_md: GuidanceSource | None = "workspace",
        _taken_up: TreeConfig | None = None,
    ) -> None:
        """Check all arguments as far as possible before the tree starts.

        Raises:
            ConfigError: an argument is wrong; says which.
        """
        self._root = _guarded_root(workspace)
        self._state_dir = _place_of(runtime, state_dir, memory, self._root)
        tree_id, group, agent = _identity_of(_taken_up, group, agent, agents or {})
        self._tools, named = tools_of(tools), agents_of(agents, self._root, agent)
        owners, answering = with_own_policies(policy_of(policy), named), models_of(model, models, named)
        self._agents = restricted(with_models(named, answering), owners, group, approvals)
        rules, self._channel = _approval_of(approver, channel)
        self._table = self._all_tools(plugins_of(plugins), group, tree_id, installed=builtin_tools)
        warn_of_many_tools(self._agents, answering, {entry.name for entry in self._table})
        every_rule = {"approver": rules, "smart_rules": smart_rules}
        policy_row = policy_row_of(owners, group, self._table, self._agents, every_rule)
        self._setup = TreeSetup.of(
            self._table,
            {name: spec.config for name, spec in self._agents.items()},
            answering,
            web=web,
            policy=owners.model_copy(update={"strict": False}),  # slips are reported here, once
            group=group,
            hooks=hooks_of(hooks),
            skills=self._skills_of(skills, named, policy_row),
            hidden=owner_folders(self._root),
        )
        self._config = tree_config(
            self._root,
            self._table,
            self._agents,
            tree_id=tree_id,
            model_name=model_name(model),
            limits=limits,
            budget=budget,
            approvals=approvals,
            rules=rules,
            smart_rules=smart_rules,
            channel=self._channel,
            purpose=purpose or own_program_name(),
            dedicated=dedicated,
            policy=policy_row,
            messages=message_policies(owners, self._channel, self._agents),
            hooks=self._setup.hooks,
        )
        self._given_again = (model, models, self._tools, agents, builtin_tools, plugins, web, skills)
        self._agents_md, self._runtime, self._given = guidance_source(agents_md), runtime, runtime
        self._wishes, self._cell = (backend, slots, memory), Cell.now()

    def _skills_of(
        self, given: SkillsLike, agents: Mapping[str, AgentSpec], policy: PolicyRow
    ) -> Mapping[str, Skill]:
        if not given and not any(spec.skills for spec in agents.values()):
            return {}
        unable = agents_without_readers(self._table, agents, policy)
        skills: Mapping[str, Skill] = late("skills_of")(given, agents, unable, self._root, (self._state_dir,))
        return skills

    def _all_tools(
        self, plugins: Mapping[str, PluginSettings], group: str, tree_id: str, *, installed: bool
    ) -> ToolTable:
        context = plugin_context(self._root, self._agents, self._channel, group, self._state_dir, tree_id)
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
        """Where the journal is."""
        return self._runtime.state_dir if self._runtime is not None else self._state_dir

    @property
    def channel(self) -> HumanChannel | None:
        """Where Main talks to a person."""
        return self._channel

    async def start(self) -> Self:
        """Create the tree; durable when this returns.

        Raises:
            ConfigError: the tree is or was open, or its workspace is in the state directory.
            JournalError: the state directory can't be used.
        """
        if self._desk is not None:
            raise ConfigError("the tree is open already")
        if self._was_open:
            raise ConfigError(f"tree {self.tree_id} was closed; take it up with SessionTree.resume")
        check_not_around(self.state_dir, "state_dir", self._root)
        if self._offers_guidance():  # else nothing needs a thread
            read = late("guidance_of")
            guidance = await asyncio.to_thread(read, self._root, self._agents_md, self.state_dir)
            self._config = replace(self._config, guidance=guidance)
        runtime = self._given or Sharing.join(self._state_dir, *self._wishes)
        async with self._entering(runtime):
            await runtime.backend.create(self._config, self._setup)
            self._open_desk(runtime.backend, after=0)
        return self

    def _offers_guidance(self) -> bool:
        """Return whether the workspace has a file AGENTS.md, even one that can't be read."""
        return os.path.lexists(self._root / GUIDANCE_FILE)

    def _belong_to(self, holder: object, close: Callable[[], Awaitable[None]]) -> None:
        """Set the object that the program holds instead of this one, and how to close it on the loop."""
        self._holder = (holder, close)

    @asynccontextmanager
    async def _entering(self, runtime: Runtime) -> AsyncIterator[None]:
        """Attach the tree to a runtime, and detach it if opening it fails."""
        holder, closing = self._holder or (self, None)
        tenant = Tenant(self.tree_id, self._cell, runtime, weakref.ref(holder), closing)
        self._tenant, self._runtime = tenant, runtime
        try:
            make_folders(self._setup.hidden)
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
        model: ModelLike,
        models: Mapping[str, ModelLike] | None = None,
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
        skills: SkillsLike = None,
    ) -> SessionTree:
        """Resume a tree after a crash or a break: facts are replayed and pending work is done, nothing twice.

        Limits, rights, mode and rules come from the journal; tools, plugins, models, web, hooks and skills
        must be given again. Tools of the tree that are not given are removed; new ones are not added. Without
        ``state_dir`` the tree is looked up in the state directory of the working directory.

        Raises:
            TreeNotFound, JournalError: the tree can't be read.
        """
        _check_memory(memory, runtime)
        text_of(tree_id, "tree_id")
        cell = Cell.now()
        serving = runtime or Sharing.join(_state_dir_of(state_dir), backend, slots, memory, tree_id=tree_id)
        async with serving.sharing.kept():
            try:
                config = await serving.backend.config_of(tree_id)
            except TreeNotFound as error:
                raise await asyncio.to_thread(late("not_here"), serving.state_dir, tree_id, error) from None
            tree = cls(
                config.workspace,
                model=model,
                models=models,
                tools=tools,
                agents=without_tools(agents),
                approver=approver if callable(approver) else None,
                channel=channel if config.owns_channel else None,
                runtime=serving,
                builtin_tools=builtin_tools,
                plugins=plugins,
                web=web,
                hooks=hooks,
                skills=skills,
                _taken_up=config,
            )
            tree._config, tree._cell = config, cell
            tree._setup = tree._setup.under(*journaled_policy(config))
            check_given(config, tree._agents, tree._setup.hooks)
            after = await serving.backend.supervisor.last_seq(tree_id)
            tree._runtime = tree._given = runtime
            async with tree._entering(serving):
                await serving.backend.resume(tree_id, tree._setup)
                tree._open_desk(serving.backend, after=after)
        return tree

    async def fork(
        self, *, at: int | None = None, approver: ApproverLike = None, channel: ChannelLike = "queue"
    ) -> SessionTree:
        """Open a new tree that shares the first facts of this one, and goes its own way from there.

        This tree does not change, and goes on. In the new one no effect is repeated: a call that had begun
        has an unknown result, requests are made again, and a call of the program that had not begun is
        skipped. It has the models, tools, hooks and skills that this tree was given. What the shared facts
        used counts against its budgets; the time since the last of them does not count. Files of the
        workspace are as they are now.

        Args:
            at: Number of the last shared fact, as in :meth:`events`; None = the newest.
            approver: Main's approver in the new tree: a callable.
            channel: Where Main of the new tree talks to a person.

        Returns:
            The new tree, open, in the same runtime.

        Raises:
            ConfigError: no tree can be forked at this fact; says where it can.
            JournalError: the journal can't be read or written.
        """
        supervisor, runtime = self._supervisor, self._runtime
        tree_id = new_tree_id()
        await supervisor.fork(self.tree_id, at, tree_id, new_nonce())
        again = dict(zip(_GIVEN_AGAIN, self._given_again, strict=True), hooks=self._setup.hooks)
        return await type(self).resume(tree_id, runtime=runtime, approver=approver, channel=channel, **again)

    @classmethod
    async def fork_stored(
        cls, tree_id: str, *, at: int | None = None, state_dir: str | Path | None = None
    ) -> str:
        """Write a new tree that shares the first facts of another one; :meth:`resume` then opens it.

        As :meth:`fork`, of a tree that need not be open here; another program may run it meanwhile.

        Args:
            tree_id: The other tree.
            at: Number of the last shared fact; None = the newest.
            state_dir: As for :meth:`resume`.

        Returns:
            The new tree's id.

        Raises:
            TreeNotFound: no journal there holds the tree.
            ConfigError: no tree can be forked at this fact; says where it can.
            JournalError: the journal can't be read or written.
        """
        place, tree_id = _state_dir_of(state_dir), text_of(tree_id, "tree_id")
        summary = await asyncio.to_thread(late("fork_tree"), place, tree_id, at)
        new_id: str = summary.tree_id
        return new_id

    async def export(self, path: str | Path) -> int:
        """Write the tree's durable facts to a file, whether the tree is open or closed.

        The file is NDJSON in which each line carries a hash, and only its owner may read it. It holds
        everything that sessions read and wrote, and the configuration of the tree; memory is not part of it.

        Args:
            path: Replaced once the export is whole.

        Returns:
            How many facts it holds.

        Raises:
            JournalError: the tree was never opened, or its journal can't be read.
            OSError: the file can't be written; the earlier file is unchanged.
        """
        out = absolute_path(path, "path")
        summary = await asyncio.to_thread(late("export_tree"), self.state_dir, self.tree_id, out)
        records: int = summary.records
        return records

    @classmethod
    async def import_journal(
        cls, path: str | Path, *, state_dir: str | Path | None = None, damaged: bool = False
    ) -> str:
        """Write an exported tree into a journal, whole or not at all; :meth:`resume` then continues it.

        The tree keeps its id, its facts and its configuration: workspace, limits, rights and rules. Import
        files you trust. Resume only one of several copies: they know nothing of each other's effects.

        Args:
            path: A file that :meth:`export` wrote.
            state_dir: As for :meth:`resume`.
            damaged: Accept the export of a damaged tree, which holds only its good beginning.

        Returns:
            The tree's id.

        Raises:
            JournalCorrupt: the file is not an export, is cut or altered, or is the export of a damaged tree.
            JournalTooNew: a later release wrote it.
            JournalError: the file is not a regular file or can't be read, or the state directory holds the
                tree already or can't be read.
            JournalUnwritable: the state directory can't be written.
        """
        file, place = absolute_path(path, "path"), _state_dir_of(state_dir)
        summary = await asyncio.to_thread(late("import_tree"), file, place, damaged=damaged)
        tree_id: str = summary.tree_id
        return tree_id

    @classmethod
    async def replay(cls, tree_id: str, *, state_dir: str | Path | None = None) -> ReplayReport:
        """Apply the rules of this release again to what a tree recorded, and compare every fact.

        Nothing is asked, called or written: what models, tools and people answered is in the facts. The tree
        may be open; its facts up to now are compared. A tree of another release is only read.

        Args:
            tree_id: The tree.
            state_dir: As for :meth:`resume`.

        Returns:
            What was compared, and the first difference.

        Raises:
            TreeNotFound: no journal there holds the tree.
            JournalError: it can't be read.
        """
        place, tree_id = _state_dir_of(state_dir), text_of(tree_id, "tree_id")
        report: ReplayReport = await asyncio.to_thread(late("replay_tree"), place, tree_id)
        return report

    @classmethod
    async def erase(
        cls,
        tree_id: str,
        *,
        state_dir: str | Path | None = None,
        memory: MemorySettings | None = None,
        keep_memory: bool = False,
    ) -> int:
        """Erase a tree that no program runs: its facts, and the records its sessions stored in memory.

        Exports of the tree, and files in its workspace, stay.

        Args:
            tree_id: The tree.
            state_dir: As for :meth:`resume`.
            memory: Where memory is; None = in the state directory.
            keep_memory: Leave memory as it is.

        Returns:
            How many records of memory were erased.

        Raises:
            TreeNotFound: no journal there holds the tree.
            JournalLocked, MemoryFailed: a program writes its journal, or memory; nothing was erased.
            JournalError, MemoryFailed: the journal or memory can't be written.
        """
        place, tree_id = _state_dir_of(state_dir), text_of(tree_id, "tree_id")
        uri = None if keep_memory else (memory or MemorySettings()).uri_in(place)
        forgotten: int = await late("erase_tree")(place, tree_id, uri)
        return forgotten

    @classmethod
    async def prune(
        cls,
        *,
        state_dir: str | Path | None = None,
        older_than_s: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        unfinished: bool = True,
    ) -> list[str]:
        """Erase old trees from the journals that no program writes now; what they stored in memory stays.

        A tree must meet every condition that is given.

        Args:
            state_dir: As for :meth:`resume`.
            older_than_s: Only trees whose newest fact is older than this, in seconds.
            keep: Leave out this many of the most recently written trees.
            max_bytes: Only the least recently written trees, until the facts of all that are left take so
                many bytes at most.
            unfinished: Also trees that were left open, which could be resumed, and damaged ones.

        Returns:
            The ids of the erased trees.

        Raises:
            ConfigError: no condition is given, or one is out of bounds.
            JournalError: a journal can't be read or written.
        """

        def run() -> list[str]:
            plan = late("plan_prune")(
                _state_dir_of(state_dir),
                older_than_s=older_than_s,
                keep=keep,
                max_bytes=max_bytes,
                unfinished=unfinished,
            )
            erased: list[str] = late("prune")(plan)
            return erased

        return await asyncio.to_thread(run)

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
            for tracer in self._tenant.runtime.traces.tracers(
                backend.supervisor,
                self._config,
                self._tenant.runtime.sharing.journal_of(self.tree_id),
                self._setup.hooks,
            ):
                tracer.open(after)
                self._tenant.desks.append(tracer)

    async def __aenter__(self) -> Self:
        """Create the tree, unless it was resumed."""
        return self if self._desk is not None else await self.start()

    def __enter__(self) -> NoReturn:
        """Raise an error that says to use ``async with``.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "write `async with SessionTree(…) as tree`; without await: "
            "from sessiontree.sync import SessionTree"
        )

    def __exit__(self, *_: object) -> None:
        """Complete the pair with :meth:`__enter__`; never called."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the tree; its live sessions stay in the journal and can be resumed."""
        await self.close()

    async def close(self) -> None:
        """Close the tree in this process; it can be resumed."""
        tenant, self._tenant = self._tenant, None
        self._desk = None
        for reader in tuple(self._readers):  # a loop over one would wait for ever
            reader.close()
        if tenant is not None:
            self._runtime = self._given
            await tenant.let_go()

    @property
    def _backend(self) -> Backend:
        if self._runtime is None:
            raise _not_open()
        return self._runtime.backend

    @property
    def _supervisor(self) -> SupervisorApi:
        self._open()
        return self._backend.supervisor

    def _open(self) -> HumanInbox:
        if self._desk is None:
            raise _not_open()
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

    @overload
    async def run(
        self,
        task: str,
        *,
        agent: str | None = ...,
        result_type: type[T],
        budget: Budget | None = ...,
        settings: ModelSettings | None = ...,
        skills: Sequence[str] | None = ...,
        ttl_s: float | None = ...,
    ) -> SessionResult[T]: ...

    @overload
    async def run(
        self,
        task: str,
        *,
        agent: str | None = ...,
        result_type: Any = ...,
        budget: Budget | None = ...,
        settings: ModelSettings | None = ...,
        skills: Sequence[str] | None = ...,
        ttl_s: float | None = ...,
    ) -> SessionResult[Any]: ...

    async def run(
        self,
        task: str,
        *,
        agent: str | None = None,
        result_type: Any = None,
        budget: Budget | None = None,
        settings: ModelSettings | None = None,
        skills: Sequence[str] | None = None,
        ttl_s: float | None = None,
    ) -> SessionResult[Any]:
        """Give a task to a new Branch below Main, and return its final answer, after all its children.

        The Branch may spawn sessions and answers once the last of them has ended; its interim messages are
        not returned. If the call is cancelled, the Branch is cancelled with everything below it. Each call
        creates a new Branch, which does not see Main's transcript.

        Args:
            task: Its first message.
            agent: Agent it runs as; None = Main's.
            result_type: Type of its final message, as for :meth:`SessionHandle.spawn`.
            budget: Budget reserved for it and everything below it; None = it uses the tree's.
            settings: Model settings that differ from its agent's.
            skills: Names of the skills that it may read, of those Main holds; None = those that its agent
                names.
            ttl_s: Time to live in seconds, from its first adoption; None = the default of a Branch.

        Returns:
            The result of the completed Branch; ``output`` has the requested type.

        Raises:
            SessionFailed: it did not complete; says why.
            SpawnRefused, LimitExceeded: a rule or limit forbids it; nothing was started.
            ConfigError: an argument is wrong.
        """
        (result,) = await self.main.map(
            "branch",
            [task],
            on_error="first",
            agent=agent,
            result_type=result_type,
            budget=budget,
            settings=settings,
            skills=skills,
            ttl_s=ttl_s,
        )
        return result

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

        ``record.fact`` is an object of a class of :mod:`sessiontree.facts`, or several of them in
        ``record.facts``.

        Args:
            after: Number of the last fact to skip.
        """
        return facts_after(self._supervisor, self.tree_id, after)

    def progress(self, session_id: str | None = None) -> ProgressReader:
        """Return a reader of events, which are not journaled: deltas, calls, and progress of tools.

        ``async for progress in tree.progress()`` yields them from now on, until the tree is closed.

        Args:
            session_id: Path of the session to watch; None = all sessions of the tree.
        """
        reader = ProgressReader(self._backend.watch(self.tree_id, session_id))
        self._readers = weakref.WeakSet((*self._readers, reader))
        return reader

    async def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the whole tree.

        Returns:
            The receipt: every session and how it ended.
        """
        return await self.main.cancel(reason)

    async def finish(self, summary: str) -> tuple[ReceiptLine, ...]:
        """End the tree as completed, with Main's final message; live children are cancelled first.

        Raises:
            ConfigError: the final message is not text.
        """
        if not isinstance(summary, str):
            raise ConfigError(f"summary must be text, not {summary!r}")
        supervisor = self._supervisor
        for child in (await supervisor.report(self.tree_id, "main")).children:
            await self.session(child).cancel(summary)
        return await supervisor.stop(self.tree_id, "main", summary, SessionStatus.COMPLETED)

    def receipt(self) -> tuple[ReceiptLine, ...]:
        """Return every session of the tree and its state."""
        self._open()
        return self._backend.ask_now(lambda supervisor: supervisor.receipt(self.tree_id))

    def usage(self) -> Usage:
        """Return the usage of all sessions of the tree so far, including those that have ended."""
        return sum((line.usage for line in self.receipt()), Usage())


def _place_of(
    runtime: Runtime | None, state_dir: str | Path | None, memory: MemorySettings | None, root: Path
) -> Path:
    _check_memory(memory, runtime)
    if runtime is not None:
        return runtime.state_dir
    return default_state_dir(root) if state_dir is None else absolute_path(state_dir, "state_dir")


def _not_open() -> SessionTreeError:
    return SessionTreeError(
        "the tree is not open; use `async with SessionTree(…) as tree`, "
        "or SessionTree.resume if it was closed"
    )


def _check_memory(memory: MemorySettings | None, runtime: Runtime | None) -> None:
    if memory is not None and runtime is not None:
        raise ConfigError("memory is the runtime's; give it to the Runtime")


def _identity_of(
    taken_up: TreeConfig | None, group: str, agent: str, agents: Collection[str]
) -> tuple[str, str, str]:
    """Return a tree's id, its group and Main's agent; those of a new tree, or of the one that is resumed."""
    if taken_up is None:
        return new_tree_id(), group, agent
    main = taken_up.agents[0].name
    group = taken_up.policy.group if taken_up.policy else ""
    return taken_up.tree_id, group, main if main in agents else "default"


def _state_dir_of(given: str | Path | None) -> Path:
    """Return a state directory; by default that of the working directory."""
    return absolute_path(default_state_dir(workspace_root(".")) if given is None else given, "state_dir")


def _approval_of(
    approver: ApproverLike, channel: ChannelLike
) -> tuple[tuple[Rule, ...], HumanChannel | None]:
    """Return the rules that answer for Main, and what asks a person."""
    rules, own_channel = main_approver(approver)
    return rules, channel_of(channel, own_channel)


def _guarded_root(workspace: str | Path) -> Path:
    """Return a workspace's path; from now on no module in it replaces an installed one.

    Raises:
        ConfigError: the path can't be a workspace.
    """
    root = workspace_root(workspace)
    keep_out(str(root))
    return root
