"""The machine in a few words, without anything that says whose it is: no host name, user, path or address."""
import os
import platform


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
