"""When a process asks a provider: how many questions at a time and per minute, over all sessions and trees.

Questions are admitted first come, first served. If a provider asks for a pause, no question with that key is
sent until the pause ends. If a provider fails several times in a row, questions fail at once for a while.
Then one question tries it, and the others wait for what becomes of that one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from hashlib import sha256
from typing import Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

from sessiontree.contracts.errors import ConfigError, ModelUnreachable
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.models.held_questions import NOTE_HELD

MINUTE_S: Final = 60.0
MAX_PAUSE_S: Final = 120.0
"""Maximum pause, in seconds, that a provider may ask for."""
FAILURES_IN_A_ROW: Final = 5
"""After this many failures in a row, a provider is not asked for a while."""
FIRST_REST_S: Final = 10.0
"""Seconds for which a provider that failed so often is not asked; doubled with each attempt that fails."""
MAX_REST_S: Final = 120.0

Ended: TypeAlias = Literal["answered", "failed", "unknown"]
"""How a question ended: the provider did its work, it failed in a way that may pass, or it was withdrawn."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits on questions to one provider with one key; None = no limit."""

    at_once: int | None = None
    """Maximum number of questions in progress at a time."""
    per_minute: int | None = None
    """Maximum number of questions that begin within any 60 s."""

    def __post_init__(self) -> None:
        """Accept whole numbers above 0.

        Raises:
            ConfigError: a limit is another value.
        """
        for name, value in (("at_once", self.at_once), ("per_minute", self.per_minute)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ConfigError(f"CallLimits: {name} is {value!r}; give a whole number above 0, or None")

    def joined(self, other: CallLimits) -> CallLimits:
        """Return the stricter limits of these and ``other``."""
        return CallLimits(
            _choose_least(self.at_once, other.at_once), _choose_least(self.per_minute, other.per_minute)
        )


def _choose_least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


class CallQueue:
    """Questions to one provider with one key, on one event loop.

    Args:
        window_s: Seconds within which ``per_minute`` questions may begin.
        provider: Its name in errors.
        rest_s: Seconds for which it is not asked after it failed several times in a row.
    """

    def __init__(
        self, window_s: float = MINUTE_S, provider: str = "the provider", rest_s: float = FIRST_REST_S
    ) -> None:
        self.limits = CallLimits()
        self._provider = provider
        self._first_rest_s = self._rest_s = rest_s
        self._failures = 0
        self._rests_until_s: float | None = None
        """When one question may try the provider again; None = it is asked as usual."""
        self._is_trying = False
        """Whether that question is under way."""
        self._window_s = window_s
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._begun_s: deque[float] = deque()
        self._running = 0
        self._paused_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> bool:
        """Wait for a question's turn; :meth:`leave` ends it.

        Returns:
            Whether this question tries a provider that has failed.

        Raises:
            ModelUnreachable: the provider failed several times in a row; says when it will be tried again.
        """
        loop = asyncio.get_running_loop()
        # Refused at once instead of waiting: a fallback model can be asked now.
        if self._rests_until_s is not None and loop.time() < self._rests_until_s:
            raise self._make_resting_error(loop.time())
        turn: asyncio.Future[bool] = loop.create_future()
        # Also a question that could begin at once goes through the line, so that none overtakes another.
        self._waiting.append(turn)
        self._advance()
        if turn.done():
            return turn.result()
        note = NOTE_HELD.get()
        note(True)
        try:
            return await turn
        except asyncio.CancelledError:
            # It may have been admitted at this very moment.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave("unknown", tries=turn.result())
            raise
        finally:
            note(False)

    def leave(self, ended: Ended = "unknown", *, tries: bool = False) -> None:
        """End a question.

        Args:
            ended: What became of it.
            tries: What :meth:`enter` returned.
        """
        self._running -= 1
        if tries:
            self._is_trying = False
        if ended == "answered":
            self._failures, self._rests_until_s, self._rest_s = 0, None, self._first_rest_s
        elif ended == "failed":
            self._failures += 1
            if tries or (self._rests_until_s is None and self._failures >= FAILURES_IN_A_ROW):
                self._rest()
        self._advance()

    def _rest(self) -> None:
        """Ask the provider nothing for a while; fail whoever waits for it."""
        now_s = asyncio.get_running_loop().time()
        self._rests_until_s = now_s + self._rest_s
        self._rest_s = min(2 * self._rest_s, MAX_REST_S)
        # They would wait for a provider that does not answer, each until its own time is up.
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(self._make_resting_error(now_s))
        self._waiting.clear()

    def _make_resting_error(self, now_s: float) -> ModelUnreachable:
        wait_s = max(0.0, (self._rests_until_s or now_s) - now_s)
        return ModelUnreachable(
            f"{self._provider} was not asked, because it has failed {self._failures} times in a row; the "
            f"next attempt is possible in {wait_s:.1f} s",
            retry_after_s=wait_s,
        )

    def pause(self, seconds: float) -> None:
        """Admit no question for some time, at most two minutes."""
        now_s = asyncio.get_running_loop().time()
        self._paused_until_s = max(self._paused_until_s, now_s + min(seconds, MAX_PAUSE_S))

    def _advance(self) -> None:
        # One timer at a time, for the first who waits; its time is computed again below.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._waiting:
            if self._waiting[0].done():  # the waiting question was cancelled
                self._waiting.popleft()
                continue
            if self.limits.at_once is not None and self._running >= self.limits.at_once:
                return
            if self._is_trying:
                return  # that question decides
            now_s = loop.time()
            wait_s = self._wait_s(now_s)
            if wait_s > 0:
                self._timer = loop.call_later(wait_s, self._advance)
                return
            self._running += 1
            self._begun_s.append(now_s)
            # Set with the admission, before anything is awaited: two questions must not both be the one that
            # tries.
            self._is_trying = self._rests_until_s is not None
            self._waiting.popleft().set_result(self._is_trying)

    def _wait_s(self, now_s: float) -> float:
        """Return how long no question may begin, in seconds."""
        while self._begun_s and self._begun_s[0] <= now_s - self._window_s:
            self._begun_s.popleft()
        wait_s = self._paused_until_s - now_s
        most = self.limits.per_minute
        if most is not None and len(self._begun_s) >= most:
            wait_s = max(wait_s, self._begun_s[-most] + self._window_s - now_s)
        return wait_s


_QUEUES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], CallQueue]] = WeakKeyDictionary()


def get_queue(system: str, key: str | None, limits: CallLimits, window_s: float = MINUTE_S) -> CallQueue:
    """Return the queue for this system and key on this loop; the strictest limits of its users apply.

    Its first user decides the seconds within which ``per_minute`` questions may begin.
    """
    here = _QUEUES.setdefault(asyncio.get_running_loop(), {})
    place = (system, sha256((key or "").encode()).hexdigest())
    queue = here.setdefault(place, CallQueue(window_s, system))
    queue.limits = queue.limits.joined(limits)
    return queue
