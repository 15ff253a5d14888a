"""names.py ROOT [--update]: prints names that files of several folders of the library have, and tags that several
structs of the library and of include/ have; exits with 1 when there is one that same_name.txt does not list, or that
lists what is no longer so."""
import os
import re
import sys
from collections import defaultdict

sys.dont_write_bytecode = True
import tables

# Anywhere, so that also tags inside of other structs, and of types of functions and variables, count.
STRUCT = re.compile(r"\b(?:struct|union|enum)\s+(?:__attribute__\(\(.*\)\)\s*)?(\w+)\s*\{")


def main():
    root, update = sys.argv[1], "--update" in sys.argv[2:]
    named = defaultdict(set)
    for path in tables.library_files(root):
        named[os.path.splitext(os.path.basename(path))[0]].add(os.path.dirname(path))
    for path in tables.library_files(root) + [p for p in tables.files_of(root) if p.startswith("include/")]:
        for tag in STRUCT.findall(tables.text_of(root, path)):
            named["struct:" + tag].add(path)
    found = {(name, str(len(paths))): "stands for several things: " + " ".join(sorted(paths))
             for name, paths in named.items() if len(paths) > 1}
    sys.exit(tables.judge(os.path.join(root, "tests/lint/same_name.txt"), found, update) != 0)


main()
