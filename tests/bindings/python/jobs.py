"""What the tests share: jobs of several ranks, each a Python program of this folder."""

import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
BUILD = pathlib.Path(os.environ["BUILD_DIR"])
LIMIT_S = 120  # ends a hang; many times what a job takes

# A shell's background job ignores SIGINT, and so would the ranks, whose calls it has to interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def seed_of():
    """TEST_SEED repeats a run."""
    seed = int(os.environ.get("TEST_SEED", secrets.randbelow(2**31)))
    print(f"TEST_SEED={seed}")
    return seed


def tuttirun(ranks, program, *arguments, environment=None, options=()):
    """A job that ends well: what its ranks have printed."""
    command = [BUILD / "launch/tuttirun", "--timeout", str(LIMIT_S), "-n", str(ranks), *options, sys.executable, HERE / program, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=HERE, env=environment)
    assert done.returncode == 0, f"{program} {arguments} on {ranks} ranks: exit code {done.returncode}:\n{done.stdout}"
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def loose_ranks(ranks, program, *arguments):
    """Ranks without a launcher that would end them: [(exit code, output)]."""
    common = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), TUTTI_SECRET=secrets.token_hex(16))
    processes = []
    for rank in range(ranks):
        environment = dict(common, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
        command = [sys.executable, HERE / program, *map(str, arguments)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment))
    try:
        return [(p.returncode, out) for p, (out, _) in [(p, p.communicate(timeout=LIMIT_S)) for p in processes]]
    finally:
        for p in processes:
            p.kill()
            p.wait()


def on_fake_gpus(ranks, folder):
    """The environment of ranks with a GPU each, of the driver in tests/cuda/driver."""
    gpus = {"FAKE_CUDA_DEVICES": str(ranks), "FAKE_CUDA_MACHINE": str(folder / "machine")}
    return dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "tests/cuda/driver"), **gpus)
