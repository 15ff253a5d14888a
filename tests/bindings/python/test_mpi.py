"""What would break: programs that are written as for mpi4py."""

import jobs
import pytest


@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_mpi(ranks):
    jobs.tuttirun(ranks, "mpi_main.py")
