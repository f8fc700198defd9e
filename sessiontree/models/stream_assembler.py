"""Assembly of a streamed reply: pieces in the order in which they arrive, one message at the end.

The message does not depend on how a provider cuts the reply into pieces. Source: seed 000, section 2.2.
"""

from __future__ import annotations

import asyncio
import inspect
import io
from collections.abc import Awaitable, Mapping
from dataclasses import field
from typing import Any, Final, get_args

from sessiontree.contracts.errors import ModelError
from sessiontree.contracts.reports.events import (
    Done,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from sessiontree.contracts.values.jsonable import dump_json, to_json_value
from sessiontree.contracts.values.messages import (
    NOTHING_USED,
    UNFINISHED,
    AssistantMessage,
    ProviderForm,
    ReplyContent,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.models.port import (
    CallPiece,
    EmitEvent,
    GatewayModel,
    ModelPiece,
    ModelRequest,
    Piece,
    StopPiece,
    ThinkingPiece,
)
from sessiontree.schema.argument_text import ParsedArguments, read_arguments

MAX_ARGUMENT_CHARS: Final = 4_000_000
"""Maximum length of one call's argument text."""
MAX_REPLY_CHARS: Final = 16_000_000
"""Maximum length of a reply: text, thoughts, argument texts, names and ids of calls together."""
MAX_BLOCKS: Final = 4_096
"""Maximum number of texts, thoughts and calls of one reply."""
MAX_UNREAD_CHARS: Final = 8_000
"""Maximum length that is kept of an argument text that is not an object."""

_CUT_SHORT = frozenset({"length", "refusal", "error", "aborted"})
_STOP_REASONS = frozenset(get_args(StopReason))


@dataclass(slots=True)
class _Text:
    words: io.StringIO = field(default_factory=io.StringIO)


@dataclass(slots=True)
class _Thought:
    words: io.StringIO = field(default_factory=io.StringIO)
    signature: str = ""


@dataclass(slots=True)
class _Call:
    place: int
    """Index among the reply's blocks."""
    words: io.StringIO = field(default_factory=io.StringIO)
    """Its argument text, as far as it is kept."""
    chars: int = 0
    """Length of its argument text."""
    id: str = ""
    name: str = ""
    has_ended: bool = False
    is_too_long: bool = False
    """Whether its argument text is longer than any call's may be; such a call is refused."""
    found: ParsedArguments | None = None
    """The content of its argument text, once the call has ended."""
    is_told: bool = False
    """Whether its end was emitted; id and name are final then."""


class StreamAssembler:
    """One reply while it is assembled.

    Args:
        turn: The reply's turn; calls without an id from the provider are named after it.
        emit: Called with what watchers see of each piece.
        max_argument_chars: Maximum length of one call's argument text.
        max_reply_chars: Maximum length of the reply.
    """

    __slots__ = (
        "_blocks", "_by_id", "_by_index", "_chars", "_emit", "_last", "_max_argument_chars",
        "_max_reply_chars", "_model", "_replay", "_stop", "_stop_detail", "_turn", "_usage",
    )  # fmt: skip

    def __init__(
        self,
        turn: int,
        emit: EmitEvent,
        *,
        max_argument_chars: int = MAX_ARGUMENT_CHARS,
        max_reply_chars: int = MAX_REPLY_CHARS,
    ) -> None:
        self._turn = turn
        self._emit = emit
        self._max_argument_chars = max_argument_chars
        self._max_reply_chars = max_reply_chars
        self._chars = 0
        self._blocks: list[_Text | _Thought | _Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._last: _Call | None = None
        self._usage = NOTHING_USED
        self._stop: StopReason | None = None
        self._stop_detail = ""
        self._model = ""
        self._replay: ProviderForm | None = None

    @property
    def has_begun(self) -> bool:
        """Whether any part of the reply has arrived."""
        return bool(self._blocks)

    @property
    def text(self) -> str:
        """All text so far, blocks joined by newlines."""
        return "\n".join(block.words.getvalue() for block in self._blocks if isinstance(block, _Text))

    def take(self, piece: Piece) -> None:
        """Add a piece; time is linear in it.

        Raises:
            ModelError: it is not a piece, continues a call after its end, or the reply exceeds a limit.
        """
        if isinstance(piece, str):
            self._take_text(piece)
        elif isinstance(piece, ThinkingPiece):
            self._take_thought(piece)
        elif isinstance(piece, CallPiece):
            self._take_call(piece)
        elif isinstance(piece, Usage):
            self._usage = piece
        elif isinstance(piece, StopPiece):
            self._take_stop(piece)
        elif isinstance(piece, ModelPiece):
            self._model = _read_text(piece.name, piece, "name")
        elif isinstance(piece, ProviderForm):
            self._replay = piece
        else:
            raise ModelError(
                f"a model streamed {piece!r:.200} (a {type(piece).__name__}); give text, Usage, Replay, "
                "CallPiece, ThinkingPiece, ModelPiece or StopPiece"
            )

    def message(self) -> AssistantMessage:
        """Return the whole reply, and emit its end.

        A call whose arguments can't be read keeps their text and is refused later. The same applies to a
        call in a reply that was cut short, if its arguments end in the middle: half a value must not be used.
        """
        reason = self._stop
        if reason is None or reason in {"stop", "toolUse"}:
            # Providers disagree about the reason of a reply with calls, so the calls themselves decide.
            reason = "toolUse" if self._last is not None else "stop"
        content = tuple([self._build_content(block, is_cut=reason in _CUT_SHORT) for block in self._blocks])
        self._emit(Done(reason))
        replay = None if reason in UNFINISHED else self._replay
        return AssistantMessage(
            content,
            reason,
            self._usage,
            model=self._model,
            stop_detail=self._stop_detail,
            replay=replay,
        )

    def _build_content(self, block: _Text | _Thought | _Call, *, is_cut: bool) -> ReplyContent:
        if isinstance(block, _Text):
            return TextContent(block.words.getvalue())
        if isinstance(block, _Thought):
            return ThinkingContent(block.words.getvalue(), block.signature)
        if not block.has_ended:
            self._end(block)
        call = self._read(block, is_cut=is_cut)
        self._tell(block, call)
        return call

    def _take_text(self, text: str) -> None:
        if not text:
            return
        self._count(len(text))
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, _Text):
            last = _Text()
            self._begin(last)
        last.words.write(text)
        self._emit(TextDelta(text))

    def _take_stop(self, piece: StopPiece) -> None:
        # A reason of another type may have no hash.
        if not isinstance(piece.reason, str) or piece.reason not in _STOP_REASONS:
            allowed = ", ".join(repr(each) for each in get_args(StopReason))
            raise ModelError(
                f"a model streamed a StopPiece whose reason is {piece.reason!r:.200}; give one of {allowed}"
            )
        self._stop = piece.reason
        self._stop_detail = _read_text(piece.detail, piece, "detail")

    def _take_thought(self, piece: ThinkingPiece) -> None:
        text, signature = (
            _read_text(piece.text, piece, "text"),
            _read_text(piece.signature, piece, "signature"),
        )
        if not text and not signature:
            return
        self._count(len(text) + len(signature))
        last = self._blocks[-1] if self._blocks else None
        # A signature ends a thought: text after it belongs to another one, which the signature does not
        # cover.
        if not isinstance(last, _Thought) or (text and last.signature):
            last = _Thought()
            self._begin(last)
        last.signature += signature
        if text:
            last.words.write(text)
            self._emit(ThinkingDelta(text))

    def _take_call(self, piece: CallPiece) -> None:
        words = _dump_arguments(piece.arguments)
        # Counted before the call is looked up: names and ids are a hostile server's, and no limit of
        # arguments bounds them.
        self._count(
            len(words) + len(_read_text(piece.id, piece, "id")) + len(_read_text(piece.name, piece, "name"))
        )
        call = self._find_call(piece)
        if call is None:
            call = _Call(len(self._blocks))
            self._begin(call)
            self._emit(ToolCallStart(call.place))
        elif call.has_ended and words:
            raise ModelError(f"a model continued the call {call.id or call.place} after its end")
        self._last = call
        if piece.index is not None:
            self._by_index[piece.index] = call
        if piece.id:
            self._by_id[piece.id] = call
        # Watchers have already been shown the id and the name; a change now would make two calls of one.
        if not call.is_told:
            call.id = piece.id or call.id
            call.name = call.name or piece.name
        if words:
            room = self._max_argument_chars - call.chars
            call.chars += len(words)
            if room > 0:
                call.words.write(words[:room])
                self._emit(ToolCallDelta(call.place, words[:room]))
        if piece.ends and not call.has_ended:
            self._end(call)
            # Only a call that nothing can change any more is reported early: one that broke off depends on
            # how the reply ends.
            if call.name and call.found is not None and not call.found.closed:
                self._tell(call, self._read(call, is_cut=False))

    def _find_call(self, piece: CallPiece) -> _Call | None:
        """Return the call that a piece belongs to, or None if it begins a new one."""
        if piece.index is not None:
            # A list as an index would raise where it is looked up, which nobody would take for the model's
            # fault.
            if not isinstance(piece.index, int):
                raise ModelError(
                    f"a model streamed a CallPiece whose index is {piece.index!r:.200}, not an int or None; "
                    "give the number of the call as the provider counts, or leave it out"
                )
            call = self._by_index.get(piece.index)
            is_told_apart = True
        elif piece.id:
            call = self._by_id.get(piece.id, self._last)
            is_told_apart = call is not None and call.id == piece.id
        else:
            call = self._last
            is_told_apart = False
        # Servers use one index for several calls; another id is a new call, whatever the index says.
        if call is None or (piece.id and call.id and piece.id != call.id):
            return None
        if piece.name and call.name:
            is_same = is_told_apart and piece.name == call.name and not (call.has_ended and not piece.id)
            return call if is_same else None
        if call.has_ended and piece.name:
            return None
        return call

    def _begin(self, block: _Text | _Thought | _Call) -> None:
        if len(self._blocks) >= MAX_BLOCKS:
            raise ModelError(f"a model's reply has more than {MAX_BLOCKS} blocks")
        self._blocks.append(block)

    def _count(self, chars: int) -> None:
        self._chars += chars
        if self._chars > self._max_reply_chars:
            raise ModelError(f"a model's reply is longer than {self._max_reply_chars} characters")

    def _end(self, call: _Call) -> None:
        call.has_ended = True
        call.is_too_long = call.chars > self._max_argument_chars
        call.found = None if call.is_too_long else read_arguments(call.words.getvalue())

    def _read(self, call: _Call, *, is_cut: bool) -> ToolCall:
        """Return an ended call; if the reply was cut short, arguments that break off are not used."""
        call_id, found = call.id or f"call_{self._turn}_{call.place}", call.found
        if call.is_too_long:
            kept = call.words.getvalue()[:MAX_UNREAD_CHARS]
            told = (
                f"{kept}… cut: {call.chars} characters of arguments, {self._max_argument_chars} are allowed"
            )
            return ToolCall(call_id, call.name, {}, told)
        if found is None or (found.closed and is_cut):
            return ToolCall(call_id, call.name, {}, cut_text(call.words.getvalue(), MAX_UNREAD_CHARS))
        return ToolCall(call_id, call.name, found.values)

    def _tell(self, call: _Call, read: ToolCall) -> None:
        if not call.is_told:
            call.is_told = True
            self._emit(ToolCallEnd(call.place, read))


def _read_text(text: object, piece: ThinkingPiece | CallPiece | StopPiece | ModelPiece, field: str) -> str:
    """Return the text of a field of a piece."""
    if not isinstance(text, str):
        hint = "leave it out where the provider has none" if text is None else "give text"
        raise ModelError(
            f"a model streamed a {type(piece).__name__} whose {field} is {text!r:.200}, not a str; {hint}"
        )
    return text


def _dump_arguments(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    if not isinstance(arguments, Mapping):
        raise ModelError(
            f"a model streamed a CallPiece whose arguments are {arguments!r:.200}, not a str or a mapping; "
            "give some of the argument text, or all arguments as an object"
        )
    try:
        return dump_json(to_json_value(arguments))
    except RecursionError:
        raise ModelError("a model streamed arguments nested too deeply") from None


PIECES_AT_ONCE: Final = 256
"""After this many pieces, other tasks of the gateway run, however fast the pieces arrive."""


def request_reply(
    model: GatewayModel, request: ModelRequest, assembly: StreamAssembler | None, emit: EmitEvent
) -> Awaitable[AssistantMessage]:
    """Ask a model; a streamed reply is assembled, and its pieces are reported as they arrive.

    The reply of a model that does not stream is awaited without a coroutine around it, because each request
    that waits would hold one.

    Args:
        model: The model.
        request: The request.
        assembly: Of the reply; may be None if the model does not stream.
        emit: Called with what a model that does not stream reports.

    Returns:
        The reply. Awaiting it raises :class:`ModelError` if a piece is not valid or there are too many, and
        whatever the model raises; what came before is kept in the assembly.
    """
    stream = getattr(model, "stream", None)
    if stream is None or assembly is None:
        return model.complete(request, emit)  # type: ignore[union-attr]
    return _assemble(stream(request), assembly)


async def _assemble(pieces: Any, assembly: StreamAssembler) -> AssistantMessage:
    if inspect.isawaitable(pieces):
        pieces = await pieces
    if not hasattr(pieces, "__aiter__"):
        raise ModelError(f"a model's stream is {type(pieces).__name__}; it must yield pieces")
    taken = 0
    try:
        async for piece in pieces:
            assembly.take(piece)
            taken += 1
            # A stream from memory never waits, and would keep all other sessions of this process waiting.
            if taken % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
    finally:
        await _close(pieces)
    return assembly.message()


async def _close(pieces: object) -> None:
    """Close a stream that was not read to its end: a provider's connection may depend on it."""
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()
