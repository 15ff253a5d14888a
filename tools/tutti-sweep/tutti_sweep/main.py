"""Runs trials of a program with different hyper-parameters, and which were best.

    tutti-sweep space.json -- tuttirun -n 2 ./train --lr {lr} --log {dir}

space.json has the parameters, as NNI's search_space.json does, with the types choice, uniform,
loguniform, quniform and randint:
    {"lr": {"_type": "loguniform", "_value": [0.0001, 0.1]}}

In the command stand {lr} for the trial's value of lr, {dir} for its folder, where it must write
metrics.jsonl, {trial} for its number, {params} for a JSON file with all values, {slot} for its
place among the trials side by side. The same command again goes on after Ctrl-C or a crash. In
the end there are a table and DIR/report.html.

Exit codes: 0; 1 no trial has a result, or a file, the space or the machine does not allow a
sweep; 2 the command line; else by the signal that ended it. With -ts that of the command.
"""
import argparse
import json
import os
import shlex
import signal

from harness import files, streams
from tutti_sweep import command, journal, methods, report, resources, running, space, sweep
from tutti_sweep.refused import Refused, Usage, counted, nearest

NAME = "tutti-sweep"
DONE, FAILED, USAGE = 0, 1, 2
METHODS, STOPS = ("grid", "random", "tpe"), ("none", "hyperband", "asha")
MOST_PARALLEL = 1024
KNOWN = (*command.OF_SEARCH, *command.OF_TEST)
_streams = streams.Streams(NAME)
warn, say = _streams.warn, _streams.say


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


# -ts CHECKPOINT: the command once, with the values of the best trial or those of --set, and no search.
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
    history = journal.History(given.out)
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
        values = {**best.params, "trial": best.number, "best": journal.folder_of(given.out, best.number), **values}
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


def method_of(given, seed, found):
    source = {"grid": lambda: methods.Grid(found, given.points), "random": lambda: methods.Random(found, seed), "tpe": lambda: None}
    chosen = source[given.method]()
    if chosen and given.early_stop == "none":
        return methods.Alone(chosen)
    return methods.Study(given, seed, found, chosen)


def count_trials(given, method):
    """--trials, or what is usual; of a grid not more than it has."""
    if given.method == "grid":
        if not given.trials and method.count > methods.MOST_TRIALS:
            raise Refused(f"the grid has {method.count} points; {methods.MOST_TRIALS} trials are the most: --trials N takes the first.")
        given.trials = min(given.trials or method.count, method.count)
    given.trials = given.trials or 20


def find_places(given):
    """The CPUs of each trial that runs beside others."""
    cores = resources.cores()
    usable = resources.usable_cores(cores)
    each = given.cores_per_trial or command.ranks_of(given.command) or usable
    fits = resources.bound(each, given.memory_per_trial, usable)
    given.parallel = given.parallel or fits
    need = given.parallel * (given.memory_per_trial or 0)
    if need and need > resources.memory_left():
        raise Refused(f"{counted(given.parallel, 'trial')} of {resources.words_of(given.memory_per_trial)} need more than the "
                      f"{resources.words_of(resources.memory_left())} that this machine has left: choose a smaller --parallel.")
    if given.parallel * each > usable:
        warn(f"{counted(given.parallel, 'trial')} of {counted(each, 'core')} must do with {counted(usable, 'core')} here.")
    return resources.shares(cores, given.parallel)


def search(given):
    """(signal or None, exit code)."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)      # a parent may ignore it, and then no wait returns
    raw, found = space.read(given.space)
    command.check(given.command, found)
    shares = find_places(given)
    method_of(given, 0, found)                         # is refused before there is a folder
    record = journal.Journal(given.out)
    record.check_folders()
    seed = journal.seed_for(given, record.begin)
    now = journal.settings_of(given, raw, seed)
    method = method_of(given, seed, found)
    count_trials(given, method)
    if record.begin:
        journal.check_same(record.begin, now, given.out)
    else:
        record.write_begin(now)
    ended = sum(trial.state is not None for trial in record.trials)
    warn(f"{counted(given.trials, 'trial')} by {given.method}, seed {seed}, {given.parallel} at once" +
         (f"; {ended} ended before" if record.trials else ""))
    watcher = running.Guard(record.fd)
    try:
        run = sweep.Sweep(given, found, record, method, shares, watcher, warn)
        run.replay()
        came = run.run()
    finally:
        watcher.end()
    if came:
        ended = sum(trial.state is not None for trial in record.trials)
        warn(f"{signal.Signals(came).name} ended it after {ended} of {given.trials} trials. The same command goes on: "
             f"{shlex.join([NAME, *given.words])}")
        return came, FAILED
    return None, show(record, given)


def show(record, given):
    """The page, and the table; the exit code."""
    code = say(report.text_of(record, given))
    code = say(f"{report.write(record, given)} shows it.\n") or code
    return code or (DONE if record.ranked(given.mode) else FAILED)


def dry_run(given):
    """The exit code. Nothing is written."""
    _, found = space.read(given.space)
    command.check(given.command, found)
    find_places(given)
    seed = journal.seed_for(given, None)
    method = method_of(given, seed, found)
    count_trials(given, method)
    known = min(given.trials, methods.STARTUP) if given.method == "tpe" else given.trials
    lines = []
    for number in range(known):
        point = method.ask(number)
        trial = journal.Trial(number, point, space.values_at(found, point))
        lines.append(shlex.join(command.fill(given.command, sweep.values_for(trial, given.out, number % given.parallel))))
    warn(f"{counted(given.trials, 'trial')} by {given.method}, seed {seed}, {given.parallel} at once; nothing is started.")
    if known < given.trials:
        warn(f"those behind the first {known} depend on what these bring.")
    return say("".join(f"{line}\n" for line in lines))


def test(given):
    """Does not return, unless it is a dry run."""
    _, found = space.read(given.space)
    words, params = words_for(given, found)
    if given.search:
        warn("test mode (-ts) wins over search (-sr): nothing is searched.")
    if given.dry_run:
        return say(shlex.join(words) + "\n")
    warn(f"test mode: {shlex.join(words)}")
    return become(words, given, params)


def go(words, version):
    made = parser(NAME, __doc__.strip())
    given = parse(made, words)
    given.words = words
    if given.help or given.version:
        return None, say(made.format_help() if given.help else f"{NAME} (Tutti) {version}\n")
    if given.test is not None:
        return None, test(given)
    return (None, dry_run(given)) if given.dry_run else search(given)


def open_closed_streams():
    """A stream that was closed becomes /dev/null, else the journal or a pipe would get its number, and lose it to a child."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def run(words, _tools, version):
    """The exit code; it ends by the signal that has ended the sweep."""
    open_closed_streams()
    came, code = None, FAILED
    try:
        came, code = go(words, version)
    except Usage as usage:
        warn(f"{usage}; {NAME} --help says more.")
        return USAGE
    except Refused as refused:
        warn(refused)
    except KeyboardInterrupt:
        came = signal.SIGINT
    if came:
        signal.signal(came, signal.SIG_DFL)     # as a shell expects it, and without a trace of Python
        os.kill(os.getpid(), came)
    return code
