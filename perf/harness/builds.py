"""Builds of Tutti to measure: a folder that has one, or a git revision that is built for the occasion."""
import contextlib
import os
import re
import subprocess
import tempfile

UNKNOWN = "unknown, since the library is not here or too old to say"


class BuildError(Exception):
    """A message, and the compiler's last lines."""


def has_build(folder):
    return os.access(os.path.join(folder, "launch", "tuttirun"), os.X_OK)


def _run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.returncode, done.stdout.decode(errors="replace")


def _must(what, *command):
    code, output = _run(*command)
    if code != 0:
        raise BuildError(f"{what} failed:\n" + "\n".join(output.splitlines()[-15:]))


@contextlib.contextmanager
def opened(root, name, programs, say):
    """The folder of a build: name itself, or that revision's, gone afterwards with its worktree."""
    if has_build(name):
        yield name
        return
    code, output = _run("git", "-C", root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if code != 0:
        raise BuildError(f"'{name}' is neither a folder with a build (launch/tuttirun) nor a revision")
    with tempfile.TemporaryDirectory(prefix="tutti-build-") as folder:
        tree, build = os.path.join(folder, "tree"), os.path.join(folder, "build")
        try:
            say(f"Building {name} ({output.strip()[:12]}).")
            _must(f"A worktree of {name}", "git", "-C", root, "worktree", "add", "--detach", tree, output.strip())
            _must(f"Configuring {name}", "cmake", "-S", tree, "-B", build, "-G", "Ninja",
                  "-DCMAKE_BUILD_TYPE=Release", "-DTUTTI_TESTS=OFF")
            _must(f"Building {name}", "cmake", "--build", build, "-j", str(os.cpu_count() or 1), "--target",
                  "tuttirun", *programs)
            yield build
        finally:
            _run("git", "-C", root, "worktree", "remove", "--force", tree)


def revision_of(build):
    """Which commit its library was built from: it says so itself (tutti_revision), whatever its source has become.
    4f2a96b0c1d2; 4f2a96b0c1d2+changes, where the tree was not that commit's; or why it is not known. Without a path."""
    try:
        with open(os.path.join(build, "libtutti.so"), "rb") as library:
            found = re.search(rb"tutti revision: ([^\0]{1,200})\0", library.read())
    except OSError:
        return UNKNOWN
    return found.group(1).decode(errors="replace") if found else UNKNOWN
