"""What lower floors need from above, as protocols: the handles a tool may hold, and the runtime's seams.

An implementer of a handle must never expose a Ray handle, a path outside its root, or a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol, TypeAlias

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.kinds import SessionKind, SessionStatus
from sessiontree.contracts.limits import Budget
from sessiontree.contracts.memory import Hit, MemoryQuery, MemoryRecord, NewRecord, Selection
from sessiontree.contracts.tiers import ExecSecurity, SystemAnswer
from sessiontree.contracts.usage import Usage

EntryType: TypeAlias = Literal["file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One name beneath the workspace root."""

    path: str
    """Relative to the root, ``/`` between parts, ``.`` for the root itself."""
    type: EntryType
    """Links are reported as links, not followed."""
    size: int
    """Bytes."""
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did."""

    path: str
    """Relative to the root."""
    bytes: int
    created: bool
    """False where a file of that name was replaced."""


class Reader(Protocol):
    """Reads files beneath one root. All methods block: call them from a thread when much is read.

    Every path may be relative to the root or absolute beneath it. Links are followed while their target
    stays beneath the root. Nothing but regular files is ever opened.

    Raises (every method):
        PermissionDenied: the path, or a link on the way, leads outside the root, or into a hidden place.
        ExecutionError: it does not exist, is of another type, or the system refused; the text says which.
    """

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading bytes; the caller closes it."""
        ...

    def stat(self, path: str) -> Entry:
        """Return what stands at the path, links followed."""
        ...

    def list(self, path: str = ".") -> list[Entry]:
        """Return a directory's entries sorted by name, links not followed."""
        ...

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Yield files and links below a directory, depth first, names sorted, directory links not entered."""
        ...


class Writer(Protocol):
    """Changes files beneath one root; raises as :class:`Reader` does.

    What decides which code runs outside the workspace (what processes of ours import from, what tells git
    which programs to run) is protected: only a call that was asked about as Elevated changes it.
    """

    def write(self, path: str, data: bytes, *, expect_mtime_ns: int | None = None) -> Written:
        """Write a whole file in one step: readers see the old content or the new, never a part.

        Missing parent directories are made. Mode bits of a replaced file are kept.

        Args:
            path: The file.
            data: Its whole content.
            expect_mtime_ns: Refuse when the file's ``mtime_ns`` is another one by now.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete one regular file or link (the link itself)."""
        ...


class Protection(Protocol):
    """Protected places, as whoever judges calls deals with them."""

    def standings(self, path: str) -> frozenset[str]:
        """Return the names of the protected places that a path stands for right now; empty = none."""
        ...

    def writer(self, standings: frozenset[str] | None) -> Writer:
        """Return a writer for one allowed call, that changes these protected places; None = all."""
        ...


HowEnded: TypeAlias = Literal["exited", "signal", "timeout", "limit"]
"""How a command ended: by itself, by a signal, at its time-out, or for what it used."""

COMMAND_TIMEOUT_S = 120.0
"""Longest run of a command, where neither its agent nor the model says another."""
MAX_COMMAND_TIMEOUT_S = 3600.0
COMMAND_CLEANUP_S = 5.0
"""How long a command that is asked to end (SIGTERM) may take before it is killed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a command. Nothing it started runs any more."""

    reason: HowEnded
    exit_code: int | None
    """None where a signal ended it. With reason ``timeout``: it ended by itself once it was asked to."""
    signal: int | None
    """The signal that ended it, its own or the kernel's."""
    head: str
    """Standard output and error as they were written, from the beginning; bytes that are no UTF-8, and NUL,
    are shown as U+FFFD."""
    tail: str
    """The end of the output; empty where the head holds it all."""
    dropped_bytes: int
    """Bytes between head and tail that were not kept."""
    elapsed_s: float
    limit: str | None = None
    """Name of the limit it ran into, such as ``memory_bytes``. With reason ``exited`` as far as the last
    words of the command tell; else for certain."""
    allowed: int | None = None
    """That limit."""
    put_back: tuple[str, ...] = ()
    """Paths of protected places that it had swapped or made, and that are as they were."""


class Shell(Protocol):
    """Runs confined commands in the workspace."""

    async def run(
        self,
        command: str,
        *,
        workdir: str,
        env: Mapping[str, str],
        timeout_s: float,
        keep_bytes: int,
        on_output: Callable[[str], None] | None = None,
    ) -> Finished:
        """Run one command line in a shell until it ends, or is ended with all it started.

        Args:
            command: What ``bash -c`` is given.
            workdir: Where it starts: relative to the workspace, or absolute beneath it.
            env: Variables it gets besides those every command gets; none of the runtime's own.
            timeout_s: Longest run; then it is asked to end, and killed where that takes over
                ``COMMAND_CLEANUP_S``. So is one whose caller is cancelled; cancelling again kills at once.
            keep_bytes: Most output kept, half of it from the beginning and half from the end.
            on_output: Told of output as it comes, decoded, in pieces.

        Raises:
            ConfinementUnavailable: this machine can't confine it.
            ValidationError: a variable may not be set, or the command is too long; names the field.
            PermissionDenied: the working directory lies outside the workspace.
            ExecutionError: it could not be started.
        """
        ...


class Channel(Protocol):
    """Says something to the human at the other end."""

    async def send(self, text: str) -> None:
        """Deliver a message; returns when it is handed over."""
        ...


class Memory(Protocol):
    """Finds what was remembered: by this session, those above it, and what finished trees left.

    Raises (every method):
        MemoryFailed: memory can't be reached or read now; the session goes on.
        ValidationError: what is asked for does not fit; names the field.
    """

    async def search(self, query: MemoryQuery) -> list[Hit]:
        """Return the records that fit a query best, best first."""
        ...

    async def select(self, selection: Selection, *, limit: int) -> list[MemoryRecord]:
        """Return the records a selection names, oldest first, at most ``limit`` of them."""
        ...


class MemoryWriter(Protocol):
    """Adds to memory and takes from it; raises as :class:`Memory` does."""

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Return the new records' ids, in order, once they are durable.

        Args:
            records: 1 to 1,000; nobody but the owner vouches as ``owner``.
            key: Names this store within the session; asking again with the same key adds nothing and returns
                the same ids.
        """
        ...

    async def forget(self, selection: Selection, *, key: str) -> list[str]:
        """Remove the records a selection names, of those the session sees; returns their ids.

        Args:
            selection: Which ones.
            key: Names this call. Asked again after its answer was lost, it names only what went last.
        """
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """What an address on the web answered."""

    url: str
    """Where the last redirect led, in its one form."""
    status: int
    content_type: str
    """Media type in small letters, without parameters; empty where none was given."""
    charset: str | None
    """As the header says, in small letters."""
    body: bytes
    """After decompression."""
    truncated: bool
    """Whether the body went on."""
    redirects: tuple[str, ...] = ()
    """The addresses that led here, in order."""

    @property
    def may_pass(self) -> bool:
        """Whether its status says that asking again a little later may help.

        Source: RFC 6585, section 4 (429) and RFC 9110, section 15.6 (502, 503, 504).
        """
        return self.status in {429, 502, 503, 504}


Freshness: TypeAlias = Literal["day", "week", "month", "year"]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to search the web for; a provider leaves aside what it does not know."""

    text: str
    count: int
    """Most hits wanted."""
    country: str | None = None
    """Two letters, ISO 3166."""
    language: str | None = None
    """Two letters, ISO 639."""
    freshness: Freshness | None = None
    """No older than this."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One page a search found."""

    title: str
    url: str
    snippet: str


class Web(Protocol):
    """Reads the web under the owner's address rules.

    Raises (every method):
        ValidationError: the address is none.
        PermissionDenied: a rule forbids the address, or one it leads to; names address and rule.
        ExecutionError: it can't be reached, takes too long, or its answer is not valid.
    """

    async def get(self, url: str, *, max_bytes: int | None = None, accept: str = "*/*") -> Page:
        """Return what a GET of an address leads to, whatever its status.

        Args:
            url: An http or https address.
            max_bytes: Longest body, after decompression; never more than the owner allows.
            accept: The Accept header.
        """
        ...

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits of the owner's search provider, best first.

        Raises:
            ExecutionError: no provider is configured either; says how to.
        """
        ...


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """What a tool may ask for when it spawns a child."""

    kind: SessionKind
    task: str
    label: str | None = None
    agent: str | None = None
    """Name of an agent given to the tree; None = the parent's."""
    result_schema: Mapping[str, JsonValue] | None = None
    """JSON Schema the child's final text must satisfy."""
    budget: Budget | None = None
    """None = draws on what the parent has left."""


class Sessions(Protocol):
    """Controls sessions below this one. Offers no way to wait for a child: its result comes as a message."""

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Start a child and return its id at once.

        Args:
            request: What to start.
            key: Names this spawn; asking again with the same key returns the same child.

        Raises:
            SpawnRefused, LimitExceeded: a rule or number forbids it; nothing was started.
        """
        ...


@dataclass(frozen=True, slots=True)
class SessionReport:
    """A session's own standing."""

    session_id: str
    kind: SessionKind
    status: SessionStatus
    depth: int
    model: str
    turns: int
    usage: Usage
    children: tuple[str, ...]
    """Ids of its children that still live, in spawn order."""
    pending_approvals: int
    budget_left: Mapping[str, float]
    """What is left by name, where a cap is set."""
    expires_at_ms: int | None
    confinement: str
    """Level in force for this session's process, such as ``structural``."""
    approval_mode: str
    """How the tree answers calls that need an approval: ``auto``, ``smart``, ``always`` or ``never``."""
    system_tier: SystemAnswer
    """What happens to its System calls."""
    exec_security: ExecSecurity | None
    """Which commands it may run; None = none, its kind holds no shell."""
    taint: str = ""
    """Where untrusted text came from that it has taken in; empty = it has taken in none."""
    after_untrusted: SystemAnswer = "allow"
    """What happens to calls above ReadOnly of sessions that have taken in untrusted text."""


class Status(Protocol):
    """Tells a session how it stands."""

    async def report(self) -> SessionReport:
        """Return the session's standing now."""
        ...


UpdateCallback: TypeAlias = Callable[[JsonValue], None]
"""Takes one progress value of a running call."""
