/* Reads traces while they are being written, perhaps by another process, which may be hostile: each
 * number is checked before it is used. */
#include "collectives/trace/trace_log.h"

#include "core/status.h"

#include <stdlib.h>
#include <string.h>

#define TRIES 4 /* to read what is being written */

const char *const trace_state_names[TRACE_STATES] = {"under way", "done", "failed"};

static void load_words(void *to, const _Atomic uint64_t *from, size_t words)
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

/* The writer may have filled the oldest one's place anew and not counted that yet. */
static void drop_overtaken(struct trace_comm *c)
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
static void set_between(struct trace_comm *c, const struct page_reading *reading)
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
static void read_label(struct trace_op *op, const struct trace *t)
{
	const struct trace_label *l = &t->labels[op->index % TRACE_OPS];
	uint64_t of = trace_load(&t->generation) << 32 | (uint32_t)op->index;

	_Static_assert(sizeof op->label == 8 * TRACE_LABEL_WORDS, "label");
	if (trace_load(&l->of) != of)
		return;
	load_words(op->label, l->text, TRACE_LABEL_WORDS);
	if (trace_load(&l->of) != of)
		op->label[0] = '\0';
	trace_clean(op->label, sizeof op->label);
}

static void read_ops(struct trace_comm *c, const struct trace *t,
		     const struct page_reading *reading)
{
	uint64_t end = trace_load(&t->issued), newest = trace_load(&t->sequence);
	uint64_t first = end > TRACE_OPS ? end - TRACE_OPS : 0, after;

	for (uint64_t i = first; i < end; i++) {
		struct trace_op *op = &c->ops[c->op_count];
		*op = (struct trace_op){.index = i};
		read_label(op, t);
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
		drop_overtaken(c);
	set_between(c, reading);
}

static void read_wait(struct trace_comm *c, const struct trace *t)
{
	for (int i = 0; i < TRIES; i++) {
		struct trace_wait wait;
		uint64_t version = trace_load(&t->wait_version);
		load_words(&wait, t->wait, TRACE_WAIT_WORDS);
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
static bool read_slot(struct trace_comm *c, const struct trace *t,
		      const struct page_reading *reading)
{
	uint64_t generation = trace_load(&t->generation);
	struct trace_about about;

	if (generation % 2 == 0)
		return false;
	load_words(&about, t->about, TRACE_ABOUT_WORDS);
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
	read_wait(c, t);
	read_ops(c, t, reading);
	return trace_load(&t->generation) == generation && c->rank >= 0 && c->rank < c->size;
}

static tutti_status check_page(const struct trace_page *page, size_t bytes, const char *who)
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

static void read_head(struct trace_process *p, const struct trace_page *page)
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

	TRY(check_page(page, bytes, who));
	reading.now = ticks_moment((enum ticks_kind)page->ticks_kind);
	reading.start.monotonic_ns &= INT64_MAX;
	read_head(p, page);
	p->now_ns = (int64_t)reading.now.monotonic_ns;
	for (uint32_t i = 0; i < page->slots; i++) {
		struct trace_comm *comm = trace_read_make_room(p);
		if (!comm)
			return fail(TUTTI_ERR_MEMORY,
				    "no memory to read the trace of %s, which has %u communicators",
				    who, page->slots);
		if (read_slot(comm, &page->slot[i], &reading))
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

static void read_one(void *arg, const struct trace_page *page)
{
	struct own *own = arg;
	size_t bytes = sizeof *page + page->slots * sizeof(struct trace);

	if (own->status == TUTTI_OK)
		own->status = trace_read(own->process, page, bytes, "this process");
}

tutti_status trace_read_own(struct trace_process *process)
{
	struct own own = {process, TUTTI_OK};

	trace_each_page(read_one, &own);
	return own.status;
}
