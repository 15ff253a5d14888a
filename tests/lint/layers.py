"""layers.py ROOT [--objects FOLDER] [--programs BUILD] [--update]: who may know whom.

layers.txt has the folders from the bottom up. Prints each include, and with --objects each linked symbol, that points
to a higher folder or to a sibling, each cycle of headers that include each other, and each cycle of more than two files
that link each other; exits with 1 when there is one. What upward.txt and cycles.txt list is let through, and a line of
theirs that is no longer needed is an error; --update writes both anew. FOLDER has the object of a.c as a.c.o.
--programs looks for cycles in the programs, too: BUILD is CMake's folder, which has the object of perf/a.c as
perf/CMakeFiles/PART.dir/a.c.o. A part is a program or a library of objects."""
import argparse
import glob
import os
import re
import subprocess
import sys
from collections import defaultdict

sys.dont_write_bytecode = True
import tables

SOURCES = tables.LIBRARY + ("include", "launch", "perf", "examples", "bindings", "tools")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>|(.*))', re.M)
PROGRAMS = ("tools", "launch", "perf")
API = "tutti_*"


class Layers:
    """The table: a line is a layer, `folder... [: what it sees of the lower layers, if not all of it]`: folders, and single
    files without .c and .h."""

    def __init__(self, root, path):
        self.height, self.sees, self.complaints = {}, {}, []
        for height, line in enumerate(tables.lines_of(path)):
            folders, colon, seen = line.partition(":")
            for folder in folders.split():
                if not os.path.isdir(os.path.join(root, folder)):
                    self.complaints.append(f"{path}: there is no folder {folder}")
                self.height[folder] = height
                self.sees[folder] = seen.split() if colon else None

    def folder_of(self, path):
        """The folder of the table that a file is in, or else one around it."""
        folder = os.path.dirname(path)
        while folder and folder not in self.height:
            folder = os.path.dirname(folder)
        return folder

    def allows(self, source, target, symbol=None):
        """Whether a file may know another one, or link a symbol of its."""
        here, there = self.folder_of(source), self.folder_of(target)
        if here == there:
            return True
        seen = self.sees.get(here)
        if seen is not None and symbol and symbol.startswith("tutti_") and API in seen:
            return True
        if self.height.get(there, 1 << 30) >= self.height.get(here, -1):
            return False
        return seen is None or there == "include/tutti" or os.path.splitext(target)[0] in seen or any(
            there == name or there.startswith(name + "/") for name in seen)


def target_of(root, source, quoted, bracketed):
    """The path from the root of what a file includes; None for the system's headers."""
    if bracketed:
        there = [path for path in (bracketed, "include/" + bracketed) if os.path.isfile(os.path.join(root, path))]
        return there[0] if there else "include/" + bracketed if bracketed.startswith("tutti/") else None
    header = quoted
    near = os.path.normpath(os.path.join(os.path.dirname(source), header))
    for path in (near, header, "include/" + header):
        if os.path.exists(os.path.join(root, path)):
            return path
    return near if "/" not in header or header.startswith(".") else header


def included(root, layers, found):
    """Adds the includes that are not allowed to found. Returns the number of headers that are not there or include
    each other."""
    bad, between_headers = 0, defaultdict(set)
    for source in tables.files_of(root):
        if source.split("/")[0] not in SOURCES or not source.endswith((".c", ".h", ".cc")):
            continue
        if source.split("/")[0] in tables.LIBRARY and os.path.dirname(source) not in layers.height:
            print(f"{source}: its folder is not in layers.txt")
            bad += 1
        for quoted, bracketed, other in INCLUDE.findall(tables.text_of(root, source)):
            if other:
                print(f"{source}: includes {other}, which is not a name")
                bad += 1
                continue
            target = target_of(root, source, quoted, bracketed)
            if not target:
                continue
            if source.endswith(".h") and target.endswith(".h"):
                between_headers[source].add(target)
            if not os.path.exists(os.path.join(root, target)):
                print(f"{source}: includes {target}, which is not there")
                bad += 1
            elif not layers.allows(source, target):
                found[source, target] = "may not be included"
    for cycle in cycles_of(between_headers, 2):
        print("headers that include each other: " + " ".join(cycle))
        bad += 1
    return bad


def parts_of(build):
    """{folder of objects: folder of their sources} of all programs."""
    parts = {part: folder for folder in PROGRAMS for part in glob.glob(f"{build}/{folder}/CMakeFiles/*.dir")}
    for folder in PROGRAMS:
        if folder not in parts.values():
            sys.exit(f"layers.py: there are no objects of {folder} in {build}")
    return parts


def objects_of(root, part, sources):
    """{path of an object: its source, from the root}."""
    found = {}
    for folder, _, names in os.walk(part):
        for path in [os.path.join(folder, name) for name in names if name.endswith((".c.o", ".cc.o"))]:
            source = os.path.normpath(os.path.join(sources, os.path.relpath(path, part)[:-2]))
            # A build folder may have objects of files that have moved since.
            if os.path.exists(os.path.join(root, source)):
                found[path] = source
    return found


def linked(root, parts):
    """{file: {file: symbols}}: who links whose symbols. parts is {folder of objects: folder of their sources}. Several
    parts may define a symbol, such as main: a file links its own part's, else that of every part."""
    objects = {path: (part, source) for part, sources in parts.items()
               for path, source in objects_of(root, part, sources).items()}
    if not objects:
        sys.exit(f"layers.py: there are no objects in {' '.join(parts)}")
    defined, wanted = defaultdict(lambda: defaultdict(set)), []
    text = subprocess.run(["nm", "-A", "-P"] + sorted(objects), capture_output=True, text=True, check=True).stdout
    for line in text.split("\n"):
        match = re.match(r"(.*\.cc?\.o): (\S+) (\w)", line)
        if match and match[3] in "Uwv":
            wanted.append((*objects[match[1]], match[2]))
        elif match and match[3].isupper():
            part, source = objects[match[1]]
            defined[match[2]][part].add(source)
    links = defaultdict(lambda: defaultdict(list))
    for part, source, symbol in wanted:
        definers = defined.get(symbol, {})
        for target in definers.get(part) or set().union(*definers.values()):
            if target != source and symbol not in links[source][target]:
                links[source][target].append(symbol)
    return links


def cycles_of(links, least=3):
    """The sets of at least so many files that reach each other, by Tarjan."""
    number, low, path, found = {}, {}, [], []

    def visit(file):
        number[file] = low[file] = len(number)
        path.append(file)
        for other in sorted(links.get(file, ())):
            if other not in number:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in path:
                low[file] = min(low[file], number[other])
        if low[file] == number[file]:
            at = path.index(file)
            if len(path) - at >= least:
                found.append(sorted(path[at:]))
            del path[at:]

    sys.setrecursionlimit(10000)
    for file in sorted(links):
        if file not in number:
            visit(file)
    return found


def named(cycles):
    """{(folder, sizes): members}: a folder's cycles are known by their sizes, which stay as long as files only move."""
    by_folder = defaultdict(list)
    for cycle in sorted(cycles, key=len, reverse=True):
        by_folder[os.path.commonpath(cycle)].append(cycle)
    return {(folder, "+".join(str(len(cycle)) for cycle in those)):
            "files that link each other:\n" + "\n".join("    " + " ".join(cycle) for cycle in those)
            for folder, those in by_folder.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--objects")
    parser.add_argument("--programs")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    lint = os.path.join(options.root, "tests/lint")
    layers = Layers(options.root, os.path.join(lint, "layers.txt"))
    print("".join(complaint + "\n" for complaint in layers.complaints), end="")
    upward, cycles = {}, []
    bad = len(layers.complaints) + included(options.root, layers, upward)
    if options.objects:
        links = linked(options.root, {options.objects: ""})
        for source, targets in links.items():
            for target, symbols in targets.items():
                symbols = [symbol for symbol in symbols if not layers.allows(source, target, symbol)]
                if symbols:
                    upward.setdefault((source, target), "may not be linked: " + " ".join(symbols))
        cycles += cycles_of(links)
    if options.programs:
        cycles += cycles_of(linked(options.root, parts_of(options.programs)))
    if options.objects or options.programs:
        bad += tables.judge(os.path.join(lint, "cycles.txt"), named(cycles), options.update)
    bad += tables.judge(os.path.join(lint, "upward.txt"), upward, options.update)
    sys.exit(bad != 0)


main()
