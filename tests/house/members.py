"""members.py ROOT: prints structs of the library and of its headers with more than 40 direct members, which
tests/house/members.txt (path:struct, reason) does not excuse. A struct inside of another is one member; the members
of one without a name are the outer struct's. A macro that lists members (core/env.h) counts once: it is a table."""
import os
import re
import sys

from tables import files_of, judge, library_files, text_of

LIMIT = 40
STRUCT = re.compile(r"\b(?:struct|union)\s+(\w+)\s*\{|\btypedef\s+(?:struct|union)\s*\{")


def block_end(text, start):
    """The place behind the brace that closes the one before start."""
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[start], 0)
        start += 1
    return start


def count(body):
    """Direct members of a struct: its declarators."""
    members = 0
    while body:
        end = re.search(r"[{;]", body)
        if not end:
            break
        if end.group() == ";":
            declaration, body = body[:end.start()], body[end.end():]
        else:
            close = block_end(body, end.end())
            inner, (tail, _, rest) = body[end.end():close - 1], body[close:].partition(";")
            if not tail.strip() and "enum" not in body[:end.start()]:
                members += count(inner)
                body = rest
                continue
            declaration, body = tail, rest
        declaration = re.sub(r"\([^()]*\)", "", re.sub(r"\([^()]*\)", "", declaration))
        members += (declaration.count(",") + 1) if declaration.strip() else 0
    return members


def structs_of(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    text = re.sub(r"(?m)^[ \t]*#(?:.*\\\n)*.*", "", text)
    for match in STRUCT.finditer(text):
        end = block_end(text, match.end())
        name = match.group(1) or text[end:].split(";")[0].strip()
        yield name, count(text[match.end():end - 1])


def main(root):
    paths = library_files(root) + [path for path in files_of(root) if path.startswith("include/")]
    counts = {(f"{path}:{name}",): n for path in paths if path.endswith((".c", ".h"))
              for name, n in structs_of(text_of(root, path))}
    if "--all" in sys.argv:
        for key, n in sorted(counts.items(), key=lambda item: item[1]):
            print(n, *key)
    found = {key: f"{n} members; the limit is {LIMIT}: take out what has a job of its own"
             for key, n in counts.items() if n > LIMIT}
    return 1 if judge(os.path.join(root, "tests/house/members.txt"), found, False) else 0


sys.exit(main(sys.argv[1]))
