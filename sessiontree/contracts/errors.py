"""Every error that leaves this library, in one tree.

Room: the exceptions themselves. Fields are positional and all reach ``Exception.args``, so each error
survives pickling between processes; the text comes from ``__str__``.

::

    SessionTreeError
    ├─ ToolError                  the model reads it as a tool result; the session goes on
    │  ├─ ValidationError           arguments do not fit; costs one attempt       (alias ToolInputError)
    │  ├─ ExecutionError            the tool tried and failed; retried only where it says so
    │  │  ├─ ConfinementUnavailable    this machine can't confine a command, so it did not run
    │  │  └─ ImageRefused              an image can't be shown to a model
    │  ├─ PermissionDenied          not allowed here; never retried          (alias ToolAuthorizationError)
    │  └─ Timeout                   the deadline passed; retried only when harmless
    ├─ ModelError                 a model call failed
    ├─ SessionError               this session cannot do that
    │  ├─ SessionNotFound · SessionClosed · SessionCrashed
    │  ├─ SessionFailed             there is no result, or no reply
    │  │  └─ SessionInterrupted       somebody interrupted it; it lives on
    │  └─ SpawnRefused              a kind, right or name forbids the child
    │     └─ LimitExceeded          a number forbids it: limit, used, allowed
    ├─ ApprovalClosed             the request was already decided, expired or cancelled
    ├─ ClientCallClosed           the call is not the program's to answer, or no more
    ├─ ClientAnswerRefused        an answer that can't be a call's result; the call stays open
    ├─ JournalError               the record of a tree cannot be used
    │  ├─ JournalCorrupt · JournalLocked · JournalUnwritable · TreeNotFound
    │  └─ JournalTooNew             written by a later release
    ├─ MemoryFailed               what is remembered can't be reached, or not be kept
    │  ├─ MemoryLocked · MemoryCorrupt · MemoryUnwritable
    │  ├─ EmbedderMismatch          its vectors are another embedder's
    │  └─ ExportRefused             what should be imported is no whole export
    ├─ EngineLost                 the Ray that trees ran on is gone; resume them
    │  └─ StartFailed               or its supervisor can't be started
    ├─ WrongLoop                  asked on another event loop than it was opened on
    └─ ConfigError                raised at start, before any session exists
"""

from __future__ import annotations

from sessiontree.contracts.tool_errors import ConfinementUnavailable as ConfinementUnavailable
from sessiontree.contracts.tool_errors import ExecutionError as ExecutionError
from sessiontree.contracts.tool_errors import ImageRefused as ImageRefused
from sessiontree.contracts.tool_errors import PermissionDenied as PermissionDenied
from sessiontree.contracts.tool_errors import SessionTreeError as SessionTreeError
from sessiontree.contracts.tool_errors import Timeout as Timeout
from sessiontree.contracts.tool_errors import ToolAuthorizationError as ToolAuthorizationError
from sessiontree.contracts.tool_errors import ToolError as ToolError
from sessiontree.contracts.tool_errors import ToolInputError as ToolInputError
from sessiontree.contracts.tool_errors import ValidationError as ValidationError
from sessiontree.contracts.tool_errors import words_of as words_of


class ModelError(SessionTreeError):
    """A model call failed.

    Args:
        message: What the model or its transport said.
        retryable: Whether asking again may help.
    """

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message, retryable)
        self.message = message
        self.retryable = retryable

    def __str__(self) -> str:
        """Return the message alone."""
        return self.message


class SessionError(SessionTreeError):
    """A session cannot do what was asked of it.

    Args:
        session_id: Path of the session, such as ``main/b2/w7``.
        reason: Why, and what to do next.
    """

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(session_id, reason)
        self.session_id = session_id
        self.reason = reason

    def __str__(self) -> str:
        """Name the session and the reason."""
        return f"session {self.session_id!r}: {self.reason}"


class SessionNotFound(SessionError):
    """No session of that path exists in the tree."""


class SessionClosed(SessionError):
    """The session has ended and takes no more input."""


class SessionFailed(SessionError):
    """The session ended without the result that was asked of it."""


class SessionInterrupted(SessionFailed):
    """Somebody interrupted the session before it answered; it lives, and hears what is said to it next."""


class SessionCrashed(SessionError):
    """The runtime itself failed inside the session; its journal is kept up to that point."""


class SpawnRefused(SessionError):
    """A child may not be created: its kind, its name or its rights do not fit the parent."""


class LimitExceeded(SpawnRefused):
    """A number is used up.

    Args:
        session_id: The session that asked.
        limit: Name of the limit, such as ``max_depth``.
        used: What it would have come to.
        allowed: The limit's value.
    """

    def __init__(self, session_id: str, limit: str, used: float, allowed: float) -> None:
        SessionTreeError.__init__(self, session_id, limit, used, allowed)
        self.session_id = session_id
        self.limit = limit
        self.used = used
        self.allowed = allowed
        self.reason = f"{limit} is {allowed:g} and this would make {used:g}; raise it with Limits({limit}=…)"


class WrongLoop(SessionTreeError):
    """A tree or runtime is asked on an event loop that is not its own, so that nobody would ever answer.

    Args:
        what: What was asked.
        reason: What became of its loop, and what to do.
    """

    def __init__(self, what: str, reason: str) -> None:
        """Keep what was asked and why it can't answer."""
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        """Say both."""
        return f"{self.what} can't go on here: {self.reason}"


class ApprovalClosed(SessionTreeError):
    """An approval request was decided before this answer came.

    Args:
        request_id: The request.
        state: How it ended: ``approved``, ``denied``, ``expired`` or ``cancelled``.
    """

    def __init__(self, request_id: str, state: str) -> None:
        super().__init__(request_id, state)
        self.request_id = request_id
        self.state = state

    def __str__(self) -> str:
        """Say that the answer came too late."""
        return f"approval {self.request_id} is already {self.state}; the answer changes nothing"


class ClientCallClosed(SessionTreeError):
    """A call of the program's own tool waits for no answer: it has one, was cancelled, or never was.

    Args:
        call_id: The call.
        state: How it ended, such as ``ok``, ``error``, ``timeout``, ``aborted`` or ``cancelled``.
    """

    def __init__(self, call_id: str, state: str) -> None:
        super().__init__(call_id, state)
        self.call_id = call_id
        self.state = state

    def __str__(self) -> str:
        """Say that the answer changes nothing."""
        return f"client call {self.call_id} is {self.state}; the answer changes nothing"


class ClientAnswerRefused(SessionTreeError):
    """An answer to a call of the program's own tool can't be its result; the call still waits for one.

    Args:
        call_id: The call.
        reason: What is wrong with the answer, and what would be accepted.
        field: JSON pointer of the failing field, or None when the whole answer fails.
    """

    def __init__(self, call_id: str, reason: str, field: str | None = None) -> None:
        super().__init__(call_id, reason, field)
        self.call_id = call_id
        self.reason = reason
        self.field = field

    def __str__(self) -> str:
        """Name the call, the place and the reason."""
        where = f" at {self.field}" if self.field else ""
        return f"the answer to client call {self.call_id} is refused{where}: {self.reason}; answer it again"


class JournalError(SessionTreeError):
    """The journal of a tree cannot be used.

    Args:
        path: The file or directory concerned.
        reason: What was found, and what to do next.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        """Name the path and the reason."""
        return f"journal {self.path!r}: {self.reason}"


class JournalCorrupt(JournalError):
    """The file is damaged beyond the tail that may be cut off."""


class JournalLocked(JournalError):
    """Another process writes this journal."""


class JournalUnwritable(JournalError):
    """The state directory cannot be written: permissions, a full disk or a failing one."""


class JournalTooNew(JournalError):
    """A later release wrote this journal."""


class TreeNotFound(JournalError):
    """The journal holds no tree of that id."""


class MemoryFailed(SessionTreeError):
    """A memory store cannot be used, or not for this.

    Args:
        place: Path or address of the store.
        reason: What was found, and what to do next.
    """

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        """Name the place and the reason."""
        return f"memory {self.place!r}: {self.reason}"


class MemoryLocked(MemoryFailed):
    """Another process writes this store."""


class MemoryCorrupt(MemoryFailed):
    """The store's files are damaged or gone."""


class MemoryUnwritable(MemoryFailed):
    """The store cannot be written: permissions, a full or failing disk; nothing acknowledged is lost."""


class ExportRefused(MemoryFailed):
    """An export of a memory is cut, altered, none, or of a later release; nothing of it was imported."""


class EmbedderMismatch(MemoryFailed):
    """The vectors of a store were made by another embedder; they can't be compared.

    Args:
        place: Path or address of the store.
        stored: Identity of the embedder that made them.
        given: Identity of the one the store was opened with.
    """

    def __init__(self, place: str, stored: str, given: str) -> None:
        SessionTreeError.__init__(self, place, stored, given)
        self.place = place
        self.stored = stored
        self.given = given
        self.reason = (
            f"its vectors were made by embedder {stored!r} and {given!r} was given; open it with the former,"
            " or make new ones with `sessiontree memory reindex`"
        )


class EngineLost(SessionTreeError):
    """The Ray that trees ran on is gone; their journal has everything that was acknowledged.

    Args:
        died: What of it ended.
        advice: What to do next.
    """

    def __init__(self, died: str, advice: str) -> None:
        super().__init__(died, advice)
        self.died = died
        self.advice = advice

    def __str__(self) -> str:
        """Say what died and how to go on."""
        return f"Ray is gone: {self.died}; nothing acknowledged is lost: {self.advice}"


class StartFailed(EngineLost):
    """A process that trees can't do without was started several times in a row, and never came to serve.

    Args:
        role: What it was to be.
        failures: How often it failed.
        reason: Why it failed the last time.
    """

    def __init__(self, role: str, failures: int, reason: str) -> None:
        SessionTreeError.__init__(self, role, failures, reason)
        self.role = role
        self.failures = failures
        self.reason = reason
        self.died = f"its {role} failed to start {failures} times in a row, the last: {reason}"
        self.advice = (
            "look at the machine's memory and at `sessiontree doctor`, then go on with SessionTree.resume"
        )


class ConfigError(SessionTreeError):
    """A setting is wrong; raised before any session exists.

    Args:
        message: The setting, its value and what would be accepted.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
