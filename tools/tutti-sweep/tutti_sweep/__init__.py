"""Trials of a program with different hyper-parameters: which, how they run, and what came of them."""
