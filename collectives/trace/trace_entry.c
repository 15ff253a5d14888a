/* Turns the words of an entry into numbers and names. */
#include "collectives/trace/trace_log.h"

#include "core/memory/dtype.h"

struct words {
	uint64_t what, size, began, ended;
};

/* Whole, or false. */
static bool take_entry(const struct trace_entry *e, struct words *w)
{
	w->what = trace_load(&e->what);
	w->size = trace_load(&e->size);
	w->began = trace_load(&e->began);
	w->ended = trace_load(&e->ended);
	return w->what != 0 && trace_load(&e->what) == w->what;
}

static int64_t time_of(const struct page_reading *reading, uint64_t word)
{
	return (int64_t)ticks_to_ns(&reading->start, &reading->now, word & TRACE_TIME);
}

/* Collectives alone have numbers that their ranks have in common. */
static bool has_number(unsigned kind)
{
	return kind < TRACE_SEND || kind > TRACE_GROW;
}

static void name_kind(struct trace_op *op, unsigned kind)
{
	static const char *const others[] = {"send", "recv", "comm_agree", "comm_shrink",
					     "comm_grow"};
	const char *name = has_number(kind) ? collective_name((enum collective)kind)
					    : others[kind - TRACE_SEND];

	snprintf(op->name, sizeof op->name, "%s", name);
}

static void name_algorithm(struct trace_op *op, unsigned number, const struct trace_page *page)
{
	const char *name = number == TRACE_BY_WINDOW    ? "window"
			   : number == TRACE_BY_DEVICE  ? "device"
			   : number == TRACE_BY_MESSAGE ? "p2p"
			   : number < TRACE_ALGORITHMS  ? page->algorithms[number]
							: "";

	snprintf(op->algorithm, sizeof op->algorithm, "%.*s", (int)sizeof page->algorithms[0] - 1,
		 *name ? name : "?");
	trace_clean(op->algorithm, sizeof op->algorithm);
}

static bool has_root(unsigned kind)
{
	return kind < COLL_COUNT && collective_has_root(collective_pattern((enum collective)kind));
}

/* The four words of a short call, which has all in one. */
static struct words trace_entry_unpack(uint64_t what)
{
	uint64_t kind = what >> 24 & 255, dtype = what >> 20 & 15, count = what >> 13 & 127;

	return (struct words){trace_what(what >> 32, (unsigned)kind, (unsigned)dtype,
					 TRACE_BY_WINDOW, TRACE_AT_ONCE | (what & TRACE_IS_ASYNC)),
			      trace_size(count, (int)(what >> 4 & 511)), 0, 0};
}

static enum trace_state trace_entry_state_of(const struct words *w)
{
	if (w->what & TRACE_AT_ONCE || !(w->ended & (TRACE_IN_FLIGHT | TRACE_FAILED)))
		return TRACE_STATE_DONE;
	return w->ended & TRACE_IN_FLIGHT ? TRACE_STATE_RUNS : TRACE_STATE_FAILED;
}

static void set_times(struct trace_op *op, const struct words *w,
		      const struct page_reading *reading)
{
	bool has_end = op->state != TRACE_STATE_RUNS && !(w->what & TRACE_AT_ONCE);

	op->begin_ns = w->began ? time_of(reading, w->began) : TRACE_UNKNOWN;
	if (op->begin_ns == TRACE_UNKNOWN && !(w->what & TRACE_AT_ONCE)) /* just now */
		op->begin_ns = (int64_t)reading->now.monotonic_ns;
	op->earliest_ns = op->latest_ns = op->begin_ns;
	op->end_ns = has_end ? time_of(reading, w->ended) : TRACE_UNKNOWN;
	if (has_end && op->end_ns < op->begin_ns)
		op->end_ns = op->begin_ns;
}

bool trace_entry_read(struct trace_op *op, const struct trace_entry *e, uint64_t newest,
		      const struct page_reading *reading)
{
	struct words w;

	if (!take_entry(e, &w))
		return false;
	if (w.what & TRACE_AT_ONCE)
		w = trace_entry_unpack(w.what);
	unsigned kind = (unsigned)(w.what >> 24 & 255);
	tutti_dtype dtype = (tutti_dtype)(w.what >> 16 & 255);
	int32_t ahead = (int32_t)((uint32_t)(w.what >> 32) - (uint32_t)newest);
	bool is_message = kind == TRACE_SEND || kind == TRACE_RECV;

	name_kind(op, kind);
	name_algorithm(op, (unsigned)(w.what >> 8 & 255), reading->page);
	snprintf(op->dtype, sizeof op->dtype, "%s", dtype_bytes(dtype) ? dtype_name(dtype) : "?");
	op->sequence = has_number(kind) ? (int64_t)((newest + (uint64_t)ahead) & INT64_MAX) : -1;
	op->count = w.size & TRACE_COUNT_MAX;
	op->bytes = op->count * dtype_bytes(dtype);
	op->peer = is_message || has_root(kind) ? (int)(w.size >> 40) - 1 : -1;
	op->is_async = w.what & TRACE_IS_ASYNC;
	op->is_grouped = w.what & TRACE_IS_GROUPED;
	op->state = trace_entry_state_of(&w);
	set_times(op, &w, reading);
	return true;
}
