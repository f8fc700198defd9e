"""The runtime: pools and supervisor over one state directory, on the chosen backend."""

from __future__ import annotations

import ast
import asyncio
import linecache
import logging
import os
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, Self, Unpack

from sessiontree.api.runtime import notebook_door, ray_door
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.api.runtime.runtime_options import TREE_CPUS, BackendName, RuntimeOptions, Shards
from sessiontree.api.telemetry.traces import Traces
from sessiontree.contracts.errors import ConfigError, WrongLoop
from sessiontree.contracts.facts.tree_config import ShardRow
from sessiontree.contracts.settings.given_values import Edge, Give, check_options, take_settings
from sessiontree.contracts.values.python_source import parse_python
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.memory.settings import MemorySettings

if TYPE_CHECKING:
    from sessiontree.api.runtime.backend import Backend
    from sessiontree.api.runtime.sharded_backend import ShardedBackend
    from sessiontree.api.runtime.shards import RemoteShards
    from sessiontree.contracts.facts.tree_config import TreeSummary
    from sessiontree.contracts.settings.placement import Placements


def _parse_placements(placement: Mapping[str, Any] | None, shards: Shards) -> Placements | None:
    """Return where the kinds of sessions run; None = all of them on the supervisor's node.

    Raises:
        ConfigError: the placement is not valid, or each tree is to be wholly on one node.
    """
    if placement is None:
        return None
    from sessiontree.contracts.settings.placement import Placements

    found = Placements.from_given(placement)
    if found is not None and shards == "per-node":
        raise ConfigError(
            "shards='per-node' keeps each tree wholly on one node, and placement spreads a tree over nodes; "
            "leave one of them out"
        )
    return found


def _build_node_options(options: RuntimeOptions) -> dict[str, Any]:
    """Return which nodes get shards, and what trees ask of them.

    Raises:
        ConfigError: a condition on labels is not valid, or each tree is not wholly on one node.
    """
    label = options.get("shard_label")
    if options.get("shards") != "per-node":
        for name in ("shard_label", "tree_cpus"):
            if options.get(name) is not None:
                raise ConfigError(f"{name} is for shards='per-node'; leave it out")
    from sessiontree.contracts.settings.placement import Placement

    found = take_settings(lambda: Placement.model_validate({"label": label or {}}), "shard_label")
    return {"wanted": found, "tree_cpus": options.get("tree_cpus", TREE_CPUS)}


PURPOSE: Final = Edge[str | None](
    Annotated[str | None, Give("the text trees were opened with, or None for all")]
)
OPEN: list[Runtime] = []
"""The runtimes of this process that are open."""
_LOG = logging.getLogger("sessiontree")


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """The run of a notebook cell that opens a tree."""

    identity: str
    """Id of the cell, the same for every run: the front end's id, else its text."""
    run: str
    """Id of the run, different for every run."""
    assigned: frozenset[str]
    """Names that the cell assigns."""

    @classmethod
    def now(cls) -> NotebookCell | None:
        """Return the cell that runs in this thread; None in a script, and if cells have no text."""
        names = vars(sys.modules["__main__"])
        if "__file__" in names:
            return None  # a script, or a program that was started as one
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the way to know a notebook's cell
        while frame is not None:
            code = frame.f_code
            if frame.f_globals is names and code.co_name.startswith(("<module>", "<cell line")):
                text = "".join(linecache.getlines(code.co_filename))
                called, count = _identify_front_end()
                return cls(called or text, count or code.co_filename, _find_assigned(text)) if text else None
            frame = frame.f_back
        return None


def get_ipython_shell() -> Any:
    """Return the IPython shell in which this program is typed; None in any other program."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def show_values_in_cells() -> None:
    """Have values of this package show themselves in a notebook; nothing in any other program."""
    shell = get_ipython_shell()
    if shell is not None:
        notebook_door.show_values(shell)


def show_in_waiting_cell(tree_id: str) -> bool:
    """Show a tree in the notebook's cell that waits for a person; return False outside of one."""
    if get_ipython_shell() is None:
        return False
    place = place_of_open(tree_id)
    return place is not None and notebook_door.show_waiting(place, tree_id)


def place_of_open(tree_id: str) -> Path | None:
    """Return the state directory of a tree that is open in this process; None if it is not."""
    return next((each.state_dir for each in OPEN if tree_id in each.sharing.open_trees()), None)


def _identify_front_end() -> tuple[str, str]:
    """Return the ids that JupyterLab or VS Code give to the running cell and its run; empty if unknown."""
    shell = get_ipython_shell()
    parent: Any = getattr(shell, "get_parent", dict)()
    said = parent.get("metadata", {}).get("cellId", "") if isinstance(parent, dict) else ""
    return said if isinstance(said, str) else "", str(getattr(shell, "execution_count", ""))


def _find_assigned(text: str) -> frozenset[str]:
    try:
        found = ast.walk(parse_python(text))
    except SyntaxError:  # a cell with magic of its front end
        return frozenset()
    return frozenset(
        each.id for each in found if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )


class TreeService(Protocol):
    """A service of an open tree in addition to the runtime."""

    async def close(self) -> None:
        """End."""
        ...


@dataclass(slots=True, eq=False)
class OpenTreeEntry:
    """One tree of a program on a runtime."""

    tree_id: str
    cell: NotebookCell | None
    runtime: Runtime
    held: weakref.ref[Any]
    """The object that the program holds."""
    closing: Callable[[], Awaitable[None]] | None
    """Closes that object on the loop; None = its own ``close`` does."""
    desks: list[TreeService] = field(default_factory=list)
    """Services, closed in this order when the tree is released."""
    is_open: bool = False

    async def close(self) -> None:
        """Close the tree by its object, if it still exists."""
        tree = self.held()
        if tree is None:
            await self.let_go()
        elif self.closing is not None:
            await self.closing()
        else:
            await tree.close()

    async def let_go(self) -> None:
        """Close the tree's services and leave the runtime."""
        desks, self.desks = self.desks, []
        try:
            for desk in desks:
                await desk.close()
        finally:
            await self.runtime.sharing.leave(self)

    def is_abandoned(self, cell: NotebookCell | None) -> bool:
        """Return whether the tree can no longer be used: its object is gone, or its cell ran again.

        If its cell ran again, the tree is kept as long as a variable holds it that the cell does not assign.
        """
        tree = self.held()
        if tree is None:
            return True
        if cell is None or self.cell is None or self.cell.run == cell.run:
            return False
        if self.cell.identity != cell.identity:
            return False
        holding = [name for name, value in vars(sys.modules["__main__"]).items() if value is tree]
        return all(name.startswith("_") or name in cell.assigned for name in holding)


class SharedRuntimes:
    """The trees that share a runtime in one program: a tree without a given runtime joins the open one."""

    def __init__(
        self, runtime: Runtime, choices: tuple[Any, ...], sharded: ShardedBackend | None = None
    ) -> None:
        self._runtime = runtime
        self._sharded = sharded
        self._choices = choices
        self._pid = os.getpid()
        self._loop = _get_running_loop()
        self._is_private = False
        self._keepers = 0
        self._tenants: list[OpenTreeEntry] = []

    @classmethod
    def join(
        cls,
        state_dir: Path,
        backend: BackendName,
        slots: int | None,
        memory: MemorySettings | None,
        tree_id: str | None = None,
    ) -> Runtime:
        """Return this program's runtime for a state directory and the current loop, or open one.

        A runtime with other settings is not shared: the tree gets another runtime with its own journal.

        Args:
            state_dir: The state directory, or the directory of one of its journals.
            backend: As for :class:`Runtime`, like ``slots`` and ``memory``.
            slots: None = as the open runtime.
            memory: None = as the open runtime.
            tree_id: The tree to resume; None = a new one.
        """
        from sessiontree.journal.claim import locate_journal, state_dir_of_journal

        wanted = None if tree_id is None else locate_journal(state_dir, tree_id)
        root = state_dir_of_journal(state_dir)
        if wanted is None and root != state_dir:
            wanted = state_dir
        for runtime in OPEN:
            is_there = runtime.state_dir == root and (wanted is None or runtime.sharing.writes(wanted))
            if is_there and runtime.sharing._can_share(backend, slots, memory):  # noqa: SLF001 - one of this class
                return runtime
        runtime = Runtime(state_dir, backend=backend, slots=slots, memory=memory, tree_id=tree_id)
        runtime.sharing._is_private = True  # noqa: SLF001 - as above
        return runtime

    def writes(self, journal_dir: Path) -> bool:
        """Return whether the runtime writes a journal."""
        if self._sharded is None:
            return journal_dir == self._runtime.journal_dir
        return any(not row.node and row.journal_dir == str(journal_dir) for row in self._sharded.rows())

    def find_journal(self, tree_id: str) -> Path | None:
        """Return the directory of an open tree's journal; None = it is on another node."""
        return self._runtime.journal_dir if self._sharded is None else self._sharded.find_journal(tree_id)

    def open_trees(self) -> list[str]:
        """Return the ids of the trees that are open, in the order they were opened."""
        return [each.tree_id for each in self._tenants if each.is_open]

    def list_held_trees(self) -> list[Any]:
        """Return the open trees as the program holds them, in the order they were opened."""
        return [tree for each in self._tenants if each.is_open and (tree := each.held()) is not None]

    def _can_share(self, *wanted: Any) -> bool:
        if self._pid != os.getpid() or self._loop not in {None, _get_running_loop()}:
            return False
        return all(each is None or each == own for each, own in zip(wanted, self._choices, strict=True))

    async def enter(self, tenant: OpenTreeEntry) -> None:
        """Add a tree, and release the trees that can no longer be used."""
        self._loop = self._loop or _get_running_loop()
        left = [each for each in self._tenants if each.is_abandoned(tenant.cell)]
        self._tenants.append(tenant)  # before the others leave: the last one closes the runtime
        for each in left:
            if each not in self._tenants:
                continue
            why = "nobody holds it any more" if each.held() is None else "its cell runs again"
            _LOG.warning("tree %s was left open and is closed now: %s", each.tree_id, why)
            await each.close()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep the runtime open in this context; then close it if its first tree did not open."""
        self._keepers += 1
        try:
            yield
        finally:
            self._keepers -= 1
            await self._close_unused()

    async def _close_unused(self) -> bool:
        if not self._is_private or self._tenants or self._keepers:
            return False
        await self._runtime.close()
        return True

    async def leave(self, tenant: OpenTreeEntry) -> None:
        """Remove a tree; the runtime closes with the last one, unless the program created it."""
        if tenant in self._tenants:
            self._tenants.remove(tenant)
            if not await self._close_unused() and tenant.is_open:
                with suppress(WrongLoop):  # it ends when the runtime closes
                    await self._runtime.backend.release(tenant.tree_id)


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def compute_shard_limit(shards: Shards, backend: str, memory: MemorySettings | None) -> int:
    """Return the maximum number of shards on this node.

    Raises:
        ConfigError: several shards can't use this backend or this memory.
    """
    if shards == "per-node" and backend != "ray":
        raise ConfigError(f"shards='per-node' needs backend 'ray'; {backend!r} is in this process alone")
    if shards != 1 and memory is not None and memory.directory_in(Path("/")) is None:
        raise ConfigError(
            f"shards={shards!r} can't share memory at {memory.uri!r}, because each of them would write it; "
            "give a directory, or shards=1"
        )
    return shards if isinstance(shards, int) else 1


def _build_backend_options(options: RuntimeOptions) -> dict[str, Any]:
    """Return the arguments of a runtime's backend.

    Raises:
        ConfigError: an option is for the other backend.
    """
    backend, enforcement = options.get("backend", "ray"), options.get("kernel_enforcement", "required")
    wishes: dict[str, Any] = {
        "address": options.get("address"),
        "num_cpus": options.get("num_cpus"),
        "insecure": options.get("insecure") or None,
        "enforcement": None if enforcement == "required" else enforcement,
        "host_bytes": options.get("max_host_bytes"),
        "pass_env": tuple(dict.fromkeys(options.get("pass_env", ()))) or None,
        "placement": _parse_placements(options.get("placement"), options.get("shards", 1)),
    }
    given = {name: value for name, value in wishes.items() if value is not None}
    if given and backend != "ray":
        raise ConfigError(f"only backend 'ray' takes {', '.join(given)}; {backend!r} runs in this process")
    for name in ("slots", "memory"):
        if (value := options.get(name)) is not None:
            given[name] = value
    return given


def _make_backend(name: BackendName, state_dir: Path, journal_dir: Path, given: Mapping[str, Any]) -> Backend:
    """Return a new backend; only the chosen one is loaded."""
    if name == "ray":
        return ray_door.make_ray_backend(state_dir, journal_dir, given)
    from sessiontree.backends.local.backend import LocalBackend

    return LocalBackend(state_dir, journal_dir=journal_dir, **given)


class Runtime:
    """Pools and supervisor over one state directory; serves many trees.

    Args:
        state_dir: Directory of journal and memory. Each running program writes its own journal there: the
            first in the directory itself, the next in ``journals/2``, and so on.
        options: Members of :class:`RuntimeOptions` by name, such as ``backend`` and ``slots``.
    """

    _sharded: ShardedBackend | None = None
    """Its backend, if that has several shards."""

    def __init__(self, state_dir: str | Path, **options: Unpack[RuntimeOptions]) -> None:
        """Prepare the backend; ``local`` opens its journal at once, ``ray`` with the first tree.

        Raises:
            ConfigError: the backend is unknown, a setting is out of bounds or is for the other backend, the
                kernel can't confine Workers, or traces can't be exported.
            JournalError: the state directory can't be used, or another program writes the journal.
            TreeNotFound: no journal there holds the tree.
        """
        from sessiontree.journal.claim import JournalClaim, state_dir_of_journal

        check_options(options, RuntimeOptions, "Runtime", "state_dir")
        backend, slots, memory = options.get("backend", "ray"), options.get("slots"), options.get("memory")
        shards = options.get("shards", 1)
        given = _build_backend_options(options)
        most = compute_shard_limit(shards, backend, memory)
        self.traces = Traces(options.get("telemetry"), options.get("log"))
        """The exports of its trees' traces."""
        place = make_absolute(state_dir, "state_dir")
        self._claim = JournalClaim.take(place, options.get("tree_id"))
        self.journal_dir: Path = self._claim.directory
        """Where the journal is: the state directory, or a directory beneath it."""
        self.state_dir: Path = state_dir_of_journal(self.journal_dir)
        try:
            self.backend: Backend = self._backend(backend, shards, most, given, _build_node_options(options))
        except BaseException:
            self._claim.release()
            raise
        self.sharing = SharedRuntimes(self, (backend, slots, memory), self._sharded)
        """The trees of this program that use it."""
        OPEN.append(self)

    def _backend(
        self, name: BackendName, shards: Shards, most: int, given: dict[str, Any], nodes: Mapping[str, Any]
    ) -> Backend:
        if shards == 1:
            return _make_backend(name, self.state_dir, self.journal_dir, given)
        from sessiontree.api.runtime.sharded_backend import ShardedBackend
        from sessiontree.api.runtime.shards import Shard

        remote: Callable[[Any], RemoteShards] | None = None
        if shards == "per-node":
            remote = partial(ray_door.make_cluster_shards, self.state_dir, dict(given), **nodes)
        elif name == "ray":
            given["sharing"] = most

        def make(journal_dir: Path) -> Backend:
            return _make_backend(name, self.state_dir, journal_dir, given)

        first = Shard(make(self.journal_dir), self.journal_dir)
        self._sharded = ShardedBackend(self.state_dir, first, most, make, remote)
        return self._sharded

    def shards(self) -> list[ShardRow]:
        """Return the shards that were begun, each with its open trees and the number of their live sessions.

        A lost one says why it is lost. Each other one is asked for the number, which takes milliseconds.
        """
        if self._sharded is not None:
            return self._sharded.rows()
        trees = tuple(each for each in self.sharing.open_trees() if self.backend.is_open(each))
        from sessiontree.api.runtime.shards import count_live_sessions

        live = count_live_sessions(self.backend) if trees else 0
        return [ShardRow(str(self.journal_dir), trees, live_sessions=live)]

    async def trees(self, purpose: str | None = None) -> list[TreeSummary]:
        """Return every tree of the state directory, oldest first, including those of other programs.

        With ``shards="per-node"``, also those of the same directory on the other nodes that can be reached.

        Args:
            purpose: Only those opened with exactly this ``purpose``; None = all.

        Raises:
            JournalError: a journal can't be read.
        """
        PURPOSE.take(purpose, "purpose")
        from sessiontree.runtime.replay.stored_trees import list_summaries

        found = await asyncio.to_thread(list_summaries, self.state_dir, purpose)
        if self._sharded is None:
            return found
        own = {each.tree_id for each in found}  # nodes may share a file system
        found += [each for each in await self._sharded.list_remote_trees(purpose) if each.tree_id not in own]
        return sorted(found, key=lambda each: (each.created_at_ms, each.tree_id))

    async def close(self) -> None:
        """End hosts and supervisor; trees stay in the journal and can be resumed."""
        if self in OPEN:
            OPEN.remove(self)
        try:
            await self.backend.close()
        finally:
            self._claim.release()
            await self.traces.close()

    async def __aenter__(self) -> Self:
        """Return the runtime."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
