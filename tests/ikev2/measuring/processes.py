"""What the processes of a host cost: processor time and private memory, of all of them together."""

import os


def pids(host):
    """Every process in the network namespace of a host."""
    space = os.stat(f"/run/netns/{host.name}").st_ino
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/ns/net").st_ino == space:
                found.append(int(pid))
        except OSError:
            pass
    return found


def cpu_seconds(processes):
    """Processor time of processes that live."""
    return sum(map(cpu_nanoseconds, processes)) / 1e9


def cpu_nanoseconds(pid):
    """Processor time of the threads of one process that live, as the scheduler counts it."""
    return sum(int(read(f"/proc/{pid}/task/{thread}/schedstat").split()[0]) for thread in os.listdir(f"/proc/{pid}/task"))


def private_dirty(processes):
    """Bytes that are in memory for these processes alone."""
    return sum(memory(pid) for pid in processes)


def memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_Dirty:"))


def name(pid):
    return read(f"/proc/{pid}/comm").strip()


def read(path):
    with open(path) as file:
        return file.read()
