"""System calls made by another process from within itself, as an intruder would make them (x86-64)."""

import ctypes
import os
import signal

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
ATTACH, DETACH, SINGLE_STEP, GET_REGISTERS, SET_REGISTERS = 16, 17, 9, 12, 13
SYSCALL = b"\x0f\x05"
# Below what the interrupted code may use of its stack.
ROOM_BELOW_STACK = 4096
WALL = 0x40000000


class Registers(ctypes.Structure):
    """`struct user_regs_struct`."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in
                "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base "
                "ds es fs gs".split()]


class Gone(Exception):
    """The process ended in the call; the text names the signal."""


class Inside:
    """A process whose main thread waits in a system call, held for as long as the block lasts."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        self.ask(ATTACH)
        os.waitpid(self.pid, WALL)
        self.saved = Registers()
        self.ask(GET_REGISTERS, ctypes.addressof(self.saved))
        return self

    def __exit__(self, *_):
        if self.saved:
            self.ask(SET_REGISTERS, ctypes.addressof(self.saved))
            self.ask(DETACH)

    def call(self, number, *arguments):
        """What the call gives: below 0 an error's number. Texts are put below the stack."""
        place = self.saved.rsp - ROOM_BELOW_STACK
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(self.saved.rip - len(SYSCALL))
            if memory.read(len(SYSCALL)) != SYSCALL:
                raise Gone("the main thread does not wait in a system call")
            for n, text in enumerate(arguments):
                if isinstance(text, str):
                    memory.seek(place + 256 * n)
                    memory.write(text.encode() + b"\0")
        values = [place + 256 * n if isinstance(one, str) else one for n, one in enumerate(arguments)]
        now = Registers.from_buffer_copy(self.saved)
        now.rip, now.rax, now.orig_rax = self.saved.rip - len(SYSCALL), number, 2**64 - 1
        for name, value in zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), values):
            setattr(now, name, value % 2**64)
        self.ask(SET_REGISTERS, ctypes.addressof(now))
        self.ask(SINGLE_STEP)
        _, status = os.waitpid(self.pid, WALL)
        if not os.WIFSTOPPED(status):
            self.saved = None
            raise Gone(signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {status}")
        self.ask(GET_REGISTERS, ctypes.addressof(now))
        return ctypes.c_longlong(now.rax).value

    def ask(self, what, data=0):
        if LIBC.ptrace(what, self.pid, None, data) < 0:
            raise OSError(ctypes.get_errno(), f"ptrace {what}")
