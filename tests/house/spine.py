"""spine.py PROGRAM: the functions of the library between tutti_all_reduce and the wire, as the spine program saw them.

Prints, for the window and for tcp, what was on the stack when the first bytes were copied into shared memory or handed
to a socket, and before that when their message was handed to the transport; and then
`Window: N functions in M files; TCP: N functions in M files, N to queue the message and N to send it`."""
import subprocess
import sys


def events_of(program, way):
    """What the calling thread did: ("+", function, file), ("-", ...), ("post", "", "") and ("wire", "", "")."""
    lines = subprocess.run([program, way], capture_output=True, text=True, check=True).stdout.split("\n")
    addresses = sorted({line.split()[1] for line in lines if " " in line})
    text = subprocess.run(["addr2line", "-f", "-e", program], input="\n".join(addresses), capture_output=True,
                          text=True, check=True).stdout.split("\n")
    names = {}
    for at, address in enumerate(addresses):
        names[address] = (text[2 * at], text[2 * at + 1].split(":")[0])
    return [(line.split()[0], *names.get(line.split()[-1], ("", ""))) for line in lines if line]


def way_to_the_wire(events):
    """The stacks when the first message was posted and when the first bytes left, and all functions entered before."""
    stack, stacks, entered = [], {}, set()
    for what, function, file in events:
        if what == "+":
            stack.append((function, file))
            entered.add((function, file))
        elif what == "-":
            stack.pop()
        else:
            stacks.setdefault(what, list(stack))
        if "wire" in stacks:
            return stacks.get("post", []), stacks["wire"], entered
    sys.exit("spine.py: nothing was copied into shared memory or sent")


def files_in(functions):
    return len({file for _, file in functions})


def main():
    program, found = sys.argv[1], []
    for name, way in (("Window", "window"), ("TCP", "tcp")):
        posted, sent, entered = way_to_the_wire(events_of(program, way))
        print(f"{name}, {len(entered)} functions in {files_in(entered)} files are entered before it:")
        shown = []
        for stack in (posted, sent):
            for depth, (function, file) in enumerate(stack):
                if (function, file) not in shown:
                    print(f"    {'  ' * depth}{function}  {'/'.join(file.split('/')[-2:])}")
                    shown.append((function, file))
        split = f", {len(posted)} to queue the message and {len(shown) - len(posted)} to send it" if way == "tcp" else ""
        found.append(f"{name}: {len(shown)} functions in {files_in(shown)} files{split}")
    print("; ".join(found))


main()
