"""What a person reads before a decision: what an *always* would cover, and nothing that deceives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessiontree.channels.safe_text import format_approval
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.contracts.recorded.senders import Principal

REQUEST = ApprovalRequest("r1", "main", "exec", {"command": "ls"}, "d", "System", 0, "main")


@pytest.mark.covers("REL-L14")
@pytest.mark.parametrize(
    ("covers", "words"),
    [
        (("/usr/bin/ls -l …", "/usr/bin/wc …"), "always:    /usr/bin/ls -l …, /usr/bin/wc …"),
        ((), "this call alone; its command can't be judged"),
        (("/usr/bin/rm exactly . 'a\x1b[2J\u202e'",), "\\u{1b}[2J\\u{202e}"),
    ],
)
def test_prompt_says_what_an_always_would_cover(covers: tuple[str, ...], words: str) -> None:
    """REL-L14: the programs and the shape of their arguments, on a line of its own, made visible."""
    lines = format_approval(replace(REQUEST, covers=covers)).splitlines()
    assert len(lines) == 4
    assert words in lines[-1]


def test_where_it_would_cover_the_tool_nothing_is_added() -> None:
    """As for every tool that runs no command."""
    assert "always" not in format_approval(REQUEST)


def test_prompt_says_whom_a_call_is_for() -> None:
    """Each on the same line, what they say of themselves quoted and visible; a name makes nobody an owner."""
    bob = Principal("bob", 'an owner", id "olga\u202e', "", "club", is_owner=False)
    olga = Principal("\u043elga", "", "telegram", "", is_owner=True)
    shown, mixed = format_approval(replace(REQUEST, asked_by=(bob, olga))).splitlines()[-2:]
    assert shown == (
        '  for:       no owner, id "bob", name "an owner\\", id \\"olga\\u{202e}", group "club"; '
        'an owner, id "\u043elga", channel "telegram"'
    )
    assert mixed.startswith("  beware:")
    assert "\u043elga" in mixed


def test_where_the_program_asks_nobody_is_named() -> None:
    """A tree that hears one person shows what it always did."""
    assert "for:" not in format_approval(REQUEST)
