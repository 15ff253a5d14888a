#!/usr/bin/env python3
"""manual.py VERSION OUT HEADER... -- PROGRAM...: writes manual pages below OUT: man3 of each function of the headers, with
the comment above it, and of each header; man1 of each program, with what its --help says.

Functions that stand under one comment share a page; the others' pages only name it.
"""

import pathlib
import re
import subprocess
import sys

PROTOTYPE = re.compile(r"^(?!typedef|#|\s|extern|static|\})[a-z].*\b(tutti_\w+)\(")


def escaped(text):
    """Text as roff prints it: no macro at the beginning of a line, and no escapes."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def unfilled(text):
    return f".nf\n{escaped(text)}\n.fi\n"


def words_of(comment):
    """The text of a C comment."""
    comment = re.sub(r"^/\*+|\*/$", "", comment.strip())
    return "\n".join(re.sub(r"^\s*\* ?", "", line).rstrip() for line in comment.split("\n")).strip()


def page(names, section, title, version, body):
    listed = escaped(", ".join(names))
    return f'.TH "{names[0]}" "{section}" "" "Tutti {version}" "Tutti"\n.SH NAME\n{listed} \\- {escaped(title)}\n{body}'


def declarations(text):
    """(comment, [prototype...]) of each group of functions that stand together."""
    groups, comment = [], ""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("/*"):
            while "*/" not in line:
                line += "\n" + next(lines)
            comment = "" if line.startswith("/* ----") else words_of(line)
            groups.append((comment, []))
        elif PROTOTYPE.match(line):
            while ";" not in line:
                line += "\n" + next(lines)
            prototype, _, rest = line.partition(";")
            while rest.strip().startswith("/*") and "*/" not in rest:
                rest += "\n" + next(lines)
            if not groups:
                groups.append((comment, []))
            groups[-1][1].append((prototype + ";", words_of(rest) if rest.strip() else ""))
        elif not line.strip():
            groups.append(("", []))
    return [group for group in groups if group[1]]


def title_of(text):
    text = re.sub(r"^(Collective|Local)(, from any thread)?[.:] ", "", " ".join(text.split()))
    title = re.split(r"(?<=[a-z0-9)])[.:;] ", text + " ")[0].rstrip(" .:;")
    return title if len(title) <= 90 else title[:87] + "..."


def write_functions(header, version, folder):
    include = f"tutti/{header.name}"
    see = "tutti" if header.stem == "tutti" else f"tutti_{header.stem}"
    for comment, prototypes in declarations(header.read_text()):
        names = [PROTOTYPE.match(prototype).group(1) for prototype, _ in prototypes]
        remarks = [f"{name}: {remark}" for name, (_, remark) in zip(names, prototypes) if remark]
        text = "\n\n".join([comment] * bool(comment) + remarks)
        code = f"#include <{include}>\n\n" + "\n".join(prototype for prototype, _ in prototypes)
        body = f".SH SYNOPSIS\n{unfilled(code)}"
        if text:
            body += ".SH DESCRIPTION\n" + escaped(text).replace("\n\n", "\n.PP\n") + "\n"
        body += f".SH SEE ALSO\n.BR {escaped(see)} (3)\n"
        title = title_of(comment) if comment else f"a function of {include}"
        for name in names:
            if name == names[0]:
                content = page(names, 3, title, version, body)
            else:
                content = f".so man3/{names[0]}.3\n"
            (folder / f"{name}.3").write_text(content)


def write_header(header, version, folder):
    text = header.read_text()
    name = "tutti" if header.stem == "tutti" else f"tutti_{header.stem}"
    opening = words_of(text[: text.index("*/") + 2])
    types = re.findall(r"^typedef [^;{]*\{.*?^\} \w+;|^typedef [^;{]*;[^\n]*", text, re.M | re.S)
    functions = [PROTOTYPE.match(p).group(1) for _, group in declarations(text) for p, _ in group]
    body = f".SH SYNOPSIS\n{unfilled(f'#include <tutti/{header.name}>')}"
    body += f".SH DESCRIPTION\n{unfilled(opening)}"
    body += f".SH TYPES\n{unfilled(chr(10).join(t.expandtabs(8) for t in types))}"
    body += ".SH FUNCTIONS\n" + ",\n".join(f".BR {escaped(f)} (3)" for f in functions).replace(",\n", "\n") + "\n"
    (folder / f"{name}.3").write_text(page([name], 3, title_of(opening), version, body))


def write_program(path, version, folder):
    name = pathlib.Path(path).name
    run = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        sys.exit(f"manual: {name} --help ended with {run.returncode}: {run.stderr}")
    usage, _, rest = run.stdout.partition("\n\n")
    title = f"measures {name[:-5]}" if name.endswith("_perf") else title_of(rest)
    body = f".SH SYNOPSIS\n{unfilled(usage)}.SH DESCRIPTION\n{unfilled(rest.rstrip())}"
    (folder / f"{name}.1").write_text(page([name], 1, title, version, body))


def main():
    version, out, *rest = sys.argv[1:]
    split = rest.index("--")
    folders = [pathlib.Path(out) / f"man{section}" for section in (1, 3)]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    for header in map(pathlib.Path, rest[:split]):
        write_header(header, version, folders[1])
        write_functions(header, version, folders[1])
    for program in rest[split + 1 :]:
        write_program(program, version, folders[0])


main()
