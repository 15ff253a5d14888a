"""What ends a sweep before it begins, or in its middle; and what messages are made with."""
import difflib


class Usage(Exception):
    """A command line that cannot be understood."""


class Refused(Exception):
    """A file, a space, a command or a machine with which there is no sweep. The text is the whole error message."""


def counted(count, noun):
    """1 trial, 2 trials."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def nearest(word, words):
    """Of "paralel" and the options: "; did you mean --parallel?". Empty where nothing is near."""
    found = difflib.get_close_matches(word, words, 1)
    return f"; did you mean {found[0]}?" if found else ""
