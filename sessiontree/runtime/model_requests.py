"""What a session asks its model: the request itself where the model is instant, else a delta.

Details of results are the journal's: both ways leave them out, but for a procedure that says it reads them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from sessiontree.contracts.messages import Message, shown
from sessiontree.contracts.senders import Principal
from sessiontree.contracts.stimuli import ModelAnswered, ModelFailed, Stimulus, ToolCard
from sessiontree.dispatch.tool_table import ToolTable
from sessiontree.models.answers import checked, reason_of
from sessiontree.models.port import InstantModel, ModelRequest, ToolSpec, name_of
from sessiontree.runtime.frames import AskModel, ModelPrompt
from sessiontree.schema.dialect import Dialect
from sessiontree.session.prompt import unlisted
from sessiontree.session.state import SessionState

BLOCKING_S = 0.25
"""An instant model that takes longer holds up every session of its process, and is told of once."""
_LOG = logging.getLogger("sessiontree")
_slow: set[str] = set()


class ModelRequestBuilder:
    """Makes one session's questions; remembers how much of the conversation the gateway was given."""

    def __init__(
        self,
        table: ToolTable,
        held: frozenset[str],
        prompt: str,
        instant: InstantModel | None,
        dialect: Dialect,
        withheld: Callable[[tuple[Principal, ...]], frozenset[str]],
    ) -> None:
        """Bind the tools the session holds, in its model's dialect, and the model if it runs here.

        ``withheld`` says which of the tools it does not hold where it acts for others than the program.
        """
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
        self._withheld = withheld
        self._gone: frozenset[str] = frozenset()
        self._given = 0
        self._reads_details = bool(getattr(instant, "reads_details", False))
        self._shown: list[Message] = []

    def request(self, state: SessionState) -> ModelRequest:
        """Return the whole question; its messages are a list that grows with the conversation, read only."""
        gone = self._withheld(state.asked_by)
        prompt, specs = self._shown_to(state, gone) if gone else (state.system_prompt or "", self._specs)
        spec, messages = state.spec, state.transcript
        if not self._reads_details:
            messages = self._grown(messages)
        return ModelRequest(
            spec.session_id, spec.kind, state.turn, prompt, specs, messages, spec.result_schema
        )

    def ask(self, state: SessionState, now_ms: Callable[[], int]) -> Stimulus:
        """Ask the instant model; returns its reply, or its failure, as a stimulus.

        Raises:
            KeyboardInterrupt: somebody wants the program to end.
        """
        assert self.instant is not None  # noqa: S101 - asked by the caller
        turn = state.turn
        begun_s = time.monotonic()
        try:
            message = checked(self.instant.reply(self.request(state)), turn)
            if (taken_s := time.monotonic() - begun_s) >= BLOCKING_S:
                _note_slow(self.instant, taken_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a model may raise anything; the session is told
            return ModelFailed(now_ms(), turn, reason_of(error))
        return ModelAnswered(now_ms(), turn, message)

    def question(self, state: SessionState) -> AskModel:
        """Return the question as a delta to what the gateway was given before."""
        gone = self._withheld(state.asked_by)
        base = self._given if gone == self._gone else 0  # other tools are another prompt
        self._gone = gone
        self._given = len(state.transcript)
        prompt = None
        if base == 0:
            prompt = ModelPrompt(*self._shown_to(state, gone), state.spec.result_schema)
        messages = tuple([shown(each) for each in state.transcript[base:]])
        return AskModel(state.turn, base, messages, prompt, self.unseen)

    def _shown_to(self, state: SessionState, gone: frozenset[str]) -> tuple[str, tuple[ToolSpec, ...]]:
        """Return system prompt and tools without those that the present turn does not hold."""
        prompt = state.system_prompt or ""
        if not gone:
            return prompt, self._specs
        prompt = unlisted(prompt, [card for card in self.cards if card.name in gone])
        return prompt, tuple(spec for spec in self._specs if spec.name not in gone)

    def _grown(self, transcript: list[Message]) -> list[Message]:
        """Return the conversation as a model may see it; only what is new is looked at."""
        self._shown.extend([shown(each) for each in transcript[len(self._shown) :]])
        return self._shown

    def forget(self) -> None:
        """Begin the next question from the first message."""
        self._given = 0


def _note_slow(model: InstantModel, taken_s: float) -> None:
    name = name_of(model)
    if name not in _slow:
        _slow.add(name)
        _LOG.warning(
            "model %r took %.2g s to reply and held up every session of its process meanwhile; "
            "a model that waits is an `async def`: AsyncFunctionModel(f)",
            name,
            taken_s,
        )
