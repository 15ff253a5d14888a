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
    by_small = {one.lower(): one for one in words}
    found = difflib.get_close_matches(word.lower(), by_small, 1)
    return f"; did you mean {by_small[found[0]]}?" if found else ""


def closed(text):
    """With its full stop, unless it ends with a question."""
    return text if text.endswith("?") else f"{text}."
