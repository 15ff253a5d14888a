"""words.py ROOT [--update]: counts the words that docs/glossary.md replaces, by folder, and compares with words.txt.

Exits with 1 when a count has risen, when it has fallen and words.txt still has the higher one, when the glossary has no
row for a word of old_words.txt, and when a statement in a comment or text of a C file begins with "Who", or
a comment outside tests/ with "What"."""
import os
import re
import sys
from collections import Counter

sys.dont_write_bytecode = True
import tables

# These have the words themselves.
UNREAD = ("docs/glossary.md", "tests/house/words.txt", "tests/house/old_words.txt")
SEEDS = "tests/fuzz/seeds/"  # inputs of any bytes: only their names are read

# In names of seeds and mutants alone: elsewhere a note may be a note.
NAMED = (SEEDS, "tests/mutants/")
NOT_NAMED = {"notes": ("notes", "call records")}

# A comment, with the // lines that follow; a text, with the texts that follow; a character.
C_WORDS = re.compile(r"""/\*(?P<comment>.*?)\*/|(?P<lines>//[^\n]*(?:\n\s*//[^\n]*)*)"""
                     r"""|(?P<text>"(?:\\.|[^"\\])*"(?:\s*"(?:\\.|[^"\\])*")*)|'(?:\\.|[^'\\])*'""", re.S)


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


def free_relatives(root):
    """[(path, statement)]: those in comments and texts of C files that begin with a free relative instead of a noun."""
    found = []
    for path in tables.files_of(root):
        if not path.endswith((".c", ".h")) or not re.search("Who |What ", tables.text_of(root, path)):
            continue
        for match in C_WORDS.finditer(tables.text_of(root, path)):
            said = re.sub(r"^\s*\*", "", match["comment"] or "", flags=re.M)
            said += re.sub(r"^\s*//", "", match["lines"] or "", flags=re.M)
            said += re.sub(r"\\n", " ", re.sub(r'(?<!\\)"\s*"', "", match["text"] or '""')[1:-1])
            said = " ".join(said.split())
            found += [(path, who) for who in re.findall(r"(?:^|[.:;!?] )(Who [^.]*)", said)]
            if not path.startswith("tests/") and match["comment"] and said.startswith("What "):
                found.append((path, said.split(".")[0]))
    return found


def without_row(root, forms):
    """The words of old_words.txt that the glossary lacks."""
    return [word for word in tables.lines_of(os.path.join(root, "tests/house/old_words.txt")) if word not in forms]


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
        text = path if path.startswith(SEEDS) else path + "\n" + tables.text_of(root, path)
        words = [word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", text)]
        said = [word for word in words if word in forms]
        for form in said + [" ".join(re.split(r"[\s_*]+", pair)) for pair in pairs.findall(text.lower())]:
            counts[folder_of(path), forms[form][0]] += 1
        if path.startswith(NAMED):
            for word in re.findall("[a-z]+", os.path.basename(path)):
                counts[folder_of(path), word] += word in NOT_NAMED
    instead = {word: say for word, say in [*forms.values(), *NOT_NAMED.values()]}
    found = {(folder, word.replace(" ", "_"), str(count)): f"times in this folder; say: {instead[word]}"
             for (folder, word), count in counts.items() if count}
    bad = tables.judge(os.path.join(root, "tests/house/words.txt"), found, update)
    if bad:
        print("If there are fewer than there were: python3 tests/house/words.py . --update")
    vague = free_relatives(root)
    for path, said in vague:
        print(f"{path}: begin with a noun: which rank, thread, value: '{said}'")
    lost = without_row(root, forms)
    for word in lost:
        print(f"docs/glossary.md: no row with '{word}', which tests/house/old_words.txt keeps out")
    sys.exit(bad != 0 or bool(vague) or bool(lost))


main()
