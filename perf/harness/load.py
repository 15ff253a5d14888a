"""Busy processes beside what is measured, which compute and want a core as other programs do."""
import contextlib
import subprocess
import sys

MOST = 1024
# It ends with the program that has started it, however that ends.
COMPUTE = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100000):
        pass
"""


@contextlib.contextmanager
def beside(count):
    loops = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen([sys.executable, "-I", "-c", COMPUTE], stdin=subprocess.DEVNULL))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
