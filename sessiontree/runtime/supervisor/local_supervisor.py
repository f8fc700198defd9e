"""The supervisor as it is asked in its own process, whoever asks: the program, a peer, or an actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.runtime.supervisor.answers.canvas_answers import CanvasAnswers
from sessiontree.runtime.supervisor.answers.fact_answers import FactAnswers
from sessiontree.runtime.supervisor.answers.person_answers import PersonAnswers
from sessiontree.runtime.supervisor.answers.runtime_answers import RuntimeAnswers
from sessiontree.runtime.supervisor.answers.session_answers import SessionAnswers
from sessiontree.runtime.supervisor.answers.tree_answers import TreeAnswers
from sessiontree.runtime.supervisor.supervisor import Supervisor
from sessiontree.runtime.transport.rpc import RpcAnswers, make_proxy
from sessiontree.runtime.transport.supervisor_api import SupervisorApi


class LocalSupervisor:
    """Answers the questions of :class:`SupervisorApi`; each subject has a part.

    Errors are the tree's typed ones; nothing is retried.

    Args:
        supervisor: The supervisor.
        security: Looks up how its engine is protected; None = it runs on no engine.
    """

    def __init__(
        self, supervisor: Supervisor, security: Callable[[], Mapping[str, JsonValue]] | None = None
    ) -> None:
        self.sessions = SessionAnswers(supervisor)
        self.answers = RpcAnswers(
            self.sessions,
            PersonAnswers(supervisor),
            CanvasAnswers(supervisor),
            FactAnswers(supervisor),
            TreeAnswers(supervisor),
            RuntimeAnswers(supervisor, security),
        )
        """What the control socket and the calls of actors are answered by."""
        self.api: SupervisorApi = make_proxy(SupervisorApi, self.answers)
        """The interface, for callers in this process."""
