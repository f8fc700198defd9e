"""Every error that this library raises, in one tree; each is worth catching by itself.

An error declares its fields and one template of its text. The fields are positional and are all in
``Exception.args``, so each error survives pickling between processes. Where a program may do something else
about kinds of one error, its ``cause`` names the kind.

::

    SessionTreeError
    ├─ ToolError                  the model reads it as a tool result; the session goes on
    │  ├─ ValidationError           arguments do not fit; costs one attempt       (alias ToolInputError)
    │  ├─ ExecutionError            the tool ran and failed; retried only if the error says so
    │  │  ├─ ConfinementUnavailable    a command can't be confined, or its container was lost
    │  │  └─ ImageRefused              an image can't be shown to a model
    │  ├─ PermissionDenied          not allowed here; never retried          (alias ToolAuthorizationError)
    │  └─ Timeout                   the deadline passed; retried only when harmless
    ├─ ModelError                 a model call failed; it says whether a retry may help
    │  ├─ ModelBusy · ModelUnreachable · ModelKeyRefused
    │  └─ ContextOverflow
    ├─ SessionError               this session cannot do that
    │  ├─ SessionNotFound · SessionClosed
    │  ├─ SessionFailed             the result or the reply is missing; its cause says why
    │  └─ SpawnRefused              a kind, right or name forbids the child
    │     └─ LimitExceeded          a number forbids it: limit, used, allowed
    ├─ AnswerTooLate              an approval, a question or a client call takes no answer
    ├─ JournalError               the record of a tree, or of a suite's run, cannot be used
    │  ├─ JournalCorrupt · JournalLocked · JournalUnwritable · TreeNotFound
    │  └─ JournalTooNew             written by a later release
    ├─ MemoryFailed               memory can't be read or written; its cause says why
    ├─ EngineLost                 the Ray that trees ran on is gone; resume them
    │  └─ ShardLost                 one shard of it is gone; the others go on
    ├─ SupervisorUnavailable      a call that does not wait found the supervisor restarting; try again
    ├─ WrongLoop                  used on an event loop other than its own
    └─ ConfigError                raised at start, before any session exists
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sessiontree.contracts.kinds import PermissionTier

FailureReason = Literal[
    "failed", "cancelled", "expired", "interrupted", "truncated", "refused", "too_long", "crashed",
    "provider", "budget", "lost", "not_started",
]  # fmt: skip
"""Why a result or a reply is missing; see :class:`SessionFailed`."""


def describe_error(error: BaseException) -> str:
    """Return an exception's name and text; only its name if getting the text fails."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - reporting an error must neither fail nor end the program
        return name


class SessionTreeError(Exception):
    """Base of every error that this library raises on purpose.

    Catch it to give up what failed here, and to let the errors of your own program through.
    """

    template: ClassVar[str] = ""
    """The text, with the fields' names in braces; empty = the arguments, as for any exception."""

    def __post_init__(self) -> None:
        """Keep the declared fields in ``args``, in order: pickle makes the error again from them."""
        self.args = tuple(vars(self)[name] for name in getattr(self, "__match_args__", ()))

    def __str__(self) -> str:
        """Return the template with the fields' values."""
        return self.template.format_map(vars(self)) if self.template else super().__str__()


@dataclass(eq=False, repr=False)
class ToolError(SessionTreeError):
    """A tool call failed with an error that the model should read.

    Catch it to go on after a failed ``handle.call``, however it failed.

    Args:
        message: What was tried and why it failed.
    """

    code: ClassVar[str] = "tool_error"
    status: ClassVar[int] = 500
    template: ClassVar[str] = "{message}"

    message: str


@dataclass(eq=False, repr=False)
class ValidationError(ToolError):
    """The arguments do not fit the tool's schema; costs one of three attempts.

    Catch it to correct the value and try again. An answer to a call of a client tool that is not a valid
    result raises it too; that call still waits.

    Args:
        message: What is wrong with the value.
        field: JSON pointer of the failing field, or None when the whole object fails.
    """

    code: ClassVar[str] = "validation_error"
    status: ClassVar[int] = 400

    field: str | None = None


@dataclass(eq=False, repr=False)
class ExecutionError(ToolError):
    """The tool ran and failed, for instance because a file is missing.

    Catch it to do without the result; the call was allowed and its arguments fit.

    Args:
        message: What was tried and why it failed.
        retryable: Whether the same call may succeed a little later. It is retried if the call changes nothing
            and its tool declares a :class:`~sessiontree.contracts.tools.tool.Retry`.
    """

    code: ClassVar[str] = "execution_error"

    retryable: bool = False


@dataclass(eq=False, repr=False)
class ConfinementUnavailable(ExecutionError):
    """A command can't be confined on this machine, or was lost with its container.

    Catch it to go on without commands, or to tell the owner what to install.

    Args:
        missing: What is missing, and what was found instead.
        remedy: What to install or allow.
        may_have_run: Whether the command may have run; usually it has not.
    """

    code: ClassVar[str] = "confinement_unavailable"

    message: str = field(init=False)
    retryable: bool = field(default=False, init=False)
    missing: str
    remedy: str
    may_have_run: bool = False

    def __post_init__(self) -> None:
        """Say whether a command has run, why, and what to do."""
        what = (
            "a command lost its container"
            if self.may_have_run
            else "commands can't be confined here, so none is run"
        )
        self.message = f"{what}: {self.missing}; {self.remedy}"
        super().__post_init__()


@dataclass(eq=False, repr=False)
class ImageRefused(ExecutionError):
    """An image can't be shown to a model: too large, of an unknown format, damaged.

    Catch it to send the message without the image.

    Args:
        image: Which image.
        reason: What is wrong with it, and which limit it breaks.
    """

    code: ClassVar[str] = "image_refused"

    message: str = field(init=False)
    retryable: bool = field(default=False, init=False)
    image: str
    reason: str

    def __post_init__(self) -> None:
        """Name the image and the reason."""
        self.message = f"can't show {self.image}: {self.reason}"
        super().__post_init__()


@dataclass(eq=False, repr=False)
class PermissionDenied(ToolError):
    """The session may not do this. Never retried.

    Catch it to ask for another right, or to do with less.

    Args:
        tier: The tier that the call needed.
        reason: Why it was refused, and by whom.
        by_policy: Whether a rule of the owner refused the whole call, whatever it would have met: its result
            says ``blocked``, not ``error``.
    """

    code: ClassVar[str] = "permission_denied"
    status: ClassVar[int] = 403

    message: str = field(init=False)
    tier: PermissionTier
    reason: str
    by_policy: bool = False

    def __post_init__(self) -> None:
        """Keep the reason as the message."""
        self.message = self.reason
        super().__post_init__()

    def __str__(self) -> str:
        """Name the tier and the reason."""
        return f"permission denied ({self.tier.label}): {self.reason}"


@dataclass(eq=False, repr=False)
class Timeout(ToolError):
    """The deadline of a tool call passed.

    Catch it to call again with more time; the call may have had an effect.

    Args:
        elapsed: How long the call ran, in seconds.
        tool: Name of the tool; empty = unknown.
    """

    code: ClassVar[str] = "timeout"
    status: ClassVar[int] = 504

    message: str = field(init=False)
    elapsed: float
    tool: str = ""

    def __post_init__(self) -> None:
        """Say what ran and for how long."""
        self.message = f"{self.tool} timed out after {self.elapsed:g} s".lstrip()
        super().__post_init__()


ToolInputError = ValidationError
ToolAuthorizationError = PermissionDenied


@dataclass(eq=False, repr=False)
class ModelError(SessionTreeError):
    """A model call failed.

    Catch it to do something else where your own code asks a model, such as asking another one.

    Args:
        message: What the model or its transport said.
        retryable: Whether a retry may help.
        retry_after_s: How long the provider asks to wait before a retry, in seconds; None = it does not say.
    """

    template: ClassVar[str] = "{message}"

    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    raised: str = field(default="", init=False)
    """Where the model's own code raised what led to it: lines of ``path:line in function: source``."""


@dataclass(eq=False, repr=False)
class ModelBusy(ModelError):
    """The provider is overloaded, or its rate limit is reached: status 429, 503 or 529. Retryable.

    Catch it to wait for ``retry_after_s``, and to ask less at a time.
    """

    retryable: bool = True


@dataclass(eq=False, repr=False)
class ModelUnreachable(ModelError):
    """The provider was unreachable, timed out, dropped the connection, or failed itself (5xx). Retryable.

    Catch it to ask another provider.
    """

    retryable: bool = True


class ModelKeyRefused(ModelError):
    """The provider does not accept the key, or the key does not allow the request or know the model.

    Status 401, 402, 403 or 404, or a quota that waiting does not renew. Catch it to stop: every other
    question with this key and model fails too, until its owner corrects them.
    """


class ContextOverflow(ModelError):
    """The conversation is longer than the model's context.

    Catch it to shorten the question; a session has its conversation summarized.
    """


@dataclass(eq=False, repr=False)
class SessionError(SessionTreeError):
    """A session cannot do what was asked of it.

    Catch it to go on with other sessions, whatever is wrong with this one.

    Args:
        session_id: Path of the session, such as ``main/b2/w7``.
        reason: Why, and what to do next.
    """

    template: ClassVar[str] = "session {session_id!r}: {reason}"

    session_id: str
    reason: str


class SessionNotFound(SessionError):
    """No session of that path exists in the tree. Catch it to correct the path."""


class SessionClosed(SessionError):
    """The session has ended and takes no more input. Catch it to read its result, or to spawn another."""


@dataclass(eq=False, repr=False)
class SessionFailed(SessionError):
    """The result or the reply that was asked for is missing.

    Catch it to try the task again, or to do without its result; ``cause`` says which of the two may help.

    Args:
        session_id: Path of the session.
        reason: Why, and what to do next.
        cause: What happened. ``failed``, ``cancelled``, ``expired``: the session ended so, or the run of its
            message did. ``interrupted``: somebody interrupted it; it stays open for the next message.
            ``truncated``: the model's tokens were used up before its final message was complete.
            ``refused``: the model, or its provider, refused to reply. ``too_long``: the conversation does not
            fit the model's context, and no summary of its older part helps. ``crashed``: the runtime itself
            failed inside the session; its journal is kept up to that point. ``provider``, ``budget``,
            ``lost``, ``not_started``: the provider refuses for good, a budget is used up, the host was lost
            too often, or the child was never started; none of these says anything about its task.
        text: The incomplete message of ``truncated``.
        results: A ``ChildResults`` of all children, if it was one of several that one call started; or None.
    """

    cause: FailureReason = "failed"
    text: str = ""
    results: Any = None


class SpawnRefused(SessionError):
    """A child may not be created: its kind, its name or its rights do not fit the parent.

    Catch it to do the work in the session itself.
    """


@dataclass(eq=False, repr=False)
class LimitExceeded(SpawnRefused):
    """A limit does not allow the child.

    Catch it to spawn fewer children, or to wait until some have ended.

    Args:
        session_id: The session that made the request.
        limit: Name of the limit, such as ``max_depth``.
        used: The value that would have been reached.
        allowed: The limit's value.
    """

    reason: str = field(init=False)
    limit: str
    used: float
    allowed: float

    def __post_init__(self) -> None:
        """Say which limit is broken by how much, and how to raise it."""
        group, dot, member = self.limit.partition(".")
        setting = f"Budget({member}=…)" if dot and group == "budget" else f"Limits({self.limit}=…)"
        self.reason = (
            f"{self.limit} is {self.allowed:g} and this would make {self.used:g}; raise it with {setting}"
        )
        super().__post_init__()


@dataclass(eq=False, repr=False)
class WrongLoop(SessionTreeError):
    """A tree or runtime was used on an event loop other than its own, where it can't answer.

    Catch it to open the tree again on the present loop.

    Args:
        what: What was used.
        reason: What happened to its loop, and what to do.
    """

    template: ClassVar[str] = "{what} can't go on here: {reason}"

    what: str
    reason: str


@dataclass(eq=False, repr=False)
class AnswerTooLate(SessionTreeError):
    """An approval request, a question, or a call of a client tool does not wait for this answer.

    Catch it to drop the answer: somebody or something else was first.

    Args:
        kind: What was answered.
        request_id: The request, the question, or the call.
        state: How it ended: an approval ``approved``, ``denied``, ``expired`` or ``cancelled``; a question
            ``answered``, ``expired`` or ``cancelled``; a client call for instance ``ok``, ``error``,
            ``timeout``, ``aborted`` or ``cancelled``; or that it is unknown.
    """

    kind: Literal["approval", "question", "client call"]
    request_id: str
    state: str

    def __str__(self) -> str:
        """Say that the answer has no effect."""
        already = "" if self.kind == "client call" else "already "
        return f"{self.kind} {self.request_id} is {already}{self.state}; the answer changes nothing"


@dataclass(eq=False, repr=False)
class JournalError(SessionTreeError):
    """The journal of a tree, or the ledger of a suite's run, cannot be used.

    Catch it to go on with other trees.

    Args:
        path: The file or directory concerned.
        reason: What was found, and what to do next.
    """

    template: ClassVar[str] = "journal {path!r}: {reason}"

    path: str
    reason: str


class JournalCorrupt(JournalError):
    """The file is damaged before the tail that may be cut off. Catch it to restore it from an export."""


class JournalLocked(JournalError):
    """Another process writes this journal. Catch it to ask that process instead, or to wait for its end."""


class JournalUnwritable(JournalError):
    """The state directory cannot be written: permissions, a full disk or a failing one.

    Catch it to make room; nothing that was acknowledged is lost.
    """


class JournalTooNew(JournalError):
    """A later release wrote this journal. Catch it to leave the tree to that release."""


@dataclass(eq=False, repr=False)
class TreeNotFound(JournalError):
    """The journal holds no tree of that id, or nothing ran there yet. Catch it to begin a new tree.

    Args:
        path: The tree, or the place where its journal should be.
        reason: What was found, and what to do next.
        missing: ``tree``: the journal does not hold it; ``journal``: nothing ran there yet.
    """

    missing: Literal["tree", "journal"] = "tree"


@dataclass(eq=False, repr=False)
class MemoryFailed(SessionTreeError):
    """A memory store cannot be used, or can't do what was asked.

    Catch it to go on without memory.

    Args:
        place: Path or address of the store.
        reason: What was found, and what to do next.
        cause: What is wrong. ``locked``: another process writes the store. ``corrupt``: its files are damaged
            or missing. ``unwritable``: permissions, a full or failing disk; no acknowledged record is lost.
            ``embedder``: another embedder made its vectors, so they can't be compared. ``export``: an export
            is truncated, altered, invalid or of a later release; no record was imported.
    """

    template: ClassVar[str] = "memory {place!r}: {reason}"

    place: str
    reason: str
    cause: Literal["other", "locked", "corrupt", "unwritable", "embedder", "export"] = "other"


@dataclass(eq=False, repr=False)
class EngineLost(SessionTreeError):
    """The Ray that trees ran on is gone; their journal holds everything that was acknowledged.

    Catch it to resume the trees.

    Args:
        died: The part of it that ended, or never became ready.
        advice: What to do next.
        cause: ``ended``: it ran and ended; ``start``: a process was started several times in a row and never
            became ready; ``shard``: see :class:`ShardLost`.
    """

    template: ClassVar[str] = "Ray is gone: {died}; nothing acknowledged is lost: {advice}"

    died: str
    advice: str
    cause: Literal["ended", "start", "shard"] = "ended"


@dataclass(eq=False, repr=False)
class ShardLost(EngineLost):
    """One shard of a runtime is gone, usually with its node; the other shards go on.

    Catch it to resume its trees while the others continue.

    Args:
        node: The shard's node.
        reason: What ended.
        trees: Ids of the trees that were open in it.
    """

    died: str = field(init=False)
    advice: str = field(init=False)
    cause: Literal["ended", "start", "shard"] = field(default="shard", init=False)
    node: str
    reason: str
    trees: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Say which shard ended, and what to do."""
        self.trees = tuple(self.trees)
        self.died = f"the shard on {self.node}: {self.reason}"
        self.advice = "resume its trees once a runtime reaches the disk of that node again"
        super().__post_init__()

    def __str__(self) -> str:
        """Name the node, the trees, and what to do next."""
        trees = f"; its trees: {', '.join(self.trees)}" if self.trees else ""
        return f"lost {self.died}{trees}; nothing acknowledged is lost: {self.advice}"


@dataclass(eq=False, repr=False)
class SupervisorUnavailable(SessionTreeError):
    """A call that does not wait, such as ``status()``, got no answer now; calls with ``await`` wait for one.

    Catch it to ask again a little later.

    Args:
        asked: Who was asked, and for what.
        reason: Why the answer did not come.
    """

    template: ClassVar[str] = "asked {asked}: {reason}; try again"

    asked: str
    reason: str


@dataclass(eq=False, repr=False)
class ConfigError(SessionTreeError):
    """A setting is wrong; raised before any session exists.

    Catch it to show its text to the owner: no repetition helps.

    Args:
        message: The setting, its value and what is accepted.
    """

    template: ClassVar[str] = "{message}"

    message: str
