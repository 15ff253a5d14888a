"""What this machine has for trials: cores, by this process's affinity and its control group, and memory."""
import os
import re

from tutti_sweep.refused import Refused

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def read_word(path):
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def cores():
    """[{CPUs of a core that may be used}], neighbours beside each other."""
    found = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = read_word(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.setdefault(siblings or cpu, set()).add(cpu)
    return list(found.values())


def groups_of(controller):
    """The folders of this process's control group and of all around it, in both versions' places."""
    for line in (read_word("/proc/self/cgroup") or "").split("\n"):
        _, controllers, group = (line.split(":", 2) + ["", ""])[:3]
        if controllers and controller not in controllers.split(","):
            continue
        base = f"/sys/fs/cgroup/{controller}" if controllers else "/sys/fs/cgroup"
        while True:
            yield base + group.rstrip("/")
            if not group.strip("/"):
                break
            group = os.path.dirname(group.rstrip("/"))


def quota():
    """CPUs' worth of time that the groups allow, as a container has with --cpus 2; None: all."""
    allowed = []
    for folder in groups_of("cpu"):
        limit, _, period = (read_word(f"{folder}/cpu.max") or "").partition(" ")
        limit, period = limit or read_word(f"{folder}/cpu.cfs_quota_us"), period or read_word(f"{folder}/cpu.cfs_period_us")
        if limit and period and limit.isdigit() and period.isdigit() and int(period):
            allowed.append(int(limit) / int(period))
    return min(allowed, default=None)


def usable_cores(found):
    """How many cores' worth of work runs at once."""
    allowed = quota()
    return len(found) if allowed is None else max(1, min(len(found), int(allowed)))


def numbers_of(path):
    """{name: number} of /proc/meminfo or memory.stat."""
    lines = [line.replace(":", " ").split() for line in (read_word(path) or "").split("\n")]
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def left_in(folder, limit, used, cache):
    limit, used = read_word(f"{folder}/{limit}"), read_word(f"{folder}/{used}")
    if not limit or not used or not limit.isdigit() or not used.isdigit():
        return None
    given_back = numbers_of(f"{folder}/memory.stat").get(cache, 0)
    return max(0, int(limit) - max(0, int(used) - given_back))


def memory_left():
    """Bytes that can be had now, counted as core/memory_left.c does."""
    left = [numbers_of("/proc/meminfo").get("MemAvailable", 0) << 10]
    for folder in groups_of("memory"):
        left += [left_in(folder, "memory.max", "memory.current", "inactive_file"),
                 left_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")]
    return min(bytes_ for bytes_ in left if bytes_ is not None)


def size_of(text):
    """Bytes of 2G, 500M."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([KMGT]?)(?:I?B)?", text.upper())
    size = int(float(found[1]) * UNITS[found[2]]) if found else 0
    if size <= 0:
        raise Refused(f"{text} is no size: 500M and 2G are some.")
    return size


def words_of(size):
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def bound(cores_each, memory_each, usable):
    """How many trials run side by side where the command line does not say."""
    most = max(1, usable // cores_each)
    return max(1, min(most, memory_left() // memory_each)) if memory_each else most


def shares(found, parallel):
    """The CPUs of each place for a trial: a run of cores of its own, as far as there are as many."""
    def share(k):
        first = k * len(found) // parallel
        return set().union(*found[first:max(first + 1, (k + 1) * len(found) // parallel)])

    return [share(k) for k in range(parallel)]
