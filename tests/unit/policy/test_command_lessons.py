"""Ways by which commands were taken for harmless elsewhere: each is in doubt here, and says why.

Rows: the lesson, the command. Sources: the advisories named with REL-L3 and REL-L20 to REL-L33.
"""

from __future__ import annotations

import pytest

from tests.unit.policy.command_strategies import verdict

IN_DOUBT = [
    ("REL-L3 carrier", "sh -lc '$0 \"$1\"' touch x"),
    ("REL-L3 carrier", "sh -c '\"$@\"' sh touch x"),
    ("REL-L3 carrier", "env sh -c 'exec \"$0\"' touch"),
    ("REL-L8 look-alike", "ｌｓ"),
    ("REL-L8 look-alike", "l\u0455"),
    ("REL-L8 hidden sign", "ls\u200b -l"),
    ("REL-L14 the wrapper", "sh -c 'python a.py'"),
    ("REL-L20 env -S", "env -S 'sh -c python'"),
    ("REL-L20 env -S", "env --split-string='python x'"),
    ("REL-L20 env -S", "env -S'rm${IFS}x' ls"),
    ("REL-L20 env -S", "env -iS 'python x'"),
    ("REL-L20 env -S", "env -S 'ls ${HOME}'"),
    ("REL-L20 env -S", "env -S '-i ls'"),
    ("REL-L20 a file", "sh ls"),
    ("REL-L20 no command", "xargs -0"),
    ("REL-L20 env -C", "env -C /elsewhere ls"),
    ("REL-L20 wrapper", "nice python x"),
    ("REL-L20 wrapper", "nohup ./x"),
    ("REL-L20 wrapper", "timeout 5 make"),
    ("REL-L20 wrapper", "timeout --sig 9 5 ls"),
    ("REL-L20 wrapper", "stdbuf -oL awk x"),
    ("REL-L20 wrapper", "time -o f ls"),
    ("REL-L20 wrapper", "setsid sh x"),
    ("REL-L20 wrapper", "script -c ls /dev/null"),
    ("REL-L20 wrapper", "busybox ls"),
    ("REL-L20 wrapper", "busybox sh -c id"),
    ("REL-L20 wrapper", "xargs ls"),
    ("REL-L20 wrapper", "xargs -I{} ls {} --"),
    ("REL-L20 wrapper", "xargs rm --"),
    ("REL-L20 wrapper", "xargs env sort"),
    ("REL-L20 wrapper", "find . -exec ls {} +"),
    ("REL-L20 wrapper", "find . -name x -delete"),
    ("REL-L20 wrapper", "find . -fprint x"),
    ("REL-L20 wrapper", "sudo ls"),
    ("REL-L20 nothing", "env"),
    ("REL-L20 nothing", "timeout 5"),
    ("REL-L21 too deep", "env " * 40 + "ls"),
    ("REL-L21 below the depth", "env " * 20 + "python x"),
    ("REL-L22 document", "cat <<X\n$(id)\nX"),
    ("REL-L22 document", "sh <<'X'\nid\nX"),
    ("REL-L23 line end", "echo $\\\n(id)"),
    ("REL-L23 line end", 'echo "$\\\n(id)"'),
    ("REL-L23 line end", "l\\\ns"),
    ("REL-L24 member", "ls | sh"),
    ("REL-L24 member", "cat x && python y"),
    ("REL-L24 member", "ls; rm -rf x; y"),
    ("REL-L24 member", "ls\nid -x"),
    ("REL-L25 option", "sort -o x y"),
    ("REL-L25 option", "sort --output=x y"),
    ("REL-L25 option", "sort --outp x y"),
    ("REL-L25 option", "sort --compress-program=x y"),
    ("REL-L25 option", "sort --compress-prog x y"),
    ("REL-L25 option", "sort -uo x y"),
    ("REL-L25 option", "grep -r x"),
    ("REL-L25 option", "grep -nr x"),
    ("REL-L25 option", "grep --recurs x"),
    ("REL-L25 option", "date -s 0"),
    ("REL-L25 option", "date 01010101"),
    ("REL-L25 operand", "uniq a b"),
    ("REL-L25 option", "tail -f x"),
    ("REL-L26 expansion", "ls *"),
    ("REL-L26 expansion", "cat ~/x"),
    ("REL-L26 expansion", "cat $HOME"),
    ("REL-L26 expansion", "ls {a,b}"),
    ("REL-L27 variable", "LD_PRELOAD=x ls"),
    ("REL-L27 variable", "BASH_ENV=x sh -c ls"),
    ("REL-L27 variable", "env PATH=. ls"),
    ("REL-L27 variable", "PATH=.:x ls"),
    ("REL-L27 variable", "LC_ALL=../x ls"),
    ("REL-L27 variable", "LC_\u00e9=x ls"),
    ("REL-L22 document", "cat <<'E' 'a\nE\nb'\nE"),
    ("REL-L27 variable", "export PATH; ls"),
    ("REL-L28 filter", "awk 'BEGIN{system(\"id\")}'"),
    ("REL-L28 filter", "ls | awk 1"),
    ("REL-L28 filter", "sed -n 1p x"),
    ("REL-L28 filter", "jq env"),
    ("REL-L28 filter", "rg --pre x y"),
    ("REL-L28 filter", "make -n"),
    ("REL-L29 directory", "cd x && ls"),
    ("REL-L29 directory", "cd x; ./ls"),
    ("REL-L29 directory", "pushd x && ls"),
    ("REL-L30 case", "LS"),
    ("REL-L30 case", "/USR/BIN/ls"),
    ("REL-L30 joined", "bash -lc ls"),
    ("REL-L30 joined", "bash -xec 'python x'"),
    ("REL-L30 joined", "sh -ic ls"),
    ("REL-L30 joined", "bash --rcfile x -c ls"),
    ("REL-L30 joined", "bash -c -l ls"),
    ("REL-L30 pattern", "cat /usr?bin"),
    ("REL-L31 shadowed", "./ls"),
    ("REL-L31 shadowed", "/elsewhere/ls"),
    ("REL-L31 shadowed", "/usr/bin/../x/ls"),
    ("REL-L31 shadowed", "hash -p x ls; ls"),
    ("REL-L31 shadowed", "alias ls=x; ls"),
    ("REL-L31 shadowed", "enable -f x ls; ls"),
    ("REL-L31 shadowed", "printf '%n' PATH; ls"),
    ("REL-L32 settings", "git status"),
    ("REL-L32 settings", "git -c core.fsmonitor=x status"),
]

HARMLESS = [
    ("REL-L20 wrapper", "env -i LC_ALL=C nice -n 5 timeout -k 1 5 stdbuf -oL ls -l"),
    ("REL-L20 wrapper", "time nohup setsid -w ls"),
    ("REL-L20 wrapper", "command ls"),
    ("REL-L20 env -S", "env -S 'ls -l x'"),
    ("REL-L20 wrapper", "cat x | xargs -0 -n 5 grep -l y --"),
    ("REL-L20 wrapper", "sh -c 'sh -c \"ls | wc\"'"),
    ("REL-L21 deep", "env " * 20 + "ls"),
    ("REL-L22 document", "cat <<'X'\n$(id)\nX"),
    ("REL-L24 member", "ls -l | sort -k5 -n | head -5"),
    ("REL-L25 option", "grep -n x --max-count=5 f 2>/dev/null"),
    ("REL-L26 literal", "grep 'a*' 'b?'"),
    ("REL-L30 joined", "bash -xec 'ls -l'"),
]


@pytest.mark.covers(
    "REL-L3",
    "REL-L8",
    "REL-L14",
    "REL-L20",
    "REL-L22",
    "REL-L23",
    "REL-L26",
    "REL-L27",
    "REL-L29",
    "REL-L30",
    "REL-L31",
    "REL-L32",
)
@pytest.mark.parametrize(("lesson", "command"), IN_DOUBT)
def test_what_deceived_others_is_in_doubt(lesson: str, command: str) -> None:
    """Nothing of it is harmless, an *always* covers none of it, and the reason is reported."""
    found = verdict(command)
    assert not found.is_harmless, lesson
    assert not found.shapes, lesson
    assert found.doubt, lesson


@pytest.mark.covers("REL-L20", "REL-L30")
@pytest.mark.parametrize("command", ["sh -l -c ls", "bash -l -x -c 'ls -l'", "sh -x -l -c ls"])
def test_options_of_a_shell_count_wherever_they_are(command: str) -> None:
    """Each word before the text may hold some, and no later one undoes them."""
    found = verdict(command)
    assert not found.is_harmless
    assert "more options than '-c'" in found.doubt


@pytest.mark.covers("REL-L31")
def test_program_that_is_a_link_to_another_is_in_doubt() -> None:
    """Whatever ``ls`` leads to is what runs; one shell may stand for another."""

    def links(name: str) -> str:
        return {"ls": "/usr/bin/busybox", "sh": "/usr/bin/dash"}.get(name, f"/usr/bin/{name}")

    found = verdict("ls -l", links)
    assert not found.is_harmless
    assert "'ls' is a link to '/usr/bin/busybox', a program with another name" in found.doubt
    assert verdict("sh -c 'cat x'", links).is_harmless
    assert not verdict("sh -c 'ls x'", links).is_harmless


@pytest.mark.covers("REL-L20", "REL-L22", "REL-L30")
@pytest.mark.parametrize(("lesson", "command"), HARMLESS)
def test_what_is_harmless_is_known_however_it_is_wrapped(lesson: str, command: str) -> None:
    """A judge that doubts everything would pass the table above; this one can tell."""
    found = verdict(command)
    assert found.is_harmless, (lesson, found.doubt)


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("env nice -n 5 timeout 3 rm x", ("rm",)),
        ("sh -lc 'ls; rm x'", ("ls", "rm")),
        ("find . -exec sh -c 'rm x' \\;", ("rm",)),
        ("xargs -0 rm", ("rm",)),
        ("busybox rm x | sudo -n dd", ("rm", "dd")),
        ("env -S 'nice rm x'", ("rm",)),
    ],
)
def test_what_runs_in_the_end_is_named(command: str, programs: tuple[str, ...]) -> None:
    """REL-L20: in doubt or not, a person learns what is behind the wrappers."""
    assert verdict(command).programs == programs
