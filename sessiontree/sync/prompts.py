"""Questions to people, asked on threads that block in a tree, because only there can a person be met.

``input()``, a debugger and a notebook's cell work on the thread that called, not on the loop's. So a question
waits until a call blocks, and that call's thread asks it before it goes on waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from inspect import isawaitable, iscoroutine
from typing import Any, TypeAlias

from sessiontree.contracts.approvals import ApprovalRequest
from sessiontree.sync.interrupts import InterruptibleCondition

LOOK_S = 1.0
"""Longest wait at a stretch: an interrupt in the very instant before one begins is noticed only after it."""

Question: TypeAlias = Callable[[ApprovalRequest], Any]


class Prompt:
    """One question on its way to a thread and back. Compared by identity."""

    def __init__(self, question: Question, request: ApprovalRequest) -> None:
        """Bind to the running loop, where the answer is awaited."""
        self._question = question
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        self.thread = 0
        """Where it is asked."""
        self.is_answered = False
        self.is_withdrawn = False

    def put(self) -> None:
        """Ask on this thread.

        Raises:
            KeyboardInterrupt, SystemExit: the person wants to stop, and has answered nothing.
        """
        answer, failure = None, None
        try:
            answer = self._question(self._request)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            failure = error
        self.is_answered = True
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile: nobody wants to know
            self._loop.call_soon_threadsafe(self._settle, answer, failure)

    def _settle(self, answer: Any, failure: BaseException | None) -> None:
        if not self._outcome.done():
            self._outcome.set_result((answer, failure))
        elif iscoroutine(answer):
            answer.close()

    async def answer(self) -> Any:
        """Return the answer; whatever the question raised is raised here."""
        answer, failure = await self._outcome
        if failure is not None:
            raise failure
        return await answer if isawaitable(answer) else answer


class Prompts:
    """The questions of one tree. One is asked at a time, in the order they came.

    A question may itself use the tree: what its thread is asked meanwhile is asked there, within it.
    """

    def __init__(self) -> None:
        """Begin with no question."""
        self._news = InterruptibleCondition()
        self._waiting: deque[Prompt] = deque()
        self._asked: list[Prompt] = []

    async def ask(
        self, question: Question, request: ApprovalRequest, on_withdrawn: Callable[[], None] | None = None
    ) -> Any:
        """Have a question asked by a thread that blocks; waits until there is one.

        Args:
            question: Called on that thread. Where it returns something awaitable, that is awaited here.
            request: What it is given.
            on_withdrawn: Called on the loop if the question is cancelled while it is being asked.
        """
        prompt = Prompt(question, request)
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
        """Take a question back; return whether somebody is being asked it just now."""
        with self._news:
            prompt.is_withdrawn = True
            if prompt in self._waiting:
                self._waiting.remove(prompt)
            return prompt in self._asked and not prompt.is_answered

    def serve_until(self, future: Future[Any]) -> None:
        """Block until a future is done, asking meanwhile on this thread what is to be asked.

        Raises:
            KeyboardInterrupt, SystemExit: a question ended so, or the waiting; what was not answered is to
                be asked again.
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
        """Wait for a question that this thread may ask, or for the future; put the question into ``taken``.

        Written into a list of the caller's: an interrupt at any point leaves nothing that is not put back.
        """
        here = threading.get_ident()
        with self._news:
            while not future.done():
                if self._waiting and all(prompt.thread == here for prompt in self._asked):
                    prompt = self._waiting[0]
                    prompt.thread = here
                    taken.append(prompt)
                    self._asked.append(prompt)
                    self._waiting.popleft()
                    return
                self._news.wait(LOOK_S)

    def _give_back(self, taken: list[Prompt]) -> None:
        if not taken:
            return
        with self._news:
            for prompt in taken:
                if prompt in self._asked:
                    self._asked.remove(prompt)
                if not (prompt.is_answered or prompt.is_withdrawn or prompt in self._waiting):
                    self._waiting.appendleft(prompt)
            self._news.notify_all()
