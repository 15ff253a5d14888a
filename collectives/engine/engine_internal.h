/* Shared among the engine's files, by file. Under the engine's lock unless it says
 * otherwise. */
#ifndef COLLECTIVES_ENGINE_ENGINE_INTERNAL_H
#define COLLECTIVES_ENGINE_ENGINE_INTERNAL_H

#include "collectives/engine/task.h"

/* connections.c */
/* Where peer is in links.conns and links.streams, for a work like this one. */
static inline int engine_place(const struct engine *e, const struct tutti_work *work, int peer)
{
	return work->spec.captured ? e->config.size + peer : peer;
}
struct tutti_conn *engine_conn(struct engine *e, int place); /* NULL: the engine has failed   */
void engine_disconnect(struct engine *e); /* closes connections and endpoints */
/* Fills fds with what to sleep on. Returns how many, or -1 if there is work already. */
struct pollfd;
int engine_arm(struct engine *e, struct pollfd *fds, int max);
void engine_disarm(struct engine *e);
/* Service for peers while this rank is in no call. */
void engine_resend(struct engine *e, struct resend *resend);
/* Whether bytes that were sent may still be lost, though all works are over. */
bool engine_in_doubt(struct engine *e);

/* engine_failure.c */
/* The call that waits for room has waited too long, or what keeps it out has. */
void engine_fail_outside(struct engine *e);
/* The window has failed a call; the error message is this thread's last error. */
void engine_window_failed(struct engine *e, const struct tutti_work *work, tutti_status status);
/* The window's blocking call, which has no work, lasts: tells the trace what it waits for, and the
 * user, after a long wait for a call that makes a communicator (call_is_join), which ranks have not
 * come. To be called again and again. */
void window_tell(struct engine *e, struct window_run *run, const struct trace_mark *mark,
		 uint64_t now);

enum report_state { REPORT_NONE, REPORT_NEW, REPORT_SEEN };
/* Takes note of a failure of all; from any thread, without the lock. */
void engine_take_failure(struct engine *e, const struct failure *failure);
/* Fails with it, unless calls are in flight that may well come to a good end first: then later. */
void engine_act_on_failure(struct engine *e);
void engine_watch(struct engine *e); /* now and then while works are in flight */
/* For a rank that is in no call: asks around as a slow call would. */
void engine_ask_around(struct engine *e);
/* A connection that work used (or NULL) has failed. True: the engine fails later, as another
 * rank may explain it. False: no rank can explain it, or there is nothing to explain. */
bool engine_suspect(struct engine *e, const struct tutti_work *work, int peer, tutti_status status,
		    const char *message);

/* work.c */
/* Whether it is a collective, whose number is the same on all ranks. Messages and replays of
 * captured calls have none. */
static inline bool work_is_collective(const struct tutti_work *work)
{
	return work->spec.args.fingerprint != 0 && work->spec.args.sequence != NO_CALL;
}
/* That submit lets in flight at once. A GPU's queue of a stream has room for about a thousand
 * operations, of which a call takes a few. When it is full the CPU waits in the driver, under the
 * engine's lock. */
static inline int engine_works_most(const struct engine *e)
{
	return e->config.device.fail ? ENGINE_DEVICE_WORKS_MAX : ENGINE_WORKS_MAX;
}
struct tutti_work *work_new(struct engine *e);
/* Its deadline begins, and its place among the works. */
void work_begin_life(struct engine *e, struct tutti_work *work, bool is_async);
void work_finish(struct engine *e, struct tutti_work *work, tutti_status status);
/* An engine is freed when it has ended and no work of it is outside. No lock. */
void engine_ref_owner(struct engine *e);
void engine_unref_owner(struct engine *e);
/* Calls what waits in e->called. Without any lock. Returns whether there was anything. */
bool engine_call_back(struct engine *e);
/* Of a group's work: one part less, which has ended. */
void work_part_ended(struct tutti_work *whole, const struct tutti_work *part);
void work_count_down(struct tutti_work *whole);
/* Of a work that has ended, no lock. */
/* Why it failed. text has ERROR_BYTES; returns it or a text that stays. */
const char *work_error(const struct tutti_work *work, char *text);
/* Its status; an error is this thread's last error then. */
tutti_status work_result(const struct tutti_work *work);

/* submit.c, under the lock: a call of a replay, as if it were submitted now. */
tutti_status engine_submit_replay(struct engine *e, const struct task_spec *spec);
/* A spec's counts and offsets, of n ranks, go to `to`, which has room for 4 n. */
void task_move_tables(struct task_spec *spec, size_t *to, size_t n);

/* captured.c */
/* Whether replays have come to calls, which are to be started. */
static inline bool engine_has_started(const struct engine *e)
{
	return atomic_load_explicit(&e->captured.has_started, memory_order_relaxed);
}
void captured_free_all(struct engine *e);

/* bounce.c */
void bounce_free(struct engine *e, struct tutti_work *work); /* its host copies */

/* window_calls.c */
/* Without the lock, by a thread that waits for work. A call beside which nothing is in flight needs
 * no whole pass. True: it is over and well, and work is released. */
bool window_call_end(struct tutti_work *work);

/* window_task.c */
/* All of a spec but timeout_ms and the trace, in place: to copy one takes longer than the rest. */
void window_task_fill(struct task_spec *spec, const struct engine *e, const struct call_args *args);
/* work is made from args; it has its timeout_ms and its entry in the trace. */
void window_task_enlist(struct engine *e, struct tutti_work *work, const struct call_args *args);
/* Posts the line of a call that begins at once, before the rest of work is filled: the other ranks
 * wait for that line alone. */
void window_task_post(struct engine *e, struct tutti_work *work, const struct call_args *args);
/* The first call; returns whether it moved. is_eager: this thread waits for it. */
bool window_task_advance(struct engine *e, bool is_eager);
/* The first call has come so far. Returns whether it is over. */
bool window_task_advanced(struct engine *e, struct tutti_work *work, tutti_status status);
/* Whether all that is in flight waits for one word of the window's memory, and for which. */
bool window_task_awaits(struct engine *e, struct window_awaited *awaited);

/* progress.c */
void engine_finish_ended(struct engine *e); /* the works whose tasks are over */
bool engine_settle(struct engine *e); /* what can be done without asking an endpoint */
void engine_poll_endpoints(struct engine *e); /* and settles what comes of it */

void engine_clean_up(struct engine *e); /* after a failure; once */
/* Without the lock, after a failure was set or taken: cleans up, unless another thread has the
 * lock and will. */
void engine_try_clean(struct engine *e);

/* engine.c */
/* How long a wait of engine_destroy lasts at most: not less than a thread that works may have to
 * wait for a processor. 0, of a simulated engine: no limit. */
static inline int engine_give_up_ms(const struct engine *e)
{
	enum { LEAST_MS = 1000 };
	int timeout_ms = e->config.timeout_ms;

	return timeout_ms > 0 && timeout_ms < LEAST_MS ? LEAST_MS : timeout_ms;
}
/* When it gives up, if it begins now. */
static inline uint64_t engine_give_up_ns(const struct engine *e)
{
	return engine_give_up_ms(e) > 0 ? deadline_after_ms(engine_give_up_ms(e)) : DEADLINE_NONE;
}

#endif
