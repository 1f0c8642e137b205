//! The eight S-boxes of DES as circuits of two-input gates, each with the six input bits of the standard's order and
//! its four output bits.
//!
//! Found for this project by a randomised search that reuses gates and splits on input bits; the test beside the CBC
//! kernel compares every entry with the table of FIPS 46-3.

use super::word::Word;

/// S1: 64 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s1<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = f ^ a; let t1 = f ^ d; let t2 = t1 | t0; let t3 = t2 & !b; let t4 = t3 ^ t0; let t5 = c ^ t4;
    let t6 = t4 & !f; let t7 = t6 & c; let t8 = t7 ^ t2; let t9 = t8 & !d; let t10 = t9 ^ t5;
    let t11 = a | t10; let t12 = t11 & !b; let t13 = t12 ^ d; let t14 = t0 & !t13; let t15 = t14 ^ b;
    let t16 = t15 & c; let t17 = t16 ^ b; let t18 = t17 & !f; let t19 = t18 ^ t13; let t20 = t19 & !e;
    let t21 = t20 ^ t10; let t22 = a ^ t1; let t23 = !t22; let t24 = t23 | f; let t25 = t24 & e;
    let t26 = t25 ^ t23; let t27 = t10 | e; let t28 = t27 ^ t22; let t29 = t28 & b; let t30 = t29 ^ t26;
    let t31 = t19 & t5; let t32 = t31 | b; let t33 = t28 | t8; let t34 = t33 & !e; let t35 = t34 ^ t32;
    let t36 = t35 & c; let t37 = t36 ^ t30; let t38 = t16 & t37; let t39 = t38 ^ t26; let t40 = t2 & t26;
    let t41 = t12 & !t40; let t42 = t41 & !f; let t43 = t42 ^ t39; let t44 = t23 & !t21; let t45 = t44 | t41;
    let t46 = t45 & e; let t47 = t46 ^ t18; let t48 = t47 & !c; let t49 = t48 ^ t43; let t50 = t13 & !t48;
    let t51 = t50 ^ t35; let t52 = t15 ^ t37; let t53 = t52 & !t9; let t54 = t53 & !f; let t55 = t54 ^ t51;
    let t56 = t1 ^ t21; let t57 = t56 | c; let t58 = t39 | t47; let t59 = t58 ^ t52; let t60 = t59 & d;
    let t61 = t60 ^ t57; let t62 = t61 & b; let t63 = t62 ^ t55;
    [t63, t49, t37, t21]
}

/// S2: 58 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s2<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = a ^ e; let t1 = !t0; let t2 = t1 | e; let t3 = t2 & !b; let t4 = t3 ^ a; let t5 = t4 & f;
    let t6 = t5 ^ t1; let t7 = t4 | f; let t8 = t1 & !t6; let t9 = t8 | t3; let t10 = t9 & a;
    let t11 = t10 ^ t7; let t12 = t11 & c; let t13 = t12 ^ t6; let t14 = e & t7; let t15 = t14 | b;
    let t16 = t15 & d; let t17 = t16 ^ t13; let t18 = t7 ^ t17; let t19 = t18 | t5; let t20 = c ^ t19;
    let t21 = d ^ t13; let t22 = t19 & a; let t23 = t22 ^ t21; let t24 = t23 & !b; let t25 = t24 ^ t20;
    let t26 = b ^ t21; let t27 = t26 | t10; let t28 = t27 & e; let t29 = t28 ^ t25; let t30 = t28 | t0;
    let t31 = t30 & !c; let t32 = t31 ^ t7; let t33 = t11 & !t27; let t34 = t33 | t5; let t35 = t34 & b;
    let t36 = t35 ^ t32; let t37 = c | t36; let t38 = t37 ^ t27; let t39 = t26 & !t17; let t40 = t39 ^ t31;
    let t41 = t40 & f; let t42 = t41 ^ t38; let t43 = t42 & d; let t44 = t43 ^ t36; let t45 = t26 ^ t12;
    let t46 = t16 | c; let t47 = t46 ^ t10; let t48 = t47 & f; let t49 = t48 ^ t45; let t50 = t6 & !t29;
    let t51 = t50 ^ t31; let t52 = t14 | t48; let t53 = t52 ^ t30; let t54 = t53 & !d; let t55 = t54 ^ t51;
    let t56 = t55 & b; let t57 = t56 ^ t49;
    [t17, t57, t44, t29]
}

/// S3: 57 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s3<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = c ^ f; let t1 = t0 ^ e; let t2 = d ^ c; let t3 = t2 | e; let t4 = t3 & !a; let t5 = t4 ^ t1;
    let t6 = a & !d; let t7 = t6 & !f; let t8 = t7 ^ t5; let t9 = d ^ t8; let t10 = t9 & !t0;
    let t11 = t10 & a; let t12 = t11 ^ b; let t13 = t12 & b; let t14 = t13 ^ t8; let t15 = t6 ^ t5;
    let t16 = t1 & !t2; let t17 = t10 ^ t2; let t18 = t17 & c; let t19 = t18 ^ t16; let t20 = t19 & !a;
    let t21 = t20 ^ t15; let t22 = a | t17; let t23 = !t22; let t24 = t14 ^ t23; let t25 = t24 ^ t17;
    let t26 = t25 & c; let t27 = t26 ^ t23; let t28 = t27 & !b; let t29 = t28 ^ t21; let t30 = d | t15;
    let t31 = t30 ^ t4; let t32 = e ^ t18; let t33 = t32 & !t24; let t34 = t33 & e; let t35 = t34 ^ t31;
    let t36 = t15 & !c; let t37 = t36 ^ t4; let t38 = t29 ^ t2; let t39 = t38 & !t15; let t40 = t39 & !e;
    let t41 = t40 ^ t37; let t42 = t41 & !b; let t43 = t42 ^ t35; let t44 = t31 ^ b; let t45 = t23 & !t41;
    let t46 = t45 | e; let t47 = t46 & !c; let t48 = t47 ^ t44; let t49 = t46 & !t39; let t50 = t49 ^ t1;
    let t51 = t4 | t12; let t52 = t51 ^ t36; let t53 = t52 & f; let t54 = t53 ^ t50; let t55 = t54 & d;
    let t56 = t55 ^ t48;
    [t29, t56, t43, t14]
}

/// S4: 45 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s4<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = !c; let t1 = t0 & !a; let t2 = t1 ^ d; let t3 = c & a; let t4 = t3 ^ d; let t5 = t4 & e;
    let t6 = t5 ^ t2; let t7 = a | e; let t8 = t7 ^ t3; let t9 = t8 & !d; let t10 = t9 ^ c; let t11 = t10 & b;
    let t12 = t11 ^ t6; let t13 = t6 | t0; let t14 = t7 & !e; let t15 = t14 ^ t13; let t16 = t15 & d;
    let t17 = t16 ^ t8; let t18 = t8 & !t16; let t19 = t18 ^ t15; let t20 = t19 & b; let t21 = t20 ^ t17;
    let t22 = t21 & f; let t23 = t22 ^ t12; let t24 = e | t2; let t25 = t24 ^ t4; let t26 = t25 ^ t17;
    let t27 = t26 & d; let t28 = t27 ^ t0; let t29 = t28 & b; let t30 = t29 ^ t25; let t31 = t1 & !t2;
    let t32 = t1 ^ t18; let t33 = t32 & !b; let t34 = t33 ^ t31; let t35 = t27 | t11; let t36 = t35 ^ t5;
    let t37 = t36 & c; let t38 = t37 ^ t34; let t39 = t38 & !f; let t40 = t39 ^ t30; let t41 = t40 ^ f;
    let t42 = t41 ^ t38; let t43 = t23 ^ f; let t44 = t43 ^ t21;
    [t40, t42, t44, t23]
}

/// S5: 61 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s5<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = a ^ f; let t1 = t0 ^ d; let t2 = c ^ f; let t3 = t2 | d; let t4 = t3 & c; let t5 = t4 ^ t1;
    let t6 = t5 & !a; let t7 = t6 ^ t2; let t8 = t7 & !d; let t9 = t8 ^ d; let t10 = t9 & b;
    let t11 = t10 ^ t5; let t12 = !t8; let t13 = d ^ t4; let t14 = t13 & a; let t15 = t14 ^ t12;
    let t16 = t15 & e; let t17 = t16 ^ t11; let t18 = a | t11; let t19 = t18 ^ t1; let t20 = f | t7;
    let t21 = t3 & !t1; let t22 = t21 & !a; let t23 = t22 ^ t20; let t24 = t23 & e; let t25 = t24 ^ t19;
    let t26 = c | t8; let t27 = t26 ^ t15; let t28 = t11 ^ t15; let t29 = t17 ^ t6; let t30 = t29 & f;
    let t31 = t30 ^ t28; let t32 = t31 & !e; let t33 = t32 ^ t27; let t34 = t33 & b; let t35 = t34 ^ t25;
    let t36 = t15 & !b; let t37 = t36 ^ t19; let t38 = t7 & t3; let t39 = t38 & !b; let t40 = t39 ^ c;
    let t41 = t40 & e; let t42 = t41 ^ t37; let t43 = d & !e; let t44 = t43 | t17; let t45 = t35 & !t22;
    let t46 = t45 & !a; let t47 = t46 & b; let t48 = t47 ^ t44; let t49 = t48 & !f; let t50 = t49 ^ t42;
    let t51 = t28 ^ t50; let t52 = t25 | t8; let t53 = t52 & c; let t54 = t53 ^ t51; let t55 = a & !t45;
    let t56 = t55 | t53; let t57 = t45 & b; let t58 = t57 ^ t56; let t59 = t58 & e; let t60 = t59 ^ t54;
    [t60, t17, t50, t35]
}

/// S6: 60 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s6<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = f & !b; let t1 = a & !t0; let t2 = e ^ t1; let t3 = t2 ^ f; let t4 = a & !t3; let t5 = c & !b;
    let t6 = t5 ^ t4; let t7 = t6 & c; let t8 = t7 ^ t2; let t9 = e | t7; let t10 = t9 & !t3; let t11 = !t8;
    let t12 = t2 & t3; let t13 = t12 & !c; let t14 = t13 ^ t11; let t15 = t14 & b; let t16 = t15 ^ t10;
    let t17 = t16 & d; let t18 = t17 ^ t8; let t19 = c ^ t11; let t20 = t18 & !b; let t21 = t20 ^ t19;
    let t22 = t11 | t2; let t23 = t22 ^ a; let t24 = t23 & f; let t25 = t24 ^ t21; let t26 = t3 ^ b;
    let t27 = t26 | t12; let t28 = t23 & !t26; let t29 = t28 ^ t27; let t30 = t29 & !d; let t31 = t30 ^ t25;
    let t32 = d ^ t16; let t33 = t30 & !c; let t34 = t33 & !e; let t35 = t34 ^ t32; let t36 = d | t25;
    let t37 = t35 | t28; let t38 = t37 ^ t18; let t39 = t38 & e; let t40 = t39 ^ t36; let t41 = t18 | t6;
    let t42 = t41 & !t30; let t43 = t42 & c; let t44 = t43 ^ t40; let t45 = t44 & f; let t46 = t45 ^ t35;
    let t47 = e | t34; let t48 = t47 ^ t26; let t49 = t5 ^ t45; let t50 = t49 | t23; let t51 = t50 & a;
    let t52 = t51 ^ t48; let t53 = t4 ^ b; let t54 = t53 ^ c; let t55 = t3 | t52; let t56 = t55 & e;
    let t57 = t56 ^ t54; let t58 = t57 & d; let t59 = t58 ^ t52;
    [t46, t59, t31, t18]
}

/// S7: 58 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s7<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = c ^ b; let t1 = t0 ^ d; let t2 = t1 & b; let t3 = t2 ^ t0; let t4 = t3 & e; let t5 = t4 ^ t1;
    let t6 = e & !d; let t7 = t6 ^ c; let t8 = t7 & f; let t9 = t8 ^ t5; let t10 = !t5; let t11 = e ^ b;
    let t12 = t11 & d; let t13 = t12 ^ t10; let t14 = t7 | t12; let t15 = t14 ^ t5; let t16 = t13 & !b;
    let t17 = t16 ^ t15; let t18 = t17 & !f; let t19 = t18 ^ t13; let t20 = t19 & !a; let t21 = t20 ^ t9;
    let t22 = t3 ^ a; let t23 = t22 ^ t11; let t24 = t8 & t22; let t25 = t24 & b; let t26 = t25 ^ f;
    let t27 = t26 ^ t23; let t28 = t12 | t8; let t29 = t10 | t23; let t30 = t29 & f; let t31 = t30 ^ t7;
    let t32 = t31 & !e; let t33 = t32 ^ t28; let t34 = t33 & d; let t35 = t34 ^ t27; let t36 = t26 | t28;
    let t37 = t36 ^ t1; let t38 = t3 & !t27; let t39 = t38 & !e; let t40 = t39 ^ t37; let t41 = t10 | d;
    let t42 = t41 ^ t23; let t43 = t42 & f; let t44 = t43 ^ e; let t45 = t44 & !a; let t46 = t45 ^ t40;
    let t47 = t19 ^ t21; let t48 = t17 ^ t28; let t49 = t48 & !t4; let t50 = t49 & !a; let t51 = t50 ^ t47;
    let t52 = t35 & !t32; let t53 = t52 ^ t23; let t54 = t53 & d; let t55 = t54 ^ t36; let t56 = t55 & b;
    let t57 = t56 ^ t51;
    [t21, t57, t46, t35]
}

/// S8: 56 gates.
#[inline(always)]
#[rustfmt::skip]
pub(super) fn s8<W: Word>([a, b, c, d, e, f]: [W; 6]) -> [W; 4] {
    let t0 = e & !a; let t1 = c & !t0; let t2 = e | a; let t3 = t2 & !d; let t4 = t3 ^ t1; let t5 = d | e;
    let t6 = t5 & a; let t7 = t6 & f; let t8 = t7 ^ t4; let t9 = f & t3; let t10 = t9 & !a; let t11 = t10 ^ b;
    let t12 = e & !f; let t13 = t12 & a; let t14 = f & !d; let t15 = t14 ^ t13; let t16 = t15 & !c;
    let t17 = t16 ^ t11; let t18 = t17 & b; let t19 = t18 ^ t8; let t20 = a ^ t3; let t21 = t20 ^ c;
    let t22 = d & !e; let t23 = t22 ^ t21; let t24 = t2 & !c; let t25 = !t24; let t26 = t25 & !e;
    let t27 = t26 ^ t3; let t28 = t27 & !b; let t29 = t28 ^ t23; let t30 = e | t18; let t31 = t30 ^ t3;
    let t32 = t23 | t0; let t33 = t32 & !b; let t34 = t33 & !c; let t35 = t34 ^ t31; let t36 = t35 & f;
    let t37 = t36 ^ t29; let t38 = !t29; let t39 = t35 & !t20; let t40 = !t39; let t41 = t29 ^ t27;
    let t42 = t41 ^ b; let t43 = t42 & a; let t44 = t43 ^ t40; let t45 = t44 & !f; let t46 = t45 ^ t38;
    let t47 = t46 & !t33; let t48 = t47 ^ t42; let t49 = t6 ^ t35; let t50 = t49 | t33; let t51 = t50 & !f;
    let t52 = t51 ^ t48; let t53 = t2 & !t28; let t54 = t1 & !t53; let t55 = t54 ^ t52;
    [t46, t55, t19, t37]
}
