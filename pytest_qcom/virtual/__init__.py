"""The virtual A630: KGSL node, PM4 command processor, memory, executor of ir3 machine code."""
