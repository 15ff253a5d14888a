"""Runs spawn_main in a terminal, types Ctrl-C when its ranks are ready, and looks what they say and how it ends."""
import os
import pty
import sys


def read_terminal(fd):
    """All that is written until the other side has gone."""
    text = b""
    while True:
        try:
            part = os.read(fd, 4096)
        except OSError:
            part = b""
        if not part:
            return text.decode()
        text += part
        if text.count(b"ready") == 2 and b"^C" not in text:
            os.write(fd, b"\x03")
            text += b"^C"


try:
    pid, terminal = pty.fork()
except OSError as error:
    print(f"there are no pseudo-terminals here: {error}")
    sys.exit(77)
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "end_well", "2"])
seen = read_terminal(terminal)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
if code != 0 or "rank 0: signal 2, 1" not in seen or "rank 1: signal 2, 1" not in seen:
    sys.exit(f"spawn_terminal: Ctrl-C: code {code}, {seen}")
