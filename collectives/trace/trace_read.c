/* Reads traces while they are being written, perhaps by another process, which may be hostile: each
 * number is checked before it is used. */
#include "collectives/trace/trace_log.h"
#include "core/memory/dtype.h"
#include "core/status.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 4 /* to read what is being written */

/* The page whose entries are read, and its clock. */
struct page_reading {
	struct ticks_moment start, now;
	const struct trace_page *page;
};

static uint64_t trace_load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)word, memory_order_acquire);
}

const char *const trace_state_names[TRACE_STATES] = {"under way", "done", "failed"};

static void trace_read_load_words(void *to, const _Atomic uint64_t *from, size_t words)
{
	for (size_t i = 0; i < words; i++) {
		uint64_t word = trace_load(&from[i]);
		memcpy((uint8_t *)to + 8 * i, &word, sizeof word);
	}
}

void trace_clean(char *text, size_t bytes)
{
	text[bytes - 1] = '\0';
	for (; *text; text++)
		if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
			*text = *text == '"' ? '\'' : '?';
}

/* Turns the words of an entry into numbers and names. */
struct words {
	uint64_t what, size, began, ended;
};

/* Whole, or false. */
static bool trace_read_take_entry(const struct trace_entry *e, struct words *w)
{
	w->what = trace_load(&e->what);
	w->size = trace_load(&e->size);
	w->began = trace_load(&e->began);
	w->ended = trace_load(&e->ended);
	return w->what != 0 && trace_load(&e->what) == w->what;
}

static int64_t trace_read_time_of(const struct page_reading *reading, uint64_t word)
{
	return (int64_t)ticks_to_ns(&reading->start, &reading->now, word & TRACE_TIME);
}

/* Collectives alone have numbers that their ranks have in common. */
static bool trace_read_has_number(unsigned kind)
{
	return kind < TRACE_SEND || kind > TRACE_GROW;
}

static void trace_read_name_kind(struct trace_op *op, unsigned kind)
{
	static const char *const others[] = {"send", "recv", "comm_agree", "comm_shrink",
					     "comm_grow"};
	const char *name = trace_read_has_number(kind) ? collective_name((enum collective)kind)
						       : others[kind - TRACE_SEND];

	snprintf(op->name, sizeof op->name, "%s", name);
}

static void trace_read_name_algorithm(struct trace_op *op, unsigned number,
				      const struct trace_page *page)
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

static bool trace_read_has_root(unsigned kind)
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

static void trace_read_set_times(struct trace_op *op, const struct words *w,
				 const struct page_reading *reading)
{
	bool has_end = op->state != TRACE_STATE_RUNS && !(w->what & TRACE_AT_ONCE);

	op->begin_ns = w->began ? trace_read_time_of(reading, w->began) : TRACE_UNKNOWN;
	if (op->begin_ns == TRACE_UNKNOWN && !(w->what & TRACE_AT_ONCE)) /* just now */
		op->begin_ns = (int64_t)reading->now.monotonic_ns;
	op->earliest_ns = op->latest_ns = op->begin_ns;
	op->end_ns = has_end ? trace_read_time_of(reading, w->ended) : TRACE_UNKNOWN;
	if (has_end && op->end_ns < op->begin_ns)
		op->end_ns = op->begin_ns;
}

/* Fills op, which has its index alone. newest: the sequence of a collective not far away. False:
 * the entry is not whole. */
static bool trace_entry_read(struct trace_op *op, const struct trace_entry *e, uint64_t newest,
			     const struct page_reading *reading)
{
	struct words w;

	if (!trace_read_take_entry(e, &w))
		return false;
	if (w.what & TRACE_AT_ONCE)
		w = trace_entry_unpack(w.what);
	unsigned kind = (unsigned)(w.what >> 24 & 255);
	tutti_dtype dtype = (tutti_dtype)(w.what >> 16 & 255);
	int32_t ahead = (int32_t)((uint32_t)(w.what >> 32) - (uint32_t)newest);
	bool is_message = kind == TRACE_SEND || kind == TRACE_RECV;

	trace_read_name_kind(op, kind);
	trace_read_name_algorithm(op, (unsigned)(w.what >> 8 & 255), reading->page);
	snprintf(op->dtype, sizeof op->dtype, "%s", dtype_bytes(dtype) ? dtype_name(dtype) : "?");
	op->sequence = trace_read_has_number(kind)
			       ? (int64_t)((newest + (uint64_t)ahead) & INT64_MAX)
			       : -1;
	op->count = w.size & TRACE_COUNT_MAX;
	op->bytes = op->count * dtype_bytes(dtype);
	op->peer = is_message || trace_read_has_root(kind) ? (int)(w.size >> 40) - 1 : -1;
	op->is_async = w.what & TRACE_IS_ASYNC;
	op->is_grouped = w.what & TRACE_IS_GROUPED;
	op->state = trace_entry_state_of(&w);
	trace_read_set_times(op, &w, reading);
	return true;
}

/* The writer may have filled the oldest one's place anew and not counted that yet. */
static void trace_read_drop_overtaken(struct trace_comm *c)
{
	const struct trace_op *oldest = c->ops;

	for (size_t i = 1; i < c->op_count; i++)
		if (oldest->sequence >= 0 && c->ops[i].sequence >= 0 &&
		    c->ops[i].sequence < oldest->sequence) {
			memmove(c->ops, c->ops + 1, --c->op_count * sizeof *c->ops);
			return;
		}
}

/* Short calls mostly have no time of their own: they are spread over the time that they can have
 * been made in. Asynchronous operations all have one, and may end whenever they like. */
static void trace_read_set_between(struct trace_comm *c, const struct page_reading *reading)
{
	int64_t low = (int64_t)reading->start.monotonic_ns;

	for (size_t i = 0, next; i < c->op_count; i = next) {
		struct trace_op *op = &c->ops[i];
		next = i + 1;
		if (op->begin_ns != TRACE_UNKNOWN) {
			bool is_over = !op->is_async && op->end_ns != TRACE_UNKNOWN;
			low = is_over ? op->end_ns : op->begin_ns;
			continue;
		}
		while (next < c->op_count && c->ops[next].begin_ns == TRACE_UNKNOWN)
			next++;
		int64_t high = next < c->op_count ? c->ops[next].begin_ns
						  : (int64_t)reading->now.monotonic_ns;
		high = high > low ? high : low;
		int64_t apart = (high - low) / (int64_t)(next - i + 1);
		for (size_t k = i; k < next; k++) {
			c->ops[k].earliest_ns = low;
			c->ops[k].latest_ns = high;
			c->ops[k].begin_ns = low + apart * (int64_t)(k - i + 1);
		}
	}
}

/* A label that is being written is left out. */
static void trace_read_label(struct trace_op *op, const struct trace *t)
{
	const struct trace_label *l = &t->labels[op->index % TRACE_OPS];
	uint64_t of = trace_load(&t->generation) << 32 | (uint32_t)op->index;

	_Static_assert(sizeof op->label == 8 * TRACE_LABEL_WORDS, "label");
	if (trace_load(&l->of) != of)
		return;
	trace_read_load_words(op->label, l->text, TRACE_LABEL_WORDS);
	if (trace_load(&l->of) != of)
		op->label[0] = '\0';
	trace_clean(op->label, sizeof op->label);
}

static void trace_read_ops(struct trace_comm *c, const struct trace *t,
			   const struct page_reading *reading)
{
	uint64_t end = trace_load(&t->issued), newest = trace_load(&t->sequence);
	uint64_t first = end > TRACE_OPS ? end - TRACE_OPS : 0, after;

	for (uint64_t i = first; i < end; i++) {
		struct trace_op *op = &c->ops[c->op_count];
		*op = (struct trace_op){.index = i};
		trace_read_label(op, t);
		c->op_count += trace_entry_read(op, &t->ops[i % TRACE_OPS], newest, reading);
	}
	after = trace_load(&t->issued);
	size_t gone = 0; /* what has been written over since */
	while (gone < c->op_count && after > TRACE_OPS && c->ops[gone].index < after - TRACE_OPS)
		gone++;
	memmove(c->ops, c->ops + gone, (c->op_count - gone) * sizeof *c->ops);
	c->op_count -= gone;
	c->issued = end;
	if (c->op_count)
		trace_read_drop_overtaken(c);
	trace_read_set_between(c, reading);
}

static void trace_read_wait(struct trace_comm *c, const struct trace *t)
{
	for (int i = 0; i < TRIES; i++) {
		struct trace_wait wait;
		uint64_t version = trace_load(&t->wait_version);
		trace_read_load_words(&wait, t->wait, TRACE_WAIT_WORDS);
		if (version % 2 || trace_load(&t->wait_version) != version)
			continue;
		if (wait.index == UINT64_MAX)
			return;
		c->waits_index = wait.index;
		c->waits_rank = wait.rank >= 0 && wait.rank < c->size ? wait.rank : -1;
		memcpy(c->waits, wait.text, sizeof c->waits);
		trace_clean(c->waits, sizeof c->waits);
		return;
	}
}

/* False: it is no communicator's, or has become another one's meanwhile. */
static bool trace_read_slot(struct trace_comm *c, const struct trace *t,
			    const struct page_reading *reading)
{
	uint64_t generation = trace_load(&t->generation);
	struct trace_about about;

	if (generation % 2 == 0)
		return false;
	trace_read_load_words(&about, t->about, TRACE_ABOUT_WORDS);
	c->name = about.name;
	c->rank = about.rank;
	c->size = about.size;
	c->node_rank = about.node_rank;
	c->num_nodes = about.num_nodes;
	memcpy(c->way, about.way, sizeof c->way);
	trace_clean(c->way, sizeof c->way);
	memcpy(c->title, about.title, sizeof c->title);
	trace_clean(c->title, sizeof c->title);
	c->status = (int)(trace_load(&t->failed) & 0xffff);
	c->waits_rank = -1;
	trace_read_wait(c, t);
	trace_read_ops(c, t, reading);
	return trace_load(&t->generation) == generation && c->rank >= 0 && c->rank < c->size;
}

static tutti_status trace_read_check_page(const struct trace_page *page, size_t bytes,
					  const char *who)
{
	if (bytes < sizeof *page || page->magic != TRACE_MAGIC)
		return fail(TUTTI_ERR_INVALID, "%s has a trace that is damaged", who);
	if (page->version != TRACE_VERSION || page->layout != trace_layout() ||
	    page->slot_bytes != sizeof(struct trace)) {
		char version[16];
		memcpy(version, page->library, sizeof version);
		trace_clean(version, sizeof version);
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s uses another version of Tutti (%s, trace %u.%08x) than this is "
			    "(%s, trace %u.%08x)",
			    who, version, page->version, page->layout, TUTTI_VERSION, TRACE_VERSION,
			    trace_layout());
	}
	if (page->slots > (bytes - sizeof *page) / sizeof(struct trace) || page->ticks_kind < 0 ||
	    page->ticks_kind >= TICKS_KINDS || page->start.monotonic_ns > TRACE_NS_MOST ||
	    page->start.realtime_ns > TRACE_DATE_MOST)
		return fail(TUTTI_ERR_INVALID, "%s has a trace that is damaged", who);
	return TUTTI_OK;
}

static void trace_read_head(struct trace_process *p, const struct trace_page *page)
{
	p->pid = page->pid;
	memcpy(p->host, page->host, sizeof p->host);
	memcpy(p->boot, page->boot, sizeof p->boot);
	memcpy(p->library, page->library, sizeof p->library);
	trace_clean(p->host, sizeof p->host);
	trace_clean(p->boot, sizeof p->boot);
	trace_clean(p->library, sizeof p->library);
	p->start_ns = (int64_t)(page->start.monotonic_ns & INT64_MAX);
	p->real_ns = (int64_t)(page->start.realtime_ns & INT64_MAX);
}

/* Room for one communicator more, of as many operations as there can be. NULL: no memory. */
static struct trace_comm *trace_read_make_room(struct trace_process *p)
{
	struct trace_comm *comms = realloc(p->comms, (p->comm_count + 1) * sizeof *comms);

	if (!comms)
		return NULL;
	p->comms = comms;
	comms += p->comm_count;
	*comms = (struct trace_comm){.ops = calloc(TRACE_OPS, sizeof(struct trace_op))};
	return comms->ops ? comms : NULL;
}

tutti_status trace_read(struct trace_process *p, const struct trace_page *page, size_t bytes,
			const char *who)
{
	struct page_reading reading = {.start = page->start, .page = page};

	TRY(trace_read_check_page(page, bytes, who));
	reading.now = ticks_moment((enum ticks_kind)page->ticks_kind);
	reading.start.monotonic_ns &= INT64_MAX;
	trace_read_head(p, page);
	p->now_ns = (int64_t)reading.now.monotonic_ns;
	for (uint32_t i = 0; i < page->slots; i++) {
		struct trace_comm *comm = trace_read_make_room(p);
		if (!comm)
			return fail(TUTTI_ERR_MEMORY,
				    "no memory to read the trace of %s, which has %u communicators",
				    who, page->slots);
		if (trace_read_slot(comm, &page->slot[i], &reading))
			p->comm_count++;
		else
			free(comm->ops);
	}
	return TUTTI_OK;
}

void trace_process_free(struct trace_process *p)
{
	for (size_t i = 0; i < p->comm_count; i++)
		free(p->comms[i].ops);
	free(p->comms);
}

struct own {
	struct trace_process *process;
	tutti_status status;
};

static void trace_read_one(void *arg, const struct trace_page *page)
{
	struct own *own = arg;
	size_t bytes = sizeof *page + page->slots * sizeof(struct trace);

	if (own->status == TUTTI_OK)
		own->status = trace_read(own->process, page, bytes, "this process");
}

tutti_status trace_read_own(struct trace_process *process)
{
	struct own own = {process, TUTTI_OK};

	trace_each_page(trace_read_one, &own);
	return own.status;
}
