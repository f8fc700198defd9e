"""Commands by chance that run scripts of a workspace: ways to set, to name and to run, combined."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

SETUPS: Final = (
    *("x=ru", "x=run", "x=1", "x=2 y=ru", "y=$x", "x=(ru)", "x+=n", "unset x", "a[0]=ru", "x=' run.sh'"),
    *("((x=1+1))", ": $((x=2))", "let x=2", "declare -i x=1+1", "declare -n y=x", "echo $((x=2)) >o"),
    *("set -- ru", "IFS=u", "IFS=,", "export x", "export x=2", "read x <l", ": ${x:=1}", "printf -v x ru"),
    *(
        "for x in ru 1 2; do :; done",
        "for ((x=0;x<2;x++)); do :; done",
        "select x in ru; do break; done <<<1",
    ),
    *(
        "cd sub",
        "cd sub; cd ..",
        "cd sub/../sub",
        "pushd sub >o",
        "cd -",
        "cd",
        "cd ~",
        "CDPATH=sub; cd deep",
    ),
    *("f() { sh $1; }", "f() { cd sub; }; f", "alias r='sh run.sh'", "trap 'sh run.sh' EXIT", ". ./set.sh"),
    *("shopt -s dotglob extglob nocaseglob", "GLOBIGNORE=.x", "set -f", "set -eu", "set -o noglob", "set -a"),
    *("exec {x}</dev/null", "exec {x}<l", "[[ x=2 -eq 2 ]]", "true & wait -p x", "getopts a: x -a ru"),
    *("x=2 true", "(x=2)", "{ x=2; }", "x=2 | true", "false && x=2", "x=$(echo ru)", "x=`echo 2`", "x=$(<l)"),
    *("HOME=$PWD/sub", "HOME=sub", "PATH=$PWD/sub:$PATH", "PATH=sub", "ENV=run.sh", "BASH_ENV=run.sh"),
    *("mapfile -t a <l", "x='$(echo run).sh'", "x='ru\\n'", "x=*", "x='run*'", "x=-O", "x=~", "x=~+/run"),
    *(
        "true",
        "echo hi >o",
        "# it's",
        "echo 'a b'",
        "ls >o",
        "USER=run",
        "LC_ALL=C",
        "y=x x=1",
        "readonly x=1",
    ),
    *(
        "echo 'sh run1.sh' >w",
        "cat <<'E' >w\nsh run2.sh\nE",
        "cat <<E >w\nsh run$x.sh\nE",
        "printf 'sh %s' run1.sh >w",
    ),
)
NAMES: Final = (
    *("run.sh", "run$x.sh", "${x}n.sh", "$x", "$x.sh", "r$y.sh", "$y", "run1.sh", "./run.sh", "sub/run.sh"),
    *(
        "r{u,}n.sh",
        "run{0..2}.sh",
        "run{,1}.sh",
        "{run,x}.sh",
        "{x\\,y,z}.sh",
        "r{u'}',x}n.sh",
        "{+1..+2}.sh",
    ),
    *(
        "{a..c}.sh",
        "{run,{a,b}}.sh",
        "run{$x,9}.sh",
        "run{1..$x}.sh",
        "{2..1}.sh",
        "{01..02}.sh",
        "'{a,b}'.sh",
    ),
    *(
        "run[01].sh",
        "r[[:alpha:]]n.sh",
        "r[[=u=]]n.sh",
        "r[!a]n.sh",
        "r[^a]n.sh",
        "r[]u]n.sh",
        "ru?.sh",
        "*.sh",
    ),
    *(
        "'[a]'/x?.sh",
        "[a]/x1.sh",
        "[a]*/x1.sh",
        "@(run).sh",
        "?(r)un.sh",
        ".*.sh",
        "**/run.sh",
        "RU*",
        "su*/run.sh",
    ),
    *(
        "run$((1+1)).sh",
        "run$[1+1].sh",
        "$(echo run).sh",
        "`echo run`.sh",
        "$(<l)",
        "run$?.sh",
        "run$#.sh",
        "run$-.sh",
    ),
    *(
        "$_",
        "$1",
        '"$@"',
        "$*",
        "$0",
        "${1}n.sh",
        "${a}n.sh",
        "${a[0]}n.sh",
        "${x:-run}.sh",
        "${x%x}.sh",
        "${!y}",
    ),
    *(
        "${#x}.sh",
        "${x^^}.sh",
        "${x/r/u}.sh",
        "${x}",
        "$USER.sh",
        "$HOME.sh",
        "$TERM.sh",
        "$SHLVL.sh",
        "run$UID.sh",
    ),
    *(
        "$'r\\x75n.sh'",
        "$'run.sh\\0x'",
        "$'r\\un.sh'",
        "$'\\162un.sh'",
        '$"run.sh"',
        "r\\un.sh",
        "r''un.sh",
        "r\\\nun.sh",
    ),
    *(
        "'r'\"u\"n.sh",
        '"run$x".sh',
        "'run$x.sh'",
        '"\\run.sh"',
        "$PWD/run.sh",
        "${PWD}n.sh",
        '"$OLDPWD"run.sh',
    ),
    *(
        "~/run.sh",
        "~+/run.sh",
        "~-/run.sh",
        "../sub/run.sh",
        "link/run.sh",
        "w",
        "x$PWD",
        "$PATH.sh",
        "run.sh\r",
    ),
)
RUNNERS: Final = (
    *(
        "sh {}",
        "./{}",
        ". ./{}",
        "bash {}",
        "sh < {}",
        "cat {} | sh",
        "bash -c 'sh {}'",
        "eval sh {}",
        "dash {}",
    ),
    *(
        'sh -c "sh {}"',
        "env sh {}",
        "env -S 'sh {}'",
        "env x=1 sh {}",
        "{}",
        "command sh {}",
        "command . ./{}",
    ),
    *("bash -O dotglob -c 'sh {}'", "sh -c 'sh $0' {}", "bash -c 'sh \"$@\"' _ {}", "echo {} | xargs sh"),
    *(
        "if true; then sh {}; fi",
        "for f in {}; do sh $f; done",
        "case 1 in 1) sh {};; esac",
        "while sh {}; do break; done",
    ),
    *(
        "echo sh {} >v; sh v",
        "cat <<E >v\nsh {}\nE\nsh v",
        "sh <<E\nsh {}\nE",
        "sh <<'E'\nsh {}\nE",
        "bash <<<'sh {}'",
    ),
    *(
        "timeout 5 sh {}",
        "nice sh {}",
        "(sh {})",
        "{ sh {}; }",
        "! sh {}",
        "time -p sh {}",
        "sh {} &",
        "f {}",
        "$x {}",
    ),
    *(
        "find . -name run.sh -exec sh {} +",
        "sh -s <{}",
        "exec 3<{}; sh <&3",
        "s=sh; $s {}",
        "sh w",
        "sh $y{}",
        "cd $x; sh {}",
    ),
    *(
        "ls {} | while read n; do sh $n; done",
        "x=1; sh {}",
        "coproc sh {}; wait",
        "awk 'BEGIN {system(\"sh run.sh\")}'",
    ),
    *(
        "printf 'sh %s' {} | sh",
        "sh -eu {}",
        "sh - {}",
        "bash -- {}",
        "bash --norc {}",
        "sh ./{}",
        'bash -c "$x {}"',
    ),
)
JOINTS: Final = ("; ", "; ", "\n", " && ", " || ", " & ", " | ")
SCRIPTS: Final = (
    *(
        "run.sh",
        "run0.sh",
        "run1.sh",
        "run2.sh",
        "run3.sh",
        "run9.sh",
        "run-1.sh",
        "runhBc.sh",
        "runx.sh",
        ".run.sh",
    ),
    *(
        "RUN.sh",
        "ru.sh",
        "n.sh",
        ".sh",
        "un.sh",
        "rn.sh",
        "x.sh",
        "z.sh",
        "x,y.sh",
        "+1.sh",
        "1.sh",
        "2.sh",
        "01.sh",
    ),
    *(
        "02.sh",
        "a.sh",
        "b.sh",
        "c.sh",
        "10.sh",
        "session.sh",
        "dumb.sh",
        "0.sh",
        "run.s",
        "runx",
        "run",
        "u.sh",
        "uun.sh",
    ),
    *(
        "ru'n.sh",
        "run.sh\r",
        "{a,b}.sh",
        "r}n.sh",
        "ruxn.sh",
        "[a]/x1.sh",
        "[a]/x?.sh",
        "a/x1.sh",
        "subn.sh",
        "wsn.sh",
    ),
    *(
        "sub/run.sh",
        "sub/run1.sh",
        "sub/run2.sh",
        "sub/n.sh",
        "sub/deep/run.sh",
        "sub/deep/run1.sh",
        "sub/sub/run.sh",
    ),
    *(
        "run$x.sh",
        "r[u]n.sh",
        "run{1..2}.sh",
        "run{1..$x}.sh",
        "9.sh",
        "run1",
        "sub/session.sh",
        "ru\\n.sh",
        "$x.sh",
    ),
)
"""Paths of the scripts that a command may run."""


def drawn(chance: Random) -> str:
    """Return a command by chance."""
    parts = [chance.choice(SETUPS) for _ in range(chance.choice((0, 1, 1, 2, 2, 3)))]
    for _ in range(chance.choice((1, 1, 1, 2))):
        parts.append(chance.choice(RUNNERS).replace("{}", chance.choice(NAMES)))
        if chance.random() < 0.2:
            parts.append(chance.choice(SETUPS))
    text = parts[0]
    for part in parts[1:]:
        text += chance.choice(JOINTS) + part
    return text


def make_workspace(place: Path, log: Path) -> None:
    """Make a workspace whose scripts write their own paths to a log."""
    for name in SCRIPTS:
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        quoted = name.replace("'", "'\\''")
        path.write_text(f"#!/bin/sh\nprintf '%s\\0' '{quoted}' >>{log}\n")
        path.chmod(0o755)
    (place / "l").write_text("run.sh\n")
    (place / "set.sh").write_text("x=2\ncd sub\n")
    (place / "link").symlink_to("sub")
