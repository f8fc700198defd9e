"""Jobs in the session machine: each is recorded once and ends once, and a lost one is reported once."""

from __future__ import annotations

import pytest

from sessiontree.contracts.facts.session_facts import JobEnded, JobStarted, MessageReceived
from tests.unit.session.world_fakes import World, opened


def heard_of_jobs(world: World) -> list[str]:
    """Return the ids of the messages about jobs that came last."""
    heard = world.found(MessageReceived)
    return [each.message_id for each in heard if each.message_id.startswith("job.")]


@pytest.mark.covers("JOB2")
def test_job_that_is_reported_again_is_the_one_it_was() -> None:
    """While it runs, and after its end: neither its start nor its end is recorded twice."""
    world = opened()
    world.begin_job()
    (started,) = world.found(JobStarted)
    world.again(0)
    assert world.facts == []
    world.end_job("exited")
    assert world.live.past_jobs[started.job_id][1].status == "exited"
    for pick in range(3):
        world.again(pick)
        assert world.facts == []


@pytest.mark.covers("JOB3")
def test_all_jobs_of_a_lost_host_are_lost_and_reported_once() -> None:
    """Also after a second loss; a job whose start was not durable never was."""
    world = opened()
    world.begin_job()
    world.begin_job()
    world.report()
    world.begin_job()
    world.lose_host()
    ended = world.found(JobEnded)
    assert [(each.job_id, each.status) for each in ended] == [("job-1", "lost"), ("job-2", "lost")]
    assert heard_of_jobs(world) == ["job.job-1", "job.job-2"]
    world.report()
    world.lose_host()
    assert world.found(JobEnded) == []
    assert heard_of_jobs(world) == []


@pytest.mark.covers("JOB2", "JOB3")
def test_end_that_was_heard_before_the_loss_is_not_heard_again() -> None:
    """The message was durable and the record of the end was not: the job counts as lost."""
    world = opened()
    world.begin_job()
    world.report()
    world.end_job("exited")
    world.durable += [fact for fact in world.unreported if isinstance(fact, MessageReceived)]
    world.lose_host()
    (ended,) = world.found(JobEnded)
    assert ended.status == "lost"
    assert heard_of_jobs(world) == []
