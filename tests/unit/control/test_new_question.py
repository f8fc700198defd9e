"""A new question touches its declaration and its implementation alone: every port serves it then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from sessiontree.backends.ray.client.serialization import dump_value, load_value
from sessiontree.backends.ray.client.supervisor_client import SupervisorClient
from sessiontree.contracts.errors import ConfigError, PermissionDenied, SessionTreeError
from sessiontree.control.client import ControlClient
from sessiontree.control.server import ControlServer
from sessiontree.runtime.rights.host_services import Services
from sessiontree.runtime.supervisor.local_supervisor import LocalSupervisor
from sessiontree.runtime.supervisor.process.supervisor_process import SupervisorProcess
from sessiontree.runtime.transport.rpc import (
    Count,
    collect_methods,
    get_method,
    make_proxy,
    rpc,
    run_synchronously,
)
from sessiontree.runtime.transport.supervisor_api import SupervisorApi
from tests.unit.runtime.test_supervisor_access import KEY
from tests.unit.runtime.test_supervisor_access import opened as opened_server


@dataclass(frozen=True, slots=True)
class Shelf:
    """A value that no port has seen before."""

    name: str
    trees: tuple[str, ...]
    most: int | None = None


class ShelfApi(Protocol):
    """Two more questions."""

    @rpc(for_peers=True)
    async def shelf(self, name: str, most: Count = 3) -> Shelf:
        """Return the open trees under a name."""
        ...

    @rpc()
    async def key(self) -> str:
        """Return what peers must not see."""
        ...


class WiderApi(SupervisorApi, ShelfApi, Protocol):
    """The supervisor's interface with two more questions."""


class ShelfAnswers(ShelfApi):
    """The answers to them."""

    def __init__(self, supervisor: SupervisorApi) -> None:
        self._supervisor = supervisor

    async def shelf(self, name: str, most: int = 3) -> Shelf:
        """Return the open trees under a name."""
        return Shelf(name, tuple(await self._supervisor.open_trees()), most)

    async def key(self) -> str:
        """Return what peers must not see."""
        return "secret"

    async def undeclared(self) -> str:
        """Return what no port serves."""
        return "secret"


class Actor:
    """The supervisor's actor, in this process: it hands bytes to its server as the one on Ray does."""

    def __init__(self, server: SupervisorProcess) -> None:
        self._server = server
        self.ask = self.command = self

    def remote(
        self, key: str, name: str, given: bytes, turn: tuple[str, int] | None = None
    ) -> asyncio.Future[bytes]:
        """Begin a call; its answer comes later."""
        return asyncio.ensure_future(self._answer(key, name, given, turn))

    async def _answer(self, key: str, name: str, given: bytes, turn: tuple[str, int] | None) -> bytes:
        return dump_value(await self._server.ask(key, name, load_value(given), turn))


@dataclass(frozen=True, slots=True)
class Ports:
    """The ways to one supervisor that answers more questions."""

    service: LocalSupervisor
    ray: SupervisorClient
    peer: ControlClient

    def proxies(self) -> dict[str, WiderApi]:
        """Return the interface through each of them."""
        return {
            "in this process": make_proxy(WiderApi, self.service.answers),
            "ray": make_proxy(WiderApi, self.ray),
            "control socket": make_proxy(WiderApi, self.peer),
        }


@asynccontextmanager
async def ports(home: Path) -> AsyncIterator[Ports]:
    """Open a supervisor, and every way to it."""
    async with opened_server(home / "state") as server:
        service = server.lifetime.local
        assert service is not None
        service.answers.add(ShelfAnswers(service.api))
        control = ControlServer(service.answers, home / "state")
        control.start()
        client = SupervisorClient(Actor(server), KEY, lambda: True)
        await client.begin()
        async with await ControlClient.connect(home / "state") as peer:
            yield Ports(service, client, peer)
        await control.close()


async def test_question_is_served_by_every_port(tmp_path: Path) -> None:
    """What a subclass of the interface declares has the same answer in process, on Ray and by the socket."""
    async with ports(tmp_path) as each:
        for proxy in each.proxies().values():
            assert await proxy.shelf("all") == Shelf("all", (), 3)
            assert await proxy.shelf("few", most=1) == Shelf("few", (), 1)
        assert run_synchronously(each.proxies()["in this process"].shelf("now")) == Shelf("now", (), 3)
        with pytest.raises(ConfigError, match=r"^most must be a number from 0"):
            await each.proxies()["control socket"].shelf("few", -1)


async def test_question_is_not_for_peers_unless_it_says_so(tmp_path: Path) -> None:
    """A method that is not declared for peers is for the creating program alone."""
    async with ports(tmp_path) as each:
        proxies = each.proxies()
        assert await proxies["in this process"].key() == await proxies["ray"].key() == "secret"
        with pytest.raises(ConfigError, match="no operation 'key'"):
            await proxies["control socket"].key()
        forged = SupervisorClient(each.ray.actor, "guess", lambda: True)
        with pytest.raises(PermissionDenied):
            await forged.ask(get_method(WiderApi.key), ())


async def test_every_declared_question_is_answered_by_one_part(tmp_path: Path) -> None:
    """The program's and the hosts' interface is answered as declared; a second answer is refused."""
    async with opened_server(tmp_path / "state") as server:
        service, hosts = server.lifetime.local, server.lifetime.hosts
        assert service is not None
        assert hosts is not None
        assert service.answers.methods.keys() == collect_methods(SupervisorApi).keys()
        assert hosts.methods.keys() == collect_methods(Services).keys()
        service.answers.add(ShelfAnswers(service.api))
        with pytest.raises(TypeError, match="shelf is answered already; ShelfAnswers can't"):
            service.answers.add(ShelfAnswers(service.api))


NAMES = ["undeclared", "release", "create", "_texts", "__init__", "__class__", "open", "close", "nothing"]


@pytest.mark.parametrize("name", NAMES)
async def test_name_that_is_not_declared_is_refused(tmp_path: Path, name: str) -> None:
    """Ports serve what the interface declares: no other method of the implementation can be reached."""
    async with ports(tmp_path) as each:
        with pytest.raises(ConfigError, match="has no operation"):
            await each.peer._asking.ask(name, {})
        if name in {"release", "create", "open", "close"}:
            return  # the creating program's own, with its key: tests/unit/runtime/test_supervisor_access.py
        answer = await each.ray.actor._server.ask(KEY, name, ())
        assert isinstance(answer.error, SessionTreeError)


async def test_planted_port_that_serves_every_method_is_found(tmp_path: Path) -> None:
    """The refusal is the allow-list's: where a method is added to it, the same call is answered."""
    async with ports(tmp_path) as each:
        place = tmp_path / "planted"
        place.mkdir()
        control = ControlServer(each.service.answers, place)
        control._methods = {**control._methods, "key": get_method(WiderApi.key)}
        control.start()
        async with await ControlClient.connect(place) as peer:
            assert await peer.ask(get_method(WiderApi.key), ()) == "secret"
        await control.close()
