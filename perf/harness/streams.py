"""What a tool says: results on standard output, and all else on standard error. Either may be closed, full, or of another encoding."""
import sys


class Streams:
    """name: the tool's, with which its messages begin."""

    def __init__(self, name):
        self.name = name

    def warn(self, message):
        try:
            if sys.stderr is not None:      # print() would take standard output in its place
                print(f"{self.name}: {message}", file=sys.stderr, flush=True)
        except OSError:
            pass                            # no one is left to tell

    def say(self, text):
        """On standard output; the exit code: 1 if it could not be written."""
        try:
            if sys.stdout is None:
                raise OSError(9, "Bad file descriptor")
            sys.stdout.reconfigure(errors="backslashreplace")
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            sys.stdout = None               # what it still holds is not tried again at the end
            self.warn(f"stdout could not be written: {error.strerror}.")
            return 1
        return 0
