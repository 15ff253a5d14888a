"""What would break: the results of calls, wrong buffers that send something or write beside them, works, groups, messages,
operations, tasks of asyncio that wait for works, and programs that are written as for mpi4py."""

import jobs
import pytest


@pytest.mark.parametrize("ranks,programs", [
    (1, ["collectives", "flights", "mpi_types", "mpi_functions", "mpi"]),
    (2, ["collectives", "refused", "flights", "mpi_types", "mpi_functions", "mpi", "awaits"]),
    (3, ["collectives", "refused", "mpi_types", "mpi_functions", "mpi", "awaits"]),
    (4, ["collectives", "flights", "mpi"]),
    (8, ["collectives", "mpi_types", "mpi_functions"]),
])  # fmt: skip
def test_calls(ranks, programs):
    jobs.tuttirun(ranks, "several_main.py", jobs.seed_of(), *(f"{program}_main.py" for program in programs))


def test_on_gpus(tmp_path):
    jobs.tuttirun(2, "device_main.py", environment=jobs.on_fake_gpus(2, tmp_path))
