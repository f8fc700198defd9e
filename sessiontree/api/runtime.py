"""What programs start first: pools and supervisor over one state directory, on the backend they choose."""

from __future__ import annotations

import ast
import asyncio
import importlib
import linecache
import logging
import os
import re
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias

from sessiontree.api.paths import absolute_path
from sessiontree.contracts.errors import ConfigError, WrongLoop
from sessiontree.contracts.suggestion import meant
from sessiontree.memory.settings import MemorySettings

if TYPE_CHECKING:
    from sessiontree.api.backend import Backend
    from sessiontree.contracts.tree_summary import TreeSummary
    from sessiontree.journal.claim import JournalClaim

BackendName: TypeAlias = Literal["ray", "local"]
Enforcement: TypeAlias = Literal["required", "best_effort"]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BACKENDS = ("ray", "local")
ENFORCEMENTS = ("required", "best_effort")
LEAST_HOST_BYTES = 128 * 2**20
_LATE = {
    "ray": "sessiontree.backends.ray.backend:RayBackend",
    "local": "sessiontree.backends.local.backend:LocalBackend",
    "claim": "sessiontree.journal.claim:JournalClaim",
    "journal_holding": "sessiontree.journal.claim:journal_holding",
    "summaries_of": "sessiontree.runtime.tree_summaries:summaries_of",
    "state_dir_of_journal": "sessiontree.journal.claim:state_dir_of_journal",
    "desk": "sessiontree.api.inbox:HumanInbox",
    "handle": "sessiontree.api.session_handle:SessionHandle",
    "hook_desk": "sessiontree.api.program_hooks:ProgramHooks",
}
"""What a tree needs once it is opened: the one place that loads a backend, and only the one asked for."""


@cache
def late(name: str) -> Any:
    """Return what a tree needs once it is opened, loaded with the first use."""
    module, _, wanted = _LATE[name].partition(":")
    return getattr(importlib.import_module(module), wanted)


def _remembering(memory: MemorySettings | None) -> dict[str, Any]:
    """Return what a backend is told of memory; nothing where its own place and embedder will do."""
    if memory is None:
        return {}
    if not isinstance(memory, MemorySettings):
        raise ConfigError(f"memory: give MemorySettings, or None, not {memory!r}")
    return {"memory": memory}


def _names_of(pass_env: object) -> tuple[str, ...]:
    """Return names of environment variables.

    Raises:
        ConfigError: these are none, or one of them may choose what code runs.
    """
    if isinstance(pass_env, str) or not isinstance(pass_env, Sequence):
        raise ConfigError(f"pass_env is {pass_env!r}; give names in a list, such as ['HF_TOKEN']")
    for name in pass_env:
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ConfigError(f"pass_env holds {name!r}, which names no environment variable; give its name")
        if name.startswith("PYTHON"):
            raise ConfigError(f"pass_env holds {name!r}; Python's own variables choose code and stay outside")
    return tuple(dict.fromkeys(pass_env))


OPEN: list[Runtime] = []
"""The runtimes of this process that are open."""
_LOG = logging.getLogger("sessiontree")


@dataclass(frozen=True, slots=True)
class Cell:
    """The run of a notebook's cell that opens a tree."""

    identity: str
    """The same for every run of the cell: the front end's name for it, else its text."""
    run: str
    """Another for every run."""
    assigned: frozenset[str]
    """Names that the cell gives to something else in the end."""

    @classmethod
    def now(cls) -> Cell | None:
        """Return the cell that runs in this thread; None in a script, and where cells have no text."""
        names = vars(sys.modules["__main__"])
        if "__file__" in names:
            return None  # a script, or a program that was started as one
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the way to know a notebook's cell
        while frame is not None:
            code = frame.f_code
            if frame.f_globals is names and code.co_name.startswith(("<module>", "<cell line")):
                text = "".join(linecache.getlines(code.co_filename))
                called, count = _front_end()
                return cls(called or text, count or code.co_filename, _assigned_in(text)) if text else None
            frame = frame.f_back
        return None


def _front_end() -> tuple[str, str]:
    """Return what JupyterLab or VS Code call the cell that runs, and which run it is; empty where unknown."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    parent: Any = getattr(shell, "get_parent", dict)()
    said = parent.get("metadata", {}).get("cellId", "") if isinstance(parent, dict) else ""
    return said if isinstance(said, str) else "", str(getattr(shell, "execution_count", ""))


def _assigned_in(text: str) -> frozenset[str]:
    try:
        found = ast.walk(ast.parse(text))
    except SyntaxError:  # a cell with magic of its front end
        return frozenset()
    return frozenset(
        each.id for each in found if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )


class Desk(Protocol):
    """What serves an open tree beside the runtime."""

    async def close(self) -> None:
        """End."""
        ...


@dataclass(slots=True, eq=False)
class Tenant:
    """One tree of a program on a runtime."""

    tree_id: str
    cell: Cell | None
    runtime: Runtime
    held: weakref.ref[Any]
    """The object the program holds."""
    closing: Callable[[], Awaitable[None]] | None
    """How that object is closed, on the loop; None = by its own ``close``."""
    desks: list[Desk] = field(default_factory=list)
    """Closed in this order when the tree is let go."""
    is_open: bool = False

    async def close(self) -> None:
        """Close the tree by its object, where there is one yet."""
        tree = self.held()
        if tree is None:
            await self.let_go()
        elif self.closing is not None:
            await self.closing()
        else:
            await tree.close()

    async def let_go(self) -> None:
        """Close what serves the tree, and leave the runtime."""
        desks, self.desks = self.desks, []
        try:
            for desk in desks:
                await desk.close()
        finally:
            await self.runtime.sharing.leave(self)

    def is_abandoned(self, cell: Cell | None) -> bool:
        """Whether nobody can use the tree any more: its object is gone, or its cell ran again.

        A tree of a cell that ran again is kept where a variable still holds it that the cell does not assign.
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


class Sharing:
    """Who uses a runtime within one program: trees that are given none join the one that is open."""

    def __init__(self, runtime: Runtime, choices: tuple[Any, ...]) -> None:
        """Begin with nobody; ``choices`` are what a tree may choose of its runtime."""
        self._runtime = runtime
        self._choices = choices
        self._pid = os.getpid()
        self._loop = _running_loop()
        self._is_private = False
        self._keepers = 0
        self._tenants: list[Tenant] = []

    @classmethod
    def join(
        cls,
        state_dir: Path,
        backend: BackendName,
        slots: int | None,
        memory: MemorySettings | None,
        tree_id: str | None = None,
    ) -> Runtime:
        """Return the runtime of this program and loop over a state directory; opened where there is none.

        One that was opened with other settings is not shared: the tree gets another, with a journal of its
        own.

        Args:
            state_dir: The state directory, or the directory of one of its journals.
            backend: As for :class:`Runtime`, like ``slots`` and ``memory``.
            slots: None = whatever the open one has.
            memory: None = whatever the open one has.
            tree_id: The tree that is to be taken up; None = a new one.
        """
        wanted = None
        if tree_id is not None:
            wanted = late("journal_holding")(state_dir, tree_id)
        root = late("state_dir_of_journal")(state_dir)
        if wanted is None and root != state_dir:
            wanted = state_dir
        for runtime in OPEN:
            is_there = runtime.state_dir == root and wanted in {None, runtime.journal_dir}
            if is_there and runtime.sharing._fits(backend, slots, memory):  # noqa: SLF001 - one of this class
                return runtime
        runtime = Runtime(state_dir, backend=backend, slots=slots, memory=memory, tree_id=tree_id)
        runtime.sharing._is_private = True  # noqa: SLF001 - as above
        return runtime

    def _fits(self, *wanted: Any) -> bool:
        if self._pid != os.getpid() or self._loop not in {None, _running_loop()}:
            return False
        return all(each is None or each == own for each, own in zip(wanted, self._choices, strict=True))

    async def enter(self, tenant: Tenant) -> None:
        """Add a tree, and let go those that nobody can use any more."""
        self._loop = self._loop or _running_loop()
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
        """Keep the runtime open meanwhile; at the end it closes if it was opened for a tree that did not."""
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

    async def leave(self, tenant: Tenant) -> None:
        """Take a tree off; the runtime closes with the last, unless the program made it itself."""
        if tenant in self._tenants:
            self._tenants.remove(tenant)
            if not await self._close_unused() and tenant.is_open:
                with suppress(WrongLoop):  # it ends with the runtime's own close
                    self._runtime.backend.release(tenant.tree_id)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Runtime:
    """Pools and supervisor over one state directory; serves many trees.

    Args:
        state_dir: Where journal and memory lie. Each program at work writes a journal of its own there: the
            first in the directory itself, the next in ``journals/2``, and so on.
        backend: ``ray``: sessions are actors on the Ray the program has initialised, or on a private one that
            ends with the runtime; ``local``: everything runs in this process.
        slots: Most sessions embodied at a time (``ray``: of each pool); None = the backend's own number.
        address: Cluster to connect to, as ``host:port`` or ``auto``. Only ``ray``.
        num_cpus: CPUs of a private Ray; None counts the machine's. Only ``ray``.
        insecure: Allow a private Ray without authentication where ``RAY_AUTH_MODE=disabled`` asks for it.
        kernel_enforcement: ``required``: no Worker runs where the kernel can't make its process read-only;
            ``best_effort``: it runs with what there is, and its status says what that was. Only ``ray``.
        max_host_bytes: Most memory one session's host may hold of its own; what holds more ends, its session
            with it. None = 2 GiB. Only ``ray``.
        memory: Where memory lies, and what embeds its texts; None = in the state directory, texts compared
            by their words.
        pass_env: Names of environment variables that tools get beside harmless ones such as ``PATH`` and
            ``LANG``; keys of the program stay with it, and with its model. Only ``ray``.
        tree_id: Write the journal that holds this tree, to resume it; None = the first that nobody writes.
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
    ) -> None:
        """Choose; ``local`` opens its journal at once, ``ray`` with the first tree.

        Raises:
            ConfigError: there is no such backend, a setting is out of bounds or of the other backend, or the
                kernel can't confine Workers.
            JournalError: the state directory can't be used, or another program writes the journal wanted.
            TreeNotFound: no journal there holds the tree.
        """
        if backend not in BACKENDS:
            raise ConfigError(
                f"backend {backend!r} is none of {', '.join(BACKENDS)}{meant(backend, BACKENDS)}"
            )
        for name, number in (("slots", slots), ("num_cpus", num_cpus), ("max_host_bytes", max_host_bytes)):
            if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
                raise ConfigError(f"{name} is {number!r}; give a whole number, or None")
        if slots is not None and slots < 1:
            raise ConfigError(f"slots is {slots}; at least 1 session must be embodied to go on")
        if kernel_enforcement not in ENFORCEMENTS:
            raise ConfigError(
                f"kernel_enforcement {kernel_enforcement!r} is none of {', '.join(ENFORCEMENTS)}"
            )
        if max_host_bytes is not None and max_host_bytes < LEAST_HOST_BYTES:
            raise ConfigError(
                f"max_host_bytes is {max_host_bytes:,}; a host needs {LEAST_HOST_BYTES:,} for itself"
            )
        wishes: dict[str, Any] = {
            "address": address,
            "num_cpus": num_cpus,
            "insecure": insecure or None,
            "enforcement": None if kernel_enforcement == "required" else kernel_enforcement,
            "host_bytes": max_host_bytes,
            "pass_env": _names_of(pass_env) or None,
        }
        given = {name: value for name, value in wishes.items() if value is not None}
        if given and backend != "ray":
            raise ConfigError(
                f"only backend 'ray' takes {', '.join(given)}; {backend!r} runs in this process"
            )
        if slots is not None:
            given["slots"] = slots
        given |= _remembering(memory)
        place = absolute_path(state_dir, "state_dir")
        self._claim: JournalClaim = late("claim").take(place, tree_id)
        self.journal_dir: Path = self._claim.directory
        """Where the journal lies: the state directory, or a directory beneath it."""
        self.state_dir: Path = late("state_dir_of_journal")(self.journal_dir)
        try:
            self.backend: Backend = late(backend)(self.state_dir, journal_dir=self.journal_dir, **given)
        except BaseException:
            self._claim.release()
            raise
        self.sharing = Sharing(self, (backend, slots, memory))
        """Which trees of this program use it."""
        OPEN.append(self)

    async def trees(self, purpose: str | None = None) -> list[TreeSummary]:
        """Return every tree of the state directory, oldest first, those of other programs among them.

        Args:
            purpose: Only those opened with exactly this ``purpose``; None = all.

        Raises:
            JournalError: a journal can't be read.
        """
        if purpose is not None and not isinstance(purpose, str):
            raise ConfigError(
                f"purpose is {purpose!r}; give the text trees were opened with, or None for all"
            )
        found: list[TreeSummary] = await asyncio.to_thread(late("summaries_of"), self.state_dir, purpose)
        return found

    async def close(self) -> None:
        """End hosts and supervisor; trees stay in the journal and can be resumed."""
        if self in OPEN:
            OPEN.remove(self)
        try:
            await self.backend.close()
        finally:
            self._claim.release()

    async def __aenter__(self) -> Self:
        """Return the runtime."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
