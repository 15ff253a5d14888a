"""-ts CHECKPOINT: the command once, with the values of the best trial or those of --set, and no search."""
import json
import os
import signal

from harness import files
from tutti_sweep import command
from tutti_sweep.journal import History, folder_of
from tutti_sweep.refused import Refused, Usage, nearest

KNOWN = (*command.OF_SEARCH, *command.OF_TEST)


def set_values(given, space):
    found = {}
    for word in given.set:
        name, equals, value = word.partition("=")
        if not equals or name not in space:
            raise Usage(f"--set {word}: it is NAME=VALUE, and the space has {', '.join(space)}{nearest(name, space)}")
        found[name] = value
    return found


def best_of(given):
    """The trial. The journal knows which is better."""
    history = History(given.out)
    history.read()
    ranked = history.ranked(history.begin["mode"]) if history.begin else []
    if not ranked:
        raise Refused(f"{given.out} has no trial with a result, whose values -ts could take: search first, or give all values by "
                      "--set.")
    return ranked[0]


def words_for(given, space):
    """The command, and what it was made of."""
    command.check_known(given.command, [*space, *KNOWN])
    command.check_known([given.test], KNOWN)
    if "checkpoint" not in command.names_in(given.command):
        raise Refused("the command has no {checkpoint}, where -ts puts its own.")
    command.check_program(given.command)
    values, used = set_values(given, space), command.names_in([*given.command, given.test])
    folder = os.path.join(given.out, "test")
    if used & {"best", "trial"} or (set(space) if "params" in used else used & set(space)) - set(values):
        best = best_of(given)
        values = {**best.params, "trial": best.number, "best": folder_of(given.out, best.number), **values}
    values.update(dir=folder, slot=0, params=os.path.join(folder, "params.json"))
    values["checkpoint"] = command.fill([given.test], values)[0]
    if not os.path.exists(values["checkpoint"]):
        raise Refused(f"there is no checkpoint {values['checkpoint']}.")
    return command.fill(given.command, values), {name: values[name] for name in space if name in values}


def become(words, given, params):
    """Does not return: this process becomes the command."""
    try:
        files.write_whole(os.path.join(given.out, "test"), {"params.json": json.dumps(params) + "\n"})
        for number in (signal.SIGPIPE, signal.SIGXFSZ):          # which Python ignores, and a program would inherit
            signal.signal(number, signal.SIG_DFL)
        os.execvp(words[0], words)
    except OSError as error:
        raise Refused(f"{words[0]} could not be started: {error.strerror}.") from error
