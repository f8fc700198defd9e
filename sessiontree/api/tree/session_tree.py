"""A tree, as programs open, resume and fork it.

Floor 6, over a runtime. Not here: what a program does with an open tree (``running_tree``), and rules about
sessions, which are in ``session`` and ``tree``.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, Unpack

from sessiontree.api.agents.agents import AgentSpec, add_agent_policies, add_delegates
from sessiontree.api.agents.approval_modes import restrict_agents
from sessiontree.api.agents.model_choice import add_models, resolve_models, warn_of_many_tools
from sessiontree.api.configuration.plugins import check_claims, load_installed_tools, split_hidden
from sessiontree.api.options.app import App, SkillsLike, take_app
from sessiontree.api.options.options import (
    GUIDANCE_FILE,
    ApproverLike,
    ChannelLike,
    build_plugin_context,
    build_policy_row,
    build_tree_config,
    check_given,
    check_reach,
    check_schemas,
    choose_channel,
    collect_agents,
    collect_message_policies,
    find_agents_without_read,
    get_channel_members,
    load_plugin_settings,
    load_policy,
    make_nonce,
    make_tree_id,
    own_program_name,
    remove_tools,
    resolve_main_approver,
)
from sessiontree.api.runtime.paths import (
    check_not_around,
    get_default_state_dir,
    list_owner_folders,
    make_absolute,
    make_folders,
    resolve_state_dir,
    resolve_workspace_root,
)
from sessiontree.api.runtime.runtime import (
    NotebookCell,
    OpenTreeEntry,
    Runtime,
    SharedRuntimes,
    show_values_in_cells,
)
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.api.tree.keyword_options import ResumeOptions, TreeOptions
from sessiontree.api.tree.running_tree import RunningTree
from sessiontree.channels.port import HumanChannel
from sessiontree.contracts.errors import ConfigError, TreeNotFound
from sessiontree.contracts.handles.runtime_control import OwnerConfiguration
from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.settings.given_values import TEXT, check_options
from sessiontree.dispatch.tool_table import ToolTable, make_tool_table
from sessiontree.interpreter.import_guard import keep_out
from sessiontree.memory.settings import MemorySettings
from sessiontree.models.port import get_model_name
from sessiontree.runtime.rights.session_rights import read_journaled_policy
from sessiontree.runtime.supervisor.tree_resources import TreeResources

if TYPE_CHECKING:
    from sessiontree.api.runtime.backend import Backend
    from sessiontree.contracts.facts.tree_config import PolicyRow, TreeConfig
    from sessiontree.contracts.tools.program_tool import SavedProgram
    from sessiontree.contracts.tools.skills import Skill
    from sessiontree.mcp.server_tools import GivenServer

_PARAMETERS = ("app", "approver", "channel", "runtime")
"""What opens a tree, besides options."""


class SessionTree(RunningTree):
    """A tree of sessions over one workspace. Use it as an async context manager.

    Args:
        workspace: Root directory of all file tools.
        app: Models, tools, agents and whatever else no journal holds. A program that opens one tree may give
            the members of an :class:`App` as keywords instead, such as ``model``.
        approver: Main's approver: rules, or a callable; callables are channels.
        channel: Where Main talks to a person; by default messages and requests wait in the tree until the
            program reads them. None = no person can be asked.
        runtime: Serve the tree there instead of starting a private runtime.
        options: Members of :class:`TreeOptions` by name: where the tree is kept and served, and its limits,
            rights and purpose.
    """

    _tenant: OpenTreeEntry | None = None
    """Its entry in the runtime while it is open."""
    _holder: tuple[object, Callable[[], Awaitable[None]]] | None = None
    _servers: tuple[GivenServer, ...] = ()
    _wishes: tuple[BackendName, int | None, MemorySettings | None]

    def __init__(
        self,
        workspace: str | Path,
        app: App | None = None,
        *,
        approver: ApproverLike = None,
        channel: ChannelLike = "queue",
        runtime: Runtime | None = None,
        _taken_up: TreeConfig | None = None,
        _new_id: str | None = None,
        **options: Unpack[TreeOptions],
    ) -> None:
        """Check all arguments as far as possible before the tree starts.

        Raises:
            ConfigError: an argument is wrong; says which.
        """
        check_options(options, TreeOptions, "SessionTree", *_PARAMETERS, "workspace")
        self._app = app = take_app(app, options)
        if app.model is None:
            raise ConfigError("no model is given; name one by App(model=…), or by model=…")
        self._root, memory = _guard_root(workspace), options.get("memory")
        self._state_dir = _place_of(runtime, options.get("state_dir"), memory, self._root)
        agent, group = options.get("agent", "default"), options.get("group", "")
        tree_id, group, agent = _choose_identity(_taken_up, group, agent, app.agents or {}, _new_id)
        named = collect_agents(app.agents, self._root, agent, app.sandbox)
        owners = add_agent_policies(load_policy(options.get("policy")), named)
        answering = resolve_models(app.model, app.models, named)
        approvals, smart_rules = options.get("approvals"), options.get("smart_rules", ())
        answered = add_models(add_delegates(named, owners), answering)
        self._agents = restrict_agents(answered, owners, group, approvals)
        rules, self._channel = _split_approval(approver, channel)
        self._table = self._collect_tools(group, tree_id)
        warn_of_many_tools(self._agents, answering, {entry.name for entry in self._table})
        every_rule = {"approver": rules, "smart_rules": smart_rules}
        policy_row = build_policy_row(owners, group, self._table, self._agents, every_rule)
        self._setup = TreeResources.of(
            self._table,
            {name: spec.config for name, spec in self._agents.items()},
            answering,
            web=app.web,
            policy=owners.model_copy(update={"strict": False}),  # slips are reported here, once
            group=group,
            hooks=tuple(app.hooks),
            skills=self._load_skills(app.skills, named, policy_row),
            hidden=list_owner_folders(self._root),
            configuration=_open_configuration(app, self._root),
            servers=self._servers,
        )
        self._config = build_tree_config(
            self._root,
            self._table,
            self._agents,
            tree_id=tree_id,
            model_name=get_model_name(app.model),
            limits=options.get("limits"),
            budget=options.get("budget"),
            approvals=approvals,
            rules=rules,
            smart_rules=smart_rules,
            channel=self._channel,
            purpose=options.get("purpose") or own_program_name(),
            dedicated=options.get("dedicated", False),
            child_workspace=options.get("child_workspace", "shared"),
            policy=policy_row,
            messages=collect_message_policies(owners, self._channel, self._agents),
            hooks=self._setup.hooks,
        )
        self._agents_md = options.get("agents_md", "workspace")
        self._runtime = self._given = runtime
        self._wishes = (options.get("backend", "ray"), options.get("slots"), memory)
        self._cell = NotebookCell.now()
        self._readers = weakref.WeakSet()
        show_values_in_cells()

    def _load_skills(
        self, given: SkillsLike, agents: Mapping[str, AgentSpec], policy: PolicyRow
    ) -> Mapping[str, Skill]:
        if not given and not any(spec.skills for spec in agents.values()):
            return {}
        from sessiontree.api.options.skills import load_skills

        unable = find_agents_without_read(self._table, agents, policy)
        return load_skills(given, agents, unable, self._root, (self._state_dir,))

    def _load_programs(self) -> Sequence[SavedProgram]:
        if not self._app.programs:
            return ()
        from sessiontree.api.programs.program_files import load_programs

        return load_programs(self._app.programs, self._root)

    def _collect_tools(self, group: str, tree_id: str) -> ToolTable:
        app, plugins = self._app, load_plugin_settings(self._app.plugins)
        context = build_plugin_context(
            self._root, self._agents, self._channel, group, self._state_dir, tree_id
        )
        found = load_installed_tools(context, plugins) if app.builtin_tools else ()
        saved = self._load_programs()
        brought_in = (*app.tools, *get_channel_members(self._channel).get("tools", ()), *saved)
        if app.mcp:
            from sessiontree.api.configuration.mcp_servers import collect_server_tools

            taken = {each.name for each in (*brought_in, *(one.tool for one in found))}
            tools, self._servers = collect_server_tools(app.mcp, self._state_dir, taken)
            brought_in = (*brought_in, *tools)
        found, given = split_hidden(found, brought_in)
        check_claims(found, given)
        brought = {each.tool.name: each.plugin for each in found if each.plugin}
        entries = [each.entry for each in found if each.entry is not None]
        table = make_tool_table(
            [*(each.tool for each in found if each.entry is None), *given], brought, entries
        )
        own = {each.tool.name for each in found if not each.plugin}
        check_reach(table, self._agents, own)
        return check_schemas(table, own)

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
        if self._has_guidance():  # else nothing needs a thread
            from sessiontree.api.options.guidance import build_guidance

            guidance = await asyncio.to_thread(build_guidance, self._root, self._agents_md, self.state_dir)
            self._config = replace(self._config, guidance=guidance)
        spec = next(iter(self._agents.values())).config.sandbox
        if spec is not None and spec.fill:
            from sessiontree.sandbox.containers.container import fill_workspace

            await fill_workspace(spec, self._root)
        runtime = self._given or SharedRuntimes.join(self._state_dir, *self._wishes)
        async with self._enter_runtime(runtime):
            await runtime.backend.create(self._config, self._setup)
            self._open_desk(runtime.backend, after=0, last=0)
        return self

    def _has_guidance(self) -> bool:
        """Return whether the workspace has a file AGENTS.md, even one that can't be read."""
        return os.path.lexists(self._root / GUIDANCE_FILE)

    def _set_holder(self, holder: object, close: Callable[[], Awaitable[None]]) -> None:
        """Set the object that the program holds instead of this one, and how to close it on the loop."""
        self._holder = (holder, close)

    @asynccontextmanager
    async def _enter_runtime(self, runtime: Runtime) -> AsyncIterator[None]:
        """Attach the tree to a runtime, and detach it if opening it fails."""
        holder, closing = self._holder or (self, None)
        tenant = OpenTreeEntry(self.tree_id, self._cell, runtime, weakref.ref(holder), closing)
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
    async def resume(
        cls,
        tree_id: str,
        app: App | None = None,
        *,
        approver: ApproverLike = None,
        channel: ChannelLike = "queue",
        runtime: Runtime | None = None,
        **options: Unpack[ResumeOptions],
    ) -> SessionTree:
        """Resume a tree after a crash or a break: facts are replayed and pending work is done, nothing twice.

        Limits, rights, mode and rules come from the journal; the app must be given again. Tools of the tree
        that are not given are removed; new ones are not added.

        Args:
            tree_id: The tree.
            app: As for the class.
            approver: Main's approver, if it is a callable; rules come from the journal.
            channel: Where Main talks to a person; without effect if the tree had no channel.
            runtime: Serve the tree there instead of starting a private runtime.
            options: Members of :class:`ResumeOptions` by name.

        Raises:
            TreeNotFound, JournalError: the tree can't be read.
            ConfigError: an argument is wrong, or an agent or a guard of the tree is not given.
        """
        check_options(options, ResumeOptions, "SessionTree.resume", *_PARAMETERS, "tree_id")
        app, memory = take_app(app, options), options.get("memory")
        _check_memory(memory, runtime)
        TEXT.take(tree_id, "tree_id")
        cell, wishes = NotebookCell.now(), (options.get("backend", "ray"), options.get("slots"), memory)
        serving = runtime or SharedRuntimes.join(
            resolve_state_dir(options.get("state_dir")), *wishes, tree_id=tree_id
        )
        async with serving.sharing.kept():
            try:
                config = await serving.backend.read_config(tree_id)
            except TreeNotFound as error:
                from sessiontree.api.stored.journaled_trees import explain_not_found

                raise await asyncio.to_thread(explain_not_found, serving.state_dir, tree_id, error) from None
            tree = cls(
                config.workspace,
                replace(app, agents=remove_tools(app.agents)),
                approver=approver if callable(approver) else None,
                channel=channel if config.owns_channel else None,
                runtime=serving,
                _taken_up=config,
            )
            tree._config, tree._cell = config, cell
            tree._setup = tree._setup.replace_policy(*read_journaled_policy(config))
            check_given(config, tree._agents, tree._setup.hooks)
            after = await serving.backend.supervisor.last_seq(tree_id)
            tree._runtime = tree._given = runtime
            async with tree._enter_runtime(serving):
                await serving.backend.resume(tree_id, tree._setup)
                last = await serving.backend.supervisor.last_seq(tree_id)
                tree._open_desk(serving.backend, after=after, last=last)
        return tree

    async def fork(
        self,
        *,
        at: int | None = None,
        replace: Mapping[str, str] | None = None,
        approver: ApproverLike = None,
        channel: ChannelLike = "queue",
    ) -> SessionTree:
        """Open a new tree that shares the first facts of this one, and goes its own way from there.

        This tree does not change, and goes on. In the new one no effect is repeated: a call that had begun
        has an unknown result, requests are made again, and a call of the program that had not begun is
        skipped. Its app is that of this tree. What the shared facts used counts against its budgets; the time
        since the last of them does not count. Files of the workspace are as they are now.

        Args:
            at: Number of the last shared fact, as in :meth:`events`; None = the newest.
            replace: New tasks of children that have reported, by session id. Each is started once more, as a
                new child; its parent goes back to before its report. A program of the parent runs its text
                again, and calls equal to recorded ones get the recorded answers.
            approver: Main's approver in the new tree: a callable.
            channel: Where Main of the new tree talks to a person.

        Returns:
            The new tree, open, in the same runtime.

        Raises:
            ConfigError: no tree can be forked at this fact, which says where it can; or a child can't be
                replaced: it is unknown, has not ended, or its parent can't go back.
            JournalError: the journal can't be read or written.
        """
        supervisor, runtime = self._supervisor, self._runtime
        tree_id = make_tree_id()
        await supervisor.fork(self.tree_id, at, tree_id, make_nonce(), dict(replace or {}))
        return await type(self).resume(
            tree_id, self._app, runtime=runtime, approver=approver, channel=channel
        )

    def _open_desk(self, backend: Backend, *, after: int, last: int) -> None:
        """Begin the services of an open tree.

        Args:
            backend: Serves it.
            after: The number of its last fact before it was opened; 0 = it is new.
            last: The same of its last fact now, as far as requests that wait are concerned.
        """
        from sessiontree.api.tree.inbox import HumanInbox
        from sessiontree.api.tree.program_hooks import ProgramHooks

        self._desk = desk = HumanInbox(backend, self.tree_id)
        self._was_open = True
        if self._channel is not None:
            desk.attach("main", self._channel)
        desk.open(last)
        self._hook_desk = ProgramHooks(backend, self.tree_id, self._setup.hooks)
        self._hook_desk.open(after)
        if self._tenant is not None:
            self._tenant.desks += [self._hook_desk, desk]
            for tracer in self._tenant.runtime.traces.make_tracers(
                backend.supervisor,
                self._config,
                self._tenant.runtime.sharing.find_journal(self.tree_id),
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
        # Race: a tree may be closed twice at once, such as by the program and for a cell that runs again.
        tenant, self._tenant = self._tenant, None
        self._desk = None
        for reader in tuple(self._readers):  # a loop over one would wait for ever
            reader.close()
        if tenant is not None:
            self._runtime = self._given
            await tenant.let_go()


def _open_configuration(app: App, root: Path) -> OwnerConfiguration | None:
    if app.configuration is None:
        return None
    from sessiontree.api.configuration.configuration_file import open_configuration

    return open_configuration(make_absolute(app.configuration, "configuration"), root)


def _place_of(
    runtime: Runtime | None, state_dir: str | Path | None, memory: MemorySettings | None, root: Path
) -> Path:
    _check_memory(memory, runtime)
    if runtime is not None:
        return runtime.state_dir
    return get_default_state_dir(root) if state_dir is None else make_absolute(state_dir, "state_dir")


def _check_memory(memory: MemorySettings | None, runtime: Runtime | None) -> None:
    if memory is not None and runtime is not None:
        raise ConfigError("memory is the runtime's; give it to the Runtime")


def _choose_identity(
    taken_up: TreeConfig | None, group: str, agent: str, agents: Collection[str], new_id: str | None
) -> tuple[str, str, str]:
    """Return a tree's id, its group and Main's agent; those of a new tree, or of the one that is resumed."""
    if taken_up is None:
        return new_id or make_tree_id(), group, agent
    main = taken_up.agents[0].name
    group = taken_up.policy.group if taken_up.policy else ""
    return taken_up.tree_id, group, main if main in agents else "default"


def _split_approval(
    approver: ApproverLike, channel: ChannelLike
) -> tuple[tuple[Rule, ...], HumanChannel | None]:
    """Return the rules that answer for Main, and what asks a person."""
    rules, own_channel = resolve_main_approver(approver)
    return rules, choose_channel(channel, own_channel)


def _guard_root(workspace: str | Path) -> Path:
    """Return a workspace's path; from now on no module in it replaces an installed one.

    Raises:
        ConfigError: the path can't be a workspace.
    """
    root = resolve_workspace_root(workspace)
    keep_out(str(root))
    return root
