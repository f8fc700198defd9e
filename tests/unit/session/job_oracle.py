"""Books of one session's jobs, kept from facts alone.

JOB: each begins once and ends once, for those for whom its session acted when it began. With a lost host all
of them end as lost, and the session hears of each, unless it is to stop. No other job is ever lost.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sessiontree.contracts.facts.session_facts import JobEnded, JobStarted, MessageReceived, SessionFact
from sessiontree.contracts.facts.stimuli import JobBegan, JobOver, Recovered, Stimulus
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.session.state import SessionState
from tests.unit.session.asker_oracle import AskerBooks
from tests.unit.session.judge_oracle import Judge
from tests.unit.session.turn_oracle import TurnBooks


class BackgroundJobBooks:
    """Which jobs run, and how the others ended."""

    def __init__(self, judge: Judge, askers: AskerBooks, turns: TurnBooks, begun: set[str]) -> None:
        """Know of no job."""
        self.judge = judge
        self.askers = askers
        self.turns = turns
        self.running: dict[str, JobStarted] = {}
        self.begun = begun
        """Every job, also one whose host was lost before anybody else knew of it."""
        self.ended: dict[str, JobEnded] = {}
        self.heard: dict[str, MessageReceived] = {}
        """The messages about their ends, by job."""

    def book(self, fact: SessionFact) -> None:
        """Book one fact, after the books of askers did."""
        if isinstance(fact, JobStarted):
            is_new = fact.job_id not in self.running and fact.job_id not in self.ended
            self.judge.require(is_new, "JOB", f"{fact.job_id} begins again")
            self.judge.require(self._is_right(fact.asked_by), "JOB", f"{fact.job_id} is for {fact.asked_by}")
            self.running[fact.job_id] = fact
            self.begun.add(fact.job_id)
        elif isinstance(fact, JobEnded):
            self.judge.require(fact.job_id in self.running, "JOB", f"{fact.job_id} ends and does not run")
            self.judge.require(fact.status != "running", "JOB", f"{fact.job_id} ends as one that runs")
            self.running.pop(fact.job_id, None)
            self.ended[fact.job_id] = fact
        elif isinstance(fact, MessageReceived) and fact.message_id.startswith("job."):
            self.heard[fact.message_id.removeprefix("job.")] = fact

    def _is_right(self, asked_by: Collection[Principal]) -> bool:
        """Whether a job is for whom the turn is, and else only for those whose calls have no result."""
        acting = set(self.askers.acting)
        callers = {
            asker for call in self.turns.calls.unresolved() for asker in self.askers.calls.get(call.key, ())
        }
        least = acting if self.turns.in_turn else set()
        return least <= set(asked_by) <= acting | callers

    def judge_step(
        self,
        stimulus: Stimulus,
        before: Collection[JobStarted],
        new_facts: Sequence[SessionFact],
        live: SessionState,
        *,
        stops: bool,
    ) -> None:
        """Judge what a step did to the jobs that ran before it."""
        lost = [fact.job_id for fact in new_facts if isinstance(fact, JobEnded) and fact.status == "lost"]
        right = sorted(each.job_id for each in before) if isinstance(stimulus, Recovered) else []
        self.judge.require(sorted(lost) == right, "JOB", f"{lost} are lost, and {right} ran on a lost host")
        if isinstance(stimulus, JobBegan):
            job_id = stimulus.started.job_id
            known = job_id in self.running or job_id in self.ended
            self.judge.require(known, "JOB", f"{job_id} began and is not known")
        elif isinstance(stimulus, JobOver):
            job_id = stimulus.ended.job_id
            self.judge.require(job_id not in self.running, "JOB", f"{job_id} is over and runs on")
            others = {fact.job_id for fact in new_facts if isinstance(fact, JobEnded)} - {job_id}
            self.judge.require(not others, "JOB", f"{sorted(others)} end with {job_id}")
        elif isinstance(stimulus, Recovered) and not stops:
            for job in before:
                heard = self.heard.get(job.job_id)
                right_hearing = heard is not None and heard.asked_by == job.asked_by
                self.judge.require(right_hearing, "JOB", f"nobody hears for {job.asked_by} of a lost job")
        same = live.jobs == self.running
        self.judge.require(same, "JOB", f"{list(live.jobs)} run, not {list(self.running)}")
        past = {job_id: ended for job_id, (_, ended) in live.past_jobs.items()}
        known_past = past.items() <= self.ended.items()
        self.judge.require(known_past, "JOB", f"{past} ended, not {self.ended}")
