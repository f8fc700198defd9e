"""Names of calls: a model may call a tool by anything, and its provider is shown what it takes."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessiontree.contracts.values.messages import (
    AssistantMessage,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
)
from sessiontree.models.sendable.provider_view import GRAMMARS, NAMES, NAMES_OF, CallNames, ProviderView
from sessiontree.schema.dialect import DIALECTS
from tests.unit.models.conversation_strategies import user

EVERYBODY = r"[a-zA-Z0-9_-]{1,64}"
FORMS = dict.fromkeys(DIALECTS, EVERYBODY) | dict.fromkeys(
    ("gemini", "gemini-openapi"), r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"
)
MALFORMED = (
    'checkErrors" />', "   ", "rëad", "x" * 85, "read\n", "\ud800", "读取",
    'toolu_01abc <|tool_call_argument_begin|> {"command"',
    "functions.read", "mcp/read", "default_api:read", "read()", "<tool>read</tool>", "0", "-", "$",
)  # fmt: skip
names = st.sampled_from([*MALFORMED, "read", "exec", "read_file-2"]) | st.text(
    st.characters(exclude_categories=[]), min_size=1, max_size=90
)
dialects = pytest.mark.parametrize("dialect", sorted(DIALECTS))


def kept_by(dialect: str) -> CallNames:
    """Return what names a dialect's calls."""
    return CallNames(NAMES_OF.get(dialect, NAMES))


@dialects
@given(own=st.lists(names, max_size=12))
@example(own=list(MALFORMED))
def test_every_name_is_in_form_and_stands_for_one(dialect: str, own: list[str]) -> None:
    """Also where a model takes up a name that it was shown; and one raw name has one form."""
    kept, again = kept_by(dialect), kept_by(dialect)
    shown = [kept.shown(name) for name in own]
    own += shown
    shown += [kept.shown(name) for name in shown]
    assert all(re.fullmatch(FORMS[dialect], name) for name in shown)
    assert [again.shown(name) for name in own] == shown
    assert len(set(shown)) == len(set(own))


@pytest.mark.slow
@dialects
@given(own=st.lists(st.from_regex(re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}"), fullmatch=True), max_size=8))
def test_name_that_fits_passes_unchanged(dialect: str, own: list[str]) -> None:
    """Whether there is such a tool or not."""
    kept = kept_by(dialect)
    assert [kept.shown(name) for name in own] == own


@dialects
@given(own=st.lists(names, min_size=1, max_size=6))
def test_call_and_result_are_shown_by_one_name(dialect: str, own: list[str]) -> None:
    """Whatever name a result has by itself; in parts or as a whole; and what was given is not touched."""
    calls = tuple(ToolCall(f"call_{at}", name, {}) for at, name in enumerate(own))
    results = [
        ToolResultMessage(call.id, "read", (TextContent("no such tool"),), None, True) for call in calls
    ]
    given_: list[Message] = [user("go"), AssistantMessage(calls, "toolUse"), *results]
    told = ProviderView(GRAMMARS.get(dialect), NAMES_OF.get(dialect, NAMES))
    whole = ProviderView(GRAMMARS.get(dialect), NAMES_OF.get(dialect, NAMES))
    for _ in range(2):
        told.take(len(told), given_)
    whole.take(0, given_ * 2)
    assert told.shown == whole.shown
    shown = [call.name for m in told.shown if isinstance(m, AssistantMessage) for call in m.tool_calls]
    assert shown == [m.tool_name for m in told.shown if isinstance(m, ToolResultMessage)]
    assert all(re.fullmatch(FORMS[dialect], name) for name in shown)
    assert shown[: len(own)] == shown[len(own) :]
    assert [call.name for call in calls] == own
    assert told.own(AssistantMessage(calls)).tool_calls[0].name == own[0]
