/* A rank's record, in pinned memory: how far its kernels are, and what one of them has found. */
#include "cuda/channels_internal.h"
#include "cuda/turns.h"

#include <stdatomic.h>

/* Words of the record, which kernels write and read meanwhile. */
static uint64_t channels_record_look(const uint64_t *word)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)word, memory_order_acquire);
}

static bool channels_record_any_runs(const uint64_t *started, const uint64_t *finished, unsigned n,
				     uint64_t *ended)
{
	bool runs = false;

	for (unsigned i = 0; i < n; i++) {
		uint64_t end = channels_record_look(&finished[i]);
		runs |= channels_record_look(&started[i]) != end;
		*ended += end;
	}
	return runs;
}

bool cuda_channels_is_running(const struct cuda_channels *c, uint64_t *ended)
{
	const struct channel_host *host = c->segment->host;
	uint64_t sum = 0;
	bool runs;

	if (c->turns) {
		runs = cuda_turns_are_running(c, &sum);
	} else {
		runs = channels_record_any_runs(host->started, host->finished, c->count, &sum);
		runs |= channels_record_any_runs(host->messages_started, host->messages_finished,
						 c->count, &sum);
	}
	if (ended)
		*ended = sum;
	return runs;
}

struct cuda_channels_error cuda_channels_error(const struct cuda_channels *c)
{
	const struct channel_host *host = c->segment->host;
	struct cuda_channels_error error = {.what = (uint32_t)channels_record_look(&host->error)};

	error.peer = (int)channels_record_look(&host->peer);
	error.bytes = channels_record_look(&host->bytes);
	error.expected = channels_record_look(&host->expected);
	return error;
}
