"""Whether the run's provider answers: it is asked before the first sample, and after each that it failed.

While it does not answer, nothing is leased: every attempt would be lost, for money and minutes. If it answers
a plain question just after a sample was lost, the sample may be the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from sessiontree import App, ConfigError, Limits, Model, ProviderModel, Runtime, SessionTree, SessionTreeError
from sessiontree.api.options.app import take_app
from sessiontree.bench.ledger.failure_kinds import FailureKind
from sessiontree.bench.ledger.ledger_rules import Ending
from sessiontree.bench.run.attempts.tree_faults import find_faults
from sessiontree.bench.run.place.run_place import WORKSPACES, RunPlace
from sessiontree.bench.suite.plain_values import to_plain_text
from sessiontree.bench.suite.suite import read_tree_options
from sessiontree.models.providers.provider_model import PROVIDERS

FIRST_WAIT_S: Final = 5.0
"""How long a provider that does not answer is left alone; doubled with each question that fails."""
MAX_WAIT_S: Final = 60.0
ANSWER_S: Final = 60.0
"""How long the answer to a plain question may take."""
QUESTION: Final = "Reply with the word: ready"
PROBE: Final = "probe"
"""The workspace of the tree that asks."""
REFUSED: Final = "ModelKeyRefused: "
"""How the reason of a failure begins that time does not mend: no such model, no right to it, no money."""


def find_asked_model(place: RunPlace) -> Model | str | None:
    """Return the provider's model that the run's trees have by default; None = another kind of model."""
    suite = place.suite
    options = {} if callable(suite.tree) else read_tree_options(suite.tree, f"suite {suite.name!r}: tree has")
    model = take_app(options.get("app"), options).model or place.model
    if isinstance(model, str):
        is_own = model in suite.models
        return model if not is_own and model.partition(":")[0] in PROVIDERS else None
    return model if isinstance(model, ProviderModel) else None


class ProviderGate:
    """Lets samples be leased while the provider answers.

    Args:
        place: The run.
        runtime: Returns the runtime that asks.
        say: Shows a line to people.
        opened: Called when leasing may go on, or the run must end.
    """

    def __init__(
        self,
        place: RunPlace,
        runtime: Callable[[], Awaitable[Runtime]],
        say: Callable[[str], None],
        opened: Callable[[], None],
    ) -> None:
        self._place = place
        self._runtime = runtime
        self._say = say
        self._opened = opened
        self._model = find_asked_model(place)
        self._lock = asyncio.Lock()
        self._waiting: asyncio.Task[None] | None = None
        self.failure: ConfigError | None = None
        """Why the run can't go on; None = it can."""

    @property
    def is_closed(self) -> bool:
        """Whether nothing is leased now."""
        return self._waiting is not None

    async def check(self) -> None:
        """Ask the provider before the first sample, if it is one that can be asked.

        Raises:
            ConfigError: it does not answer; says why.
        """
        if self._model is None:
            return
        problem = await self.ask()
        if problem:
            raise ConfigError(
                f"the model does not answer a plain question, so no sample was begun: {problem}; mend that, "
                "then run the same command"
            )

    async def judge(self) -> Ending:
        """Return what it means for a sample that its provider failed, after asking the provider again."""
        if self._model is None:
            return "error"  # nobody can be asked: the model may be a script
        # Many samples are lost at once when a provider fails; one question is asked for all of them.
        async with self._lock:
            if self.is_closed or self.failure is not None:
                return "run"
            problem = await self.ask()
            if not problem:
                return "shared"
            self._close(problem)
            return "run"

    def _close(self, problem: str) -> None:
        self._say(
            f"paused: the provider does not answer, and no sample is begun before it does: {problem}; it is "
            "asked again and again"
        )
        self._waiting = asyncio.create_task(self._wait(problem))

    async def _wait(self, problem: str) -> None:
        """Ask again and again until the provider answers, or it has taken too long."""
        began_s, wait_s = time.monotonic(), FIRST_WAIT_S
        longest_s = self._place.options.provider_wait_s
        try:
            while problem:
                left_s = longest_s - (time.monotonic() - began_s)
                # A refused key stays refused: waiting would cost an hour, and change nothing.
                if REFUSED in problem or left_s <= 0:
                    self.failure = ConfigError(
                        f"the provider does not answer: {problem}; no sample was scored for that: the same "
                        "command goes on"
                    )
                    return
                await asyncio.sleep(min(wait_s, left_s))
                wait_s = min(2 * wait_s, MAX_WAIT_S)
                problem = await self.ask()
            self._say(f"the provider answers again after {time.monotonic() - began_s:.0f} s; the run goes on")
        finally:
            # In any case, also after a cancellation: a gate that stays closed would hold the run for ever.
            self._waiting = None
            self._opened()

    async def ask(self) -> str:
        """Ask a plain question; return why it was not answered, or an empty text."""
        workspace = self._place.path / WORKSPACES / PROBE
        await asyncio.to_thread(workspace.mkdir, parents=True, exist_ok=True)
        app = App(model=self._model, builtin_tools=False)
        try:
            runtime = await self._runtime()
            async with SessionTree(
                workspace,
                app=app,
                runtime=runtime,
                # Without retries: the gate has pauses of its own, and its question must say how things are
                # now.
                limits=Limits(model_retries=0),
                purpose="bench: a question",
            ) as tree:
                with suppress(SessionTreeError, TimeoutError):
                    async with asyncio.timeout(ANSWER_S):
                        await tree.main.send(QUESTION)
                        return ""
                await tree.cancel("it was not answered")
                faults = find_faults([record async for record in tree.events()])
        except SessionTreeError as error:
            return to_plain_text(error)
        if faults.lost is None:
            return ""  # it answered something else, such as a refusal
        return to_plain_text(faults.lost) if faults.lost_by is FailureKind.PROVIDER else ""

    async def close(self) -> None:
        """Ask no more."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait({self._waiting})
