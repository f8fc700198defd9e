"""Questions for a person as text, and the lines that a person types to answer them."""

from __future__ import annotations

from sessiontree.channels.safe_text import find_deceptive_words, make_visible
from sessiontree.contracts.recorded.questions import QuestionAnswer, QuestionItem, QuestionRequest


def format_heading(question: QuestionRequest) -> str:
    """Return who asks, and the id by which the questions can be answered elsewhere."""
    count = len(question.items)
    what = "asks a question" if count == 1 else f"asks {count} questions"
    text = f"{make_visible(question.session_id)} {what}\n  question:  {question.question_id}"
    words = find_deceptive_words(" ".join(_list_texts(question)))
    if words:
        text += f"\n  beware:    letters of several alphabets, or unusual ones, in {', '.join(words)}"
    return text


def format_item(item: QuestionItem) -> str:
    """Return one question with its numbered options, line by line, its invisible characters made visible."""
    title = f"{make_visible(item.header)}: " if item.header else ""
    lines = [f"  {title}{_indent_visible(item.question)}"]
    for number, option in enumerate(item.options, 1):
        hint = f" - {_indent_visible(option.description)}" if option.description else ""
        lines.append(f"    {number}. {make_visible(option.label)}{hint}")
    return "\n".join(lines)


def format_prompt(item: QuestionItem) -> str:
    """Return what may be typed as an answer."""
    ways = []
    if item.options:
        ways.append("numbers, such as 1,2" if item.multi_select else "a number")
    if item.allow_free_text:
        ways.append("a text")
    return f"answer with {' or '.join(ways)}; [l]ater: "


def parse_line(item: QuestionItem, line: str) -> QuestionAnswer | str:
    """Return the answer that a line gives, or why the line answers nothing."""
    text = line.strip()
    if not text:
        return "(the line is empty)"
    words = text.replace(",", " ").split()
    # Numbers before labels: a label that is a number could otherwise take the number of another option.
    if item.options and all(word.isascii() and word.isdecimal() for word in words):
        numbers = [int(word) for word in words]
        if all(1 <= number <= len(item.options) for number in numbers):
            chosen = tuple(dict.fromkeys(item.options[number - 1].label for number in numbers))
            return QuestionAnswer(chosen) if item.multi_select or len(chosen) == 1 else "(choose one of them)"
        if not item.allow_free_text:
            return f"(the options are numbered 1 to {len(item.options)})"
    folded = text.casefold()
    labels = [option.label for option in item.options if option.label.strip().casefold() == folded]
    if labels:
        return QuestionAnswer((labels[0],))
    return QuestionAnswer(text=text) if item.allow_free_text else "(choose one of the options)"


def _list_texts(question: QuestionRequest) -> list[str]:
    found = [question.session_id]
    for item in question.items:
        found += [item.header, item.question]
        found += [text for option in item.options for text in (option.label, option.description)]
    return found


def _indent_visible(text: str) -> str:
    return "\n    ".join(make_visible(line) for line in text.splitlines())
