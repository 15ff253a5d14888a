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
import os
import shlex
import signal
import sys

from harness import streams
from tutti_sweep import arguments, command, guard, journal, methods, report, resources, settings, space, study, sweep, table, \
    test_mode
from tutti_sweep.refused import Refused, Usage, counted

NAME = "tutti-sweep"
DONE, FAILED, USAGE = 0, 1, 2
_streams = streams.Streams(NAME)
warn, say = _streams.warn, _streams.say


def method_of(given, seed, found):
    source = {"grid": lambda: methods.Grid(found, given.points), "random": lambda: methods.Random(found, seed), "tpe": lambda: None}
    chosen = source[given.method]()
    if chosen and given.early_stop == "none":
        return methods.Alone(chosen)
    return study.Study(given, seed, found, chosen)


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
    seed = settings.seed_for(given, record.begin)
    now = settings.of(given, raw, seed)
    method = method_of(given, seed, found)
    count_trials(given, method)
    if record.begin:
        settings.check_same(record.begin, now, given.out)
    else:
        record.write_begin(now)
    ended = sum(trial.state is not None for trial in record.trials)
    warn(f"{counted(given.trials, 'trial')} by {given.method}, seed {seed}, {given.parallel} at once" +
         (f"; {ended} ended before" if record.trials else ""))
    watcher = guard.Guard(record.fd)
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
    code = say(table.text_of(record, given))
    code = say(f"{report.write(record, given)} shows it.\n") or code
    return code or (DONE if record.ranked(given.mode) else FAILED)


def dry_run(given):
    """The exit code. Nothing is written."""
    _, found = space.read(given.space)
    command.check(given.command, found)
    find_places(given)
    seed = settings.seed_for(given, None)
    method = method_of(given, seed, found)
    count_trials(given, method)
    known = min(given.trials, study.STARTUP) if given.method == "tpe" else given.trials
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
    words, params = test_mode.words_for(given, found)
    if given.search:
        warn("test mode (-ts) wins over search (-sr): nothing is searched.")
    if given.dry_run:
        return say(shlex.join(words) + "\n")
    warn(f"test mode: {shlex.join(words)}")
    return test_mode.become(words, given, params)


def go(words, version):
    made = arguments.parser(NAME, __doc__.strip())
    given = arguments.parse(made, words)
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


def run(words, version):
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
