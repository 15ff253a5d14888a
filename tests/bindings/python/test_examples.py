"""What would break: the programs that people begin with: those of examples/python, and the first one of docs/python.md."""

import os
import pathlib
import re

import jobs

ROOT = pathlib.Path(os.environ["SOURCE_DIR"])
EXAMPLES = ROOT / "examples/python"


def test_all_reduce():
    assert sorted(jobs.tuttirun(3, EXAMPLES / "all_reduce.py").split("\n")) == ["", *(f"rank {r} of 3: [6. 6. 6. 6.]" for r in range(3))]


def test_ring():
    assert sorted(jobs.tuttirun(3, EXAMPLES / "ring.py").split("\n"))[1:] == [f"rank {r}: [111 111 111]" for r in range(3)]


def test_regression():
    """Any number of ranks learns the same."""
    alone, together = (jobs.tuttirun(ranks, EXAMPLES / "regression.py") for ranks in (1, 3))
    assert "step 0: loss 0.6931" in alone and float(re.search(r"(\S+) % of", alone)[1]) > 95
    assert alone == together


def test_the_page(tmp_path):
    program = (ROOT / "docs/python.md").read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "hello.py").write_text(program)
    assert "rank 1 of 2: [3. 3. 3. 3.]" in jobs.tuttirun(2, tmp_path / "hello.py")
