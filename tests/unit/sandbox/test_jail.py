"""The launcher: what it hides, what it passes on, and how it says no."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sessiontree.sandbox import jail
from sessiontree.sandbox.jail import UNCONFINABLE, UNUSABLE

Done = subprocess.CompletedProcess[str]


def launch(*words: str) -> Done:
    """Run the launcher with some words."""
    command = [sys.executable, "-I", "-S", jail.__file__, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120)


def python(program: str, *arguments: str) -> list[str]:
    """Return the words of a program of a few lines."""
    return ["--", sys.executable, "-S", "-c", program, *arguments]


READ = """
import sys
for path in sys.argv[1:]:
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
"""


def read(paths: Sequence[Path], *options: str) -> list[str]:
    """Return what a confined process reads from each path, or the name of the error."""
    done = launch(*options, *python(READ, *map(str, paths)))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_hidden_place_may_appear_later(tmp_path: Path) -> None:
    """A hidden path is hidden even if nothing was there when the process started."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "open").write_text("open")
    program = """
import pathlib, sys
print("ready", flush=True)
input()
for path in sys.argv[1:]:
    try:
        print(pathlib.Path(path).read_text())
    except OSError as error:
        print(type(error).__name__)
"""
    hidden = tmp_path / "deep" / "state"
    words = ["--hide", str(hidden), *python(program, str(hidden / "journal"), str(tmp_path / "open"))]
    command = [sys.executable, "-I", "-S", jail.__file__, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        hidden.mkdir()
        (hidden / "journal").write_text("secret")
        told, _ = process.communicate("\n")
    assert told.splitlines() == ["PermissionError", "open"]


def test_siblings_on_every_level_stay_readable(tmp_path: Path) -> None:
    """Only the hidden place itself disappears: what is next to it and alongside its parents does not."""
    state = tmp_path / "a" / "b" / "state"
    state.mkdir(parents=True)
    paths = [tmp_path / "file", tmp_path / "a" / "file", tmp_path / "a" / "b" / "state-2", state / "file"]
    for path in paths:
        path.write_text("text")
    assert read(paths, "--hide", str(state)) == ["text", "text", "text", "PermissionError"]


def test_hidden_place_named_through_a_link_is_hidden(tmp_path: Path) -> None:
    """The place counts, however it was spelled."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("text")
    (tmp_path / "link").symlink_to("real")
    paths = [tmp_path / "link" / "file", tmp_path / "real" / "file"]
    assert read(paths, "--hide", str(tmp_path / "link")) == ["PermissionError"] * 2


def test_one_hidden_place_inside_another_stays_hidden(tmp_path: Path) -> None:
    """The outer one wins: the way down to the inner one opens nothing."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("text")
    (tmp_path / "outer" / "file").write_text("text")
    options = ("--hide", str(inner), "--hide", str(tmp_path / "outer"))
    assert read([inner / "file", tmp_path / "outer" / "file"], *options) == ["PermissionError"] * 2


def test_nothing_is_hidden_unless_asked(tmp_path: Path) -> None:
    """Planted bug: without the option the same reading succeeds, so the tests above can fail."""
    (tmp_path / "file").write_text("text")
    assert read([tmp_path / "file"]) == ["text"]


def test_directory_that_can_not_be_listed_leaves_only_the_way_down(tmp_path: Path) -> None:
    """What the launcher can't see it can't allow: neighbours of the way are lost, nothing is uncovered."""
    shut, state = tmp_path / "shut", tmp_path / "shut" / "inner" / "state"
    state.mkdir(parents=True)
    paths = [tmp_path / "file", shut / "file", shut / "inner" / "file", state / "file"]
    for path in paths:
        path.write_text("text")
    shut.chmod(0o300)
    # Root lists everything, unless these two privileges are taken away.
    caps = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    words = ["--hide", str(state), *python(READ, *map(str, paths))]
    try:
        done = subprocess.run(
            [*caps, sys.executable, "-I", "-S", jail.__file__, *words], capture_output=True, text=True
        )
    finally:
        shut.chmod(0o700)
    assert done.stdout.splitlines() == ["text", "PermissionError", "text", "PermissionError"], done.stderr


LIST = "import os, sys; print(sorted(os.listdir(sys.argv[1])))"


def test_directory_on_the_way_is_listed_only_if_asked(tmp_path: Path) -> None:
    """Listing shows hidden names, so it is granted by name; content stays closed."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "file").write_text("text")
    hide = ("--hide", str(tmp_path / "state"))
    closed = launch(*hide, *python(LIST, str(tmp_path)))
    assert "PermissionError" in closed.stderr
    asked = (*hide, "--list", str(tmp_path))
    assert launch(*asked, *python(LIST, str(tmp_path))).stdout == "['state']\n"
    assert read([tmp_path / "state" / "file"], *asked) == ["PermissionError"]


def test_secret_is_passed_on_from_a_hidden_file(tmp_path: Path) -> None:
    """The process gets the text it needs and can't open the file."""
    token = tmp_path / "token"
    token.write_text("abc\n")
    options = ("--hide", str(token), "--secret", f"TOKEN={token}")
    assert launch(*options, *python("import os; print(os.environ['TOKEN'])")).stdout == "abc\n"
    assert read([token], *options) == ["PermissionError"]


def test_secret_without_a_file_leaves_the_variable_unset(tmp_path: Path) -> None:
    """Nothing is passed on where nobody is asked for a token."""
    done = launch("--secret", f"ABSENT={tmp_path}/none", *python("import os; print('ABSENT' in os.environ)"))
    assert done.stdout == "False\n"


def test_single_file_may_be_written_and_its_neighbour_not(tmp_path: Path) -> None:
    """A writable path may be one file."""
    for name in ("open", "shut"):
        (tmp_path / name).write_text("old")
    program = "import sys; open(sys.argv[1], 'w').write('new')"
    options = ("--write", str(tmp_path / "open"))
    assert launch(*options, *python(program, str(tmp_path / "open"))).returncode == 0
    assert launch(*options, *python(program, str(tmp_path / "shut"))).returncode == 1
    assert [(tmp_path / name).read_text() for name in ("open", "shut")] == ["new", "old"]


def test_inherited_descriptors_write_nowhere_else(tmp_path: Path) -> None:
    """A file opened before the jail would pass it by, so it is closed; pipes and logs go through."""
    (tmp_path / "logs").mkdir()
    outside = os.open(tmp_path / "outside", os.O_WRONLY | os.O_CREAT)
    inside = os.open(tmp_path / "logs" / "log", os.O_WRONLY | os.O_CREAT)
    reader, writer = os.pipe()
    program = """
import os, sys
for word in sys.argv[1:]:
    try:
        print(os.write(int(word), b"x"))
    except OSError as error:
        print(type(error).__name__, error.errno)
"""
    words = ["--write", str(tmp_path / "logs"), *python(program, str(outside), str(inside), str(writer))]
    command = [sys.executable, "-I", "-S", jail.__file__, *words]
    kept = (outside, inside, writer)
    done = subprocess.run(command, capture_output=True, text=True, pass_fds=kept, timeout=120)
    for descriptor in (*kept, reader):
        os.close(descriptor)
    assert done.stdout.splitlines() == ["OSError 9", "1", "1"]


def test_command_is_found_on_the_path_and_its_exit_code_is_kept() -> None:
    """The launcher becomes the command: same process, same exit code."""
    assert launch("--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--nonsense", "--", "true"], "'--nonsense'"),
        (["--hide", "relative", "--", "true"], "'relative' is not an absolute path"),
        (["--secret", "NAME=relative", "--", "true"], "'relative' is not an absolute path"),
        (["--hide"], "'--hide'"),
        (["--best-effort"], "no command"),
        (["--"], "no command"),
        ([], "no command"),
        (["--write", "/no/such/directory", "--", "true"], "No such file"),
        (["--list", "/no/such/directory", "--", "true"], "No such file"),
        (["--", "/no/such/program"], "'/no/such/program'"),
        (["--hide", "/", "--", "true"], "'true'"),
    ],
)
def test_wrong_words_end_with_their_own_exit_code_and_reason(words: list[str], reason: str) -> None:
    """Whoever starts it learns what was wrong, and the command did not run."""
    done = launch(*words)
    assert done.returncode == UNUSABLE
    assert done.stderr.startswith("sessiontree jail: ")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


DENY_LANDLOCK = f"""
import os, sys
from sessiontree.sandbox import jail
# Answers landlock_create_ruleset, 444, as a kernel without Landlock does.
program = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, {jail.ENOSYS}), (0x06, 0, 0, {jail.ALLOW})]
jail.renounce_privileges()
jail.filter_calls(jail.detect_machine(), program)
os.execv(sys.executable, [sys.executable, "-I", "-S", jail.__file__, *sys.argv[1:]])
"""


def on_a_kernel_without_landlock(*words: str) -> Done:
    """Run the launcher where Landlock's calls are answered as an old kernel does."""
    command = [sys.executable, "-c", DENY_LANDLOCK, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.covers("JAIL3")
def test_kernel_without_landlock_is_refused() -> None:
    """Never a silent fall-back: a message, an exit code of its own, and the command does not run."""
    done = on_a_kernel_without_landlock("--", "echo", "ran")
    assert (done.returncode, done.stdout) == (UNCONFINABLE, "")
    assert "the kernel offers 'none'" in done.stderr
    assert "Linux 6.2" in done.stderr


@pytest.mark.slow
def test_best_effort_starts_without_landlock_and_says_so() -> None:
    """Best effort is asked for by name, and the process can tell what it got."""
    done = on_a_kernel_without_landlock("--best-effort", "--", "sh", "-c", f"echo ${jail.LEVEL_VARIABLE}")
    assert (done.returncode, done.stdout) == (0, "none\n")


def test_privileges_are_given_up() -> None:
    """No new privileges, and of root's only reaching and reading files: 0x6."""
    done = launch("--", "grep", "-E", "NoNewPrivs|CapEff|Seccomp:", "/proc/self/status")
    values = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert (values["NoNewPrivs"], values["Seccomp"]) == ("1", "2")
    assert int(values["CapEff"], 16) & ~0x6 == 0


def test_importing_the_launcher_confines_nobody() -> None:
    """The module may be imported for its words: this very process goes on writing."""
    assert ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) == 0  # PR_GET_NO_NEW_PRIVS


def test_launcher_needs_the_standard_library_alone() -> None:
    """An import that can fail would hang whoever waits for the process."""
    program = "import runpy, sys; runpy.run_path(sys.argv[1]); print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", program, jail.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in done.stdout.split()}
    assert tops - {"__main__"} <= set(sys.stdlib_module_names)
    assert not tops & {"asyncio", "argparse", "threading", "pathlib", "subprocess"}


SOCKETS = """
import socket, sys
ours, theirs = socket.socketpair()
ours.send(b"x")
print(theirs.recv(1))
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
    try:
        socket.socket(family)
        print("made")
    except PermissionError:
        print("refused")
try:
    socket.socket(fileno=ours.detach()).connect(sys.argv[1])
except PermissionError:
    print("refused")
"""


def test_no_socket_can_be_made_where_that_is_denied(tmp_path: Path) -> None:
    """Of any family; a pair of the process itself works, and leads nowhere else."""
    done = launch("--no-sockets", *python(SOCKETS, str(tmp_path / "socket")))
    assert done.stdout.split() == ["b'x'", *["refused"] * 5], done.stderr
    free = launch(*python(SOCKETS, str(tmp_path / "socket")))
    assert "made" in free.stdout
