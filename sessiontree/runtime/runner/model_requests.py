"""A session's requests to its model, with the tools that it is offered.

A request is whole if the model is instant, else a delta.

Details of results are only for the journal. Both forms leave them out, except for a procedure that declares
that it reads them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Any, Final, Literal

from sessiontree.contracts.facts.stimuli import Adopted, ModelAnswered, Stimulus
from sessiontree.contracts.recorded.programs import STARTS_CHILDREN
from sessiontree.contracts.recorded.senders import Principal
from sessiontree.contracts.settings.model_settings import ModelSettings, merge_settings
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.program_tool import ProgramTool, SavedProgram, ToolFinder
from sessiontree.contracts.values.messages import Message, hide_details
from sessiontree.dispatch.tool_table import ToolEntry, ToolTable
from sessiontree.models.answers import check_reply, make_failure
from sessiontree.models.port import InProcessModel, ModelRequest, ToolSpec, get_model_name
from sessiontree.policy.catalog import CATALOG
from sessiontree.programs.tool_list import IN_SCHEMAS, SEARCHED, describe_program
from sessiontree.runtime.runner.calls.hosted_session import HostedSession
from sessiontree.runtime.runner.shown_images import ShownImages
from sessiontree.runtime.transport.frames import AskModel, ChargeTurn, ModelPrompt
from sessiontree.schema.compiled import CompiledTool
from sessiontree.schema.dialect import choose_dialect
from sessiontree.session.compaction import build_summary_question
from sessiontree.session.decide import remove_tool_names
from sessiontree.session.instructions import CallModel
from sessiontree.session.state import SessionState

BLOCKING_S = 0.25
"""An in-process model that takes longer blocks every session of its process; this is logged once."""
_LOG = logging.getLogger("sessiontree")
_slow: set[str] = set()
FIRST: Final = ("read", "write", "edit", "find", "grep", "exec")
"""The tools that programs need most, first of all in their list."""
MAX_DESCRIPTIONS: Final = 64
_PLACES: Final = {row.name: place for place, row in enumerate(CATALOG)}


_NONE: Final[frozenset[str]] = frozenset()


class ToolOffer:
    """The tools of one session as its model sees them.

    Args:
        entries: The tools that the session holds, sorted by name.
        offered: What the agent wants offered: all, or the means of programs.
    """

    def __init__(self, entries: Iterable[ToolEntry], offered: Literal["all", "program"]) -> None:
        self._entries = list(entries)
        self._offered = offered
        self._kept: tuple[str, Collection[str], tuple[ToolSpec, ...]] = ("", (), ())
        self.names = tuple([entry.name for entry in self._select_shown(self._entries)])
        """Those that its model is offered."""

    def show(self, model: str, gone: frozenset[str] = frozenset()) -> tuple[ToolSpec, ...]:
        """Return the offered tools in the dialect of a model, without some; the last answer is kept.

        Linear in the number of tools.
        """
        kept_model, kept_gone, specs = self._kept
        if not specs or (kept_model, kept_gone) != (model, gone):
            dialect = choose_dialect(model)
            held = [entry for entry in self._entries if entry.name not in gone]
            shown = self._select_shown(held)
            rest = IN_SCHEMAS if len(shown) == len(held) else SEARCHED
            specs = tuple(
                [
                    ToolSpec(
                        entry.name,
                        _describe_program(entry, held, rest)
                        if isinstance(entry.tool, ProgramTool) and _has_program_text(entry)
                        else entry.tool.description,
                        entry.compiled.clean_for(dialect).schema,
                    )
                    for entry in shown
                ]
            )
            self._kept = (model, gone, specs)
        return specs

    def _select_shown(self, held: list[ToolEntry]) -> list[ToolEntry]:
        """Return what is offered: all, unless programs can call the others and a search finds them."""
        if self._offered != "program":
            return held
        means = [entry for entry in held if _is_means(entry)]
        both = {_has_program_text(entry) for entry in means}
        return means if len(both) > 1 else held


def _describe_program(entry: ToolEntry, held: list[ToolEntry], rest: str) -> str:
    callable_ = [each for each in sorted(held, key=_rank_usefulness) if not _is_means(each)]
    return _share_description(
        entry.tool.description, tuple((each.name, each.compiled) for each in callable_), rest
    )


@lru_cache(maxsize=MAX_DESCRIPTIONS)
def _share_description(description: str, tools: tuple[tuple[str, CompiledTool], ...], rest: str) -> str:
    """Return the description for sessions that hold equal tools: thousands of Workers have one text."""
    return describe_program(
        description, ((name, compiled.schema) for name, compiled in tools), STARTS_CHILDREN, rest
    )


def _is_means(entry: ToolEntry) -> bool:
    """Whether a tool is a way to the others, so that no program calls it."""
    return _has_program_text(entry) or isinstance(entry.tool, ToolFinder)


def _has_program_text(entry: ToolEntry) -> bool:
    """Whether a call brings the text of its program."""
    return isinstance(entry.tool, ProgramTool) and not isinstance(entry.tool, SavedProgram)


def _rank_usefulness(entry: ToolEntry) -> tuple[int, int, str]:
    """Return a tool's place in a list for programs: what they need most, the owner's own tools, the rest."""
    if entry.name in FIRST:
        return 0, FIRST.index(entry.name), entry.name
    if entry.name not in _PLACES:
        return 1, 0, entry.name
    return 2, _PLACES[entry.name], entry.name


class ModelRequestBuilder:
    """Builds one session's requests; remembers how much of the conversation the gateway holds."""

    def __init__(
        self,
        table: ToolTable,
        held: frozenset[str],
        config: AgentConfig,
        model: str,
        instant: InProcessModel | None,
        withheld: Callable[[tuple[Principal, ...]], frozenset[str]],
        summariser: InProcessModel | None = None,
    ) -> None:
        """Bind the tools that the session holds; they are shown in the dialect of the model that answers.

        ``instant`` is that model, if it runs in this process. ``withheld`` returns the tools that the session
        does not hold while it acts for askers other than the program. ``summariser`` is the compaction model,
        if the agent has one that runs in this process.
        """
        self.instant = instant
        self._summariser = summariser
        self.prompt = config.prompt
        self.further = ""
        """What the system prompt of a new session says of its skills and workspace."""
        self._model = model
        self._config = config
        self._settings: ModelSettings | None = None
        self.unseen = False
        """Whether replies are not shown while they are made."""
        self._offer = ToolOffer([entry for entry in table if entry.name in held], config.tools_offered)
        self.tools = self._offer.names
        self._specs = self._offer.show(model)
        self._withheld = withheld
        self._gone: frozenset[str] = frozenset()
        self.given = 0
        """How many messages of the conversation the gateway holds."""
        self._reads_details = bool(getattr(instant, "reads_details", False))
        self._images = None if config.context_tokens is None else ShownImages(config.context_tokens)
        self._source: list[Message] | None = None
        self._shown: list[Message] = []
        self._asked_of: list[Message] | None = None
        """The conversation of the last question to the gateway; its messages may only be added to."""

    def make_adopted(self, at_ms: int) -> Adopted:
        """Return the stimulus for a session that is embodied with these tools and models."""
        return Adopted(
            at_ms, self.tools, self._model, self.prompt, self.further, self._config.compaction_model
        )

    def _choose_writer(self, state: SessionState) -> str:
        """Return the name of the compaction model, if the next question is for it; else nothing."""
        begun = state.compacting
        return self._config.compaction_model if begun is not None and begun.model else ""

    def find_instant_model(self, state: SessionState) -> InProcessModel | None:
        """Return the model of the next question, if it runs in this process."""
        if state.compacting is not None and self._choose_writer(state):
            return self._summariser
        return self.instant

    @property
    def kept(self) -> int:
        """How many messages a builder made later for the session may take as held by the gateway."""
        return 0 if self._gone else self.given

    def request(self, state: SessionState) -> ModelRequest:
        """Return the whole request; its list of messages grows with the conversation and is read only."""
        spec, begun = state.spec, state.compacting
        gone = self._withheld(state.asked_by) if state.asked_by else _NONE
        writer = "" if begun is None else self._choose_writer(state)
        prompt, specs = state.system_prompt or "", self._specs
        if gone or writer:
            prompt, specs = self._remove_gone(state, gone, writer)
        messages = state.transcript
        if begun is not None:
            messages = self._adapt_messages(state.transcript, build_summary_question(state, begun), 0)
        elif not self._reads_details:
            messages = self._extend_shown(messages)
        return ModelRequest(
            spec.session_id,
            spec.kind,
            state.turn,
            prompt,
            specs,
            messages,
            None if begun is not None else spec.result_schema,
            spec.agent,
            writer or self._model,
            self._merge_settings(state),
            begun is not None,
        )

    def _merge_settings(self, state: SessionState) -> ModelSettings:
        """Return the model settings: the agent's, then the session's, then those of this run's messages."""
        if self._settings is None:
            self._settings = merge_settings(self._config.settings, state.spec.settings)
        settings = (
            self._settings if state.settings is None else merge_settings(self._settings, state.settings)
        )
        if state.compacting is None:
            return settings
        changed: dict[str, Any] = {"tool_choice": "none" if self._specs else None, "stop": None}
        if self._choose_writer(state):
            changed["thinking"] = None  # a level that the session's model has may be unknown to another
        return settings.model_copy(update=changed)

    def ask(self, model: InProcessModel, state: SessionState, now_ms: Callable[[], int]) -> Stimulus:
        """Ask the model that runs in this process; return its reply or its failure as a stimulus.

        Raises:
            KeyboardInterrupt: the user ends the program.
        """
        turn = state.turn
        begun_s = time.monotonic()
        if state.compacting is not None:
            self.forget()  # the gateway holds what the summary replaces
        try:
            request = self.request(state)
            message = check_reply(model.reply(request), turn)
            if (taken_s := time.monotonic() - begun_s) >= BLOCKING_S:
                _note_slow(model, taken_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a model may raise anything; the session gets the reason
            return make_failure(error, state.spec.session_id).at(now_ms(), turn)
        on_length = request.settings.on_length or "fail"
        return ModelAnswered(now_ms(), turn, message, on_length, self._config.context_tokens)

    def question(self, state: SessionState) -> AskModel:
        """Return the request as a delta to what the gateway already holds.

        A question for a summary shares its beginning with the conversation, unless the compaction model is
        asked: it sees its own form of calls and tools. Afterwards the gateway is given the whole
        conversation, because its older part is replaced.
        """
        gone = self._withheld(state.asked_by)
        base = self.given if gone == self._gone else 0  # with other tools, the prompt changes
        self._gone = gone
        conversation, begun = state.transcript, state.compacting
        if self._asked_of is not None and self._asked_of is not conversation:
            base = 0  # messages that the gateway holds were cut
        self._asked_of = conversation
        self.given = len(conversation)
        writer = self._choose_writer(state)
        if begun is not None:
            conversation = build_summary_question(state, begun)
            base, self.given = 0 if writer else min(base, begun.upto), 0
        if self._find_first_changed(state.transcript, base) < base:
            base = 0  # the gateway holds images that went since
        prompt = None
        if base == 0:
            prompt = ModelPrompt(*self._remove_gone(state, gone, writer), state.spec.result_schema)
        messages = tuple(self._adapt_messages(state.transcript, conversation, base))
        unseen = self.unseen or begun is not None
        return AskModel(
            state.turn,
            base,
            messages,
            prompt,
            unseen,
            self._merge_settings(state),
            begun is not None,
            bool(writer),
        )

    def _remove_gone(
        self, state: SessionState, gone: frozenset[str], writer: str
    ) -> tuple[str, tuple[ToolSpec, ...]]:
        """Return the system prompt and the tools, without the tools that this turn does not hold."""
        prompt = state.system_prompt or ""
        specs = self._offer.show(writer or self._model, gone) if writer or gone else self._specs
        return remove_tool_names(prompt, gone) if gone else prompt, specs

    def _extend_shown(self, transcript: list[Message]) -> list[Message]:
        """Return the conversation as the model may see it; only new messages are processed."""
        if transcript is not self._source:  # a compaction replaced it
            self._source, self._shown = transcript, []
        if self._images is None:
            self._shown.extend(map(hide_details, transcript[len(self._shown) :]))
            return self._shown
        del self._shown[self._find_first_changed(transcript, len(self._shown)) :]
        self._shown.extend(self._adapt_messages(transcript, transcript, len(self._shown)))
        return self._shown

    def _adapt_messages(self, transcript: list[Message], asked: list[Message], base: int) -> list[Message]:
        """Return the messages of a question from one on as the model may see them.

        ``asked`` is the transcript, or the beginning of it and a last message.
        """
        if self._images is None:
            return [hide_details(each) for each in asked[base:]]
        self._images.follow(transcript)
        return [self._images.view(at, each) for at, each in enumerate(asked[base:], base)]

    def _find_first_changed(self, transcript: list[Message], base: int) -> int:
        """Return the first message before one that lost images since only those before it were shown."""
        if self._images is None:
            return base
        self._images.follow(transcript)
        return self._images.find_first_changed(base)

    def forget(self) -> None:
        """Begin the next request with the first message."""
        self.given = 0


def _note_slow(model: InProcessModel, taken_s: float) -> None:
    name = get_model_name(model)
    if name not in _slow:
        _slow.add(name)
        _LOG.warning(
            "model %r took %.2g s to reply and held up every session of its process meanwhile; "
            "a model that waits is an `async def`: AsyncFunctionModel(f)",
            name,
            taken_s,
        )


class ModelTurns:
    """Asks the model once for each turn.

    Args:
        session: The session on this host.
        builder: Builds its requests, and asks a model in this process.
        out: Receives the requests for the supervisor.
        is_metered: Whether a budget counts its replies. A model in this process is then asked only after the
            supervisor has charged the budget.
    """

    def __init__(
        self, session: HostedSession, builder: ModelRequestBuilder, out: list[Any], *, is_metered: bool
    ) -> None:
        self._session = session
        self._state = session.state
        self._builder = builder
        self._out = out
        self._is_metered = is_metered
        self.is_charging = False
        """Whether the budget of the turn is being charged, if the turn is still open."""

    def ask(self, asked: CallModel) -> None:
        """Ask the model of a turn."""
        model = self._builder.find_instant_model(self._state)
        if model is None:
            self._out.append(self._builder.question(self._state))
        elif self._is_metered:
            self.is_charging = True
            self._out.append(ChargeTurn(asked.turn))
        else:
            self._ask_here(model, asked.turn)

    def ask_again(self, turn: int) -> bool:
        """Ask the model of an open turn again, with the whole conversation; return whether it is open."""
        if not self._is_open(turn):
            return False
        self._builder.forget()
        self._out.append(self._builder.question(self._state))
        return True

    def proceed(self, turn: int) -> None:
        """Ask the model of a turn whose budget was charged, after earlier input."""
        # What the supervisor fed together with this must be heard first: it may cut the turn.
        asyncio.get_running_loop().call_soon(self._proceed, turn)

    def _proceed(self, turn: int) -> None:
        model = self._builder.find_instant_model(self._state)
        if not self._session.tasks.over and self._is_open(turn) and self.is_charging and model is not None:
            self.is_charging = False
            self._ask_here(model, turn)
            self._session.queue.wake()

    def _is_open(self, turn: int) -> bool:
        return self._state.asking and self._state.turn == turn

    def _ask_here(self, model: InProcessModel, turn: int) -> None:
        answered = self._builder.ask(model, self._state, self._session.now_ms)
        self._session.queue.put_admitted(f"model:{turn}", answered)
