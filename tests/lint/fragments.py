"""fragments.py ROOT PAGE...: the C of pages compiles, between what fragments.h declares. Exits with 1 after the compiler's complaints.

A fragment is a block of C, or an indented one with calls of Tutti. With a function in it it stands alone, else in one. A line of
three dots is what the reader fills in."""
import os
import re
import subprocess
import sys

FUNCTION = re.compile(r"^\s*(?:static |int )[^;=]*\)\s*\{", re.M)
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused", "-Wno-unused-parameter", "-Wno-sign-compare", "-Werror", "-fsyntax-only"]


def fragments_of(text):
    fenced = re.findall(r"^```c\n(.*?)^```$", text, re.S | re.M)
    indented = re.findall(r"(?:^    .*\n|^\n(?=    ))+", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M)
    return fenced + [block for block in indented if re.search(r"\btutti_\w+\(.*(?:;|\|\|)(?:  .*)?$", block, re.M)]


def program_of(fragments):
    whole = [fragment for fragment in fragments if FUNCTION.search(fragment)]
    parts = [f"tutti_status part{i}(void);\ntutti_status part{i}(void)\n{{\n{fragment}\nreturn TUTTI_OK;\n}}"
             for i, fragment in enumerate(fragments) if fragment not in whole]
    return re.sub(r"^\s*\.\.\.", ";", "\n".join(['#include "fragments.h"', *whole, *parts]), flags=re.M)


def main(root, *pages):
    failed = False
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as file:
            fragments = fragments_of(file.read())
        name = os.path.basename(page).partition(".")[0].replace("-", "_").upper()
        command = ["gcc", *STRICT, f"-D{name}", f"-I{root}/include", f"-I{root}/tests/lint", "-x", "c", "-"]
        said = subprocess.run(command, input=program_of(fragments), capture_output=True, text=True)
        if said.returncode or not fragments:
            print(f"{page}: {said.stderr or 'has no C'}")
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
