"""What one session is going to hear, in order.

Stimuli of this host come first: outcomes of calls, replies of a model in this process. Then come those that
the supervisor fed. Interceptors may have to admit a message or a reply; what was fed after it waits, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeGuard

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.runtime.runner.interceptors import Interceptor
from sessiontree.runtime.runner.session_tasks import SessionTasks
from sessiontree.session.state import SessionState


def _is_report(stimulus: Stimulus) -> TypeGuard[stimuli.Incoming]:
    """Whether a stimulus is a child's report."""
    return type(stimulus) is stimuli.Incoming and stimulus.origin == "child"


class InputQueue:
    """The stimuli that wait for one session.

    Args:
        state: The session's state, only read here.
        tasks: Where interceptors admit stimuli.
        interceptors: Those that stimuli pass; empty = all pass at once.
        wake: Called when stimuli were queued outside the session's driver.
    """

    def __init__(
        self,
        state: SessionState,
        tasks: SessionTasks,
        interceptors: Sequence[Interceptor],
        wake: Callable[[], None],
    ) -> None:
        self._state = state
        self._tasks = tasks
        self._interceptors = interceptors
        self.wake = wake
        """Makes the driver take what was queued, if it does not run."""
        self._own: deque[tuple[str, Stimulus]] = deque()
        """Those of this host."""
        self._fed: deque[tuple[str, Stimulus, bool]] = deque()
        """Those that were fed, and whether each counts as accepted once it is taken."""
        self._held: deque[tuple[str, Stimulus]] = deque()
        """Those that wait for interceptors; the first one is being admitted."""
        self._admission: asyncio.Task[None] | None = None
        self.accepted = 0
        """How many stimuli of the supervisor were taken so far."""

    def __bool__(self) -> bool:
        """Whether a stimulus can be taken."""
        return bool(self._own or self._fed)

    @property
    def has_input(self) -> bool:
        """Whether a stimulus that was fed can be taken."""
        return bool(self._fed)

    @property
    def is_holding(self) -> bool:
        """Whether stimuli wait for interceptors."""
        return bool(self._held)

    def add(self, cause: str, stimulus: Stimulus) -> None:
        """Queue a stimulus that no interceptor sees and that does not count, behind those that were fed."""
        self._fed.append((cause, stimulus, False))

    def feed(self, causes: Sequence[str], given: Sequence[Stimulus]) -> None:
        """Queue stimuli of the supervisor; those that interceptors must admit delay all that follow them.

        A cancellation does not wait. It also queues the delayed stimuli, which interceptors do not see.
        """
        if self._tasks.over:
            return
        for cause, stimulus in zip(causes, given, strict=True):
            if self._interceptors and isinstance(stimulus, stimuli.CancelAsked):
                self._fed.append((cause, stimulus, True))
                if self._admission is not None:
                    self._admission.cancel()
                    self._admission = None
                self._fed.extend((held_by, held, True) for held_by, held in self._held)
                self._held.clear()
            elif self._held or (self._interceptors and self._is_intercepted(stimulus)):
                self._held.append((cause, stimulus))
            else:
                self._fed.append((cause, stimulus, True))
        if self._held and self._admission is None:
            self._admission = self._tasks.begin(self._admit_held)
        self.wake()

    def put(self, cause: str, stimulus: Stimulus) -> None:
        """Queue a stimulus of this host; for the driver, which takes it next."""
        self._own.append((cause, stimulus))

    def put_admitted(self, cause: str, first: Stimulus, *others: Stimulus) -> None:
        """Queue stimuli of this host: the first one as interceptors leave it, the others behind it."""
        if self._interceptors and self._is_intercepted(first):
            self._tasks.begin(partial(self._admit_own, cause, first, *others))
        else:
            self._own.append((cause, first))
            for each in others:
                self._own.append((cause, each))

    def post(self, cause: str, *given: Stimulus) -> None:
        """Queue stimuli of this host that come from outside its driver; without effect once it is over."""
        if not self._tasks.over:
            self._own.extend([(cause, each) for each in given])
            self.wake()

    def post_admitted(self, cause: str, news: Sequence[Stimulus]) -> None:
        """Queue stimuli that come from outside the driver, the first one as interceptors leave it."""
        if not self._tasks.over:
            self.put_admitted(cause, *news)
            self.wake()

    def take(self) -> tuple[str, Stimulus] | None:
        """Remove and return the next stimulus with its cause; None if no stimulus can be taken now."""
        if self._own:
            return self._own.popleft()
        if not self._fed:
            return None
        cause, stimulus, counts = self._fed.popleft()
        if counts:
            self.accepted += 1
        if _is_report(stimulus) and self._is_report_next:
            stimulus = replace(stimulus, followed=True)
        return cause, stimulus

    @property
    def _is_report_next(self) -> bool:
        """Whether the next input, admitted or not, is a child's report that the session will take in."""
        if self._fed:
            following = self._fed[0][1]
        elif self._held:
            following = self._held[0][1]
        else:
            return False
        return _is_report(following) and following.message_id not in self._state.heard

    def _is_intercepted(self, stimulus: Stimulus) -> bool:
        return any(each.must_admit(stimulus) for each in self._interceptors)

    async def _admit_held(self) -> None:
        while self._held:
            first = self._held[0]
            cause, stimulus = first
            for interceptor in self._interceptors:
                stimulus = await interceptor.admit(stimulus)
            # A cancellation of the session queues what is held and cancels this task. An interceptor may have
            # swallowed that; the stimulus was then queued already.
            if not self._held or self._held[0] is not first:
                return
            self._held.popleft()
            self._fed.append((cause, stimulus, True))
            self.wake()
        self._admission = None

    async def _admit_own(self, cause: str, first: Stimulus, *others: Stimulus) -> None:
        for interceptor in self._interceptors:
            first = await interceptor.admit(first)
        self.post(cause, first, *others)
