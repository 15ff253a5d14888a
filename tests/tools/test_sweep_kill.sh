#!/usr/bin/env bash
# slow: 4 s
# What would break: a sweep that is killed at any moment and leaves processes, loses a trial, or counts one twice; one that
# Ctrl-C does not end, or that ends where nohup says otherwise; two at once in a folder, or one in a folder that another has left.
exec python3 -B "$SOURCE_DIR/tests/tools/sweep_kill_cases.py"
