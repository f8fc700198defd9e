"""Typed results: the last text is a value of the schema a parent gave, within three attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.facts.session_facts import ResultRejected
from sessiontree.contracts.facts.stimuli import ResultOffered
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from tests.unit.session.session_fixtures import RESULT_SCHEMA, call, is_n
from tests.unit.session.world_fakes import World, opened


def typed(**settings: float) -> World:
    """Return a session that owes a typed result."""
    return opened(result_schema=RESULT_SCHEMA, **settings)  # type: ignore[arg-type]


def offered(world: World) -> list[tuple[str, object]]:
    """Return status and output of what the last step offers."""
    return [(str(each.result.status), each.result.output) for each in world.found(ResultOffered)]


def test_value_that_fits_is_the_output() -> None:
    """The validated value is offered, the text stays the summary."""
    world = typed()
    world.replies(text='Here it is:\n```json\n{"n": 3}\n```')
    assert offered(world) == [("completed", {"n": 3})]


def test_attempts_are_told_apart_and_the_third_failure_ends_it() -> None:
    """The model learns what does not fit, twice; then the session fails with the reason."""
    world = typed()
    for attempt, text in enumerate(["no JSON", '{"n": "one"}', "{}"], start=1):
        world.replies(text=text)
        assert [fact.attempt for fact in world.found(ResultRejected)] == [attempt]
    ((status, output),) = offered(world)
    assert (status, output) == ("failed", None)
    assert world.results == []
    told = [line for line in world.shown() if line.startswith("user: Your reply does not fit")]
    assert len(told) == 2
    assert "at /n" in told[1]


def test_schema_is_in_the_prompt_and_in_every_correction() -> None:
    """A model that was never shown it by its adapter can still meet it."""
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"zebra": {"type": "integer"}},
        "required": ["zebra"],
    }
    shown = '{"type":"object","properties":{"zebra":{"type":"integer"}},"required":["zebra"]}'
    world = opened(result_schema=schema)
    assert world.live.system_prompt is not None
    assert world.live.system_prompt.endswith(shown)
    for text in ("no JSON", "{}"):
        world.replies(text=text)
        assert world.shown()[-1].endswith(shown) or world.live.inbox[-1].message.text.endswith(shown)
    text_world = opened(result_schema={"type": "string", "minLength": 2})
    assert text_world.live.system_prompt is not None
    assert (
        'one text that fits this JSON Schema, and nothing else:\n{"type":"string"'
        in text_world.live.system_prompt
    )


def test_attempt_that_fits_after_two_counts() -> None:
    """The third attempt may still be right."""
    world = typed()
    for text in ["no JSON", "{}", '{"n": 1}']:
        world.replies(text=text)
    assert offered(world) == [("completed", {"n": 1})]


def test_new_message_begins_new_attempts() -> None:
    """Three attempts for each message, as for tools."""
    world = typed()
    for text in ["a", "b", "c"]:
        world.replies(text=text)
    world.hear("m1", "try again")
    world.replies(text="d")
    assert [fact.attempt for fact in world.found(ResultRejected)] == [1]
    world.replies(text='{"n": 1}')
    assert offered(world) == [("completed", {"n": 1})]


def test_late_notice_gives_no_fourth_attempt() -> None:
    """A turn the runtime itself starts after the third failure ends in the same failure."""
    world = typed(patience_s=0.0)
    world.runs(call("wipe"))
    for text in ["a", "b", "c"]:
        world.replies(text=text)
    world.decide(world.requests[0], "denied")
    world.replies(text='{"n": 1}')
    assert not world.found(ResultRejected)
    assert offered(world) == [("failed", None)]


def test_turns_for_mending_count() -> None:
    """MAX: asking for the result again is a turn like any other."""
    world = typed(max_turns=1)
    world.replies(text="no JSON")
    ((status, _),) = offered(world)
    assert status == "failed"
    assert world.live.turn == 1


@pytest.mark.parametrize("text", ['{"n": 1.5}', '{"n": true}', "[1]", "null", ""])
def test_value_that_does_not_fit_is_never_offered(text: str) -> None:
    """What the schema refuses is asked for again."""
    world = typed()
    world.replies(text=text)
    assert offered(world) == []
    assert world.live.asking


@given(
    texts=st.lists(
        st.one_of(st.integers(0, 3).map(lambda n: dump_json({"n": n})), st.text(max_size=5)), max_size=5
    )
)
def test_accepted_value_always_validates(texts: list[str]) -> None:
    """RESULT: whatever the model says, what is offered as output fits, and comes within three attempts."""
    world = typed()
    for text in texts:
        if not world.live.asking:
            break
        world.replies(text=text)
    for status, output in offered(world):
        assert is_n(output) if status == "completed" else output is None
    assert (
        len([fact for fact in [*world.durable, *world.unreported] if isinstance(fact, ResultRejected)]) <= 3
    )
