"""What would break: calls with wrong buffers that send something or write beside them; works, groups, messages and operations."""

import jobs
import pytest


@pytest.mark.parametrize("ranks", [2, 3])
def test_refused(ranks):
    jobs.tuttirun(ranks, "refused_main.py")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_flights(ranks):
    jobs.tuttirun(ranks, "flights_main.py")
