/* How a communicator fails: the first failure sticks, everything under way ends with it, and after
 * that nothing of ours touches a caller's buffer. Also what may be asked of an engine at any time.
 */
#include "collectives/engine/run.h"

#include "collectives/trace/trace_log.h"
#include "core/log.h"

#include <stdio.h>
#include <string.h>

/* The first failure stays, and all ranks of the ring are told. */
static void set_failure(struct engine *e, tutti_status status, int dead, const char *sentence)
{
	pthread_mutex_lock(&e->fail_lock);
	bool is_first = !atomic_load_explicit(&e->stop, memory_order_relaxed);
	if (is_first) {
		snprintf(e->error, sizeof e->error, "%s", sentence);
		atomic_store_explicit(&e->failed_peer, dead + 1, memory_order_relaxed);
		atomic_store_explicit(&e->status, (int)status, memory_order_release);
		/* Partner: every wait of this communicator looks at stop. */
		atomic_store_explicit(&e->stop, 1, memory_order_release);
		if (e->config.trace)
			atomic_store_explicit(&e->config.trace->failed, (uint64_t)status,
					      memory_order_relaxed);
		log_info("the communicator failed: %s", e->error);
	}
	pthread_mutex_unlock(&e->fail_lock);
	if (is_first && e->config.control)
		control_tell(e->config.control, status, dead, e->work_count, e->error);
}

void engine_fail_naming(struct engine *e, tutti_status status, int dead, const char *sentence)
{
	set_failure(e, status, dead, sentence);
	/* Whoever holds the lock, this thread perhaps, cleans up when it lets go. */
	if (pthread_mutex_trylock(&e->lock) == 0)
		engine_unlock(e);
}

void engine_fail(struct engine *e, tutti_status status, const char *sentence)
{
	engine_fail_naming(e, status, -1, sentence);
}

const char *engine_call_words(const struct tutti_work *work, char *text, size_t text_bytes)
{
	if (work->spec.p2p.side)
		return p2p_in_words(work, text, text_bytes);
	snprintf(text, text_bytes, "%s #%llu (%s)", work->spec.name,
		 (unsigned long long)work->spec.args.sequence, work->spec.algorithm);
	return text;
}

/* Endpoints that have not delivered what was sent take up to half a second to close. */
void engine_abort(struct engine *e, const char *sentence)
{
	set_failure(e, TUTTI_ERR_ABORTED, -1, sentence);
	if (!helper_clean(e) && pthread_mutex_trylock(&e->lock) == 0)
		engine_unlock(e);
}

static const char *in_words(const struct engine *e, const struct tutti_work *work, const char *why,
			    char *text)
{
	char call[100];
	snprintf(text, ERROR_BYTES, "rank %d: %s: %.380s", e->config.rank,
		 engine_call_words(work, call, sizeof call), why);
	return text;
}

static unsigned long long ms_since(const struct engine *e, uint64_t start_ns)
{
	return (engine_now(e) - start_ns) / 1000000u;
}

/* Not the peer's fault: it may be waiting for what this rank could not issue yet. */
void engine_fail_outside(struct engine *e)
{
	struct tutti_work named = {.engine = e, .spec = *e->outside}, *oldest = e->works;
	char call[100], why[400], text[ERROR_BYTES];

	while (oldest->next)
		oldest = oldest->next;
	snprintf(why, sizeof why,
		 "%d works are under way on this communicator (at most %d): waited %llu ms for one "
		 "of them to end; the oldest, %s, has lasted %llu ms; wait for some before issuing "
		 "more, or issue them in a group",
		 e->work_count, ENGINE_WORKS_MAX, ms_since(e, e->outside_since_ns),
		 engine_call_words(oldest, call, sizeof call),
		 ms_since(e, oldest->deadline_ns - (uint64_t)oldest->spec.timeout_ms * 1000000u));
	engine_fail(e, TUTTI_ERR_TIMEOUT, in_words(e, &named, why, text));
}

void engine_fail_in(struct engine *e, const struct tutti_work *work, tutti_status status,
		    const char *why)
{
	char text[ERROR_BYTES];
	if (status == TUTTI_ERR_TIMEOUT && e->outside && e->work_count >= ENGINE_WORKS_MAX)
		engine_fail_outside(e);
	else
		engine_fail(e, status, in_words(e, work, why, text));
}

/* What is everybody's failure has the same sentence on every rank. */
void engine_window_failed(struct engine *e, const struct tutti_work *work, tutti_status status)
{
	char why[ERROR_BYTES];
	snprintf(why, sizeof why, "%s", last_error());
	if (status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_PEER ||
	    status == TUTTI_ERR_ABORTED || window_is_stopped(e->config.window))
		engine_fail_naming(e, status, window_dead(e->config.window), why);
	else
		engine_fail_in(e, work, status, why);
}

void engine_lost(struct engine *e, const struct tutti_work *work, int peer, tutti_status status,
		 const char *why)
{
	char text[ERROR_BYTES], whole[ERROR_BYTES], progress_text[200];
	size_t bytes = strlen(why);
	/* The sentence goes on after its end. */
	if (work->run && bytes > 0 && why[bytes - 1] == '.')
		bytes--;
	snprintf(whole, sizeof whole, "%s", why);
	if (work->run)
		snprintf(whole, sizeof whole, "%.*s; %s", bytes < 220 ? (int)bytes : 220, why,
			 run_progress_text(work->run, progress_text, sizeof progress_text));
	in_words(e, work, whole, text);
	if (!engine_suspect(e, work, peer, status, text))
		engine_fail_naming(e, status, status == TUTTI_ERR_PEER ? peer : -1, text);
}

/* The counts of a pair are in no note: who sees them differ says it. */
static void counts_differ(struct engine *e, const struct tutti_work *work,
			  const struct tutti_io *io)
{
	char text[ERROR_BYTES];
	int peer = io->conn->peer;
	size_t count = work->spec.args.counts[RECV_SIDE][peer];

	snprintf(text, sizeof text,
		 "The ranks did not make the same call: in %s #%llu rank %d expects %zu elements "
		 "from rank %d, which sends another number or made another call (%.200s)",
		 work->spec.name, (unsigned long long)work->spec.args.sequence, e->config.rank,
		 count, peer, io->conn->error);
	if (!engine_suspect(e, work, peer, TUTTI_ERR_MISMATCH, text))
		engine_fail_naming(e, TUTTI_ERR_MISMATCH, -1, text);
}

void engine_io_failed(struct engine *e, struct tutti_io *io)
{
	struct engine_io *own = (struct engine_io *)io;
	const struct tutti_work *work =
		own->owner == IO_STEP ? ((struct step_io *)io)->lane->run->work : own->work;
	bool of_conn = own->owner != IO_WORK && io->conn && io->conn->status != TUTTI_OK;
	if (of_conn && io->status == TUTTI_ERR_MISMATCH && work && work->spec.checks_counts)
		counts_differ(e, work, io);
	else if (of_conn)
		engine_lost(e, work, io->conn->peer, io->status, io->conn->error);
	else
		engine_fail_in(e, work, io->status, tutti_status_string(io->status));
}

/* After this nothing of ours touches a buffer of the caller. */
void engine_clean_up(struct engine *e)
{
	if (e->is_clean)
		return;
	e->is_clean = true;
	atomic_store(&e->is_dirty, 0);
	engine_disconnect(e);
	p2p_clean_up(e);
	for (int i = 0; i < TUTTI_MEMORY_KINDS; i++)
		if (e->queues[i])
			e->queues[i]->kind->cancel(e->queues[i]);
	if (e->config.window)
		window_fail(e->config.window, engine_status(e), e->error);
	tutti_done_init(&e->done);
	e->dirty = NULL;
	e->dirty_tail = &e->dirty;
	e->window_head = NULL;
	e->window_tail = &e->window_head;
	e->ended = NULL;
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < e->config.size; i++)
			e->streams[s][i] = (struct stream){NULL, &e->streams[s][i].head};
	while (e->works)
		work_finish(e, e->works, engine_status(e));
}

void engine_settle_failure(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	engine_unlock(e); /* which cleans up */
}

tutti_status engine_status(const struct engine *e)
{
	return (tutti_status)atomic_load_explicit(&((struct engine *)(uintptr_t)e)->status,
						  memory_order_acquire);
}

const char *engine_error(const struct engine *e)
{
	return engine_status(e) == TUTTI_OK ? "" : e->error;
}

int engine_failed_peer(const struct engine *e)
{
	return engine_status(e) == TUTTI_ERR_PEER ? e->failed_peer - 1 : -1;
}

void engine_show_failure(struct engine *e)
{
	if (e->trace_dir && engine_status(e) != TUTTI_OK && !atomic_exchange(&e->is_shown, true))
		trace_dump_failure(e->trace_dir);
}

void engine_stats(const struct engine *engine, tutti_stats *stats)
{
	struct engine *e = (struct engine *)(uintptr_t)engine;
	stats->messages = atomic_load_explicit(&e->messages, memory_order_relaxed);
	stats->sent_bytes = atomic_load_explicit(&e->sent_bytes, memory_order_relaxed);
	stats->received_bytes = atomic_load_explicit(&e->received_bytes, memory_order_relaxed);
	if (e->config.window)
		window_stats(e->config.window, &stats->window_bytes, &stats->staged_bytes);
}

void engine_forget_stats(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	atomic_store_explicit(&e->messages, 0, memory_order_relaxed);
	atomic_store_explicit(&e->sent_bytes, 0, memory_order_relaxed);
	atomic_store_explicit(&e->received_bytes, 0, memory_order_relaxed);
	engine_unlock(e);
}
