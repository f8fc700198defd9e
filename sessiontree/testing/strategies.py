"""Hypothesis strategies for the values of the contracts: JSON, messages, and everything that is journaled.

They need hypothesis, which is part of the ``dev`` extra. Texts contain every code point, including lone
surrogates; two adjacent halves of a pair become one character, as JSON can't distinguish them.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from sessiontree.contracts.facts import stimuli
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.recorded.codec import Recorded
from sessiontree.contracts.recorded.results import Artifact, SessionResult
from sessiontree.contracts.settings.model_settings import ModelSettings
from sessiontree.contracts.settings.settings import Budget, Limits, MessagePolicy
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    ProviderForm,
    StopReason,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from sessiontree.contracts.values.pointer import make_json_pointer

JsonObject: TypeAlias = dict[str, JsonValue]


class _AnyJson:
    value: JsonValue


_JSON = get_type_hints(_AnyJson)["value"]
"""What the annotation ``JsonValue`` is, once it is read."""


def _joined(text: str) -> str:
    """Return a text with adjacent halves of surrogate pairs as the characters they make."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


texts: SearchStrategy[str] = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=12).map(_joined),
    st.sampled_from(["", "\ud800", "a\udfffb", "\u2028\x00\x7f", "Привіт, 世界", 'quo"te\\', "😀"]),
)
"""Any text."""
integers: SearchStrategy[int] = st.one_of(
    st.integers(-5, 5), st.integers(), st.sampled_from([2**53 + 1, -(2**63) - 1, 10**30])
)
"""Integers of any size, those beyond a double's precision too."""
floats: SearchStrategy[float] = st.floats(allow_nan=False, allow_infinity=False)
"""Finite floats, which have a JSON form."""
json_values: SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | integers | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value."""
json_objects: SearchStrategy[JsonObject] = st.dictionaries(texts, json_values, max_size=3)
"""Any JSON object, as the arguments of a call."""
times_ms: SearchStrategy[int] = st.integers(0, 2**53)
"""Times, in milliseconds since the epoch."""


def tuples_of(items: SearchStrategy[Any], most: int = 3) -> SearchStrategy[tuple[Any, ...]]:
    """Return tuples of ``items``, of any length up to ``most``."""
    return st.lists(items, max_size=most).map(tuple)


_counts = st.integers(0, 2**53 + 1)
usages: SearchStrategy[Usage] = st.builds(
    Usage, _counts, _counts, floats, _counts, _counts, _counts, _counts, _counts
)
"""Amounts used."""
blocks: SearchStrategy[TextContent | ImageContent] = st.one_of(
    st.builds(TextContent, texts), st.builds(ImageContent, texts, texts)
)
"""Text and images."""
tool_calls: SearchStrategy[ToolCall] = st.builds(ToolCall, texts, texts, json_objects)
"""Calls a model may ask for, sensible or not."""
user_messages: SearchStrategy[UserMessage] = st.builds(
    UserMessage, tuples_of(blocks), times_ms, st.sampled_from(["user", "parent", "child", "notice", "canvas"])
)
"""Messages in the user's role."""
assistant_messages: SearchStrategy[AssistantMessage] = st.builds(
    AssistantMessage,
    tuples_of(st.builds(TextContent, texts) | tool_calls),
    st.sampled_from(get_args(StopReason)),
    usages,
    times_ms,
    model=texts,
    stop_detail=texts,
    replay=st.none() | st.builds(ProviderForm, integers, texts, texts, json_values),
)
"""Replies."""
tool_results: SearchStrategy[ToolResultMessage] = st.builds(
    ToolResultMessage, texts, texts, tuples_of(blocks), json_values, st.booleans(), times_ms
)
"""Results of calls."""
messages: SearchStrategy[Message] = st.one_of(user_messages, assistant_messages, tool_results)
"""Any message."""
_maybe_text = st.none() | texts
artifacts: SearchStrategy[Artifact] = st.builds(
    Artifact, st.sampled_from(["file", "blob", "reference"]), texts, _maybe_text, _maybe_text, _maybe_text
)
"""What tools leave behind."""
session_results: SearchStrategy[SessionResult[Any]] = st.builds(
    SessionResult,
    st.sampled_from(SessionStatus),
    texts,
    json_values,
    tuples_of(artifacts),
    tuples_of(texts),
    usages,
)
"""How sessions end."""
_amounts = st.floats(min_value=0.001, max_value=1e9)
limits: SearchStrategy[Limits] = st.builds(
    Limits,
    max_depth=st.integers(1, 64),
    max_children=st.integers(0, 100),
    max_turns=st.integers(1, 100),
    tool_timeout_s=_amounts,
    approval_patience_s=st.none() | st.just(0.0) | _amounts,
    branch_ttl_s=st.none() | _amounts,
)
"""Bounds of a tree."""
budgets: SearchStrategy[Budget] = st.builds(
    Budget,
    tokens=st.none() | _counts,
    cost_usd=st.none() | st.just(0.0) | _amounts,
    wall_s=st.none() | _amounts,
    tool_calls=st.none() | _counts,
)
"""Amounts a session may spend."""
model_settings: SearchStrategy[ModelSettings] = st.builds(
    ModelSettings,
    max_output_tokens=st.none() | st.integers(1, 10**9),
    temperature=st.none() | st.floats(0, 2),
    thinking=st.none() | st.sampled_from(["off", "low", "medium", "high"]) | st.integers(1, 10**6),
    tool_choice=st.none() | st.text(min_size=1, max_size=8),
    stop=st.none() | tuples_of(st.text(min_size=1, max_size=3)),
    seed=st.none() | st.integers(-5, 2**63),
    deadline_s=st.none() | _amounts,
    on_length=st.none() | st.sampled_from(["fail", "continue", "accept"]),
)
"""How a model is asked."""
message_policies: SearchStrategy[MessagePolicy] = st.builds(
    MessagePolicy,
    agents=st.none() | tuples_of(st.text(min_size=1, max_size=8)),
    per_minute=st.none() | st.integers(1, 600),
    max_chars=st.none() | st.integers(1, 10**9),
)
"""What Branches may send."""
_written = st.text(max_size=8)
_globs = _written.filter(lambda text: not set("!\\[") & set(text))
_pointers = st.lists(_written, max_size=2).map(lambda parts: make_json_pointer(*parts))
rules: SearchStrategy[Rule] = st.builds(
    Rule,
    tool=_globs,
    where=st.dictionaries(_pointers, _globs, max_size=2),
    answer=st.sampled_from(["approve", "deny", "escalate"]),
)
"""Lines of an approver, as somebody can write them."""

_KNOWN: Mapping[Any, SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: integers,
    float: floats,
    str: texts,
    Usage: usages,
    ToolCall: tool_calls,
    UserMessage: user_messages,
    AssistantMessage: assistant_messages,
    ToolResultMessage: tool_results,
    Artifact: artifacts,
    Limits: limits,
    Budget: budgets,
    MessagePolicy: message_policies,
    ModelSettings: model_settings,
    Rule: rules,
    types.NoneType: st.none(),
}


def values_of(annotation: Any) -> SearchStrategy[Any]:
    """Return the values an annotation of a journaled class stands for.

    Raises:
        TypeError: no journaled class may be annotated so.
    """
    known = _KNOWN.get(annotation)
    if known is not None:
        return known
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation == _JSON:
        return json_values
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in {Union, types.UnionType}:
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return tuples_of(values_of(arguments[0]))
    if origin is tuple:
        return st.tuples(*(values_of(argument) for argument in arguments))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return json_objects
    if isinstance(origin, type) and issubclass(origin, SessionResult):
        return session_results
    return _values_of_class(annotation)


def _values_of_class(annotation: Any) -> SearchStrategy[Any]:
    if annotation is Recorded:
        return instances_of(stimuli.Incoming) | instances_of(stimuli.ChildTroubled)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return instances_of(annotation)
    raise TypeError(f"no values are known for {annotation!r}")


def instances_of(cls: Callable[..., Any]) -> SearchStrategy[Any]:
    """Return instances of a dataclass, every field of any value its annotation allows."""
    hints = get_type_hints(cls)
    return st.builds(cls, **{name: values_of(hint) for name, hint in hints.items()})
