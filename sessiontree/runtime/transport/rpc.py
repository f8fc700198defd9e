"""Interfaces that other processes call: methods declared once, one proxy that calls them through any port.

An interface is a Protocol whose methods carry :func:`rpc`. The class that implements it inherits from it.
Whatever serves a port finds the callable methods by :func:`collect_methods`, and refuses every other name. On
the calling side :func:`make_proxy` returns an object whose methods hand their arguments to a port. The way is
the same in one process, over a socket and by the call of an actor; :class:`RpcAnswers` is where it ends.
"""

from __future__ import annotations

import hmac
import inspect
import math
import pickle
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Annotated, Any, Final, Protocol, TypeVar

from pydantic import AfterValidator

from sessiontree.contracts.errors import PermissionDenied, SessionTreeError, describe_error
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.values.quick_dataclass import dataclass

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
MAX_COUNT: Final = 2**63 - 1
AGAIN: Final = "again"
"""Name of the parameter that tells that a call may have been carried out before."""
_MARK: Final = "__rpc__"


def limit(bound: float) -> AfterValidator:
    """Mark a number that a peer of the control socket may choose between 0 and a bound."""

    def check(number: float) -> float:
        if not math.isfinite(number) or not 0 <= number <= bound:
            raise ValueError(f"must be a number from 0 to {bound}, not {number!r:.80}")
        return number

    return AfterValidator(check)


def allow(*values: Any) -> AfterValidator:
    """Mark a value of which a peer of the control socket may choose only some."""

    def check(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"{str(value)!r:.80} is not one of {', '.join(map(str, values))}")
        return value

    return AfterValidator(check)


def _refuse_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must be text that is not blank")
    return text


@dataclass(frozen=True, slots=True)
class Without:
    """Marks a value some of whose fields a peer of the control socket may not set."""

    fields: tuple[str, ...]


class ProgramOnly:
    """Marks a parameter that only the creating program may set; for everybody else it has its default."""


@dataclass(frozen=True, slots=True)
class PeerDefault:
    """Marks a parameter whose default is another one for peers of the control socket."""

    value: Any


class PeerName:
    """Marks a parameter that the control socket fills in with the name of the peer."""


Count = Annotated[int, limit(MAX_COUNT)]
"""A whole number from 0."""
Words = Annotated[str, AfterValidator(_refuse_blank)]
"""A text that holds more than white space where a peer of the control socket sends it."""


@dataclass(frozen=True, slots=True, eq=False)
class RpcMethod:
    """One method that can be called from another process."""

    name: str
    function: Callable[..., Any]
    parameters: Mapping[str, inspect.Parameter]
    """In order, without ``self``."""
    for_peers: bool
    """Whether peers of the control socket may call it. Only the creating program may call the others."""
    in_order: bool
    """Whether several calls begun without waiting must be started in the order of the calls."""
    urgent: bool
    """Whether it is served however many ordinary calls wait."""
    waits: bool
    """Whether it does nothing but wait: cancelled by its caller, it is cancelled where it runs."""

    @property
    def repeats(self) -> bool:
        """Whether it takes ``again``: a process that was lost may have carried out the call before."""
        return AGAIN in self.parameters

    def bind(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments in order, as far as they were given; defaults fill the gaps between them.

        Raises:
            TypeError: they do not fit the method.
        """
        if not named and len(given) <= len(self.parameters):
            return given
        values = dict(zip(self.parameters, given, strict=False))
        unknown = [name for name in named if name in values or name not in self.parameters]
        if unknown or len(given) > len(self.parameters):
            raise TypeError(
                f"{self.name}() takes {', '.join(self.parameters)}; it can't take {unknown or given}"
            )
        values.update(named)
        last = max(index for index, name in enumerate(self.parameters) if name in values)
        return tuple(self._find_value(name, values) for name in list(self.parameters)[: last + 1])

    def repeat(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of the same call, sent once more."""
        return self.bind(given, {AGAIN: True}) if self.repeats else given

    def _find_value(self, name: str, values: Mapping[str, Any]) -> Any:
        value = values.get(name, self.parameters[name].default)
        if value is inspect.Parameter.empty:
            raise TypeError(f"{self.name}() needs {name}")
        return value


def rpc(
    *, for_peers: bool = False, in_order: bool = False, urgent: bool = False, waits: bool = False
) -> Callable[[F], F]:
    """Declare that a method of an interface can be called from another process; see :class:`RpcMethod`."""

    def mark(function: F) -> F:
        parameters = dict(list(inspect.signature(function).parameters.items())[1:])
        method = RpcMethod(function.__name__, function, parameters, for_peers, in_order, urgent, waits)
        setattr(function, _MARK, method)
        return function

    return mark


def get_method(function: Callable[..., Any]) -> RpcMethod:
    """Return the declaration of an interface's method, such as ``get_method(SupervisorApi.report)``."""
    method: RpcMethod = getattr(function, _MARK)
    return method


@cache
def collect_methods(interface: type) -> Mapping[str, RpcMethod]:
    """Return the methods that :func:`rpc` declared in an interface, or in those that a class implements.

    A name that an interface does not declare is not there, whatever methods the class has besides.
    """
    return {
        name: method
        for cls in reversed(interface.__mro__)
        for name, member in vars(cls).items()
        if isinstance(method := getattr(member, _MARK, None), RpcMethod)
    }


@dataclass(frozen=True, slots=True)
class RpcResponse:
    """The answer to a call: its value, or its error."""

    incarnation: str
    """Names the process that answered; a restarted process has another name and no open trees."""
    value: Any
    error: Exception | None = None

    def unwrap(self) -> Any:
        """Return the value.

        Raises:
            Exception: as it was raised at the other end.
        """
        if self.error is not None:
            raise self.error
        return self.value


def make_portable(error: Exception) -> Exception:
    """Return an error that can be sent to another process; one that can't be pickled keeps its text only."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was packed just before
    except Exception:  # noqa: BLE001 - the error may hold anything; its text is enough
        return SessionTreeError(describe_error(error))
    return error


async def respond(incarnation: str, function: Callable[..., Any], given: tuple[Any, ...]) -> RpcResponse:
    """Return what a function returns, or its error, as the answer to a call from another process."""
    try:
        value = function(*given)
        if inspect.iscoroutine(value):
            value = await value
    except Exception as error:  # noqa: BLE001 - the error is raised in the caller's process
        return RpcResponse(incarnation, None, make_portable(error))
    return RpcResponse(incarnation, value)


def is_same_key(shown: object, own: str) -> bool:
    """Whether somebody shows the right key, in the same time whatever is shown."""
    return isinstance(shown, str) and hmac.compare_digest(shown.encode("utf-8", "replace"), own.encode())


class RpcPort(Protocol):
    """A way to an object in this or another process."""

    async def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Any:
        """Call a method there and return what it returns.

        Raises:
            SessionTreeError: as the method raises, or because the port was lost or closed.
        """
        ...


def make_proxy(interface: type, port: RpcPort) -> Any:
    """Return an object with an interface's methods; each calls the method of that name through a port."""
    return _make_proxy_class(interface)(port)


@cache
def _make_proxy_class(interface: type) -> Callable[[RpcPort], Any]:
    def begin(self: Any, port: RpcPort) -> None:
        self.port = port

    body: dict[str, Any] = {
        name: _make_proxy_method(method) for name, method in collect_methods(interface).items()
    }
    body |= {"__slots__": ("port",), "__init__": begin, "__doc__": interface.__doc__}
    return type(f"{interface.__name__}Proxy", (), body)


def _make_proxy_method(method: RpcMethod) -> Callable[..., Any]:
    async def ask(self: Any, *given: Any, **named: Any) -> Any:
        return await self.port.ask(method, method.bind(given, named))

    ask.__name__ = method.name
    ask.__doc__ = method.function.__doc__
    return ask


class RpcAnswers:
    """Answers the calls of an interface in this process: each by the part that implements its method.

    It is a port, too: through a proxy, callers in this process call as those in others do.

    Args:
        parts: Each implements an interface, or a part of one.
    """

    def __init__(self, *parts: Any) -> None:
        self.methods: dict[str, RpcMethod] = {}
        """The methods that are answered; every other name is refused by whoever asks here for others."""
        self._functions: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {}
        for part in parts:
            self.add(part)

    def add(self, part: Any) -> None:
        """Let a part answer, too.

        Raises:
            TypeError: another part answers one of its methods.
        """
        interface: type = part.__class__
        for name, method in collect_methods(interface).items():
            if name in self.methods:
                raise TypeError(f"{name} is answered already; {interface.__name__} can't answer it, too")
            self.methods[name] = method
            self._functions[name] = getattr(part, name)

    def call(self, name: str, given: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        """Begin a call of a method by its name.

        Raises:
            PermissionDenied: no method of that name is answered here.
        """
        function = self._functions.get(name)
        if function is None:
            reason = f"asked for {name[:80]!r}, which is not one of {', '.join(self.methods)}"
            raise PermissionDenied(PermissionTier.ELEVATED, reason)
        return function(*given)

    def ask(self, method: RpcMethod, given: tuple[Any, ...]) -> Coroutine[Any, Any, Any]:
        """Call a method; what it returns is awaited."""
        return self._functions[method.name](*given)


def run_synchronously(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that answers without waiting, and return its result.

    Raises:
        RuntimeError: it waits; ask it on an event loop.
    """
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    raise RuntimeError(f"{work} waits for something; await it on an event loop")
