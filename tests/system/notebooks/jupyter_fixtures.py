"""A real kernel of Jupyter and a front end of its own: cells, comms on any shell, what is displayed."""

from __future__ import annotations

import json
import queue
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

PATIENCE_S = 60.0
OPENING = """
from pathlib import Path
from sessiontree import AgentSpec, FunctionModel, PermissionTier, SessionTree, script_call, sync, tool
import asyncio

@tool(tier=PermissionTier.ELEVATED)
def publish(name: str) -> str:
    \"\"\"Publish.\"\"\"
    return f"{{name}} is published"

def answer(request):
    last = request.messages[-1]
    if last.text.startswith("publish "):
        return script_call("publish", name=last.text.removeprefix("publish "))
    if last.text == "ask":
        colours = [{{"label": "red"}}, {{"label": "blue", "description": "like the sea"}}]
        return script_call("ask_user", questions=[{{"question": "Which colour?", "options": colours}}])
    return f"heard {{last.text}}"

agents = {{"default": AgentSpec(tools=("ask_user", "publish"))}}
options = dict(
    model=FunctionModel(answer), tools=[publish], agents=agents, state_dir=Path({state!r}), backend="local"
)
"""
"""A model that calls an Elevated tool, or asks a person, when a message says so."""
OPEN = {
    "async": "tree = await SessionTree({workspace!r}, **options).start()\ntree",
    "sync": "tree = sync.SessionTree({workspace!r}, **options).start()\ntree",
}
SEND = {"async": "await tree.main.send({!r})", "sync": "tree.main.send({!r})"}
CLOSE = {"async": "await tree.close()", "sync": "tree.close()"}
WIDGET = "application/vnd.jupyter.widget-view+json"


KERNEL = "here"


def write_kernel(kernels: Path, python: Path | str) -> Path:
    """Describe an interpreter as a kernel in a directory of kernels, and return the directory."""
    place = kernels / KERNEL
    place.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": KERNEL, "language": "python"}
    (place / "kernel.json").write_text(json.dumps(spec), "utf-8")
    return kernels


class Jupyter:
    """A kernel and its front end."""

    def __init__(self, place: Path, python: Path | str = sys.executable) -> None:
        """Start the kernel; its cells run in a directory.

        Args:
            place: The directory.
            python: The interpreter, whose environment has ipykernel.
        """
        self.place = place
        self.state_dir = place / "state"
        """State directory of the cells' trees."""
        known = KernelSpecManager(kernel_dirs=[str(write_kernel(place / "kernels", python))])
        self.manager = KernelManager(
            transport="ipc", ip=str(place / "k"), kernel_name=KERNEL, kernel_spec_manager=known
        )
        self.manager.start_kernel(cwd=str(place))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)
        self.heard: list[dict[str, Any]] = []
        """Everything that the kernel published, in order."""
        self._asked = 0
        self._running: str | None = None
        """The cell that runs."""

    def processes(self) -> list[psutil.Process]:
        """Return the kernel's process and all that it began."""
        kernel = psutil.Process(self.manager.provisioner.pid)  # type: ignore[union-attr]  # it is started
        return [kernel, *kernel.children(recursive=True)]

    def restart(self) -> None:
        """End the kernel, as a front end does it, and begin another one with the same connection."""
        self._running = None
        self.manager.restart_kernel(now=False)
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def close(self) -> None:
        """End the kernel as a front end does."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)

    def begin(self, cell: str) -> str:
        """Begin a cell and return its id.

        Raises:
            AssertionError: another one runs: a kernel begins this one only after that one's end.
        """
        assert self._running is None or any(_is_idle(told, self._running) for told in self.heard), cell
        self._running = self.client.execute(textwrap.dedent(cell), stop_on_error=False)
        return self._running

    def run(self, cell: str) -> list[dict[str, Any]]:
        """Run a cell to its end, and return what it displayed, as bundles; a text it printed too.

        Raises:
            AssertionError: it raised.
        """
        return self.end(self.begin(cell))

    def outputs(self, cell: str) -> list[dict[str, Any]]:
        """Run a cell as it is, and return its outputs in the form of a notebook's file.

        Raises:
            AssertionError: it raised.
        """
        began = self.begin(cell)
        self.end(began)
        kept: list[dict[str, Any]] = []
        for told in self.heard:
            if not is_of(told, began):
                continue
            kind, content = told["msg_type"], told["content"]
            if kind == "stream":
                kept.append({"output_type": kind, "name": content["name"], "text": content["text"]})
            elif kind == "update_display_data":
                shown = content["transient"]["display_id"]
                (place,) = [each for each in kept if each.get("id") == shown]
                place["data"] = content["data"]
            elif kind in {"display_data", "execute_result"} and WIDGET not in content["data"]:
                shown = content.get("transient", {}).get("display_id")
                kept.append({"output_type": kind, "metadata": {}, "data": content["data"], "id": shown})
        return [{name: each[name] for name in each if name != "id"} for each in kept]

    def end(self, began: str) -> list[dict[str, Any]]:
        """Wait for the end of a cell; as :meth:`run`."""
        self._hear(lambda told: _is_idle(told, began))
        mine = [told for told in self.heard if is_of(told, began)]
        errors = [told["content"] for told in mine if told["msg_type"] == "error"]
        assert not errors, "\n".join(errors[0]["traceback"])
        return [
            {"text": told["content"]["text"]} if told["msg_type"] == "stream" else told["content"]["data"]
            for told in mine
            if told["msg_type"] in {"stream", "execute_result", "display_data"}
        ]

    def fail(self, began: str) -> str:
        """Wait for the end of a cell that raises, and return the name of its error."""
        self._hear(lambda told: _is_idle(told, began))
        (error,) = [
            told["content"]["ename"]
            for told in self.heard
            if told["msg_type"] == "error" and is_of(told, began)
        ]
        return str(error)

    def displayed(self, began: str) -> list[dict[str, Any]]:
        """Wait until a cell that runs displays a widget; return the bundles of its picture and of itself."""

        def is_shown(told: dict[str, Any]) -> bool:
            return (
                told["msg_type"] == "display_data"
                and is_of(told, began)
                and WIDGET in told["content"]["data"]
            )

        self._hear(is_shown)
        shown = [told for told in self.heard if told["msg_type"] == "display_data" and is_of(told, began)]
        return [told["content"]["data"] for told in shown]

    def renewed(self, began: str) -> dict[str, Any]:
        """Wait until what a cell displayed is replaced, and return the bundle."""

        def is_renewed(told: dict[str, Any]) -> bool:
            return told["msg_type"] == "update_display_data" and is_of(told, began)

        bundle: dict[str, Any] = self._hear(is_renewed)["content"]["data"]
        return bundle

    def value(self, cell: str) -> str:
        """Run a cell and return the text of what it displayed last."""
        return str(self.run(cell)[-1]["text/plain"])

    def open_subshell(self) -> str:
        """Return the id of a new subshell, as a front end opens it for its comms."""
        self.client.control_channel.send(self.client.session.msg("create_subshell_request", {}))
        made: str = self.client.get_control_msg(timeout=PATIENCE_S)["content"]["subshell_id"]
        return made

    def ask(self, comm: str, verb: str, given: dict[str, Any], shell: str | None = None) -> tuple[Any, float]:
        """Ask a widget's kernel side, and return its answer and the seconds that it took.

        Args:
            comm: Id of the widget's model.
            verb: The verb.
            given: Its arguments.
            shell: The subshell to which it is sent; None = the main shell.
        """
        self._asked += 1
        number = self._asked
        content = {"id": number, "ask": verb, "given": given}
        message = self.client.session.msg(
            "comm_msg", {"comm_id": comm, "data": {"method": "custom", "content": content}}
        )
        if shell is not None:
            message["header"]["subshell_id"] = shell
        began = time.monotonic()
        self.client.shell_channel.send(message)

        def is_answer(told: dict[str, Any]) -> bool:
            return said_to(told, comm).get("id") == number

        told = said_to(self._hear(is_answer), comm)
        return told, time.monotonic() - began

    def request_in(self, comm: str, shell: str | None = None, *, kind: str = "approvals") -> str:
        """Wait until a request, or one of ``questions``, is open in a widget that may answer it.

        Returns:
            Its id.
        """
        while True:
            snapshot = self.ask(comm, "snapshot", {}, shell)[0]["value"]
            if snapshot[kind] and {"approve", "answer"} <= set(snapshot["can"]):
                return str(snapshot[kind][0]["id"])

    def news(self, comm: str, is_it: Callable[[dict[str, Any]], bool], after: int) -> dict[str, Any]:
        """Wait for news of a widget; those among the first ``after`` of what was heard do not count."""

        def is_news(told: dict[str, Any]) -> bool:
            news = said_to(told, comm).get("news")
            return news is not None and is_it(news)

        news: dict[str, Any] = said_to(self._hear(is_news, after), comm)["news"]
        return news

    def _hear(self, is_it: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        for told in self.heard[after:][::-1]:
            if is_it(told):
                return told
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            try:
                told = self.client.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            self.heard.append(told)
            if is_it(told):
                return told
        raise AssertionError(f"not heard; the last: {[each['msg_type'] for each in self.heard[-9:]]}")


def said_to(told: dict[str, Any], comm: str) -> dict[str, Any]:
    """Return what a message says to a widget; empty if it goes elsewhere."""
    if told["msg_type"] != "comm_msg" or told["content"]["comm_id"] != comm:
        return {}
    said: dict[str, Any] = told["content"]["data"].get("content", {})
    return said


def _is_idle(told: dict[str, Any], began: str) -> bool:
    is_status = told["msg_type"] == "status" and told["content"]["execution_state"] == "idle"
    return is_status and is_of(told, began)


def is_of(told: dict[str, Any], began: str) -> bool:
    """Whether a message is of a cell that was begun."""
    return bool(told["parent_header"].get("msg_id") == began)


@contextmanager
def jupyter_in(place: Path) -> Iterator[Jupyter]:
    """A kernel whose first cell prepared what trees need."""
    (place / "workspace").mkdir()
    jupyter = Jupyter(place)
    try:
        jupyter.run(OPENING.format(state=str(jupyter.state_dir)))
        yield jupyter
    finally:
        jupyter.close()
