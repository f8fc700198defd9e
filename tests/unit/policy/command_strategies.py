"""Words for tests of commands: a machine's programs, and hostile text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hypothesis import strategies as st

from sessiontree.policy.commands.verdict import LITERAL, PROGRAMS, Find, Verdict, judge

Judge: TypeAlias = Callable[[str], Verdict]
WRAPPERS = (
    "env",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "timeout",
    "time",
    "xargs",
    "bash",
    "dash",
    "sh",
    "ionice",
)
INTERPRETERS = (
    *("python", "python3", "perl", "ruby", "node", "php", "lua", "tclsh", "Rscript", "guile", "java", "deno"),
    *("awk", "gawk", "mawk", "sed", "jq", "bc", "dc", "m4", "ed", "ex", "vi", "vim", "emacs", "less", "more"),
    *(
        "find",
        "make",
        "git",
        "rg",
        "tar",
        "zip",
        "rsync",
        "ssh",
        "docker",
        "npm",
        "pip",
        "cargo",
        "go",
        "gcc",
    ),
    *(
        "zsh",
        "fish",
        "busybox",
        "sudo",
        "printf",
        "test",
        "eval",
        "source",
        "exec",
        "xxd",
        "man",
        "tee",
        "dd",
    ),
)
"""Programs with a language, an output or a program of their own."""
SYSTEMS = frozenset({*PROGRAMS, *LITERAL, *WRAPPERS, *INTERPRETERS})


def find(name: str) -> str | None:
    """Find programs of a machine that has them all in one directory."""
    folder, _, program = name.rpartition("/")
    return f"/usr/bin/{program}" if folder in {"", "/bin", "/usr/bin"} and program in SYSTEMS else None


def verdict(command: str, finder: Find = find) -> Verdict:
    """Judge a command on that machine."""
    return judge(command, finder)


HARMLESS_CALLS = st.sampled_from(
    ("ls -la", "cat 'a b'", "grep -n x f", "wc -l", "head -5", "sort -u", "uniq -c", "echo hi", "env true")
)
OTHER_CALLS = st.sampled_from(
    (
        "rm -r x",
        "python a.py",
        "sort -o x",
        "A=1 ls",
        "cd x",
        "sh x",
        "LS",
        "./ls",
        "env -S '$x'",
        "tail -f x",
    )
)
CALLS = HARMLESS_CALLS | OTHER_CALLS
PIECES = st.sampled_from(
    (
        *(
            "ls",
            "cat",
            "env",
            "sh",
            "bash",
            "-c",
            "-S",
            "timeout",
            "5",
            "xargs",
            "--",
            "A=1",
            "LC_ALL=C",
            "-",
        ),
        *("'", '"', "\\", "\n", " ", "\t", ";", "|", "||", "&", "&&", "|&", "<", ">", "<<", "<<'E'\n", "E\n"),
        *(
            "$",
            "$(",
            "`",
            "(",
            ")",
            "{",
            "}",
            "{}",
            "*",
            "?",
            "[",
            "]",
            "~",
            "#",
            "!",
            "=",
            "2>&1",
            ">/dev/null",
        ),
        *("a", "é", "ｌｓ", "\u202e", "\u200b", "\x1b", "\0", "\ud800", "\u3164", "\xa0", "/usr/bin/ls"),
    )
)
HOSTILE = st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=40)
"""Text as a shell may get it, and worse."""
