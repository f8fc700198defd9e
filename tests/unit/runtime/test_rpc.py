"""Interfaces that other processes call: what is declared is callable, in the same way through every port."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import pytest

from sessiontree.runtime.transport.rpc import collect_methods, get_method, make_proxy, rpc, run_synchronously


class CounterApi(Protocol):
    """An interface with two callable methods and one that is not."""

    @rpc(for_peers=True, waits=True)
    async def add(self, first: int, second: int = 2, again: bool = False) -> int:
        """Return a sum."""
        ...

    @rpc()
    async def name(self) -> str:
        """Return a name."""
        ...

    async def secret(self) -> str:
        """Return what no port serves."""
        ...


class Counter(CounterApi):
    """What the interface says, and more."""

    async def add(self, first: int, second: int = 2, again: bool = False) -> int:
        """Return a sum."""
        return first + second + 100 * again

    async def name(self) -> str:
        """Return a name."""
        return "counter"

    async def secret(self) -> str:
        """Return what no port serves."""
        return "secret"

    async def close(self) -> None:
        """Do what the interface does not know."""


class Port:
    """Calls an object in this process, and notes what was called."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    async def ask(self, method: Any, given: tuple[Any, ...]) -> Any:
        """Call the method of that name."""
        self.asked.append((method.name, given))
        return await getattr(self.target, method.name)(*given)


def test_methods_are_those_that_are_declared() -> None:
    """An implementation offers what its interface declares, whatever methods it has besides."""
    assert set(collect_methods(Counter)) == set(collect_methods(CounterApi)) == {"add", "name"}
    add = collect_methods(Counter)["add"]
    assert (add.for_peers, add.waits, add.urgent, add.in_order, add.repeats) == (
        True,
        True,
        False,
        False,
        True,
    )
    assert not get_method(CounterApi.name).for_peers
    assert collect_methods(int) == {}


def test_proxy_calls_through_its_port() -> None:
    """Arguments arrive in order, however they were given; what is not declared is not there."""
    port = Port(Counter())
    proxy: CounterApi = make_proxy(CounterApi, port)
    assert run_synchronously(proxy.add(1)) == 3
    assert run_synchronously(proxy.add(second=5, first=1)) == 6
    assert run_synchronously(proxy.add(1, again=True)) == 103
    assert run_synchronously(proxy.name()) == "counter"
    assert port.asked == [("add", (1,)), ("add", (1, 5)), ("add", (1, 2, True)), ("name", ())]
    assert not hasattr(proxy, "secret")
    assert proxy.add.__doc__ == CounterApi.add.__doc__


@pytest.mark.parametrize("given", [{"third": 1}, {}, {"first": 1, "second": 2, "self": 3}])
def test_proxy_refuses_arguments_that_do_not_fit(given: dict[str, Any]) -> None:
    """As the method itself would, before anything is sent."""
    port = Port(Counter())
    proxy: Any = make_proxy(CounterApi, port)
    with pytest.raises(TypeError):
        run_synchronously(proxy.add(second=3, **given) if "second" not in given else proxy.add(**given))
    with pytest.raises(TypeError):
        run_synchronously(proxy.name(1))
    assert port.asked == []


def test_repeated_call_says_so() -> None:
    """A method that takes ``again`` gets it as its last argument, the defaults before it filled in."""
    assert get_method(CounterApi.add).repeat((1,)) == (1, 2, True)
    assert get_method(CounterApi.name).repeat(()) == ()


def test_finished_refuses_to_wait() -> None:
    """Where an answer would have to be waited for, that is an error and not an empty answer."""

    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="await it on an event loop"):
        run_synchronously(waits())
