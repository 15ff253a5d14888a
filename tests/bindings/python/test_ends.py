"""What would break: a rank that hangs, crashes, or is not named, when ranks die, are late, are interrupted, fork or end."""

import os
import subprocess
import sys

import jobs
import pytest


@pytest.mark.parametrize("ranks,arguments", [
    (3, ["interrupted"]), (2, ["interrupted", "recv"]), (2, ["interrupted_wait"]), (2, ["interrupted_await"]), (2, ["interrupted_split"]), (2, ["interrupted_split", "inside"]),
    *((2, ["interrupted_objects", call]) for call in ("recv", "send", "sendrecv")),
    (2, ["exits"]), (2, ["raises"]), (2, ["forked"]), (2, ["garbage"]), (2, ["late"]),
])  # fmt: skip
def test_all_end(ranks, arguments):
    done = jobs.loose_ranks(ranks, "failures_main.py", *arguments)
    for code, out in done:
        assert code == 0 and "ended" in out and "Traceback" not in out, done
    assert arguments != ["exits"] or "done at the end" in done[0][1], done


@pytest.mark.parametrize("case", ["killed", "killed_in_objects", "recovered"])
def test_a_rank_that_is_killed(case):
    done = jobs.loose_ranks(3, "failures_main.py", case)
    assert [code for code, _ in done] == [0, -9, 0], done


@pytest.mark.parametrize("way", ["launcher", "file"])
def test_a_rank_that_is_started_again(way, tmp_path):
    place = [tmp_path / "place"] if way == "file" else []
    out = jobs.tuttirun(3, "recover_main.py", *place, options=["--max-restarts", "1", "--restart", "rank"])
    assert out.count("part from the beginning") == 2 and out.count("rank 1 took the place of one that died") == 1, out


def test_joining(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run([sys.executable, jobs.HERE / "joining_main.py"], cwd=tmp_path, env=environment, timeout=jobs.LIMIT_S)
    assert done.returncode == 0


def test_without_numpy(tmp_path):
    """NumPy is not needed: only its arrays and mem_alloc are."""
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "import array, tutti\n"
        "with tutti.init(world_size=1) as comm:\n"
        "    x = array.array('f', [1, 2]); comm.all_reduce(x); print(list(x))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE).stdout == b"[1.0, 2.0]\n"


def test_a_library_that_is_not_there():
    done = subprocess.run([sys.executable, "-c", "import tutti"], env=dict(os.environ, LIBTUTTI="/nowhere.so"), stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "tutti: there is no libtutti.so.1: /nowhere.so" in done.stderr


def test_signals_at_random_moments():
    command = [sys.executable, "-W", "ignore", jobs.HERE / "interrupts_main.py", str(jobs.seed_of())]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run(command, env=environment, timeout=jobs.LIMIT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and "rounds" in done.stdout, (done.returncode, done.stdout)
