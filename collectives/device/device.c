/* A rank's part of the device: made, checked and ended; and how a call becomes a kernel's
 * arguments. */
#include "collectives/device/device.h"

#include "collectives/device/device_internal.h"
#include "core/log.h"
#include "core/memory/dtype.h"
#include "core/memory/memory.h"
#include "core/memory/ops.h"
#include "core/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call becomes the arguments of a kernel: short ones of packets, the others of lines, and all of
 * turns where the ranks' kernels cannot wait for each other. They are the same on all ranks, as far
 * as it matters: they follow from what ranks agree on. */

/* A block has so much to do at the least: 512 threads, 16 bytes each, several times. */
#define BLOCK_BYTES (32u << 10)

static bool device_comes_from_root(enum collective pattern)
{
	return pattern == COLL_BROADCAST || pattern == COLL_SCATTER;
}

static bool device_goes_to_root(enum collective pattern)
{
	return pattern == COLL_REDUCE || pattern == COLL_GATHER;
}

/* A call, in bytes. */
struct call_shape {
	enum collective pattern;
	size_t element;
	size_t block; /* bytes of a rank's block; of v-variants 0 */
	bool has_counts, is_root;
};

static struct call_shape device_args_shape_of(const struct device *d, const struct call_args *a)
{
	struct call_shape s = {.pattern = collective_pattern(a->collective),
			       .element = dtype_bytes(a->dtype),
			       .has_counts = collective_has_counts(a->collective)};

	s.block = s.has_counts ? 0 : a->count * s.element;
	s.is_root = collective_has_root(s.pattern) && a->root == d->rank;
	return s;
}

static size_t device_packet_channels(const struct call_shape *s)
{
	return s->block <= PACKET_SHARE ? 1 : (s->block + PACKET_SHARE - 1) / PACKET_SHARE;
}

static unsigned device_packet_blocks(const struct device *d, const struct call_shape *s)
{
	size_t channels = device_packet_channels(s);

	return (unsigned)(channels <= cuda_channels_count(d->channels)
				  ? channels
				  : (channels + PACKET_EACH - 1) / PACKET_EACH);
}

/* A call of packets waits once, but sends all bytes to all ranks, twice as many of them. */
static bool device_is_short(const struct device *d, const struct call_shape *s)
{
	size_t channels = device_packet_channels(s);

	return !s->has_counts && channels <= channel_packets((uint32_t)d->size) &&
	       channels <= PACKET_EACH * cuda_channels_count(d->channels);
}

static void device_fill_packets(const struct call_args *a, const struct call_shape *s,
				struct packets_args *p)
{
	p->send = a->send;
	p->recv = a->recv;
	p->bytes = s->block;
	p->send_stride = collective_has_blocks(s->pattern, SEND_SIDE) ? s->block : 0;
	p->recv_stride = collective_has_blocks(s->pattern, RECV_SIDE) ? s->block : 0;
	p->sender = device_comes_from_root(s->pattern) ? a->root : -1;
	p->receiver = device_goes_to_root(s->pattern) ? a->root : -1;
	p->reduces = collective_reduces(s->pattern);
}

static size_t device_args_count_of(const struct call_args *a, int side, int rank)
{
	return a->counts[side] ? a->counts[side][rank] : a->count;
}

static size_t device_offset_of(const struct call_args *a, int side, int rank)
{
	return a->counts[side] ? a->offsets[side][rank] : (size_t)rank * a->count;
}

/* This rank sends to every rank, or the root to each, or each to the root. */
static void device_fill_send(const struct device *d, const struct call_args *a,
			     const struct call_shape *s, struct lines_args *l)
{
	bool has_blocks = collective_has_blocks(s->pattern, SEND_SIDE);
	bool from_root = device_comes_from_root(s->pattern);

	l->send_is_same = !has_blocks;
	for (int r = 0; r < d->size; r++) {
		bool sends = !from_root || s->is_root;
		bool goes = s->pattern != COLL_GATHER || r == a->root;
		size_t count = has_blocks ? device_args_count_of(a, SEND_SIDE, r)
					  : device_args_count_of(a, SEND_SIDE, d->rank);
		l->send_bytes[r] = sends && goes ? count * s->element : 0;
		l->send_offset[r] = has_blocks ? device_offset_of(a, SEND_SIDE, r) * s->element : 0;
	}
}

static void device_fill_recv(const struct device *d, const struct call_args *a,
			     const struct call_shape *s, struct lines_args *l)
{
	bool has_blocks = collective_has_blocks(s->pattern, RECV_SIDE);
	bool from_root = device_comes_from_root(s->pattern);

	for (int r = 0; r < d->size; r++) {
		bool comes = !from_root || r == a->root;
		bool gets = s->pattern != COLL_GATHER || s->is_root;
		size_t count = has_blocks ? device_args_count_of(a, RECV_SIDE, r)
					  : device_args_count_of(a, RECV_SIDE, d->rank);
		l->recv_bytes[r] = comes && gets ? count * s->element : 0;
		l->recv_offset[r] = has_blocks ? device_offset_of(a, RECV_SIDE, r) * s->element : 0;
	}
}

static bool device_uses_send(const struct device *d, const struct call_args *a)
{
	return a->root == d->rank || !device_comes_from_root(collective_pattern(a->collective));
}

static bool device_uses_recv(const struct device *d, const struct call_args *a)
{
	return a->root == d->rank || !device_goes_to_root(collective_pattern(a->collective));
}

/* INVALID: a buffer that this rank uses is not memory of its device. */
static tutti_status device_check_buffers(const struct device *d, const struct call_args *a)
{
	if (device_uses_send(d, a))
		TRY(cuda_channels_check_buffer(d->channels, a->send));
	return device_uses_recv(d, a) ? cuda_channels_check_buffer(d->channels, a->recv) : TUTTI_OK;
}

/* A buffer that this rank does not have is in nobody's way. */
static tutti_status device_args_place_of(const struct device *d, const void *ptr, bool is_used,
					 uint64_t *place)
{
	*place = channel_place(0, 0);
	return is_used ? cuda_channels_place(d->channels, ptr, place) : TUTTI_OK;
}

static tutti_status device_fill_lines(const struct device *d, const struct call_args *a,
				      const struct call_shape *s, struct lines_args *l)
{
	l->send = a->send;
	l->recv = a->recv;
	TRY(device_args_place_of(d, a->send, device_uses_send(d, a), &l->send_place));
	TRY(device_args_place_of(d, a->recv, device_uses_recv(d, a), &l->recv_place));
	l->move = s->pattern == COLL_REDUCE_SCATTER ? CHANNEL_REDUCE_MINE
		  : collective_reduces(s->pattern)  ? CHANNEL_REDUCE_SLICES
						    : CHANNEL_PULL;
	l->root = device_goes_to_root(s->pattern) ? a->root : -1;
	device_fill_send(d, a, s, l);
	if (l->move == CHANNEL_PULL)
		device_fill_recv(d, a, s, l);
	return TUTTI_OK;
}

unsigned device_line_blocks(const struct device *d, size_t bytes)
{
	unsigned most = cuda_channels_count(d->channels);
	size_t blocks = bytes / BLOCK_BYTES + 1;

	return blocks < most ? (unsigned)blocks : most;
}

/* Of all_to_allv ranks know only their own counts. */
static unsigned line_blocks(const struct device *d, const struct call_args *a,
			    const struct call_shape *s)
{
	if (a->collective == COLL_ALL_TO_ALLV)
		return cuda_channels_count(d->channels);
	return device_line_blocks(d, s->has_counts ? a->count * s->element
						   : s->block * (size_t)d->size);
}

/* Bytes that any rank sends to any; of all_to_allv no rank knows them. */
static size_t device_most(const struct device *d, const struct call_args *a)
{
	size_t most = a->counts[SEND_SIDE] ? 0 : a->count;

	for (int r = 0; a->counts[SEND_SIDE] && r < d->size; r++)
		most = a->counts[SEND_SIDE][r] > most ? a->counts[SEND_SIDE][r] : most;
	return most * dtype_bytes(a->dtype);
}

static void device_prepare_packets(const struct device *d, const struct call_args *a,
				   const struct call_shape *s, struct packets_args *p)
{
	const void *scalar = op_scalar(a->op);

	device_fill_packets(a, s, p);
	p->dtype = (int32_t)a->dtype;
	p->op = (int32_t)op_kernel(a->op);
	p->divisor = a->op == TUTTI_AVG ? d->size : 0;
	p->is_scaled = scalar != NULL;
	if (scalar)
		memcpy(&p->scalar, scalar, s->element);
	p->channel.fingerprint = a->fingerprint;
}

/* A sum that the switch may do, all in f32 and rounded once. An average of f16 it would round
 * before the division: too large a sum becomes infinite. */
static bool device_may_multicast(const struct device *d, const struct call_args *a)
{
	bool is_average = a->op == TUTTI_AVG;

	return d->may_multicast && a->collective == COLL_ALL_REDUCE && !op_scalar(a->op) &&
	       (is_average || a->op == TUTTI_SUM) &&
	       (a->dtype == TUTTI_F32 || a->dtype == TUTTI_BF16 ||
		(a->dtype == TUTTI_F16 && !is_average));
}

static tutti_status device_prepare_lines(const struct device *d, const struct call_args *a,
					 const struct call_shape *s, struct lines_args *l)
{
	const void *scalar = op_scalar(a->op);

	TRY(device_fill_lines(d, a, s, l));
	l->dtype = (int32_t)a->dtype;
	l->op = (int32_t)op_kernel(a->op);
	l->divisor = a->op == TUTTI_AVG ? d->size : 0;
	l->may_multicast = device_may_multicast(d, a);
	l->is_scaled = scalar != NULL;
	if (scalar) {
		memcpy(&l->scalar, scalar, s->element);
		l->send_place = CHANNEL_NOWHERE;
	}
	l->channel.fingerprint = a->fingerprint;
	return TUTTI_OK;
}

tutti_status device_prepare(const struct device *d, const struct call_args *a,
			    union device_args *args, struct cuda_channels_launch *launch)
{
	struct call_shape s = device_args_shape_of(d, a);
	bool by_turns = cuda_channels_take_turns(d->channels);

	memset(args, 0, sizeof *args);
	launch->args = args;
	launch->near = a->recv ? a->recv : a->send;
	if (!by_turns && device_is_short(d, &s)) {
		launch->kernel = CUDA_KERNEL_packets;
		launch->blocks = device_packet_blocks(d, &s);
		device_prepare_packets(d, a, &s, &args->packets);
		return TUTTI_OK;
	}
	launch->kernel = by_turns ? CUDA_KERNEL_turn : CUDA_KERNEL_lines;
	launch->blocks = line_blocks(d, a, &s);
	launch->most = device_most(d, a);
	return device_prepare_lines(d, a, &s, by_turns ? &args->turn.lines : &args->lines);
}

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
static unsigned device_level_blocks(unsigned level)
{
	return level < 16 ? level + 1 : level < 20 ? 16 + 4 * (level - 15) : 32 + 8 * (level - 19);
}
#define LEVELS 24u /* the last is CHANNELS_MOST */

uint32_t device_levels(const struct device *d)
{
	uint32_t levels = 0;

	for (unsigned i = 0; i < LEVELS; i++)
		if (cuda_channels_take_turns(d->channels) ||
		    device_level_blocks(i) <= cuda_channels_count(d->channels))
			levels |= 1u << i;
	return levels;
}

void device_agree(struct device *d, uint32_t levels)
{
	unsigned level = 0;

	_Static_assert(32 + 8 * (LEVELS - 1 - 19) == CHANNELS_MOST, "the last level");
	while (level + 1 < LEVELS && levels >> (level + 1) & 1u)
		level++;
	cuda_channels_limit(d->channels, device_level_blocks(level));
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
static bool device_may_lack_buffers(const struct device *d, const struct call_args *args)
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
static bool device_takes_few_turns(const struct device *d, const struct call_args *args)
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
	return !d->nodes && args->collective < COLL_SPLIT && device_takes_few_turns(d, args);
}

bool device_serves(const struct device *d, const struct call_args *args)
{
	return args->collective != COLL_BARRIER && !device_may_lack_buffers(d, args) &&
	       device_serves_captured(d, args);
}

static bool device_is_default_stream(const void *stream)
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
	if (call && !call->work && !call->done && device_is_default_stream(call->stream) &&
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
