"""An instruction of each form that is not executed, and the form as the refusals have it."""

from __future__ import annotations

REFUSED = (
    ("ldl.u32 r8.x, l[r4.x], 5", "loads, stores and `stc` of no component, or of more than four"),
    ("stg.u32 g[r10.x], r5.x, 0", "loads, stores and `stc` of no component, or of more than four"),
    ("stc.u32 c[0], r5.x, 6", "loads, stores and `stc` of no component, or of more than four"),
    ("stc.f16 c[0], r5.x, 1", "`stc` of types other than 32 bits"),
    ("atomic.add.untyped.1d.u16.1.l r8.x, l[r4.x], r5.x", "atomics of 8 and 16 bits"),
    ("atomic.b.add.untyped.1d.u16.1.imm r8.x, r4.x, 0", "atomics of 8 and 16 bits"),
    ("atomic.b.add.untyped.1d.u64.1.uniform r8.x, r4.x, r4.w", "`atomic.b` of 64 bits"),
    ("ldib.b.untyped.1d.u32.1.imm r8.x, r4.x+4, 0", "image accesses with an offset"),
    ("stib.b.untyped.1d.u32.1.imm r8.x, r4.x+4, 0", "image accesses with an offset"),
    ("ldib.b.typed.4d.u32.1.imm r8.x, r4.x, 0", "image accesses of four dimensions"),
    ("atomic.b.add.typed.4d.u32.1.imm r8.x, r4.x, 0", "image accesses of four dimensions"),
    ("ldc.offset0.1.imm.base5 r8.x, 0, 0", "bindless bases 5 to 7"),
    ("resinfo.b.untyped.1d.u32.1.imm.base6 r8.x, 0", "bindless bases 5 to 7"),
    ("saml.base7 (f32)(x)r8.x, r4.x, r5.x, s#0, t#0", "bindless bases 5 to 7"),
    ("movmsk.w64 r<a0.x + 8>", "`movmsk` into a register that a0.x displaces"),
    ("saml.p (f32)(x)r8.x, r4.x, r5.x, s#0, t#0", "samples with `.p`"),
    ("isam.v.1d (f32)(x)r8.x, r4.x, s#0, t#0", "`isam.v`, and `isam` with an offset"),
    ("isam.1d (f32)(x)r8.x, r4.x+3, s#0, t#0", "`isam.v`, and `isam` with an offset"),
    ("isam.o.1d (u32)(xyzw)r8.x, r4.x, r4.z, s#0, t#0", "`isam.o`"),
    ("isam.3d.a.1d (u32)(xyzw)r8.x, r4.x, s#0, t#0", "texels of cube arrays by number, `.3d.a`"),
    ("isaml.3d.a (u32)(xyzw)r8.x, r4.x, r5.x, s#0, t#0", "texels of cube arrays by number, `.3d.a`"),
    ("isaml.s (u32)(xyzw)r8.x, r4.x, r5.x, s#0, t#0", "texels by number with `.s`"),
    ("saml.s (f32)(xy)r8.x, r4.x, r5.x, s#0, t#0", "shadow samples of more than x"),
    ("getsize.o (s32)(x)r8.x, r4.x, r5.x, t#0", "sizes and queries with `.o`, `.s` or of 16 bits"),
    ("getinfo (u16)(z)hr8.x, t#0", "sizes and queries with `.o`, `.s` or of 16 bits"),
    ("getinfo (s32)(xz)r8.x, t#0", "`getinfo` of x and y, `getbuf` of more than x"),
    ("getbuf (s32)(xy)r8.x, t#0", "`getinfo` of x and y, `getbuf` of more than x"),
)
