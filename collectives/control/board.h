/* The board: what ranks that share memory know of each other besides their data. Each rank has a
 * place on it, with its flight recorder, its failure, and whether it has left. A look is
 * a few loads.
 *
 * The memory is the window's. The board knows neither the window nor its runs. One thread at a time
 * uses a struct board, except where it says otherwise. */
#ifndef COLLECTIVES_CONTROL_BOARD_H
#define COLLECTIVES_CONTROL_BOARD_H

#include "collectives/control/failure.h"
#include "collectives/control/job.h"
#include "collectives/trace/trace.h"
#include "core/machine.h"

#include <tutti/transport.h>

#include <pthread.h>

/* In shared memory, written by its rank alone. */
struct board_place {
	_Alignas(128) _Atomic uint32_t status; /* of the failure, or 0; written last */
	int32_t rank;
	uint32_t is_common;
	int32_t pid; /* as the rank numbers itself: it may be in another namespace */
	uint64_t program; /* struct process_look; another one by now: exec */
	char message[ERROR_BYTES];
	atomic_int failed_first; /* job_first of this rank */
	_Atomic uint32_t consensus_bytes; /* of its consensus's address; 0: it rests; or GONE */
	uint8_t consensus_address[TUTTI_ADDRESS_BYTES];
	struct recorder recorder;
};

struct board {
	int rank, size;
	struct board_place *places; /* one a rank */
	_Atomic uint32_t *failures; /* shared: how many ranks have failed */
	const int *pid_fds;         /* one a rank; -1 if it is of this process, or not known */
	void (*wake_all)(void *arg);
	void *arg;
	struct job_view job;    /* from control_share on */
	pthread_mutex_t lock;   /* guards decided, which is written once */
	struct failure decided; /* status OK until then */
	char message[ERROR_BYTES];
	uint64_t compared_ns; /* when board_check last compared calls ... */
	uint64_t checked_ns;  /* ... and looked for deaths */
	int replaced;         /* 1 + a rank whose process was found to run another program, or 0 */
	struct {
		int silence_ms; /* a rank may be stopped for so long, or for ever if 0 */
		int rank;       /* 1 + the rank that was found stopped, or 0 */
		int next;       /* the rank to be looked at next */
		uint64_t looked_ns, lasts_ns;
	} stopped;
};

/* Which ranks a rank waits for. */
struct board_wait {
	bool (*awaits)(const void *arg, int rank); /* NULL: any other rank may be awaited */
	const void *arg;
};

/* Whether some rank has failed. The only look of a call that does not wait long. Pairs with
 * board_tell. */
static inline bool board_has_failed(const struct board *b)
{
	return __builtin_expect(atomic_load_explicit(b->failures, memory_order_acquire) != 0, 0);
}

/* After the members up to arg were set. */
void board_begin(struct board *board);
/* Tells the other ranks that this one has failed: with what was decided, or else with failure. The
 * first failure of a rank stays. When this returns the other ranks see the failure before they see
 * what this rank does next with its buffers. From any thread. */
void board_tell(struct board *board, const struct failure *failure);
/* This rank makes no more calls: the others see it. */
void board_leave(struct board *board);
/* This rank's flight recorder. */
static inline struct recorder *board_recorder(const struct board *board)
{
	return &board->places[board->rank].recorder;
}

/* All looks return OK, or the status of what they have decided. Its message, the same on all ranks,
 * is this thread's last error. */

/* The failure that another rank has told; OK: none. */
tutti_status board_failure(struct board *board);
/* The same, of ranks that had failed before this one's last loads of their buffers: what their
 * callers have written since may be in it. */
tutti_status board_failure_while_reading(struct board *board);

/* Looks, at a pace of its own, for a reason to end a wait that lasts: a failure, another call, a
 * rank that has ended or left, a stopped one. OK: nothing. */
tutti_status board_check(struct board *board, const struct board_wait *wait, uint64_t now_ns);

/* A deadline has passed: TIMEOUT when another rank is stopped. */
tutti_status board_check_late(struct board *board);

/* MISMATCH when another rank has made another call than this one. */
tutti_status board_compare(struct board *board);
/* Where this rank's consensus listens (consensus.h); NULL and 0: it takes part in no question. */
void board_tell_consensus(struct board *board, const uint8_t *address, size_t bytes);
/* Returns the bytes of rank's, or 0: it rests, or rank takes part in no question. */
size_t board_find_consensus(const struct board *board, int rank, uint8_t *address);
bool board_has_no_consensus(const struct board *board, int rank);
/* For sure: its process has ended, or runs another program. */
bool board_has_ended(const struct board *board, int rank);

#endif
