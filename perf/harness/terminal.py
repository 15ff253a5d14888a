"""Standard output that may go away: its reader ends (| head), or its disk is full. What is measured is not lost by that:
it is said once, on standard error, and the program goes on for the sake of its files and its exit code."""
import os
import sys

GONE = 4      # exit code when that is all that went wrong


class Gone(Exception):
    """What is measured would not be seen any more."""


class Lasting:
    """Stands for sys.stdout, and does not raise."""

    def __init__(self, stream, program):
        self.stream, self.program = stream, program
        self.is_gone = False
        self.is_needed = False          # there is no other place for results: Gone is raised

    def write(self, text):
        if not self.is_gone:
            try:
                self.stream.write(text)
                if "\n" in text:
                    self.stream.flush()
            except OSError as error:
                self.lose(error.strerror)
        return len(text)

    def flush(self):
        if not self.is_gone:
            try:
                self.stream.flush()
            except OSError as error:
                self.lose(error.strerror)

    def lose(self, why):
        """What still is in a buffer goes nowhere, and no file that is opened takes the output's place."""
        self.is_gone = True
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
        end = ", and there is no --out: what is measured would be lost" if self.is_needed else ""
        warn(f"{self.program}: the standard output is gone: {why}{end}.")
        if self.is_needed:
            raise Gone

    def need(self):
        self.is_needed = True
        if self.is_gone:
            warn(f"{self.program}: there is no --out either: what is measured would be lost.")
            raise Gone


def warn(message):
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        pass                 # no one is left to tell


def open_standard_streams():
    """Those that were closed lead nowhere. Whether the output is one of them."""
    is_closed = sys.stdout is None
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            break
        os.set_inheritable(fd, True)
    if is_closed:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)
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
