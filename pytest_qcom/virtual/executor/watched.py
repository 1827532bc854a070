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
        elif name == "atomic_global":
            _, address, offset, *_, pc = arguments
            self._watch("global", address, offset, ("i64", "4"), ("i32", str(ATOMIC)), pc)
        elif operation in ("isam", "ldib", "stib"):
            _, x, y, slot, _, pc = arguments
            kind = WRITE if operation == "stib" else READ
            table = "texture" if operation == "isam" else "image"
            self._watch(table, x, y, slot, ("i32", str(kind)), pc)
        super()._checked(name, *arguments)

    def _watch(self, space: str, *arguments: tuple[str, str]) -> None:
        super()._checked(f"watch_{space}", *arguments)
