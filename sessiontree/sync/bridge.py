"""Calls of one tree or runtime cross from a thread to the loop, and questions to people come back.

``input()``, a debugger and a notebook's cell work on the thread that called, not on the loop's thread. So a
question to a person waits until a call blocks; that call's thread asks it and then continues to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from inspect import isawaitable, iscoroutine
from typing import Any, TypeAlias, TypeVar

from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.sync.portal import (
    PORTAL,
    CallFuture,
    InterruptibleCondition,
    Lease,
    ended,
    make_not_open_error,
)

LOOK_S = 1.0
"""The longest single wait: an interrupt just before a wait begins is noticed only after it."""

Question: TypeAlias = Callable[[ApprovalRequest], Any]


class Prompt:
    """One question to a person, asked by a thread. Compared by identity."""

    def __init__(self, question: Question, request: Any) -> None:
        """Bind to the running loop, where the answer is awaited."""
        self._question = question
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        self.thread = 0
        """The id of the thread that asks it; 0 = none."""
        self.is_answered = False
        self.is_withdrawn = False

    def put(self) -> None:
        """Ask on this thread.

        Raises:
            KeyboardInterrupt, SystemExit: the person wants to stop, and gave no answer.
        """
        answer, failure = None, None
        try:
            answer = self._question(self._request)
        # Not an answer: the question goes back and is asked again by the next thread that waits.
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            failure = error
        # Before the hand-over: an interrupt between the two lines must not have the person asked a second
        # time.
        self.is_answered = True
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits for the answer
            self._loop.call_soon_threadsafe(self._settle, answer, failure)

    def _settle(self, answer: Any, failure: BaseException | None) -> None:
        # The question may have been withdrawn while the answer was on its way to the loop.
        if not self._outcome.done():
            self._outcome.set_result((answer, failure))
        elif iscoroutine(answer):
            # Nobody will await it, and Python would complain about a coroutine that was never run.
            answer.close()

    async def answer(self) -> Any:
        """Return the answer, or raise the exception of the question."""
        answer, failure = await self._outcome
        if failure is not None:
            raise failure
        return await answer if isawaitable(answer) else answer


class Prompts:
    """The questions of one tree, asked one at a time, in order.

    A question may itself use the tree: questions that come meanwhile are asked within it, on its thread.
    """

    def __init__(self) -> None:
        """Begin with no question."""
        self._news = InterruptibleCondition()
        self._waiting: deque[Prompt] = deque()
        self._asked: list[Prompt] = []

    async def ask(
        self, question: Question, request: Any, on_withdrawn: Callable[[], None] | None = None
    ) -> Any:
        """Let a blocked thread ask a question, and wait for the answer.

        Args:
            question: Called on that thread. If it returns an awaitable, that is awaited here.
            request: The argument of the question.
            on_withdrawn: Called on the loop if the question is cancelled while it is being asked.
        """
        prompt = Prompt(question, request)
        # The loop adds questions and threads take them, so both hold the same lock for a moment.
        with self._news:
            self._waiting.append(prompt)
            self._news.notify_all()
        try:
            return await prompt.answer()
        except asyncio.CancelledError:
            if self._withdraw(prompt) and on_withdrawn is not None:
                on_withdrawn()
            raise

    def _withdraw(self, prompt: Prompt) -> bool:
        """Withdraw a question; return whether a thread is asking it now."""
        with self._news:
            prompt.is_withdrawn = True
            if prompt in self._waiting:
                self._waiting.remove(prompt)
            # Looked at under the lock: a thread that takes questions now has either taken this one, or finds
            # it gone.
            return prompt in self._asked and not prompt.is_answered

    def serve_until(self, future: Future[Any]) -> None:
        """Block until a future is done, and meanwhile ask questions on this thread.

        Raises:
            KeyboardInterrupt, SystemExit: a question raised it, or the wait was interrupted. An unanswered
                question is asked again.
        """
        future.add_done_callback(self._wake)
        while True:
            taken: list[Prompt] = []
            try:
                self._take(future, taken)
                if not taken:
                    return
                taken[0].put()
            finally:
                self._give_back(taken)

    def _wake(self, _: Future[Any]) -> None:
        with self._news:
            self._news.notify_all()

    def _take(self, future: Future[Any], taken: list[Prompt]) -> None:
        """Wait for a question that this thread may ask, or for the future; add the question to ``taken``.

        The caller puts the questions of its list back, so an interrupt at any point loses none.
        """
        here = threading.get_ident()
        with self._news:
            while not future.done():
                # Two threads must not ask at once, but a question that itself uses the tree may lead to
                # another one within it.
                if self._waiting and all(prompt.thread == here for prompt in self._asked):
                    prompt = self._waiting[0]
                    prompt.thread = here
                    # In the caller's list first: from here on an interrupt at any line finds the question and
                    # puts it back.
                    taken.append(prompt)
                    self._asked.append(prompt)
                    self._waiting.popleft()
                    return
                # Not without a limit: an interrupt just before a wait begins is noticed only at its end.
                self._news.wait(LOOK_S)

    def _give_back(self, taken: list[Prompt]) -> None:
        if not taken:
            return
        with self._news:
            for prompt in taken:
                if prompt in self._asked:
                    self._asked.remove(prompt)
                # An interrupt may have come between the two lists, when the question is in both.
                if not (prompt.is_answered or prompt.is_withdrawn or prompt in self._waiting):
                    self._waiting.appendleft(prompt)
            self._news.notify_all()


T = TypeVar("T")
LAST_WAITS_S = 1.0
"""How long the waiting calls of a closed tree may take to end by themselves, before they are cancelled."""


class LoopBridge:
    """The calls of one tree or runtime to the loop; refused before :meth:`open` and after :meth:`close`."""

    def __init__(self) -> None:
        """Begin closed."""
        self.prompts = Prompts()
        self._lease: Lease | None = None
        self._waits: set[Future[Any]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def open(self, close: Callable[[], Any]) -> bool:
        """Take a lease; return False if there is one already.

        Args:
            close: Closes the tree or runtime, on the loop.

        Raises:
            ConfigError: called on the loop itself.
        """
        if self._lease is not None:
            return False
        self._closing = False
        self._lease = PORTAL.lease(lambda: self._end(close))
        return True

    @property
    def is_open(self) -> bool:
        """Whether calls are possible."""
        return self._lease is not None and not self._closing

    def run(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Call a function on the loop and return its result; no question is asked meanwhile.

        Raises:
            SessionTreeError: the tree is not open, or the loop has ended.
            ConfigError: called on the loop itself, or in a forked process.
        """
        lease = self._require_lease()
        with PORTAL.in_use(lease):
            future = lease.submit(function, *given, **named)
            try:
                return _await_outcome(future)
            except BaseException:
                # The call goes on on the loop although nobody waits, so its task is asked to end, too.
                future.cancel()
                raise

    def wait(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        """Call a function on the loop and wait for its result; meanwhile this thread asks questions.

        An interrupt ends the wait and cancels only the function's task.

        Raises:
            SessionTreeError: the tree is not open or was closed meanwhile, or the loop has ended.
            ConfigError: called on the loop itself, or in a forked process.
        """
        lease = self._require_lease()
        with PORTAL.in_use(lease):
            future = lease.submit(function, *given, **named)
            self._waits.add(future)
            try:
                self.prompts.serve_until(future)
                return future.result()
            except CancelledError:
                # The loop cancels waiting calls for two reasons, and the caller must know whether the tree
                # can be opened again here.
                raise make_not_open_error() if self._closing else ended() from None
            except BaseException:
                future.cancel()
                raise
            finally:
                self._waits.discard(future)

    def close(self) -> None:
        """Close the tree or runtime and release the lease. May be repeated, also in a forked child.

        It closes even if the call is interrupted; the next call then releases the lease.

        Raises:
            ConfigError: called on the loop itself.
        """
        lease = self._lease
        if lease is None:
            return
        if not lease.is_forked:
            PORTAL.check_thread()
            try:
                with PORTAL.in_use(lease):
                    _await_outcome(lease.submit(lease.close))
            except Exception:
                # Asked before the lease is given back, which would answer both questions with no.
                is_news = lease.thread.is_running and PORTAL.holds(lease)
                self._give_back(lease)
                if is_news:  # otherwise another thread closed it, or its loop has ended
                    raise
                return
        self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        self._lease = None
        PORTAL.release(lease)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Cancel a task of the loop when the tree closes."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_unless_closed(self, waiting: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait, on the loop, for something that does not end by itself when the tree closes.

        Raises:
            SessionTreeError: the tree was closed meanwhile.
        """
        task = asyncio.create_task(waiting())
        self.keep(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._closing:
                raise make_not_open_error() from None
            raise

    async def _end(self, close: Callable[[], Any]) -> None:
        self._closing = True
        # Before the tree closes, because these wait for things that a closed tree never does.
        for task in list(self._tasks):
            task.cancel()
        await close()
        # After the tree has closed: most waits end by that, with an error that says more than a cancellation.
        waits = [asyncio.wrap_future(future) for future in list(self._waits) if not future.done()]
        if waits:
            done, late = await asyncio.wait(waits, timeout=LAST_WAITS_S)
            for wait in done:
                wait.cancelled() or wait.exception()  # its own thread raises it
            for wait in late:
                wait.cancel()

    def _require_lease(self) -> Lease:
        if self._lease is None:
            raise make_not_open_error()
        return self._lease


def _await_outcome(future: CallFuture[Any]) -> Any:
    try:
        while not future.done():
            future.wait(LOOK_S)
        return future.result()
    except CancelledError:
        raise ended() from None
    finally:
        del future  # its exception holds this frame
