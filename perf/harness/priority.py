"""Real-time priority, when a comparison is run under chrt so that other programs do not disturb it.

Ranks that spin would then keep all processes of their own priority from the cores: the launcher that they wait for, a
library's own threads, and the program that would end them. So this process and the launchers go one above the ranks, and
the ranks take turns (SCHED_RR) where they share a core.
"""
import os
import shutil


class Priority:
    def __init__(self):
        policy = os.sched_getscheduler(0)
        self.wrap = []             # words before a program that is a rank
        if policy not in (os.SCHED_FIFO, os.SCHED_RR):
            return
        ranks = os.sched_getparam(0).sched_priority
        above = min(ranks + 1, os.sched_get_priority_max(os.SCHED_RR))
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(above))
        chrt = shutil.which("chrt")
        if above == ranks or not chrt:
            raise SystemExit(f"Under real-time priority (here {ranks}) chrt is needed (Debian: util-linux), and a priority "
                             "below the highest: chrt -f 1.")
        self.wrap = [chrt, "-r", str(ranks)]
