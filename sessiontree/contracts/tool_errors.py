"""The root of every error, and those a model reads as the result of its call.

Programs take them from ``errors``, which draws the whole tree.
"""

from __future__ import annotations

from typing import ClassVar

from sessiontree.contracts.tiers import PermissionTier


def words_of(error: BaseException) -> str:
    """Return an exception's name and text, whoever wrote it; one whose text can't be had is named alone."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - what is to be told must not fail in turn; nor may it end the program
        return name


class SessionTreeError(Exception):
    """Root of every error this library raises on purpose."""


class ToolError(SessionTreeError):
    """A tool call failed in a way the model should read about.

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
        retryable: Whether the same call may succeed a little later. It is made again where the call changes
            nothing and its tool declares a :class:`~sessiontree.contracts.retry.Retry`.
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
        missing: Which piece is missing, and what was found instead.
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
        image: Which one.
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
        tier: The tier the call needed.
        reason: Why it was refused, and who refused it.
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
        elapsed: Seconds the call had run.
        tool: Whose call it was; empty where the error says nothing of it.
    """

    code: ClassVar[str] = "timeout"
    status: ClassVar[int] = 504

    def __init__(self, elapsed: float, tool: str = "") -> None:
        """Keep the elapsed seconds and the tool."""
        SessionTreeError.__init__(self, elapsed, tool)
        self.elapsed = elapsed
        self.tool = tool
        self.message = f"{tool} timed out after {elapsed:g} s" if tool else f"timed out after {elapsed:g} s"


ToolInputError = ValidationError
ToolAuthorizationError = PermissionDenied
