#include "collectives/window/board.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- failures ------------------------------------------------------------------------------ */

void board_tell(struct board *b, tutti_status status, const char *reason)
{
	struct board_place *own = &b->places[b->rank];
	uint32_t none = 0;

	if (atomic_load_explicit(&own->failure, memory_order_relaxed))
		return;
	snprintf(own->reason, sizeof own->reason, "%s", b->told[0] ? b->told : reason);
	own->dead = b->dead;
	own->is_stopped = b->is_stopped;
	/* Pairs with the acquire in board_failure. */
	atomic_compare_exchange_strong(&own->failure, &none, (uint32_t)status);
	atomic_fetch_add(b->failures, 1);
	/* The caller writes to its buffers after this. Pairs with board_failure_while_reading. */
	__sync_synchronize();
	b->wake_all(b->arg);
}

/* An error that is the same for all ranks keeps its status. */
static bool is_everybodys(uint32_t failure)
{
	return failure == TUTTI_ERR_MISMATCH || failure == TUTTI_ERR_PEER ||
	       failure == TUTTI_ERR_ABORTED;
}

tutti_status board_failure(struct board *b)
{
	for (int rank = 0; rank < b->size; rank++) {
		const struct board_place *place = &b->places[rank];
		uint32_t failure = atomic_load_explicit(&place->failure, memory_order_acquire);
		if (!failure || rank == b->rank)
			continue;
		b->dead = place->dead;
		b->is_stopped = place->is_stopped;
		if (is_everybodys(failure) || b->is_stopped)
			return fail((tutti_status)failure, "%.500s", place->reason);
		return fail(TUTTI_ERR_PEER, "Rank %d has failed: %.440s", rank, place->reason);
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

/* ---- calls --------------------------------------------------------------------------------- */

tutti_status board_compare(const struct board *b)
{
	const struct recorder *own = &b->places[b->rank].recorder;

	for (int rank = 0; rank < b->size; rank++) {
		const struct recorder *other = &b->places[rank].recorder;
		struct noted mine, theirs;
		char text[ERROR_BYTES];
		uint64_t sequence;
		if (rank == b->rank || !recorders_differ(own, other, &sequence) ||
		    !recorder_find(own, sequence, &mine) ||
		    !recorder_find(other, sequence, &theirs))
			continue;
		return fail(
			TUTTI_ERR_MISMATCH, "%s",
			noted_mismatch(b->rank, &mine, rank, &theirs, sequence, text, sizeof text));
	}
	return TUTTI_OK;
}

const char *board_missing(const struct board *b, uint64_t sequence, char *text, size_t text_bytes)
{
	size_t at = 0;
	int n = 0;

	text[0] = '\0';
	for (int rank = 0; rank < b->size && at + 16 < text_bytes; rank++)
		if (recorder_issued(&b->places[rank].recorder) <= sequence)
			at += (size_t)snprintf(text + at, text_bytes - at, "%s%d",
					       n++ ? ", " : "ranks ", rank);
	if (n == 1) /* "ranks 3" -> "rank 3" */
		memmove(text + 4, text + 5, strlen(text + 5) + 1);
	return text;
}

/* ---- processes ----------------------------------------------------------------------------- */

const char *board_process(const struct board *b, int rank, char *text, size_t text_bytes)
{
	char host[64] = "?";

	gethostname(host, sizeof host - 1);
	snprintf(text, text_bytes, "%d on %s", (int)b->places[rank].pid, host);
	return text;
}

bool board_has_left(const struct board *b, int rank)
{
	return atomic_load_explicit(&b->places[rank].recorder.has_left, memory_order_acquire);
}

bool board_has_ended(const struct board *b, int rank)
{
	struct pollfd fd = {b->pid_fds[rank], POLLIN, 0};
	return fd.fd >= 0 && poll(&fd, 1, 0) > 0;
}
