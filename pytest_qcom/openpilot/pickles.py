"""tinygrad's pickles as plain data: reading one builds no object of tinygrad's and calls nothing.

A pickled ``TinyJit`` (tinygrad 0.14.0, ``engine/jit.py`` ``_TinyJit.__reduce__``) names classes and the
arguments to build them with. Here each name becomes a :class:`Record` of these arguments; a name that a
captured graph has no use for is refused. Writing gives the same names and arguments back, so that tinygrad
loads what was written as if it had written it.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import importlib
import io
import operator
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from pytest_qcom.errors import GraphError

CLASSES: dict[str, tuple[str, ...]] = {
    "builtins": ("bytearray", "slice"),
    "tinygrad.codegen.opt": ("Opt", "OptOps"),
    "tinygrad.device": ("Buffer", "BufferSpec"),
    "tinygrad.dtype": ("AddrSpace", "ConstFloat", "DType", "InvalidType"),
    "tinygrad.engine.jit": ("CapturedJit", "_TinyJit"),
    "tinygrad.helpers": ("Metadata", "Target"),
    "tinygrad.renderer": ("Estimates",),
    "tinygrad.tensor": ("Tensor",),
    "tinygrad.uop": ("Ops",),
    "tinygrad.uop.ops": ("AxisType", "CallInfo", "KernelInfo", "Metadata", "ParamArg", "ProgramInfo", "UOp"),
}
"""What a pickled graph may name, by module; all of it data, none of it opens, runs or imports anything."""


class Record:
    """An object of a pickle as it is described there.

    Attributes:
        arguments: what the class is called with.
        called: whether it is called; otherwise its ``__new__`` alone is.
        state: what is put into the object afterwards; ``None`` for nothing.
    """

    module: ClassVar[str] = ""
    name: ClassVar[str] = ""
    __slots__ = ("arguments", "called", "state")
    arguments: tuple[Any, ...]
    called: bool
    state: Any

    def __new__(cls, *arguments: Any) -> Record:
        self = super().__new__(cls)
        self.arguments, self.called, self.state = arguments, False, None
        return self

    def __init__(self, *_: Any) -> None:
        self.called = True  # ``__new__`` alone does not come here

    def __setstate__(self, state: Any) -> None:
        self.state = state

    @property
    def fields(self) -> dict[str, Any]:
        """The state of a dataclass, which is a dictionary.

        Raises:
            GraphError: the state is another.
        """
        if not isinstance(self.state, dict):
            raise GraphError(
                f"pickle: a {self.name} whose state is {type(self.state).__name__}, expected its fields; "
                "it was not written by tinygrad 0.14.0: capture the graph with that version"
            )
        return self.state

    def __repr__(self) -> str:
        return f"<{self.name} {self.arguments!r:.80}>"


@functools.cache
def kind(module: str, name: str) -> type[Record]:
    """The class of the records of a class of :data:`CLASSES`.

    Raises:
        GraphError: another class.
    """
    if name not in CLASSES.get(module, ()):
        raise GraphError(
            f"pickle: it names {module}.{name}, which a captured graph has no use for; "
            "load it only if you trust whoever made it, with tinygrad itself"
        )
    return type(name, (Record,), {"module": module, "name": name, "__slots__": ()})


def call(module: str, name: str, *arguments: Any) -> Record:
    """A record of a class that is called with ``arguments``."""
    return kind(module, name)(*arguments)


def made(module: str, name: str, **fields: Any) -> Record:
    """A record of a dataclass with these fields."""
    record: Record = kind(module, name).__new__(kind(module, name))
    record.state = fields
    return record


Arguments = Callable[[Record], tuple[Any, ...]]
"""Gives what the class of a record is called with."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _SHELLS:
            return _SHELLS[module, name]
        return kind(module, name)


def _shell(record: Any, *_: Any) -> Record:
    """An object whose ``__new__`` alone is called, as pickle's oldest protocol writes it."""
    if not (isinstance(record, type) and issubclass(record, Record)):
        raise GraphError("pickle: it makes an object of no class; it is damaged: capture the graph again")
    made: Record = record.__new__(record)
    return made


_SHELLS: dict[tuple[str, str], Any] = {
    ("copyreg", "_reconstructor"): _shell,
    ("builtins", "object"): "object",
}


class _Writer(pickle.Pickler):
    arguments: Arguments

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, Record):
            return NotImplemented
        real = getattr(importlib.import_module(value.module), value.name)
        if value.arguments or value.state is None:
            return (real, value.arguments)  # the state of a number is what its class makes of it
        if dataclasses.is_dataclass(real):
            self.check(value, {field.name for field in dataclasses.fields(real)})
        return (copyreg._reconstructor, (real, object, None), value.state)  # type: ignore[attr-defined]

    @staticmethod
    def check(value: Record, names: set[str]) -> None:
        if names != set(value.fields):
            raise GraphError(
                f"pickle: a {value.name} of {', '.join(map(str, value.fields))}, tinygrad's here has "
                f"{', '.join(sorted(names))}; it was written by another version: capture it with 0.14.0"
            )


def loads(data: bytes, what: str = "pickle") -> Any:
    """The content of a pickle, as records and plain values.

    Args:
        what: how errors call it.

    Raises:
        GraphError: truncated, damaged, or naming what no captured graph holds.
    """
    try:
        return _Reader(io.BytesIO(data)).load()
    except GraphError as error:
        raise GraphError(str(error).replace("pickle", what, 1), **error.facts) from None
    except Exception as error:  # "almost any exception", says pickle's documentation of damaged data
        reason = " ".join(str(error).split()) or type(error).__name__
        raise GraphError(
            f"{what}: {len(data)} bytes that are no readable pickle ({reason}); "
            "it is truncated or damaged: capture or copy it again"
        ) from error


def dumps(value: Any, arguments: Arguments = operator.attrgetter("arguments")) -> bytes:
    """The pickle of records and plain values; tinygrad must be importable.

    Args:
        arguments: gives what the class of a record is called with; by default what it was read with.
    """
    stream = io.BytesIO()
    writer = _Writer(stream, protocol=5)
    writer.arguments = arguments
    writer.dump(value)
    return stream.getvalue()
