"""The machine: in a few words, without anything that says whose it is (no host name, user, path or address); real-time
priority on it, and busy processes."""
import contextlib
import os
import platform
import shutil
import subprocess
import sys

MOST_BUSY = 1024
# A busy process ends with the program that has started it, however that ends.
COMPUTE = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100000):
        pass
"""


def _field(path, name):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return ""


def _word(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def describe():
    kilobytes = _field("/proc/meminfo", "MemTotal").split()
    caches = []
    for index in range(8):
        base = f"/sys/devices/system/cpu/cpu0/cache/index{index}"
        if _word(f"{base}/type") in ("Data", "Unified"):
            caches.append(f"L{_word(f'{base}/level')} {_word(f'{base}/size')}")
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": ", ".join(caches),
        "memory": f"{int(kilobytes[0]) / 2 ** 20:.0f} GiB" if kilobytes else "",
        "kernel": platform.release(),
        "congestion control": _word("/proc/sys/net/ipv4/tcp_congestion_control"),
        "scheduling": {0: "ordinary", 1: "real time (chrt -f)", 2: "real time (chrt -r)"}.get(
            os.sched_getscheduler(0), "other"),
    }


def one_line(machine):
    return "; ".join(f"{name}: {value}" for name, value in machine.items() if value != "")


def words_of_priority():
    """Words before a program that is a rank, when a comparison is run under chrt so that other programs do not disturb it.

    Ranks that spin would then keep all processes of their own priority from the cores: the launcher that they wait for, a
    library's own threads, and the program that would end them. So this process and the launchers go one above the ranks, and
    the ranks take turns (SCHED_RR) where they share a core."""
    if os.sched_getscheduler(0) not in (os.SCHED_FIFO, os.SCHED_RR):
        return []
    ranks = os.sched_getparam(0).sched_priority
    above = min(ranks + 1, os.sched_get_priority_max(os.SCHED_RR))
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(above))
    chrt = shutil.which("chrt")
    if above == ranks or not chrt:
        raise SystemExit(f"Under real-time priority (here {ranks}) chrt is needed (Debian: util-linux), and a priority "
                         "below the highest: chrt -f 1.")
    return [chrt, "-r", str(ranks)]


@contextlib.contextmanager
def busy(count):
    """So many processes beside what is measured compute and want a core as other programs do."""
    loops = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen([sys.executable, "-I", "-c", COMPUTE], stdin=subprocess.DEVNULL))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
