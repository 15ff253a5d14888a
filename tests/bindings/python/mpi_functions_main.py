"""One rank: reductions of objects by functions of Python, in the order of ranks; what these raise, all ranks raise."""

import copy
import pickle
from functools import reduce
from itertools import accumulate

import tutti
from checks import raises
from tutti import mpi as MPI

comm = MPI.COMM_WORLD
rank, P = comm.rank, comm.size


class OnlyHere(Exception):
    """Not one that pickle could send."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def joined(a, b):
    return f"({a}{b})"


def merged(a, b):
    """Writes to its first argument, as a program's may."""
    a.update(b)
    return a


texts = [str(r) for r in range(P)]
for root in range(P):
    assert comm.reduce(str(rank), joined, root) == (reduce(joined, texts) if rank == root else None)
assert comm.allreduce(str(rank), op=joined) == reduce(joined, texts)
assert comm.scan(str(rank), joined) == list(accumulate(texts, joined))[rank]
assert comm.exscan(str(rank), joined) == (list(accumulate(texts, joined))[rank - 1] if rank else None)
assert comm.scan({rank: 1}, merged) == {r: 1 for r in range(rank + 1)}
assert comm.exscan({rank: 1}, merged) == ({r: 1 for r in range(rank)} if rank else None)
assert comm.allreduce({rank: 1}, lambda a, b: {**a, **b}) == {r: 1 for r in range(P)}
assert comm.allreduce(rank, max) == P - 1 and comm.allreduce([rank], min) == [0]
assert comm.allreduce("x" * 100000, lambda a, b: a + b) == "x" * 100000 * P
assert comm.allreduce(None, lambda a, b: None) is None and comm.allreduce((), op=lambda a, b: a + b) == ()
product = MPI.Op.Create(lambda a, b, datatype: (a * b, datatype)[0], commute=True)
assert comm.allreduce(rank + 1, product) == comm.allreduce(rank + 1, MPI.PROD)
calls = []
comm.allreduce(rank, lambda a, b: calls.append(1) or a + b)
assert len(calls) == (P - 1 if rank == 0 else 0)  # one run, whose result all have

assert comm.allreduce((1.5 * rank, rank), MPI.MAXLOC) == (1.5 * (P - 1), P - 1)
assert comm.allreduce((7, -rank), MPI.MINLOC) == (7, 1 - P)
assert comm.scan((-rank, rank), MPI.MINLOC) == (-rank, rank)
assert comm.exscan((-rank, rank), MPI.MAXLOC) == ((0, 0) if rank else None)
assert comm.reduce([rank % 2, rank], MPI.MAXLOC) == (((min(1, P - 1), min(1, P - 1)) if P > 1 else [0, 0]) if rank == 0 else None)
assert comm.allreduce(rank == 0, MPI.LAND) == (P == 1) and comm.allreduce(rank == 0, MPI.LOR) is True
assert comm.allreduce(rank == 0, MPI.LXOR) is True and comm.allreduce("a" * rank, tutti.MAX) == "a" * (P - 1)
# Alone they are mpi4py's functions.
assert (MPI.MAXLOC((3, 1), (3, 0)), MPI.MINLOC([3, 1], [2, 5]), MPI.SUM(1, 2), MPI.LXOR(3, 2)) == ((3, 0), (2, 5), 3, False)
for op in (MPI.SUM, MPI.MAXLOC, MPI.LAND):
    assert pickle.loads(pickle.dumps(op)) is op and copy.deepcopy(op) is op
with raises(TypeError, match="neither copied nor pickled"):
    copy.copy(product)


class Unreadable:
    """Pickles, and cannot be read again."""

    def __reduce__(self):
        return int, ("no number",)


def read_except_on(ranks, error):
    if rank in ranks:
        raise error
    return "read"


class UnreadableOn:
    """Pickles, and cannot be read again on some ranks."""

    def __init__(self, *ranks, error=None):
        self.ranks, self.error = ranks, error or ValueError("not here")

    def __reduce__(self):
        return read_except_on, (self.ranks, self.error)


class Unprintable(Exception):
    def __str__(self):
        raise KeyError("no text")


def at(r, error):
    """A function that raises where it gets the object of rank r."""

    def function(a, b):
        if b == r:
            raise error
        return b

    return function


# What the function raises on the rank that runs it is raised there, and an error that names both on all others.
for call, runs in ((comm.allreduce, 0), (comm.scan, 0), (comm.exscan, 0), (lambda x, f: comm.reduce(x, f, P - 1), P - 1)):
    for error in (ValueError("of the function"), OnlyHere(1, 2), KeyError("k"), StopIteration("early")):
        kinds, message = ((type(error), RuntimeError), "") if rank == runs else ((MPI.Exception,), f"raised on rank {runs}: ({type(error).__name__}|RuntimeError)")
        if P > 1 + (call == comm.exscan):
            with raises(kinds, match=message):
                call(rank, at(1, error))
    if P > 1 + (call == comm.exscan):  # nor is a result that cannot be sent one that only others miss
        kinds = (pickle.PicklingError, AttributeError, TypeError) if rank == runs else (MPI.Exception,)
        with raises(kinds, match="ickle|raised on rank"):
            call(rank, lambda a, b: lambda: 1)
    assert comm.allreduce(1) == P  # and the communicator works
if P > 1:  # nor one that nobody can read again
    with raises(ValueError, match="no number"):
        comm.allreduce(rank, lambda a, b: Unreadable())

# An object that only some ranks cannot read: these raise their own error, and all others one that names the first of them.
for unreadable_on in ([0], [P - 1], list(range(1, P)), list(range(P))):
    for sender in (0, P - 1):
        for call in (
            comm.allgather, comm.gather, lambda x: comm.alltoall([x] * P), comm.allreduce,
            lambda x: comm.allreduce(x, joined), lambda x: comm.reduce(x, joined, P - 1), lambda x: comm.reduce(x, MPI.MAX),
            lambda x: comm.scan(x, joined), lambda x: comm.exscan(x, joined), lambda x: comm.scan(x), lambda x: comm.exscan(x),
            lambda x: comm.tutti.all_gather_object(x),
        ):  # fmt: skip
            if unreadable_on:
                here = rank in unreadable_on
                kinds, message = (ValueError, "not here") if here else (MPI.Exception, f"raised on rank {unreadable_on[0]}: ValueError: not here")
                with raises(kinds, match=message) as caught:
                    call(UnreadableOn(*unreadable_on) if rank == sender else "sent")
                assert isinstance(caught.value, MPI.Exception) != here and caught.value.__cause__ is None
            assert comm.allreduce(1) == P
# So of a result of a function, which rank 0 can send to all.
for call, reads in (
    (lambda x, f: comm.allreduce(x, f), range(P)),
    (lambda x, f: comm.reduce(x, f, P - 1), [P - 1]),
    (lambda x, f: comm.scan(x, f), range(1, P)),
    (lambda x, f: comm.exscan(x, f), range(2, P)),
):
    for unreadable_on in range(P) if P > 1 else ():
        if unreadable_on in reads:
            kinds, message = (ValueError, "not here") if rank == unreadable_on else (MPI.Exception, f"raised on rank {unreadable_on}: ValueError: not here")
            with raises(kinds, match=message):
                call(rank, lambda a, b: UnreadableOn(unreadable_on))  # noqa: B023
        else:
            call(rank, lambda a, b: UnreadableOn(unreadable_on))  # noqa: B023
        assert comm.allreduce(1) == P
if P > 1:  # Also an error whose text cannot be made.
    try:
        comm.allgather(UnreadableOn(1, error=Unprintable()) if rank == 0 else "sent")
        raise AssertionError("nothing was raised")
    except Unprintable:
        assert rank == 1
    except MPI.Exception as error:
        assert rank != 1 and "raised on rank 1: Unprintable" in str(error)
    assert comm.allreduce(1) == P
# What the root of a scatter cannot send is no wait of the others.
for wrong, message in (([1] * (P + 1), f"{P + 1} objects for {P} ranks"), (None, f"0 objects for {P} ranks"), ([lambda: 1] * P, "ickle"), (5, "not iterable")):
    with raises(Exception if rank == P - 1 else MPI.Exception, match=message if rank == P - 1 else f"rank {P - 1}.*{message}"):
        comm.scatter(wrong if rank == P - 1 else None, root=P - 1)
for call, message in (
    (lambda x: comm.tutti.broadcast_object(x, P - 1), "ickle"),
    (lambda x: comm.bcast(x, P - 1), "ickle"),
    (lambda x: comm.tutti.all_gather_object(x), "ickle"),
    (lambda x: comm.gather(x), "ickle"),
    (lambda x: comm.allreduce(x), "ickle"),
    (lambda x: comm.alltoall([x] * P), "ickle"),
    (lambda x: comm.alltoall([1] * P if x == 1 else [1] * (P + 1)), f"{P + 1} objects for {P} ranks"),
):
    with raises(Exception if rank == P - 1 else MPI.Exception, match=message if rank == P - 1 else f"raised on rank {P - 1}.*{message}"):
        call((lambda: 1) if rank == P - 1 else 1)
    assert comm.allgather(rank) == list(range(P))
if P > 1:  # of one's own operators, too, which run on each rank
    with raises(TypeError):
        comm.allreduce(1 if rank else "x")
for call in (comm.allreduce, comm.reduce, comm.scan, comm.exscan):
    for wrong in (5, None, "sum"):
        with raises(tutti.InvalidError, match="is no operation"):
            call(1, wrong)
    with raises(tutti.UnsupportedError, match="on objects: use SUM, PROD.*or a function of two objects"):
        call(1, tutti.AVG)
comm.Barrier()
