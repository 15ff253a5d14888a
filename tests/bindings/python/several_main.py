"""One rank of several programs one after the other, since starting Python costs more than most of them: SEED PROGRAM..."""

import pathlib
import runpy
import sys

seed, *programs = sys.argv[1:]
for program in programs:
    sys.argv = [program, seed]
    runpy.run_path(str(pathlib.Path(__file__).parent / program), run_name="__main__")
    print("did", program, flush=True)
