"""What would break: that a collective of Python gives on every rank what NumPy computes, and writes nothing else."""

import jobs
import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_against_numpy(ranks):
    jobs.tuttirun(ranks, "collectives_main.py", jobs.seed_of())
