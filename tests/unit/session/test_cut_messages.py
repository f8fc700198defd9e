"""What is shown cut where no summary helps: images first, then results, then messages; never for nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.settings.settings import Limits
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    measure_text,
)
from sessiontree.contracts.values.untrusted import wrap_untrusted
from sessiontree.session.cut_messages import (
    LEAST_CHARS,
    compute_result_room,
    cut_longest,
    cut_message,
    leave_out_seen_images,
    share_room,
)
from sessiontree.session.evolve import evolve
from sessiontree.session.state import SessionState, make_initial_state
from sessiontree.session.turns import FULL_SHARE
from tests.unit.session.session_fixtures import spec

PICTURE = ImageContent("AAAA", "image/png")


def state_of(messages: list[Message], overflow: str = "too long") -> SessionState:
    """Return a session with this conversation."""
    state = make_initial_state(spec(), Limits())
    state.transcript, state.overflow = list(messages), overflow
    return state


def turn(*results: str, said: str = "go", picture: bool = False) -> list[Message]:
    """Return a message, a reply that calls, and the results."""
    calls = tuple(ToolCall(f"c{n}", "read", {"n": n}) for n in range(len(results)))
    images = (PICTURE,) if picture else ()
    return [
        UserMessage((TextContent(said), *images), 1),
        AssistantMessage(calls),
        *(ToolResultMessage(f"c{n}", "read", (TextContent(text), *images)) for n, text in enumerate(results)),
    ]


def test_images_that_were_seen_go_first_and_new_ones_by_halves() -> None:
    """Text stays; a limit of images names them, and then no text is cut for it."""
    state = state_of([*turn("a", picture=True), AssistantMessage((TextContent("I see"),))], "too many images")
    state.transcript += turn("b", "c", "d" * 9_000, picture=True)
    left = leave_out_seen_images(state)
    assert left is not None
    assert left.images == (0, 2, 4)
    evolve(state, left)
    assert leave_out_seen_images(state) is None
    for count in (2, 1):
        state.overflow = "too many images"
        cut = cut_longest(state)
        assert cut is not None
        assert (len(cut.images), cut.at) == (count, ())
        evolve(state, cut)
    assert state.transcript[-1].text.startswith("d" * 9_000)


def test_longest_unseen_results_are_cut_before_a_person_s_message() -> None:
    """And the message when they are not enough; each says how long it was."""
    state = state_of(turn("r" * 9_000, "s" * 100, said="w" * 4_000))
    cut = cut_longest(state)
    assert cut is not None
    assert cut.at == (2,)
    evolve(state, cut)
    assert "of 9000 characters shown" in state.transcript[2].text
    state = state_of(turn("r" * 500, said="w" * 9_000))
    cut = cut_longest(state)
    assert cut is not None
    assert cut.at == (0,)


sizes = st.lists(st.integers(0, 60_000), min_size=1, max_size=5)


@given(sizes=sizes, said=st.integers(0, 90_000), arguments=st.integers(0, 30_000), pictures=st.booleans())
def test_cutting_ends_and_is_never_for_nothing(
    sizes: list[int], said: int, arguments: int, pictures: bool
) -> None:
    """Each cut makes the conversation shorter, until every message is short; then nothing is cut."""
    messages = turn(*("r" * size for size in sizes), said="w" * said, picture=pictures)
    state = state_of([*messages, AssistantMessage((ToolCall("x", "write", {"text": "a" * arguments}),))])
    state.transcript.append(ToolResultMessage("x", "write", (TextContent("done"),)))
    for _ in range(60):
        before = sum(map(measure_text, state.transcript)), sum(len(each.content) for each in state.transcript)
        state.overflow = "too long"
        cut = leave_out_seen_images(state) or cut_longest(state)
        if cut is None:
            break
        evolve(state, cut)
        after = sum(map(measure_text, state.transcript)), sum(len(each.content) for each in state.transcript)
        assert cut.images or after < before
    else:
        raise AssertionError("it never ends")
    assert all(measure_text(each) <= LEAST_CHARS for each in state.transcript)
    assert not any(isinstance(block, ImageContent) for each in state.transcript for block in each.content)


@given(sizes=sizes, context=st.integers(2_200, 70_000))
def test_results_of_one_reply_share_their_room(sizes: list[int], context: int) -> None:
    """Only the longest are cut, only if they do not fit together, and then they do."""
    state = state_of(turn(*("r" * size for size in sizes)), "")
    state.shared_context = context
    room = compute_result_room(context, 0, FULL_SHARE)
    cut = share_room(state, FULL_SHARE)
    assert (cut is None) == (sum(sizes) <= room)
    if cut is not None:
        short = min(cut.chars)
        assert {at - 2 for at in cut.at} == {n for n, size in enumerate(sizes) if size > short}
        evolve(state, cut)
        assert sum(len(each.text) for each in state.transcript[2:]) <= room
        assert share_room(state, FULL_SHARE) is None


def test_text_from_outside_keeps_the_mark_of_its_end() -> None:
    """However it is cut; and a call keeps its id and its name."""
    page = wrap_untrusted("p" * 9_000, kind="page", source="x")
    for chars in range(LEAST_CHARS, 9_000, 700):
        cut = cut_message(ToolResultMessage("c", "web_fetch", (TextContent(page),)), chars)
        assert cut.text.splitlines()[-1] == page.splitlines()[-1]
        assert len(cut.text) <= chars
    call = ToolCall("c1", "write", {"text": "a" * 9_000, "path": "a.txt"})
    reply = cut_message(AssistantMessage((call,)), 1_000)
    assert isinstance(reply, AssistantMessage)
    assert (reply.tool_calls[0].id, reply.tool_calls[0].name) == ("c1", "write")
    assert reply.tool_calls[0].arguments["path"] == "a.txt"
