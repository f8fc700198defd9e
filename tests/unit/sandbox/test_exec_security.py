"""Exec security: what runs under ``safe-bin`` and ``paranoid``, from where, and what it can't do."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.handles.ports import Finished
from sessiontree.contracts.kinds import ExecSecurity
from sessiontree.sandbox import CommandShell
from sessiontree.sandbox.commands.command_bounds import Bounds
from sessiontree.sandbox.commands.command_plan import _list_rules
from sessiontree.sandbox.commands.environment import (
    SYSTEM_PATH,
    check_plain_variables,
    get_running_interpreter,
    make_program_finder,
    mount_words,
)
from sessiontree.sandbox.jail import query_landlock_abi

LONG_S = 60.0
STRICT: tuple[ExecSecurity, ...] = ("safe-bin", "paranoid")


def run(place: Path, command: str, security: ExecSecurity, **env: str) -> Finished:
    """Run one command under a security."""
    return asyncio.run(CommandShell(place, security=security).run(command, timeout_s=LONG_S, env=env))


@pytest.mark.covers("S53")
@pytest.mark.parametrize("security", STRICT)
def test_harmless_program_runs(tmp_path: Path, security: ExecSecurity) -> None:
    """It gets its arguments as they were written, in the workspace."""
    (tmp_path / "a b").write_text("one\ntwo\n")
    assert run(tmp_path, "grep -n two 'a b'", security).head == "2:two\n"
    assert run(tmp_path, "echo '*' * ~ a{1,2}", security, LC_ALL="C").head == "* * ~ a{1,2}\n"


@pytest.mark.covers("S53")
@pytest.mark.parametrize("security", STRICT)
@pytest.mark.parametrize(
    "command",
    [
        *(
            "touch ran",
            "rm keep",
            "sh -c 'touch ran'",
            "env touch ran",
            "bash x",
            "python -c 1",
            "./ls",
            "LS",
        ),
        *(
            "ls; touch ran",
            "ls && touch ran",
            "ls | tee ran",
            "ls > ran",
            "ls $(touch ran)",
            "ls `touch ran`",
        ),
        *(
            "sort -o ran keep",
            "uniq keep ran",
            "find . -delete",
            "sed -i s/a/b/ keep",
            "git status",
            "A=1 ls",
        ),
    ],
)
def test_anything_else_is_refused_before_it_runs(
    tmp_path: Path, security: ExecSecurity, command: str
) -> None:
    """Nothing happens, and the refusal says why and what would run."""
    (tmp_path / "keep").write_text("kept\n")
    with pytest.raises(PermissionDenied, match="exec security is") as refusal:
        run(tmp_path, command, security)
    assert "grep" in str(refusal.value)
    assert {path.name for path in tmp_path.iterdir()} == {"keep"}


@pytest.mark.parametrize("command", ["x\x1b[2J" + "y" * 5000, "y" * 5000, "ls --" + "y" * 5000])
def test_refusal_shows_no_more_than_the_beginning_of_a_command(tmp_path: Path, command: str) -> None:
    """And nothing of it raw."""
    with pytest.raises(PermissionDenied) as refusal:
        run(tmp_path, command, "safe-bin")
    assert len(str(refusal.value)) < 1500
    assert "\x1b" not in str(refusal.value)


@pytest.mark.covers("REL-L31")
@pytest.mark.parametrize("security", STRICT)
def test_program_of_the_workspace_is_not_the_systems(tmp_path: Path, security: ExecSecurity) -> None:
    """REL-L31: neither its name nor a path puts it in the place of one."""
    for name in ("ls", "grep"):
        (tmp_path / name).write_text("#!/bin/sh\necho shadowed\n")
        (tmp_path / name).chmod(0o755)
    assert "shadowed" not in run(tmp_path, "ls", security).head
    for command in ("./ls", f"{tmp_path}/ls", "/usr/bin/../bin/ls", "bin/ls"):
        with pytest.raises(PermissionDenied):
            run(tmp_path, command, security)


@pytest.mark.parametrize("name", ["LC_FOO", "LANG"])
def test_variables_that_say_nothing_but_a_language_are_taken(name: str) -> None:
    """Their values are plain words."""
    check_plain_variables({name: "de_DE.UTF-8"})
    with pytest.raises(PermissionDenied, match=name):
        check_plain_variables({name: "../x"})


@pytest.mark.parametrize("name", ["FOO", "TZ", "LS_COLORS", "POSIXLY_CORRECT", "GREP_OPTIONS"])
def test_any_other_variable_is_refused(tmp_path: Path, name: str) -> None:
    """It might change what the program does."""
    with pytest.raises(PermissionDenied, match=name):
        run(tmp_path, "ls", "safe-bin", **{name: "x"})


class _Anything(CommandShell):
    """Runs any program under the mounts and rights of its security: what is left when the judge is wrong."""

    def _find_harmless_program(self, command: str) -> tuple[str, ...]:
        return ("/bin/sh", "-c", command)


@pytest.mark.covers("S46")
@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *("echo x >new", "echo x >keep", "rm keep", "mv keep away", "mkdir d", "ln keep l", "ln -s keep l"),
        *("touch -d 2001-01-01 keep", "chmod 777 keep", "truncate -s 0 keep", "cp /bin/true ."),
    ],
)
def test_paranoid_has_a_workspace_that_nothing_can_write(tmp_path: Path, command: str) -> None:
    """The kernel refuses, not the judge; under ``safe-bin`` the same would be done."""
    keep = tmp_path / "keep"
    keep.write_text("kept\n")
    before = (keep.read_bytes(), keep.stat().st_mode, keep.stat().st_mtime_ns)
    finished = asyncio.run(_Anything(tmp_path, security="paranoid").run(command, timeout_s=LONG_S))
    assert finished.exit_code
    assert (keep.read_bytes(), keep.stat().st_mode, keep.stat().st_mtime_ns) == before
    assert [path.name for path in tmp_path.iterdir()] == ["keep"]
    lax = asyncio.run(_Anything(tmp_path, security="safe-bin").run(command, timeout_s=LONG_S))
    assert lax.exit_code == 0


@pytest.mark.covers("S53")
def test_paranoid_holds_twice(tmp_path: Path) -> None:
    """Mounts and Landlock each leave the workspace out of what may be written."""
    place = str(tmp_path)
    words = mount_words(place, [], get_running_interpreter(), Bounds(), may_write=False)
    assert words[words.index(place) - 1] == "--ro-bind"
    assert place not in {path for path, _ in _list_rules(query_landlock_abi(), place, may_write=False)}
    assert place in {path for path, _ in _list_rules(query_landlock_abi(), place, may_write=True)}


def test_programs_are_found_as_a_shell_finds_them(tmp_path: Path) -> None:
    """The first directory that has a name decides; what is not the system's is nobody's."""
    own = tmp_path / "bin"
    own.mkdir()
    (own / "grep").write_text("#!/bin/sh\n")
    (own / "link").symlink_to("/usr/bin/wc")
    find = make_program_finder(str(tmp_path), (str(own), *SYSTEM_PATH))
    real = os.path.realpath("/usr/bin/wc")
    assert find("wc") == real == find("/usr/bin/wc") == find("/bin/wc")
    for name in (
        "grep",
        "link",
        "",
        "nowhere-to-be-found",
        "./wc",
        "bin/grep",
        f"{own}/link",
        "/usr//bin/wc",
    ):
        assert find(name) is None, name
    assert make_program_finder("/usr", SYSTEM_PATH)("wc") is None
