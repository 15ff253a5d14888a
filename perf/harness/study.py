"""A study: points that are measured in rounds. What was measured is kept as a Markdown table and a CSV, whatever ends it."""
import csv
import io
import os
import sys

from harness import arguments, builds, files, machine, run


def table(head, rows):
    """Markdown."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def csv_of(head, rows):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([head, *rows])
    return text.getvalue()


def head_of(build, *more):
    return [machine.one_line(machine.describe()), f"Commit of Tutti: {builds.revision_of(build)}.", *more]


def write(name, folder, texts, main_file, has_any=True):
    """Whether that went well. What was ended before anything was measured costs no older results."""
    if not has_any and os.path.exists(os.path.join(folder, main_file)):
        print(f"\nNothing was measured: the files in {folder} are older ones.")
        return True
    try:
        files.write_whole(folder, texts)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"{name}: the results could not be written to {folder}: {error.strerror}{where}; no file was changed.", file=sys.stderr)
        return False
    return True


def begin(args, head):
    if not args.out:
        sys.stdout.need()
    arguments.interrupt_once()
    print("\n\n".join(head) + "\n", flush=True)


def measure(name, rounds, points, measure_point):
    """Each point, round by round, into its list `found`. Why not everything was measured, as a message; or None."""
    point = points[0]
    try:
        for _ in range(rounds):
            for point in points:
                point.found.append(measure_point(point))
        return None
    except run.Failure as failure:
        print("\n".join([f"{name}: {point.name}: {failure}."] + failure.lines), file=sys.stderr)
        return f"Not complete: {point.name}: {failure}."
    except KeyboardInterrupt:
        print(f"{name}: interrupted: what follows is what was measured until then.", file=sys.stderr)
        return "Not complete: it was interrupted."


def finish(name, args, head, why_incomplete, table_text, csv_text):
    """Prints the table and writes the files; the exit code. csv_text has a line for each round of each point."""
    print(table_text)
    parts = [*head, *([f"**{why_incomplete}**"] if why_incomplete else []), table_text]
    texts = {f"{name}.csv": csv_text, f"{name}.md": "\n\n".join(parts) + "\n"}
    is_written = not args.out or write(name, args.out, texts, f"{name}.csv", csv_text.count("\n") > 1)
    return 0 if is_written and not why_incomplete else 3
