"""Whole programs: tools of ``__main__``, the interpreter's end, forks, a loop that dies, a light import."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sessiontree.api.runtime.runtime_options import BackendName
from tests.system.sync.tree_fixtures import PATIENCE_S

OPENING = """
import sys
from pathlib import Path
from sessiontree import AsyncFunctionModel, FunctionModel, PermissionTier, ScriptedModel, SessionTreeError
from sessiontree import script_call, tool
from sessiontree.sync import Runtime, SessionTree

PLACE, BACKEND = Path(sys.argv[1]), sys.argv[2]
WORKSPACE, STATE = PLACE / "workspace", PLACE / "state"
WORKSPACE.mkdir(exist_ok=True)


def reply(request):
    return f"heard {request.messages[-1].text}"


MODEL = FunctionModel(reply)


def opened(model=MODEL, **options):
    return SessionTree(WORKSPACE, model=model, state_dir=STATE, backend=BACKEND, **options)
"""


def begin(place: Path, backend: str, source: str) -> subprocess.Popen[str]:
    """Start a program in an interpreter and a process group of its own, as a shell does."""
    program = place / "program.py"
    program.write_text(OPENING + textwrap.dedent(source))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(program), str(place), backend],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONASYNCIODEBUG": ""},
    )


def finish(program: subprocess.Popen[str], typed: str = "", complains: str = "") -> str:
    """Return what a program printed; it must end well and in time, and never outlives its test."""
    with program:
        try:
            printed, complaints = program.communicate(typed, 6 * PATIENCE_S)
        finally:
            program.kill()
    assert program.returncode == 0, complaints
    assert complains in complaints if complains else complaints == "", complaints
    return printed


def run(place: Path, backend: str, source: str, typed: str = "", complains: str = "") -> str:
    """Run a program and return what it printed."""
    return finish(begin(place, backend, source), typed, complains)


@pytest.mark.slow
def test_script_with_tools_and_approver_of_its_own(tmp_path: Path, backend: BackendName) -> None:
    """A tool defined in ``__main__`` runs, after ``input()`` on the main thread said that it may."""
    printed = run(
        tmp_path,
        backend,
        """
        import threading

        @tool(tier=PermissionTier.ELEVATED)
        def launch(text: str) -> str:
            \"\"\"Launch something.

            Args:
                text: What to launch.
            \"\"\"
            return f"launched {text}"

        def approve(request):
            assert threading.current_thread() is threading.main_thread()
            return input(f"{request.tool}? ") == "yes"

        if __name__ == "__main__":
            model = ScriptedModel({"main": [script_call("launch", text="it"), "done"]})
            with opened(model, tools=[launch], approver=approve) as tree:
                print(tree.main.send("go"))
                print(tree.main.history()[-2].text)
        """,
        typed="yes\n",
    )
    assert printed == "launch? done\nlaunched it\n"


@pytest.mark.covers("C13")
@pytest.mark.slow
def test_cell_of_a_running_kernel(tmp_path: Path, backend: BackendName) -> None:
    """Cells run on a running loop's thread, keep a tree open from one to the next, and ask by ``input``."""
    printed = run(
        tmp_path,
        backend,
        """
        import ast
        import asyncio
        import inspect

        CELLS = (
            "from sessiontree.sync import TerminalChannel\\n"
            "@tool(tier=PermissionTier.ELEVATED)\\n"
            "def launch() -> str:\\n"
            "    'Launch.'\\n"
            "    return 'launched'\\n"
            "tree = opened(tools=[launch], channel=TerminalChannel()).start()",
            "print(tree.main.send('hello'))",
            "print(tree.main.call('launch').text)",
            "await asyncio.sleep(0)\\nprint(*tree.main.stream('more'), tree.main.history()[-1].text)",
            "tree.close()",
        )

        async def kernel():
            for cell in CELLS:
                code = compile(cell, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                running = eval(code, globals())
                if inspect.iscoroutine(running):
                    await running

        if __name__ == "__main__":
            asyncio.run(kernel())
        """,
        typed="y\n",
    )
    lines = [line for line in printed.splitlines() if line]
    assert lines[0] == "heard hello"
    assert lines[1].startswith("main wants to call launch")
    assert lines[-2].endswith("launched")
    assert lines[-1] == "heard more"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_interrupt_from_the_terminal_leaves_the_tree(tmp_path: Path, backend: BackendName) -> None:
    """Ctrl-C reaches every process of the group: the waiting ends, sessions and their processes go on."""
    program = begin(
        tmp_path,
        backend,
        """
        import asyncio

        async def think(request):
            if request.session_id == "main/b1":
                await asyncio.Event().wait()
            return reply(request)

        if __name__ == "__main__":
            with opened(AsyncFunctionModel(think)) as tree:
                print(tree.main.send("hello"))
                branch = tree.main.spawn("branch", "think")
                try:
                    print("waiting", flush=True)
                    branch.result()
                except KeyboardInterrupt:
                    print("interrupted")
                print(tree.main.send("again"))
                print(*(str(line.status) for line in branch.cancel()))
        """,
    )
    assert program.stdout is not None
    printed = [program.stdout.readline() for _ in range(2)]
    assert printed == ["heard hello\n", "waiting\n"], program.communicate()[1]
    os.killpg(program.pid, signal.SIGINT)
    assert finish(program) == "interrupted\nheard again\ncancelled\n"


ENDS = [
    ("local", "pass"),
    pytest.param("local", "sys.exit()", marks=pytest.mark.long),
    pytest.param("ray", "pass", marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "end"), ENDS)
def test_interpreters_end_closes_what_is_open(tmp_path: Path, backend: BackendName, end: str) -> None:
    """A program that forgot to close ends at once, and its trees can be taken up by the next, anywhere."""
    tree_id = run(
        tmp_path,
        backend,
        f"""
        if __name__ == "__main__":
            runtime = Runtime(STATE, backend=BACKEND)
            trees = [SessionTree(WORKSPACE, model=MODEL, runtime=runtime).start() for _ in range(2)]
            trees[0].main.send("hello")
            print(trees[0].tree_id)
            {end}
        """,
    ).strip()
    printed = run(
        tmp_path,
        "local",
        f"""
        if __name__ == "__main__":
            with SessionTree.resume("{tree_id}", model=MODEL, state_dir=STATE, backend=BACKEND) as tree:
                print(tree.main.history()[-1].text)
        """,
    )
    assert printed == "heard hello\n"


@pytest.mark.slow
def test_plain_functions_run_until_the_last_tree_is_closed(tmp_path: Path) -> None:
    """At the interpreter's end no thread can begin; what a tree has to do then is done all the same."""
    printed = run(
        tmp_path,
        "local",
        """
        import atexit

        @tool(tier=PermissionTier.READ_ONLY)
        def plain() -> str:
            'Say something.'
            return "said"

        if __name__ == "__main__":
            tree = opened(tools=[plain]).start()
            atexit.register(lambda: print(tree.main.call("plain").text))
        """,
    )
    assert printed == "said\n"


@pytest.mark.slow
def test_blocked_loop_does_not_keep_the_interpreter(tmp_path: Path) -> None:
    """A thread that waits for ever in a tree, a daemon's, ends with the program."""
    printed = run(
        tmp_path,
        "local",
        """
        import threading

        async def never(request):
            begun.set()
            await asyncio.get_running_loop().create_future()

        if __name__ == "__main__":
            import asyncio

            begun = threading.Event()
            tree = opened(AsyncFunctionModel(never)).start()
            threading.Thread(target=tree.main.send, args=("hello",), daemon=True).start()
            begun.wait()
            threading.excepthook = lambda args: None
            print("over")
        """,
    )
    assert printed == "over\n"


FORK = """
import os

def child(work):
    pid = os.fork()
    if pid == 0:
        sys.stdout.flush()
        try:
            work()
            sys.stdout.flush()
        finally:
            end()
    _, status = os.waitpid(pid, 0)
    assert status == 0, status

def end():
    if LEAVES == "exit":
        sys.exit()
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("leaves", ["exit", pytest.param("at once", marks=pytest.mark.long)])
def test_forked_child_is_told_and_may_open_its_own(tmp_path: Path, leaves: str) -> None:
    """The parent's tree is not the child's, under either way of leaving; nothing hangs in either process."""
    source = textwrap.dedent(
        """
        def work():
            for use in (lambda: main.send("x"), tree.receipt, tree.start, lambda: next(tree.events())):
                try:
                    use()
                except SessionTreeError as error:
                    print(type(error).__name__, "forked" in str(error))
            tree.close()
            with SessionTree(WORKSPACE, model=MODEL, state_dir=PLACE / "child", backend=BACKEND) as own:
                print(own.main.send("child"))

        if __name__ == "__main__":
            with opened() as tree:
                main = tree.main
                main.send("before")
                child(work)
                print(main.send("parent"))
        """
    )
    printed = run(tmp_path, "local", f"LEAVES = {leaves!r}\n{FORK}\n{source}")
    assert printed.splitlines() == ["ConfigError True"] * 4 + ["heard child", "heard parent"]


@pytest.mark.slow
def test_process_started_on_the_loop_is_left_alone(tmp_path: Path) -> None:
    """What forks on the loop's own thread, and runs code before its program, complains of nothing."""
    printed = run(
        tmp_path,
        "local",
        """
        import subprocess

        async def start(request):
            done = subprocess.run(["echo", "started"], preexec_fn=os.getpid, capture_output=True, text=True)
            return done.stdout.strip()

        if __name__ == "__main__":
            import os

            with opened(AsyncFunctionModel(start)) as tree:
                print(tree.main.send("hello"))
                print(tree.main.send("again"))
        """,
    )
    assert printed == "started\nstarted\n"


@pytest.mark.slow
def test_loop_that_was_ended_from_within_is_told_to_all_who_wait(tmp_path: Path) -> None:
    """An async approver that raises KeyboardInterrupt ends the loop: nobody hangs, and a new tree opens."""
    printed = run(
        tmp_path,
        "local",
        """
        import threading

        @tool(tier=PermissionTier.ELEVATED)
        def launch() -> str:
            \"\"\"Launch.\"\"\"
            return "launched"

        async def breaks(request):
            raise KeyboardInterrupt

        def tell(use):
            try:
                use()
            except SessionTreeError as error:
                sys.stdout.write(f"{'the event loop of the sync trees has ended' in str(error)}\\n")

        if __name__ == "__main__":
            model = ScriptedModel([script_call("launch"), "done"])
            tree = opened(model, tools=[launch], approver=breaks).start()
            main = tree.main
            waiting = threading.Thread(target=tell, args=(lambda: list(tree.events()),))
            waiting.start()
            tell(lambda: main.send("go"))
            waiting.join()
            tell(main.status)
            tree.close()
            tell(main.status)
            with SessionTree(WORKSPACE, model=MODEL, state_dir=PLACE / "other", backend=BACKEND) as other:
                print(other.main.send("hello"))
        """,
        complains="KeyboardInterrupt",
    )
    assert printed.splitlines() == ["True", "True", "True", "False", "heard hello"]


@pytest.mark.slow
def test_import_is_light() -> None:
    """Neither a backend nor a heavy library is loaded, and no thread is started, before a tree is opened."""
    probe = (
        "import json, sys, threading; import sessiontree.sync; "
        "print(json.dumps([sorted(sys.modules), threading.active_count()]))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True, text=True)
    modules, threads = json.loads(done.stdout)
    tops = {name.partition(".")[0] for name in modules}
    assert not tops & {"ray", "rich", "typer", "lancedb", "pyarrow", "PIL", "httpx", "sqlite3"}
    assert not {
        "sessiontree.backends.local.backend",
        "sessiontree.api.tree.session_handle",
        "sessiontree.api.tree.inbox",
    } & set(modules)
    assert threads == 1
