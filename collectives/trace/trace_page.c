/* Where traces lie: pages of sixteen, in files without a name. Such a file is found as an open
 * descriptor of the process (/proc/PID/fd), can be mapped for reading by processes that may look at
 * this one, and is gone with it however it ends. */
#include "collectives/trace/trace.h"

#include "collectives/trace/trace_log.h"
#include "core/log.h"
#include "core/machine.h"
#include "core/shared_memory.h"
#include "core/status.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES (sizeof(struct trace_page) + TRACE_SLOTS * sizeof(struct trace))

/* A page of this process. All under the lock. */
struct leaf {
	struct leaf *next;
	struct trace_page *page;
	int fd; /* -1 for private memory */
	uint32_t used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct leaf *leaves;
static int first_rank = -1;
enum ticks_kind trace_clock;

_Static_assert(sizeof(struct trace_about) % 8 == 0 && sizeof(struct trace_wait) % 8 == 0,
	       "they are copied by words");
_Static_assert(sizeof(struct trace_page) == 4096, "slots begin on a page");

static uint32_t trace_page_add_text(uint32_t hash, const char *text)
{
	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 16777619u;
	return hash;
}

/* Entries have numbers of collectives: the table of these is part of the layout. */
uint32_t trace_layout(void)
{
	uint32_t hash = 2166136261u ^ (uint32_t)(sizeof(struct trace) + TRACE_SLOTS);

	for (int i = 0; i < COLL_COUNT; i++)
		hash = trace_page_add_text(hash, collective_names[i]);
	return hash;
}

static void trace_page_write_head(struct trace_page *page, trace_name_fn *algorithm_name)
{
	const char *name;

	page->magic = TRACE_MAGIC;
	page->version = TRACE_VERSION;
	page->layout = trace_layout();
	snprintf(page->library, sizeof page->library, "%s", TUTTI_VERSION);
	page->slots = TRACE_SLOTS;
	page->slot_bytes = sizeof(struct trace);
	page->pid = (int32_t)getpid();
	page->ticks_kind = (int32_t)trace_clock;
	page->start = ticks_moment(trace_clock);
	if (gethostname(page->host, sizeof page->host - 1) != 0)
		page->host[0] = '\0';
	_Static_assert(sizeof page->boot >= MACHINE_BOOT_BYTES, "boot");
	if (machine_boot(page->boot) != TUTTI_OK)
		page->boot[0] = '\0';
	for (int i = 0; i < (int)TRACE_ALGORITHMS && (name = algorithm_name(i)); i++)
		snprintf(page->algorithms[i], sizeof page->algorithms[i], "%s", name);
}

/* Where it cannot be in a file it is in private memory. */
static bool trace_page_map_page(struct leaf *leaf)
{
	void *at = NULL;

	leaf->fd = -1;
	if (shared_memory_publish(TRACE_NAME, PAGE_BYTES, &leaf->fd, &at) != TUTTI_OK) {
		log_info("the trace is not seen from outside this process: %s", last_error());
		at = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);
	}
	leaf->page = at == MAP_FAILED ? NULL : at;
	return leaf->page != NULL;
}

static struct leaf *trace_page_new_leaf(trace_name_fn *algorithm_name)
{
	struct leaf *leaf = calloc(1, sizeof *leaf);

	if (!leaf)
		return NULL;
	if (trace_clock !=
	    ticks_kind_here()) /* before the first trace: then it is read without the lock */
		trace_clock = ticks_kind_here();
	if (!trace_page_map_page(leaf)) {
		free(leaf);
		return NULL;
	}
	trace_page_write_head(leaf->page, algorithm_name);
	leaf->next = leaves;
	leaves = leaf;
	return leaf;
}

static struct leaf *trace_page_leaf_with_room(trace_name_fn *algorithm_name)
{
	for (struct leaf *leaf = leaves; leaf; leaf = leaf->next)
		if (leaf->used != (1u << TRACE_SLOTS) - 1)
			return leaf;
	return trace_page_new_leaf(algorithm_name);
}

static void trace_page_store_words(_Atomic uint64_t *to, const void *from, size_t words)
{
	for (size_t i = 0; i < words; i++) {
		uint64_t word;
		memcpy(&word, (const uint8_t *)from + 8 * i, sizeof word);
		atomic_store_explicit(&to[i], word, memory_order_release);
	}
}

/* Partner: trace_read, which looks at the generation before and after the rest. */
static void trace_page_begin(struct trace *t, const struct trace_about *about)
{
	uint64_t generation = atomic_load_explicit(&t->generation, memory_order_relaxed);

	for (uint32_t i = 0; i < TRACE_OPS; i++)
		atomic_store_explicit(&t->ops[i].what, 0, memory_order_release);
	atomic_store_explicit(&t->issued, 0, memory_order_release);
	atomic_store_explicit(&t->sequence, 0, memory_order_release);
	atomic_store_explicit(&t->failed, 0, memory_order_release);
	atomic_store_explicit(&t->wait[0], UINT64_MAX, memory_order_release);
	trace_page_store_words(t->about, about, TRACE_ABOUT_WORDS);
	atomic_store_explicit(&t->generation, generation + 1, memory_order_release);
}

tutti_status trace_open(struct trace **trace, const struct trace_about *about,
			trace_name_fn *algorithm_name)
{
	pthread_mutex_lock(&lock);
	struct leaf *leaf = trace_page_leaf_with_room(algorithm_name);
	unsigned slot = leaf ? (unsigned)__builtin_ctz(~leaf->used) : 0;
	if (leaf) {
		leaf->used |= 1u << slot;
		*trace = &leaf->page->slot[slot];
		trace_page_begin(*trace, about);
		first_rank = first_rank < 0 ? about->rank : first_rank;
	}
	pthread_mutex_unlock(&lock);
	return leaf ? TUTTI_OK
		    : fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a communicator's trace",
			   about->rank);
}

/* Under the lock: it is not in use any more. */
static void trace_page_free_leaf(struct leaf *leaf)
{
	struct leaf **at = &leaves;

	while (*at != leaf)
		at = &(*at)->next;
	*at = leaf->next;
	munmap(leaf->page, PAGE_BYTES);
	if (leaf->fd >= 0)
		close(leaf->fd);
	free(leaf);
}

void trace_close(struct trace *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&lock);
	struct leaf *leaf = leaves;
	while (t < leaf->page->slot || t >= leaf->page->slot + TRACE_SLOTS)
		leaf = leaf->next;
	atomic_fetch_add_explicit(&t->generation, 1, memory_order_acq_rel);
	leaf->used &= ~(1u << (t - leaf->page->slot));
	if (!leaf->used)
		trace_page_free_leaf(leaf);
	pthread_mutex_unlock(&lock);
}

int trace_first_rank(void)
{
	pthread_mutex_lock(&lock);
	int rank = first_rank;
	pthread_mutex_unlock(&lock);
	return rank;
}

void trace_each_page(void (*visit)(void *arg, const struct trace_page *page), void *arg)
{
	pthread_mutex_lock(&lock);
	for (const struct leaf *leaf = leaves; leaf; leaf = leaf->next)
		visit(arg, leaf->page);
	pthread_mutex_unlock(&lock);
}

/* Partner: trace_read, which looks at of before and after the text. */
void trace_label(struct trace *t, const char *label)
{
	uint64_t index = atomic_load_explicit(&t->issued, memory_order_relaxed);
	uint64_t generation = atomic_load_explicit(&t->generation, memory_order_relaxed);
	struct trace_label *l = &t->labels[index % TRACE_OPS];
	char text[8 * TRACE_LABEL_WORDS] = "";

	if (!label)
		return;
	snprintf(text, sizeof text, "%s", label);
	atomic_store_explicit(&l->of, 0, memory_order_relaxed);
	trace_page_store_words(l->text, text, TRACE_LABEL_WORDS);
	atomic_store_explicit(&l->of, generation << 32 | (uint32_t)index, memory_order_release);
}

void trace_waits(struct trace *t, const struct trace_wait *wait)
{
	uint64_t version = atomic_load_explicit(&t->wait_version, memory_order_relaxed);

	atomic_store_explicit(&t->wait_version, version + 1, memory_order_relaxed);
	trace_page_store_words(t->wait, wait, TRACE_WAIT_WORDS);
	atomic_store_explicit(&t->wait_version, version + 2, memory_order_release);
}
