//! Classic BPF with labels. Jumps go forward only, as the kernel demands; a conditional jump reaches 255 instructions,
//! so one that leads farther goes by way of an unconditional one, which all jumps to the same place nearby share.
//!
//! What is written is laid out from its end backwards: each jump then knows how far its target is.

use std::collections::HashMap;

/// TC_ACT_UNSPEC: the next filter decides, ours or another program's; without one the packet passes.
pub(crate) const PASS: u32 = u32::MAX;

/// TC_ACT_SHOT: the packet ends here.
pub(crate) const DROP: u32 = 2;

/// One instruction, as the kernel takes it (`struct sock_filter`).
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

/// What is not a jump.
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
    /// A := the byte at this place of the packet, or beyond its end one of the kernel's facts about it.
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
    /// A place that is not in the program yet.
    pub(crate) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    /// The place is here.
    pub(crate) fn bind(&mut self, label: Label) {
        self.items.push(Item::Bind(label));
    }

    /// Instructions one after the other.
    pub(crate) fn run(&mut self, ops: &[Op]) {
        self.items.extend(ops.iter().copied().map(Item::Plain));
    }

    /// Goes to one of two places.
    pub(crate) fn branch(&mut self, test: Test, then: Label, otherwise: Label) {
        self.items.push(Item::Branch(test, then, otherwise));
    }

    /// Goes there if the test holds, and on here if not.
    pub(crate) fn go_if(&mut self, test: Test, then: Label) {
        let next = self.label();
        self.branch(test, then, next);
        self.bind(next);
    }

    /// Goes there unless the test holds, and on here if it does.
    pub(crate) fn go_unless(&mut self, test: Test, otherwise: Label) {
        let next = self.label();
        self.branch(test, next, otherwise);
        self.bind(next);
    }

    /// Goes there.
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

/// The program from its end on; a place is known by how many instructions lie behind it.
#[derive(Default)]
struct Layout {
    reversed: Vec<Instruction>,
    places: HashMap<Label, usize>,
    /// The nearest jump to a label, which others may share.
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
            // Where the target follows at once there is nothing to jump over.
            Item::Jump(label) if self.distance(label) == 0 => {}
            Item::Jump(label) => self.relay(label),
            Item::Branch(test, then, otherwise) => self.branch(test, then, otherwise),
        }
    }

    fn branch(&mut self, test: Test, then: Label, otherwise: Label) {
        // A relay moves everything one farther away, so the other side is looked at again.
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

    /// How far the label or a jump to it is, if a conditional jump reaches it.
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
        // INVARIANT: a label is bound behind every jump to it; the compiler's tests run every program.
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
