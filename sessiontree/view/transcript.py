"""The transcript of one session as items for a page: what it was sent, thought, said, called and got back.

It is read from the session's own facts. Long texts are cut, and the whole of one is fetched by reference: by
the number of its fact and its name in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from sessiontree.channels.question_text import format_item
from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.facts import session_facts as said
from sessiontree.contracts.facts.tree_facts import ApprovalRequested
from sessiontree.contracts.recorded import questions as asked
from sessiontree.contracts.recorded.programs import is_of_program, make_program_key
from sessiontree.contracts.reports.events import describe_exit, get_display
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable, parse_json
from sessiontree.contracts.values.messages import (
    ImageContent,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
    UserMessage,
)
from sessiontree.journal.record import JournalRecord
from sessiontree.view.differences import find_call_differences, find_result_differences
from sessiontree.view.markdown import make_lines_visible, render_markdown
from sessiontree.view.program_panel import find_text
from sessiontree.view.rows import MAX_ARGUMENT_CHARS, Argument, format_argument

MAX_TEXT_CHARS: Final = 8_000
"""Longest text of an item; a longer one is cut."""
MAX_NUMBER_CHARS: Final = 15
"""Most digits of a number that a page sends."""
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

Item = dict[str, Any]


def list_items(records: Iterable[JournalRecord], *, with_steps: bool = False) -> Iterator[Item]:
    """Yield the items of a session's facts, in their order.

    A program is one item; what it does is fetched by its key (:mod:`~sessiontree.view.program_panel`).

    Args:
        records: The facts.
        with_steps: Whether the calls of programs, and what programs print, are items too.

    Raises:
        JournalTooNew, JournalCorrupt: no release that is known here wrote a fact.
    """
    for record in records:
        images_before = 0
        for index, fact in enumerate(record.facts):
            # Counted over the whole record, whose facts share a number: as `extract_images` returns them.
            first, images_before = images_before, images_before + len(_find_images(fact))
            tell = _TOLD.get(type(fact))
            if tell is None or not (with_steps or _is_shown(fact)):
                continue
            for part, item in enumerate(tell(fact)):
                for image in item.get("images", ()):
                    image["ref"] = f"{record.seq}.{first + image.pop('number')}"
                yield {
                    "seq": record.seq,
                    "name": f"{index}.{part}",
                    "at_ms": record.at_ms,
                    **_EMPTY,
                    **item,
                }


def _is_shown(fact: Any) -> bool:
    """Return whether a fact has an item of its own: those of a program's calls are shown with the program."""
    if isinstance(fact, said.ProgramAdvanced):
        return False
    key = getattr(getattr(fact, "call", None), "key", None) or getattr(fact, "key", "")
    return isinstance(fact, said.ProgramStarted) or not is_of_program(str(key))


def find_whole_text(record: JournalRecord, item: str | None, name: str) -> str | None:
    """Return the whole of a text that a page has cut, made visible; None if the fact has no such text.

    Args:
        record: The fact.
        item: Name of the item of a session's fact; None = the fact is a request for an approval.
        name: ``text`` = the item's text, else the name of an argument of its call.
    """
    if item is None:
        asked = [fact for fact in record.facts if isinstance(fact, ApprovalRequested)]
        return _find_whole_argument(asked[0].question.call.arguments, name) if asked else None
    index, _, part = item.partition(".")
    facts = record.facts
    # The name comes from a browser; other digits of Unicode are decimals too, and a sign would count from the
    # end.
    if not (index.isascii() and part.isascii() and index.isdecimal() and part.isdecimal()):
        return None
    # Python refuses to read a very long number, with an error that no page expects.
    if len(index) > MAX_NUMBER_CHARS or len(part) > MAX_NUMBER_CHARS:
        return None
    tell = _TOLD.get(type(facts[int(index)])) if int(index) < len(facts) else None
    parts = [] if tell is None else list(tell(facts[int(index)], most=None))
    if int(part) >= len(parts):
        return None
    if name == "text":
        return str(parts[int(part)]["text"])
    call = parts[int(part)].get("call")
    texts = [] if call is None else [text for known, text, _ in call["arguments"] if known == name]
    return texts[0] if texts else None


def _find_whole_argument(arguments: Mapping[str, JsonValue], name: str) -> str | None:
    # The viewer knows the name only as it was shown, with invisible characters made visible.
    found = [value for known, value in arguments.items() if make_visible(known) == name]
    return format_argument(name, found[0], None)[1] if found else None


def extract_images(record: JournalRecord) -> list[ImageContent]:
    """Return the images of all facts of a record, in their order."""
    return [image for fact in record.facts for image in _find_images(fact)]


def _find_images(fact: Any) -> list[ImageContent]:
    blocks = getattr(getattr(fact, "message", None), "content", ())
    return [block for block in blocks if isinstance(block, ImageContent)]


_EMPTY: Final[Mapping[str, JsonValue]] = {
    "title": "",
    "text": "",
    "html": None,
    "call": None,
    "diff": None,
    "images": [],
    "is_failure": False,
    "is_cut": False,
    "turn": None,
    "tokens": None,
    "took_ms": None,
}


def _make_item(kind: str, title: str, text: str, most: int | None, **more: Any) -> Item:
    shown = text if most is None else text[:most]
    return {
        "kind": kind,
        "title": make_visible(title),
        "text": make_lines_visible(shown),
        "is_cut": len(shown) < len(text),
        **more,
    }


def _make_prose(kind: str, title: str, text: str, most: int | None, **more: Any) -> Item:
    """Return an item whose text is Markdown."""
    shown = text if most is None else text[:most]
    return _make_item(kind, title, text, most, html=render_markdown(shown), **more)


def _list_arguments(arguments: Mapping[str, JsonValue], most: int | None) -> list[Argument]:
    bound = None if most is None else MAX_ARGUMENT_CHARS
    return [format_argument(name, value, bound) for name, value in arguments.items()]


def _on_opened(fact: said.Opened, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item("notice", "system prompt", fact.system_prompt, most)


def _on_received(fact: said.MessageReceived, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    how = "steers" if fact.steer else "message"
    yield _make_prose(
        "message",
        f"{how} from {_name_origin(fact.message)}",
        fact.message.text,
        most,
        images=_list_images(fact),
    )


_SENDERS: Final = {
    "user": "you",
    "parent": "its parent",
    "child": "a child",
    "notice": "the runtime",
    "canvas": "its canvas",
    "cron": "a timed job",
}


def _name_origin(message: UserMessage) -> str:
    return _SENDERS[message.origin]


def _list_images(fact: Any) -> list[Item]:
    return [
        {"number": number, "mime": image.mime_type, "bytes": len(image.data) * 3 // 4}
        for number, image in enumerate(_find_images(fact))
        if image.mime_type in IMAGE_TYPES
    ]


def _on_replied(fact: said.TurnReplied, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    message = fact.message
    about: Item = {"turn": fact.turn, "tokens": message.usage.tokens or None}
    index = 0
    for block in message.content:
        if isinstance(block, ThinkingContent):
            if block.thinking:
                yield _make_prose("thinking", "thinks", block.thinking, most, **about)
        elif isinstance(block, TextContent):
            if block.text:
                yield _make_prose("reply", "reply", block.text, most, **about)
        else:
            call = {
                "tool": make_visible(block.name),
                "key": f"{fact.turn}.{index}",
                "arguments": _list_arguments(block.arguments, most),
            }
            index += 1
            text = block.unread if block.unread is not None else dump_readable(block.arguments)
            yield _make_item(
                "call",
                f"calls {block.name}",
                text,
                most,
                call=call,
                diff=find_call_differences(block.name, block.arguments),
                **about,
            )


def _on_called(fact: said.CallOpened, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    call = {
        "tool": make_visible(fact.tool),
        "key": fact.key,
        "arguments": _list_arguments(fact.arguments, most),
    }
    yield _make_item("call", f"the program calls {fact.tool}", dump_readable(fact.arguments), most, call=call)


def _on_delegated(fact: said.CallDelegated, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    if not fact.to_person:
        return
    items = asked.read_items(fact.call.arguments if fact.input is None else fact.input.questions)
    asks = "asks a question" if len(items) == 1 else f"asks {len(items)} questions"
    yield _make_item("question", asks, "\n".join(map(format_item, items)), most)


def _on_input_given(fact: said.InputGiven, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    answers: Any = fact.input.answers
    text = "\n".join(", ".join([*each["chosen"], *filter(None, [each["text"]])]) for each in answers)
    yield _make_item("answer", f"{fact.by} answered ({fact.surface})", text, most)


def _on_answered(fact: said.CallResolved, most: int | None) -> Iterator[Item]:
    """Tell what a person answered, by whom and where."""
    details: Any = fact.message.details
    try:
        answers = parse_json(_join_text(fact.message))["answers"]
        text = "\n".join(", ".join([*each["chosen"], *filter(None, [each["text"]])]) for each in answers)
    # The answer is still shown: what a person decided must be readable in every transcript.
    except (ValueError, KeyError, TypeError):  # a hook has replaced it
        text = _join_text(fact.message)
    yield _make_item("answer", f"{details['answered_by']} answered ({details['surface']})", text, most)


def _on_resolved(fact: said.CallResolved, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    message = fact.message
    if isinstance(message.details, dict) and "answered_by" in message.details:
        yield from _on_answered(fact, most)
        return
    how = "error" if message.is_error else describe_exit(message)
    display = get_display(message)
    title = f"{message.tool_name}: {display}" if display else f"result of {message.tool_name}"
    yield _make_item(
        "result",
        title if how is None else f"{title} ({how})",
        _join_text(message),
        most,
        diff=find_result_differences(message),
        images=_list_images(fact),
        is_failure=how is not None,
        call={"tool": make_visible(message.tool_name), "key": fact.key, "arguments": []},
    )


def _join_text(message: ToolResultMessage) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextContent))


def _on_parked(fact: said.CallParked, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item(
        "notice", f"{fact.message.tool_name} waits; the model continues", _join_text(fact.message), most
    )


def _on_rejected(fact: said.ArgumentsRejected, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    where = f" at {fact.field}" if fact.field else ""
    title = f"arguments of {fact.tool} rejected, attempt {fact.attempt}"
    yield _make_item("failure", title, f"{fact.reason}{where}", most, is_failure=True)


def _on_wanted(fact: said.ApprovalWanted, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    call = {
        "tool": make_visible(fact.call.tool),
        "key": fact.call.key,
        "arguments": _list_arguments(fact.call.arguments, most),
    }
    yield _make_item(
        "approval",
        f"asks for approval of {fact.call.tool}",
        fact.request_id,
        most,
        call=call,
        diff=find_call_differences(fact.call.tool, fact.call.arguments),
    )


def _on_settled(fact: said.ApprovalSettled, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    refused = fact.decision != "approved"
    title = f"{fact.decision} by {fact.by}" if fact.by else fact.decision
    yield _make_item("approval", title, fact.reason, most, is_failure=refused)


def _on_failed(fact: said.TurnFailed, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    text = f"{fact.reason}\n\n{fact.said}" if fact.said else fact.reason
    yield _make_item("failure", "no reply", text, most, turn=fact.turn, is_failure=True)


def _on_compacted(fact: said.ContextCompacted, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_prose("summary", "summary of the older part", fact.summary.text, most, turn=fact.turn)


def _on_finished(fact: said.RunFinished, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    if fact.error:
        yield _make_item("failure", "the run stopped short", fact.error, most, is_failure=True)
    elif fact.has_result:
        yield _make_item("end", "result", dump_readable(fact.result), most)


def _on_interrupted(fact: said.Interrupted, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item("notice", "interrupted", fact.reason, most)


def _on_stopping(fact: said.Stopping, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item("notice", f"asked to stop: {fact.status}", fact.reason, most)


def _cut(fact: said.ReplyCut, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_prose("reply", "reply, cut because its tokens were used up", fact.text, most, turn=fact.turn)


def _empty(fact: said.ReplyEmpty, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item(
        "failure", "empty reply; the model is asked once more", "", most, turn=fact.turn, is_failure=True
    )


def _on_result_rejected(fact: said.ResultRejected, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item(
        "failure", f"result rejected, attempt {fact.attempt}", fact.reason, most, is_failure=True
    )


def _on_given_up(fact: said.ToolGivenUp, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    title = f"gave up {fact.tool} after {fact.attempts} attempts"
    yield _make_item("failure", title, fact.reason, most, is_failure=True)


def _hook_failed(fact: said.HookFailed, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item(
        "failure", f"hook {fact.hook} failed at {fact.point}", fact.reason, most, is_failure=True
    )


def _on_tainted(fact: said.Tainted, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item("notice", f"has read untrusted text of {fact.source}", "", most)


def _on_program_started(fact: said.ProgramStarted, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    key, arguments = fact.call.key, fact.call.arguments
    inputs = arguments.get("inputs") if fact.source is None else arguments
    call = {
        "tool": make_visible(fact.call.tool),
        "key": key,
        "arguments": _list_arguments(inputs, most) if isinstance(inputs, dict) else [],
    }
    where = " in a program" if is_of_program(key) else ""
    yield _make_item("program", f"a program begins{where}", find_text(fact), most, call=call)


def _on_program_advanced(fact: said.ProgramAdvanced, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    """Say what a program showed, and which calls it asks for; the line of each is in its title."""
    for note in fact.notes:
        if note.sort == "fan_out":
            continue
        if note.sort == "phase":
            yield _make_item("notice", f"phase: {make_visible(note.text)}", "", most)
        else:
            yield _make_item(
                "notice",
                "its program prints" if note.sort == "print" else "its program logs",
                note.text,
                most,
            )
    for number, wanted in enumerate(fact.calls, start=fact.first):
        where = f" (line {wanted.line})" if wanted.line else ""
        call = {
            "tool": make_visible(wanted.tool),
            "key": make_program_key(fact.key, number),
            "arguments": _list_arguments(wanted.arguments, most),
        }
        text = dump_readable(wanted.arguments)
        yield _make_item("call", f"its program calls {wanted.tool}{where}", text, most, call=call)


def _on_job_started(fact: said.JobStarted, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    yield _make_item("notice", f"{fact.job_id} goes on in the background", fact.command, most)


def _on_job_ended(fact: said.JobEnded, most: int | None = MAX_TEXT_CHARS) -> Iterator[Item]:
    code = "" if fact.exit_code is None else f" with code {fact.exit_code}"
    yield _make_item("notice", f"{fact.job_id} ended: {fact.status}{code}", fact.reason, most)


_TOLD: Final[Mapping[type, Callable[..., Iterator[Item]]]] = {
    said.Opened: _on_opened,
    said.MessageReceived: _on_received,
    said.TurnReplied: _on_replied,
    said.CallOpened: _on_called,
    said.CallResolved: _on_resolved,
    said.CallDelegated: _on_delegated,
    said.InputGiven: _on_input_given,
    said.CallParked: _on_parked,
    said.ArgumentsRejected: _on_rejected,
    said.ApprovalWanted: _on_wanted,
    said.ApprovalSettled: _on_settled,
    said.TurnFailed: _on_failed,
    said.ContextCompacted: _on_compacted,
    said.RunFinished: _on_finished,
    said.Interrupted: _on_interrupted,
    said.Stopping: _on_stopping,
    said.ReplyCut: _cut,
    said.ReplyEmpty: _empty,
    said.ResultRejected: _on_result_rejected,
    said.ToolGivenUp: _on_given_up,
    said.HookFailed: _hook_failed,
    said.Tainted: _on_tainted,
    said.ProgramStarted: _on_program_started,
    said.ProgramAdvanced: _on_program_advanced,
    said.JobStarted: _on_job_started,
    said.JobEnded: _on_job_ended,
}
"""By class of fact, its items."""
