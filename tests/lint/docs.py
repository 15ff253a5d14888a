"""docs.py ROOT [BUILD]: what the documents claim and a command can check.

Links resolve; blocks of code are closed; paths, functions and public names exist, on some pages in the headers; variables are those of core/env.h,
algorithms those of the table; numbers behind a constant are those of its #define; options are in the programs' --help
(with BUILD); the picture of the folders is that of layers.txt, the table of locks that of the mutexes; README's ratios
are those of performance.md; lines are short. Exits with 1 after complaints.
docs_invented.txt has the names that a page makes up for a walk."""
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import tables

WIDTH = 100
ENVIRONMENT, LAYERS_PAGE = "docs/environment.md", "docs/architecture.md"
PUBLIC_PAGES = ("docs/coming-from.md",)
ALGORITHMS = "collectives/plan/algorithm_table.h"
SUFFIXES = r"\.(?:c|h|cc|py|sh|md|txt|svg|cmake|patch)"
BUILT = {"tuttirun": "launch", "tutti-plan": "tools", "tutti-trace": "tools", "tutti-top": "tools", "tutti-info": "tools",
         "tutti-report": "tools", "tutti-sweep": "tools",
         "gpt": "examples/gpt", "gpt_cuda": "examples/gpt_cuda",
         "parameter_server": "examples/parameter_server", "inference_server": "examples/inference_server",
         "limits": "perf", "fault_main": "tests", "overlap": "perf"}
IN_TREE = ("perf/compare", "perf/regress", "perf/scale", "perf/training", "perf/spawned")
# Options of programs that are not ours, where a page names them alone.
FOREIGN = {"--mca", "--help", "--preset", "--build"}


class Page:
    def __init__(self, root, path):
        self.path, self.text = path, tables.text_of(root, path)
        self.prose, self.code = [], []  # (number, line)
        self.bad_fences = []  # (number of the line, why)
        opened = 0  # the line of the fence that is open
        previous_is_code = False
        blank = True
        for number, line in enumerate(self.text.split("\n"), 1):
            fence = re.fullmatch(r"\s*```(.*)", line)
            if fence and re.fullmatch(r"" if opened else r"[\w+-]*", fence[1].rstrip()):
                opened = 0 if opened else number
                continue
            if fence:
                self.bad_fences.append((number, "text behind a fence other than the language of a block that it opens"))
            is_code = opened or (line.startswith("    ") and (blank or previous_is_code))
            (self.code if is_code else self.prose).append((number, line))
            previous_is_code, blank = is_code, not line.strip()
        if opened:
            self.bad_fences.append((opened, "opens a block that is not closed"))

    def spans(self):
        """What stands in backticks, also over the end of a line."""
        text = "\n".join(line for _, line in self.prose)
        return [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", text)]


def pages_of(root):
    return [Page(root, path) for path in tables.files_of(root) if path.endswith(".md")]


def check_links(root, page, said):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.text):
        if re.match(r"[a-z]+://", target):
            continue
        file, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page.path), file)) if file else page.path
        if not os.path.exists(os.path.join(root, path)):
            said(page, target, "a link to nothing")
        elif anchor and anchor not in anchors_of(tables.text_of(root, path)):
            said(page, target, "there is no such heading")


def anchors_of(text):
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, re.M)}


def check_names(tree, page, said):
    for path in re.findall(rf"(?<![\w./-])((?:{tree.folders})/[\w./-]*\w)(?![\w<*{{])", page.text):
        if path not in tree.files and path.rstrip("/") not in tree.dirs:
            said(page, path, "there is no such file")
    for span in page.spans():
        if re.fullmatch(rf"[\w./-]+{SUFFIXES}", span) and os.path.basename(span) not in tree.names:
            said(page, span, "there is no file of that name")
        if re.fullmatch(r"\w+_\w+", span) and span not in tree.parts:
            said(page, span, "no such name in the sources")
        tag = re.fullmatch(r"struct (\w+)", span)
        if tag and tag[1] not in tree.tags:
            said(page, span, "there is no such struct")
    whole_spans = [span for span in page.spans() if re.fullmatch(r"\w+\(\)", span)]
    for called in whole_spans + [name for _, line in page.code for name in re.findall(r"\b\w+\(\)", line)]:
        if called[:-2] not in tree.called:
            said(page, called, "there is no such function")
    for name in set(re.findall(r"\b(tutti_[a-z0-9_]*[a-z0-9]|TUTTI_[A-Z0-9_]*[A-Z0-9])\b(?!_|\*|\.)", page.text)):
        if name not in tree.words:
            said(page, name, "no such name in the sources")


def check_public(root, page, said):
    """A page for users of other libraries names what our headers have, also where the sources have more."""
    declared = set(re.findall(r"\b(?:tutti|TUTTI)_\w+", "".join(tables.text_of(root, f"include/tutti/{name}.h")
                                                               for name in ("tutti", "train", "rpc"))))
    variables = set(re.findall(r'"(TUTTI_[A-Z_]+)"', tables.text_of(root, "core/env.h")))
    for name in sorted(set(re.findall(r"\b(?:tutti|TUTTI)_\w+", page.text)) - declared - variables):
        said(page, name, "is not in the public headers")


def check_fences(page, said):
    for number, why in page.bad_fences:
        said(page, f"line {number}", why)


def check_options(helps, page, said):
    lines = [line for _, line in page.code] + page.spans()
    for line in lines:
        program = None
        for word in re.split(r"\s#\s|\s{3,}", line.strip())[0].split():
            name = word if word in helps else os.path.basename(word)
            if name in helps:
                program = name
            elif word in ("|", "&&", ";", "&") or word.startswith(("./", "~/")):
                program = None
            elif program and re.match(r"--?[A-Za-z]", word) and word.split("=")[0] not in helps[program]:
                said(page, f"{program} {word}", "not in the program's --help")
    known = FOREIGN.union(*helps.values())
    for span in page.spans():
        option = re.match(r"--[a-z][\w-]*", span)
        if option and option[0] not in known:
            said(page, span, "no program here has this option")


def check_verbs(verbs, page, said):
    for line in [line for _, line in page.code] + page.spans():
        for verb in re.findall(r"\btutti-plan ([a-z]+)", line):
            if verb not in verbs:
                said(page, f"tutti-plan {verb}", "not in the program's --help")


def check_numbers(tree, page, said):
    """NAME (1,024): the number of its #define, or of one of them."""
    for name, number in re.findall(r"\b([A-Z][A-Z0-9_]+[A-Z0-9])`?\s\(([\d,]+)\)", page.text):
        defined = tree.numbers.get(name)
        if defined and number.replace(",", "") not in defined:
            said(page, f"{name} {number}", f"is {' or '.join(sorted(defined))} in the sources")


def check_widths(page, said):
    long = [number for number, line in page.prose
            if len(line) > WIDTH and not line.startswith(("|", "![")) and " " in line.strip()]
    if long:
        said(page, "width", f"lines of more than {WIDTH} columns: {', '.join(map(str, long[:9]))}")


def check_variables(root, pages, said):
    table = set(re.findall(r'"(TUTTI_[A-Z_]+)"', tables.text_of(root, "core/env.h")))
    page = next((page for page in pages if page.path == ENVIRONMENT), None)
    if not page:
        sys.exit(f"docs.py: there is no {ENVIRONMENT}")
    for name in sorted(table - set(re.findall(r"TUTTI_[A-Z_]+", page.text))):
        said(page, name, "is in core/env.h and not here")
    for name in sorted(set(re.findall(r"^    (TUTTI_[A-Z_]+) ", page.text, re.M)) - table):
        said(page, name, "is here and not in core/env.h")


def check_algorithms(root, pages, said):
    """The list of TUTTI_ALGO is that of the table of algorithms, and each name of it is explained."""
    table = {}
    for large, name in re.findall(r"\bX\(([A-Z_]+), \w+, (\w+),|$", tables.text_of(root, ALGORITHMS)):
        table.setdefault(large.lower(), set()).add(name)
    for large in re.findall(r"\bWINDOW\(([A-Z_]+)\)", tables.text_of(root, ALGORITHMS)):
        table.setdefault(large.lower(), set()).add("window")
    page = next(page for page in pages if page.path == ENVIRONMENT)
    listed = {}
    for collectives, names in re.findall(r"^    ([a-z_]+(?:, [a-z_]+)*)  +([a-z_]+(?:, [a-z_]+)+)$", page.text, re.M):
        for collective in collectives.split(", "):
            listed[collective] = set(names.split(", "))
    for collective in sorted(set(table) - {""} | set(listed)):
        missing = table.get(collective, set()) ^ listed.get(collective, set())
        if missing:
            said(page, f"{collective}: {', '.join(sorted(missing))}", f"is in one of this page and {ALGORITHMS}")
    rows = page.text.partition("| name | how the data go |")[2].partition("\n\n")[0]
    explained = set(re.findall(r"^\| ([a-z_]+) \| \S", rows, re.M))
    for name in sorted(set().union(*table.values()) - {""} ^ explained):
        said(page, f"row of {name}", f"is in one of this page and {ALGORITHMS}")


def check_locks(root, pages, said):
    """The table of locks has each file of the library that has a mutex."""
    page = next(page for page in pages if page.path == LAYERS_PAGE)
    rows = page.text.partition("<!-- locks -->")[2].partition("\n\n")[2].partition("\n\n")[0]
    listed = {path for row in re.findall(r"^\| ([^|]*) \|", rows, re.M) for path in re.findall(r"`([^`]+)`", row)}
    have = {path for path in tables.library_files(root)
            if re.search(r"^\s*(?:static )?pthread_(?:mutex|rwlock)_t \w", tables.text_of(root, path), re.M)}
    for path in sorted(listed ^ have):
        said(page, path, "has a lock and is not in the table, or the other way round")


def check_ratios(pages, said):
    """README's ratios are rows of the table in performance.md."""
    text = {page.path: page.text for page in pages}
    rows = text.get("docs/performance.md", "").partition("<!-- peers -->")[2].partition("<!-- end -->")[0].split("\n")
    for page in pages:
        for row in re.findall(r"^\| \d+ \| (?:shared memory|zero copy|TCP) \|.*$", page.text, re.M):
            if page.path == "README.md" and row not in rows:
                said(page, row, "is not a row of docs/performance.md")
        if page.path == "README.md" and "*Fast.*" in page.text:
            check_range(page, said)


def check_range(page, said):
    """What README promises is the least and the greatest ratio of its rows of shared memory."""
    cells = " ".join(re.findall(r"^\| \d+ \| shared memory \|(.*)$", page.text, re.M))
    ratios = [float(cell) for cell in re.findall(r"\d+\.\d+", cells)]
    promise = re.search(r"([\d.]+) to ([\d.]+)", page.text.partition("*Fast.*")[2].partition("\n- ")[0])
    if not promise or not ratios:
        said(page, "Fast", "has no range of ratios, or there is no table of them")
        return
    least, greatest = f"{min(ratios):.1f}", f"{max(ratios):.1f}"
    if promise.groups() != (least, greatest):
        said(page, promise[0], f"its table has {least} to {greatest}")


def check_picture(root, pages, said):
    """Each line of the picture has the folders of a layer before its |, the highest first."""
    page = next((page for page in pages if page.path == LAYERS_PAGE), None)
    if not page:
        sys.exit(f"docs.py: there is no {LAYERS_PAGE}")
    picture = page.text.partition("<!-- layers -->")[2].split("```")
    drawn = [line.split("|")[0].split() for line in (picture[1] if len(picture) > 1 else "").split("\n")
             if line.strip() and not line.strip().startswith("--")]
    layers = [line.split(":")[0].split() for line in tables.lines_of(os.path.join(root, "tests/lint/layers.txt"))]
    # A layer may be drawn on several lines.
    flat = [folder for line in drawn for folder in line]
    for layer in reversed(layers):
        here, flat = flat[:len(layer)], flat[len(layer):]
        if set(here) != set(layer):
            said(page, " ".join(layer), f"is a layer of layers.txt; the picture has: {' '.join(here) or 'nothing'}")
            return
    if flat:
        said(page, " ".join(flat), "is in the picture and not in layers.txt")


class Tree:
    """The files, and what the sources name."""

    def __init__(self, root):
        self.files = set(tables.files_of(root))
        self.names = {os.path.basename(path) for path in self.files}
        self.dirs = set()
        for path in self.files:
            parts = path.split("/")
            self.dirs.update("/".join(parts[:i]) for i in range(1, len(parts)))
        self.folders = "|".join(sorted({path.split("/")[0] for path in self.files if "/" in path and path[0] != "."}))
        self.words, self.called, self.tags = set(), set(), set()
        self.numbers = {}  # {name: those of its #defines}
        self.parts = {name.partition(".")[0] for name in self.names}
        for path in self.files - {"tests/lint/docs_invented.txt"}:
            if path.endswith((".c", ".h", ".cc", ".py", ".sh", ".txt", ".in")) or path.startswith(("script/", "perf/")):
                text = tables.text_of(root, path)
                self.words.update(re.findall(r"\b(?:tutti|TUTTI)_\w+", text))
                self.parts.update(re.findall(r"\b\w+_\w+", text))
                self.called.update(re.findall(r"\b(\w+)\(", text))
                self.tags.update(re.findall(r"\bstruct (\w+)", text))
                for name, number in re.findall(r"^#define\s+(\w+)\s+(\d+)u?\b", text, re.M):
                    self.numbers.setdefault(name, set()).add(number)


def helps_of(root, build):
    """{program: options}: of scripts those in their text, of programs those in their --help."""
    found = {}
    for path in tables.files_of(root):
        if path.startswith("script/"):
            found[path] = options_in(tables.text_of(root, path))
    programs = {path: [sys.executable, os.path.join(root, path)] for path in IN_TREE}
    collectives = re.findall(r'\{"(\w+)", CALL_', tables.text_of(root, "perf/collectives.c"))
    names = dict(BUILT, rpc_perf="perf", **{f"{name}_perf": "perf" for name in collectives})
    programs.update({name: [os.path.join(build, folder, name)] for name, folder in names.items()})
    running = {name: subprocess.Popen([*command, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True) for name, command in programs.items()}
    found.update({name: options_in(process.communicate()[0]) for name, process in running.items()})
    if "script/faults" in found:
        found["script/faults"] |= found["fault_main"]
    return found


def options_in(text):
    """The options, and the verbs of tutti-plan."""
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text)) | set(re.findall(r"tutti-plan ([a-z]+)", text))


def main():
    root, build = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    found = {}

    def said(page, what, why):
        found.setdefault((page.path, what.replace(" ", "_")), why)

    pages, tree = pages_of(root), Tree(root)
    helps = helps_of(root, build) if build else None
    for page in pages:
        check_fences(page, said)
        check_links(root, page, said)
        check_names(tree, page, said)
        check_widths(page, said)
        check_numbers(tree, page, said)
        if page.path in PUBLIC_PAGES:
            check_public(root, page, said)
        if helps:
            check_verbs(helps["tutti-plan"], page, said)
            check_options(helps, page, said)
    check_variables(root, pages, said)
    check_algorithms(root, pages, said)
    check_picture(root, pages, said)
    check_locks(root, pages, said)
    check_ratios(pages, said)
    sys.exit(tables.judge(os.path.join(root, "tests/lint/docs_invented.txt"), found, False) != 0)


main()
