/* Statuses: their names, TRY, and the message that explains this thread's last failure. */
#ifndef CORE_STATUS_H
#define CORE_STATUS_H

#include "core/words/export.h"

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Every status with its short text; the order is tutti.h's and is checked at compile time. */
#define STATUS_LIST(X)                                                                             \
	X(OK, OK, "success")                                                                       \
	X(IN_PROGRESS, IN_PROGRESS, "still in progress")                                           \
	X(INVALID, ERR_INVALID, "invalid argument")                                                \
	X(MEMORY, ERR_MEMORY, "out of memory")                                                     \
	X(SYSTEM, ERR_SYSTEM, "system call failed")                                                \
	X(TIMEOUT, ERR_TIMEOUT, "deadline passed")                                                 \
	X(PEER, ERR_PEER, "a peer went away")                                                      \
	X(MISMATCH, ERR_MISMATCH, "ranks made different calls")                                    \
	X(ABORTED, ERR_ABORTED, "aborted")                                                         \
	X(AUTH, ERR_AUTH, "authentication failed")                                                 \
	X(UNSUPPORTED, ERR_UNSUPPORTED, "not supported here")                                      \
	X(DEVICE, ERR_DEVICE, "device error")                                                      \
	X(INTERNAL, ERR_INTERNAL, "internal error")

/* Passes a failure up, silently: the function that decided it has explained it. */
#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

#define ERROR_BYTES 512

/* Records a message, full and readable by itself, as this thread's last error and returns status.
 * With MEMORY, where errno is ENOMEM, the limit of this process is appended. errno survives. */
tutti_status fail(tutti_status status, const char *format, ...) TUTTI_PRIVATE(fail)
	__attribute__((format(printf, 2, 3), cold));
/* The same for a system call: appends errno's text, and the limit of this process that it speaks
 * of. Status SYSTEM. */
tutti_status fail_errno(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

#define fail_invalid(...) fail(TUTTI_ERR_INVALID, __VA_ARGS__)
/* MEMORY: "There is no memory for <format>." */
tutti_status fail_no_memory(const char *format, ...) TUTTI_PRIVATE(fail_no_memory)
	__attribute__((format(printf, 1, 2), cold));

/* Puts before in front of this thread's last message, also of a kept one. Returns status. */
tutti_status fail_before(tutti_status status, const char *before) __attribute__((cold));

/* A failure with its message, to be returned later: after a cleanup, by another thread or rank. */
struct kept_error {
	tutti_status status; /* TUTTI_OK: none yet */
	char message[ERROR_BYTES];
};
/* The first failure of this thread from now on is kept there too; NULL: no more. */
void fail_keep(struct kept_error *kept);
/* status with this thread's last message. */
struct kept_error kept_error_of(tutti_status status) TUTTI_PRIVATE(kept_error_of);
/* Returns the status and stores the message again. OK stores nothing. */
tutti_status kept_error_return(const struct kept_error *error) TUTTI_PRIVATE(kept_error_return);
/* Keeps the first failure of several calls that are all made. first starts as {0}. */
void kept_error_note(struct kept_error *first, tutti_status status) TUTTI_PRIVATE(kept_error_note);

/* An error that may follow from another rank's. */
bool status_is_secondary(tutti_status status) TUTTI_PRIVATE(status_is_secondary);
/* Whether a number that came from elsewhere is the status of a failure. */
static inline bool status_is_error(int64_t number)
{
	return number > TUTTI_IN_PROGRESS && number <= TUTTI_ERR_INTERNAL;
}
/* The failure of a peer, in its own words. */
static inline tutti_status status_said(int64_t number)
{
	return status_is_error(number) ? (tutti_status)number : TUTTI_ERR_INTERNAL;
}

/* "" when there is none; this thread's, until its next call. */
const char *last_error(void) TUTTI_PRIVATE(last_error);

/* True while this thread does what no caller asked for, such as a pass of a transport: then failures
 * do not touch the last error that the caller is about to return, and last_error() is theirs. */
extern _Thread_local bool fail_is_aside;

/* Every call begins with it, and nearly always no thread has ever failed. */
extern atomic_bool something_has_failed;
void last_error_forget(void);
static inline void last_error_clear(void)
{
	if (__builtin_expect(atomic_load_explicit(&something_has_failed, memory_order_relaxed), 0))
		last_error_forget();
}

#endif
