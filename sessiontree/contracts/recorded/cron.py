"""Timed jobs: what a job is, how one is asked for, what became of its times, and the handle for them.

A job's times are called slots. Every time here is in milliseconds since 1970 by the machine's clock, not by
the tree's: a job is for a time of day, and the machine's clock may be set.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.codec import register_kind
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.settings import Budget
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_JOBS: Final = 32
"""Most jobs of one tree, including those that are over."""
MAX_JOB_CHARS: Final = 8_000
"""Most characters of a job's text."""
MAX_NAME_CHARS: Final = 120
MIN_EVERY_S: Final = 60.0
"""Shortest time between two slots of a job, in seconds; an expression has no seconds either."""
MAX_AHEAD_S: Final = 10 * 366 * 86_400.0
"""Furthest time, and longest interval, of a job in seconds."""
KEPT_RUNS: Final = 50
"""How many of the newest runs and skips a job's history shows; the journal has all of them."""

JobTarget: TypeAlias = Literal["main", "session"]
"""``main``: the text goes to Main as a message; ``session``: it is the task of a new session."""
CatchUp: TypeAlias = Literal["once", "skip"]
"""What happens to slots that were missed while nothing could run them: the newest runs once, or none does."""
CronStatus: TypeAlias = Literal["active", "paused", "over"]
"""``over``: no slot will come; its only time has passed, or its last day."""
SlotEnd: TypeAlias = Literal["missed", "paused", "busy", "expired", "refused"]
"""Why a slot did not run: nothing could run it in time, the job was paused, its previous run was still going,
the job's last day had passed, or no session could be started."""
SlotCause: TypeAlias = Literal["due", "catch_up", "manual"]
"""Why a run began: its slot came, its slot was missed and is made up for, or somebody asked."""


@register_kind("cron_job")
@dataclass(frozen=True, slots=True)
class CronJob:
    """One timed job of a tree. It has exactly one of ``once_ms``, ``every_ms`` and ``expression``."""

    job_id: str
    """``c1``, ``c2``, in the order in which they were added."""
    name: str
    text: str
    """What Main reads, or the task of the session."""
    once_ms: int | None
    """Its only slot."""
    every_ms: int | None
    """Time between slots, counted from ``anchor_ms``."""
    anchor_ms: int
    expression: str
    """Five fields of cron: minute, hour, day of the month, month, day of the week; empty = it has none."""
    zone: str
    """Time zone of the expression, such as ``Europe/Vienna``."""
    target: JobTarget
    kind: SessionKind
    """Kind of the session that it starts."""
    agent: str | None
    """Agent of that session; None = Main's."""
    budget: Budget | None
    """Budget of that session; None = it uses Main's."""
    ttl_s: float | None
    """Time to live of that session in seconds, if shorter than the tree's limit; None = that limit."""
    announces: bool
    """Whether Main gets the result of that session as a message."""
    catch_up: CatchUp
    until_ms: int | None
    """Its last slot is not later; None = it has no end."""
    status: CronStatus
    asked_by: tuple[Principal, ...]
    """On whose behalf its text was written; empty = the creating program's."""
    taint: str
    """Source of the untrusted text that its writer had read; empty = none."""
    created_ms: int

    @property
    def schedule(self) -> str:
        """Its times, in words."""
        if self.once_ms is not None:
            return "once"
        if self.every_ms is not None:
            return f"every {self.every_ms / 1000:g} s"
        return f"{self.expression} ({self.zone})"


@dataclass(frozen=True, slots=True)
class JobWanted:
    """What a new job shall be, or what shall change of one; None = the default, or what it was."""

    name: str | None = None
    text: str | None = None
    at: str | None = None
    """A time of ISO 8601, in ``zone`` if it names no offset; or how long from now: ``90s``, ``20m``, ``2h``,
    ``1d``."""
    every_s: float | None = None
    expression: str | None = None
    zone: str | None = None
    """A time zone's name; None = UTC."""
    target: JobTarget | None = None
    kind: SessionKind | None = None
    agent: str | None = None
    budget: Budget | None = None
    ttl_s: float | None = None
    announces: bool | None = None
    catch_up: CatchUp | None = None
    until: str | None = None
    """As ``at``."""


JobAction: TypeAlias = Literal["add", "update", "remove", "pause", "resume", "run"]
"""What can be done to a job; ``run`` starts a run besides those of its times."""


@dataclass(frozen=True, slots=True)
class JobChange:
    """One change that is asked for."""

    action: JobAction
    job_id: str = ""
    """Empty for a new job."""
    wanted: JobWanted = JobWanted()


@dataclass(slots=True)
class JobRun:
    """One entry of a job's history: a run, or slots that did not run."""

    slot_ms: int
    """Its slot; of several slots, the last; of a run that was asked for, when it was."""
    wall_ms: int
    """When it was decided."""
    how: str
    """A :data:`SlotCause`, or ``skipped``."""
    run_id: str = ""
    """Empty for slots that did not run."""
    session: str = ""
    """The session that it started, or ``main``."""
    state: str = ""
    """``running``, ``delivered`` to Main, or the final status of its session."""
    summary: str = ""
    """The final message of its session."""
    reason: str = ""
    """Why slots did not run: a :data:`SlotEnd`, and what is known besides."""
    count: int = 1
    """How many slots did not run."""
    is_exact: bool = True
    """False: ``count`` is a lower bound."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job as lists show it."""

    job: CronJob
    next_ms: int | None
    """Its next slot; None = none will come, or it is paused."""
    runs: int
    """How often it ran."""
    skipped: int
    """How many of its slots did not run, as far as they were counted."""
    is_running: bool
    last: JobRun | None


@dataclass(frozen=True, slots=True)
class CronTable:
    """All jobs of a tree."""

    now_ms: int
    """The machine's time."""
    jobs: tuple[JobRow, ...]
    """In the order in which they were added."""


class Cron(Protocol):
    """The timed jobs of the tree. Only a Main has it.

    A job's text reaches a session with the rights of those for whom it was written, never as an owner's own
    words.
    """

    async def jobs(self) -> CronTable:
        """Return all jobs."""
        ...

    async def history(self, job_id: str, *, limit: int) -> tuple[JobRun, ...]:
        """Return runs and skips of the job ``job_id``, newest first, at most ``limit``.

        Raises:
            ExecutionError: no job has this id.
        """
        ...

    async def change(self, change: JobChange, *, key: str) -> JobRow:
        """Carry out a change; durable when this returns. Return the job as it is, or was, afterwards.

        Args:
            change: What to do.
            key: Identifies the change; a repeat with the same key changes nothing.

        Raises:
            ExecutionError: no job has the id, the tree has too many, or it can't be done to it now.
            ValidationError: what is wanted is not valid.
        """
        ...
