"""What a session asks its model: the request itself where the model is instant, else a delta.

Details of results are the journal's: both ways leave them out, but for a procedure that says it reads them.
"""

from __future__ import annotations

from collections.abc import Callable

from sessiontree.contracts.messages import Message, shown
from sessiontree.contracts.stimuli import ModelAnswered, ModelFailed, Stimulus, ToolCard
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.kernel.frames import AskModel, ModelPrompt
from sessiontree.models.answers import checked, reason_of
from sessiontree.models.port import InstantModel, ModelRequest, ToolSpec
from sessiontree.schema.dialect import Dialect
from sessiontree.session.state import SessionState


class Questioner:
    """Makes one session's questions; remembers how much of the conversation the gateway was given."""

    def __init__(
        self,
        table: ToolTable,
        held: frozenset[str],
        prompt: str,
        instant: InstantModel | None,
        dialect: Dialect,
    ) -> None:
        """Bind the tools the session holds, in its model's dialect, and the model if it runs here."""
        self.instant = instant
        self.prompt = prompt
        self.unseen = False
        """Whether replies are shown to nobody while they are made."""
        entries = [entry for entry in table if entry.name in held]
        self.cards = tuple(ToolCard(entry.name, entry.tool.description) for entry in entries)
        self._specs = tuple(
            ToolSpec(entry.name, entry.tool.description, entry.compiled.shown_in(dialect).schema)
            for entry in entries
        )
        self._given = 0
        self._reads_details = bool(getattr(instant, "reads_details", False))
        self._shown: list[Message] = []

    def request(self, state: SessionState) -> ModelRequest:
        """Return the whole question; its messages are a list that grows with the conversation, read only."""
        return ModelRequest(
            state.spec.session_id,
            state.spec.kind,
            state.turn,
            state.system_prompt or "",
            self._specs,
            state.transcript if self._reads_details else self._grown(state.transcript),
            state.spec.result_schema,
        )

    def ask(self, state: SessionState, now_ms: Callable[[], int]) -> Stimulus:
        """Ask the instant model; returns its reply, or its failure, as a stimulus.

        Raises:
            KeyboardInterrupt: somebody wants the program to end.
        """
        assert self.instant is not None  # noqa: S101 - asked by the caller
        turn = state.turn
        try:
            message = checked(self.instant.reply(self.request(state)), turn)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a model may raise anything; the session is told
            return ModelFailed(now_ms(), turn, reason_of(error))
        return ModelAnswered(now_ms(), turn, message)

    def question(self, state: SessionState) -> AskModel:
        """Return the question as a delta to what the gateway was given before."""
        base = self._given
        self._given = len(state.transcript)
        prompt = None
        if base == 0:
            prompt = ModelPrompt(state.system_prompt or "", self._specs, state.spec.result_schema)
        messages = tuple([shown(each) for each in state.transcript[base:]])
        return AskModel(state.turn, base, messages, prompt, self.unseen)

    def _grown(self, transcript: list[Message]) -> list[Message]:
        """Return the conversation as a model may see it; only what is new is looked at."""
        self._shown.extend([shown(each) for each in transcript[len(self._shown) :]])
        return self._shown

    def forget(self) -> None:
        """Begin the next question from the first message."""
        self._given = 0
