"""The command of trials: words with {name} in them, which a trial's values replace."""
import itertools
import os
import re
import shutil

from tutti_sweep.refused import Refused, nearest

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
PLACE = re.compile(rf"\{{\{{({NAME.pattern})\}}\}}|\{{({NAME.pattern})\}}")     # {{name}} stands for {name} itself
OF_SEARCH = ("dir", "trial", "slot", "params")
OF_TEST = ("checkpoint", "best")
RESERVED = OF_SEARCH + OF_TEST
LAUNCHERS = ("tuttirun", "torchrun", "mpirun", "mpiexec", "srun")
RANKS = ("-n", "--ranks", "-np", "--nproc-per-node", "--nproc_per_node")
OWN = ("--ranks", "--devices")     # of a program that starts ranks itself
GPUS = ("-g", "--gpus", "--devices")
NUMBERS = re.compile(r"[0-9]+(,[0-9]+)*,?")


def text_of(value):
    """As a command line has it: 0.001, 16, adam, true."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def fill(words, values):
    return [PLACE.sub(lambda m: f"{{{m[1]}}}" if m[1] else text_of(values[m[2]]), word) for word in words]


def names_in(words):
    return {name for word in words for _, name in PLACE.findall(word) if name}


def check_known(words, known):
    for name in sorted(names_in(words) - set(known)):
        raise Refused(f"the command has {{{name}}}, of which neither the space nor tutti-sweep has a value ({{{{{name}}}}} stands for "
                      f"the word itself){nearest(name, known) or '.'}")


def check_program(words):
    if not names_in(words[:1]) and not shutil.which(words[0]):
        raise Refused(f"there is no program {words[0]}, with which the command begins.")


def check(words, space):
    """Of a search, before anything starts."""
    check_known(words, [*space, *OF_SEARCH])
    used = names_in(words)
    if not used & {"dir", "params"}:
        raise Refused("the command has no {dir}, the folder of the trial, where the program must write its metrics.jsonl "
                      "(as gpt --log {dir} does).")
    unused = [name for name in space if name not in used]
    if unused and "params" not in used:
        raise Refused(f"the command does not use {', '.join(f'{{{name}}}' for name in unused)} of the space, so trials would not "
                      "differ in it; {params} is a JSON file with all values.")
    check_program(words)


def values_of(words, names, letter):
    """The words of the first such option: -n 4, -n4, --ranks=4, and of GPUs all numbers that follow; None where it is not there."""
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in names and not equals:
            return [*itertools.takewhile(lambda w: NUMBERS.fullmatch(w), words[i + 1:])] or ["?"]
        if option in names:
            return [value]
        if letter and word.startswith(letter) and NUMBERS.fullmatch(word[len(letter):]):
            return [word[len(letter):]]
    return None


def count_of(values):
    """Of the first word; None where it is no number."""
    return int(values[0]) if values[0].isdigit() and int(values[0]) > 0 else None


def gpus_of(words):
    values = values_of(words, GPUS, "-g")
    return len([gpu for value in values for gpu in value.split(",") if gpu]) if values else None


def ranks_of(words):
    """What the command says, also behind sh -c: how many ranks, 1 without a launcher; None where that is no number."""
    words = [part.strip("'\"();") for word in words for part in word.split()]
    launcher = next((i for i, word in enumerate(words) if os.path.basename(word) in LAUNCHERS), None)
    if launcher is None:
        values = values_of(words, OWN, None)
        return count_of(values) if values else gpus_of(words) or 1
    after = words[launcher:]
    values = values_of(after, RANKS, "-n")
    threads = values_of(after, ("--local-ranks",), None)
    if not values:
        values = [str((os.path.basename(words[launcher]) == "tuttirun" and gpus_of(after)) or 1)]
    counts = count_of(values), count_of(threads or ["1"])
    return counts[0] * counts[1] if all(counts) else None
