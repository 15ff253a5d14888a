/* Calls of the program's functions, which must return. An exception of C++, pthread_exit or a
 * cancellation that unwinds one would unwind our frames, too, and leave their locks held, so that
 * the program hangs in a later call. Therefore it ends the process here, with a message. A longjmp
 * passes unseen; the public headers forbid it.
 *
 * An exception that nobody would catch does not get this far: std::terminate ends the process. */
#ifndef CORE_CALLBACK_H
#define CORE_CALLBACK_H

#ifndef __EXCEPTIONS
#error "without -fexceptions nothing is called when a callback is unwound"
#endif

#include <stdbool.h>

struct callback {
	const char *function; /* NULL: it has returned */
	const char *of;
	int rank; /* this one, or -1 where it is not known */
};

/* Prints what happened and aborts. */
void callback_unwound(const struct callback *callback) __attribute__((noreturn, cold));

static inline void callback_leave(const struct callback *callback)
{
	if (__builtin_expect(callback->function != 0, 0))
		callback_unwound(callback);
}

/* callback_call("the function", "tutti_spawn", rank, code = fn(rank, arg)): carries out the
 * statement, which calls the program and does not jump. Costs nothing if the function returns. */
#define callback_call(name, giver, of_rank, ...)                                                   \
	do {                                                                                       \
		struct callback callback_ __attribute__((cleanup(callback_leave))) = {             \
			.function = (name), .of = (giver), .rank = (of_rank)};                     \
		__VA_ARGS__;                                                                       \
		callback_.function = 0;                                                            \
	} while (0)

/* This thread is in a function done of a tutti_call: it is the one that would have to end what a
 * destroy waits for. */
extern _Thread_local bool callback_in_done;
/* Notices that the function of this name destroys nothing, and why. */
void callback_keep(const char *function, const char *why);
/* Whether this thread is in a done, after such a notice. */
bool callback_refuses(const char *function);

#endif
