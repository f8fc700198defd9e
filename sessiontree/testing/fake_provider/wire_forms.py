"""The wire forms of five providers: what a question says, and a reply as events of a stream or as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

from sessiontree.contracts.values.jsonable import parse_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.testing.fake_provider.fake_reply import FakeUsage, SignedReply

WireEvent: TypeAlias = tuple[str, Mapping[str, Any] | str]
"""Name of an event, ``""`` = it has none; and its data, JSON unless it is text."""
STARTED_S: Final = 1_780_000_000


def stream_pieces(text: str, chars: int) -> Iterator[str]:
    """Yield a text in pieces of so many characters; one empty piece of an empty text."""
    for at in range(0, len(text) or 1, chars):
        yield text[at : at + chars]


class WireForm(Protocol):
    """How one provider writes."""

    @property
    def caches_marked_only(self) -> bool:
        """Whether only what is marked is cached."""
        ...

    @property
    def signs(self) -> bool:
        """Whether thoughts are signed."""
        ...

    def prompt(self, body: Mapping[str, Any]) -> list[Any]:
        """Return what a question consists of, in the order in which the provider reads it."""
        ...

    def events(self, said: SignedReply) -> Iterator[WireEvent]:
        """Yield the events of a streamed reply."""
        ...

    def whole(self, said: SignedReply) -> Mapping[str, Any]:
        """Return a reply that is not streamed."""
        ...

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """Return the body of an error."""
        ...


def _as_list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


@dataclass(frozen=True, slots=True)
class ChatForm:
    """Chat completions, of OpenAI and of Mistral."""

    is_mistral: bool = False
    caches_marked_only: bool = False
    signs: bool = False

    def prompt(self, body: Mapping[str, Any]) -> list[Any]:
        """Return tools, then messages."""
        return [*_as_list(body.get("tools")), *_as_list(body.get("messages"))]

    def events(self, said: SignedReply) -> Iterator[WireEvent]:
        """Yield chunks: thoughts, text, calls, the finish, the usage."""
        yield self._make_chunk(said, {"role": "assistant", "content": ""})
        for key, words in self._list_texts(said):
            for piece in stream_pieces(words, said.reply.delta_chars) if words else ():
                yield self._make_chunk(said, self._make_delta(key, piece))
        for index, call in enumerate(said.reply.calls):
            begun = {"index": index, "id": said.call_id(index), "type": "function"}
            if self.is_mistral:  # it sends whole calls
                function = {"name": call.name, "arguments": call.arguments}
                yield self._make_chunk(said, {"tool_calls": [{**begun, "function": function}]})
                continue
            yield self._make_chunk(
                said, {"tool_calls": [{**begun, "function": {"name": call.name, "arguments": ""}}]}
            )
            for piece in stream_pieces(call.arguments, said.reply.delta_chars):
                more = {"index": index, "function": {"arguments": piece}}
                yield self._make_chunk(said, {"tool_calls": [more]})
        last = self._make_chunk(said, {}, self._finish(said))[1]
        usage = {"usage": self._usage(said.usage)}
        if self.is_mistral:
            yield "", {**last, **usage}
        else:
            yield "", last
            yield "", {**self._make_head(said, "chat.completion.chunk"), "choices": [], **usage}
        yield "", "[DONE]"

    def whole(self, said: SignedReply) -> Mapping[str, Any]:
        """Return ``chat.completion``."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for key, words in self._list_texts(said):
            message.update(self._make_delta(key, words) if words else {})
        if said.reply.calls:
            message["tool_calls"] = [
                {
                    "id": said.call_id(index),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for index, call in enumerate(said.reply.calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._finish(said)}
        return {
            **self._make_head(said, "chat.completion"),
            "choices": [choice],
            "usage": self._usage(said.usage),
        }

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """Return ``{error: {message, type, code}}``; of Mistral ``{object, message, type, code}``."""
        if self.is_mistral:
            return {"object": "error", "message": message, "type": "fake", "param": None, "code": str(status)}
        return {"error": {"message": message, "type": "fake_error", "param": None, "code": None}}

    def _list_texts(self, said: SignedReply) -> Iterator[tuple[str, str]]:
        reply = said.reply
        if reply.refusal:
            yield ("content" if self.is_mistral else "refusal"), reply.refusal
            return
        if reply.thinking:
            yield "reasoning_content", reply.thinking
        yield "content", reply.text

    def _make_delta(self, key: str, words: str) -> dict[str, Any]:
        if key == "reasoning_content" and self.is_mistral:
            return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": words}]}]}
        return {key: words}

    def _finish(self, said: SignedReply) -> str:
        if said.reply.finish:
            return said.reply.finish
        return "tool_calls" if said.reply.calls else "stop"

    def _make_head(self, said: SignedReply, kind: str) -> dict[str, Any]:
        return {"id": f"chat-{said.number}", "object": kind, "created": STARTED_S, "model": said.model}

    def _make_chunk(
        self, said: SignedReply, delta: Mapping[str, Any], finish: str | None = None
    ) -> tuple[str, Mapping[str, Any]]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return "", {**self._make_head(said, "chat.completion.chunk"), "choices": [choice]}

    def _usage(self, usage: FakeUsage) -> dict[str, Any]:
        return {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        }


@dataclass(frozen=True, slots=True)
class ResponsesForm:
    """Responses, of OpenAI."""

    caches_marked_only: bool = False
    signs: bool = True

    def prompt(self, body: Mapping[str, Any]) -> list[Any]:
        """Return tools, instructions, then items."""
        return [
            *_as_list(body.get("tools")),
            *_as_list(body.get("instructions")),
            *_as_list(body.get("input")),
        ]

    def events(self, said: SignedReply) -> Iterator[WireEvent]:
        """Yield the response's beginning, each item's, and its end; every event is numbered."""
        for number, (kind, event) in enumerate(self._events(said)):
            yield kind, {"type": kind, "sequence_number": number, **event}

    def _events(self, said: SignedReply) -> Iterator[tuple[str, dict[str, Any]]]:
        begun = {**self.whole(said), "status": "in_progress", "output": [], "usage": None}
        yield "response.created", {"response": begun}
        for index, item in enumerate(self._items(said)):
            place = {"output_index": index, "item_id": item["id"]}
            yield "response.output_item.added", {"output_index": index, "item": self._begun(item)}
            if item["type"] == "reasoning":
                part = {**place, "summary_index": 0}
                empty = {"type": "summary_text", "text": ""}
                yield "response.reasoning_summary_part.added", {**part, "part": empty}
                for piece in stream_pieces(said.reply.thinking, said.reply.delta_chars):
                    yield "response.reasoning_summary_text.delta", {**part, "delta": piece}
            elif item["type"] == "message":
                yield from self._stream_message(said, item, {**place, "content_index": 0})
            else:
                for piece in stream_pieces(item["arguments"], said.reply.delta_chars):
                    yield "response.function_call_arguments.delta", {**place, "delta": piece}
                whole = {**place, "arguments": item["arguments"], "name": item["name"]}
                yield "response.function_call_arguments.done", whole
            yield "response.output_item.done", {"output_index": index, "item": item}
        end = "response.incomplete" if said.reply.finish == "length" else "response.completed"
        yield end, {"response": self.whole(said)}

    def _stream_message(
        self, said: SignedReply, item: Mapping[str, Any], place: Mapping[str, Any]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        content = item["content"][0]
        key = "refusal" if content["type"] == "refusal" else "text"
        kind = "response.refusal" if key == "refusal" else "response.output_text"
        yield "response.content_part.added", {**place, "part": {**content, key: ""}}
        for piece in stream_pieces(content[key], said.reply.delta_chars):
            yield f"{kind}.delta", {**place, "delta": piece, "logprobs": []}
        yield f"{kind}.done", {**place, key: content[key], "logprobs": []}

    def _begun(self, item: Mapping[str, Any]) -> dict[str, Any]:
        empty: dict[str, dict[str, Any]] = {
            "reasoning": {"summary": [], "encrypted_content": None},
            "message": {"content": []},
        }
        return {**item, **empty.get(item["type"], {"arguments": ""}), "status": "in_progress"}

    def _items(self, said: SignedReply) -> Iterator[dict[str, Any]]:
        reply = said.reply
        if said.signature:
            summary = [{"type": "summary_text", "text": reply.thinking}]
            thought = {"type": "reasoning", "id": f"rs_{said.number}", "summary": summary}
            yield {**thought, "encrypted_content": said.signature}
        message = {"type": "message", "id": f"msg_{said.number}", "role": "assistant", "status": "completed"}
        if reply.refusal:
            yield {**message, "content": [{"type": "refusal", "refusal": reply.refusal}]}
        elif reply.text:
            yield {**message, "content": [{"type": "output_text", "text": reply.text, "annotations": []}]}
        for index, call in enumerate(reply.calls):
            call_id = said.call_id(index)
            named = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": call.name}
            yield {**named, "arguments": call.arguments, "status": "completed"}

    def whole(self, said: SignedReply) -> Mapping[str, Any]:
        """Return ``response``."""
        is_cut = said.reply.finish == "length"
        usage = said.usage
        return {
            "id": f"resp_{said.number}",
            "object": "response",
            "created_at": STARTED_S,
            "model": said.model,
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": list(self._items(said)),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.input_tokens + usage.output_tokens,
            },
        }

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """Return ``{error: {message, type, code}}``."""
        return ChatForm().error(status, message)


@dataclass(frozen=True, slots=True)
class MessagesForm:
    """Messages, of Anthropic."""

    caches_marked_only: bool = True
    signs: bool = True

    def prompt(self, body: Mapping[str, Any]) -> list[Any]:
        """Return tools, system, then messages."""
        parts = [*_as_list(body.get("tools")), *_as_list(body.get("system")), *_as_list(body.get("messages"))]
        if "cache_control" in body and parts:  # the mark of all that there is
            parts[-1] = {"part": parts[-1], "cache_control": body["cache_control"]}
        return parts

    def events(self, said: SignedReply) -> Iterator[WireEvent]:
        """Yield the message's beginning, its blocks, and its end."""
        for kind, event in self._events(said):
            yield kind, {"type": kind, **event}

    def _events(self, said: SignedReply) -> Iterator[tuple[str, dict[str, Any]]]:
        whole = dict(self.whole(said))
        usage = {**whole["usage"], "output_tokens": 1}
        begun = {**whole, "content": [], "stop_reason": None, "stop_details": None, "usage": usage}
        yield "message_start", {"message": begun}
        for index, block in enumerate(whole["content"]):
            kind = block["type"]
            empty: dict[str, Any] = {
                "text": {"type": "text", "text": ""},
                "thinking": {"type": "thinking", "thinking": "", "signature": ""},
                "tool_use": {**block, "input": {}},
            }[kind]
            yield "content_block_start", {"index": index, "content_block": empty}
            for delta in self._deltas(said, block):
                yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
        stop = {
            "stop_reason": whole["stop_reason"],
            "stop_sequence": None,
            "stop_details": whole["stop_details"],
        }
        yield "message_delta", {"delta": stop, "usage": {"output_tokens": said.usage.output_tokens}}
        yield "message_stop", {}

    def _deltas(self, said: SignedReply, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        chars = said.reply.delta_chars
        if block["type"] == "text":
            for piece in stream_pieces(block["text"], chars):
                yield {"type": "text_delta", "text": piece}
        elif block["type"] == "thinking":
            for piece in stream_pieces(block["thinking"], chars):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": block["signature"]}
        else:
            for piece in stream_pieces(said.reply.calls[int(block["id"][-3:])].arguments, chars):
                yield {"type": "input_json_delta", "partial_json": piece}

    def whole(self, said: SignedReply) -> Mapping[str, Any]:
        """Return ``message``; arguments that are not JSON become an empty object."""
        reply, usage = said.reply, said.usage
        content: list[dict[str, Any]] = []
        if said.signature:
            content.append({"type": "thinking", "thinking": reply.thinking, "signature": said.signature})
        if reply.text and not reply.refusal:
            content.append({"type": "text", "text": reply.text})
        for index, call in enumerate(reply.calls):
            arguments = _parse_object(call.arguments)
            content.append(
                {"type": "tool_use", "id": said.call_id(index), "name": call.name, "input": arguments}
            )
        stop = "max_tokens" if reply.finish else "tool_use" if reply.calls else "end_turn"
        return {
            "id": f"msg_{said.number}",
            "type": "message",
            "role": "assistant",
            "model": said.model,
            "content": content,
            "stop_reason": "refusal" if reply.refusal else stop,
            "stop_sequence": None,
            "stop_details": {"type": "refusal", "explanation": reply.refusal} if reply.refusal else None,
            "usage": {
                "input_tokens": usage.input_tokens - usage.cached_tokens - usage.written_tokens,
                "cache_read_input_tokens": usage.cached_tokens,
                "cache_creation_input_tokens": usage.written_tokens,
                "output_tokens": usage.output_tokens,
            },
        }

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """Return ``{type: "error", error: {type, message}}``."""
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            403: "permission_error",
            404: "not_found_error",
            429: "rate_limit_error",
            529: "overloaded_error",
        }
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


@dataclass(frozen=True, slots=True)
class GeminiForm:
    """``generateContent``, of Google; a call comes whole, its arguments as an object."""

    caches_marked_only: bool = False
    signs: bool = True

    def prompt(self, body: Mapping[str, Any]) -> list[Any]:
        """Return tools, system instruction, then contents."""
        tools, system = _as_list(body.get("tools")), _as_list(body.get("systemInstruction"))
        return [*tools, *system, *_as_list(body.get("contents"))]

    def events(self, said: SignedReply) -> Iterator[WireEvent]:
        """Yield chunks: thoughts, text, calls; the last one has the finish and the usage."""
        for part in self._parts(said):
            words = part.get("text")
            if words is None:
                yield "", self._make_chunk(said, [part])
                continue
            for piece in stream_pieces(words, said.reply.delta_chars):
                yield "", self._make_chunk(said, [{**part, "text": piece}])
        yield "", self._make_chunk(said, [], is_last=True)

    def whole(self, said: SignedReply) -> Mapping[str, Any]:
        """Return all parts in one."""
        return self._make_chunk(said, list(self._parts(said)), is_last=True)

    def _parts(self, said: SignedReply) -> Iterator[dict[str, Any]]:
        reply = said.reply
        if reply.refusal:
            return
        if reply.thinking:
            yield {"text": reply.thinking, "thought": True}
        if reply.text:
            yield {"text": reply.text}
        for index, call in enumerate(reply.calls):
            called = {"id": said.call_id(index), "name": call.name, "args": _parse_object(call.arguments)}
            signed = {"thoughtSignature": said.signature} if said.signature and index == 0 else {}
            yield {"functionCall": called, **signed}

    def _make_chunk(
        self, said: SignedReply, parts: list[dict[str, Any]], *, is_last: bool = False
    ) -> dict[str, Any]:
        reply, usage = said.reply, said.usage
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
        if is_last:
            stop = "MAX_TOKENS" if reply.finish else "STOP"
            candidate["finishReason"] = "SAFETY" if reply.refusal else stop
            candidate["finishMessage"] = reply.refusal or None
        return {
            "candidates": [candidate],
            "modelVersion": said.model,
            "responseId": f"g-{said.number}",
            "usageMetadata": {
                "promptTokenCount": usage.input_tokens,
                "cachedContentTokenCount": usage.cached_tokens,
                "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
                "thoughtsTokenCount": usage.reasoning_tokens,
                "totalTokenCount": usage.input_tokens + usage.output_tokens,
            },
        }

    def error(self, status: int, message: str) -> Mapping[str, Any]:
        """Return ``{error: {code, message, status}}``."""
        names = {
            400: "INVALID_ARGUMENT",
            401: "UNAUTHENTICATED",
            403: "PERMISSION_DENIED",
            404: "NOT_FOUND",
            429: "RESOURCE_EXHAUSTED",
            503: "UNAVAILABLE",
            529: "UNAVAILABLE",
        }
        return {"error": {"code": status, "message": message, "status": names.get(status, "INTERNAL")}}


def _parse_object(arguments: str) -> Any:
    try:
        return parse_json(arguments)
    except ValueError:
        return {}


CHAT: Final = ChatForm()
MISTRAL: Final = ChatForm(is_mistral=True)
RESPONSES: Final = ResponsesForm()
MESSAGES: Final = MessagesForm()
GEMINI: Final = GeminiForm()
