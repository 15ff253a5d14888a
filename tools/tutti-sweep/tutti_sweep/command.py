"""The command of trials: words with {name} in them, which a trial's values replace."""
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


def ranks_of(words):
    """What the command says: how many ranks, 1 without a launcher; None where that is no number."""
    launcher = next((i for i, word in enumerate(words) if os.path.basename(word) in LAUNCHERS), None)
    options = RANKS if launcher is not None else ("--ranks",)
    after = words[launcher or 0:]
    for word, following in zip(after, [*after[1:], ""]):
        option, equals, value = word.partition("=")
        if option in options:
            number = value if equals else following
            return int(number) if number.isdigit() and int(number) > 0 else None
    return 1
