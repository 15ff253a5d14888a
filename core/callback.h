/* Calls functions of the program, which must return. If a C++ exception, pthread_exit or a thread's
 * cancellation unwound one, it would unwind our frames, too, and leave their locks held: a later
 * call would hang. So the process ends here, with a message. A longjmp cannot be noticed; the
 * public headers forbid it.
 *
 * An exception that nothing catches ends the process in std::terminate before it gets here. */
#ifndef CORE_CALLBACK_H
#define CORE_CALLBACK_H

#include "core/words/export.h"

#ifndef __EXCEPTIONS
#error "callback_leave runs during unwinding only with -fexceptions"
#endif

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <stdbool.h>

struct callback {
	const char *function; /* for the message; NULL: it has returned */
	const char *of;       /* what it was passed to */
	int rank;             /* the calling rank; -1: not known */
};

/* Prints what happened and aborts. */
void callback_unwound(const struct callback *callback) TUTTI_PRIVATE(callback_unwound)
	__attribute__((noreturn, cold));

static inline void callback_leave(const struct callback *callback)
{
	if (__builtin_expect(callback->function != 0, 0))
		callback_unwound(callback);
}

/* callback_call("the function", "tutti_spawn", rank, code = fn(rank, arg)): executes the statement,
 * which calls the program and must not contain return, break or goto. Costs nothing if the function
 * returns. */
#define callback_call(name, giver, of_rank, ...)                                                   \
	do {                                                                                       \
		struct callback callback_ __attribute__((cleanup(callback_leave))) = {             \
			.function = (name), .of = (giver), .rank = (of_rank)};                     \
		__VA_ARGS__;                                                                       \
		callback_.function = 0;                                                            \
	} while (0)

/* This thread runs a tutti_done_fn of the program, so a destroy function would wait for its own
 * thread. */
extern _Thread_local bool callback_in_done TUTTI_PRIVATE(callback_in_done);
/* The callback that this thread is in, for messages, such as "done of tutti_rpc_options". Only of
 * those that the library's threads call; else NULL. A literal, which other threads may read. */
typedef _Atomic(const char *) callback_place;
extern _Thread_local callback_place callback_now TUTTI_PRIVATE(callback_now);
/* Sets callback_now. Returns what it was. */
const char *callback_enter(const char *place) TUTTI_PRIVATE(callback_enter);
/* Calls done by callback_call, with callback_in_done. function and of are literals. */
#define callback_done(function, of, rank, done, arg, status)                                       \
	callback_done_at(&(struct callback){function, of, rank}, function " of " of, done, arg,    \
			 status)
void callback_done_at(const struct callback *names, const char *place, tutti_done_fn done,
		      void *arg, tutti_status status) TUTTI_PRIVATE(callback_done_at);
/* Logs that the destroy function of this name destroys nothing, and why. */
void callback_keep(const char *function, const char *why) TUTTI_PRIVATE(callback_keep);
/* If this thread runs a done function: logs that, and returns true. */
bool callback_refuses(const char *function) TUTTI_PRIVATE(callback_refuses);

#endif
