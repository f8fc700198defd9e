"""The words of a command: read in bounded time, whatever the text, and with the shells' own lists."""

from __future__ import annotations

import re
import shutil
import subprocess
import time

import pytest

from sessiontree.policy.commands import shell_names
from sessiontree.policy.commands.named_words import MAX_TEXT_CHARS, collect_words
from sessiontree.policy.commands.word_forms import expand_braces
from sessiontree.sandbox.commands.environment import make_fresh_environment

BASH = shutil.which("bash", path="/usr/bin:/bin") or ""
HOSTILE = {
    "variables": "a=b;$a " * 14_000,
    "fewer variables": "a=b;$a " * 9_000,
    "values": "a=b;echo $a " * 5_000,
    "chain": ";".join(f"a{n}=$a{n + 1}$a{n + 1}" for n in range(3_000)) + ";sh $a0",
    "growing chain": ";".join(f"a{n}=x$a{n + 1}" for n in range(3_000)) + ";sh $a0",
    "circle": ";".join(f"a{n}=$a{(n + 1) % 900}" for n in range(900)) + ";sh $a0",
    "documents": "cat <<A\n" * 9_000,
    "slashes": "a/" * 30_000,
    "braces": "{a,b}" * 12_000,
    "open braces": "{" * 60_000,
    "nested": "sh -c '" * 9_000,
    "substituted": "$(" * 30_000,
    "one word": "x" * 60_000,
    "quotes": "'\"`\\" * 15_000,
    "brackets": "[" * 60_000,
    "words": " ".join(f"w{n}" for n in range(10_000)),
}


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_words_are_read_in_bounded_time(text: str) -> None:
    """Without recursion, and linear in the text; what is too long is open."""
    begun = time.process_time()
    found = collect_words(text, {})
    assert time.process_time() - begun < 1
    assert len(text) <= MAX_TEXT_CHARS or found.is_open


@pytest.mark.parametrize(
    "text", ["a=b;$a " * 4_000, ";".join(f"a{n}=$a{n + 1}$a{n + 1}" for n in range(3_000))]
)
def test_one_question_reads_a_command_once(text: str) -> None:
    """The digest, its comparison and the request share what was read."""
    assert collect_words(text, {"X": "1"}) is collect_words(text, {"X": "1"})


@pytest.mark.skipif(not BASH, reason="other platform: no bash")
def test_every_builtin_and_keyword_is_listed() -> None:
    """One that a newer shell adds is noticed here; until it is listed it would be read as a program."""
    said = subprocess.run([BASH, "-c", "compgen -b; compgen -k"], capture_output=True, text=True, check=True)
    known = shell_names.KEYWORDS | shell_names.COMPOUND | shell_names.PLAIN_BUILTINS | shell_names.OPENING
    assert set(said.stdout.split()) - known == set()
    assert shell_names.OPENING.isdisjoint(shell_names.PLAIN_BUILTINS | shell_names.KEYWORDS)


@pytest.mark.skipif(not BASH, reason="other platform: no bash")
def test_every_variable_that_a_shell_sets_is_known() -> None:
    """Those that it has before it runs anything, and those of the environment."""
    environment = make_fresh_environment(("/usr/bin", "/bin"), "/", {})
    said = subprocess.run(
        [BASH, "-c", "compgen -v"], capture_output=True, text=True, check=True, env=environment
    )
    for name in {*said.stdout.split(), *environment}:
        assert shell_names.is_shells_variable(name), name
        found = collect_words(f"sh x${name}.sh", {})
        assert found.is_open, name


def test_plain_command_is_not_open() -> None:
    """What people write: the person is not warned without a reason."""
    for text in (
        "set -euo pipefail\ncd sub && make -j4 2>&1 | tail -5",
        'make; echo "exit: $?"',
        "if [ -f x.py ]; then python3 x.py; fi",
        "git commit -m 'fix `a` for $5'",
        "cat > README.md <<'EOF'\nuse `code` and $x, don't\nEOF",
        "awk '{print $1, $NF}' a | sort",
        "sed -n '1,20p' a.py",
        "export X=1; npm run build -- --mode production",
        "for f in *.py; do python $f; done",
        "PATH=$PWD/bin:$PATH run2.sh",
        "d=$(date); echo $d",
        "x=5; echo $((x+1))",
        "command -v bash",
        'curl -d \'{"a": 1, "b": 2}\' x',
        "LC_ALL=C sort words",
    ):
        assert collect_words(text, {}).why_open == "", text


@pytest.mark.parametrize(
    ("form", "expansions"),
    [
        ("a{b,c}d", "abd acd"),
        ("{1..3}", "1 2 3"),
        ("{3..1}", "1 2 3"),
        ("{1..5..2}", "1 3 5"),
        ("{5..1..-2}", "1 3 5"),
        ("{1..3..0}", "1 2 3"),
        ("{08..10}", "08 09 10"),
        ("{0..2}", "0 1 2"),
        ("{-1..1}", "-1 0 1"),
        ("{a..c}", "a b c"),
        ("{c..a..2}", "a c"),
        ("x{1..2}{a,b}", "x1a x1b x2a x2b"),
    ],
)
def test_braces_name_what_bash_makes_of_them(form: str, expansions: str) -> None:
    """A file that a command names by braces is one of the words that its rights are judged by."""
    assert set(expand_braces(form)) == {form, *expansions.split()}
    assert set(expansions.split()) <= collect_words(f"cat {form}", {}).words


@pytest.mark.parametrize("form", ["{a..C}", "{a..1}", "{-01..1}", "{1..300}", "{1..2..3..4}", "{é..z}"])
def test_braces_that_are_not_read_leave_the_command_open(form: str) -> None:
    """Nothing is taken to be harmless because it was not understood."""
    with pytest.raises(ValueError, match=re.escape(form.strip("{}"))):
        expand_braces(form)
    assert collect_words(f"sh {form}", {}).why_open


@pytest.mark.parametrize(
    ("text", "is_run"),
    [
        ("sh <<E\ncat $W\nE", True),
        ("sh <<'E'\ncat $W\nE", True),
        ('sh <<"E"\ncat $W\nE', True),
        ("sh <<-E\n\tcat $W\n\tE", True),
        ("sh <<-'E'\n\tcat $W\n\tE\ncat $W", True),
        ("cat <<'E'\n$W\nE", False),
    ],
)
def test_document_is_read_as_who_gets_it_reads_it(text: str, is_run: bool) -> None:
    """For a shell it is a program; for another command what is quoted in it names nothing."""
    assert bool(collect_words(text, {}).why_open) is is_run
    assert collect_words(text.replace("$W", "hidden/a.txt"), {}).words >= {"hidden/a.txt"}
    assert not collect_words(text.replace("$W", "hidden/a.txt"), {}).is_open
