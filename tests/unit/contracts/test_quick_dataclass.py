"""A quick class is the one that the standard library defines; its values are the same."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, replace
from functools import partial
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.values.quick_dataclass import add_quick_pickle, dataclass


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """As ``dataclass`` makes it."""

    key: str
    at_ms: int = 0
    note: str | None = None


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Quick:
    """The same fields."""

    key: str
    at_ms: int = 0
    note: str | None = None


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class One:
    """One field."""

    values: tuple[int, ...]


@add_quick_pickle
@dataclass(frozen=True, slots=True)
class Empty:
    """Without fields."""


@dataclasses.dataclass(frozen=True, slots=True)
class Further(Quick):
    """A field more, as ``dataclass`` makes it."""

    more: int = 0


ARGUMENTS = st.lists(st.one_of(st.text(), st.integers(), st.none()), max_size=4)
NAMED = st.dictionaries(st.sampled_from(["key", "at_ms", "note", "other"]), st.integers(), max_size=3)


def made(cls: type[Any], given: list[Any], named: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the fields of a value, None where the arguments make none."""
    try:
        value = cls(*given, **named)
    except TypeError:
        return None
    return value.key, value.at_ms, value.note


@given(ARGUMENTS, NAMED)
def test_same_arguments_make_the_same_value(given: list[Any], named: dict[str, Any]) -> None:
    """Positions, names, defaults, and what is refused: one argument too many, too few, unknown or twice."""
    assert made(Quick, given, named) == made(Plain, given, named)


def test_it_stays_the_value_it_was() -> None:
    """Frozen, hashable, equal by fields; copied, replaced and pickled; its signature says the same."""
    value = Quick("a", note="b")
    assert value == Quick("a", 0, "b")
    assert hash(value) == hash(Quick("a", 0, "b"))
    assert repr(value) == "Quick(key='a', at_ms=0, note='b')"
    for same in (copy.copy(value), replace(value), pickle.loads(pickle.dumps(value))):
        assert same == value
    assert replace(value, at_ms=2) == Quick("a", 2, "b")
    with pytest.raises(FrozenInstanceError):
        value.key = "c"  # type: ignore[misc]
    assert str(inspect.signature(Quick)) == str(inspect.signature(Plain))


@pytest.mark.parametrize(
    "value", [Quick("a", 1), One((1, 2)), One(()), Empty(), Further("a", 1, "b", 2), (Quick("a"), One((3,)))]
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_values_come_back_as_they_were(value: object, protocol: int) -> None:
    """With any number of fields; a subclass keeps the fields that it adds."""
    back = pickle.loads(pickle.dumps(value, protocol))
    assert (type(back), back) == (type(value), value)
    assert copy.deepcopy(value) == value


def test_values_are_pickled_without_looking_up_their_fields() -> None:
    """The pickle holds the values and no state to be set field by field."""
    assert len(pickle.dumps(Quick("a", 1, "b"))) < len(pickle.dumps(Plain("a", 1, "b")))


def test_class_that_does_more_is_pickled_by_its_state() -> None:
    """Factories, checks, keyword-only fields and classes without slots."""

    @dataclass(frozen=True, slots=True)
    class Filled:
        """A factory."""

        names: list[str] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Checked:
        """A check."""

        name: str

        def __post_init__(self) -> None:
            if not self.name:
                raise ValueError("a name is needed")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        """A keyword."""

        name: str

    @dataclass(frozen=True)
    class Open:
        """No slots."""

        name: str

    for cls in (Filled, Checked, Named, Open):
        assert add_quick_pickle(cls) is cls
        assert cls not in copyreg.dispatch_table


Decorator = Callable[..., Callable[[type[Any]], Any]]


def define_many(decorate: Decorator) -> dict[str, type[Any]]:
    """Return classes of every form that this package has."""

    @decorate(frozen=True, slots=True)
    class Frozen:
        """Frozen."""

        kind: ClassVar[str] = "frozen"
        key: str
        hidden: int = field(default=1, repr=False)
        ignored: int = field(default=2, compare=False)
        unhashed: list[int] = field(default_factory=list, hash=False)
        derived: str = field(default="d", init=False)

    @decorate(slots=True)
    class Slotted:
        """Slotted."""

        key: str
        made: dict[str, int] = field(default_factory=dict)
        own: list[int] = field(default_factory=list, init=False)

        def __post_init__(self) -> None:
            self.own.append(len(self.made))

    @decorate()
    class Open:
        """Open."""

        key: str = "k"
        later: int = field(default=3, init=False)

    @decorate(eq=False, repr=False, kw_only=True)
    class Identified:
        """Compared by identity."""

        key: str

    @decorate(frozen=True, slots=True)
    class Custom:
        """Its own methods."""

        key: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Custom)

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "custom"

    @decorate(slots=True)
    class Hashed:
        """Its own hash."""

        key: str

        def __hash__(self) -> int:
            return 8

    @decorate(frozen=True, slots=True)
    class Equal:
        """Its own equality."""

        key: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

    @decorate(slots=True, frozen=True, order=True)
    class Ordered:
        """Ordered."""

        key: str

    @decorate(frozen=True, slots=True)
    class Empty:
        """Without fields."""

    @decorate(frozen=True, slots=True)
    class Undocumented:
        key: str

    @decorate(frozen=True, slots=True)
    class Child(Frozen):
        """Inherits fields."""

        unhashed: list[int] = field(default_factory=lambda: [1])
        more: int = 5

    @decorate(frozen=True)
    class Guarded:
        """A tuple that may hold itself."""

        key: str
        held: list[Any] = field(default_factory=list, hash=False)

    found = (
        Frozen, Slotted, Open, Identified, Custom, Hashed, Equal, Ordered, Empty, Undocumented, Child, Guarded
    )  # fmt: skip
    return {each.__name__: each for each in found}


QUICK, USUAL = define_many(dataclass), define_many(dataclasses.dataclass)
TRIED: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    (("a",), {}),
    (("b",), {}),
    ((), {"key": "a"}),
    (("a", 4), {}),
    (("a", 4, 5, [6]), {}),
    (("a", 4, 5, [6], 7), {}),
    (("a",), {"derived": "x"}),
    (("a",), {"unknown": 1}),
]


def observe(act: Callable[[], object]) -> object:
    """Return what a call returns, or the type of what it raises and its text."""
    try:
        return act()
    except (TypeError, AttributeError) as error:
        return type(error).__name__, str(error).replace("<lambda>", "")


def make(cls: Any, args: tuple[Any, ...], named: dict[str, Any]) -> object:
    """Make a value."""
    return cls(*args, **named)


def describe(cls: type[Any]) -> list[object]:
    """Return what a class is, and what its values do."""
    seen: list[object] = [str(inspect.signature(cls)), cls.__doc__, cls.__match_args__, cls.__hash__ is None]
    seen += [(each.name, each.type, each.init, each.repr, each.compare) for each in dataclasses.fields(cls)]
    seen += [str(cls.__dataclass_params__), cls.__init__.__qualname__, cls.__init__.__annotations__]
    values = [observe(partial(make, cls, args, named)) for args, named in TRIED]
    return seen + [describe_value(each, values) if isinstance(each, cls) else each for each in values]


def describe_value(value: Any, values: list[object]) -> list[object]:
    """Return what a value is and does."""
    cls = type(value)
    shown = repr(value)
    return [
        "object at" if "object at" in shown else shown,
        [value == each for each in values],
        "identity" if "__eq__" not in vars(cls) else observe(partial(hash, value)),
        *(observe(partial(delattr, value, name)) for name in list_frozen_names(cls)),
        *(observe(partial(setattr, value, name, 1)) for name in list_frozen_names(cls)),
        observe(lambda: asdict(copy.copy(value))),
        observe(lambda: asdict(copy.deepcopy(value))),
        observe(lambda: asdict(replace(value, key="r"))),
    ]


def list_frozen_names(cls: Any) -> list[str]:
    """Return the fields that can't be changed."""
    return [each.name for each in dataclasses.fields(cls)] if cls.__dataclass_params__.frozen else []


@pytest.mark.parametrize("name", sorted(USUAL))
def test_class_is_the_one_that_the_standard_library_defines(name: str) -> None:
    """Signature, fields, equality, hash, text, copies, and what is refused, in the same words."""
    assert describe(QUICK[name]) == describe(USUAL[name])


def test_method_is_compiled_when_it_is_first_used() -> None:
    """Nothing is compiled while the class is defined; each method once, for the class that has it."""

    @dataclass(frozen=True, slots=True)
    class Late:
        """Late."""

        key: str

    class Below(Late):
        pass

    def list_compiled() -> set[str]:
        return {
            name
            for name in ("__init__", "__repr__", "__eq__", "__hash__")
            if inspect.isfunction(vars(Late)[name])
        }

    assert list_compiled() == set()
    value = Below("a")
    assert list_compiled() == {"__init__"}
    assert value == Below("a")
    assert list_compiled() == {"__init__", "__eq__"}
    assert hash(value) == hash(Late("a"))
    assert list_compiled() == {"__init__", "__eq__", "__hash__"}
    assert repr(value).endswith("Below(key='a')")
    init = Late.__init__
    assert Late.__init__ is init is Below.__init__


def test_value_that_holds_itself_has_a_text() -> None:
    """As with the standard library, the inner one is an ellipsis."""
    value = QUICK["Guarded"]("a")
    value.held.append(value)
    assert repr(value).endswith("Guarded(key='a', held=[...])")


def test_frozen_class_refuses_its_own_setter() -> None:
    """It would make the class changeable."""
    with pytest.raises(TypeError, match="__setattr__"):

        @dataclass(frozen=True)
        class Open:
            """Open."""

            key: str

            def __setattr__(self, name: str, value: object) -> None: ...


def test_usual_class_may_inherit_from_a_quick_one() -> None:
    """A frozen one only from a frozen one, which both kinds know of each other."""
    frozen = dataclasses.make_dataclass("Sub", [("more", int, 1)], bases=(QUICK["Empty"],), frozen=True)
    assert frozen(2) == frozen(2)
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        dataclasses.make_dataclass("Sub", [("more", int, 1)], bases=(QUICK["Empty"],))
    with pytest.raises(TypeError, match="cannot inherit frozen"):
        dataclasses.make_dataclass("Sub", [("more", int, 1)], bases=(QUICK["Open"],), frozen=True)
