"""What a sweep is made of, as its journal keeps it: a sweep that goes on must have the same."""
import json
import random
import shlex

from tutti_sweep.refused import Refused

# By its name in the journal: how a message calls it.
FIXED = {"space": "space", "command": "command", "method": "--method", "points": "--points", "metric": "--metric", "mode": "--mode",
         "value": "--value", "early_stop": "--early-stop", "min_steps": "--min-steps", "max_steps": "--max-steps",
         "reduction": "--reduction", "seed": "--seed"}


def shown(key, value):
    return shlex.join(value) if key == "command" else json.dumps(value)


def check_same(found, settings, out):
    for key, name in FIXED.items():
        if json.dumps(found.get(key)) != json.dumps(settings[key]):       # the order of parameters counts, too
            raise Refused(f"{out} has a sweep with another {name}.\n  there: {shown(key, found.get(key))}\n  now:   "
                          f"{shown(key, settings[key])}\nChoose another --out, or go on with the one that is there.")


def of(given, raw, seed):
    return {"space": raw, "seed": seed, **{key: getattr(given, key) for key in FIXED if key not in ("space", "seed")}}


def seed_for(given, begin):
    if given.seed is not None:
        return given.seed
    return begin["seed"] if begin else random.SystemRandom().randrange(1 << 31)
