/* The segment: the memory that the ranks of a window share, one memfd, and where things lie in it.
 *
 *     head    geometry, the count of sleepers, the count of failures
 *     areas   per rank: words, doorbell, what it says of itself; written by that rank
 *     lines   per (operation's number modulo WINDOW_LINES, rank): header and a short payload
 *     bodies  the same for payloads of more than LINE_BODY_BYTES
 *     rows    per (parity of the number, rank): its blocks for each other rank, where those cannot
 *             know them
 *     slots   per rank: WINDOW_SLOTS staging slots
 *     board   per rank: its latest calls and its failure (board.h)
 *
 * The n-th operation of a window has the 32-bit number first + n, which wraps. It starts shortly
 * before the wrap, so that every run of every build passes it. Staging has 64-bit generations,
 * which do not wrap: the generation of a slot is the position of its piece among all that were
 * ever staged. */
#ifndef COLLECTIVES_WINDOW_SEGMENT_H
#define COLLECTIVES_WINDOW_SEGMENT_H

#include "collectives/control/control.h"
#include "collectives/window/window.h"

#include <stdatomic.h>

#define WINDOW_FIRST_NUMBER (UINT32_MAX - 63)
#define WINDOW_MAX_RANKS    1024 /* as many sources as reduce() takes */
#define WINDOW_LINES        32u  /* of a rank; a power of two: see window.c */
#ifndef WINDOW_SLOTS               /* test_window_orders is built with 3, too */
#define WINDOW_SLOTS 4u            /* at least 3: see staged.c */
#endif
#define WINDOW_ALIGN    128u /* two cache lines: the adjacent-line prefetcher's unit */
#define LINE_PAYLOAD    56u /* bytes that travel in the header's own cache line */
#define LINE_BODY       64u /* where a longer payload begins in its line ... */
#define LINE_BODY_BYTES 1024u /* ... if it is not longer than that: short lines share few pages */
#define BODY_GAP        2048u /* behind each body: the hardware fetches ahead */

struct line {
	_Alignas(WINDOW_ALIGN) _Atomic uint64_t header; /* number | fingerprint << 32 */
	uint8_t payload[LINE_PAYLOAD];
};

enum line_sends { SENDS_NOTHING, SENDS_IN_LINE, SENDS_MUCH };

/* The payload of a line whose data is too long for it. An id is 0 if the data is not in memory
 * that the other ranks can reach. */
struct line_buffers {
	uint64_t send_id, recv_id; /* the allocations ... */
	uint64_t send_offset;      /* ... and where in them */
	union {
		uint64_t recv_offset;
		uint64_t send_address; /* if it reads: of send in its own process */
};
	uint8_t is_staged; /* its first piece is in its slot already */
	uint8_t is_free;   /* a root that has nothing to move for itself */
	uint8_t reads;     /* it would copy out of the others' memory: reading.c */
	uint8_t is_contended; /* others were in its way: contention.h */
	/* all_to_allv: */
	uint32_t sends;   /* enum line_sends */
	uint64_t pieces;  /* that its blocks make in its slots */
	uint64_t balance; /* counts.c */
};
_Static_assert(sizeof(struct line_buffers) <= LINE_PAYLOAD, "the body is an all_to_allv's data");

/* An entry about one other rank in a rank's row: of the block that it sends to it, but in
 * gatherv, where the root tells what it receives from it. */
struct row_entry {
	uint64_t count, offset; /* elements; where they begin in the buffer */
	uint64_t start;         /* where in the stream: see staged_copy.c; bytes */
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
	_Atomic uint32_t sleeps_for; /* 1 + the rank it waits for; 0 while it is awake */
	_Atomic uint32_t is_armed;   /* it sleeps on its doorbell */
	_Atomic uint64_t doorbell_id;      /* in the name of its doorbell, or 0 */
	_Alignas(WINDOW_ALIGN) _Atomic int32_t cpu; /* 1 + where it was last, or 0 */
	tutti_status memory_status; /* of the last COLL_MEM_ALLOC; before WORD_TAKEN */
	char memory_error[MEMORY_ERROR_BYTES];
	uint64_t process;            /* process_token() of the rank ... */
	uint64_t process_at;         /* ... and where in its memory that is */
	_Atomic uint64_t reads_from; /* bytes; READS_NEVER; or 0 so far; see reading.c */
};

struct geometry {
	int size;
	uint32_t shares_cores; /* there are more ranks than cores, as the leader sees it */
	uint64_t small_bytes;  /* the longest payload of a line */
	uint64_t small_all_reduce; /* the same in an all_reduce */
	uint64_t by_root_bytes;    /* the longest reduce that the root does alone */
	uint64_t line_bytes, body_bytes, row_bytes, slot_bytes; /* from one to the next */
	uint64_t areas_at, lines_at, bodies_at, rows_at, slots_at, board_at, total_bytes;
};

struct segment_head {
	struct geometry geometry;
	_Alignas(WINDOW_ALIGN) _Atomic uint32_t sleepers; /* ranks asleep or armed */
	_Alignas(WINDOW_ALIGN) _Atomic uint32_t failures; /* ranks that have failed */
	_Atomic uint32_t needs_fence; /* some rank's kernel has no membarrier */
};

/* This process's mapping of a segment. Ranks as threads share one, so that ThreadSanitizer sees
 * what one does with memory after the other at one address. */
struct segment {
	struct segment *next; /* of this process */
	struct shared_memory *memory;
	struct segment_head *head;
	struct geometry geometry; /* as it was checked: other processes can write the head */
	int size, users;
	bool watches; /* pid_fds are those of window_segment_processes_watch */
	int *pid_fds;   /* one per rank; -1 for this process, or unknown */
};

/* Where things lie in this process. */
struct places {
	struct segment_head *head;
	struct rank_area *areas;
	uint8_t *lines, *bodies, *rows, *slots;
	struct board_place *board;
};

/* window_segment.c: UNSUPPORTED where config's window_bytes are too few. */
tutti_status geometry_choose(struct geometry *geometry, const struct window_config *config);

/* The descriptor of a new segment's memory is the caller's. */
tutti_status window_segment_create(const struct geometry *geometry, struct segment **segment,
				   int *fd);
tutti_status window_segment_open(struct segment **segment, int fd);
struct places segment_places(const struct segment *segment);
/* The descriptor that came for rank's process: kept, or closed where this process has it. */
void segment_take_process(struct segment *segment, int rank, int pid_fd);
/* Once all ranks have joined: one descriptor for each of their processes, for all segments. */
void segment_share_processes(struct segment *segment);
void segment_hold(struct segment *segment); /* one segment_drop more is due */
void segment_drop(struct segment *segment); /* NULL is fine */

#endif
