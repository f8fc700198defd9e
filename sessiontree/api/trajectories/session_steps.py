"""The steps of one session's trajectory, in the Agent Trajectory Interchange Format (ATIF)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from sessiontree.api.trajectories.step_spool import StepSpool
from sessiontree.contracts.facts import session_facts, tree_facts
from sessiontree.contracts.facts.tree_config import SessionSpec
from sessiontree.contracts.recorded.programs import make_program_key
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.contracts.values.request_names import request_name
from sessiontree.tree.rules.lifecycle import correct_usage

Step: TypeAlias = dict[str, Any]
_FROM_PEOPLE = frozenset({"user", "parent", "canvas", "cron"})
"""Origins of messages that ask the session for something; the runtime and children report to it."""


@dataclass(slots=True)
class _OpenStep:
    """A step some of whose calls have no result yet."""

    number: int
    body: Step
    waiting: set[str]
    """Keys of its calls without a result."""
    results: list[Step] = field(default_factory=list)
    children: dict[str, list[str]] = field(default_factory=dict)
    """By key of a call, the trajectories of the children that it started."""


class SessionSteps:
    """Makes the steps of one session, and keeps them in a spool as soon as they are whole.

    Args:
        spec: The session.
        model: Name of its agent's model.
        spool: Where its steps go.
        copied_upto: Facts up to this number are those of another tree, from which this one was forked.
    """

    def __init__(self, spec: SessionSpec, model: str, spool: StepSpool, copied_upto: int) -> None:
        self.spec = spec
        self.model = model
        """Name of the model that it was opened with."""
        self.status = "active"
        self.used = Usage()
        """What its replies and summaries used."""
        self.children: list[str] = []
        """Paths of its children, in the order in which they were started."""
        self.count = 0
        """Number of its steps."""
        self.calls = 0
        """Number of the calls that its replies asked for."""
        self._present = ""
        self._spool = spool
        self._copied_upto = copied_upto
        self._seq = 0
        self._at_ms = 0
        self._inbox: list[UserMessage] = []
        self._open: dict[str, _OpenStep] = {}

    def at(self, seq: int, at_ms: int) -> None:
        """Set the number and time of the facts that follow."""
        self._seq, self._at_ms = seq, at_ms

    def add(self, fact: Any) -> None:
        """Take a fact of the session in."""
        match fact:
            case session_facts.Opened(system_prompt=prompt, model=model, tools=tools):
                self.model = self._present = model
                self._put("system", prompt, extra={"tools": list(tools)})
            case session_facts.ModelChanged(model=model):
                self._present = model
            case session_facts.MessageReceived(message=message):
                self._inbox.append(message)
            case session_facts.TurnStarted(took=took):
                self._hear(self._inbox[:took])
                del self._inbox[:took]
            case session_facts.TurnReplied(turn=turn, message=reply):
                self._on_replied(turn, reply)
            case session_facts.ContextCompacted():
                self._on_compacted(fact)
            case session_facts.CompactionFailed():
                self._on_compaction_failed(fact)
            case session_facts.TurnFailed(turn=turn, reason=reason, said=said):
                told = {"request_id": request_name(self.spec.session_id, turn), "event": "request failed"}
                self._put("system", reason, extra=told | ({"said": said} if said else {}))
            case _:
                self._add_call(fact)

    def _add_call(self, fact: Any) -> None:
        match fact:
            case session_facts.ProgramAdvanced(key=program, calls=calls, first=first):
                for number, asked in enumerate(calls, first):
                    key = make_program_key(program, number)
                    self._dispatch(key, asked.tool, asked.arguments, {"program": program})
            case session_facts.CallOpened(key=key, tool=tool, arguments=arguments):
                self._dispatch(key, tool, arguments, {"asked_by": "program outside the tree"})
            case session_facts.CallParked(key=key, message=message):
                self._resolve(key, message, "pending")
            case session_facts.CallResolved(key=key, message=message, outcome=outcome):
                self._resolve(key, message, outcome)
            case session_facts.SessionForked(rewind=rewind) if rewind is not None:
                self._put("system", f"The conversation goes on after its first {rewind.upto} messages.")
                self._hear(rewind.again)

    def look(self, fact: tree_facts.VisionAnswered) -> None:
        """Take the answer of an image model in."""
        extra = {"event": "image model answered", "call": fact.key}
        self._put_reply(fact.text, fact.usage, {"model_name": fact.model}, extra)

    def start_child(self, child: SessionSpec, trajectory_id: str, key: str | None) -> None:
        """Refer to a child where its call has its result; in a step of its own if no open call started it."""
        self.children.append(child.session_id)
        open_step = None if key is None else self._open.get(key)
        if key is not None and open_step is not None:
            open_step.children.setdefault(key, []).append(trajectory_id)
            return
        result = {"subagent_trajectory_ref": _build_refs([trajectory_id])}
        self._put(
            "system", f"Session {child.session_id} was started.", {"observation": {"results": [result]}}
        )

    def finish(self) -> None:
        """Keep what is not whole: calls without a result, messages that no turn has taken."""
        for step in {id(each): each for each in self._open.values()}.values():
            self._close(step)
        self._open = {}
        self._hear(self._inbox, {"event": "not read"})
        self._inbox = []
        if not self.count:
            self._put("system", self.spec.task, extra={"event": "not started"})

    def _hear(self, messages: Iterable[UserMessage], extra: Step | None = None) -> None:
        for message in messages:
            source = "user" if message.origin in _FROM_PEOPLE else "system"
            self._put(source, _join_text(message.content), extra={"origin": message.origin, **(extra or {})})

    def _on_replied(self, turn: int, reply: AssistantMessage) -> None:
        calls: list[Step] = []
        for index, call in enumerate(reply.tool_calls):
            told: Step = {"provider_id": call.id} | ({} if call.unread is None else {"unread": call.unread})
            calls.append(_call(f"{turn}.{index}", call.name, call.arguments, told))
        self.calls += len(calls)
        more: Step = {"tool_calls": calls} if calls else {}
        if thoughts := [block.thinking for block in reply.content if isinstance(block, ThinkingContent)]:
            more["reasoning_content"] = "\n".join(thoughts)
        if (model := reply.model or self._present) != self.model:
            more["model_name"] = model
        extra: Step = {
            "request_id": request_name(self.spec.session_id, turn),
            "stop_reason": reply.stop_reason,
        }
        number, body = self._put_reply(reply.text, reply.usage, more, extra, keep=not calls)
        if calls:
            self._wait(_OpenStep(number, body, {call["tool_call_id"] for call in calls}))

    def _on_compacted(self, fact: session_facts.ContextCompacted) -> None:
        extra = {
            "request_id": request_name(self.spec.session_id, fact.turn),
            "event": "compaction",
            "summarized_messages": fact.upto - 1 - len(fact.kept),
        }
        more = {"model_name": fact.model} if fact.model else {}
        self._put_reply(_join_text(fact.summary.content), fact.usage, more, extra)

    def _on_compaction_failed(self, fact: session_facts.CompactionFailed) -> None:
        extra = {
            "request_id": request_name(self.spec.session_id, fact.turn),
            "event": "compaction failed",
            "reason": fact.reason,
        }
        if fact.usage is None:
            self._put("system", fact.reason, extra=extra)
        else:
            self._put_reply("", fact.usage, {"model_name": fact.model} if fact.model else {}, extra)

    def _dispatch(self, key: str, tool: str, arguments: Mapping[str, JsonValue], extra: Step) -> None:
        """Begin the step of a call that no reply asked for."""
        more = {"tool_calls": [_call(key, tool, arguments, {})], "llm_call_count": 0}
        number, body = self._put("agent", "", more, extra, keep=False)
        self._wait(_OpenStep(number, body, {key}))

    def _wait(self, step: _OpenStep) -> None:
        for key in step.waiting:
            self._open[key] = step

    def _resolve(self, key: str, message: ToolResultMessage, outcome: str) -> None:
        step = self._open.pop(key, None)
        if step is None:  # the model has read that it is pending, and a message brings the outcome
            return
        result: Step = {"source_call_id": key, "content": _join_text(message.content)}
        if key in step.children:
            result["subagent_trajectory_ref"] = _build_refs(step.children.pop(key))
        result["extra"] = {"outcome": outcome, "is_error": message.is_error}
        step.results.append(result)
        step.waiting.discard(key)
        if not step.waiting:
            self._close(step)

    def _close(self, step: _OpenStep) -> None:
        for key, started in step.children.items():
            step.results.append({"source_call_id": key, "subagent_trajectory_ref": _build_refs(started)})
        if step.results:
            order = {call["tool_call_id"]: place for place, call in enumerate(step.body["tool_calls"])}
            step.results.sort(key=lambda result: order[result["source_call_id"]])
            step.body["observation"] = {"results": step.results}
        self._spool.put(self.spec.session_id, step.number, step.body)

    def _put_reply(
        self, text: str, usage: Usage, more: Step, extra: Step, *, keep: bool = True
    ) -> tuple[int, Step]:
        """Make the step of a model's reply; its usage counts."""
        usage = correct_usage(usage)
        self.used += usage
        counted = {"llm_call_count": 1, "metrics": build_metrics(usage)}
        return self._put("agent", text, {**more, **counted}, extra, keep=keep)

    def _put(
        self,
        source: str,
        message: str,
        more: Step | None = None,
        extra: Step | None = None,
        *,
        keep: bool = True,
    ) -> tuple[int, Step]:
        """Make the next step; return its number and what it is. With ``keep`` it is whole."""
        self.count += 1
        body: Step = {
            "step_id": self.count,
            "timestamp": _time(self._at_ms),
            "source": source,
            "message": message,
        }
        body |= more or {}
        if self._seq <= self._copied_upto:
            body["is_copied_context"] = True
        body["extra"] = {"seq": self._seq, **(extra or {})}
        if keep:
            self._spool.put(self.spec.session_id, self.count, body)
        return self.count, body


def build_metrics(usage: Usage) -> Step:
    """Return what one reply used, as the format has it."""
    told: Step = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cache_read_tokens,
        "cost_usd": usage.cost_usd,
    }
    further = select_further_amounts(usage)
    return told | ({"extra": further} if further else {})


def select_further_amounts(usage: Usage) -> dict[str, int]:
    """Return the tokens that the format does not name; those that are not 0."""
    named = {
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "unpriced_tokens": usage.unpriced_tokens,
    }
    return {name: amount for name, amount in named.items() if amount}


def _call(key: str, tool: str, arguments: Mapping[str, JsonValue], extra: Step) -> Step:
    call: Step = {"tool_call_id": key, "function_name": tool, "arguments": dict(arguments)}
    return call | ({"extra": extra} if extra else {})


def _build_refs(trajectory_ids: Sequence[str]) -> list[JsonValue]:
    return [{"trajectory_id": each} for each in trajectory_ids]


def _join_text(content: Iterable[TextContent | ImageContent]) -> str:
    """Return blocks as text; an image is only named, since the format takes images from files alone."""
    return "\n".join(
        block.text
        if isinstance(block, TextContent)
        else f"({block.mime_type} of {len(block.data)} characters)"
        for block in content
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
