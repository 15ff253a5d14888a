/* The board: the words in shared memory by which ranks of a node know of each other's calls, ends
 * and failures. How a waiting rank looks at them is in board_wait.c. */
#include "collectives/control/board.h"

#include "core/rank_list.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void board_begin(struct board *b)
{
	pthread_mutex_init(&b->lock, NULL);
	b->places[b->rank].pid = (int32_t)getpid();
	b->places[b->rank].program = process_look(getpid()).program;
}

void board_hear_first(const struct board *b, int rank)
{
	job_note(&b->job, atomic_load(&b->places[rank].failed_first));
}

void board_tell_first(struct board *b, int first)
{
	atomic_store(&b->places[b->rank].failed_first, first);
}

/* The first failure stays. */
static void control_board_decide(struct board *b, const struct failure *failure)
{
	if (failure->rank >= 0)
		board_hear_first(b, failure->rank);
	pthread_mutex_lock(&b->lock);
	if (b->decided.status == TUTTI_OK) {
		snprintf(b->message, sizeof b->message, "%s", failure->message);
		b->decided = *failure;
		b->decided.message = b->message;
	}
	pthread_mutex_unlock(&b->lock);
}

tutti_status board_decide(struct board *b, const struct failure *failure)
{
	control_board_decide(b, failure);
	return fail(b->decided.status, "%s", b->message);
}

const struct failure *board_decided(struct board *b)
{
	pthread_mutex_lock(&b->lock);
	bool any = b->decided.status != TUTTI_OK;
	pthread_mutex_unlock(&b->lock);
	return any ? &b->decided : NULL;
}

void board_tell(struct board *b, const struct failure *failure)
{
	struct board_place *own = &b->places[b->rank];

	control_board_decide(b, failure);
	pthread_mutex_lock(&b->lock);
	bool is_first = atomic_load_explicit(&own->status, memory_order_relaxed) == 0;
	if (is_first) {
		memcpy(own->message, b->message, sizeof own->message);
		own->rank = b->decided.rank;
		own->is_common = b->decided.is_common;
		/* Pairs with the acquire in board_failure. */
		atomic_store_explicit(&own->status, (uint32_t)b->decided.status,
				      memory_order_release);
		atomic_fetch_add(b->failures, 1);
		/* The caller writes to its buffers after this. Pairs with
		 * board_failure_while_reading. */
		__sync_synchronize();
	}
	pthread_mutex_unlock(&b->lock);
	if (is_first)
		b->wake_all(b->arg);
}

void board_leave(struct board *b)
{
	atomic_store_explicit(&b->places[b->rank].recorder.has_left, 1, memory_order_release);
}

tutti_status board_failure(struct board *b)
{
	for (int rank = 0; rank < b->size; rank++) {
		const struct board_place *place = &b->places[rank];
		uint32_t status = atomic_load_explicit(&place->status, memory_order_acquire);
		char told[ERROR_BYTES], text[ERROR_BYTES];
		if (!status || rank == b->rank)
			continue;
		board_hear_first(b, rank);
		snprintf(told, sizeof told, "%.*s", ERROR_BYTES - 1, place->message);
		struct failure theirs = {.status = status_said(status),
					 .rank = place->rank,
					 .is_common = place->is_common != 0,
					 .message = told};
		struct failure failure = failure_of_peer(rank, &theirs, text);
		return board_decide(b, &failure);
	}
	return TUTTI_OK;
}

/* No later load is done sooner than an earlier one. (TSan does not know C11's fence.) */
static void loads_done(void)
{
#if defined(__x86_64__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	__sync_synchronize();
#endif
}

tutti_status board_failure_while_reading(struct board *b)
{
	loads_done();
	return board_has_failed(b) ? board_failure(b) : TUTTI_OK;
}

tutti_status board_compare(struct board *b)
{
	const struct recorder *own = &b->places[b->rank].recorder;

	for (int rank = 0; rank < b->size; rank++) {
		const struct recorder *other = &b->places[rank].recorder;
		struct call_record mine, theirs;
		char text[ERROR_BYTES];
		uint64_t sequence;
		if (rank == b->rank || !recorders_differ(own, other, &sequence) ||
		    !recorder_find(own, sequence, &mine) ||
		    !recorder_find(other, sequence, &theirs))
			continue;
		call_record_mismatch(b->rank, &mine, rank, &theirs, sequence, text, sizeof text);
		return board_decide(b, &(struct failure){.status = TUTTI_ERR_MISMATCH,
							 .rank = FAILURE_NO_RANK,
							 .message = text});
	}
	return TUTTI_OK;
}

#define CONSENSUS_GONE UINT32_MAX

void board_tell_consensus(struct board *b, const uint8_t *address, size_t bytes)
{
	struct board_place *own = &b->places[b->rank];

	if (bytes)
		memcpy(own->consensus_address, address, bytes);
	/* Pairs with the acquire in board_find_consensus. */
	atomic_store_explicit(&own->consensus_bytes, bytes ? (uint32_t)bytes : CONSENSUS_GONE,
			      memory_order_release);
}

size_t board_find_consensus(const struct board *b, int rank, uint8_t *address)
{
	const struct board_place *place = &b->places[rank];
	uint32_t bytes = atomic_load_explicit(&place->consensus_bytes, memory_order_acquire);

	if (bytes > sizeof place->consensus_address)
		return 0;
	memcpy(address, place->consensus_address, bytes);
	return bytes;
}

bool board_has_no_consensus(const struct board *b, int rank)
{
	return atomic_load_explicit(&b->places[rank].consensus_bytes, memory_order_acquire) ==
	       CONSENSUS_GONE;
}

const char *board_missing(const struct board *b, uint64_t sequence, char *text, size_t text_bytes)
{
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	for (int rank = 0; rank < b->size; rank++)
		if (recorder_issued(&b->places[rank].recorder) <= sequence)
			rank_list_add(&list, rank);
	return rank_list_end(&list);
}

const char *board_who(const struct board *b, int rank, char *text, size_t text_bytes)
{
	char host[64] = "?", number[JOB_WHO_BYTES];

	gethostname(host, sizeof host - 1);
	snprintf(text, text_bytes, "Rank %d (%sprocess %d on %s)", rank,
		 job_who(&b->job, rank, number), (int)b->places[rank].pid, host);
	return text;
}

bool board_has_left(const struct board *b, int rank)
{
	return atomic_load_explicit(&b->places[rank].recorder.has_left, memory_order_acquire);
}

bool board_is_replaced(const struct board *b, int rank, struct process_look *look)
{
	uint64_t program = b->places[rank].program;

	*look = process_look(process_of(b->pid_fds[rank]));
	return program && look->program && look->program != program;
}

bool board_has_ended(const struct board *b, int rank)
{
	struct pollfd fd = {b->pid_fds[rank], POLLIN, 0};
	struct process_look look;

	return fd.fd >= 0 && (poll(&fd, 1, 0) > 0 || board_is_replaced(b, rank, &look));
}
