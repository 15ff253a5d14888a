"""Signals at random moments, in and between the calls of two ranks of this process: nothing hangs, crashes or stays behind."""

import random
import signal
import sys

import tutti

numbers = random.Random(int(sys.argv[1]))
rounds = 0


class Interrupted(BaseException):
    pass


is_armed = False


def interrupt(*_):
    """Some are lost in what Python calls by itself, such as callbacks of weak references: so it comes again and again."""
    if is_armed:
        raise Interrupted


signal.signal(signal.SIGALRM, interrupt)


def calls(comms):
    global rounds
    x, y, recv = bytearray(100), bytearray(100), bytearray(3)
    while True:
        with tutti.group():
            comms[0].all_reduce(x)
            comms[1].all_reduce(y)
        works = [comms[0].start.broadcast(x), comms[1].start.broadcast(y), comms[1].start.recv(recv, 0)]
        comms[0].send(recv, 1)
        for work in works:
            work.wait()
        with tutti.init(world_size=1) as alone:
            alone.split(0).destroy()
        rounds += 1


def interrupted_calls(comms):
    global is_armed
    try:
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, numbers.uniform(0.00005, 0.006), 0.01)
            calls(comms)
        finally:
            is_armed = False
    except Interrupted:
        pass


for i in range(60):
    comms = tutti.init_all(2)
    interrupted_calls(comms)
    if i % 3 == 0:
        comms[0].abort()
    for comm in comms:
        comm.destroy()
    assert not any(comm._state.flights for comm in comms), i
signal.setitimer(signal.ITIMER_REAL, 0)
print("rounds", rounds)
