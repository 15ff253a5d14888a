"""page_programs.py blocks PAGE FOLDER [--update] | run PAGE: a page's diffs and commands against the programs that it is about.

blocks: the block behind <!-- diff A B --> is what `diff -U1 A B` says in FOLDER, without numbers of lines. --update writes the
blocks anew. run: each line "$ COMMAND" of a console block is run in this folder, ends with 0 and prints the lines below it.
Exits with 1 after complaints."""
import re
import subprocess
import sys

BLOCK = re.compile(r"(<!-- diff (\S+) (\S+) -->\n\n```diff\n)(.*?)(```\n)", re.S)
LIMIT_S = 300


def diff_of(folder, before, after):
    said = subprocess.run(["diff", "-U1", before, after], cwd=folder, capture_output=True, text=True)
    if said.returncode != 1:
        sys.exit(f"page_programs.py: diff {before} {after}: {said.stderr or 'no difference'}")
    lines = [line[:1] + line[1:].expandtabs(4) for line in said.stdout.split("\n")[2:-1]]
    return re.sub(r"^@@.*", "@@", "".join(line.rstrip() + "\n" for line in lines[1:]), flags=re.M)


def blocks(page, folder, update):
    with open(page) as file:
        text = file.read()
    found, complaints = 0, 0

    def judged(match):
        nonlocal found, complaints
        head, before, after, block, tail = match.groups()
        found += 1
        diff = diff_of(folder, before, after)
        if block != diff and not update:
            print(f"{page}: diff -U1 {before} {after} is\n{diff}")
            complaints += 1
        return head + diff + tail

    text = BLOCK.sub(judged, text)
    if not found or found != text.count("```diff\n"):
        print(f"{page}: {text.count('```diff')} blocks of diff, {found} of them behind a line that says of what")
        complaints += 1
    if update:
        with open(page, "w") as file:
            file.write(text)
    return complaints


def run(page):
    with open(page) as file:
        consoles = re.findall(r"^```console\n(.*?)^```$", file.read(), re.S | re.M)
    steps = [step for console in consoles for step in re.split(r"^\$ ", console, flags=re.M)[1:]]
    if not steps:
        print(f"{page}: has no commands")
        return 1
    for command, expected in (step.split("\n", 1) for step in steps):
        said = subprocess.run(["bash", "-o", "pipefail", "-c", command], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=LIMIT_S)
        if said.returncode or said.stdout != expected:
            print(f"{page}: $ {command}\nexit code {said.returncode}, and it printed\n{said.stdout}instead of\n{expected}"
                  f"with this on stderr\n{said.stderr}")
            return 1
    print(f"{page}: {len(steps)} commands")
    return 0


def main():
    if sys.argv[1:2] == ["blocks"]:
        sys.exit(blocks(sys.argv[2], sys.argv[3], sys.argv[4:] == ["--update"]) != 0)
    sys.exit(run(sys.argv[2]) != 0)


main()
