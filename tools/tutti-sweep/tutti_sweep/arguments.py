"""The command line of tutti-sweep."""
import argparse

from tutti_sweep import resources
from tutti_sweep.refused import Refused, Usage, nearest

METHODS, STOPS = ("grid", "random", "tpe"), ("none", "hyperband", "asha")
MOST_PARALLEL = 1024


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        raise Usage(message)


def one_of(*words):
    def chosen(word):
        if word not in words:
            hint = nearest(word, words)
            if word in STOPS:
                hint = f"; it is a rule for stopping trials: --early-stop {word}"
            raise argparse.ArgumentTypeError(f"there is no '{word}', but {', '.join(words)}{hint}")
        return word
    return chosen


def whole(least, most):
    def number(word):
        if not word.isdigit() or not least <= int(word) <= most:
            raise argparse.ArgumentTypeError(f"'{word}' is no whole number from {least} to {most}")
        return int(word)
    return number


def seconds(word):
    try:
        found = float(word)
    except ValueError:
        found = -1
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"'{word}' is no number of seconds")
    return found


def size(word):
    try:
        return resources.size_of(word)
    except Refused as refused:
        raise argparse.ArgumentTypeError(str(refused).rstrip(".")) from refused


def parser(name, description):
    made = Arguments(prog=name, usage="%(prog)s [options] space.json -- PROGRAM [ARGUMENTS]", description=description,
                     formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False, allow_abbrev=False)
    add = made.add_argument
    add("space", nargs="?", metavar="space.json", help="the parameters, as NNI's search_space.json has them")
    add("--method", type=one_of(*METHODS), metavar="NAME", default="random", help="grid, random or tpe (random); tpe needs Optuna")
    add("--trials", type=whole(1, 100000), metavar="N", help="in all (20; of a grid all)")
    add("--points", type=whole(1, 100000), metavar="N", help="grid: values of each uniform and loguniform")
    add("--seed", type=whole(0, 2 ** 63 - 1), metavar="N", help="the same one gives the same trials (a new one, which is printed)")
    add("--metric", default="loss", metavar="NAME", help="what is measured, a key of metrics.jsonl (loss)")
    add("--mode", type=one_of("min", "max"), metavar="WHICH", default="min", help="min or max: which is better (min)")
    add("--value", type=one_of("last", "best"), metavar="WHICH", default="last", help="last or best: which value of a trial counts (last)")
    add("--early-stop", type=one_of(*STOPS), metavar="RULE", default="none", help="none, hyperband or asha, which need Optuna (none)")
    add("--min-steps", type=whole(1, 10 ** 9), default=1, metavar="N", help="no trial is stopped before so many steps (1)")
    add("--max-steps", type=whole(1, 10 ** 9), metavar="N", help="of a whole trial: none is stopped at its end (hyperband: those of the first that ends)")
    add("--reduction", type=whole(2, 1000), default=3, metavar="N", help="of so many trials one goes on at each look (3)")
    add("--parallel", type=whole(1, MOST_PARALLEL), metavar="K", help="trials side by side (as many as cores and memory allow)")
    add("--cores-per-trial", type=whole(1, 100000), metavar="N", help="(the ranks that the command says: tuttirun -n)")
    add("--memory-per-trial", type=size, metavar="SIZE", help="such as 2G; bounds the trials side by side, and no trial itself")
    add("--trial-timeout", type=seconds, metavar="S", help="a trial that runs longer has failed")
    add("--grace", type=seconds, default=35, metavar="S", help="from SIGTERM to SIGKILL of a trial (35; tuttirun takes 30)")
    add("--out", default="sweep", metavar="DIR", help="the journal, the trials' folders, and report.html (sweep)")
    add("--dry-run", action="store_true", help="prints the trials' commands, and starts nothing")
    add("-sr", "--search", action="store_true", help="searches, as without it; -ts wins over it")
    add("-ts", "--test", metavar="CHECKPOINT", help="runs the command once, with the best trial's values, and does not search")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="with -ts: this value of a parameter")
    add("-h", "--help", action="store_true")
    add("--version", action="store_true")
    return made


def parse(made, words):
    """Everything behind -- is the command."""
    hint = "" if "--" in words else "; the command stands behind --"
    words, command = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    given, unknown = made.parse_known_args(words)
    for word in unknown:
        options = [option for action in made._actions for option in action.option_strings]
        if word.startswith("-"):
            raise Usage(f"there is no option {word}{nearest(word.partition('=')[0], options) or hint}")
    if unknown:
        raise Usage(f"'{unknown[0]}' is too much: the command stands behind --")
    given.command = command
    if given.help or given.version:
        return given
    if not given.space:
        raise Usage("it needs a space.json")
    if not command:
        raise Usage("it needs a command behind --, such as: tutti-sweep space.json -- tuttirun -n 2 ./train --lr {lr} --log {dir}")
    if given.set and given.test is None:
        raise Usage("--set goes with -ts")
    if given.max_steps and given.max_steps < given.min_steps:
        raise Usage(f"--max-steps {given.max_steps} is below --min-steps {given.min_steps}")
    return given
