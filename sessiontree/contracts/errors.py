"""Every error that this library raises, in one tree.

Fields are positional and are all in ``Exception.args``, so each error survives pickling between processes;
``__str__`` returns the text.

::

    SessionTreeError
    ├─ ToolError                  the model reads it as a tool result; the session goes on
    │  ├─ ValidationError           arguments do not fit; costs one attempt       (alias ToolInputError)
    │  ├─ ExecutionError            the tool ran and failed; retried only if the error says so
    │  │  ├─ ConfinementUnavailable    this machine can't confine a command, so it did not run
    │  │  └─ ImageRefused              an image can't be shown to a model
    │  ├─ PermissionDenied          not allowed here; never retried          (alias ToolAuthorizationError)
    │  └─ Timeout                   the deadline passed; retried only when harmless
    ├─ ModelError                 a model call failed; it says whether a retry may help
    │  ├─ ModelBusy · ModelUnreachable · ModelKeyRefused · ModelNotFound
    │  └─ ContextOverflow · NotRecorded
    ├─ SessionError               this session cannot do that
    │  ├─ SessionNotFound · SessionClosed · SessionCrashed
    │  ├─ SessionFailed             the result or the reply is missing
    │  │  ├─ SessionInterrupted       it was interrupted; it stays open
    │  │  ├─ ReplyTruncated           the model's tokens were used up in its final message
    │  │  ├─ ModelRefused             the model refused to reply
    │  │  └─ ConversationTooLong      it does not fit the model's context, even with a summary
    │  └─ SpawnRefused              a kind, right or name forbids the child
    │     └─ LimitExceeded          a number forbids it: limit, used, allowed
    ├─ ApprovalClosed · ClientCallClosed
    ├─ ClientAnswerRefused        the answer is not a valid result; the call stays open
    ├─ JournalError               the record of a tree cannot be used
    │  ├─ JournalCorrupt · JournalLocked · JournalUnwritable · JournalMissing · TreeNotFound
    │  └─ JournalTooNew             written by a later release
    ├─ MemoryFailed               memory can't be read or written
    │  ├─ MemoryLocked · MemoryCorrupt · MemoryUnwritable
    │  └─ EmbedderMismatch · ExportRefused
    ├─ EngineLost                 the Ray that trees ran on is gone; resume them
    │  └─ ShardLost · StartFailed
    ├─ SupervisorUnavailable      a call that does not wait found the supervisor restarting; try again
    ├─ WrongLoop                  used on an event loop other than its own
    └─ ConfigError                raised at start, before any session exists
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sessiontree.contracts.kinds import PermissionTier


def words_of(error: BaseException) -> str:
    """Return an exception's name and text; only its name if getting the text fails."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - reporting an error must neither fail nor end the program
        return name


class SessionTreeError(Exception):
    """Base of every error that this library raises on purpose."""


class ToolError(SessionTreeError):
    """A tool call failed with an error that the model should read.

    Args:
        message: What was tried and why it failed.
    """

    code: ClassVar[str] = "tool_error"
    status: ClassVar[int] = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        """Return the message alone."""
        return self.message


class ValidationError(ToolError):
    """The arguments do not fit the tool's schema; costs one of three attempts.

    Args:
        message: What is wrong with the value.
        field: JSON pointer of the failing field, or None when the whole object fails.
    """

    code: ClassVar[str] = "validation_error"
    status: ClassVar[int] = 400

    def __init__(self, message: str, field: str | None = None) -> None:
        SessionTreeError.__init__(self, message, field)
        self.message = message
        self.field = field


class ExecutionError(ToolError):
    """The tool ran and failed, for instance because a file is missing.

    Args:
        message: What was tried and why it failed.
        retryable: Whether the same call may succeed a little later. It is retried if the call changes nothing
            and its tool declares a :class:`~sessiontree.contracts.tool.Retry`.
    """

    code: ClassVar[str] = "execution_error"
    retryable: bool = False

    def __init__(self, message: str, retryable: bool = False) -> None:
        SessionTreeError.__init__(self, message, retryable)
        self.message = message
        self.retryable = retryable


class ConfinementUnavailable(ExecutionError):
    """A command can't be confined on this machine, so it was not run.

    Args:
        missing: What is missing, and what was found instead.
        remedy: What to install or allow.
    """

    code: ClassVar[str] = "confinement_unavailable"

    def __init__(self, missing: str, remedy: str) -> None:
        SessionTreeError.__init__(self, missing, remedy)
        self.missing = missing
        self.remedy = remedy
        self.message = f"commands can't be confined here, so none is run: {missing}; {remedy}"


class ImageRefused(ExecutionError):
    """An image can't be shown to a model: too large, of an unknown format, damaged.

    Args:
        image: Which image.
        reason: What is wrong with it, and which limit it breaks.
    """

    code: ClassVar[str] = "image_refused"

    def __init__(self, image: str, reason: str) -> None:
        SessionTreeError.__init__(self, image, reason)
        self.image = image
        self.reason = reason
        self.message = f"can't show {image}: {reason}"


class PermissionDenied(ToolError):
    """The session may not do this. Never retried.

    Args:
        tier: The tier that the call needed.
        reason: Why it was refused, and by whom.
    """

    code: ClassVar[str] = "permission_denied"
    status: ClassVar[int] = 403

    def __init__(self, tier: PermissionTier, reason: str) -> None:
        SessionTreeError.__init__(self, tier, reason)
        self.tier = tier
        self.reason = reason
        self.message = reason

    def __str__(self) -> str:
        """Name the tier and the reason."""
        return f"permission denied ({self.tier.label}): {self.reason}"


class Timeout(ToolError):
    """The deadline of a tool call passed.

    Args:
        elapsed: How long the call ran, in seconds.
        tool: Name of the tool; empty = unknown.
    """

    code: ClassVar[str] = "timeout"
    status: ClassVar[int] = 504

    def __init__(self, elapsed: float, tool: str = "") -> None:
        SessionTreeError.__init__(self, elapsed, tool)
        self.elapsed = elapsed
        self.tool = tool
        self.message = f"{tool} timed out after {elapsed:g} s" if tool else f"timed out after {elapsed:g} s"


ToolInputError = ValidationError
ToolAuthorizationError = PermissionDenied


class ModelError(SessionTreeError):
    """A model call failed.

    Args:
        message: What the model or its transport said.
        retryable: Whether a retry may help.
        retry_after_s: How long the provider asks to wait before a retry, in seconds; None = it does not say.
    """

    raised: str = ""
    """Where the model's own code raised what led to it: lines of ``path:line in function: source``."""

    def __init__(self, message: str, retryable: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message, retryable, retry_after_s)
        self.message = message
        self.retryable = retryable
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        """Return the message alone."""
        return self.message


class ModelBusy(ModelError):
    """The provider is overloaded, or its rate limit is reached: status 429, 503 or 529. Retryable."""

    def __init__(self, message: str, retryable: bool = True, retry_after_s: float | None = None) -> None:
        super().__init__(message, retryable, retry_after_s)


class ModelUnreachable(ModelError):
    """The provider was unreachable, timed out, dropped the connection, or failed itself (5xx). Retryable."""

    def __init__(self, message: str, retryable: bool = True, retry_after_s: float | None = None) -> None:
        super().__init__(message, retryable, retry_after_s)


class ModelKeyRefused(ModelError):
    """The provider does not accept the key, or the key or its account does not allow the request.

    Status 401, 402 or 403, or a quota that waiting does not renew.
    """


class ModelNotFound(ModelError):
    """The provider has no model of this name, or not for this key; status 404."""


class ContextOverflow(ModelError):
    """The conversation is longer than the model's context."""


class NotRecorded(ModelError):
    """A cassette has no reply to this question; the message shows the nearest one and where they differ."""


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
    """The session ended without the requested result."""


class SessionInterrupted(SessionFailed):
    """The session was interrupted before it answered; it stays open and receives the next message."""


class ReplyTruncated(SessionFailed):
    """The model's tokens were used up before its final message was complete.

    Args:
        session_id: Path of the session.
        reason: Why, and what to do next.
        text: The incomplete message.
    """

    def __init__(self, session_id: str, reason: str, text: str = "") -> None:
        SessionTreeError.__init__(self, session_id, reason, text)
        self.session_id = session_id
        self.reason = reason
        self.text = text


class ModelRefused(SessionFailed):
    """The model, or its provider, refused to reply."""


class ConversationTooLong(SessionFailed):
    """The model reported :class:`ContextOverflow`, and no summary of the older conversation helps."""


class SessionCrashed(SessionError):
    """The runtime itself failed inside the session; its journal is kept up to that point."""


class SpawnRefused(SessionError):
    """A child may not be created: its kind, its name or its rights do not fit the parent."""


class LimitExceeded(SpawnRefused):
    """A limit does not allow the child.

    Args:
        session_id: The session that made the request.
        limit: Name of the limit, such as ``max_depth``.
        used: The value that would have been reached.
        allowed: The limit's value.
    """

    def __init__(self, session_id: str, limit: str, used: float, allowed: float) -> None:
        SessionTreeError.__init__(self, session_id, limit, used, allowed)
        self.session_id = session_id
        self.limit = limit
        self.used = used
        self.allowed = allowed
        group, dot, member = limit.partition(".")
        setting = f"Budget({member}=…)" if dot and group == "budget" else f"Limits({limit}=…)"
        self.reason = f"{limit} is {allowed:g} and this would make {used:g}; raise it with {setting}"


class WrongLoop(SessionTreeError):
    """A tree or runtime was used on an event loop other than its own, where it can't answer.

    Args:
        what: What was used.
        reason: What happened to its loop, and what to do.
    """

    def __init__(self, what: str, reason: str) -> None:
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
    """A call of a client tool does not wait for an answer: it has one, was cancelled, or never existed.

    Args:
        call_id: The call.
        state: How it ended, such as ``ok``, ``error``, ``timeout``, ``aborted`` or ``cancelled``.
    """

    def __init__(self, call_id: str, state: str) -> None:
        super().__init__(call_id, state)
        self.call_id = call_id
        self.state = state

    def __str__(self) -> str:
        """Say that the answer has no effect."""
        return f"client call {self.call_id} is {self.state}; the answer changes nothing"


class ClientAnswerRefused(SessionTreeError):
    """An answer to a call of a client tool is not a valid result; the call still waits for one.

    Args:
        call_id: The call.
        reason: What is wrong with the answer, and what is accepted.
        field: JSON pointer of the failing field, or None if the whole answer fails.
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
    """The file is damaged before the tail that may be cut off."""


class JournalLocked(JournalError):
    """Another process writes this journal."""


class JournalUnwritable(JournalError):
    """The state directory cannot be written: permissions, a full disk or a failing one."""


class JournalMissing(JournalError):
    """No journal was begun at this place, or it holds no tree: nothing ran there yet."""


class JournalTooNew(JournalError):
    """A later release wrote this journal."""


class TreeNotFound(JournalError):
    """The journal holds no tree of that id."""


class MemoryFailed(SessionTreeError):
    """A memory store cannot be used, or can't do what was asked.

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
    """The store's files are damaged or missing."""


class MemoryUnwritable(MemoryFailed):
    """The store cannot be written: permissions, a full or failing disk. No acknowledged record is lost."""


class ExportRefused(MemoryFailed):
    """An export of a memory is truncated, altered, invalid or of a later release; no record was imported."""


class EmbedderMismatch(MemoryFailed):
    """Another embedder made the vectors of a store, so they can't be compared.

    Args:
        place: Path or address of the store.
        stored: Identity of the embedder that made them.
        given: Identity of the embedder that the store was opened with.
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
    """The Ray that trees ran on is gone; their journal holds everything that was acknowledged.

    Args:
        died: The part of it that ended.
        advice: What to do next.
    """

    def __init__(self, died: str, advice: str) -> None:
        super().__init__(died, advice)
        self.died = died
        self.advice = advice

    def __str__(self) -> str:
        """Say what ended and what to do next."""
        return f"Ray is gone: {self.died}; nothing acknowledged is lost: {self.advice}"


class StartFailed(EngineLost):
    """A process that trees require was started several times in a row and never became ready.

    Args:
        role: The role of the process.
        failures: How often the start failed.
        reason: Why the last start failed.
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


class ShardLost(EngineLost):
    """One shard of a runtime is gone, usually with its node; the other shards go on.

    Args:
        node: The shard's node.
        reason: What ended.
        trees: Ids of the trees that were open in it.
    """

    def __init__(self, node: str, reason: str, trees: Sequence[str] = ()) -> None:
        self.trees = tuple(trees)
        SessionTreeError.__init__(self, node, reason, self.trees)
        self.node = node
        self.reason = reason
        self.died = f"the shard on {node}: {reason}"
        self.advice = "resume its trees once a runtime reaches the disk of that node again"

    def __str__(self) -> str:
        """Name the node, the trees, and what to do next."""
        trees = f"; its trees: {', '.join(self.trees)}" if self.trees else ""
        return f"lost {self.died}{trees}; nothing acknowledged is lost: {self.advice}"


class SupervisorUnavailable(SessionTreeError):
    """A call that does not wait, such as ``status()``, got no answer now; calls with ``await`` wait for one.

    Args:
        asked: Who was asked, and for what.
        reason: Why the answer did not come.
    """

    def __init__(self, asked: str, reason: str) -> None:
        super().__init__(asked, reason)
        self.asked = asked
        self.reason = reason

    def __str__(self) -> str:
        """Say what was asked and what to do next."""
        return f"asked {self.asked}: {self.reason}; try again"


class ConfigError(SessionTreeError):
    """A setting is wrong; raised before any session exists.

    Args:
        message: The setting, its value and what is accepted.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
