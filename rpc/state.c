/* What all files of the rpc use: its lock, and what is called as soon as it is free; its state; the
 * functions that this rank has registered; the extension. */
#include "core/callback.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/words/nearest.h"
#include "rpc/rpc_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- registered functions, by name ---- */

enum { BUCKETS = 64 };

static uint64_t state_functions_hash_of(const char *name, size_t bytes)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ (uint8_t)name[i]) * 0x100000001b3u;
	return hash ^ hash >> 32;
}

const struct rpc_function *rpc_functions_find(const tutti_rpc *rpc, const char *name, size_t bytes)
{
	uint64_t hash = state_functions_hash_of(name, bytes);
	const struct rpc_function *f = rpc->functions[hash % BUCKETS];

	while (f &&
	       (f->hash != hash || f->name_bytes != bytes || memcmp(f->name, name, bytes) != 0))
		f = f->next;
	return f;
}

static tutti_status state_functions_check(const tutti_rpc *rpc, const tutti_rpc_function *function,
					  bool is_own)
{
	size_t bytes = function->name ? strlen(function->name) : 0;

	if (bytes < 1 || bytes > RPC_NAME_BYTES)
		return fail_invalid("tutti_rpc_register: a function's name has 1 to %d bytes, not "
				    "%zu",
				    RPC_NAME_BYTES, bytes);
	for (size_t i = 0; i < bytes; i++)
		if (function->name[i] < ' ' || function->name[i] > '~')
			return fail_invalid("tutti_rpc_register: byte %zu of a function's name is "
					    "not printable",
					    i);
	if (!is_own && strncmp(function->name, "tutti.", 6) == 0)
		return fail_invalid("tutti_rpc_register: '%s': names with 'tutti.' are the "
				    "library's own",
				    function->name);
	if (!function->fn)
		return fail_invalid("tutti_rpc_register: '%s' has no fn", function->name);
	if (function->flags & ~TUTTI_RPC_SHORT)
		return fail_invalid("tutti_rpc_register: '%s' has flags %d: there is "
				    "TUTTI_RPC_SHORT, %d",
				    function->name, function->flags, TUTTI_RPC_SHORT);
	if (rpc_functions_find(rpc, function->name, bytes))
		return fail_invalid("tutti_rpc_register: '%s' is registered already",
				    function->name);
	return TUTTI_OK;
}

tutti_status rpc_functions_add(tutti_rpc *rpc, const tutti_rpc_function *function, bool is_own)
{
	TRY(state_functions_check(rpc, function, is_own));
	struct rpc_function *f = calloc(1, sizeof *f);
	if (!f)
		return fail_no_memory("function '%s'", function->name);
	f->name_bytes = strlen(function->name);
	memcpy(f->name, function->name, f->name_bytes);
	f->hash = state_functions_hash_of(f->name, f->name_bytes);
	f->fn = function->fn;
	f->arg = function->arg;
	f->is_short = function->flags & TUTTI_RPC_SHORT;
	f->is_own = is_own;
	f->next = rpc->functions[f->hash % BUCKETS];
	rpc->functions[f->hash % BUCKETS] = f;
	return TUTTI_OK;
}

void rpc_functions_free(tutti_rpc *rpc)
{
	for (int b = 0; b < BUCKETS; b++)
		while (rpc->functions[b]) {
			struct rpc_function *f = rpc->functions[b];
			rpc->functions[b] = f->next;
			free(f);
		}
}

const char *rpc_functions_nearest(const tutti_rpc *rpc, const char *name, size_t bytes)
{
	struct nearest nearest = nearest_to(name, bytes);

	for (int b = 0; b < BUCKETS; b++)
		for (const struct rpc_function *f = rpc->functions[b]; f; f = f->next)
			if (strncmp(f->name, "tutti.", 6) != 0)
				nearest_try(&nearest, f->name);
	return nearest.name;
}

/* ---- the lock ---- */

_Thread_local int rpc_in_callback;
const char rpc_release_place[] = "a release function of an rpc";
const char rpc_short_place[] = "a function with TUTTI_RPC_SHORT";
/* The rpc of the user's function that this thread is in, which may come back to unlock; or NULL. */
static _Thread_local const tutti_rpc *calling;

tutti_status rpc_may_wait(const char *name)
{
	TRY(tutti_group_refuse(name));
	if (!rpc_in_callback)
		return TUTTI_OK;
	const char *place = atomic_load_explicit(&callback_now, memory_order_relaxed);
	return fail_invalid("%s waits, which %s may not: call it in another thread%s", name,
			    place ? place : "a callback of an rpc",
			    place == rpc_short_place ? ", or register the function without that "
						       "flag"
						     : "");
}

const tutti_rpc *rpc_calling(const tutti_rpc *rpc)
{
	const tutti_rpc *before = calling;

	calling = rpc;
	return before;
}

bool rpc_is_calling(const tutti_rpc *rpc)
{
	return rpc ? calling == rpc : calling != NULL;
}

void rpc_lock(tutti_rpc *rpc)
{
	pthread_mutex_lock(&rpc->lock);
}

void rpc_release_call(const tutti_rpc *rpc, struct rpc_release *due)
{
	const char *before = callback_enter(rpc_release_place);

	rpc_in_callback++;
	callback_call(due->name, due->of, rpc->rank, due->release(due->arg));
	rpc_in_callback--;
	callback_enter(before);
	free(due);
}

static void state_call_release(tutti_rpc *rpc)
{
	struct rpc_release *due = rpc->releases;

	rpc->releases = due->next;
	rpc->calling++;
	pthread_mutex_unlock(&rpc->lock);
	rpc_release_call(rpc, due);
	pthread_mutex_lock(&rpc->lock);
	rpc->calling--;
	pthread_cond_broadcast(&rpc->changed);
}

static void state_call_done(tutti_rpc *rpc)
{
	struct tutti_rpc_future *call = rpc->ended;
	tutti_done_fn done = call->done;
	void *arg = call->done_arg;
	tutti_status status = call->status;

	rpc->ended = call->next;
	pthread_mutex_unlock(&rpc->lock);
	if (status != TUTTI_OK)
		tutti_set_error(status, call->error);
	rpc_in_callback++;
	callback_done("done", "tutti_rpc_options", rpc->rank, done, arg, status);
	rpc_in_callback--;
	pthread_mutex_lock(&rpc->lock);
	rpc->calling--;
	call->done = NULL; /* it is over now for those that wait, too */
	if (call->is_released)
		free(call);
	pthread_cond_broadcast(&rpc->changed);
}

void rpc_unlock(tutti_rpc *rpc)
{
	if (!calling) {
		calling = rpc;
		while (rpc->releases || (rpc->ended && rpc_in_callback)) {
			if (rpc->releases)
				state_call_release(rpc);
			else
				state_call_done(rpc);
		}
		calling = NULL;
	}
	if (rpc->ended || rpc->releases) /* this thread is in a function of the user's */
		pthread_cond_signal(&rpc->keeper.due);
	pthread_mutex_unlock(&rpc->lock);
}

uint64_t rpc_now_ns(void)
{
	return clock_now_ns();
}

bool rpc_wait_changed(tutti_rpc *rpc, uint64_t deadline_ns)
{
	struct timespec at = deadline_timespec(deadline_ns);

	if (!deadline_ns) {
		pthread_cond_wait(&rpc->changed, &rpc->lock);
		return true;
	}
	pthread_cond_clockwait(&rpc->changed, &rpc->lock, CLOCK_MONOTONIC, &at);
	return rpc_now_ns() < deadline_ns;
}

/* ---- the state: it runs, recovers, or has ended ---- */

void rpc_note_failure(tutti_rpc *rpc)
{
	if (rpc->state == RPC_RUNS) {
		rpc->state = RPC_RECOVERS;
		pthread_cond_signal(&rpc->keeper.due);
		pthread_cond_broadcast(&rpc->changed);
	}
}

void rpc_end(tutti_rpc *rpc, tutti_status status, const char *message)
{
	if (rpc->state == RPC_ENDED)
		return;
	rpc->state = RPC_ENDED;
	rpc->failure.status = status;
	snprintf(rpc->failure.message, sizeof rpc->failure.message, "%s", message);
	tutti_comm_abort(rpc->comm); /* so that all works end */
	pthread_cond_signal(&rpc->keeper.due);
	pthread_cond_broadcast(&rpc->changed);
}

tutti_status rpc_end_status(const tutti_rpc *rpc)
{
	return kept_error_return(&rpc->failure);
}

void rpc_complain(const char *format, ...)
{
	char text[RPC_ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	log_notice("rpc: %s", text);
}

/* ---- the extension, and the context of a thread ---- */

int rpc_timeout_ms(const tutti_rpc *rpc, int timeout_ms)
{
	int ms = timeout_ms ? timeout_ms : rpc->config.timeout_ms;

	return ms > 0 ? ms : 0;
}

void *rpc_extension_data(tutti_rpc *rpc)
{
	rpc_lock(rpc);
	void *data = rpc->extension.data;
	rpc_unlock(rpc);
	return data;
}

bool rpc_extension_set(tutti_rpc *rpc, const struct rpc_extension *e)
{
	rpc_lock(rpc);
	bool is_first = !rpc->extension.data;
	if (is_first)
		rpc->extension = *e;
	rpc_unlock(rpc);
	return is_first;
}

tutti_status rpc_extension_register(tutti_rpc *rpc, const tutti_rpc_function *function)
{
	rpc_lock(rpc);
	tutti_status status = rpc_functions_add(rpc, function, true);
	rpc_unlock(rpc);
	return status;
}

static _Thread_local uint64_t context_now;

uint64_t rpc_context(void)
{
	return context_now;
}

void rpc_context_set(uint64_t number)
{
	context_now = number;
}
