"""words.py ROOT [--update]: counts the words that docs/glossary.md replaces, by folder, and compares with words.txt.

Exits with 1 when a count has risen, when it has fallen and words.txt still has the higher one, and when a statement in
a comment of the library begins with "Who"."""
import os
import re
import sys
from collections import Counter

sys.dont_write_bytecode = True
import tables

# The glossary and what was counted have the words themselves; seeds are inputs of any bytes.
UNREAD = ("docs/glossary.md", "tests/house/words.txt", "tests/fuzz/seeds/")


def replaced(root):
    """{form: (word, what to say instead)} from the last table of the glossary."""
    text = tables.text_of(root, "docs/glossary.md").partition("## Not these words")[2]
    forms = {}
    for row in re.findall(r"^\| ([a-z, ]+) \| (.+) \|$", text, re.M)[1:]:
        first, *others = row[0].split(", ")
        endings = [first + "s", first + "ing", first.removesuffix("e") + "ing"] if " " not in first else []
        forms.update({form: (first, row[1]) for form in [first, *others, *endings]})
    if not forms:
        sys.exit("words.py: docs/glossary.md has no table of words below '## Not these words'")
    return forms


def folder_of(path):
    """The folder that is counted: tests/core, else the first one of the path, so that files may move below it."""
    parts = path.split("/")
    return "/".join(parts[:min(2, len(parts) - 1)]) if parts[0] == "tests" else parts[0] if parts[1:] else "."


def said_with_who(root):
    """[(path, text)]: what in comments of the library begins with a free relative instead of a noun."""
    found = []
    for path in tables.files_of(root):
        if path.split("/")[0] in (*tables.LIBRARY, "include") and path.endswith((".c", ".h")):
            for comment in re.findall(r"/\*([^*]*(?:\*(?!/)[^*]*)*)\*/", tables.text_of(root, path)):
                text = " ".join(re.sub(r"^\s*\*", "", comment, flags=re.M).split())
                found += [(path, said) for said in re.findall(r"(?:^|[.:!?] )(Who [^.]*)", text)]
    return found


def main():
    root, update = sys.argv[1], "--update" in sys.argv[2:]
    forms = replaced(root)
    # As whole words and as whole parts of identifiers; those of two words apart, since one expression for all is slow.
    pairs = "|".join(form.replace(" ", r"[\s_*]+") for form in forms if " " in form) or "0"
    pairs = re.compile(f"(?<![a-z])({pairs})(?![a-z])")
    counts = Counter()
    for path in tables.files_of(root):
        if path.startswith(UNREAD):
            continue
        text = path + "\n" + tables.text_of(root, path)
        words = [word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", text)]
        said = [word for word in words if word in forms]
        for form in said + [" ".join(re.split(r"[\s_*]+", pair)) for pair in pairs.findall(text.lower())]:
            counts[folder_of(path), forms[form][0]] += 1
    instead = {word: say for word, say in forms.values()}
    found = {(folder, word.replace(" ", "_"), str(count)): f"times in this folder; say: {instead[word]}"
             for (folder, word), count in counts.items()}
    bad = tables.judge(os.path.join(root, "tests/house/words.txt"), found, update)
    if bad:
        print("If there are fewer than there were: python3 tests/house/words.py . --update")
    vague = said_with_who(root)
    for path, said in vague:
        print(f"{path}: say which rank, thread or caller: '{said}'")
    sys.exit(bad != 0 or bool(vague))


main()
