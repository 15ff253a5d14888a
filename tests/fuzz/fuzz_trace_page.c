/* Would break: tutti-trace dump and tutti-top, by the trace of a process that means no good. The
 * input is how many 4 KiB it lacks, and then what is changed on a right one: 11 bytes each time,
 * which say where (the head, a communicator, an operation) and what is there instead. */
#include "fuzz.h"

#include "collectives/select/select.h"
#include "collectives/trace/trace_log.h"
#include "core/status.h"
#include "tools/tutti-top/rows.h"
#include "tools/tutti-trace/merge.h"

#include <string.h>

#define SLOTS       3 /* of as many as its head says */
#define PAGE_BYTES  (sizeof(struct trace_page) + SLOTS * sizeof(struct trace))
#define HEAD_WORDS  (sizeof(struct trace_page) / 8)
#define SLOT_WORDS  (sizeof(struct trace) / 8)
#define ABOUT_WORDS (offsetof(struct trace, ops) / 8)

static uint8_t *right_page, *page;

static void copy_page(void *arg, const struct trace_page *from)
{
	(void)arg;
	memcpy(right_page, from, PAGE_BYTES);
}

static void make_page(void)
{
	struct trace_about about = {.name = 5, .rank = 1, .size = 2, .num_nodes = 1, .way = "tcp"};
	struct trace *t;

	right_page = aligned_alloc(4096, PAGE_BYTES);
	page = aligned_alloc(4096, PAGE_BYTES);
	MUST(right_page && page && trace_open(&t, &about, algorithm_name) == TUTTI_OK);
	for (uint64_t i = 0; i < 40; i++) {
		trace_label(t, i % 3 ? NULL : "unit h.3");
		struct trace_mark mark = trace_note(
			t, trace_what(i, (unsigned)i % COLL_COUNT, 0, (unsigned)i % 9, 0),
			trace_size(i, 0));
		trace_began(&mark);
		if (i < 38)
			trace_ended(&mark, i == 37);
	}
	trace_each_page(copy_page, NULL);
	trace_close(t);
	((struct trace_page *)(void *)right_page)->slots = SLOTS;
}

static void change(struct input *in)
{
	uint8_t where = input_byte(in);
	size_t index = input_byte(in), slot = HEAD_WORDS + where / 4 % SLOTS * SLOT_WORDS;
	uint64_t word;

	index |= (size_t)input_byte(in) << 8;
	input_bytes(in, &word, sizeof word);
	size_t at = where % 4 == 0   ? index % HEAD_WORDS
		    : where % 4 == 1 ? slot + index % ABOUT_WORDS
				     : slot + ABOUT_WORDS + index % (SLOT_WORDS - ABOUT_WORDS);
	memcpy(page + 8 * at, &word, sizeof word);
}

static void check(const struct trace_process *p)
{
	for (size_t i = 0; i < p->comm_count; i++) {
		const struct trace_comm *c = &p->comms[i];
		MUST(c->rank >= 0 && c->rank < c->size && c->op_count <= TRACE_OPS);
		MUST(c->waits_rank >= -1 && c->waits_rank < c->size);
		for (size_t k = 0; k < c->op_count; k++)
			MUST(c->ops[k].begin_ns >= 0 &&
			     c->ops[k].earliest_ns <= c->ops[k].latest_ns);
	}
}

/* All that the tools do with it. */
static void show(struct trace_process *p)
{
	struct sample before = {0}, now = {.ns = 1000000, .log = {p, 1}};
	struct log log = {0};
	char *text = NULL, why[300] = "";
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	MUST(file);
	sample_print(&before, &now, file);
	before = now;
	now.ns = 2000000;
	sample_print(&before, &now, file);
	sample_print_json(&before, &now, file);
	MUST(fclose(file) == 0);
	free(text);
	file = open_memstream(&text, &bytes);
	MUST(file);
	trace_write(file, p, 1);
	MUST(fclose(file) == 0);
	bool is_read = load_text(&log, text, why, sizeof why);
	MUST(is_read || strlen(why) > 0);
	free(text);
	log_free(&log);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	struct trace_process p = {0};

	if (!right_page)
		make_page();
	size_t lacks = input_byte(&in) % (PAGE_BYTES / 4096), length = PAGE_BYTES - 4096 * lacks;
	memcpy(page, right_page, PAGE_BYTES);
	while (in.left)
		change(&in);
	memmove(page + PAGE_BYTES - length, page, length); /* so that a sanitizer sees its end */
	tutti_status status = trace_read(
		&p, (struct trace_page *)(void *)(page + PAGE_BYTES - length), length, "A page");
	MUST(status == TUTTI_OK || strlen(last_error()) > 0);
	if (status == TUTTI_OK)
		check(&p);
	show(&p);
	trace_process_free(&p);
}
