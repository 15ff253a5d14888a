"""A small process that outlives a killed tutti-sweep, to end its trials. As launch/guard.c does for ranks.

Trials tell it their process groups by a pipe, before their programs run; the end of the pipe means that tutti-sweep has gone.
It shares the lock of the journal, so that no other sweep begins in the folder before the trials have ended.
"""
import contextlib
import os
import select
import signal
import time

GONE_S = 5         # for the processes of killed groups to end


def is_there(group):
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return any(is_running(name, group) for name in os.listdir("/proc") if name.isdigit())


def is_running(process, group):
    """Whether it is of that group, and no zombie: an init that is slow to reap, or reaps nothing, must not keep the lock."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):
        return False          # it has gone
    return int(its_group) == group and state not in (b"Z", b"X")


def kill_group(group, number=signal.SIGKILL):
    try:
        os.killpg(group, number)
    except OSError:
        pass              # it has gone


def watch(end, kept):
    """In the guard. kept: the descriptor of the lock."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    low, high = sorted((end, kept))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
    groups, rest = set(), b""
    while text := os.read(end, 4096):
        *words, rest = (rest + text).split(b"\n")
        for word in words:
            (groups.add if word[:1] == b"+" else groups.discard)(int(word[1:]))
    for group in groups:
        kill_group(group)
    deadline = time.monotonic() + GONE_S
    while time.monotonic() < deadline and any(map(is_there, groups)):
        select.select([], [], [], 0.01)


class Guard:
    """If it is killed, nothing follows until tutti-sweep is killed, too: the pipe stays open here, and a full one is not waited
    for."""

    def __init__(self, kept):
        self.read_end, self.fd = os.pipe()
        os.set_blocking(self.fd, False)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                watch(self.read_end, kept)
            finally:
                os._exit(0)

    def tell(self, word):
        with contextlib.suppress(BlockingIOError):
            os.write(self.fd, word)

    def join(self):
        """In a trial that leads its group and is about to become its program."""
        self.tell(b"+%d\n" % os.getpid())

    def forget(self, group):
        """Before the group's leader is reaped: until then no other process can have the number."""
        self.tell(b"-%d\n" % group)

    def end(self):
        """It is killed before the pipe ends, which it would take for the death of tutti-sweep."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        os.close(self.read_end)
