"""The first gateway's process starts with its tree, and is nobody's gateway before the first question."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree.backends.ray.supervisor import SupervisorActor


class Process:
    """A gateway's transport that counts what is done to it."""

    def __init__(self, name: str, libraries: tuple[str, ...]) -> None:
        self.name, self.libraries = name, libraries
        self.lives = True
        self.expected = self.closed = 0

    def expect(self) -> bool:
        """Note that its start counts from now on."""
        self.expected += 1
        return self.lives

    def close(self) -> None:
        """Note its end."""
        self.closed += 1


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A supervisor's actor without a process, and what it started."""
    actor: Any = object.__new__(SupervisorActor)
    actor._has_gateway, actor._spare, actor.made = False, None, []

    def make(name: str, libraries: tuple[str, ...]) -> Process:
        actor.made.append(Process(name, libraries))
        return actor.made[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(actor, "_make_gateway", make)
    return actor


def test_first_question_gets_the_spare_process(supervisor: Any) -> None:
    """Whatever number of trees open, one is started; it has loaded what their models load."""
    supervisor._start_spare_gateway(["a:b"])
    supervisor._start_spare_gateway(["c:d"])
    (spare,) = supervisor.made
    assert spare.libraries == ("a:b",)
    assert not spare.expected
    assert supervisor._start_gateway("gateway1") is spare
    assert spare.expected == 1


def test_dead_spare_process_is_no_loss(supervisor: Any) -> None:
    """It is replaced at once, before a question was sent to it."""
    supervisor._start_spare_gateway([])
    supervisor.made[0].lives = False
    assert supervisor._start_gateway("gateway1") is supervisor.made[1]
    assert supervisor.made[0].closed == 1
    assert supervisor.made[1].name == "gateway1"


def test_later_gateways_start_with_their_question(supervisor: Any) -> None:
    """A gateway that was lost is not replaced before somebody asks."""
    supervisor._start_spare_gateway([])
    supervisor._start_gateway("gateway1")
    supervisor._start_spare_gateway([])
    assert len(supervisor.made) == 1
    assert supervisor._start_gateway("gateway2") is supervisor.made[1]
