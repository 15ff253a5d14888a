"""What is on the command line, the same for perf/compare, perf/regress and perf/scale, and what ends them early."""
import argparse
import math
import os
import signal
import tempfile

from harness import contenders, machine, rounds, sizes

BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release")
MAX_RANKS = 1024
TYPES = ("float", "double", "half", "bfloat16", "int8", "int32", "int64")


def list_of(name, allowed):
    def parse(text):
        words = text.split(",")
        for word in words:
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"'{word}' is not a {name}; there are {', '.join(allowed)}")
        return list(dict.fromkeys(words))
    return parse


def rank_list(text):
    ranks = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if not all(2 <= n <= MAX_RANKS for n in ranks):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers from 2 to {MAX_RANKS}")
    return list(dict.fromkeys(ranks))


def size_list(text):
    try:
        return sizes.parse_sizes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of sizes such as 16,1K or 8-64M*4") from None


def number(low, high, why_not):
    """A whole one; other texts are refused with them, and these words."""
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"'{text}' {why_not}")
        return int(text)
    return parse


whole = number(1, 1 << 62, "is not a number above 0")


def at_least(least, why):
    return number(least, 1 << 62, f"rounds {why}")


def between(low, high):
    """Numbers above low and below high: nan and inf are neither."""
    def parse(text):
        value = float(text) if text.strip() == text else math.nan
        if not low < value < high:
            raise argparse.ArgumentTypeError(f"'{text}' is not above {low:g} and below {high:g}")
        return value
    parse.__name__ = "number"
    return parse


def add_load(parser):
    parser.add_argument("--load", type=number(0, machine.MOST_BUSY, f"is not a number of busy processes from 0 to {machine.MOST_BUSY}"), default=0,
                        metavar="N", help="busy processes beside the ranks (0)")


def add_build(parser):
    parser.add_argument("--build", default=BUILD, metavar="FOLDER", help="a release build (build/release)")


def add_out(parser):
    parser.add_argument("--out", metavar="FOLDER", help="where the files go; made if it is not there")


def check_program(parser, path):
    if not os.access(path, os.X_OK):
        parser.error(f"there is no {path}: cmake --preset release, cmake --build --preset release")


def check_out(parser, folder):
    """Before anything is measured: the folder is made, and can be written to."""
    if folder == "":
        parser.error("--out: the folder has no name; without --out no files are written")
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        parser.error(f"--out {folder}: {error.strerror}")


def parser_of(text):
    """For a program with that docstring."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def check_sizes(parser, args):
    """Something is measured somewhere."""
    least = min(rounds.least_size(rounds.Place(over, ranks, collective), args.dtype)
                for over in args.over for ranks in args.ranks for collective in args.collectives)
    if max(args.sizes) < least:
        parser.error(f"nothing would be measured: one element for each rank takes {least} B at least, and the largest of --sizes "
                     f"is {max(args.sizes)} B")


def interrupt_once():
    """Ctrl-C, SIGTERM and a terminal that goes away raise KeyboardInterrupt; more of them do not disturb the tidying up after
    it. Ctrl-C and the terminal only where the program that started this did not turn them off (nohup)."""
    def interrupt(_signal, _frame):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)


def add_common(parser, default):
    """What is measured. default: {option: value}."""
    def add(name, parse, help_text):
        parser.add_argument(f"--{name}", type=parse, default=parse(default[name]), metavar="LIST",
                            help=f"{help_text} ({default[name]})")

    add("collectives", list_of("collective", contenders.COLLECTIVES), ", ".join(contenders.COLLECTIVES))
    add("ranks", rank_list, "numbers of ranks")
    add("sizes", size_list, "bytes: 16,1K or 8-64M*4, from 8 to 64M by factors of 4")
    add("over", list_of("way", contenders.OVER), "what the ranks talk over: shm, tcp")
    add("dtype", list_of("type", TYPES), ", ".join(TYPES))
    parser.add_argument("--no-dirty", action="store_true", help="calls find the buffers as the last one left them")
    parser.add_argument("--out-of-place", action="store_true",
                        help="two buffers; by itself one, where that is possible")
    parser.add_argument("--timeout", type=between(0, 1e6), default=120, metavar="S",
                        help="for one start of a program (120)")
