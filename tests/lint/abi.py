#!/usr/bin/env python3
"""abi.py INCLUDE: prints a C file that defines every function of the public headers. Built with -g it has the binary
interface of libtutti.so and nothing else, for tests/lint/abi_since.sh."""

import pathlib
import re
import sys

for header in ("tutti", "train", "parallel", "rpc"):
    text = (pathlib.Path(sys.argv[1]) / "tutti" / f"{header}.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    print(f"#include <tutti/{header}.h>")
    for match in re.finditer(r"^(?!typedef|static|extern)([a-z][\w \*]*?\btutti_\w+\([^;{]*\))\s*;", text, re.M):
        print(match.group(1), "{ __builtin_trap(); }")
