"""What is called harmless is harmless in the shell that runs it: bash and dash run thousands of odd lines."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from sessiontree.contracts.recorded.approvals import Precedent
from sessiontree.policy.commands.command_line import is_harmless_variable, split_calls
from sessiontree.policy.commands.verdict import derive_precedent, judge
from sessiontree.sandbox.commands.environment import SYSTEM_PATH, make_program_finder
from tests.example_fixtures import examples
from tests.unit.policy.command_strategies import find, verdict

IsHarmless = Callable[[str, str], bool]
"""Takes a shell and a text for its ``-c``."""

CALLS = ("ls", "cat victim", "echo hi", "wc -l victim", "echo 'a b'", "true", "head -1 victim", "LC_ALL=C ls")
DANGERS = ("rm victim", "touch made", "mv victim away", "-c rm victim", "sh -c 'rm victim'", "./evil")
JOINTS = (
    *(
        "&>/dev/null",
        "&> /dev/null",
        "&>>/dev/null",
        ">&/dev/null",
        ">/dev/null",
        "2>/dev/null",
        "</dev/null",
    ),
    *("2>&1", "1>&2", ">&1", ">&2", "2>&1&>/dev/null", "<>/dev/null", ">|/dev/null", ">&-", "2>&-", "<&0"),
    *(
        "|",
        "|&",
        "||",
        "&&",
        "&",
        ";",
        ";;",
        ";&",
        ";;&",
        "\n",
        "!",
        "time",
        "coproc",
        "function f",
        "[[",
        "]]",
    ),
    *(
        "<<'E'\nx\nE\n",
        "<<-'E'\n\tx\n\tE\n",
        "<<E\n$(rm victim)\nE\n",
        "<<< x",
        "<<<$(rm victim)",
        "<(rm victim)",
    ),
    *(
        "$'\\x3b'",
        '$"x"',
        "{a,b}",
        "{ls,-l}",
        "{}",
        "{",
        "}",
        "(",
        ")",
        "[",
        "#",
        "\\;",
        "\\\n",
        "'",
        '"',
        "\\'",
    ),
    *(
        "é",
        "あ\\;",
        "Ł",
        "\u0101",
        "a=b",
        "a+=b",
        "--",
        "-",
        "-c",
        "~",
        "*",
        "=",
        "^x^y",
        "!!",
        "%1",
        "$",
        "`",
    ),
)
BLANKS = (" ", " ", " ", "", "\t")
SHELLS = {name: path for name in ("dash", "sh", "bash") if (path := shutil.which(name, path="/usr/bin:/bin"))}


def drawn(chance: Random) -> str:
    """Return a line of harmless calls, dangers and joints by chance."""
    pieces: list[str] = [chance.choice(CALLS)]
    for _ in range(chance.randint(1, 4)):
        pool = chance.choices((JOINTS, CALLS, DANGERS), (5, 1, 2))[0]
        pieces += [chance.choice(BLANKS), chance.choice(pool)]
    return "".join(pieces)


def within(shell: str, text: str) -> str:
    """Return a command that gives a text to a shell."""
    return f"{shell} -c {shlex.quote(text)}"


def judged(shell: str, text: str) -> bool:
    """Whether the judge calls a text harmless for a shell."""
    finder = make_program_finder("/nonexistent", SYSTEM_PATH)
    nested = judge(within(shell, text), finder).is_harmless
    if shell == "bash":  # which is the shell that commands are given to
        assert judge(text, finder).is_harmless == nested
    return nested


def as_bash_reads(shell: str, text: str) -> bool:
    """Planted: every shell is taken for bash."""
    return judged("bash", text)


def harmed(shell: str, texts: Iterable[str], place: Path) -> Iterator[str]:
    """Run each text in a directory with a victim; yield those that left it otherwise."""
    for number, text in enumerate(texts):
        folder = place / f"{shell}{number}"
        folder.mkdir()
        (folder / "victim").write_text("precious\n")
        (folder / "evil").write_text("#!/bin/sh\nrm victim\n")
        (folder / "evil").chmod(0o755)
        before = sorted(folder.iterdir())
        reads, writes = os.pipe()  # held by whatever it starts, in the background too
        subprocess.run(
            [SHELLS[shell], "-c", text], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, pass_fds=[writes], check=False, timeout=120,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        )  # fmt: skip
        os.close(writes)
        while os.read(reads, 1):
            pass
        os.close(reads)
        if sorted(folder.iterdir()) != before or (folder / "victim").read_text() != "precious\n":
            yield text


def check(is_harmless: IsHarmless, place: Path, seed: int, tried: int) -> int:
    """Property: no line that is called harmless for a shell changes anything there; returns how many ran."""
    chance = Random(seed)
    lines = [drawn(chance) for _ in range(tried)]
    count = 0
    for shell in SHELLS:
        harmless = [text for text in dict.fromkeys(lines) if is_harmless(shell, text)]
        assert next(harmed(shell, harmless, place), None) is None
        count += len(harmless)
    return count


@pytest.mark.slow
def test_harmless_lines_harm_nothing_in_the_shell_that_runs_them(tmp_path: Path) -> None:
    """Redirections, lists and marks that one shell knows and another takes for something else."""
    assert "dash" in SHELLS or "sh" in SHELLS
    tried = 4 * examples(1_200)
    assert check(judged, tmp_path, seed=7, tried=tried) > tried // 8


@pytest.mark.slow
@pytest.mark.skipif("dash" not in SHELLS, reason="other platform: no dash")
def test_planted_judge_of_one_dialect_is_found(tmp_path: Path) -> None:
    """A judge that takes every shell for bash fails the property."""
    with pytest.raises(AssertionError):
        check(as_bash_reads, tmp_path, seed=7, tried=1_200)


@pytest.mark.parametrize("mark", ["&>/dev/null", "&> /dev/null", "|& cat"])
@pytest.mark.parametrize("shell", ["sh", "dash", "env sh", "nice /usr/bin/dash"])
def test_what_bash_alone_knows_is_in_doubt_for_others(shell: str, mark: str) -> None:
    """Also deeper within, and also where bash runs the outer text."""
    for text in (f"ls {mark}", f"ls {mark} rm victim"):
        found = verdict(within("bash", within(shell, text)))
        assert (found.is_harmless, found.shapes) == (False, ())
        assert found.doubt
    assert verdict(f"ls {mark}").is_harmless
    assert verdict(within(shell, within("bash", f"ls {mark}"))).is_harmless
    with pytest.raises(ValueError, match="background"):
        split_calls(f"ls {mark}", is_bash=False)


def test_without_bash_text_is_for_the_shell_of_posix() -> None:
    """Where the machine has no bash, or what is called so is another shell."""

    def posix_find(name: str, *, bash: str | None) -> str | None:
        program = name.rpartition("/")[2]
        return bash if program == "bash" else f"/usr/bin/{program}"

    for bash in (None, "/usr/bin/dash"):
        finder = partial(posix_find, bash=bash)
        assert not judge("ls &>/dev/null rm victim", finder).is_harmless
        assert not judge("bash -c 'ls &>/dev/null rm victim'", finder).is_harmless
        assert judge("ls >/dev/null 2>&1", finder).is_harmless


@pytest.mark.parametrize("command", ["sh - -c ls", "bash - -c 'ls -l'", "dash -e - -c ls", "sh -- -c ls"])
def test_file_named_like_an_option_is_no_text(command: str) -> None:
    """Behind ``-`` and ``--`` options have ended: ``-c`` is a script of the workspace."""
    assert not verdict(command).is_harmless
    assert verdict(command).doubt


LOCALES = ("C", "POSIX", "C.UTF-8", "C.utf8", "en_US.UTF-8", "de_AT.utf8", "sr.UTF8", "zh_CN.utf-8")
OTHER_LOCALES = (
    *(
        "zh_CN.GBK",
        "zh_TW.BIG5",
        "zh_HK.Big5-HKSCS",
        "ja_JP.SJIS",
        "ja_JP.Shift_JIS",
        "zh_CN.GB18030",
        "ko_KR.JOHAB",
    ),
    *("zh_CN", "ja_JP", "de_DE", "de_DE@euro", "de_DE.ISO-8859-1", "japanese", "zh", "UTF-8", ".UTF-8", ""),
    *(
        "zh_CN.GBK.UTF-8",
        "zh_CN.GBK@UTF-8",
        "zh_CN.UTF-8@cjk",
        "C.GBK",
        "../x.UTF-8",
        "en_US.UTF-8\n",
        "x y.UTF-8",
    ),
)
NAMES = ("LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES")


def with_locale(name: str, value: str) -> list[Precedent]:
    """Return what is known of a line that gives a shell a locale: before it, by ``env``, and by the call."""
    line, setting = "bash -c 'echo x'", shlex.join((f"{name}={value}",))
    called = derive_precedent({"command": "echo x", "env": {name: value}}, "command", find)
    written = [f"{name}={value} {line}", f"env {setting} {line}", f"env -i {setting} nice {line}"]
    return [called, *(derive_precedent({"command": each}, "command", find) for each in written)]


@pytest.mark.parametrize("name", NAMES)
def test_locale_whose_letters_hide_no_sign_is_harmless(name: str) -> None:
    """Those of ASCII and UTF-8: no byte of a letter is a backslash or a quote."""
    for value in LOCALES:
        assert all(found.is_harmless for found in with_locale(name, value)), value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", OTHER_LOCALES)
def test_any_other_locale_is_in_doubt(name: str, value: str) -> None:
    """Under GBK, Big5, Shift_JIS or GB18030 bash takes a backslash for half of a letter."""
    for found in with_locale(name, value):
        assert (found.is_harmless, found.shapes) == (False, ())


def test_other_variables_are_in_doubt() -> None:
    """What looks like one of a locale is not one, and LANGUAGE names catalogues of messages."""
    for name in (
        "LANGUAGE",
        "LC_",
        "LC_\u00e9",
        "LANG2",
        "XLANG",
        "LC_ALL ",
        "lc_all",
        "CHARSET",
        "OUTPUT_CHARSET",
    ):
        assert not is_harmless_variable(name, "C"), name
    for name in ("NO_COLOR", "COLUMNS"):
        assert is_harmless_variable(name, "80")
        assert not is_harmless_variable(name, "$(id)")
