"""Dataclasses that are quick: to define, to make a value of, and to pickle one.

The standard library writes up to six methods of each class as text, and compiles them when the class is
defined. This package defines hundreds of classes in every process, so that took half the time of its start.
Here a method is compiled when it is first used, and most are never used.
"""

from __future__ import annotations

import copyreg
import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final, TypeVar

C = TypeVar("C", bound=type[Any])

if TYPE_CHECKING:  # to a type checker it is the one of the standard library
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type[Any] | None = None,
        /,
        *,
        repr: bool = True,
        eq: bool = True,
        frozen: bool = False,
        **given: bool,
    ) -> Any:
        """Define a class as the standard library's ``dataclass`` does, with methods compiled at first use.

        A class that inherits fields, or that has no docstring, is defined by the standard library: it reads
        how its bases were defined, and writes the docstring from the compiled ``__init__``.
        """
        if cls is None:
            return partial(dataclass, repr=repr, eq=eq, frozen=frozen, **given)
        inherits = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
        if inherits or cls.__doc__ is None or not given.keys() <= _UNDERSTOOD:
            return dataclasses.dataclass(cls, repr=repr, eq=eq, frozen=frozen, **given)
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, **given)
        _add_methods(made, vars(cls), repr=repr, eq=eq, frozen=frozen)
        return made


_UNDERSTOOD: Final = frozenset({"slots", "kw_only"})


class _LateMethod:
    """Stands for a method of a class until something asks for it, and then puts the method in its place."""

    __slots__ = ("_build", "_name", "_owner")

    def __init__(self, owner: type[Any], name: str, build: Callable[[type[Any]], Any]) -> None:
        self._owner = owner
        self._name = name
        self._build = build

    def __get__(self, instance: object, asked: type[Any] | None = None) -> Any:
        # Race: two threads may both build it; the later one replaces a method that does the same.
        method = self._build(self._owner)
        method.__name__, method.__module__ = self._name, self._owner.__module__
        method.__qualname__ = f"{self._owner.__qualname__}.{self._name}"
        setattr(self._owner, self._name, method)
        return method if instance is None else method.__get__(instance)


class _Factory:
    """The default of an argument whose value is made each time; signatures show it as ``<factory>``."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


def _add_methods(cls: type[Any], own: Any, *, repr: bool, eq: bool, frozen: bool) -> None:
    """Give a class the methods that it does not define itself."""
    known = cls.__dataclass_params__
    known.init, known.repr, known.eq, known.frozen = True, repr, eq, frozen
    setattr(cls, "__init__", _LateMethod(cls, "__init__", _build_init))  # noqa: B010 - a type checker refuses it
    if repr and "__repr__" not in own:
        setattr(cls, "__repr__", _LateMethod(cls, "__repr__", _build_repr))  # noqa: B010 - as above
    if eq:
        has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
        if "__eq__" not in own:
            setattr(cls, "__eq__", _LateMethod(cls, "__eq__", _build_eq))  # noqa: B010 - as above
        if not has_hash:
            cls.__hash__ = _LateMethod(cls, "__hash__", _build_hash) if frozen else None  # type: ignore[assignment]
    if frozen:
        _freeze(cls, own)


def _freeze(cls: type[Any], own: Any) -> None:
    """Refuse changes of a class's values, as the standard library does; they can still be pickled."""
    names = frozenset(each.name for each in fields(cls))

    def refuse_set(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    for name, method in (("__setattr__", refuse_set), ("__delattr__", refuse_delete)):
        if name in own:
            raise TypeError(f"{cls.__name__} is frozen and has its own {name}")
        setattr(cls, name, method)
    if "__slots__" in vars(cls) and "__getstate__" not in own and "__setstate__" not in own:
        setattr(cls, "__getstate__", _get_state)  # noqa: B010 - a type checker refuses it
        setattr(cls, "__setstate__", _set_state)  # noqa: B010 - as above


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _compile(line: str, known: dict[str, Any]) -> Any:
    """Compile a method named ``method``."""
    exec(line, known)  # noqa: S102 - names of fields, nothing else
    return known["method"]


def _build_init(cls: type[Any]) -> Any:
    """Write ``__init__``, which sets a frozen value's slots: twice as fast as ``object.__setattr__``."""
    frozen, slotted = cls.__dataclass_params__.frozen, "__slots__" in vars(cls)
    known: dict[str, Any] = {"FACTORY": _FACTORY, "set_field": object.__setattr__}
    places: dict[bool, list[str]] = {False: ["self"], True: []}
    lines: list[str] = []
    hints: dict[str, Any] = {}
    for each in fields(cls):
        name, value = each.name, each.name
        if each.default_factory is not MISSING:
            known[f"make_{name}"] = each.default_factory
            value = f"make_{name}() if {name} is FACTORY else {name}" if each.init else f"make_{name}()"
        elif each.default is not MISSING:
            known[f"default_{name}"] = each.default
        if each.init:
            has_default = each.default is not MISSING or each.default_factory is not MISSING
            default = "FACTORY" if each.default_factory is not MISSING else f"default_{name}"
            places[bool(each.kw_only)].append(f"{name}={default}" if has_default else name)
            hints[name] = each.type
        elif each.default_factory is MISSING:
            if not slotted or each.default is MISSING:
                continue  # the class has its default, or ``__post_init__`` sets it
            value = f"default_{name}"
        slot = getattr(cls, name, None)
        if not frozen:
            lines.append(f"self.{name} = {value}")
        elif isinstance(slot, MemberDescriptorType):
            known[f"set_{name}"] = slot.__set__
            lines.append(f"set_{name}(self, {value})")
        else:
            lines.append(f"set_field(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = [*places[False], *(["*", *places[True]] if places[True] else [])]
    body = "\n    ".join(lines or ["pass"])
    init = _compile(f"def method({', '.join(arguments)}):\n    {body}", known)
    init.__annotations__ = {**hints, "return": None}
    return init


def _build_repr(cls: type[Any]) -> Any:
    shown = ", ".join(f"{each.name}={{self.{each.name}!r}}" for each in fields(cls) if each.repr)
    line = f"def method(self): return self.__class__.__qualname__ + f'({shown})'"
    return recursive_repr()(_compile(line, {}))


def _build_eq(cls: type[Any]) -> Any:
    names = [each.name for each in fields(cls) if each.compare]
    mine, others = ("".join(f"{side}.{name}, " for name in names) for side in ("self", "other"))
    line = f"""def method(self, other):
    if other.__class__ is self.__class__:
        return ({mine}) == ({others})
    return NotImplemented"""
    return _compile(line, {})


def _build_hash(cls: type[Any]) -> Any:
    counts = (each.name for each in fields(cls) if (each.compare if each.hash is None else each.hash))
    return _compile(f"def method(self): return hash(({''.join(f'self.{name}, ' for name in counts)}))", {})


def add_quick_pickle(cls: C) -> C:
    """Return a frozen, slotted dataclass whose values are pickled in a third of the time.

    ``dataclass`` looks up the fields of each value. Here the values of its fields are sent, and a call of the
    class makes it again. A class that has ``__post_init__``, keyword-only fields or default factories, or
    that has no slots, is returned unchanged.
    """
    members = fields(cls)
    plain = all(
        member.init
        and not member.kw_only
        and member.default_factory is MISSING
        and isinstance(getattr(cls, member.name, None), MemberDescriptorType)
        for member in members
    )
    if not plain or hasattr(cls, "__post_init__"):
        return cls
    names = tuple(member.name for member in members)
    values = attrgetter(*names) if names else None

    def take_apart(value: Any) -> tuple[type[Any], tuple[Any, ...]]:
        given = () if values is None else values(value)
        return cls, given if len(names) != 1 else (given,)

    # Registered and not a method, which subclasses would inherit.
    copyreg.pickle(cls, take_apart)
    return cls
