"""Trees of sessions, open and stored, and a runtime that serves several, for programs without ``await``.

Long because the docstrings are repeated from the async classes.

Written by ``.ci/generate_sync.py`` from the async classes: change those, or the script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from sessiontree.api.options.app import App
from sessiontree.api.options.options import ApproverLike, ChannelLike
from sessiontree.api.runtime import runtime as on_loop
from sessiontree.api.runtime.runtime_options import RuntimeOptions
from sessiontree.api.stored import stored_trees as trees_on_loop
from sessiontree.api.tree import session_tree as tree_on_loop
from sessiontree.api.tree.keyword_options import ChildOptions, ResumeOptions, TreeOptions
from sessiontree.contracts.facts.tree_config import ShardRow
from sessiontree.contracts.values.messages import Usage
from sessiontree.memory.settings import MemorySettings
from sessiontree.sync.bases import RuntimeBase, TreeBase, get_loop_runtime, run_with_own_lease
from sessiontree.sync.bridge import LoopBridge
from sessiontree.sync.channels import choose_channel, wrap_approver
from sessiontree.sync.event_buffer import FactReader, ProgressReader
from sessiontree.sync.session import Approvals, ClientCalls, Questions, SessionHandle

if TYPE_CHECKING:
    from sessiontree.contracts.facts.tree_config import TreeSummary
    from sessiontree.contracts.recorded.results import SessionResult
    from sessiontree.contracts.reports.dry_run import DryRun
    from sessiontree.contracts.reports.replay_report import ReplayReport
    from sessiontree.contracts.settings.model_settings import ModelPrice
    from sessiontree.tree.report import ReceiptLine

T = TypeVar("T")


class Runtime(RuntimeBase):
    """Pools and supervisor over one state directory; serves many trees.

    The same as :class:`sessiontree.Runtime`, for trees without ``await``.

    Args:
        state_dir: Directory of journal and memory. Each running program writes its own journal there: the
            first in the directory itself, the next in ``journals/2``, and so on.
        options: Members of :class:`RuntimeOptions` by name, such as ``backend`` and ``slots``.
    """

    def __init__(self, state_dir: str | Path, **options: Unpack[RuntimeOptions]) -> None:
        """Prepare the backend; ``local`` opens its journal at once, ``ray`` with the first tree.

        Raises:
            ConfigError: the backend is unknown, a setting is out of bounds or is for the other backend, the
                kernel can't confine Workers, or traces can't be exported.
            JournalError: the state directory can't be used, or another program writes the journal.
            TreeNotFound: no journal there holds the tree.
        """
        self._begin(partial(on_loop.Runtime, state_dir, **options))

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
        app: Models, tools, agents and whatever else no journal holds. A program that opens one tree may give
            the members of an :class:`App` as keywords instead, such as ``model``.
        approver: Main's approver: rules, or a callable; callables are channels. A plain callable may
            block and may use the tree; an ``async`` one runs on the loop.
        channel: Where Main talks to a person; by default messages and requests wait in the tree until
            the program reads them. None = no person can be asked.
            ``sessiontree.sync.TerminalChannel()`` asks by ``input()``. Messages are delivered on the
            loop.
        runtime: Serve the tree there instead of starting a private runtime. It is a
            ``sessiontree.sync.Runtime``.
        options: Members of :class:`TreeOptions` by name: where the tree is kept and served, and its limits,
            rights and purpose.
    """

    def __init__(
        self,
        workspace: str | Path,
        app: App | None = None,
        *,
        approver: ApproverLike = None,
        channel: ChannelLike = "queue",
        runtime: Runtime | None = None,
        **options: Unpack[TreeOptions],
    ) -> None:
        """Check all arguments as far as possible before the tree starts.

        Raises:
            ConfigError: an argument is wrong; says which.
        """
        crossing = LoopBridge()
        self._hold(
            crossing,
            tree_on_loop.SessionTree(
                workspace,
                app,
                approver=wrap_approver(approver, crossing.prompts),
                channel=choose_channel(channel, approver, crossing.prompts),
                runtime=get_loop_runtime(runtime),
                **options,
            ),
        )

    @classmethod
    def resume(
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
        crossing = LoopBridge()
        resumed = partial(
            tree_on_loop.SessionTree.resume,
            tree_id,
            app,
            approver=wrap_approver(approver, crossing.prompts),
            channel=choose_channel(channel, approver, crossing.prompts),
            runtime=get_loop_runtime(runtime),
            **options,
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
        """Return a handle of any session of the tree; its path is ``session_id``, such as ``main/w1``."""
        return SessionHandle(self._crossing, self._crossing.run(self._made.session, session_id))

    @property
    def approvals(self) -> Approvals:
        """Requests that wait for a person."""
        return Approvals(self._crossing, self._crossing.run(lambda: self._made.approvals))

    @property
    def questions(self) -> Questions:
        """Questions that wait for a person."""
        return Questions(self._crossing, self._crossing.run(lambda: self._made.questions))

    @property
    def client_calls(self) -> ClientCalls:
        """Calls of client tools that wait for the program."""
        return ClientCalls(self._crossing, self._crossing.run(lambda: self._made.client_calls))

    def events(self, *, after: int = 0) -> FactReader:
        """Iterate over the tree's durable facts in order, then wait for more; ends when Main has ended.

        ``record.fact`` is an object of a class of :mod:`sessiontree.facts`, or several of them in
        ``record.facts``. ``tree.events().to_pandas()`` returns those so far.

        Args:
            after: Number of the last fact to skip.
        """
        return FactReader(self._crossing, self._crossing.run(self._made.events, after=after))

    def progress(self, session_id: str | None = None) -> ProgressReader:
        """Return a reader of events, which are not journaled: deltas, calls, and progress of tools.

        ``async for progress in tree.progress()`` yields them from now on, until the tree is closed.

        Args:
            session_id: Path of the session to watch; None = all sessions of the tree.
        """
        return ProgressReader(self._crossing, self._crossing.run(self._made.progress, session_id))

    def fork(
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
        crossing = LoopBridge()
        forked = partial(
            self._made.fork,
            at=at,
            replace=replace,
            approver=wrap_approver(approver, crossing.prompts),
            channel=choose_channel(channel, approver, crossing.prompts),
        )
        tree = type(self).__new__(type(self))
        tree._take_up(crossing, forked)  # noqa: SLF001 - as above
        return tree

    @overload
    def run(
        self, task: str, *, result_type: type[T], **options: Unpack[ChildOptions]
    ) -> SessionResult[T]: ...
    @overload
    def run(
        self, task: str, *, result_type: Any = ..., **options: Unpack[ChildOptions]
    ) -> SessionResult[Any]: ...
    def run(
        self, task: str, *, result_type: Any = None, **options: Unpack[ChildOptions]
    ) -> SessionResult[Any]:
        """Give a task to a new Branch below Main, and return its final answer, after all its children.

        An interrupt cancels it.

        The Branch may spawn sessions and answers once the last of them has ended; its interim messages are
        not returned. If the call is cancelled, the Branch is cancelled with everything below it. Each call
        creates a new Branch, which does not see Main's transcript.

        Args:
            task: Its first message.
            result_type: Type of its final message, as for :meth:`SessionHandle.spawn`.
            options: Members of :class:`ChildOptions` by name: its agent, budget, model settings, skills and
                time to live.

        Returns:
            The result of the completed Branch; ``output`` has the requested type.

        Raises:
            SessionFailed: it did not complete; says why.
            SpawnRefused, LimitExceeded: a rule or limit forbids it; nothing was started.
            ConfigError: an argument is wrong.
        """
        value: SessionResult[Any] = self._crossing.wait(
            self._made.run, task, result_type=result_type, **options
        )
        return value

    def cancel(self, reason: str = "cancelled by the program") -> tuple[ReceiptLine, ...]:
        """End the whole tree.

        Args:
            reason: What the journal and the sessions' results say.

        Returns:
            The receipt: every session and how it ended.
        """
        value: tuple[ReceiptLine, ...] = self._crossing.run(self._made.cancel, reason)
        return value

    def finish(self, summary: str) -> tuple[ReceiptLine, ...]:
        """End the tree as completed, with ``summary`` as Main's final message; live children are cancelled.

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


class StoredTrees:
    """The trees whose journals are in one state directory: list, export, load, fork, replay and erase them.

    The same as :class:`sessiontree.StoredTrees`, without ``await``.

    No tree needs to be open, and none is started. Trees that programs run are listed, exported, forked and
    replayed too, as far as their facts are durable; they are not erased.

    Args:
        state_dir: The state directory, or the directory of one of its journals; None = that of the working
            directory.

    Raises:
        ConfigError: the directory is not a path.
    """

    def __init__(self, state_dir: str | Path | None = None) -> None:
        self._stored = trees_on_loop.StoredTrees(state_dir)

    @property
    def state_dir(self) -> Path:
        """The directory."""
        return self._stored.state_dir

    def export(self, tree_id: str, path: str | Path) -> int:
        """Write a tree's durable facts to a file, whether the tree is open or closed.

        The file is NDJSON in which each line carries a hash, and only its owner may read it. It holds
        everything that sessions read and wrote, and the configuration of the tree; memory is not part of it.

        Args:
            tree_id: The tree.
            path: Replaced once the export is whole.

        Returns:
            How many facts it holds.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalError: its journal can't be read.
            OSError: the file can't be written; the earlier file is unchanged.
        """
        value: int = run_with_own_lease(self._stored.export, tree_id, path)
        return value

    def load(self, path: str | Path, *, damaged: bool = False) -> str:
        """Write an exported tree into a journal, whole or not at all; ``SessionTree.resume`` then opens it.

        The tree keeps its id, its facts and its configuration: workspace, limits, rights and rules. Load
        files you trust. Resume only one of several copies: they know nothing of each other's effects.

        Args:
            path: A file that :meth:`export` wrote.
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
        value: str = run_with_own_lease(self._stored.load, path, damaged=damaged)
        return value

    def fork(self, tree_id: str, *, at: int | None = None, replace: Mapping[str, str] | None = None) -> str:
        """Write a new tree that shares the first facts of another one; ``SessionTree.resume`` then opens it.

        As :meth:`SessionTree.fork`, of a tree that need not be open; another program may run it meanwhile.

        Args:
            tree_id: The other tree.
            at: Number of the last shared fact; None = the newest.
            replace: New tasks of children that have reported, by session id, as in :meth:`SessionTree.fork`.

        Returns:
            The new tree's id.

        Raises:
            TreeNotFound: no journal here holds the tree.
            ConfigError: no tree can be forked at this fact, which says where it can; or a child can't be
                replaced.
            JournalError: the journal can't be read or written.
        """
        value: str = run_with_own_lease(self._stored.fork, tree_id, at=at, replace=replace)
        return value

    def dry_resume(self, tree_id: str, *, prices: Mapping[str, ModelPrice] | None = None) -> DryRun:
        """Say what a resume of a tree would do at once: what runs again, what the journal serves, what waits.

        The rules that a resume applies decide on a copy of the tree. Nothing is written, started or asked.

        Args:
            tree_id: The tree.
            prices: Prices of models' tokens, by agent; what other agents' replies cost is not known.

        Returns:
            Sessions with their open calls, questions and costs. What follows from the replies is not in it,
            nor what has become overdue meanwhile.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalError: it can't be read.
        """
        value: DryRun = run_with_own_lease(self._stored.dry_resume, tree_id, prices=prices)
        return value

    def dry_fork(
        self,
        tree_id: str,
        *,
        at: int | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        replace: Mapping[str, str] | None = None,
    ) -> DryRun:
        """Say what a fork of a tree would do at once, as :meth:`dry_resume`.

        Args:
            tree_id: The other tree.
            at: Number of the last shared fact; None = the newest.
            prices: Prices of models' tokens, by agent; what other agents' replies cost is not known.
            replace: As in :meth:`fork`.

        Returns:
            The same as for a resume, and what the fork itself settles.

        Raises:
            TreeNotFound: no journal here holds the tree.
            ConfigError: no tree can be forked at this fact; says where it can.
            JournalError: it can't be read.
        """
        value: DryRun = run_with_own_lease(
            self._stored.dry_fork, tree_id, at=at, prices=prices, replace=replace
        )
        return value

    def replay(self, tree_id: str) -> ReplayReport:
        """Apply the rules of this release again to what a tree recorded, and compare every fact.

        Nothing is asked, called or written: what models, tools and people answered is in the facts. The tree
        may be open; its facts up to now are compared. A tree of another release is only read.

        Args:
            tree_id: The tree.

        Returns:
            What was compared, and the first difference.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalError: it can't be read.
        """
        value: ReplayReport = run_with_own_lease(self._stored.replay, tree_id)
        return value

    def erase(self, tree_id: str, *, memory: MemorySettings | None = None, keep_memory: bool = False) -> int:
        """Erase a tree that no program runs: its facts, and the records its sessions stored in memory.

        Exports of the tree, and files in its workspace, stay.

        Args:
            tree_id: The tree.
            memory: Where memory is; None = in the state directory.
            keep_memory: Leave memory as it is.

        Returns:
            How many records of memory were erased.

        Raises:
            TreeNotFound: no journal here holds the tree.
            JournalLocked, MemoryFailed: a program writes its journal, or memory; nothing was erased.
            JournalError, MemoryFailed: the journal or memory can't be written.
        """
        value: int = run_with_own_lease(self._stored.erase, tree_id, memory=memory, keep_memory=keep_memory)
        return value

    def prune(
        self,
        *,
        older_than_s: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        unfinished: bool = True,
    ) -> Sequence[str]:
        """Erase old trees from the journals that no program writes now; what they stored in memory stays.

        A tree must meet every condition that is given.

        Args:
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
        value: Sequence[str] = run_with_own_lease(
            self._stored.prune,
            older_than_s=older_than_s,
            keep=keep,
            max_bytes=max_bytes,
            unfinished=unfinished,
        )
        return value

    def list(self, purpose: str | None = None) -> Sequence[TreeSummary]:
        """Return every tree of the state directory, oldest first, including those that programs run.

        Args:
            purpose: Only those opened with exactly this ``purpose``; None = all.

        Raises:
            ConfigError: the purpose is not text.
            JournalError: a journal can't be read.
        """
        value: Sequence[TreeSummary] = run_with_own_lease(self._stored.list, purpose)
        return value
