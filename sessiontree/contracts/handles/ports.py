"""Protocols that higher floors implement: the handles that a tool may hold, and the runtime's interfaces.

An implementer of a handle must never expose a Ray handle, a path outside its root, or a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Literal, Protocol, TypeAlias

from sessiontree.contracts.kinds import (
    ExecSecurity,
    SessionKind,
    SessionStatus,
    SystemAnswer,
    Wait,
    WorkspaceChoice,
)
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.memory import MemoryHit, MemoryQuery, MemoryRecord, NewRecord, Selection
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass

EntryType: TypeAlias = Literal["file", "directory", "link", "other"]
"""What a name in the workspace stands for."""


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
    """The outcome of a write."""

    path: str
    """Relative to the root."""
    bytes: int
    created: bool
    """False if an existing file was replaced."""


class Reader(Protocol):
    """Reads files beneath one root. All methods block; call them from a thread for large reads.

    Every path may be relative to the root or absolute beneath it. Links are followed if their target is
    beneath the root. Only regular files are opened.

    Raises (every method):
        PermissionDenied: the path, or a link in it, leads outside the root or into a hidden place.
        ExecutionError: the path does not exist, has another type, or the system refused; the text says which.
    """

    def open(self, path: str) -> BinaryIO:
        """Open a regular file for reading bytes; the caller closes it."""
        ...

    def stat(self, path: str) -> Entry:
        """Return the entry at the path; links are followed."""
        ...

    def list(self, path: str = ".") -> list[Entry]:
        """Return a directory's entries, sorted by name; links are not followed."""
        ...

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """Yield files and links below it, depth first, sorted by name; directory links are not entered."""
        ...


class Writer(Protocol):
    """Changes files beneath one root; raises as :class:`Reader` does.

    Places that decide which code runs outside the workspace are protected: directories from which this
    library's processes import, and files that choose the programs git runs. Only a call that was approved as
    Elevated changes them.
    """

    def write(
        self,
        path: str,
        data: bytes,
        *,
        expect_mtime_ns: int | None = None,
        only_new: bool = False,
        like: str | None = None,
        executable: bool | None = None,
    ) -> Written:
        """Write a file atomically: readers see the old content or the new, never a part.

        Missing parent directories are created. A replaced file keeps its mode bits.

        Args:
            path: The file.
            data: Its whole content.
            expect_mtime_ns: Refuse the write if the file's ``mtime_ns`` differs.
            only_new: Refuse the write if there is such a file.
            like: Another file, whose mode bits a new file gets.
            executable: Whether those who may read it may run it; None = as its other mode bits say.
        """
        ...

    def remove(self, path: str, *, expect_mtime_ns: int | None = None) -> None:
        """Delete one regular file or link (the link itself) at ``path``, relative to the root.

        Args:
            path: The file.
            expect_mtime_ns: Refuse to delete it if its ``mtime_ns`` differs.
        """
        ...


HowEnded: TypeAlias = Literal["exited", "signal", "timeout", "limit"]
"""How a command ended: by itself, by a signal, by its time-out, or by a resource limit."""

COMMAND_TIMEOUT_S = 120.0
"""Default time limit of a command, in seconds; its agent and the model may set another."""
MAX_COMMAND_TIMEOUT_S = 3600.0
COMMAND_CLEANUP_S = 5.0
"""Seconds between asking a command to end (SIGTERM) and killing it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The outcome of a command. All processes that it started have ended."""

    reason: HowEnded
    exit_code: int | None
    """None if a signal ended it. A number with reason ``timeout`` = it ended by itself when asked to."""
    signal: int | None
    """The signal that ended it, its own or the kernel's."""
    head: str
    """The beginning of standard output and error, in the order written; bytes that are not UTF-8, and NUL,
    are replaced by U+FFFD."""
    tail: str
    """The end of the output; empty if the head contains all of it."""
    dropped_bytes: int
    """Bytes between head and tail that were not kept."""
    elapsed_s: float
    limit: str | None = None
    """Name of the limit that it exceeded, such as ``memory_bytes``.

    With reason ``exited`` this is a guess from the command's output; otherwise it is certain."""
    allowed: int | None = None
    """Value of that limit."""
    put_back: tuple[str, ...] = ()
    """Paths of protected places that the command replaced or created, and that were restored."""
    place: str = ""
    """On which node it ran, and in which directory; empty = on the session's machine."""


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
        """Run one command line in a shell until it ends, or until it and all its processes are ended.

        Args:
            command: Argument of ``bash -c``.
            workdir: Working directory, relative to the workspace or absolute beneath it.
            env: Variables in addition to those of every command; none of the runtime's own.
            timeout_s: Time limit. The command is then asked to end, and killed after ``COMMAND_CLEANUP_S``.
                The same happens if the caller is cancelled; a second cancellation kills at once.
            keep_bytes: Maximum output to keep, half from the beginning and half from the end.
            on_output: Called with pieces of decoded output as they arrive.

        Raises:
            ConfinementUnavailable: this machine can't confine the command.
            ValidationError: a variable may not be set, or the command is too long; names the field.
            PermissionDenied: the working directory is outside the workspace.
            ExecutionError: the command could not be started.
        """
        ...


class Channel(Protocol):
    """Sends messages to a person."""

    async def send(self, text: str) -> None:
        """Deliver the ``text`` of a message; returns when the channel has accepted it."""
        ...


class Memory(Protocol):
    """Finds records of this session, of the sessions above it, and of finished trees.

    Raises (every method):
        MemoryFailed: memory can't be reached or read now; the session continues.
        ValidationError: an argument is not valid; names the field.
    """

    async def search(self, query: MemoryQuery) -> list[MemoryHit]:
        """Return the records that match a query best, best first."""
        ...

    async def select(self, selection: Selection, *, limit: int) -> list[MemoryRecord]:
        """Return at most ``limit`` records of a selection, oldest first."""
        ...


class MemoryWriter(Protocol):
    """Adds records to memory and removes them; raises as :class:`Memory` does."""

    async def store(self, records: Sequence[NewRecord], *, key: str) -> list[str]:
        """Return the new records' ids, in order, once they are durable.

        Args:
            records: 1 to 1,000 records; only the owner can store with trust ``owner``.
            key: Identifies this call within the session; a repeat with the same key adds nothing and returns
                the same ids.
        """
        ...

    async def forget(self, selection: Selection, *, key: str) -> list[str]:
        """Remove the records of a selection that the session can see; return their ids.

        Args:
            selection: The records to remove.
            key: Identifies this call. A repeat after a lost answer returns only the ids removed last.
        """
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """The response of a web address."""

    url: str
    """The final address after redirects, normalised."""
    status: int
    content_type: str
    """Media type in lower case, without parameters; empty if none was given."""
    charset: str | None
    """Charset of the header, in lower case; None if it names none."""
    body: bytes
    """The body after decompression."""
    truncated: bool
    """Whether the body was longer."""
    redirects: tuple[str, ...] = ()
    """The addresses that redirected here, in order."""

    @property
    def may_pass(self) -> bool:
        """Return whether its status says that a later retry may help.

        Source: RFC 6585, section 4 (429) and RFC 9110, section 15.6 (502, 503, 504).
        """
        return self.status in {429, 502, 503, 504}


Freshness: TypeAlias = Literal["day", "week", "month", "year"]
"""How old a hit of a web search may be."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A web search; a provider ignores members that it does not support."""

    text: str
    count: int
    """Maximum number of hits."""
    country: str | None = None
    """Two-letter code, ISO 3166."""
    language: str | None = None
    """Two-letter code, ISO 639."""
    freshness: Freshness | None = None
    """Maximum age of a hit."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One page that a search found."""

    title: str
    url: str
    snippet: str


class Web(Protocol):
    """Reads the web under the owner's address rules.

    Raises (every method):
        ValidationError: the address is not valid.
        PermissionDenied: a rule forbids the address, or one that it redirects to; names address and rule.
        ExecutionError: the address can't be reached, takes too long, or its response is not valid.
    """

    async def get(self, url: str, *, max_bytes: int | None = None, accept: str = "*/*") -> Page:
        """Return the response to a GET of an address, with any status.

        Args:
            url: An http or https address.
            max_bytes: Maximum body size after decompression; never more than the owner allows.
            accept: The Accept header.
        """
        ...

    async def search(self, query: SearchQuery) -> tuple[SearchHit, ...]:
        """Return hits of the owner's search provider for ``query``, best first.

        Raises:
            ExecutionError: as for every method, or no provider is configured; says how to configure one.
        """
        ...


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A tool's request to spawn a child."""

    kind: SessionKind
    task: str
    label: str | None = None
    agent: str | None = None
    """Name of an agent given to the tree; None = the parent's."""
    result_schema: Mapping[str, JsonValue] | None = None
    """JSON Schema of the child's final message."""
    budget: Budget | None = None
    """Budget of the child; None = it uses the parent's."""
    wait: Wait = ""
    """When its result makes the model continue."""
    workspace: WorkspaceChoice | None = None
    """Where the child works; None = as its agent or the tree says."""
    program: str | None = None
    """The program that it runs instead of asking a model: a saved one's name, or a text; None = none."""
    inputs: Mapping[str, JsonValue] | None = None
    """Arguments of the saved program, or variables of the text."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions below this one a list shows."""

    kind: SessionKind | None = None
    """None = Branches and Workers."""
    is_live: bool | None = None
    """True = only live sessions, False = only ended ones, None = both."""
    limit: int = 50
    """Maximum number of rows."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session, as the sessions above it see it."""

    session_id: str
    kind: SessionKind
    label: str | None
    agent: str
    status: SessionStatus
    is_stopping: bool
    turns: int
    tokens: int
    cost_usd: float
    tool: str
    """Name of the tool that runs, or waits for an answer, now; empty = none."""
    pending_approvals: int
    age_s: float
    """Seconds since its spawn; for an ended session, from its spawn to its end."""
    summary: str
    """Its final message; empty while it is live."""
    taint: str = ""
    """Source of the untrusted text that it has read; empty = it has read none."""
    given_up: tuple[str, ...] = ()
    """What it did not finish, once it has ended (``SessionResult.given_up``)."""
    result_form: str = ""
    """Of a Worker with a typed result: ``closed`` if that holds no free text, so that it taints nobody; else
    where free text can be. Empty = its result is text."""


@dataclass(frozen=True, slots=True)
class SessionRows:
    """A list of sessions: live ones first, in path order, then ended ones, newest first."""

    rows: tuple[SessionRow, ...]
    left_out: int
    """How many more fit the filter."""


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One message of a session, shortened and without secrets."""

    number: int
    """Its place in the journal; entries are read backwards from a number."""
    role: Literal["user", "assistant", "tool"]
    text: str
    """Calls of tools are lines of an assistant's text. Text from outside is between marks."""
    at_ms: int
    origin: str = ""
    """Who sent a user's message: ``user``, ``parent``, ``child``, ``notice`` or ``cron``."""
    tool: str = ""
    """Name of the tool whose result it is."""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """The newest messages of a session, or those before a number; oldest first."""

    session_id: str
    entries: tuple[TranscriptEntry, ...]
    has_earlier: bool
    """Whether there are messages before these."""
    taint: str = ""
    """Source of the untrusted text that the session has read; empty = it has read none."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent that a session may name when it spawns."""

    name: str
    model: str
    description: str = ""


class Subtree(Protocol):
    """Looks at the sessions below this one. A Worker has none."""

    async def sessions(self, wanted: SessionFilter) -> SessionRows:
        """Return the sessions below this one that fit the filter ``wanted``."""
        ...

    async def history(
        self, target: str, *, limit: int, before: int | None = None, results: bool = True
    ) -> Transcript:
        """Return messages of a session below this one.

        Args:
            target: Id of the session, or label of a live child.
            limit: Maximum number of messages; fewer are returned if they are long.
            before: Return only messages with lower numbers; None = the newest.
            results: Whether to include results of tools.

        Raises:
            SessionNotFound: it does not name a session below this one.
        """
        ...

    async def agents(self) -> tuple[AgentInfo, ...]:
        """Return the agents that this session may name when it spawns a child."""
        ...


class Sessions(Protocol):
    """Spawns sessions below this one, and stops them.

    A child's result arrives as a message. A session is named by its id, or a live child by its label. Other
    sessions of the tree can't be reached; their names are answered as names of no session.
    """

    async def spawn(self, request: SpawnRequest, *, key: str) -> str:
        """Start a child and return its id at once.

        Args:
            request: The child to start.
            key: Identifies this spawn; a repeat with the same key returns the same child.

        Raises:
            SpawnRefused, LimitExceeded: a rule or limit forbids the child; nothing was started.
        """
        ...

    async def send_to(self, target: str, text: str, *, mode: Literal["follow_up", "steer"], key: str) -> str:
        """Send a message to a session below this one, or to its parent; return the receiver's id.

        Args:
            target: Id of the session, label of a live child, or ``parent``.
            text: What to say; the receiver reads it with the id of this session.
            mode: ``follow_up``: the receiver reads it with its next turn. ``steer``: its present turn is cut;
                only for sessions below.
            key: Identifies this message; a repeat with the same key sends nothing.

        Raises:
            SessionNotFound: it does not name a session below this one.
            SessionClosed: it has ended or is stopping, or it is the parent and can't be steered.
            PermissionDenied: a message policy forbids it.
        """
        ...

    async def stop(self, target: str, *, reason: str) -> tuple[SessionRow, ...]:
        """Stop a session below this one and everything below it; return their rows once they have ended.

        They wrap up first, for at most the tree's ``cancel_grace_s``. An ended session does not change.

        Args:
            target: Id of the session, or label of a live child.
            reason: Why; the stopped sessions read it.

        Raises:
            SessionNotFound: it does not name a session below this one.
        """
        ...


@dataclass(frozen=True, slots=True)
class SessionReport:
    """A session's own status."""

    session_id: str
    kind: SessionKind
    status: SessionStatus
    depth: int
    model: str
    turns: int
    usage: Usage
    children: tuple[str, ...]
    """Ids of its live children, in spawn order."""
    pending_approvals: int
    budget_left: Mapping[str, float]
    """Remaining amounts by name, for each amount with a cap."""
    expires_at_ms: int | None
    confinement: str
    """Confinement level of this session's process, such as ``structural``."""
    approval_mode: str
    """How the tree answers calls that need an approval: ``auto``, ``smart``, ``always`` or ``never``."""
    system_tier: SystemAnswer
    """What happens to its System calls."""
    exec_security: ExecSecurity | None
    """Which commands it may run; None = its kind has no shell."""
    taint: str = ""
    """Source of the untrusted text that it has read; empty = it has read none."""
    after_untrusted: SystemAnswer = "allow"
    """What happens to calls above ReadOnly of sessions that have read untrusted text."""
    compaction_model: str = ""
    """Name of the model that writes summaries of its conversation; empty = ``model``."""
    jobs: tuple[str, ...] = ()
    """Its commands that go on in the background, as ``id: command``; while one runs, it stays on its host."""
    delegates: tuple[str, ...] = ()
    """Sorted names of the tools that it may not use and its children may hold."""


class Status(Protocol):
    """Reports a session's status."""

    async def report(self) -> SessionReport:
        """Return the session's current status."""
        ...


UpdateCallback: TypeAlias = Callable[[JsonValue], None]
"""Receives one progress value of a running call."""
