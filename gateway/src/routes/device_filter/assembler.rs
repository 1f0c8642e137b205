//! Classic BPF with labels. Jumps go forward only, as the kernel requires. A conditional jump reaches 255 instructions,
//! so one with a farther target goes to an unconditional jump (relay), which nearby jumps to the same target share.
//!
//! The program is laid out from its end backwards, so that the distance to each jump's target is known.

use std::collections::HashMap;

/// TC_ACT_UNSPEC: the next filter decides, of the gateway or another program; without one the packet passes.
pub(crate) const PASS: u32 = u32::MAX;

/// TC_ACT_SHOT: the packet is dropped.
pub(crate) const DROP: u32 = 2;

/// One instruction in the kernel's format (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Instruction {
    /// Class, size, mode or operation.
    pub code: u16,
    /// Instructions to skip if the condition holds.
    pub if_true: u8,
    /// Instructions to skip if it does not.
    pub if_false: u8,
    /// The operand.
    pub k: u32,
}

/// A place in the program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Label(u32);

/// How the accumulator is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    /// Equal to this.
    Equal(u32),
    /// Greater than this.
    Greater(u32),
    /// At least this.
    AtLeast(u32),
    /// At least the index register.
    AtLeastX,
    /// Has one of these bits.
    HasBit(u32),
}

/// Instructions that are not jumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// A := this.
    Constant(u32),
    /// A := the word of scratch memory.
    Recall(u32),
    /// Scratch memory := A.
    Store(u32),
    /// X := the word of scratch memory.
    RecallX(u32),
    /// X := A.
    ToX,
    /// A := the length of the packet.
    Length,
    /// A := the byte at this offset in the packet, or metadata for offsets from `SKF_AD_OFF` on.
    Byte(u32),
    /// A := two bytes.
    Half(u32),
    /// A := four bytes.
    Word(u32),
    /// A := the byte at X and this.
    ByteAtX(u32),
    /// A := two bytes at X and this.
    HalfAtX(u32),
    /// A := four bytes at X and this.
    WordAtX(u32),
    /// A += this.
    Add(u32),
    /// A += X.
    AddX,
    /// A &= this.
    And(u32),
    /// A <<= this.
    ShiftLeft(u32),
    /// A >>= this.
    ShiftRight(u32),
}

enum Item {
    Plain(Op),
    Branch(Test, Label, Label),
    Jump(Label),
    Bind(Label),
    Return(u32),
}

/// A program that is being written.
#[derive(Default)]
pub(crate) struct Assembler {
    items: Vec<Item>,
    labels: u32,
}

/// Farthest that a conditional jump reaches, in instructions.
const MAX_JUMP_INSTRUCTIONS: usize = 255;

impl Assembler {
    /// A label that has no position in the program yet.
    pub(crate) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// Sets the label's position to here.
    pub(crate) fn bind(&mut self, label: Label) {
        self.items.push(Item::Bind(label));
    }

    /// Appends instructions that are not jumps.
    pub(crate) fn run(&mut self, ops: &[Op]) {
        self.items.extend(ops.iter().copied().map(Item::Plain));
    }

    /// Jumps to one of two labels.
    pub(crate) fn branch(&mut self, test: Test, then: Label, otherwise: Label) {
        self.items.push(Item::Branch(test, then, otherwise));
    }

    /// Jumps to `then` if the test holds, else continues.
    pub(crate) fn go_if(&mut self, test: Test, then: Label) {
        let next = self.label();
        self.branch(test, then, next);
        self.bind(next);
    }

    /// Jumps to `otherwise` unless the test holds, else continues.
    pub(crate) fn go_unless(&mut self, test: Test, otherwise: Label) {
        let next = self.label();
        self.branch(test, next, otherwise);
        self.bind(next);
    }

    /// Jumps to the label.
    pub(crate) fn jump(&mut self, label: Label) {
        self.items.push(Item::Jump(label));
    }

    /// Ends the program with a result.
    pub(crate) fn finish_with(&mut self, result: u32) {
        self.items.push(Item::Return(result));
    }

    /// The program.
    pub(crate) fn instructions(&self) -> Vec<Instruction> {
        let mut layout = Layout::default();
        for item in self.items.iter().rev() {
            layout.put(item);
        }
        layout.reversed.reverse();
        layout.reversed
    }
}

/// The program from its end backwards; a position is the number of instructions after it.
#[derive(Default)]
struct Layout {
    reversed: Vec<Instruction>,
    places: HashMap<Label, usize>,
    /// The nearest unconditional jump to a label, which other jumps may share.
    relays: HashMap<Label, usize>,
}

impl Layout {
    fn put(&mut self, item: &Item) {
        match *item {
            Item::Bind(label) => {
                self.places.insert(label, self.reversed.len());
            }
            Item::Plain(op) => {
                let (code, k) = encode(op);
                self.push(code, 0, 0, k);
            }
            Item::Return(result) => self.push(libc::BPF_RET | libc::BPF_K, 0, 0, result),
            // If the target follows immediately, no jump is needed.
            Item::Jump(label) if self.distance(label) == 0 => {}
            Item::Jump(label) => self.relay(label),
            Item::Branch(test, then, otherwise) => self.branch(test, then, otherwise),
        }
    }

    fn branch(&mut self, test: Test, then: Label, otherwise: Label) {
        // A relay adds one to all distances, so the other target is checked again.
        while self.near(otherwise).is_none() || self.near(then).is_none() {
            let far = if self.near(otherwise).is_none() {
                otherwise
            } else {
                then
            };
            self.relay(far);
        }
        let (code, k) = condition(test);
        let near = |place: Option<u8>| place.unwrap_or_default();
        let (then, otherwise) = (near(self.near(then)), near(self.near(otherwise)));
        self.push(code, then, otherwise, k);
    }

    /// The distance to the label or to a relay to it, if a conditional jump reaches it.
    fn near(&self, label: Label) -> Option<u8> {
        let relay = self
            .relays
            .get(&label)
            .map(|place| self.reversed.len() - place);
        let distance = self.distance(label);
        let nearest = if distance <= MAX_JUMP_INSTRUCTIONS {
            distance
        } else {
            relay?
        };
        u8::try_from(nearest).ok()
    }

    fn distance(&self, label: Label) -> usize {
        // INVARIANT: a label is bound after every jump to it; the compiler's tests run every program.
        self.reversed.len() - self.places[&label]
    }

    fn relay(&mut self, label: Label) {
        let distance = self.distance(label) as u32;
        self.push(libc::BPF_JMP | libc::BPF_JA, 0, 0, distance);
        self.relays.insert(label, self.reversed.len());
    }

    fn push(&mut self, code: u32, if_true: u8, if_false: u8, k: u32) {
        self.reversed.push(Instruction {
            code: code as u16,
            if_true,
            if_false,
            k,
        });
    }
}

fn encode(op: Op) -> (u32, u32) {
    use libc::{
        BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_MEM,
        BPF_W, BPF_X,
    };
    match op {
        Op::Constant(k) => (BPF_LD | BPF_IMM, k),
        Op::Recall(k) => (BPF_LD | BPF_MEM, k),
        Op::Store(k) => (libc::BPF_ST, k),
        Op::RecallX(k) => (BPF_LDX | BPF_MEM, k),
        Op::ToX => (libc::BPF_MISC | libc::BPF_TAX, 0),
        Op::Length => (BPF_LD | BPF_W | BPF_LEN, 0),
        Op::Byte(k) => (BPF_LD | BPF_B | BPF_ABS, k),
        Op::Half(k) => (BPF_LD | BPF_H | BPF_ABS, k),
        Op::Word(k) => (BPF_LD | BPF_W | BPF_ABS, k),
        Op::ByteAtX(k) => (BPF_LD | BPF_B | BPF_IND, k),
        Op::HalfAtX(k) => (BPF_LD | BPF_H | BPF_IND, k),
        Op::WordAtX(k) => (BPF_LD | BPF_W | BPF_IND, k),
        Op::Add(k) => (BPF_ALU | libc::BPF_ADD | BPF_K, k),
        Op::AddX => (BPF_ALU | libc::BPF_ADD | BPF_X, 0),
        Op::And(k) => (BPF_ALU | libc::BPF_AND | BPF_K, k),
        Op::ShiftLeft(k) => (BPF_ALU | libc::BPF_LSH | BPF_K, k),
        Op::ShiftRight(k) => (BPF_ALU | libc::BPF_RSH | BPF_K, k),
    }
}

fn condition(test: Test) -> (u32, u32) {
    use libc::{BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_X};
    match test {
        Test::Equal(k) => (BPF_JMP | BPF_JEQ | BPF_K, k),
        Test::Greater(k) => (BPF_JMP | BPF_JGT | BPF_K, k),
        Test::AtLeast(k) => (BPF_JMP | BPF_JGE | BPF_K, k),
        Test::AtLeastX => (BPF_JMP | BPF_JGE | BPF_X, 0),
        Test::HasBit(k) => (BPF_JMP | BPF_JSET | BPF_K, k),
    }
}
