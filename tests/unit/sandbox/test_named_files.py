"""What a command names: the text about it changes with every change of that, and with nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.sandbox.commands.named_files import fingerprint_named_files

Named = Callable[[str, Mapping[str, JsonValue], str], str]
COMMANDS = [
    "python a.py",
    "sh -c 'python a.py' &",
    "./a.py>b",
    "x --file=a.py",
    "cat 'a.py",
    '"a.py"',
]


def _rewrite(path: Path) -> None:
    path.write_text("something else")


def _rewrite_as_if_nothing_was(path: Path) -> None:
    before = path.stat()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # a clock of the file system may tick slowly
        path.write_text("other")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def _point_elsewhere(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    path.unlink()
    path.symlink_to(copy)


CHANGES: list[Callable[[Path], None]] = [
    Path.unlink,
    _rewrite,
    _rewrite_as_if_nothing_was,
    _replace,
    _point_elsewhere,
]


def notices(named: Named, place: Path, command: str, change: Callable[[Path], None]) -> None:
    """Property: REL-L10, whatever is done to a file that a command names changes the text."""
    arguments: dict[str, JsonValue] = {"command": command}
    (place / "a.py").write_text("first")
    (place / "other.py").write_text("x")
    before = named(str(place), arguments, "command")
    (place / "other.py").write_text("y")
    (place / "new").mkdir()
    assert named(str(place), arguments, "command") == before
    change(place / "a.py")
    assert named(str(place), arguments, "command") != before


@pytest.mark.covers("REL-L10")
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("command", COMMANDS)
def test_changed_file_is_noticed(tmp_path: Path, command: str, change: Callable[[Path], None]) -> None:
    """Also one that kept its length and its time, and one that a copy took the place of."""
    notices(fingerprint_named_files, tmp_path, command, change)


def _by_words(workspace: str, arguments: Mapping[str, JsonValue], member: str) -> str:
    return str(arguments[member])


def _by_size_and_time(workspace: str, arguments: Mapping[str, JsonValue], member: str) -> str:
    path = Path(workspace, "a.py")
    return str((path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else None)


def _by_everything(workspace: str, arguments: Mapping[str, JsonValue], member: str) -> str:
    return str([(each.name, each.stat().st_ctime_ns) for each in sorted(Path(workspace).iterdir())])


@pytest.mark.covers("REL-L10")
@pytest.mark.parametrize("broken", [_by_words, _by_size_and_time, _by_everything])
def test_planted_bugs_are_noticed(tmp_path: Path, broken: Named) -> None:
    """A text of words, or of size and time, misses a change; one of the whole directory sees too many."""
    with pytest.raises(AssertionError):
        for number, change in enumerate(CHANGES):
            place = tmp_path / str(number)
            place.mkdir()
            notices(broken, place, "python a.py", change)


WAYS = (
    *(
        "cd sub && sh run2.sh",
        "cd sub && ./run2.sh",
        "cd sub; sh run2.sh",
        "env -C sub sh run2.sh",
        "pushd sub && sh run2.sh",
    ),
    *(
        "sh sub/run2*",
        "sh sub/{run2.sh,x}",
        "f=run2; sh sub/$f.sh",
        "cd ./sub/; . ./run2.sh",
        "(cd sub && sh run2.sh)",
    ),
    *(
        "env --chdir=sub sh run2.sh",
        "env -Csub sh run2.sh",
        "cd su? && sh run2.sh",
        "cd [a-z]ub; sh r*2.s[h]",
    ),
    *(
        "sh 'sub'/\"run2\".sh >out",
        "sh s\\ub/ru\\n2.sh >out",
        "sh $'sub/r\\x75n2.sh'",
        "sh $'sub\\057run2.sh'",
    ),
    *(
        "for f in sub/run{1..3}.sh; do sh $f; done",
        "cat sub/{a,run}{1,2}.sh | sh",
        "sh {sub,x}/run2.sh",
        'sh "$PWD"/sub/run2.sh',
        "sh ~+/sub/run2.sh",
    ),
    *(
        "a=cd; b=sub; $a $b && sh run2.sh",
        "d=sub f=$d/run2.sh; d=sub; f=$d/run2; sh $f.sh",
        "for f in run2 x; do sh sub/$f.sh; done",
    ),
    *(
        "f() { sh sub/$1.sh; }; f run2",
        "sh -c 'sh \"$1\"' x sub/run2.sh",
        "set -- run2; sh sub/$1.sh",
        "eval 'cd sub; sh run2.sh'",
    ),
    *(
        "sh -c 'cd sub; sh run2.sh'",
        "bash -c \"bash -c 'cd sub && sh run2.sh'\"",
        "c='sh sub/run2.sh'; $c",
        "trap 'sh sub/run2.sh' EXIT",
    ),
    *(
        "sh <<'E'\ncd sub # don't\nsh run2.sh\nE",
        "# it's\ncd sub && sh run2.sh",
        "cd sub \\\n && sh run2.sh",
        "sh < sub/run2.sh",
    ),
    *(
        "cp -r sub t && sh t/run2.sh",
        "ln -s sub l && cd l && sh run2.sh",
        "mv sub t; cd t/deep; sh ../run2.sh",
        "cat sub/run2.sh | sh",
    ),
    *(
        "find . -name 'run2*' -exec sh {} \\;",
        "ls sub/*.sh | xargs -n1 sh",
        "echo run2 | xargs -I{} sh sub/{}.sh",
        "sh $(ls sub/run2*)",
    ),
    *(
        "sh `echo sub/run2`.sh",
        "read f <<<run2; sh sub/$f.sh",
        "printf 'sh sub/%s.sh' run2 | sh",
        "f=run; f+=2; sh sub/$f.sh",
    ),
    *(
        "f=run2.txt; sh sub/${f%.txt}.sh",
        "a=(x run2); sh sub/${a[1]}.sh",
        "sh <(cat sub/run2.sh)",
        "source <(echo sh sub/r''un2.sh)",
    ),
    *(
        "shopt -s extglob; eval 'sh sub/@(run2|x).sh'",
        "sh sub/deep/../run2.sh",
        "cd sub/deep && sh ../run2.sh",
        "cd sub/deep; cd ..; sh run2.sh",
    ),
    *(
        "PATH=$PWD/sub:$PATH run2.sh",
        "CDPATH=sub; cd deep && sh ../run2.sh",
        'python3 -c \'import os; os.chdir("sub"); os.system("sh run2.sh")\'',
    ),
    *(
        "IFS=/; f=sub/run2.sh; set -- $f; IFS=; sh $1/$2",
        "sh sub/run$((1+1)).sh",
        "HOME=$PWD; sh ~/sub/run2.sh",
        "cd link && sh run2.sh",
    ),
    *(
        "cd link/deep/.. && sh run2.sh",
        "case a in a) sh sub/run2.sh;; esac",
        "if cd sub; then sh run2.sh; fi",
        "time sh sub/run2.sh &",
    ),
    "# it's fine\neval 'cd su[b]/deep\nenv sh $'\"'\"'../run\\x32.sh'\"'\"''",
    "cat <<A >out <<-'B'\ndon't\nA\n\tisn't\n\tB\neval 'cd sub\nsh r\"un\"2.sh'",
)
"""Ways to run one script; strangers to one another."""


def ran(command: str, place: Path) -> bool:
    """Make a workspace, run a command in it by bash, and return whether the script ran."""
    (place / "sub" / "deep").mkdir(parents=True)
    (place / "sub" / "run2.sh").write_text('#!/bin/sh\n: >"$MARK"\n')
    (place / "sub" / "run2.sh").chmod(0o755)
    (place / "link").symlink_to("sub")
    mark = place.with_suffix(".ran")
    env = {"PATH": os.environ["PATH"], "MARK": str(mark), "HOME": str(place.with_suffix(".home"))}
    before = place.with_suffix(".copy")
    shutil.copytree(place, before, symlinks=True)
    subprocess.run(
        ["/bin/bash", "-c", command], cwd=before, env=env, stdin=subprocess.DEVNULL, capture_output=True,
        check=False, timeout=120,
    )  # fmt: skip
    return mark.exists()


def binds_what_it_runs(named: Named, place: Path, command: str) -> None:
    """Property: a command that runs a script is bound to what the script holds."""
    arguments: dict[str, JsonValue] = {"command": command}
    assert ran(command, place)
    before = named(str(place), arguments, "command")
    assert named(str(place), arguments, "command") == before
    (place / "sub" / "run2.sh").write_text("something else")
    assert named(str(place), arguments, "command") != before


@pytest.mark.slow
@pytest.mark.parametrize("command", WAYS)
def test_script_is_bound_however_it_is_reached(tmp_path: Path, command: str) -> None:
    """APP7: by a directory that another word names, a pattern, a variable, a text within a text."""
    binds_what_it_runs(fingerprint_named_files, tmp_path / "workspace", command)


ORDINARY = (
    *(
        "python a.py --level=3 x:y && ls -la | head -5",
        "cd sub && ./run2.sh",
        "pytest -q tests/test_a.py::test_b[1]",
    ),
    *(
        "awk '{print $1, $NF}' a.py",
        "sed -n 's/a$/b/p' a.py",
        "for f in a.py b.py; do python $f; done",
        "make -C sub",
    ),
    *(
        "git commit -m 'costs $5 (or less)'",
        'echo "done: $?" >> out.txt 2>&1',
        "cd sub && sh run2.sh || echo failed",
    ),
    *("cat <<'E' > a.py\nprint('don\\'t')\nE\npython a.py", "rm -r build *.pyc", "X=1 python -c 'print(1)'"),
    *(
        "npm run build -- --mode production",
        "ls -la $HOME $PWD",
        "f=run2; sh sub/$f.sh",
        "sh sub/{run2.sh,x}",
    ),
)


@pytest.mark.parametrize("command", ORDINARY)
def test_ordinary_command_is_not_bound_to_more(tmp_path: Path, command: str) -> None:
    """What another session does elsewhere in the workspace takes no yes back."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "sub" / "run2.sh").write_text("x")
    arguments: dict[str, JsonValue] = {"command": command}
    before = fingerprint_named_files(str(tmp_path), arguments, "command")
    for place in (tmp_path, tmp_path / "sub"):
        (place / "unrelated").write_text("x")
    assert fingerprint_named_files(str(tmp_path), arguments, "command") == before
    (tmp_path / "a.py").write_text("y")
    (tmp_path / "sub" / "run2.sh").write_text("y")
    names_one = any(word in command for word in (" a.py", "run2"))
    assert (fingerprint_named_files(str(tmp_path), arguments, "command") != before) == names_one


@pytest.mark.parametrize(
    "command", ["sh $(ls -t | head -1)", "find . -exec sh {} +", "ls | xargs sh", "ls | sh"]
)
def test_what_is_computed_is_bound_to_every_file_that_commands_see(tmp_path: Path, command: str) -> None:
    """Not to those that are hidden from them, nor to writes under way."""
    for name in ("state", "sub/deep", ".git"):
        (tmp_path / name).mkdir(parents=True)
    arguments: dict[str, JsonValue] = {"command": command}
    hidden = [tmp_path / "state"]

    def named() -> str:
        return fingerprint_named_files(str(tmp_path), arguments, "command", hidden)

    before = named()
    (tmp_path / "state" / "journal").write_text("x")
    (tmp_path / ".sessiontree-unfinished-1").write_text("x")
    assert named() == before
    for name in ("new", "sub/deep/new", ".git/new"):
        (tmp_path / name).write_text("x")
        assert named() != before
        before = named()
    (tmp_path / "sub" / "link").symlink_to("deep/new")
    assert named() != before


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *(
            "x " * 30_000,
            "{a,b}" * 40,
            "sh " + "a/" * 3000,
            "$(" * 2000,
            "'" * 4001,
            "(" * 5000,
            "${a}" * 3000,
        ),
        *(
            "a=$a; $a$a$a$a",
            "a=$b; b=$a; sh $a",
            "\n".join(f"x{n} $1" for n in range(600)),
            "\\" * 4001,
            "* " * 2000,
        ),
        *(
            "**/**/**/**/*",
            "{1..99999999}",
            "\\'\"" * 2000,
            "[" * 3000,
            "sh -c " * 500,
            "$'" + "\\x" * 3000,
            "~" * 3000,
        ),
        *("env -u " * 20_000, "x " + "sh " * 30_000),
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_hostile_text_is_read_in_bounded_time(tmp_path: Path, command: str) -> None:
    """Whatever it is made of; here are files enough to make patterns cost something."""
    for n in range(200):
        (tmp_path / f"d{n % 10}").mkdir(exist_ok=True)
        (tmp_path / f"d{n % 10}" / f"f{n}").touch()
    begun = time.process_time()
    assert fingerprint_named_files(str(tmp_path), {"command": command}, "command")
    assert time.process_time() - begun < 20  # what grows with the square takes minutes


@pytest.mark.covers("REL-L9")
def test_swapped_directory_is_noticed(tmp_path: Path) -> None:
    """REL-L9: what a command starts in is the directory, not its name."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "place").symlink_to("here")
    arguments: dict[str, JsonValue] = {"command": "ls", "workdir": "place"}
    before = fingerprint_named_files(str(tmp_path), arguments, "command")
    assert fingerprint_named_files(str(tmp_path), {"command": "ls", "workdir": "here"}, "command") == before
    (tmp_path / "place").unlink()
    (tmp_path / "place").symlink_to("there")
    assert fingerprint_named_files(str(tmp_path), arguments, "command") != before


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": 5},
        {"command": "ls", "workdir": 5},
        {"command": "\0 " + "x" * 5000 + " /etc/passwd ../x \ud800", "workdir": "\0"},
    ],
)
def test_nothing_is_said_of_what_is_not_there(tmp_path: Path, arguments: dict[str, Any]) -> None:
    """Nor of what is outside the workspace."""
    assert fingerprint_named_files(str(tmp_path), arguments, "command") in {"", "{}"}
