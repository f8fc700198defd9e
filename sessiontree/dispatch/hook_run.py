"""Runs one hook so that its failure affects nothing else, and checks its answer.

Every exception of a hook is caught where the hook runs. A plain function runs in its own daemon thread, so
that a hanging one blocks neither other work nor the end of the process. Only a few runs of a hook may hang at
once. The types, size and depth of an answer are checked before it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

from sessiontree.contracts.errors import ExecutionError, describe_error
from sessiontree.contracts.recorded.results import Artifact, ArtifactKind, make_error_message
from sessiontree.contracts.tools.author_errors import report_error
from sessiontree.contracts.tools.hooks import (
    BlockCall,
    Hook,
    HookContext,
    HookPoint,
    KeptResult,
    can_handle,
    get_hook_name,
)
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent, TextContent
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_HANGING = 4
"""Most hanging runs of a hook at one point; further runs fail at once until one returns."""
MAX_WORDS = 300


@dataclass(frozen=True, slots=True)
class HookFault:
    """One failure of one hook."""

    hook: str
    point: HookPoint
    reason: str


class HookError(Exception):
    """A hook failed; the text says how."""


@dataclass(frozen=True, slots=True)
class _Made:
    value: object
    error: BaseException | None


class HookRun:
    """One hook at one point, in one session's host."""

    def __init__(self, hook: Hook, point: HookPoint) -> None:
        self._hook = hook
        self.point = point
        self.name = get_hook_name(hook)
        self.guards = hook.on_error == "block"
        """Whether a failure of the hook blocks what it guards."""
        self.hanging = 0
        """Runs that exceeded their time limit and have not returned."""

    async def run(self, *given: object) -> object:
        """Run the hook and return its answer.

        Raises:
            HookError: the hook raised, took too long, or has too many hanging runs. The text quotes the
                hook's exception only before a call: after it, the exception could contain parts of a result.
        """
        if self.hanging >= MAX_HANGING:
            raise HookError(f"{self.hanging} earlier runs of it still hang")
        function: Callable[..., Any] = getattr(self._hook, self.point)
        given = tuple(replace(each) if isinstance(each, HookContext) else each for each in given)
        work: asyncio.Future[_Made]
        if inspect.iscoroutinefunction(function):
            work = asyncio.ensure_future(_await_hook(function, given))
        else:
            work = _run_in_thread(function, given, self.name)
        try:
            done, _ = await asyncio.wait({work}, timeout=self._hook.timeout_s)
        except asyncio.CancelledError:
            self._leave(work)
            raise
        if not done:
            self._leave(work)
            raise HookError(f"it did not answer within {self._hook.timeout_s} s")
        made = work.result()
        if made.error is not None:
            quotes = self.point == "before_tool_call"
            reason = _describe_error(made.error, tells=quotes)
            report_error(f"hook {self.name!r} at {self.point}", made.error, reason, quotes=quotes)
            raise HookError(reason)
        return made.value

    def fault(self, error: HookError) -> HookFault:
        """Return a failure as a value."""
        return HookFault(self.name, self.point, str(error))

    def _leave(self, work: asyncio.Future[_Made]) -> None:
        """Abandon a run; a coroutine is cancelled, a thread can't be."""
        if work.done():
            return
        self.hanging += 1
        work.add_done_callback(self._on_returned)
        if isinstance(work, asyncio.Task):
            work.cancel()

    def _on_returned(self, work: asyncio.Future[_Made]) -> None:
        self.hanging -= 1


def select_runs(hooks: Iterable[Hook], point: HookPoint) -> list[HookRun]:
    """Return the hooks that run at a point, in order."""
    return [HookRun(hook, point) for hook in hooks if can_handle(hook, point)]


async def look_all(runs: Iterable[HookRun], given: Callable[[], tuple[object, ...]]) -> tuple[HookFault, ...]:
    """Show a value to hooks that only observe; they run in parallel, because nothing depends on them.

    Args:
        runs: The hooks.
        given: Makes the arguments of one hook, as a separate copy.
    """
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(_look(run, given())) for run in runs]
    faults = [look.result() for look in looks]
    return tuple(fault for fault in faults if fault is not None)


async def _look(run: HookRun, given: tuple[object, ...]) -> HookFault | None:
    try:
        answer = await run.run(*given)
        if answer is not None:
            raise HookError(f"it returned {type(answer).__name__}; it may only look")
    except HookError as error:
        return run.fault(error)
    return None


def _describe_error(error: BaseException, *, tells: bool) -> str:
    name = type(error).__name__[:MAX_WORDS]
    if not tells:
        return f"it raised {name}"
    try:
        return f"it raised {describe_error(error)[:MAX_WORDS]}"
    except BaseException:  # noqa: BLE001 - an exception's text is its author's code, too
        return f"it raised {name}"


async def _await_hook(function: Callable[..., Any], given: tuple[object, ...]) -> _Made:
    try:
        return _Made(await function(*given), None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a hook may raise anything, SystemExit too
        return _Made(None, error)


def _run_in_thread(
    function: Callable[..., Any], given: tuple[object, ...], name: str
) -> asyncio.Future[_Made]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Made] = loop.create_future()
    context = contextvars.copy_context()

    def call() -> None:
        try:
            made = _Made(context.run(function, *given), None)
        except BaseException as error:  # noqa: BLE001 - a hook may raise anything; its thread ends with it
            made = _Made(None, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            loop.call_soon_threadsafe(_settle, future, made)

    threading.Thread(target=call, name=f"hook {name}", daemon=True).start()
    return future


def _settle(future: asyncio.Future[_Made], made: _Made) -> None:
    if not future.done():
        future.set_result(made)


MAX_CHARS = 1_000_000
"""Most characters of the parameters or the result that a hook gives, and most it may add to what is kept."""
MAX_REASON = 2_000
MAX_DEPTH = 100
MAX_BLOCKS = 1_000
MAX_INT_BITS = 4_096
"""Longer numbers can't be written as JSON."""
_NODE = 8
_KINDS = get_args(ArtifactKind)


def copy_json(value: object, most: int) -> tuple[JsonValue, int]:
    """Return a separate copy of a JSON value, and its approximate size in characters.

    Raises:
        HookError: the value is larger than ``most``, nested too deeply, or not JSON.
    """
    left = most

    def copy_value(value: object, depth: int) -> JsonValue:
        nonlocal left
        left -= len(value) if isinstance(value, str) else _NODE
        if left < 0 or depth > MAX_DEPTH:
            what = "larger than a hook may give" if left < 0 else "nested too deeply"
            raise HookError(f"what it returned is {what}")
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, int) and value.bit_length() <= MAX_INT_BITS:
            left -= value.bit_length() // 3
            return value
        if isinstance(value, list | tuple):
            return [copy_value(item, depth + 1) for item in value]
        if isinstance(value, Mapping):
            return {
                _check_key(copy_value(key, depth + 1)): copy_value(item, depth + 1)
                for key, item in value.items()
            }
        raise HookError(f"what it returned holds a {type(value).__name__} without a JSON form")

    return copy_value(value, 0), most - left


def _check_key(key: JsonValue) -> str:
    if not isinstance(key, str):
        raise HookError(f"what it returned has {key!r} as a key; keys are text")
    return key


def measure_size(kept: KeptResult) -> int:
    """Return the approximate number of characters of a result."""
    return _measure_texts(_list_texts(kept)) + _measure_json(kept.details)


def _measure_json(value: JsonValue) -> int:
    """Return the approximate number of characters of a value that was already kept."""
    total, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        total += len(item) if isinstance(item, str) else _NODE
        if isinstance(item, Mapping):
            waiting.extend(item.values())
            total += _measure_texts(item)
        elif isinstance(item, list):
            waiting.extend(item)
    return total


def _measure_texts(texts: Iterable[str]) -> int:
    return sum(_NODE + len(text) for text in texts)


def _list_texts(kept: KeptResult) -> Iterable[str]:
    for block in kept.content:
        yield from (block.text,) if isinstance(block, TextContent) else (block.data, block.mime_type)
    for artifact in kept.artifacts:
        for text in (artifact.description, artifact.path, artifact.uri, artifact.data):
            if text is not None:
                yield text


def apply_rewrite(kept: KeptResult, answer: object) -> KeptResult:
    """Return a kept result after a hook rewrote it.

    Raises:
        HookError: the hook returned no KeptResult, or one with parts that can't be kept or are too large.
    """
    if not isinstance(answer, KeptResult):
        raise HookError(f"it returned {type(answer).__name__} instead of a KeptResult")
    parts: tuple[tuple[object, Callable[[object], bool]], ...] = (
        (answer.content, _is_block),
        (answer.artifacts, _is_artifact),
    )
    for part, is_whole in parts:
        if not isinstance(part, tuple) or len(part) > MAX_BLOCKS or not all(map(is_whole, part)):
            raise HookError("it returned content or artifacts that are not what they should be")
    if any(isinstance(block, ImageContent) and block not in kept.content for block in answer.content):
        raise HookError("it returned an image the result did not have; images are made fit before")
    most = measure_size(kept) + MAX_CHARS
    size = _measure_texts(_list_texts(answer))
    details, _ = copy_json(answer.details, most - size)
    return replace(kept, content=answer.content, artifacts=answer.artifacts, details=details)


def _is_block(block: object) -> bool:
    if isinstance(block, TextContent):
        return isinstance(block.text, str)
    return (
        isinstance(block, ImageContent) and isinstance(block.data, str) and isinstance(block.mime_type, str)
    )


def _is_artifact(artifact: object) -> bool:
    if not isinstance(artifact, Artifact) or artifact.kind not in _KINDS:
        return False
    optional = (artifact.path, artifact.uri, artifact.data)
    return isinstance(artifact.description, str) and all(
        each is None or isinstance(each, str) for each in optional
    )


def check_text(answer: object, what: str, before: int) -> str:
    """Check the text that a hook returned and return it.

    Args:
        answer: What the hook returned.
        what: What the text is, for the error.
        before: Number of characters of the text that it replaces.

    Raises:
        HookError: it is not text, is blank, or is too long.
    """
    if type(answer) is not str:  # a subclass of str could give another text each time it is read
        raise HookError(f"its {what} is {type(answer).__name__} instead of text")
    if len(answer) > before + MAX_CHARS:
        raise HookError(f"its {what} is larger than a hook may give")
    if not answer.strip():
        raise HookError(f"its {what} is blank")
    return answer


def explain_block(block: BlockCall) -> str:
    """Return why a hook blocks something; if it gives no reason, a text that says so.

    Raises:
        HookError: the reason is not text.
    """
    if not isinstance(block.reason, str):
        raise HookError(f"its reason is {type(block.reason).__name__} instead of text")
    return block.reason[:MAX_REASON] if block.reason.strip() else BlockCall().reason


def withhold(kept: KeptResult, hook: str, reason: str) -> KeptResult:
    """Return what is kept in place of a result whose guard failed."""
    words = f"the call is over, but its result is withheld: hook {hook!r} failed, {reason}"
    message = make_error_message(kept.call_id, kept.tool, ExecutionError(words), 0)
    return KeptResult(kept.call_id, kept.tool, message.content, message.details, is_error=True)
