"""The protocol Open Responses: how a turn looks to its client, as an object and as a stream of events.

Source: the specification of 24 April 2026. It translates, and decides nothing about rights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.messages import Usage
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.doors.response_log import (
    AskedApproval,
    HostedCall,
    LoggedResponse,
    OutputItem,
    OwnCall,
    ResponseFold,
    SaidText,
    StartedChild,
)


@dataclass(frozen=True, slots=True)
class ResponseFrame:
    """What is the same in all states of a response."""

    response_id: str
    model: str
    """The agent."""
    tools: Mapping[str, Mapping[str, JsonValue]]
    """What the client declared of the tools that it hosts, by name."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    tool_choice: str = "auto"
    is_kept: bool = True
    is_background: bool = False


def make_response(frame: ResponseFrame, fold: ResponseFold, logged: LoggedResponse) -> dict[str, Any]:
    """Return a response as its client sees it.

    Args:
        frame: What it repeats of its request.
        fold: What the journal says.
        logged: The response in the journal.
    """
    ended = logged.ended
    status, error = "in_progress", None
    if ended is not None and ended.error is not None:
        status, error = "failed", {"code": "server_error", "message": ended.error}
    elif ended is not None:
        status = "completed"
    output = [make_item(frame.response_id, place, each) for place, each in enumerate(fold.list_items(logged))]
    output += [render_call(each) for each in (() if ended is None else ended.waiting)]
    return {
        **_make_frame(frame, logged.previous, logged.start.at_ms // 1000),
        "completed_at": ended.at_ms // 1000 if ended is not None and status == "completed" else None,
        "status": status,
        "output": output,
        "error": error,
        "usage": None if ended is None else build_usage(fold.sum_usage(logged)),
    }


def make_begun_response(frame: ResponseFrame, previous: str | None, at_s: int) -> dict[str, Any]:
    """Return a response that has begun.

    Args:
        frame: What it repeats of its request.
        previous: Id of the response before it.
        at_s: When it was made, in seconds since 1970.
    """
    return _make_frame(frame, previous, at_s)


def _make_frame(frame: ResponseFrame, previous: str | None, at_s: int) -> dict[str, Any]:
    return {
        "id": frame.response_id,
        "object": "response",
        "created_at": at_s,
        "completed_at": None,
        "status": "in_progress",
        "incomplete_details": None,
        "model": frame.model,
        "previous_response_id": previous,
        "instructions": None,
        "output": [],
        "error": None,
        "tools": [_make_tool(name, each) for name, each in frame.tools.items()],
        "tool_choice": frame.tool_choice,
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "text": {"format": {"type": "text"}},
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "top_logprobs": 0,
        "temperature": 1.0,
        "reasoning": None,
        "usage": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "store": frame.is_kept,
        "background": frame.is_background,
        "service_tier": "default",
        "metadata": dict(frame.metadata),
        "safety_identifier": None,
        "prompt_cache_key": None,
    }


def _make_tool(name: str, declared: Mapping[str, JsonValue]) -> dict[str, Any]:
    return {"type": "function", "name": name, "strict": None, **declared}


def build_usage(usage: Usage) -> dict[str, Any]:
    """Return what a response used, in tokens."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def make_item(response_id: str, place: int, item: OutputItem) -> dict[str, Any]:
    """Return an item of a response, as far as it has come; its id is the same in all of its states.

    Args:
        response_id: The response.
        place: Its place among the items, from 0.
        item: The item.
    """
    where = f"{response_id}_{place}"
    match item:
        case SaidText():
            phase = "final_answer" if item.is_final else "commentary"
            return make_message(where, item.text, "completed") | {"phase": phase}
        case OwnCall():
            return {
                "type": "sessiontree:tool_call",
                "id": f"stc_{where}",
                "status": "failed" if item.outcome not in {"ok", "started"} else "completed",
                "name": item.tool,
                "arguments": dump_json(item.arguments),
                "outcome": item.outcome,
            }
        case StartedChild():
            return {
                "type": "sessiontree:spawn",
                "id": f"sts_{where}",
                "status": "completed",
                "session": item.session,
                "kind": item.kind,
                "agent": item.agent,
                "task": item.task,
            }
        case AskedApproval():
            call = item.question.call
            return {
                "type": "sessiontree:approval",
                "id": f"sta_{where}",
                "status": "completed" if item.decision else "in_progress",
                "request_id": item.question.request_id,
                "session": item.question.session,
                "name": call.tool,
                "arguments": dump_json(call.arguments),
                "decision": item.decision or None,
            }


def make_message(where: str, text: str, status: str) -> dict[str, Any]:
    """Return a message; ``where`` is the part of its id that says where it is."""
    content = [_make_part(text)] if status == "completed" else []
    item: dict[str, Any] = {"type": "message", "id": f"msg_{where}", "role": "assistant"}
    return item | {"status": status, "content": content}


def render_call(call: HostedCall) -> dict[str, Any]:
    """Return a call that waits for the client."""
    return {
        "type": "function_call",
        "id": f"fc_{call.call_id}",
        "status": "completed",
        "call_id": call.call_id,
        "name": call.tool,
        "arguments": dump_json(call.arguments),
    }


def _make_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


class ResponseEvents:
    """Makes the events of one response, each with its number.

    A piece of text counts as many numbers as it has characters, and every other event one. So an event has
    the same number whether the text came in pieces or as a whole.

    Args:
        frame: What the response repeats of its request.
        after: Number of the last event that the client has; it and those before are left out.
    """

    def __init__(self, frame: ResponseFrame, after: int = -1) -> None:
        self._frame = frame
        self._after = after
        self._number = -1
        self._at_s = 0
        self._place = 0
        """How many items have begun."""
        self._said: list[str] | None = None
        """The pieces of the message that is open; None = none is open."""
        self._asked: dict[int, AskedApproval] = {}
        """Requests that wait, by their place."""

    def begin(self, previous: str | None, at_s: int) -> Iterator[dict[str, Any]]:
        """Yield the first events, before the model has said anything."""
        self._at_s = at_s
        for name in ("response.created", "response.in_progress"):
            yield from self._emit(name, response=make_begun_response(self._frame, previous, at_s))

    def emit_piece(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the events of a piece of text."""
        if self._said is None:
            self._said = []
            item = make_message(self._where, "", "in_progress")
            yield from self._emit("response.output_item.added", output_index=self._place, item=item)
            yield from self._emit("response.content_part.added", **self._locate_text(), part=_make_part(""))
        if text:
            self._said.append(text)
            yield from self._emit_delta(
                "response.output_text.delta", text, **self._locate_text(), logprobs=[]
            )

    def items(self, items: Sequence[OutputItem]) -> Iterator[dict[str, Any]]:
        """Yield the events of items that are new, and of requests that were decided."""
        for each in items:
            if isinstance(each, SaidText):
                yield from self._emit_message(each)
            else:
                yield from self._emit_whole_item(each)
        # A copy, because those that are decided are removed.
        for place, asked in tuple(self._asked.items()):
            if asked.decision:
                del self._asked[place]
                item = make_item(self._frame.response_id, place, asked)
                yield from self._emit("response.output_item.done", output_index=place, item=item)

    def end(self, response: Mapping[str, Any], waiting: Sequence[HostedCall]) -> Iterator[dict[str, Any]]:
        """Yield the last events.

        Args:
            response: The whole response.
            waiting: The calls that wait for the client.
        """
        if self._said is not None:  # the model was stopped before its reply was whole
            item = make_message(self._where, "", "incomplete") | {
                "content": [_make_part("".join(self._said))]
            }
            yield from self._emit("response.output_item.done", output_index=self._place, item=item)
        for call in waiting:
            yield from self._call(call)
        yield from self._emit(f"response.{response['status']}", response=response)

    def fail(self, previous: str | None, message: str) -> Iterator[dict[str, Any]]:
        """Yield the last events of a response that the journal does not have."""
        error = {"code": "server_error", "message": message}
        failed = make_begun_response(self._frame, previous, self._at_s) | {"status": "failed", "error": error}
        yield from self.end(failed, ())

    def _emit_message(self, said: SaidText) -> Iterator[dict[str, Any]]:
        sent = "" if self._said is None else "".join(self._said)
        # A hook may have changed the text after it was streamed; the next events have the whole text.
        yield from self.emit_piece(said.text[len(sent) :] if said.text.startswith(sent) else "")
        where, self._said = self._locate_text(), None
        yield from self._emit("response.output_text.done", **where, text=said.text, logprobs=[])
        yield from self._emit("response.content_part.done", **where, part=_make_part(said.text))
        item = make_item(self._frame.response_id, self._place, said)
        yield from self._emit("response.output_item.done", output_index=self._place, item=item)
        self._place += 1

    def _emit_whole_item(self, item: OutputItem) -> Iterator[dict[str, Any]]:
        place = self._place
        self._place += 1
        shown = make_item(self._frame.response_id, place, item)
        begun = shown | {"status": "in_progress"}
        yield from self._emit("response.output_item.added", output_index=place, item=begun)
        if isinstance(item, AskedApproval):
            self._asked[place] = item
        else:
            yield from self._emit("response.output_item.done", output_index=place, item=shown)

    def _call(self, call: HostedCall) -> Iterator[dict[str, Any]]:
        place = self._place
        self._place += 1
        item = render_call(call)
        begun = item | {"arguments": "", "status": "in_progress"}
        yield from self._emit("response.output_item.added", output_index=place, item=begun)
        where: dict[str, Any] = {"item_id": item["id"], "output_index": place}
        text = item["arguments"]
        yield from self._emit_delta("response.function_call_arguments.delta", text, **where)
        yield from self._emit(
            "response.function_call_arguments.done", **where, name=call.tool, arguments=text
        )
        yield from self._emit("response.output_item.done", output_index=place, item=item)

    @property
    def _where(self) -> str:
        return f"{self._frame.response_id}_{self._place}"

    def _locate_text(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._where}", "output_index": self._place, "content_index": 0}

    def _emit(self, name: str, /, **members: Any) -> Iterator[dict[str, Any]]:
        self._number += 1
        if self._number > self._after:
            yield {"type": name, "sequence_number": self._number, **members}

    def _emit_delta(self, name: str, delta: str, /, **members: Any) -> Iterator[dict[str, Any]]:
        before = self._number
        self._number += len(delta)
        if self._number > self._after:
            new = delta[max(0, self._after - before) :]
            yield {"type": name, "sequence_number": self._number, **members, "delta": new}
