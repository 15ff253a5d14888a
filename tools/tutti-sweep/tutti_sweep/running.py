"""A trial's processes: a group of their own, on CPUs of their own, of which nothing is left when the trial is over."""
import ctypes
import os
import signal
import subprocess
import time

from tutti_sweep import guard as guards
from tutti_sweep.refused import Refused

PR_SET_PDEATHSIG = 1
OUTPUT = "output.txt"
libc = ctypes.CDLL(None, use_errno=True)


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
            guards.kill_group(self.process.pid, signal.SIGTERM)

    def kill(self):
        guards.kill_group(self.process.pid)

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
