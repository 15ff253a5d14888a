"""Standard output that may go away: its reader ends (| head), or its disk is full. What is measured is not lost by that:
it is said once, on standard error, and the program goes on for the sake of its files and its exit code."""
import os
import sys

from harness import streams

GONE = 4      # exit code when that is all that went wrong


class Gone(Exception):
    """What is measured would not be seen any more."""


class Lasting:
    """Stands for sys.stdout, and does not raise."""

    def __init__(self, stream, program):
        self.stream, self.warn = stream, streams.Streams(program).warn
        self.is_gone = False
        self.is_needed = False          # there is no other place for results: Gone is raised

    def attempt(self, action, *args):
        try:
            if not self.is_gone:
                action(*args)
        except OSError as error:
            self.lose(error.strerror)

    def write(self, text):
        self.attempt(self.stream.write, text)
        if "\n" in text:
            self.flush()
        return len(text)

    def flush(self):
        self.attempt(self.stream.flush)

    def lose(self, why):
        """What still is in a buffer goes nowhere, and no file that is opened takes the output's place."""
        self.is_gone = True
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        end = ", and there is no --out: what is measured would be lost" if self.is_needed else ""
        self.warn(f"the standard output is gone: {why}{end}.")
        if self.is_needed:
            raise Gone

    def need(self):
        self.is_needed = True
        if self.is_gone:
            self.warn("there is no --out either: what is measured would be lost.")
            raise Gone


def open_standard_streams():
    """Those that were closed lead nowhere. Whether the output is one of them."""
    is_closed = sys.stdout is None
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)
    return is_closed


def run(program, main):
    """main's exit code, or GONE."""
    is_closed = open_standard_streams()
    out = sys.stdout = Lasting(sys.stdout, program)
    if is_closed:
        out.lose("it is closed")
    try:
        code = main()
    except Gone:
        code = GONE
    out.flush()
    return code or (GONE if out.is_gone else 0)
