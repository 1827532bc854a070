"""Python functions of a small subset as machine code, so that a model is written once and still runs fast.

A function has annotated parameters: ``int``, ``float``, the array types :data:`Floats` and :data:`Ints`, or
NamedTuples of those, and gives an ``int`` or a ``float``. It may use local numbers, items of arrays,
arithmetic, comparisons, ``and``, ``or``, ``not``, conditional expressions, ``min`` and ``max`` of two,
``if``, ``while``, ``continue``, ``break``, ``return``, constants of its module, and other functions of this
kind. Whole numbers have 64 bits, and only such that are not negative may be divided by ``//`` and ``%``.
Floats are IEEE doubles that nothing contracts or reorders: compiled and uncompiled, a function gives the same
bits on every machine.
"""

from __future__ import annotations

import ast
import ctypes
import enum
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
T = TypeVar("T")
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


class NotCompilable(TypeError):
    """A function uses what the subset does not have; a mistake in this package, never in its input."""


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """``function`` as machine code, built when it is first called."""
    hints = get_type_hints(function)
    kinds = [hints[name] for name in inspect.signature(function).parameters]

    @functools.wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        values: list[Any] = []
        for kind, value in zip(kinds, given, strict=True):
            values += tuple(value) if isinstance(value, tuple) and hasattr(kind, "_fields") else (value,)
        made: T = _entry(function)(*map(_argument, values))
        return made

    return call


def _argument(value: Any) -> Any:
    """A number, or the address of an array."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype not in (np.float64, np.int64) or not value.flags.c_contiguous:
        raise NotCompilable(f"an array of {value.dtype}: contiguous float64 or int64 are wanted")
    return int(value.ctypes.data)


@functools.cache
def _entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """The machine code of ``function``, to be called with scalars and addresses."""
    import llvmlite.binding as llvm
    from llvmlite import ir

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = ir.Module("model")
    made = _declared(module, function)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    parsed = llvm.parse_assembly(str(module))
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(parsed, builder)
    engine = llvm.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    _ENGINES.append(engine)
    number: dict[Any, Any] = {ir.DoubleType(): ctypes.c_double, ir.IntType(64): ctypes.c_int64}
    types = [number.get(argument.type, ctypes.c_void_p) for argument in made.args]
    return ctypes.CFUNCTYPE(number[made.return_value.type], *types)(engine.get_function_address(made.name))


_ENGINES: list[Any] = []  # what owns the machine code


def _declared(module: Any, function: Callable[..., Any]) -> Any:
    """``function`` in ``module``, with all that it calls."""
    from llvmlite import ir

    name = function.__name__
    if name in module.globals:
        return module.globals[name]
    hints = get_type_hints(function)
    flat: list[tuple[str, Any]] = []
    for parameter in inspect.signature(function).parameters:
        kind = hints[parameter]
        if hasattr(kind, "_fields"):
            flat += [(f"{parameter}.{name}", kind) for name, kind in get_type_hints(kind).items()]
        else:
            flat.append((parameter, kind))
    types = {int: ir.IntType(64), float: ir.DoubleType(), Floats: ir.PointerType(), Ints: ir.PointerType()}
    kind = ir.FunctionType(types[hints["return"]], [types[kind] for _, kind in flat])
    made = ir.Function(module, kind, name)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise NotCompilable(f"{name} is no plain function")
    _Translation(made, flat, inspect.unwrap(function).__globals__).body(tree)
    return made


class _Translation:
    """One function on its way. Locals live in stack slots, which LLVM turns into registers."""

    def __init__(self, made: Any, parameters: list[tuple[str, Any]], names: dict[str, Any]) -> None:
        from llvmlite import ir

        self.ir, self.made, self.names = ir, made, names
        self.real, self.whole, self.bit = ir.DoubleType(), ir.IntType(64), ir.IntType(1)
        self.entry = made.append_basic_block()
        self.b = ir.IRBuilder(made.append_basic_block())
        self.arguments = dict(zip((name for name, _ in parameters), made.args, strict=True))
        self.kinds = dict(parameters)
        self.slots: dict[str, tuple[Any, Any]] = {}
        self.loops: list[tuple[Any, Any]] = []  # head and end of each loop around here

    def body(self, tree: ast.FunctionDef) -> None:
        self.statements(tree.body)
        if not self.b.block.is_terminated:
            self.b.unreachable()
        self.ir.IRBuilder(self.entry).branch(self.made.blocks[1])

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # documentation
            getattr(self, f"do_{type(statement).__name__.lower()}", self.unknown)(statement)

    def unknown(self, node: ast.AST) -> Any:
        what = type(getattr(node, "op", node)).__name__
        raise NotCompilable(f"{self.made.name}: line {getattr(node, 'lineno', '?')} uses {what}")

    def do_assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            values = [self.value(value) for value in node.value.elts]
            for place, value in zip(target.elts, values, strict=True):
                self.store(place, value)
        else:
            self.store(target, self.value(node.value))

    def do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is None:
            self.unknown(node)
        else:
            self.store(node.target, self.value(node.value))

    def do_augassign(self, node: ast.AugAssign) -> None:
        old = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        self.store(node.target, self.value(old))

    def store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            place, kind = self.place(target)
            self.b.store(self.converted(value, kind), place)
        elif isinstance(target, ast.Name):
            if target.id not in self.slots:
                given = self.arguments.get(target.id)
                kind = value.type if given is None else given.type
                entry = self.ir.IRBuilder(self.entry)
                self.slots[target.id] = (entry.alloca(kind), kind)
                if given is not None:  # a parameter, which has a value from the start
                    entry.store(given, self.slots[target.id][0])
            slot, kind = self.slots[target.id]
            self.b.store(self.converted(value, kind), slot)
        else:
            self.unknown(target)

    def do_return(self, node: ast.Return) -> None:
        if node.value is None:
            self.unknown(node)
        else:
            self.b.ret(self.converted(self.value(node.value), self.made.return_value.type))

    def do_if(self, node: ast.If) -> None:
        yes, no, after = (self.made.append_basic_block() for _ in range(3))
        self.b.cbranch(self.truth(node.test), yes, no)
        for block, body in ((yes, node.body), (no, node.orelse)):
            self.b.position_at_end(block)
            self.statements(body)
            if not self.b.block.is_terminated:
                self.b.branch(after)
        self.b.position_at_end(after)

    def do_while(self, node: ast.While) -> None:
        head, body, after = (self.made.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.truth(node.test), body, after)
        self.b.position_at_end(body)
        self.loops.append((head, after))
        self.statements(node.body)
        self.loops.pop()
        if not self.b.block.is_terminated:
            self.b.branch(head)
        self.b.position_at_end(after)

    def do_continue(self, node: ast.Continue) -> None:
        self.b.branch(self.loops[-1][0])

    def do_break(self, node: ast.Break) -> None:
        self.b.branch(self.loops[-1][1])

    def value(self, node: ast.expr) -> Any:
        """The number that an expression gives."""
        return getattr(self, f"of_{type(node).__name__.lower()}", self.unknown)(node)

    def of_constant(self, node: ast.Constant) -> Any:
        return self.constant(node.value)

    def constant(self, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise NotCompilable(f"{self.made.name}: {value!r} is no number")
        return self.ir.Constant(self.real if isinstance(value, float) else self.whole, value)

    def of_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if not isinstance(node.op, ast.USub):
            return self.unknown(node)
        return self.b.fneg(value) if value.type == self.real else self.b.neg(value)

    def of_name(self, node: ast.Name) -> Any:
        if node.id in self.slots:
            slot, kind = self.slots[node.id]
            return self.b.load(slot, typ=kind)
        if node.id in self.arguments:
            return self.arguments[node.id]
        return self.constant(self.names.get(node.id))

    def of_attribute(self, node: ast.Attribute) -> Any:
        name = ast.unparse(node)
        if name in self.arguments:
            return self.arguments[name]
        holder = self.names.get(ast.unparse(node.value))
        member = getattr(holder, node.attr, None)
        return self.constant(member.value if isinstance(member, enum.IntEnum) else member)

    def of_subscript(self, node: ast.Subscript) -> Any:
        place, kind = self.place(node)
        return self.b.load(place, typ=kind)

    def place(self, node: ast.Subscript) -> tuple[Any, Any]:
        """Address and type of an item of an array."""
        name = ast.unparse(node.value)
        element = self.real if self.kinds[name] == Floats else self.whole
        return self.b.gep(self.arguments[name], [self.value(node.slice)], source_etype=element), element

    def of_binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Div) or self.real in (left.type, right.type):
            left, right = self.converted(left, self.real), self.converted(right, self.real)
            made = {ast.Add: self.b.fadd, ast.Sub: self.b.fsub, ast.Mult: self.b.fmul, ast.Div: self.b.fdiv}
        else:  # quotient and remainder of numbers that are not negative
            made = {ast.Add: self.b.add, ast.Sub: self.b.sub, ast.Mult: self.b.mul}
            made |= {ast.FloorDiv: self.b.udiv, ast.Mod: self.b.urem}
        if type(node.op) not in made:
            self.unknown(node)
        return made[type(node.op)](left, right)

    def of_ifexp(self, node: ast.IfExp) -> Any:
        test, left, right = self.truth(node.test), self.value(node.body), self.value(node.orelse)
        return self.b.select(test, *self.alike(left, right))

    def of_call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        if name in ("min", "max"):
            left, right = self.alike(*map(self.value, node.args))
            return self.b.select(self.compared(">" if name == "max" else "<", right, left), right, left)
        function = self.names.get(name)
        if not inspect.isfunction(function):
            return self.unknown(node)
        made = _declared(self.b.module, inspect.unwrap(function))
        made.attributes.add("alwaysinline")
        values: list[Any] = []
        for argument in node.args:
            name = f"{ast.unparse(argument)}."
            fields = [value for given, value in self.arguments.items() if given.startswith(name)]
            values += fields or (self.value(argument),)
        return self.b.call(made, [self.converted(v, a.type) for v, a in zip(values, made.args, strict=True)])

    def truth(self, node: ast.expr) -> Any:
        """Whether an expression holds; ``and`` and ``or`` look at their second part only where they must."""
        if isinstance(node, ast.BoolOp):
            result = self.ir.IRBuilder(self.entry).alloca(self.bit)
            after = self.made.append_basic_block()
            for part in node.values:
                found = self.truth(part)
                self.b.store(found, result)
                following = self.made.append_basic_block()
                on, off = (following, after) if isinstance(node.op, ast.And) else (after, following)
                self.b.cbranch(found, on, off)
                self.b.position_at_end(following)
            self.b.branch(after)
            self.b.position_at_end(after)
            return self.b.load(result, typ=self.bit)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.b.not_(self.truth(node.operand))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.alike(self.value(node.left), self.value(node.comparators[0]))
            return self.compared(_COMPARISONS[type(node.ops[0])], left, right)
        value = self.value(node)
        return self.compared("!=", value, self.ir.Constant(value.type, 0))

    def compared(self, sign: str, left: Any, right: Any) -> Any:
        if left.type == self.real:
            return self.b.fcmp_ordered(sign, left, right)
        return self.b.icmp_signed(sign, left, right)

    def alike(self, left: Any, right: Any) -> tuple[Any, Any]:
        kind = self.real if self.real in (left.type, right.type) else self.whole
        return self.converted(left, kind), self.converted(right, kind)

    def converted(self, value: Any, kind: Any) -> Any:
        if value.type == kind or value.type not in (self.real, self.whole):
            return value
        if kind == self.real:
            return self.b.sitofp(value, kind)
        raise NotCompilable(f"{self.made.name}: a float where a whole number is wanted")
