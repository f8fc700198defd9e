"""What code of a program's author raised: its frames, a log line where it ran, and the exception itself.

A tool, a model function, a hook, an approver, a solver or a scorer may raise anything. Its session gets one
line. Its author needs the traceback: it is logged in the process where the code ran, the frames of the
author's own files are kept with the call, and a program that runs everything in its own process finds the
exception as the cause of the error that it gets.
"""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sessiontree.contracts.values.messages import ToolResultMessage
from sessiontree.interpreter.import_guard import OURS

_LOG = logging.getLogger("sessiontree")
MAX_FRAMES: Final = 8
"""Most frames that are kept of one exception: the ones next to where it was raised."""
MAX_LINE_CHARS: Final = 200
QUIET_S: Final = 5.0
"""A traceback from the same line is logged at level DEBUG for this many seconds after it was a warning."""
MAX_REMEMBERED: Final = 64
MAX_PLACES: Final = 1_000
_LIBRARY: Final = os.path.realpath(os.path.dirname(os.__file__)) + os.sep  # noqa: PTH120 - a prefix of text
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_raised: OrderedDict[str, BaseException] = OrderedDict()
_warned: dict[str, float] = {}


def report_error(what: str, error: BaseException, text: str, *, quotes: bool = True) -> list[str]:
    """Log an exception of an author's code, remember it for :func:`find_cause`, and return its frames.

    The log has its traceback and its type. Its own text may quote a result, a page or a key, and is where the
    session's error is: in the call's result.

    Args:
        what: What raised it and in which session, such as ``tool 'divide' of session main``.
        error: The exception, as it was caught.
        text: The text by which a session reports it; :func:`find_cause` finds the exception by it.
        quotes: Whether :func:`find_cause` may find the exception, whose own text is shown with it.

    Returns:
        One line a frame, outermost first: ``path:line in function: source``.
    """
    frames = list_frames(error)
    _trim(error)
    kind = type(error).__name__
    level = _choose_level(frames[-1] if frames else f"{what} {kind}")
    if _LOG.isEnabledFor(level):
        told = "".join((*traceback.format_tb(error.__traceback__), kind))
        _write(level, f"{what} raised {kind}", told, frames)
    if quotes:
        traceback.clear_frames(error.__traceback__)  # what a frame holds would keep a tree alive
        # Moved to the end, so that it is not the next to be dropped.
        _raised.pop(text, None)
        _raised[text] = error
        while len(_raised) > MAX_REMEMBERED:
            _raised.popitem(last=False)
    return frames


def report_frames(what: str, frames: Sequence[str]) -> None:
    """Log what an author's code raised in another process of the runtime.

    Args:
        what: What raised it and in which session.
        frames: What :func:`report_error` returned there.
    """
    level = _choose_level(frames[-1])
    if _LOG.isEnabledFor(level):
        _write(level, f"{what} raised an exception", "\n".join(f"  {frame}" for frame in frames), frames)


def add_frames(message: ToolResultMessage, frames: Sequence[str]) -> ToolResultMessage:
    """Return the result of a failed call whose details hold frames, under ``raised``; no model sees them."""
    if not frames:
        return message
    details = message.details if isinstance(message.details, dict) else {}
    return replace(message, details={**details, "raised": list(frames)})


def read_frames(message: ToolResultMessage) -> tuple[str, ...]:
    """Return the frames of its author's files that a failed call passed through; empty if it has none."""
    details = message.details if message.is_error else None
    frames = details.get("raised") if isinstance(details, dict) else None
    return tuple(map(str, frames)) if isinstance(frames, list) else ()


def _choose_level(line: str) -> int:
    """Return the level of a report: a loop that fails at the same line again and again is one warning.

    So is an exception that its own process logged, and of which its program hears in that same process.
    """
    now_s = time.monotonic()
    if now_s - _warned.get(line, -QUIET_S) < QUIET_S:
        return logging.DEBUG
    # Cleared as a whole: at worst a warning comes again.
    if len(_warned) >= MAX_PLACES:
        _warned.clear()
    _warned[line] = now_s
    return logging.WARNING


def _write(level: int, message: str, told: str, frames: Sequence[str]) -> None:
    """Log a message with a traceback below it.

    The traceback is not given as ``exc_info``: handlers would add the exception's own text. A line of source
    may hold control characters, which must not reach a terminal.
    """
    given = {"sessiontree": {"raised": list(frames)}}
    record = _LOG.makeRecord(_LOG.name, level, __file__, 0, message, (), None, extra=given)
    record.exc_text = "".join(map(_to_visible, told.rstrip()))
    _LOG.handle(record)


def _to_visible(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def find_cause(text: str) -> BaseException | None:
    """Return the exception that a report of this process is about; None if it was raised in another process.

    Args:
        text: The report, which may have words before the text that :func:`report_error` was given.
    """
    return next((error for said, error in reversed(_raised.items()) if text.endswith(said)), None)


def list_frames(error: BaseException) -> list[str]:
    """Return the last frames of an exception in its author's files, outermost first.

    Files of Python, of installed distributions and of this package are left out. An exception that passed
    through no other file gives the last frames that are outside this package, whoever wrote them.
    """
    passed = [each for each in traceback.extract_tb(error.__traceback__) if not _is_own(each.filename)]
    written = [each for each in passed if not _is_installed(each.filename)]
    kept = (written or passed)[-MAX_FRAMES:]
    return [
        f"{each.filename}:{each.lineno} in {each.name}: {each.line or ''}"[:MAX_LINE_CHARS].rstrip(": ")
        for each in kept
    ]


def _trim(error: BaseException) -> None:
    """Leave out of an exception what this package did before it called the author's code."""
    start = error.__traceback__
    while start is not None and _is_own(start.tb_frame.f_code.co_filename):
        start = start.tb_next
    error.__traceback__ = start or error.__traceback__
    # What only this package was handling says nothing to the author.
    context = error.__context__
    if context is not None and all(
        _is_own(each.filename) for each in traceback.extract_tb(context.__traceback__)
    ):
        error.__context__ = None


def _is_own(filename: str) -> bool:
    return OURS.hold(filename)


def _is_installed(filename: str) -> bool:
    return filename.startswith(("<frozen ", _LIBRARY)) or any(each in filename for each in _INSTALLED)
