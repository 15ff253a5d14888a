"""What perf/compare, perf/regress and perf/scale share: programs run in turns, and what is made of their times."""
