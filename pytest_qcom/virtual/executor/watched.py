"""Programs with a call before each access of global memory and of images, so that races are seen."""

from __future__ import annotations

from pytest_qcom.isa.instruction import Instr
from pytest_qcom.virtual.executor.layout import Layout
from pytest_qcom.virtual.executor.race_ops import ATOMIC, READ, WRITE
from pytest_qcom.virtual.executor.target import Host
from pytest_qcom.virtual.executor.translate import Translation, Translator, registers


def translate_watched(
    instrs: tuple[Instr, ...], entry: int, wave: int, merged: bool, demoted: bool, host: Host
) -> Translation:
    """As :func:`~pytest_qcom.virtual.executor.translate.translate`, with every access noted."""
    full, half = registers(instrs, merged)
    return _Watched(instrs, entry, Layout(wave, full, half, merged), demoted, host).module()


class _Watched(Translator):
    """Calls a watching function with the operands of an access before the access itself."""

    def _checked(self, name: str, *arguments: tuple[str, str]) -> None:
        operation, _, rest = name.partition("_")
        if operation[:2] in ("ld", "st") and operation[2:] == "g":  # of global memory
            _, address, offset, count, pc = arguments
            size = int(rest.partition("_")[0]) // 8 * int(count[1])
            kind = READ if operation[:2] == "ld" else WRITE
            self._watch("global", address, offset, ("i64", str(size)), ("i32", str(kind)), pc)
        elif name.startswith("atomic_global"):
            _, address, offset, *_, pc = arguments
            size = int(name.rpartition("_")[2]) // 8
            self._watch("global", address, offset, ("i64", str(size)), ("i32", str(ATOMIC)), pc)
        elif operation in ("isam", "ldib", "stib"):
            _, x, y, place, _, pc = arguments
            kind = WRITE if operation == "stib" else READ
            table = "texture" if operation == "isam" else "image"
            self._watch(table, x, y, place, ("i32", str(kind)), pc)
        elif operation == "surface":
            self._surface_watch(rest, arguments)
        elif name == "uniforms":
            _, x, _, _, slots, number, component, components, pc = arguments
            self._watch("uniforms", x, slots, number, component, components, pc)
        elif name == "upload":
            x, slots, number, _, vectors, pc = arguments
            self._watch("uniforms", x, slots, number, ("i32", "0"), ("i32", f"{4 * int(vectors[1])}"), pc)
        super()._checked(name, *arguments)

    def _surface_watch(self, what: str, arguments: tuple[tuple[str, str], ...]) -> None:
        """A function of ``surface_ops``: texels are read, written or changed, words loaded or stored."""
        operation, _, bits = what.partition("_")
        if operation in ("size", "extent", "facts", "filter", "fetch"):
            return  # no texels; or texels that the function itself notes, which finds them
        _, x, y, z, slots, table, *further, pc = arguments
        kind = {"atomic": ATOMIC, "write": WRITE, "store": WRITE}.get(operation, READ)
        words = operation in ("load", "store")
        unit = ("i64", str(int(bits) // 8)) if words else further[-1] if kind == ATOMIC else ("i64", "0")
        count = ("i64", further[0][1]) if words else ("i64", "1")
        self._watch("surface", x, y, z, slots, table, unit, count, ("i32", str(kind)), pc)

    def _watch(self, space: str, *arguments: tuple[str, str]) -> None:
        super()._checked(f"watch_{space}", *arguments)
