"""Futures of works, and the threads that complete them in one order on all ranks.

A callback may issue calls (PowerSGD's do), and their order must be the same on all ranks. So the callbacks of a lane's
collectives run in one thread, the lane's completer, in the order in which the futures were asked for, whenever their
works end; never in the thread that attaches them, even if the work is over by then. What callbacks issue goes to a
communicator of its own (lanes.py), whose order is theirs alone. Such calls may be waited for: their futures have the
next completer. A callback that waits for a future which its own completer has yet to complete lets the completer go on
inside of the wait: first the callbacks that follow in the same line, then what is queued.
"""

import queue
import threading
import weakref
from collections import deque

from torch.futures import Future

from .failures import aborted

_completers = weakref.WeakSet()
_threads = weakref.WeakSet()  # these, and those that wait for a message
_waits = threading.Lock()  # of every completer's awaited


class _Here(threading.local):
    """The completer whose callbacks this thread runs; None: a thread of the program."""

    completer = None


here = _Here()


class Failed:
    """The value of a future that failed: raises the error, whatever C++ or Python does to look into it."""

    def __init__(self, error):
        self.error = error

    def _raise(self, *_):
        raise self.error

    __len__ = __getitem__ = __iter__ = __reduce_ex__ = __bool__ = __str__ = _raise  # str: the reducer, of a hook's

    def __repr__(self) -> str:
        return f"<failed: {self.error!r}>"


class OrderedFuture(Future):
    """compute() gives its value or raises; the completer calls it when it is this future's turn."""

    def __init__(self, completer, compute, work=None, antecedent=None):
        super().__init__()
        self._completer, self._compute, self._work, self._antecedent = completer, compute, work, antecedent
        self._followers = deque()  # None: they have run
        self._is_computing = self._is_settled = False
        self._value, self._error = None, None

    def deliver(self) -> None:
        """In the completer: computes the value, tells C++, and runs what follows."""
        self._is_computing = True
        try:
            self._value = self._compute()
        except BaseException as error:  # also a callback's KeyboardInterrupt: who waits for the future gets it
            self._error = error
        self._is_settled = True
        self._compute = self._work = self._antecedent = None
        super().set_result(self._value if self._error is None else Failed(self._error))
        self._completer.announce()
        for run in iter(self._next_follower, None):
            run()

    def run_follower_before(self) -> bool:
        """In the completer: runs the next callback of the antecedent whose callbacks have yet to reach this future.
        False: this future, or an antecedent, has its turn in the completer's queue."""
        future = self
        while not future._is_settled:
            if future._is_computing:
                raise RuntimeError("tutti: a callback waits for itself: this future has no value until it has returned")
            future = future._antecedent
            if future is None:
                return False
        run = future._next_follower()
        if run is None:
            return False
        run()
        return True

    def _next_follower(self):
        with self._completer.lock:
            if self._followers:
                return self._followers.popleft()
            self._followers = None
            return None

    def then(self, callback):
        following = OrderedFuture(self._completer, lambda: callback(self), antecedent=self)
        with self._completer.lock:
            if self._followers is not None:
                self._followers.append(following.deliver)
                return following
        self._completer.put(following.deliver)
        return following

    def add_done_callback(self, callback) -> None:
        self.then(callback)

    def done(self) -> bool:
        """True as soon as its call is over, even if the completer has not reached it yet."""
        work = self._work
        return self._is_settled if work is None else work.poll()

    def _is_due(self) -> bool:
        """Whether it belongs to a callback whose call is over; the callback itself may not have run yet."""
        antecedent = self._antecedent
        return antecedent is not None and (antecedent.done() or antecedent._is_due())

    def wait(self):
        work = self._work
        if work is not None:  # in this thread, which is faster than to be told
            work.wait()
            return work.results
        if not self._is_settled:
            self._completer.await_future(self)
        return self.value()

    def value(self):
        work = self._work
        if work is not None and work.poll():
            work.wait()
            return work.results
        if self._is_due():
            self._completer.await_future(self)
        if not self._is_settled:
            raise RuntimeError("tutti: this future has no value yet; wait() for it first")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result) -> None:
        raise RuntimeError("tutti: this future belongs to a call, which sets its result")


class Completer(threading.Thread):
    """Delivers futures in the order of their entries. Made when the first future is asked for."""

    def __init__(self, name: str):
        super().__init__(name=f"tutti {name}", daemon=True)
        self.path = name
        self.lock = threading.Lock()
        self.is_stopped = self.is_orphan = False
        self.awaited = None  # a future of another completer, for which a callback in this thread waits
        self._entries = queue.SimpleQueue()
        self._settled = threading.Condition()
        _completers.add(self)
        _threads.add(self)
        self.start()

    def run(self) -> None:
        here.completer = self
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        entry = self._entries.get()
        if entry is None:
            return False
        entry()
        return True

    def put(self, entry) -> None:
        """After stop the entry runs in the calling thread."""
        with self.lock:
            if not self.is_stopped:
                self._entries.put(entry)
                return
        entry()

    def stop(self) -> None:
        """Ends the thread after what is queued."""
        with self.lock:
            self.is_stopped = True
            self._entries.put(None)

    def announce(self) -> None:
        with self._settled:
            self._settled.notify_all()

    def await_future(self, future) -> None:
        if self.is_orphan:
            raise aborted("tutti: this future is one of the process that forked this one")
        if threading.current_thread() is self:
            self._go_on_until(future)
            return
        own = here.completer
        if own is not None:
            own._begin_wait(future)
        try:
            with self._settled:
                self._settled.wait_for(future.done)
        finally:
            if own is not None:
                own.awaited = None

    def _begin_wait(self, future) -> None:
        """In the completer's thread. Refuses a wait for a completer that waits, itself or by others, for this one."""
        with _waits:
            ahead = future
            while ahead is not None and not ahead.done():
                if ahead._completer is self:
                    raise RuntimeError("tutti: callbacks wait for each other: this future's completer waits for this callback")
                ahead = ahead._completer.awaited
            self.awaited = future

    def _go_on_until(self, future) -> None:
        """Inside of a callback. The queue is waited for only if the future's turn is in it: by its call's deadline."""
        while not future.done():
            if not future.run_follower_before() and not self._run_next():
                self._entries.put(None)
                raise aborted("tutti: the process group was destroyed before this future had its turn")

    def forget_thread(self) -> None:
        """Only callbacks of futures that are settled still run, in the threads that attach them."""
        self.lock, self._settled = threading.Lock(), threading.Condition()
        self.is_stopped = self.is_orphan = True


def future_of(work, completer, in_order: bool) -> OrderedFuture:
    """in_order: a collective, whose turn comes after those before it. A message has its turn when it is over, since
    another rank may send it only after later ones."""

    def outcome():
        work.wait()
        return work.results

    future = OrderedFuture(completer, outcome, work)
    if in_order or work.is_over:
        completer.put(future.deliver)
    else:

        def wait_and_put():
            work.await_end()
            completer.put(future.deliver)

        waiting = threading.Thread(target=wait_and_put, name="tutti message", daemon=True)
        _threads.add(waiting)
        waiting.start()
    return future


def join_threads() -> None:
    """Once all groups have been left: so that no thread runs Python while the interpreter ends."""
    for thread in list(_threads):
        if thread is not threading.current_thread():
            thread.join(5)


def forget_threads() -> None:
    """In a forked child, which has none of these threads."""
    global _waits
    _waits = threading.Lock()
    _threads.clear()
    for completer in list(_completers):
        completer.forget_thread()
