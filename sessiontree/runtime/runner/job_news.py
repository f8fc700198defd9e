"""What a session's machine hears about the session's jobs, and what its host knows about them.

The message about a job's end comes before the record of its end: a host that is lost between the two reports
the job as lost, and the session, which has heard the message, reads no second one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.facts.session_facts import JobEnded, JobStarted
from sessiontree.contracts.facts.stimuli import Stimulus
from sessiontree.contracts.handles.jobs import JobView
from sessiontree.sandbox import JobTable
from sessiontree.session.jobs import make_job_message_id
from sessiontree.session.state import SessionState


class SessionJobNews:
    """Turns news of a session's jobs into stimuli.

    Args:
        state: The session's state, only read here.
        now_ms: Returns the tree's time.
        queue: Takes a cause and the stimuli that it has, in order.
    """

    def __init__(
        self,
        state: SessionState,
        now_ms: Callable[[], int],
        queue: Callable[[str, Sequence[Stimulus]], None],
    ) -> None:
        self._state = state
        self._now_ms = now_ms
        self._queue = queue
        self._table: JobTable | None = None

    def attach(self, table: JobTable) -> None:
        """Take the jobs of the session on this host, and list there those of earlier hosts."""
        self._table = table
        state = self._state
        lost = [JobEnded(job_id, "lost", reason="its host ended") for job_id in state.jobs]
        past = [*state.past_jobs.values(), *zip(state.jobs.values(), lost, strict=True)]
        table.remember([_view_of(started, ended) for started, ended in past])
        table.listener = self

    @property
    def running(self) -> bool:
        """Whether a job runs."""
        return self._table is not None and bool(self._table.running)

    @property
    def shown(self) -> tuple[str, ...]:
        """The jobs that run, as a person reads of them."""
        return () if self._table is None else self._table.shown

    def on_job_began(self, view: JobView) -> None:
        """Take that a command goes on in the background."""
        started = JobStarted(view.job_id, view.command, view.pid, view.started, view.host)
        self._queue(f"job:{view.job_id}", [stimuli.JobBegan(self._now_ms(), started)])

    def on_job_ended(self, view: JobView, notice: str) -> None:
        """Take that a job has ended, and what its session reads about that; empty = it knows already."""
        at_ms = self._now_ms()
        ended = JobEnded(view.job_id, view.status, view.exit_code, view.signal, view.total_bytes, view.reason)
        news: list[Stimulus] = [stimuli.JobOver(at_ms, ended)]
        if notice:
            started = self._state.jobs.get(view.job_id)
            message = stimuli.Incoming(
                at_ms,
                make_job_message_id(view.job_id),
                notice,
                "follow_up",
                "notice",
                () if started is None else started.asked_by,
                joins=self._state.interrupted,
            )
            news.insert(0, message)
        self._queue(f"job:{view.job_id}", news)


def _view_of(started: JobStarted, ended: JobEnded) -> JobView:
    return JobView(
        started.job_id,
        started.command,
        ended.status,
        started.host,
        pid=started.pid,
        started=started.started,
        total_bytes=ended.total_bytes,
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=ended.reason,
    )
