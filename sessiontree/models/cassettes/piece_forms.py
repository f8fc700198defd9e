"""Pieces of a reply as JSON objects, without secrets; a run of pieces of one kind is one object.

Its text is whole, so that it can be read and searched; ``cuts`` gives the length of the text before each
piece but the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, get_args

from sessiontree.contracts.errors import ConfigError, ModelError
from sessiontree.contracts.values.jsonable import to_json_value
from sessiontree.contracts.values.messages import (
    NOTHING_USED,
    AssistantMessage,
    ProviderForm,
    StopReason,
    TextContent,
    ThinkingContent,
    Usage,
)
from sessiontree.hooks.redact import Redact
from sessiontree.models.port import CallPiece, ModelPiece, Piece, StopPiece, ThinkingPiece
from sessiontree.models.stream_assembler import StreamAssembler

_STOP_REASONS: Final = frozenset(get_args(StopReason))


def split_message(message: AssistantMessage) -> Iterator[Piece]:
    """Yield the pieces of a whole reply; two texts or thoughts in a row become one."""
    for index, block in enumerate(message.content):
        if isinstance(block, TextContent):
            yield block.text
        elif isinstance(block, ThinkingContent):
            yield ThinkingPiece(block.thinking)
            yield ThinkingPiece(signature=block.signature)
        else:
            arguments = block.arguments if block.unread is None else block.unread
            yield CallPiece(arguments, index, block.id, block.name, ends=True)
    if message.usage != NOTHING_USED:
        yield message.usage
    if message.model:
        yield ModelPiece(message.model)
    yield StopPiece(message.stop_reason, message.stop_detail)
    if message.replay is not None:
        yield message.replay


def encode_pieces(pieces: Sequence[Piece], redact: Redact) -> list[dict[str, Any]]:
    """Return the objects of a reply's pieces.

    If the reply holds a secret, its pieces are not kept as they came, because the secret may be in several of
    them: each block is one piece then.
    """
    wire = _join_pieces(pieces)
    assembly = StreamAssembler(1, lambda event: None)
    try:
        for piece in pieces:
            assembly.take(piece)
    except ModelError:  # whoever assembles the reply fails in the same way
        return [each for each in wire if redact.value(each) == each]
    message = assembly.message()
    cleaned = replace(
        message,
        content=tuple(_clean(block, redact) for block in message.content),
        stop_detail=redact.text(message.stop_detail),
        replay=_clean_replay(message.replay, redact),
    )
    if cleaned == message and all(redact.value(each) == each for each in wire):
        return wire
    return _join_pieces(list(split_message(cleaned)))


def decode_pieces(wire: Sequence[Mapping[str, Any]], place: str) -> Iterator[Piece]:
    """Yield the pieces of these objects.

    Args:
        wire: What :func:`encode_pieces` returned.
        place: Where they come from, for errors.

    Raises:
        ModelError: an object is not a piece.
    """
    for each in wire:
        try:
            yield from _parse_pieces(each)
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise ModelError(f"{place}: {each!r:.200} is not a piece of a reply: {error!r}") from None


def _clean(block: Any, redact: Redact) -> Any:
    if isinstance(block, TextContent):
        return TextContent(redact.text(block.text))
    if isinstance(block, ThinkingContent):
        return ThinkingContent(redact.text(block.thinking), block.signature)
    unread = None if block.unread is None else redact.text(block.unread)
    return replace(block, arguments=redact.value(to_json_value(block.arguments)), unread=unread)


def _clean_replay(replay: ProviderForm | None, redact: Redact) -> ProviderForm | None:
    return None if replay is None else replace(replay, payload=redact.value(replay.payload))


def _join_pieces(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for piece in pieces:
        for new in _to_objects(piece):
            last = found[-1] if found else {}
            if "text" in new and "text" in last:
                _join(last, "text", new["text"])
            elif "thinking" in new and "thinking" in last:
                _join(last, "thinking", new["thinking"])
            elif _is_continuation(last, new):
                _join(last, "arguments", new["arguments"])
                last |= {"ends": True} if "ends" in new else {}
            else:
                found.append(new)
    return found


def _join(run: dict[str, Any], member: str, text: str) -> None:
    if text:
        if run[member]:
            run.setdefault("cuts", []).append(len(run[member]))
        run[member] += text


def _is_continuation(last: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a piece of a call adds only text to the piece before it."""
    if "call" not in last or "call" not in new or "ends" in last:
        return False
    before, call = last["call"], new["call"]
    are_texts = isinstance(last["arguments"], str) and isinstance(new["arguments"], str)
    is_same = before.get("index") == call.get("index") and call.get("id", "") in {"", before.get("id", "")}
    return are_texts and is_same and not call.get("name")


def _to_objects(piece: Piece) -> Iterator[dict[str, Any]]:
    """Yield the objects of one piece; a piece that says nothing has none."""
    if isinstance(piece, str):
        if piece:
            yield {"text": piece}
    elif isinstance(piece, ThinkingPiece):
        if piece.text:
            yield {"thinking": piece.text}
        if piece.signature:
            yield {"signature": piece.signature}
    elif isinstance(piece, CallPiece):
        given = {"index": piece.index, "id": piece.id, "name": piece.name}
        call = {name: value for name, value in given.items() if value not in {None, ""}}
        arguments = piece.arguments if isinstance(piece.arguments, str) else to_json_value(piece.arguments)
        yield {"call": call, "arguments": arguments, **({"ends": True} if piece.ends else {})}
    else:
        yield _to_extra_object(piece)


def _to_extra_object(piece: StopPiece | ModelPiece | Usage | ProviderForm) -> dict[str, Any]:
    """Return the object of a piece that is not part of the reply's content."""
    if isinstance(piece, StopPiece):
        return {"stop": piece.reason, **({"detail": piece.detail} if piece.detail else {})}
    if isinstance(piece, ModelPiece):
        return {"model": piece.name}
    if isinstance(piece, Usage):
        return {"usage": piece.to_wire()}
    return {
        "replay": {
            "version": piece.version,
            "provider": piece.provider,
            "system": piece.system,
            "payload": piece.payload,
        }
    }


def _parse_pieces(wire: Mapping[str, Any]) -> Iterator[Piece]:
    if "text" in wire:
        yield from _cut(wire, "text")
    elif "thinking" in wire:
        yield from map(ThinkingPiece, _cut(wire, "thinking"))
    elif "signature" in wire:
        yield ThinkingPiece(signature=wire["signature"])
    elif "call" in wire:
        yield from _call_pieces(wire)
    elif "stop" in wire:
        if wire["stop"] not in _STOP_REASONS:
            raise ValueError(f"no reply stops by {wire['stop']!r}")
        yield StopPiece(wire["stop"], wire.get("detail", ""))
    elif "model" in wire:
        yield ModelPiece(wire["model"])
    elif "usage" in wire:
        yield Usage.from_wire(wire["usage"])
    else:
        yield ProviderForm.from_wire(wire["replay"])


def _call_pieces(wire: Mapping[str, Any]) -> Iterator[CallPiece]:
    call, arguments, ends = wire["call"], wire["arguments"], wire.get("ends") is True
    index, call_id, name = call.get("index"), call.get("id", ""), call.get("name", "")
    if not isinstance(arguments, str):
        yield CallPiece(arguments, index, call_id, name, ends)
        return
    parts = list(_cut(wire, "arguments"))
    yield CallPiece(parts[0], index, call_id, name, ends and len(parts) == 1)
    for number, part in enumerate(parts[1:], 2):
        yield CallPiece(part, index, "" if index is not None else call_id, ends=ends and number == len(parts))


def _cut(wire: Mapping[str, Any], member: str) -> Iterator[str]:
    """Yield a text in the parts in which it came; at least one."""
    text = wire[member]
    if not isinstance(text, str):
        raise TypeError(f"{member} is not text")
    bounds = [0, *wire.get("cuts", ()), len(text)]
    if bounds != sorted(bounds):
        raise ValueError("cuts are not in order")
    for begin, end in pairwise(bounds):
        yield text[begin:end]
