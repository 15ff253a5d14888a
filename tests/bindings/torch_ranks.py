"""Ranks for the tests of tutti.torch: forked from a process that has imported torch, which takes seconds."""

import os
import pickle
import shutil
import signal
import sys
import tempfile
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

import tutti.torch  # registers the backend

LIMIT_S = 240  # ends what hangs; many times what a test takes

torch.set_num_threads(1)


def start(rank: int, size: int, folder: str, backend: str = "tutti", timeout_s: float = 60) -> None:
    store = dist.FileStore(os.path.join(folder, f"store-{backend}"), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s))


def _child(function, rank: int, size: int, folder: str, arguments) -> int:
    signal.alarm(LIMIT_S)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    try:
        result = function(rank, size, folder, *arguments)
    except SystemExit:  # of a process that the test forked
        raise
    except BaseException:
        traceback.print_exc()
        return 1
    with open(os.path.join(folder, f"result-{rank}"), "wb") as file:
        pickle.dump(result, file)
    return 0


def _fork(function, rank: int, size: int, folder: str, arguments, whole_exit: bool) -> int:
    pid = os.fork()
    if pid != 0:
        return pid
    code = _child(function, rank, size, folder, arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    if whole_exit:
        sys.exit(code)
    os._exit(code)


def launch(size: int, function, *arguments, whole_exit: bool = False):
    """Runs function(rank, size, folder, ...) in processes; (results, wait statuses) by rank. whole_exit: these end as
    programs do, through the interpreter's own end."""
    sys.stdout.flush()
    folder = tempfile.mkdtemp()  # not one that removes itself, which the end of a child would do
    pids = [_fork(function, rank, size, folder, arguments, whole_exit) for rank in range(size)]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    results = []
    for rank in range(size):
        path = os.path.join(folder, f"result-{rank}")
        results.append(pickle.load(open(path, "rb")) if os.path.exists(path) else None)
    shutil.rmtree(folder)
    return results, codes


def run(size: int, function, *arguments, **named):
    """As launch(), where every rank has to end well."""
    results, codes = launch(size, function, *arguments, **named)
    assert codes == [0] * size, f"{function.__name__} of {size} ranks ended with {codes}"
    return results


def run_all(tests) -> None:
    """Each of tests takes nothing; names on the command line choose among them."""
    chosen = sys.argv[1:]
    for test in tests:
        if chosen and test.__name__ not in chosen:
            continue
        test()
        print(f"ok {test.__name__}", flush=True)


def raised(kinds, call, *words) -> str:
    """The message of what call raises, which has all of words, whether or not they begin it."""
    try:
        call()
    except kinds as error:
        text = str(error)
        assert all(word.lower() in text.lower() for word in words), f"{words} are not all in: {text}"
        return text
    raise AssertionError(f"{kinds} was not raised")
