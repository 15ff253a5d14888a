/* A rank's part of the device: made, checked and ended. */
#include "collectives/device/device_internal.h"

#include "core/log.h"
#include "core/status.h"
#include "core/memory/memory.h"

#include <stdio.h>
#include <stdlib.h>

int device_wanted(int ordinal)
{
	return memory_kind(TUTTI_MEMORY_CUDA) ? cuda_channels_device(ordinal) : -1;
}

void device_open(struct device **out, struct cuda_part *part, const struct device_config *config)
{
	struct device *d;
	int ordinal;

	*out = NULL;
	part->is_there = 0;
	if ((ordinal = device_wanted(config->ordinal)) < 0)
		return;
	if (!(d = calloc(1, sizeof *d)))
		return;
	d->across_tail = &d->across;
	d->may_multicast = !config->is_deterministic;
	if (cuda_channels_create(&d->channels, part, ordinal, config->most,
				 config->staging_bytes) != TUTTI_OK) {
		log_info("GPUs by the engine alone: %s", last_error());
		part->is_there = 0;
		free(d);
		return;
	}
	cuda_channels_open_buffers(d->channels, config->opens_buffers);
	*out = d;
}

int device_ordinal(const struct device *d)
{
	return cuda_channels_ordinal(d->channels);
}

bool device_connect(struct device *d, const struct cuda_part *parts, struct group ranks,
		    const struct nodes *nodes)
{
	d->rank = ranks.me;
	d->size = ranks.size;
	d->ranks = ranks;
	d->nodes = nodes;
	if (cuda_channels_connect(d->channels, parts, d->rank, d->size, member(ranks, ranks.me)) ==
	    TUTTI_OK)
		return true;
	log_info("GPUs by the engine alone: %s", last_error());
	return false;
}

const struct engine_stages *device_stages(struct device *d, int size)
{
	struct engine_stages *s = &d->stages;

	if (!(s->of = calloc((size_t)size, sizeof *s->of)))
		return NULL;
	s->count = CUDA_STAGES;
	for (int i = 0; i < d->size; i++)
		s->of[member(d->ranks, i)] = cuda_channels_stages(d->channels, i, &s->bytes);
	return s;
}

/* The block counts that ranks can agree on: 1 to 16 in steps of 1, then coarser, since a few blocks
 * more or less matter only where there are few. */
static unsigned level_blocks(unsigned level)
{
	return level < 16 ? level + 1 : level < 20 ? 16 + 4 * (level - 15) : 32 + 8 * (level - 19);
}
#define LEVELS 24u /* the last is CHANNELS_MOST */

uint32_t device_levels(const struct device *d)
{
	uint32_t levels = 0;

	for (unsigned i = 0; i < LEVELS; i++)
		if (cuda_channels_take_turns(d->channels) ||
		    level_blocks(i) <= cuda_channels_count(d->channels))
			levels |= 1u << i;
	return levels;
}

void device_agree(struct device *d, uint32_t levels)
{
	unsigned level = 0;

	_Static_assert(32 + 8 * (LEVELS - 1 - 19) == CHANNELS_MOST, "the last level");
	while (level + 1 < LEVELS && levels >> (level + 1) & 1u)
		level++;
	cuda_channels_limit(d->channels, level_blocks(level));
}

void device_close(struct device *d)
{
	if (!d)
		return;
	free(d->stages.of);
	cuda_channels_destroy(d->channels);
	free(d);
}

void device_fail(void *device)
{
	struct device *d = device;

	cuda_channels_abort(d->channels);
	cuda_channels_settle(d->channels);
}

bool device_runs(void *device, uint64_t *ended)
{
	return cuda_channels_is_running(((struct device *)device)->channels, ended);
}

bool device_differs(void *device, char *text, size_t text_bytes)
{
	const struct device *d = device;
	struct cuda_channels_error error = cuda_channels_error(d->channels);
	int peer = member(d->ranks, error.peer);

	if (error.what != CHANNEL_OTHER_MESSAGE)
		snprintf(text, text_bytes, "rank %d made another call on its GPU", peer);
	else if (error.bytes != error.expected)
		snprintf(text, text_bytes,
			 "rank %d sent a message of %llu bytes, and the recv is for %llu", peer,
			 (unsigned long long)error.bytes, (unsigned long long)error.expected);
	else
		snprintf(text, text_bytes,
			 "rank %d sent a message of another dtype, or with another tag, than the "
			 "recv is for",
			 peer);
	return error.what != 0;
}

/* Whether a rank may have no buffer, and so cannot tell whether those of the others are on GPUs. Of
 * all_to_allv ranks know only their own counts: there such a rank takes it that they are. */
static bool may_lack_buffers(const struct device *d, const struct call_args *args)
{
	enum collective pattern = collective_pattern(args->collective);

	if (args->collective == COLL_ALL_TO_ALLV)
		return false;
	if (collective_has_counts(args->collective) && collective_has_root(pattern))
		for (int r = 0; r < d->size; r++)
			if (args->counts[SEND_SIDE][r] == 0)
				return true;
	return args->count == 0;
}

/* By turns all ranks must know how many there are. Of all_to_allv ranks know only their own counts;
 * a call of too many turns would fill its stream. */
static bool takes_few_turns(const struct device *d, const struct call_args *args)
{
	enum collective pattern = collective_pattern(args->collective);
	size_t pieces = turn_pieces((uint32_t)d->size, !collective_has_blocks(pattern, SEND_SIDE),
				    collective_reduces(pattern));

	if (!cuda_channels_take_turns(d->channels))
		return true;
	return args->collective != COLL_ALL_TO_ALLV &&
	       device_most(d, args) <= cuda_channels_most(d->channels) / pieces;
}

bool device_serves_captured(const struct device *d, const struct call_args *args)
{
	return !d->nodes && args->collective < COLL_SPLIT && takes_few_turns(d, args);
}

bool device_serves(const struct device *d, const struct call_args *args)
{
	return args->collective != COLL_BARRIER && !may_lack_buffers(d, args) &&
	       device_serves_captured(d, args);
}

static bool is_default_stream(const void *stream)
{
	return !stream || stream == CU_STREAM_LEGACY;
}

tutti_status device_check(const struct device *d, const struct call_args *args,
			  const tutti_call *call)
{
	const char *name = collective_name(args->collective);

	TRY(device_check_buffers(d, args));
	TRY(cuda_channels_check_stream(d->channels, call ? call->stream : NULL));
	if (d->nodes) /* its kernels are in a stream of their own */
		return TUTTI_OK;
	if (call && !call->work && !call->done && is_default_stream(call->stream) &&
	    cuda_channels_share_default(d->channels))
		return fail(TUTTI_ERR_INVALID,
			    "%s: threads that share a GPU share its default stream, where one "
			    "rank's call would wait for another's behind it: set call.stream to a "
			    "stream of this rank",
			    name);
	return TUTTI_OK;
}

const char *device_no_multicast(const struct device *d)
{
	if (!d->may_multicast)
		return "config.deterministic asks for an order of sums that a switch does not keep";
	return d->nodes ? "there are several nodes" : cuda_channels_no_multicast(d->channels);
}

tutti_status device_mem_alloc(struct device *d, const struct cuda_region_wish *wish, void **ptr,
			      struct cuda_region *region)
{
	struct cuda_region_wish ours = *wish;

	ours.wants_multicast = !device_no_multicast(d);
	return cuda_region_alloc(d->channels, &ours, ptr, region);
}

tutti_status device_mem_step(struct device *d, const struct cuda_region *regions,
			     struct cuda_region *own)
{
	struct cuda_region of_ranks[CHANNEL_RANKS];

	for (int i = 0; i < d->size; i++)
		of_ranks[i] = regions[member(d->ranks, i)];
	return cuda_region_step(d->channels, of_ranks, own);
}

bool device_mem_free(void *ptr)
{
	return cuda_region_free(ptr);
}
