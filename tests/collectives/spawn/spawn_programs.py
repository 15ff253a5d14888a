"""Runs spawn_main and looks what it prints, how it ends and whether a rank is left. Every wait ends with a line, the
end of a pipe or a process; the script around it has the deadline."""
import os
import re
import signal
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1]


def check(is_right, what):
    if not is_right:
        sys.exit(f"spawn_programs: {what}")


def run(what, ranks, stdin=b"", env=None, stdout=subprocess.PIPE):
    done = subprocess.run([PROGRAM, what, str(ranks)], input=stdin, stdout=stdout, stderr=subprocess.PIPE,
                          env={**os.environ, **(env or {})}, check=False)
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


def output():
    """Into a pipe stdio keeps all in memory until the end: what the parent has printed would come from each rank."""
    code, out, err = run("say", 3, env={"SPAWN_MAIN_ATEXIT": "1"})
    lines = out.splitlines()
    check(code == 0 and err == "", f"say: code {code}, {err}")
    check(lines[0] == "say begins" and lines[-1] == "success" and sorted(lines[1:-1]) == ["rank 0", "rank 1", "rank 2"],
          f"not each line once: {lines}")
    # exit() in a rank runs its copy of the handlers; still each line once.
    code, out, err = run("leave", 2, env={"SPAWN_MAIN_ATEXIT": "1"})
    check(code == 0 and err.count("has run") == 2 and sorted(out.splitlines()) ==
          ["leave begins", "rank 0", "rank 1", "success"], f"leave: code {code}, {out}, {err}")
    if os.path.exists("/dev/full"):
        for what in "fill", "flush":
            with open("/dev/full", "wb") as full:
                code, _, err = run(what, 2, stdout=full)
            check(code == 3 and "the output of rank 1 could not be written" in err, f"a full disk: code {code}, {err}")


def stdin():
    """From a file a line each is the parent's and what it has read ahead of rank 0's; the others have none."""
    with tempfile.TemporaryFile() as file:
        file.write(b"a\nb\nc\n")
        file.seek(0)
        done = subprocess.run([PROGRAM, "copy", "3"], stdin=file, stdout=subprocess.PIPE, check=False)
    lines = done.stdout.decode().splitlines()
    check(lines[1] == "[parent] a" and lines[2:-1] == ["[0] b", "[0] c"], f"stdin: {lines}")
    # A program without a stdin: rank 0 has none, and the others read nothing.
    done = subprocess.run(["sh", "-c", 'exec "$0" copy 2 <&-', PROGRAM], stdout=subprocess.PIPE, check=False)
    check(done.returncode == 0 and b"[" not in done.stdout, f"no stdin: {done.returncode}, {done.stdout}")


class Job:
    """A program in a process group of its own, whose ranks all have said that they are ready."""

    def __init__(self, what, ranks, before=None):
        def begin():
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if before:
                before()

        self.process = subprocess.Popen([PROGRAM, what, str(ranks)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, preexec_fn=begin)
        self.pids = {}
        for _ in range(ranks):
            _, rank, pid = self.process.stderr.readline().split()
            self.pids[int(rank)] = int(pid)

    def end(self):
        """The ranks hold both pipes: their end shows that no rank is left."""
        err = self.process.stderr.read().decode()
        out = self.process.stdout.read().decode()
        return self.process.wait(), out, err


def asked(number, whole_group):
    """A signal to the parent alone is passed on; one to the whole group ends all as well."""
    job = Job("stay", 3)
    if whole_group:
        os.killpg(job.process.pid, number)
    else:
        os.kill(job.process.pid, number)
    code, out, err = job.end()
    check(code == 128 + number, f"signal {number}: code {code}, {err}")
    check(re.match(rf"signal {number} \(.*\) was passed to the ranks: rank [012] \(pid \d+\) was killed by signal "
                   rf"{number} \(.*\); the job was ended$", err), f"signal {number}: {err}")
    check("aborted" in out, f"signal {number}: {out}")


def ended_well(number):
    job = Job("end_well", 2)
    os.kill(job.process.pid, number)
    code, out, err = job.end()
    check(code == 0 and f"signal {number} " in err and err.endswith("all of which have returned 0\n"),
          f"ranks that end well after signal {number}: code {code}, {err}")
    check(f"rank 0: signal {number}, 1\n" in out and f"rank 1: signal {number}, 1\n" in out, f"ended well: {out}")


def asked_twice():
    """Ranks that do not hear are killed by the second SIGINT."""
    job = Job("ignore", 2)
    os.kill(job.process.pid, signal.SIGINT)
    while "ShdPnd:\t0000000000000000" not in open(f"/proc/{job.process.pid}/status").read():
        pass  # two that are pending at once would be one
    os.kill(job.process.pid, signal.SIGINT)
    code, _, err = job.end()
    check(code == 137, f"a second SIGINT: code {code}, {err}")


def rank_killed():
    job = Job("stay", 4)
    os.kill(job.pids[2], signal.SIGKILL)
    code, _, err = job.end()
    check(code == 137 and err == f"rank 2 (pid {job.pids[2]}) was killed by signal 9 (Killed); the job was ended\n",
          f"kill -9 of rank 2: code {code}, {err}")


def parent_killed():
    """The pipes' end comes only when the ranks have gone, too; also those that hear no signal."""
    for what in "stay", "ignore":
        job = Job(what, 3)
        job.process.kill()
        code, _, err = job.end()
        check(code == -9 and err == "", f"the parent killed: code {code}, {err}")


def hangup_ignored():
    """Under nohup SIGHUP ends nothing."""
    job = Job("stay", 2, before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    os.killpg(job.process.pid, signal.SIGHUP)
    os.kill(job.process.pid, signal.SIGTERM)
    code, _, err = job.end()
    check(code == 143, f"under nohup: code {code}, {err}")


output()
stdin()
for one in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
    asked(one, False)
    asked(one, True)
    ended_well(one)
asked_twice()
rank_killed()
parent_killed()
hangup_ignored()
