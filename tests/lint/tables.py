"""What the checks of this folder share: the files of the tree, and tables of known findings that may only shrink.

A table has one finding a line: its words, then the reason why it stays. Lines that begin with # are comments."""
import os
import subprocess

LIBRARY = ("core", "transport", "collectives", "train", "rpc")
TO_DO = "to do"


def lines_of(path):
    """The lines of a table without comments and empty lines; none where there is no such table."""
    if not os.path.exists(path):
        return []
    with open(path) as table:
        return [line.rstrip("\n") for line in table if line.strip() and not line.startswith("#")]


def files_of(root):
    """The paths of all files that git tracks or would; in a tree without git, of all files."""
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                                capture_output=True, text=True, check=True).stdout.split("\n")
        return sorted(path for path in set(listed) if path and os.path.isfile(os.path.join(root, path)))
    found = []
    for folder, _, names in os.walk(root):
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


def library_files(root):
    return [path for path in files_of(root) if path.split("/")[0] in LIBRARY and path.endswith((".c", ".h"))]


def text_of(root, path):
    with open(os.path.join(root, path), errors="replace") as file:
        return file.read()


def judge(path, found, update):
    """Compares what was found, {words: explanation}, with the table at path. Returns the number of complaints."""
    known, bad = {}, 0
    width = len(next(iter(found), ("", "")))
    for line in lines_of(path):
        words = line.split(None, width)
        known[tuple(words[:width])] = words[width] if len(words) > width else ""
    if update:
        rewrite(path, {words: known.get(words, TO_DO) for words in found})
        return 0
    for words in sorted(set(found) - set(known)):
        print(f"{' '.join(words)}: {found[words]}")
        bad += 1
    for words in sorted(set(known) - set(found)):
        print(f"{path}: '{' '.join(words)}' is no longer so: remove this line")
        bad += 1
    for words in sorted(words for words, reason in known.items() if not reason):
        print(f"{path}: '{' '.join(words)}' has no reason")
        bad += 1
    return bad


def rewrite(path, entries):
    """Writes a table anew; the comments at its beginning stay."""
    head = []
    if os.path.exists(path):
        with open(path) as table:
            head = [line for line in table if line.startswith("#")]
    with open(path, "w") as table:
        table.writelines(head)
        table.writelines(f"{' '.join(words)}  {reason}\n" for words, reason in sorted(entries.items()))
