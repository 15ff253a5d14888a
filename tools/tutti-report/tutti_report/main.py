"""tutti-report: what the perf programs, traces and training logs hold, as one HTML page that
needs no network.

Give it any of these, or folders with them:
  results of a perf program (-J FILE)     curves, and ratios of two or more
  traces (tutti-trace, TUTTI_TRACE_DIR)   the ranks' time line; who waited for whom
  metrics.csv or metrics.jsonl            a curve for each metric (examples/gpt --log)

Exit codes: 0; 1 a file cannot be read, is damaged or is of another kind, or the page cannot be
written; 2 the command line.
"""
import argparse
import os
import sys

from harness import files, page, streams
from tutti_report import perf_section, sources, trace_section, training_section

SECTIONS = ((sources.TRACE, trace_section), (sources.LOG, training_section), (sources.PERF, perf_section))
NAME = "tutti-report"
DONE, FAILED, USAGE = 0, 1, 2
_streams = streams.Streams(NAME)
warn, say = _streams.warn, _streams.say


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        raise Usage(message)


class Usage(Exception):
    """A line that cannot be understood."""


def parser():
    made = Arguments(prog=NAME, description=__doc__.strip(), formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False)
    made.add_argument("paths", nargs="*", metavar="FILE", help="results, traces, logs, or folders of them")
    made.add_argument("-o", "--output", default="tutti-report.html", metavar="FILE",
                      help="the page (tutti-report.html); - is stdout")
    made.add_argument("--title", default="Tutti: a report", metavar="TEXT")
    made.add_argument("-h", "--help", action="store_true")
    made.add_argument("--version", action="store_true")
    return made


def listing(found):
    rows = [(source.path, source.kind) for source in found]
    return page.folded(f"Made of {len(rows)} file{'s' if rows[1:] else ''}", page.table(("file", "what it is"), rows, "peers"))


def page_of(found, title, tools):
    parts, style = [], ""
    for kind, section in SECTIONS:
        of_kind = [source for source in found if source.kind == kind]
        if of_kind:
            parts.append(section.html_of(of_kind, tools))
            style += getattr(section, "STYLE", "")
    return page.whole(title, listing(found) + "".join(parts), style)


def write(text, output):
    if output == "-":
        return say(text)
    folder, name = os.path.split(os.path.abspath(output))
    try:
        if not os.path.isdir(folder):
            raise OSError(2, "there is no such folder")
        if os.path.exists(output) and not os.path.isfile(output):
            files.write(output, text, name)
        else:
            files.write_whole(folder, {name: text})
    except OSError as error:
        warn(f"{output} could not be written: {error.strerror}.")
        return FAILED
    return DONE


def run(words, tools, version):
    """The exit code. tools: the folder with the other programs."""
    made = parser()
    try:
        given = made.parse_args(words)
        if given.help or given.version:
            return say(made.format_help() if given.help else f"{NAME} (Tutti) {version}\n")
        if not given.paths:
            raise Usage("it needs files: results, traces or logs")
        if not given.output:
            raise Usage("--output needs a name")
        text = page_of(sources.read_all(given.paths), given.title, tools)
    except Usage as usage:
        warn(f"{usage}; {NAME} --help says more.")
        return USAGE
    except sources.Refused as refused:
        warn(refused)
        return FAILED
    except MemoryError:
        warn("the memory of this machine has no room for the files.")
        return FAILED
    return write(text, given.output)
