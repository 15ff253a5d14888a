/* The trace: the last operations of every communicator of this process, collectives and messages
 * alike, with times. It lies in memory that other processes of the same user can map, so that
 * tutti-trace and tutti-top see what this one does without its help.
 *
 * (The recorder, recorder.h, is about the same calls, but for the ranks themselves: it lies where
 * they compare what they called.)
 *
 * One thread at a time begins operations on a communicator; any thread may end one. Readers
 * (trace_read.c) may come at any time, and get a whole entry or none. The trace has nothing of the
 * callers' data or the job's secret. */
#ifndef COLLECTIVES_TRACE_TRACE_H
#define COLLECTIVES_TRACE_TRACE_H

#include "collectives/plan/plan.h"
#include "collectives/trace/recorder.h"
#include "core/ticks.h"

#include <stdatomic.h>
#include <stdbool.h>

#define TRACE_OPS 1024u /* a power of two */

/* The kinds of operations besides the collectives: messages, and calls of the living alone. */
enum { TRACE_SEND = 0x40, TRACE_RECV, TRACE_AGREE, TRACE_SHRINK, TRACE_GROW };

/* The number of an algorithm, whose name is on the page, or: */
#define TRACE_ALGORITHMS 64u
enum { TRACE_BY_DEVICE = 0xfd, TRACE_BY_WINDOW = 0xfe, TRACE_BY_MESSAGE = 0xff };

/* Flags in what. IS_VALID: so that it is never 0. AT_ONCE: it was over before the clock was read,
 * and so short that all is in that word (trace_short). */
enum { TRACE_IS_VALID = 1, TRACE_IS_ASYNC = 2, TRACE_IS_GROUPED = 4, TRACE_AT_ONCE = 8 };

/* In ended, beside the time. */
#define TRACE_IN_FLIGHT (UINT64_C(1) << 63) /* and in the low half the operation's index   */
#define TRACE_FAILED    (UINT64_C(1) << 62)
#define TRACE_TIME      (TRACE_FAILED - 1)

#define TRACE_COUNT_MAX ((UINT64_C(1) << 40) - 1)

struct trace_entry {
	/* number << 32 | kind << 24 | dtype << 16 | algorithm << 8 | flags. number: the low half of
	 * a collective's sequence, or of another operation's index. AT_ONCE:
	 * number << 32 | kind << 24 | dtype << 20 | count << 13 | root << 4 | flags */
	_Atomic uint64_t what;
	_Atomic uint64_t size; /* peer or root + 1 << 40 | count                              */
	_Atomic uint64_t began, ended; /* ticks; began is 0 without a clock                   */
};

/* Of a communicator, written once. Texts are cut, and end with a 0. */
struct trace_about {
	uint64_t name; /* the same on all its ranks, and no other communicator's        */
	int32_t rank, size, node_rank, num_nodes;
	char way[40];  /* "window", or the transports                                   */
	char title[32]; /* config.name, or ""                                           */
};

#define TRACE_LABEL_WORDS 7

/* The purpose of an operation, in its caller's words. Only operations that have one write it. */
struct trace_label {
	_Atomic uint64_t of; /* the slot's generation << 32 | the operation's index; 0: of none */
	_Atomic uint64_t text[TRACE_LABEL_WORDS];
};

/* The cause of an operation's wait, if the wait is long. */
struct trace_wait {
	uint64_t index, ticks; /* of the operation; when this was written               */
	int32_t rank, reserved; /* rank: one it waits for, or -1                         */
	char text[232];
};

#define TRACE_ABOUT_WORDS (sizeof(struct trace_about) / 8)
#define TRACE_WAIT_WORDS  (sizeof(struct trace_wait) / 8)

/* One communicator. */
struct trace {
	_Atomic uint64_t generation; /* odd: it is in use                                 */
	_Atomic uint64_t about[TRACE_ABOUT_WORDS];
	_Atomic uint64_t failed; /* the communicator's status                             */
	_Alignas(128) _Atomic uint64_t wait_version; /* odd: being written                  */
	_Atomic uint64_t wait[TRACE_WAIT_WORDS];
	_Alignas(128) _Atomic uint64_t issued; /* operations begun                          */
	_Atomic uint64_t sequence;             /* of a late collective                      */
	_Alignas(4096) struct trace_entry ops[TRACE_OPS];
	_Alignas(4096) struct trace_label labels[TRACE_OPS];
};

#define TRACE_SLOTS   16u
#define TRACE_MAGIC   UINT64_C(0x6563617274747574) /* "tuttrace" */
#define TRACE_NAME    "tutti-trace"                /* of the file that has no name in any folder */
#define TRACE_VERSION 4u

/* The head of a page, written before readers can see it. */
struct trace_page {
	uint64_t magic;
	uint32_t version, layout; /* trace_layout()                                         */
	char library[16];         /* its version                                            */
	uint32_t slots, slot_bytes;
	int32_t pid, ticks_kind;
	struct ticks_moment start;
	char host[64], boot[40];
	char algorithms[TRACE_ALGORITHMS][16]; /* their names, by number; "": there is none   */
	_Alignas(4096) struct trace slot[];
};

/* A hash that differs between builds that would misunderstand each other. */
uint32_t trace_layout(void);
extern enum ticks_kind trace_clock; /* set before there is any trace */

/* The name of algorithm number, from 0 on; NULL after the last. */
typedef const char *trace_name_fn(int number);
/* A new communicator's trace. MEMORY. Where no file can be made it is in private memory, and only
 * this process sees it. algorithm_name: the same at each call. */
tutti_status trace_open(struct trace **trace, const struct trace_about *about,
			trace_name_fn *algorithm_name);
void trace_close(struct trace *trace); /* NULL is fine */

/* The rank in the first communicator that this process had: its number in the job. */
int trace_first_rank(void);

/* Which entry an operation has; entry NULL if there is none. */
struct trace_mark {
	struct trace_entry *entry;
	uint32_t index;
};

static inline uint64_t trace_what(uint64_t number, unsigned kind, unsigned dtype,
				  unsigned algorithm, unsigned flags)
{
	return number << 32 | (uint64_t)(kind & 255) << 24 | (dtype & 255) << 16 |
	       (algorithm & 255) << 8 | flags | TRACE_IS_VALID;
}

static inline uint64_t trace_size(uint64_t count, int peer)
{
	return (uint64_t)(peer + 1) << 40 | (count < TRACE_COUNT_MAX ? count : TRACE_COUNT_MAX);
}

/* An entry is invalid while it is written: partner is trace_take_entry in trace_read.c, which looks at
 * what before and after the others. Has no time yet. */
static inline struct trace_mark trace_note(struct trace *t, uint64_t what, uint64_t size)
{
	uint64_t index = atomic_load_explicit(&t->issued, memory_order_relaxed);
	struct trace_entry *e = &t->ops[index % TRACE_OPS];

	atomic_store_explicit(&e->what, 0, memory_order_relaxed);
	atomic_store_explicit(&e->size, size, memory_order_release);
	atomic_store_explicit(&e->began, 0, memory_order_release);
	atomic_store_explicit(&e->ended, TRACE_IN_FLIGHT | (uint32_t)index, memory_order_release);
	atomic_store_explicit(&e->what, what, memory_order_release);
	atomic_store_explicit(&t->issued, index + 1, memory_order_release);
	return (struct trace_mark){e, (uint32_t)index};
}

/* Of the operation that is noted next. label: NULL is fine. */
void trace_label(struct trace *trace, const char *label);

/* A collective. */
static inline struct trace_mark trace_call(struct trace *t, const struct call_args *a,
					   unsigned algorithm, unsigned flags)
{
	uint64_t what =
		trace_what(a->sequence, a->collective, (unsigned)a->dtype, algorithm, flags);

	atomic_store_explicit(&t->sequence, a->sequence, memory_order_relaxed);
	return trace_note(t, what, trace_size(a->count, a->root));
}

#define TRACE_SHORT 64u /* fewer elements                                */
#define TRACE_ROOTS 512 /* so many of the first ranks can be its root    */

static inline bool trace_is_short(const struct call_args *a)
{
	return (a->count | (unsigned)a->root / (TRACE_ROOTS / TRACE_SHORT)) < TRACE_SHORT;
}

#define TRACE_TIMED 32u /* of so many short ones at the least one */

/* Whether the clock is read for the call even where it does not wait. */
static inline bool trace_is_timed(const struct call_args *a)
{
	return !trace_is_short(a) || a->sequence % TRACE_TIMED == 0;
}

/* A short collective through the window, after its end: one word, which is there or not. */
static inline uint64_t trace_short_what(const struct call_args *a)
{
	_Static_assert(TUTTI_U64 < 16, "a dtype has four bits here");
	return a->sequence << 32 | (uint64_t)a->collective << 24 | (uint64_t)a->dtype << 20 |
	       a->count << 13 | (uint64_t)a->root << 4 | TRACE_AT_ONCE | TRACE_IS_VALID;
}

static inline void trace_short(struct trace *t, const struct call_args *a)
{
	uint64_t index = atomic_load_explicit(&t->issued, memory_order_relaxed);

	atomic_store_explicit(&t->ops[index % TRACE_OPS].what, trace_short_what(a),
			      memory_order_release);
	atomic_store_explicit(&t->issued, index + 1, memory_order_release);
}

static inline void trace_began(const struct trace_mark *mark)
{
	if (mark->entry)
		atomic_store_explicit(&mark->entry->began, ticks_now(trace_clock) & TRACE_TIME,
				      memory_order_relaxed);
}

/* By the thread that began it, before it begins another. */
static inline void trace_ended(const struct trace_mark *mark, bool failed)
{
	uint64_t end = ticks_now(trace_clock) & TRACE_TIME;

	atomic_store_explicit(&mark->entry->ended, failed ? end | TRACE_FAILED : end,
			      memory_order_relaxed);
}

/* By a thread that keeps others from beginning TRACE_OPS operations meanwhile, as with the engine's
 * lock. Nothing happens when it has ended, or its entry is another's by now. */
static inline bool trace_is_in_flight(const struct trace_mark *mark)
{
	return mark->entry && atomic_load_explicit(&mark->entry->ended, memory_order_relaxed) ==
				      (TRACE_IN_FLIGHT | mark->index);
}

static inline void trace_ended_late(const struct trace_mark *mark, bool failed)
{
	if (trace_is_in_flight(mark))
		trace_ended(mark, failed);
}

/* The same for a short collective through the window, whose beginning needs no look at the clock:
 * it waits, ... */
static inline void trace_began_late(const struct trace_mark *mark)
{
	if (mark->entry && !atomic_load_explicit(&mark->entry->began, memory_order_relaxed))
		trace_began(mark);
}

/* ... or it is over before it has waited: then its entry is one word, as trace_short's. */
static inline bool trace_ended_at_once(const struct trace_mark *mark, const struct call_args *a)
{
	if (!trace_is_in_flight(mark) ||
	    atomic_load_explicit(&mark->entry->began, memory_order_relaxed))
		return false;
	atomic_store_explicit(&mark->entry->what, trace_short_what(a) | TRACE_IS_ASYNC,
			      memory_order_release);
	return true;
}

/* Says what an operation waits for. By one thread at a time; readers see the old text or the new
 * one. */
void trace_waits(struct trace *trace, const struct trace_wait *wait);

/* trace_file.c: for a communicator that has failed: into the folder, unless it is NULL. */
void trace_dump_failure(const char *folder);

#endif
