/* The inside of a window: the segment that the ranks share, and what window_*.c files know of each
 * other. Nobody else includes it.
 *
 * The segment, one memfd:
 *
 *     head       geometry, the count of sleepers, the count of failures
 *     areas      per rank: flags, doorbell, what it calls, why it failed; written by that rank
 *     lines      per (operation's number modulo WINDOW_LINES, rank): header and a short payload
 *     bodies     the same for payloads of more than LINE_BODY_BYTES
 *     rows       per (parity of the number, rank): what its blocks for each other rank are, where those
 *                cannot know it
 *     slots      per rank: WINDOW_SLOTS staging slots
 *     recorders  per rank: its latest calls, those that go by messages too
 *
 * Numbers. The n-th operation of a window has the 32-bit number first + n, which wraps; it starts
 * near the wrap, so that every run of every build passes it. Staging has 64-bit generations, which
 * do not wrap: a slot's generation is its piece's position among all pieces that were ever staged.
 */
#ifndef COLLECTIVES_WINDOW_WINDOW_INTERNAL_H
#define COLLECTIVES_WINDOW_WINDOW_INTERNAL_H

#include "collectives/trace/recorder.h"
#include "collectives/window/window.h"
#include "core/placement/cpu_spread.h"
#include "core/status.h"
#include "memory/reduce.h"
#include "memory/weave.h"

#include <stdatomic.h>
#include <string.h>

#define WINDOW_FIRST_NUMBER (UINT32_MAX - 63)
#define WINDOW_MAX_RANKS    1024 /* as many sources as reduce() takes */
#define WINDOW_LINES        32u  /* of a rank; a power of two: see window.c */
#ifndef WINDOW_SLOTS               /* test_window_orders is built with 3, too */
#define WINDOW_SLOTS 4u            /* at least 3: see window_staged.c */
#endif
#define WINDOW_ALIGN        128u /* two cache lines: the adjacent-line prefetcher's unit */
#define KNOWN_ALLOCATIONS   16u
#define LINE_PAYLOAD        56u /* bytes that travel in the header's own cache line */
#define LINE_BODY           64u /* where a longer payload begins in its line ... */
#define LINE_BODY_BYTES     1024u /* ... if it is not longer than that: short lines share few pages */
#define BODY_GAP            2048u /* behind each body: what the hardware fetches ahead is nobody's */

struct line {
	_Alignas(WINDOW_ALIGN) _Atomic uint64_t header; /* number | fingerprint << 32 */
	uint8_t payload[LINE_PAYLOAD];
};

/* What a rank says in its line when the data is too long for it. An id of 0: not in memory that the
 * other ranks can reach. */
struct line_buffers {
	uint64_t send_id, recv_id; /* the allocations ... */
	uint64_t send_offset; /* ... and where in them */
	union {
		uint64_t recv_offset;
		uint64_t send_address; /* if it reads: of send in its own process */
	};
	uint8_t is_staged; /* its first piece is in its slot already */
	uint8_t is_free;   /* a root that has nothing to move for itself */
	uint8_t reads;     /* it would copy out of the others' memory: window_read.c */
	/* all_to_allv: */
	uint32_t sends;     /* enum line_sends */
	uint64_t pieces;    /* that its blocks make in its slots */
	uint64_t balance;   /* window_pairs.c */
};
_Static_assert(sizeof(struct line_buffers) <= LINE_PAYLOAD, "the body is an all_to_allv's data");
enum line_sends { SENDS_NOTHING, SENDS_IN_LINE, SENDS_MUCH };

/* What a rank says about one other rank in its row: of the block that it sends to it, but in gatherv,
 * where the root tells what it receives from it. */
struct pair {
	uint64_t count, offset; /* elements; where they begin in the buffer */
	uint64_t start;         /* where in the stream: see window_staged_copy.c; bytes */
	uint64_t expected;      /* all_to_allv: elements that it expects from that rank */
};

/* Words that only grow, one writer each. */
enum word {
	WORD_STAGED, /* generations this rank has put into its slots */
	WORD_TAKEN,  /* generations of which this rank touches no other's slot any more */
	WORDS,
};
struct word_line {
	_Alignas(WINDOW_ALIGN) _Atomic uint64_t value;
};

#define MEMORY_ERROR_BYTES 240

struct rank_area {
	struct word_line words[WORDS];
	_Alignas(WINDOW_ALIGN) _Atomic uint32_t doorbell; /* the futex; written by wakers */
	_Atomic uint32_t sleeps_for; /* awake: 0; sleeping: 1 + the rank it waits for */
	_Atomic uint32_t is_armed;   /* sleeps on its event fd */
	_Alignas(WINDOW_ALIGN) _Atomic int32_t cpu; /* 1 + where it was last; 0: unknown */
	_Atomic uint32_t failure; /* a status, after the sentence */
	char sentence[ERROR_BYTES];
	int32_t dead;               /* before failure: 1 + the rank that has died, or 0 */
	uint32_t is_stopped;        /* before failure: a rank is stopped, whoever tells it */
	tutti_status memory_status; /* of the last COLL_MEM_ALLOC; before WORD_TAKEN */
	char memory_error[MEMORY_ERROR_BYTES]; /* then its sentence */
	uint64_t process;           /* process_token() of the rank ... */
	uint64_t process_at;        /* ... where in its memory that is ... */
	int32_t pid;                /* ... and what it calls itself: perhaps another process here */
	_Atomic uint64_t reads_from; /* bytes; READS_NEVER; 0: it does not know yet */
};

struct geometry {
	int size;
	uint32_t shares_cores; /* ranks do, as the leader sees it */
	uint64_t small_bytes; /* the longest payload of a line */
	uint64_t small_all_reduce; /* of an all_reduce's */
	uint64_t by_root_bytes; /* the longest reduce that the root does alone */
	uint64_t line_bytes, body_bytes, row_bytes, slot_bytes; /* from one to the next */
	uint64_t areas_at, lines_at, bodies_at, rows_at, slots_at, recorders_at, total_bytes;
};

struct segment_head {
	struct geometry geometry;
	_Alignas(WINDOW_ALIGN) _Atomic uint32_t sleepers; /* ranks asleep or armed */
	_Alignas(WINDOW_ALIGN) _Atomic uint32_t failures; /* ranks that have failed */
	_Atomic uint32_t needs_fence; /* some rank's kernel has no membarrier */
};

/* This process's mapping of a segment; ranks as threads share one, however they come by it: what one
 * does with memory after the other then happens after it at one address. */
struct segment {
	struct segment *next; /* of this process */
	uint64_t file[2];     /* device and inode of the memory */
	struct segment_head *head;
	struct geometry geometry; /* as it was when it was checked: other processes can write the head */
	size_t bytes;
	int size, users;
	int *event_fds; /* one per rank */
	int *pid_fds;   /* one per rank; -1: this process, or unknown */
};

struct window {
	int rank, size;
	uint32_t number;     /* of the latest operation */
	uint32_t others;     /* every other rank has posted this line, at the least */
	uint64_t generation; /* the next one to be staged */
	struct segment_head *head;
	uint8_t *lines, *bodies, *rows, *slots;
	struct rank_area *areas, *area; /* area: this rank's */
	struct recorder *recorders;
	size_t line_bytes, body_bytes, row_bytes, slot_bytes, small_bytes, small_all_reduce;
	bool shares_cores; /* the same on all ranks, which policy need not be */
	struct wait_policy policy;
	uint64_t *seen[WORDS]; /* per rank: the largest value of a word seen so far */
	const void **src;      /* per rank, for reduce() */
	void **dst;
	uint8_t **peer_send, **peer_recv; /* zero copy: where this process sees the buffers */
	struct deal *deals;    /* per rank: its place in the slots of a reduce_scatterv */
	struct prepared_reduction prepared; /* what a call in the lines is to do with them */
	struct weave weave;    /* what the staged round under way is to do */
	struct segment *segment;
	uint64_t comm_id[2];
	uint64_t allocations; /* how many were made here: names them */
	struct spread spread;
	struct {
		uint64_t id;
		uint8_t *base;
	} known[KNOWN_ALLOCATIONS]; /* memory_base's answers; they never change */
	uint64_t reads_from; /* the most of all ranks'; 0: not known yet */
	int *sockets;               /* leader: one per rank; others: [0] to the leader; or NULL */
	tutti_status failed;        /* sticky; the sentence is in error */
	char error[ERROR_BYTES];
	_Atomic uint64_t total_bytes, staged_bytes;
	uint64_t checked_ns; /* when it last looked for dead peers */
	uint64_t compared_ns; /* and at the others' calls */
	size_t by_root_bytes; /* geometry's */
	uint32_t met;         /* the latest operation in which this rank saw the lines of all */
	int dead;             /* 1 + the rank whose death was the failure; 0: none */
	bool is_stopped;      /* the failure is that a rank is stopped */
	char heard[ERROR_BYTES]; /* the failure as another rank has told it; or "" */
	struct {
		uint32_t silence_ms; /* 0: nobody looks */
		int rank, next;      /* 1 + who was found stopped; who is looked at next */
		uint64_t looked_ns, lasts_ns;
	} stopped; /* window_stopped.c */
	bool is_armed;       /* between window_arm and window_disarm */
};

/* What the next step of a run waits for: a word of the other ranks, or of those that matter. */
struct need {
	enum word word;
	uint64_t value; /* 0: nothing */
	bool (*of)(const struct window *window, const struct window_run *run, int rank); /* NULL: all */
};

struct window_path {
	const char *name;
	struct need (*need)(const struct window *window, const struct window_run *run);
	tutti_status (*step)(struct window *window, struct window_run *run);
};

extern const struct window_path window_staged, window_zero_copy, window_read, window_memory;

/* Staged: what lies in the pieces of a collective. stage, take and finish put what they do into the window's
 * weave, which runs when the round is complete. */
struct window_moves {
	/* Sets each and pieces, the same on all ranks (but all_to_allv: this rank's; staged_agree follows). */
	void (*cut)(struct window *window, struct window_run *run);
	/* Whether from puts something into its slot that to takes out in piece k; NULL: always. from and to
	 * differ. */
	bool (*passes)(const struct window *window, const struct window_run *run, uint64_t k, int from,
	               int to);
	/* Whether rank stages anything; NULL: every rank does. */
	bool (*stages)(const struct window_run *run, int rank);
	/* Copies into this rank's slot what others will read. Returns bytes. */
	size_t (*stage)(struct window *window, struct window_run *run, uint64_t k);
	/* Reduces or copies what this rank needs out of the others' slots. */
	void (*take)(struct window *window, struct window_run *run, uint64_t k);
	/* Copies out of this rank's own slot what the others' take has put there; or NULL. */
	void (*finish)(struct window *window, struct window_run *run, uint64_t k);
};

extern const struct window_moves moves_all_reduce, moves_reduce, moves_reduce_by_root;
extern const struct window_moves moves_reduce_scatter;
extern const struct window_moves moves_broadcast, moves_gather, moves_stream;

static inline size_t line_index(const struct window *w, uint32_t number, int rank)
{
	return (size_t)(number % WINDOW_LINES) * (size_t)w->size + (size_t)rank;
}

static inline struct line *line_of(const struct window *w, uint32_t number, int rank)
{
	return (struct line *)(void *)(w->lines + line_index(w, number, rank) * w->line_bytes);
}

/* Where rank's payload lies, when the longest of all ranks' is of so many bytes. */
static inline uint8_t *payload_of(const struct window *w, uint32_t number, int rank, size_t longest)
{
	struct line *line = line_of(w, number, rank);

	if (longest <= LINE_PAYLOAD)
		return line->payload;
	if (longest <= LINE_BODY_BYTES)
		return (uint8_t *)line + LINE_BODY;
	return w->bodies + line_index(w, number, rank) * w->body_bytes;
}

static inline uint64_t line_header(const struct window_run *run)
{
	return run->number | (uint64_t)run->args.fingerprint << 32;
}

/* What rank said in its line of this run. */
static inline struct line_buffers line_buffers_of(const struct window *w,
						  const struct window_run *run, int rank)
{
	struct line_buffers buffers;
	memcpy(&buffers, line_of(w, run->number, rank)->payload, sizeof buffers);
	return buffers;
}

static inline uint8_t *slot_of(const struct window *w, uint64_t generation, int rank)
{
	return w->slots + ((size_t)rank * WINDOW_SLOTS + generation % WINDOW_SLOTS) * w->slot_bytes;
}

static inline struct pair *row_of(const struct window *w, uint32_t number, int rank)
{
	size_t index = (size_t)(number & 1) * (size_t)w->size + (size_t)rank;
	return (struct pair *)(void *)(w->rows + index * w->row_bytes);
}

/* One writer; window_stats reads from any thread. */
static inline void count_bytes(_Atomic uint64_t *total, size_t bytes)
{
	uint64_t before = atomic_load_explicit(total, memory_order_relaxed);
	atomic_store_explicit(total, before + bytes, memory_order_relaxed);
}

/* How many elements of the run bytes are; units are powers of two. */
static inline size_t units_of(size_t bytes, const struct window_run *run)
{
	return bytes >> __builtin_ctzl(run->unit);
}

struct range {
	size_t first, count;
};

/* Rank's block in a buffer that has one for each rank. */
static inline struct range block_of(const struct window_run *run, int side, int rank)
{
	const struct call_args *a = &run->args;

	if (a->counts[side])
		return (struct range){a->offsets[side][rank], a->counts[side][rank]};
	return (struct range){(size_t)rank * a->count, a->count};
}

static inline bool has_counts(const struct window_run *run)
{
	return run->args.counts[SEND_SIDE] != NULL;
}

/* Where in rank's send buffer its block for this rank begins, or in a gather's root's recv:
 * elements. */
static inline size_t place_at(const struct window *w, const struct window_run *run, int rank)
{
	if (has_counts(run))
		return row_of(w, run->number, rank)[w->rank].offset;
	return (size_t)w->rank * run->args.count;
}

static inline bool is_from_root(enum collective pattern)
{
	return pattern == COLL_BROADCAST || pattern == COLL_SCATTER;
}

/* Elements [first, first + most) of count. */
static inline struct range part_of(size_t count, size_t first, size_t most)
{
	if (first >= count)
		return (struct range){count, 0};
	return (struct range){first, count - first < most ? count - first : most};
}

/* Where a rank's block lies in the slots of a reduce_scatter, and how much of it a piece has. */
struct deal {
	size_t at, each; /* bytes, elements */
};

/* Elements cut into one share for each rank: whole lines, so that no two ranks write to the same one. The
 * last shares may be short or empty. */
static inline struct range share_of(const struct window *w, struct window_run *run, size_t count,
                                    int rank)
{
	size_t line = units_of(WINDOW_ALIGN, run), first;

	if (run->cut != count) {
		run->cut = count;
		run->share = (count + (size_t)w->size - 1) / (size_t)w->size;
		run->share = (run->share + line - 1) & ~(line - 1);
	}
	first = run->share * (size_t)rank;
	return part_of(count, first, run->share);
}

/* window_doorbell.c: waking whoever sleeps. A post is a release store of a line's header or a word;
 * each is followed by doorbell_ring. */
void doorbell_wake(struct window *window);
void doorbell_wake_all(struct window *window);
void doorbell_full_fence(struct window *window);

/* Pairs with the sleeper's count in doorbell_enter(): our store, then this load. Without a fence
 * between them a sleeper may be missed: a futex sleep is timed (1 ms at most), and a sleeper on
 * descriptors runs membarrier, which puts the fence here; where it cannot, needs_fence is set for
 * good. */
static inline void doorbell_ring(struct window *w)
{
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(atomic_load_explicit(&w->head->needs_fence, memory_order_relaxed), 0))
		doorbell_full_fence(w);
	if (__builtin_expect(atomic_load_explicit(&w->head->sleepers, memory_order_relaxed), 0))
		doorbell_wake(w);
}

static inline void word_post(struct window *w, enum word word, uint64_t value)
{
	atomic_store_explicit(&w->area->words[word].value, value, memory_order_release);
	doorbell_ring(w);
}

/* What was read before has been read: no later load is done sooner. (C11's fence is unknown to TSan.) */
static inline void loads_done(void)
{
#if defined(__x86_64__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	__sync_synchronize();
#endif
}

/* Whether rank's word has come to value. Pairs with word_post. */
static inline bool word_reached(struct window *w, enum word word, int rank, uint64_t value)
{
	uint64_t *seen = &w->seen[word][rank];
	if (*seen < value)
		*seen = atomic_load_explicit(&w->areas[rank].words[word].value,
					     memory_order_acquire);
	return *seen >= value;
}

/* Moves run to its next post at the most, and looks after nothing else. */
tutti_status window_advance_once(struct window *window, struct window_run *run);
bool window_at_lines(const struct window_run *run); /* waits for the others' lines */
/* Whether run, which has not posted its line, still waits for rank to come near enough. */
bool window_lacks_room(const struct window *window, const struct window_run *run, int rank);
bool window_is_over(const struct window_run *run);
/* What the step that run has come to waits for; whether it, or what comes before the steps, waits for rank; and
 * whether rank is in its way: awaited, or so far behind that the root may wait for it. */
struct need window_need(const struct window *window, const struct window_run *run);
bool window_lacks(struct window *window, const struct window_run *run, struct need need, int rank);
bool window_trails(struct window *window, const struct window_run *run, struct need need, int rank);
/* Whether run may get on, without moving it. */
bool window_is_ready(struct window *window, const struct window_run *run);

/* window_near.c: whether a rank on this CPU trails run. */
int32_t same_cpu_say(struct window *window); /* this rank's CPU, as in its area */
bool same_cpu_trails(struct window *window, const struct window_run *run);

/* window_spread.c: from the calling thread, now and then while it waits. */
void spread_look(struct window *window);

/* window_doorbell.c */
void doorbell_open(struct window *window); /* once, at join */
void doorbell_sleep(struct window *window, const struct window_run *run); /* at most 1 ms */

/* window_small.c: what fits a line. */
bool small_fits(const struct window *window, struct window_run *run);
void small_write(struct window *window, const struct window_run *run);
/* After the line was posted, where every rank has a core: what this rank has written on its way to the others, and
 * what it will write in a next call of this length on its way to here, while it waits. */
void small_hand_over(struct window *window, const struct window_run *run);
void small_prepare(struct window *window, const struct window_run *run);
void small_finish(struct window *window, const struct window_run *run);

/* window_pairs.c: counts of blocks that the other ranks cannot know. publish writes this rank's row,
 * where the call needs one, before its line; agree, when all lines are there, finds out alike on all ranks
 * of an all_to_allv whether what is sent is what is expected: MISMATCH. */
void pairs_publish(struct window *window, struct window_run *run);
tutti_status pairs_agree(const struct window *window, const struct window_run *run);
/* An all_to_allv: pairs_write says in buffers what this rank sends, and puts it into its payload if it
 * fits; pairs_finish copies out, or returns false on all ranks alike when some rank's did not fit. */
void pairs_write(struct window *window, const struct window_run *run, struct line_buffers *buffers);
bool pairs_finish(struct window *window, const struct window_run *run);

/* window_staged.c. staged_begin cuts the call into pieces; staged_first puts piece 0 into its slot
 * if the slot is free, before the line is posted. staged_agree: all lines are there. */
void staged_begin(struct window *window, struct window_run *run);
bool staged_first(struct window *window, struct window_run *run);
void staged_agree(struct window *window, struct window_run *run);
/* A reduce whose root does it all. */
bool staged_by_root(const struct window_run *run);

/* window_staged_copy.c: the part of the blocks that rank from sends to others which is to's. */
struct range stream_of(const struct window *window, const struct window_run *run, int from, int to);

/* window_reach.c. publish fills in ids, or 0 where a buffer that peers use is not reachable, and returns
 * whether, for all that this rank knows, there may be no staging; reaches decides with all ranks' lines: false, on
 * every rank alike, when some rank needs staging. lends: the others use a buffer of rank. may_share: to go by the
 * root's line, the work may be shared, which the lines of all decide. */
bool zero_copy_publish(struct window *window, const struct window_run *run,
		       struct line_buffers *buffers);
bool zero_copy_reaches(struct window *window, struct window_run *run);
bool zero_copy_lends(const struct window_run *run, int rank);
bool zero_copy_may_share(struct window *window, const struct window_run *run,
			 const struct line_buffers *root);

/* window_zero_copy.c. false, on every rank alike: all must stage. */
bool zero_copy_begin(struct window *window, struct window_run *run);

/* Up to where a buffer with a block for each rank is used: bytes. */
size_t end_of_blocks(const struct window *window, const struct window_run *run, int side);

/* window_read.c. say_process before the others look; find_out when all have: whether this rank can read what
 * all others have in memory. publish and begin are as those of zero copy, which goes before. */
void read_say_process(struct window *window);
void read_find_out(struct window *window, size_t read_bytes);
bool read_publish(struct window *window, const struct window_run *run, struct line_buffers *buffers);
bool read_begin(struct window *window, struct window_run *run);

/* window_memory.c: the allocations of this process. */
struct reach {
	uint64_t id;                    /* 0: in no allocation */
	uint64_t offset;
};
struct reach memory_find(const void *ptr, size_t bytes);
/* Where this process sees allocation id, when every rank of this window does; else NULL. */
uint8_t *memory_base(struct window *window, uint64_t id);
/* A random word of this process, and where it lies. */
uint64_t process_token(void);
uint64_t process_token_at(void);
/* How long the memfd of an allocation is; and for allocation run->memory_id, run->memory being this rank's
 * region afterwards: maps it from fd; finds it mapped by another rank of this process; forgets it, when
 * some rank could not map it. */
size_t memory_total(const struct window *window, size_t bytes);
tutti_status memory_map(struct window *window, struct window_run *run, int fd);
bool memory_adopt(struct window *window, struct window_run *run);
void memory_discard(uint64_t id);

/* window_alloc.c */
void memory_begin(struct window *window, struct window_run *run);

/* window_failure.c */
tutti_status failure_stick(struct window *window, tutti_status status); /* last_error is kept */
tutti_status failure_mismatch(struct window *window, const struct window_run *run, int peer);
/* This rank's call in words. Returns text. */
const char *failure_own_call(const struct window *window, const struct window_run *run, char *text,
			     size_t text_bytes);
tutti_status failure_timeout(struct window *window, const struct window_run *run,
			     uint64_t timeout_ns);
tutti_status failure_seen(struct window *window); /* another rank's window_fail */
/* The call that begins comes after another rank's failure, so it fails, though all its data may be there. */
void failure_came_before(struct window *w);
/* The same, of ranks that failed before all that this one has read of their buffers was read: what their
 * callers have written since may be in it. */
tutti_status failure_while_reading(struct window *window);
/* The same, with what this rank was doing. */
tutti_status failure_heard(struct window *window, const struct window_run *run);
/* ... and how far it is. */
const char *failure_own_wait(const struct window *window, const struct window_run *run, char *text,
			     size_t text_bytes);
/* "123 on node7": the process of rank, as it numbers itself. Returns text. */
const char *failure_process(const struct window *window, int rank, char *text, size_t text_bytes);
tutti_status failure_deaths(struct window *window, const struct window_run *run);

bool failure_waits_for(const struct window *window, const struct window_run *run, int rank);

/* window_stopped.c: whether a rank that run waits for (NULL: any other) has been stopped for too long. call: what
 * this rank waits in. */
tutti_status stopped_look(struct window *window, const struct window_run *run, const char *call,
			  uint64_t now_ns);

/* window_notes.c. notes_compare: MISMATCH when another rank has made another call than this one. */
tutti_status notes_compare(struct window *window);
bool rank_has_left(const struct window *window, int rank);  /* by window_leave */
bool rank_has_ended(const struct window *window, int rank); /* its process       */

/* window_join.c: where the leader listens; and what joining does at that listener, and over a connection to it.
 * Both close it where they do not keep it. */
struct join_wait { /* until when it is worth to wait for the others */
	uint64_t deadline_ns;
	bool (*is_over)(void *arg); /* or NULL */
	void *arg;
};
void window_socket_name(char *name, size_t bytes, const uint64_t comm_id[2]);
tutti_status window_lead_at(struct window **window, const struct window_config *config, int listener,
			    const struct join_wait *wait_limit);
tutti_status window_follow_over(struct window **window, const struct window_config *config, int socket,
				uint64_t deadline_ns);

/* window_segment.c */
tutti_status segment_geometry(struct geometry *geometry, const struct window_config *config);
tutti_status window_segment_create(const struct geometry *geometry, struct segment **segment, int *fd);
tutti_status window_segment_open(struct segment **segment, int fd);
/* The descriptors that came for rank: kept, or closed where this process has them already. */
void segment_take_fds(struct segment *segment, int rank, int event_fd, int pid_fd);
void segment_hold(struct segment *segment); /* one segment_drop more is due */
tutti_status shared_create(const char *name, size_t bytes, int *fd); /* sealed, zero-filled */
tutti_status shared_map(int fd, size_t bytes, void **base);          /* 2 MiB aligned */
void segment_drop(struct segment *segment); /* NULL is fine */

#endif
