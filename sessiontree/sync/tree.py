"""A tree of sessions, and a runtime that serves several, for programs without ``await``.

Long because the docstrings are repeated from the async classes.

Written by ``.ci/generate_sync.py`` from the async classes: change those, or the script.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from sessiontree.api import runtime as on_loop
from sessiontree.api import session_tree as tree_on_loop
from sessiontree.api.agents import AgentSpec
from sessiontree.api.model_choice import ModelLike
from sessiontree.api.options import ApproverLike, ChannelLike, GuidanceSource, PluginsLike, PolicyLike
from sessiontree.api.runtime import BackendName
from sessiontree.api.telemetry import TelemetryLike
from sessiontree.contracts.approvals import ApprovalMode, Rule
from sessiontree.contracts.hooks import Hook
from sessiontree.contracts.messages import Usage
from sessiontree.contracts.model_settings import ModelSettings
from sessiontree.contracts.settings import Budget, Limits
from sessiontree.contracts.tool import Tool
from sessiontree.memory.settings import MemorySettings
from sessiontree.sync.bases import RuntimeBase, TreeBase, runtime_on_loop, with_own_lease
from sessiontree.sync.bridge import Crossing
from sessiontree.sync.channels import chosen_channel, crossed_approver
from sessiontree.sync.event_buffer import ProgressReader, drained
from sessiontree.sync.session import Approvals, ClientCalls, SessionHandle
from sessiontree.web.settings import PUBLIC_WEB, WebSettings

if TYPE_CHECKING:
    from sessiontree.api.runtime import Enforcement, Shards
    from sessiontree.api.skills import SkillsLike
    from sessiontree.contracts.replay_report import ReplayReport
    from sessiontree.contracts.results import SessionResult
    from sessiontree.contracts.tree_config import ShardRow, TreeSummary
    from sessiontree.journal.record import Record
    from sessiontree.tree.report import ReceiptLine

T = TypeVar("T")


class Runtime(RuntimeBase):
    """Pools and supervisor over one state directory; serves many trees.

    The same as :class:`sessiontree.Runtime`, for trees without ``await``.

    Args:
        state_dir: Directory of journal and memory. Each running program writes its own journal there: the
            first in the directory itself, the next in ``journals/2``, and so on.
        backend: ``ray``: sessions are actors on the Ray that the program has initialised, or on a private one
            that ends with the runtime; ``local``: everything runs in this process.
        slots: Maximum sessions in hosts at a time (``ray``: for each pool); None = the backend's default.
        address: Cluster to connect to, as ``host:port`` or ``auto``. Only ``ray``.
        num_cpus: CPUs of a private Ray; None counts the machine's. Only ``ray``.
        insecure: Allow a private Ray without authentication if ``RAY_AUTH_MODE=disabled`` is set.
        kernel_enforcement: ``required``: no Worker runs if the kernel can't make its process read-only;
            ``best_effort``: it runs with the available confinement, which its status reports. Only ``ray``.
        max_host_bytes: Maximum private memory of one session's host, in bytes; a host that exceeds it ends
            together with its session. None = 2 GiB. Only ``ray``.
        memory: Place of memory and embedder of its texts; None = in the state directory, with texts compared
            by their words.
        pass_env: Names of environment variables that tools get in addition to harmless ones such as ``PATH``
            and ``LANG``; only the program and its model get the program's keys. Only ``ray``.
        tree_id: Write the journal that holds this tree, to resume it; None = the first unused journal.
        shards: Maximum number of supervisors for new trees, each with a journal and hosts of its own; begun
            as trees need them. A tree is wholly in one of them. ``per-node`` = one on each node of the
            cluster, in the directory that is at ``state_dir`` there. Only ``ray``.
        placement: Where Workers and Branches run on a cluster, such as ``{"worker": {"num_cpus": 1,
            "resources": {"fast_disk": 1}, "label": {"zone": "spot"}}}``: on nodes with these labels and
            resources that have the same directory at the workspace's path. Main, and kinds that are not
            named, run on this node. Only ``ray`` on a cluster.
        telemetry: How its trees are traced by OpenTelemetry. None = if the program has set a tracer provider,
            or if the standard ``OTEL_*`` variables name a collector; True = in any case; False = never.
        log: ``json``: write the package's log records, and a line for whatever ends in its trees, as JSON
            lines to standard error. None = as the variable ``SESSIONTREE_LOG`` says.
    """

    def __init__(  # noqa: PLR0913 - keyword-only settings of the public API
        self,
        state_dir: str | Path,
        *,
        backend: BackendName = "ray",
        slots: int | None = None,
        address: str | None = None,
        num_cpus: int | None = None,
        insecure: bool = False,
        kernel_enforcement: Enforcement = "required",
        max_host_bytes: int | None = None,
        memory: MemorySettings | None = None,
        pass_env: Sequence[str] = (),
        tree_id: str | None = None,
        shards: Shards = 1,
        placement: Mapping[str, Mapping[str, Any]] | None = None,
        telemetry: TelemetryLike = None,
        log: Literal["json"] | None = None,
    ) -> None:
        """Prepare the backend; ``local`` opens its journal at once, ``ray`` with the first tree.

        Raises:
            ConfigError: the backend is unknown, a setting is out of bounds or is for the other backend, the
                kernel can't confine Workers, or traces can't be exported.
            JournalError: the state directory can't be used, or another program writes the journal.
            TreeNotFound: no journal there holds the tree.
        """
        self._begin(
            partial(
                on_loop.Runtime,
                state_dir,
                backend=backend,
                slots=slots,
                address=address,
                num_cpus=num_cpus,
                insecure=insecure,
                kernel_enforcement=kernel_enforcement,
                max_host_bytes=max_host_bytes,
                memory=memory,
                pass_env=pass_env,
                tree_id=tree_id,
                shards=shards,
                placement=placement,
                telemetry=telemetry,
                log=log,
            )
        )

    def trees(self, purpose: str | None = None) -> list[TreeSummary]:
        """Return every tree of the state directory, oldest first, including those of other programs.

        With ``shards="per-node"``, also those of the same directory on the other nodes that can be reached.

        Args:
            purpose: Only those opened with exactly this ``purpose``; None = all.

        Raises:
            JournalError: a journal can't be read.
        """
        value: list[TreeSummary] = self._crossing.run(self.on_loop.trees, purpose)
        return value

    def shards(self) -> list[ShardRow]:
        """Return the shards that were begun, each with its open trees and the number of their live sessions.

        A lost one says why it is lost. Each other one is asked for the number, which takes milliseconds.
        """
        value: list[ShardRow] = self._crossing.run(self.on_loop.shards)
        return value


class SessionTree(TreeBase):
    """A tree of sessions over one workspace. Use it as a context manager, in a script or a running kernel.

    The same as :class:`sessiontree.SessionTree`, without ``await``. Any thread may use it; several may
    block in it at once. While a call waits for sessions (``run``, ``send``, ``call``, ``map``,
    ``result``, or the next item of ``as_completed``, ``stream``, ``events``, ``progress``), approval
    requests for a plain callable or a terminal are asked on the thread that waits, one at a time.
    While no call waits they stay in ``approvals.pending()``.

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
        approver: Main's approver: rules, or a callable; callables are channels. A plain callable may
            block and may use the tree; an ``async`` one runs on the loop.
        smart_rules: Rules that mode ``smart`` applies by itself.
        channel: Where Main talks to a person; by default messages and requests wait in the tree until
            the program reads them. None = no person can be asked.
            ``sessiontree.sync.TerminalChannel()`` asks by ``input()``. Messages are delivered on the
            loop.
        state_dir: Directory of the journal; by default one per workspace in the platform's state folder.
        backend: ``ray``: sessions are actors on the Ray that the program has initialised, or on a private
            one; ``local``: everything runs in this process.
        slots: Maximum sessions in hosts at a time.
        memory: Place of a private runtime's memory, and the embedder of its texts.
        runtime: Serve the tree there instead of starting a private runtime. It is a
            ``sessiontree.sync.Runtime``.
        purpose: Purpose of the tree, for listings; empty = the name of the program.
        dedicated: Whether each session keeps its own host for life.
        builtin_tools: False leaves out the tools of installed distributions.
        plugins: Plugin settings by id, or the path of a JSON or TOML file with them. They are not journaled.
        web: What its sessions may read on the web: by default public pages, with no search provider; None =
            nothing.
        policy: Which tools its sessions may hold, or the path of a JSON or TOML file that says so; None = all
            that kind and agent allow. It only removes tools.
        group: Group of the channel and of every session, for the policy's ``groups``.
        hooks: Hooks on the calls, messages, spawns and lives of its sessions. They run on the loop or
            in threads of their own.
        skills: A folder of skills, or several: folders with a file ``SKILL.md``. Sessions see those that
            their agents name. None may be in the workspace.
        agents_md: Whose text the workspace's AGENTS.md is: the ``workspace``'s, marked as untrusted; that of
            a ``trusted`` workspace, quoted, which sessions may follow; or the ``owner``'s. It joins the
            prompts of sessions that read files; with None, it joins no prompt.
    """

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
    ) -> None:
        """Check all arguments as far as possible before the tree starts.

        Raises:
            ConfigError: an argument is wrong; says which.
        """
        crossing = Crossing()
        self._hold(
            crossing,
            tree_on_loop.SessionTree(
                workspace,
                model=model,
                models=models,
                tools=tools,
                limits=limits,
                budget=budget,
                agents=agents,
                agent=agent,
                approvals=approvals,
                approver=crossed_approver(approver, crossing.prompts),
                smart_rules=smart_rules,
                channel=chosen_channel(channel, approver, crossing.prompts),
                state_dir=state_dir,
                backend=backend,
                slots=slots,
                memory=memory,
                runtime=runtime_on_loop(runtime),
                purpose=purpose,
                dedicated=dedicated,
                builtin_tools=builtin_tools,
                plugins=plugins,
                web=web,
                policy=policy,
                group=group,
                hooks=hooks,
                skills=skills,
                agents_md=agents_md,
            ),
        )

    @classmethod
    def resume(  # noqa: PLR0913 - keyword-only settings of the public API
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
        crossing = Crossing()
        resumed = partial(
            tree_on_loop.SessionTree.resume,
            tree_id,
            model=model,
            models=models,
            tools=tools,
            state_dir=state_dir,
            approver=crossed_approver(approver, crossing.prompts),
            channel=chosen_channel(channel, approver, crossing.prompts),
            agents=agents,
            backend=backend,
            slots=slots,
            memory=memory,
            runtime=runtime_on_loop(runtime),
            builtin_tools=builtin_tools,
            plugins=plugins,
            web=web,
            hooks=hooks,
            skills=skills,
        )
        tree = cls.__new__(cls)
        tree._take_up(crossing, resumed)  # noqa: SLF001 - a tree of this class
        return tree

    @property
    def tree_id(self) -> str:
        """The tree's id, unguessable."""
        return self._made.tree_id

    @property
    def state_dir(self) -> Path:
        """Where the journal is."""
        return self._made.state_dir

    @property
    def main(self) -> SessionHandle:
        """The session that talks to the person."""
        return SessionHandle(self._crossing, self._crossing.run(lambda: self._made.main))

    def session(self, session_id: str) -> SessionHandle:
        """Return a handle of any session of the tree, by its path."""
        return SessionHandle(self._crossing, self._crossing.run(self._made.session, session_id))

    @property
    def approvals(self) -> Approvals:
        """Requests that wait for a person."""
        return Approvals(self._crossing, self._crossing.run(lambda: self._made.approvals))

    @property
    def client_calls(self) -> ClientCalls:
        """Calls of client tools that wait for the program."""
        return ClientCalls(self._crossing, self._crossing.run(lambda: self._made.client_calls))

    def events(self, *, after: int = 0) -> Iterator[Record]:
        """Iterate over the tree's durable facts in order, then wait for more; ends when Main has ended.

        ``record.fact`` is an object of a class of :mod:`sessiontree.facts`, or several of them in
        ``record.facts``.

        Args:
            after: Number of the last fact to skip.
        """
        return drained(self._crossing, lambda: self._made.events(after=after), 512, 512)

    def progress(self, session_id: str | None = None) -> ProgressReader:
        """Return a reader of events, which are not journaled: deltas, calls, and progress of tools.

        ``async for progress in tree.progress()`` yields them from now on, until the tree is closed.

        Args:
            session_id: Path of the session to watch; None = all sessions of the tree.
        """
        return ProgressReader(self._crossing, self._crossing.run(self._made.progress, session_id))

    def fork(
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
        crossing = Crossing()
        forked = partial(
            self._made.fork,
            at=at,
            approver=crossed_approver(approver, crossing.prompts),
            channel=chosen_channel(channel, approver, crossing.prompts),
        )
        tree = type(self).__new__(type(self))
        tree._take_up(crossing, forked)  # noqa: SLF001 - as above
        return tree

    @classmethod
    def fork_stored(cls, tree_id: str, *, at: int | None = None, state_dir: str | Path | None = None) -> str:
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
        value: str = with_own_lease(tree_on_loop.SessionTree.fork_stored, tree_id, at=at, state_dir=state_dir)
        return value

    def export(self, path: str | Path) -> int:
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
        value: int = with_own_lease(self._made.export, path)
        return value

    @classmethod
    def import_journal(
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
        value: str = with_own_lease(
            tree_on_loop.SessionTree.import_journal, path, state_dir=state_dir, damaged=damaged
        )
        return value

    @classmethod
    def replay(cls, tree_id: str, *, state_dir: str | Path | None = None) -> ReplayReport:
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
        value: ReplayReport = with_own_lease(tree_on_loop.SessionTree.replay, tree_id, state_dir=state_dir)
        return value

    @classmethod
    def erase(
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
        value: int = with_own_lease(
            tree_on_loop.SessionTree.erase,
            tree_id,
            state_dir=state_dir,
            memory=memory,
            keep_memory=keep_memory,
        )
        return value

    @classmethod
    def prune(
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
        value: list[str] = with_own_lease(
            tree_on_loop.SessionTree.prune,
            state_dir=state_dir,
            older_than_s=older_than_s,
            keep=keep,
            max_bytes=max_bytes,
            unfinished=unfinished,
        )
        return value

    @overload
    def run(
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
    def run(
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
    def run(
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

        An interrupt cancels it.

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
        value: SessionResult[Any] = self._crossing.wait(
            self._made.run,
            task,
            agent=agent,
            result_type=result_type,
            budget=budget,
            settings=settings,
            skills=skills,
            ttl_s=ttl_s,
        )
        return value

    def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the whole tree.

        Returns:
            The receipt: every session and how it ended.
        """
        value: tuple[ReceiptLine, ...] = self._crossing.run(self._made.cancel, reason)
        return value

    def finish(self, summary: str) -> tuple[ReceiptLine, ...]:
        """End the tree as completed, with Main's final message; live children are cancelled first.

        Raises:
            ConfigError: the final message is not text.
        """
        value: tuple[ReceiptLine, ...] = self._crossing.run(self._made.finish, summary)
        return value

    def receipt(self) -> tuple[ReceiptLine, ...]:
        """Return every session of the tree and its state."""
        value: tuple[ReceiptLine, ...] = self._crossing.run(self._made.receipt)
        return value

    def usage(self) -> Usage:
        """Return the usage of all sessions of the tree so far, including those that have ended."""
        value: Usage = self._crossing.run(self._made.usage)
        return value
