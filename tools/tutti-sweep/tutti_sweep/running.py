"""A trial's processes: a group of their own, on CPUs of their own, of which nothing is left when the trial is over, or tutti-sweep
is killed."""
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time

from tutti_sweep.refused import Refused

GONE_S = 5         # for the processes of killed groups to end
PR_SET_PDEATHSIG = 1
OUTPUT = "output.txt"
libc = ctypes.CDLL(None, use_errno=True)


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
    """A small process that outlives a killed tutti-sweep, to end its trials. As launch/guard.c does for ranks.

    Trials tell it their process groups by a pipe, before their programs run; the end of the pipe means that tutti-sweep has gone.
    It shares the lock of the journal, so that no other sweep begins in the folder before the trials have ended. If it is killed, nothing follows until tutti-sweep is killed, too: the pipe stays open here, and a full one is not waited
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


class Running:
    """From its start to finish(), which reaps it."""

    def __init__(self, command, folder, cpus, guard):
        self.guard, self.began, self.kill_at = guard, time.monotonic(), None
        parent = os.getpid()

        def become():
            """In the child, which leads a session. The kernel kills it with tutti-sweep; the guard kills what it starts."""
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            guard.join()
            try:
                os.sched_setaffinity(0, cpus)
            except OSError as error:
                os.write(2, b"tutti-sweep: the trial is not bound to its CPUs: %s\n" % error.strerror.encode())

        try:
            with open(os.path.join(folder, OUTPUT), "ab") as output:
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                                start_new_session=True, preexec_fn=become)
        except OSError as error:
            raise Refused(f"a trial could not be started: {error.filename or command[0]}: {error.strerror}.") from error

    def seconds(self):
        return time.monotonic() - self.began

    def end_soon(self, grace_s):
        """SIGTERM now, SIGKILL after the grace."""
        if self.kill_at is None:
            self.kill_at = time.monotonic() + grace_s
            kill_group(self.process.pid, signal.SIGTERM)

    def kill(self):
        kill_group(self.process.pid)

    def has_ended(self):
        if self.kill_at is not None and time.monotonic() > self.kill_at:
            self.kill()
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def finish(self):
        """The exit code, or minus the signal; of a process that has ended. Others of its group end now."""
        self.kill()
        self.guard.forget(self.process.pid)
        return self.process.wait()


def why_failed(code, folder):
    """Of an exit code that is not 0; with the last line that the trial has printed."""
    told = f"it was killed by signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"it ended with exit code {code}"
    try:
        with open(os.path.join(folder, OUTPUT), "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 2000))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        lines = []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{told}; its last line: {last[:200]}" if last else f"{told} and printed nothing"
