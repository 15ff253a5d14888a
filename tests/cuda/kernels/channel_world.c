/* Segments, arguments and programs; see channel_world.h. */
#include "channel_world.h"

#include "core/memory/dtype.h"
#include "tests/random.h"

#include <stdatomic.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define ARENA_REGION 1

static void *zeroed(size_t bytes)
{
	size_t rounded = (bytes + 127) / 128 * 128;
	void *memory = aligned_alloc(128, rounded);

	assert_non_null(memory);
	return memset(memory, 0, rounded);
}

void world_set_epoch(struct world *w, uint32_t epoch)
{
	for (int r = 0; r < w->size; r++)
		for (int c = 0; c < CHANNELS_MOST; c++) {
			struct channel *channel =
				&((struct channel_segment *)w->segments[r])->channels[c];
			channel->epoch = epoch;
			memset(channel->greetings, 0, sizeof channel->greetings);
		}
}

/* Little staging: 4 pieces of 128 bytes a rank. */
void world_create(struct world *w, int size, uint32_t first_epoch)
{
	w->size = size;
	w->staging_bytes = 4u * CHANNEL_ALIGN * (unsigned)size;
	for (int r = 0; r < size; r++) {
		w->segments[r] = zeroed(
			channel_segment_bytes((uint32_t)size, WORLD_CHANNELS, w->staging_bytes));
		w->hosts[r] = zeroed(sizeof *w->hosts[r]);
		w->regions[r] = zeroed(sizeof(uint64_t) * CHANNEL_REGION_WORDS);
		w->fingerprints[r] = 0xfedcba98;
		for (int peer = 0; peer < size; peer++)
			w->regions[r][peer * CHANNEL_REGIONS + ARENA_REGION] = 4096;
	}
	world_set_epoch(w, first_epoch);
}

void world_destroy(struct world *w)
{
	for (int r = 0; r < w->size; r++) {
		free(w->segments[r]);
		free(w->hosts[r]);
		free(w->regions[r]);
	}
}

/* ---- buffers ---- */

static bool is_rooted(enum call_kind kind)
{
	return kind == CALL_REDUCE || kind == CALL_BROADCAST || kind == CALL_GATHER ||
	       kind == CALL_SCATTER;
}

/* Elements that rank `from` has at `at` of its send buffer for rank `to`, and the same of recv. */
static size_t send_offset(const struct world *w, const struct world_call *c, int from, int to)
{
	size_t offset = 0;

	(void)w;
	if (c->kind == CALL_REDUCE_SCATTER || c->kind == CALL_SCATTER || c->kind >= CALL_ALL_TO_ALL)
		for (int r = 0; r < to; r++)
			offset += c->counts[from][r];
	return offset * dtype_bytes(c->dtype);
}

static size_t recv_offset(const struct world *w, const struct world_call *c, int from, int to)
{
	size_t offset = 0;

	(void)w;
	if (c->kind == CALL_ALL_GATHER || c->kind == CALL_GATHER || c->kind >= CALL_ALL_TO_ALL)
		for (int r = 0; r < from; r++)
			offset += c->counts[r][to];
	return offset * dtype_bytes(c->dtype);
}

static bool goes(const struct world_call *c, int from, int to)
{
	switch (c->kind) {
	case CALL_BROADCAST:
	case CALL_SCATTER:
		return from == c->root;
	case CALL_GATHER:
	case CALL_REDUCE:
		return to == c->root;
	default:
		return true;
	}
}

static size_t block_bytes(const struct world_call *c, int from, int to)
{
	return goes(c, from, to) ? c->counts[from][to] * dtype_bytes(c->dtype) : 0;
}

static void place_buffers(struct world_call *c, const struct world *w, int r)
{
	char *start = c->memory[r] + 64 + c->shift[r];
	size_t recv_at = (c->send_bytes[r] + 127) / 64 * 64 + 64;

	c->send[r] = start;
	c->recv[r] = start + recv_at + (c->shift[(r + 1) % w->size] - c->shift[r]);
	if (!c->in_place || (is_rooted(c->kind) && r != c->root))
		return;
	switch (c->kind) {
	case CALL_ALL_REDUCE:
	case CALL_REDUCE:
	case CALL_BROADCAST:
		c->recv[r] = c->send[r];
		break;
	case CALL_REDUCE_SCATTER:
	case CALL_SCATTER:
		c->recv[r] = c->send[r] + send_offset(w, c, r, r);
		break;
	case CALL_ALL_GATHER:
	case CALL_GATHER:
		c->recv[r] = start;
		c->send[r] = start + recv_offset(w, c, r, r);
		break;
	default:
		break;
	}
}

void world_prepare(const struct world *w, struct world_call *c, uint64_t *seed)
{
	for (int r = 0; r < w->size; r++) {
		c->send_bytes[r] = c->recv_bytes[r] = 0;
		for (int p = 0; p < w->size; p++) {
			size_t end = send_offset(w, c, r, p) + block_bytes(c, r, p);
			c->send_bytes[r] = end > c->send_bytes[r] ? end : c->send_bytes[r];
			end = recv_offset(w, c, p, r) + block_bytes(c, p, r);
			c->recv_bytes[r] = end > c->recv_bytes[r] ? end : c->recv_bytes[r];
		}
		size_t bytes = c->send_bytes[r] + c->recv_bytes[r] + 512;
		c->memory[r] = zeroed(bytes);
		for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
			uint64_t word = random_next(seed);
			memcpy(c->memory[r] + i, &word,
			       bytes - i < sizeof word ? bytes - i : sizeof word);
		}
		place_buffers(c, w, r);
		c->sent[r] = zeroed(c->send_bytes[r] + 1);
		memcpy(c->sent[r], c->send[r], c->send_bytes[r]);
		c->got[r] = zeroed(c->recv_bytes[r] + 1);
	}
}

void world_release(const struct world *w, struct world_call *c)
{
	for (int r = 0; r < w->size; r++) {
		free(c->memory[r]);
		free(c->sent[r]);
		free(c->got[r]);
	}
}

/* ---- arguments ---- */

static uint64_t place(const char *address, bool is_mapped, int rank)
{
	if (!is_mapped)
		return CHANNEL_NOWHERE;
	return rank % 2 ? channel_place(0, (uintptr_t)address)
			: channel_place(ARENA_REGION, (uintptr_t)address - 4096);
}

void world_channel_args(const struct world *w, int rank, struct channel_args *a)
{
	memcpy(a->segments, w->segments, sizeof w->segments);
	a->host = w->hosts[rank];
	a->regions = w->regions[rank];
	a->staging_bytes = w->staging_bytes;
	a->size = (uint32_t)w->size;
	a->rank = (uint32_t)rank;
	a->fingerprint = w->fingerprints[rank];
}

static bool reduces(enum call_kind kind)
{
	return kind <= CALL_REDUCE_SCATTER;
}

static void packets_arguments(const struct world *w, const struct world_call *c, int rank,
			      struct packets_args *a)
{
	bool from_root = c->kind == CALL_BROADCAST || c->kind == CALL_SCATTER;
	bool to_root = c->kind == CALL_GATHER || c->kind == CALL_REDUCE;

	*a = (struct packets_args){.send = c->send[rank],
				   .recv = c->recv[rank],
				   .bytes = c->counts[0][0] * dtype_bytes(c->dtype),
				   .send_stride = send_offset(w, c, 0, 1),
				   .recv_stride = recv_offset(w, c, 1, 0),
				   .sender = from_root ? c->root : -1,
				   .receiver = to_root ? c->root : -1,
				   .reduces = reduces(c->kind),
				   .is_scaled = c->is_scaled,
				   .scalar = c->scalars[rank],
				   .dtype = (int)c->dtype,
				   .op = (int)c->op,
				   .divisor = w->size};
	world_channel_args(w, rank, &a->channel);
}

static void lines_arguments(const struct world *w, const struct world_call *c, int rank,
			    struct lines_args *a)
{
	bool is_sliced = c->kind == CALL_ALL_REDUCE || c->kind == CALL_REDUCE;
	bool to_root = c->kind == CALL_REDUCE || c->kind == CALL_GATHER;

	*a = (struct lines_args){
		.send = c->send[rank],
		.recv = c->recv[rank],
		.send_place = place(c->send[rank], c->send_is_mapped[rank] && !c->is_scaled, rank),
		.is_scaled = c->is_scaled,
		.scalar = c->scalars[rank],
		.recv_place = place(c->recv[rank], c->recv_is_mapped[rank], rank),
		.move = is_sliced          ? CHANNEL_REDUCE_SLICES
			: reduces(c->kind) ? CHANNEL_REDUCE_MINE
					   : CHANNEL_PULL,
		.root = to_root ? c->root : -1,
		.send_is_same = is_sliced || c->kind == CALL_ALL_GATHER ||
				c->kind == CALL_BROADCAST || c->kind == CALL_GATHER,
		.dtype = (int)c->dtype,
		.op = (int)c->op,
		.divisor = w->size};
	for (int p = 0; p < w->size; p++) {
		a->send_offset[p] = send_offset(w, c, rank, p);
		a->recv_offset[p] = recv_offset(w, c, p, rank);
		a->send_bytes[p] = is_sliced ? c->counts[0][0] * dtype_bytes(c->dtype)
					     : block_bytes(c, rank, p);
		a->recv_bytes[p] = block_bytes(c, p, rank);
	}
	world_channel_args(w, rank, &a->channel);
}

void world_args(const struct world *w, const struct world_call *c, int rank,
		struct packets_args *packets, struct lines_args *lines)
{
	packets_arguments(w, c, rank, packets);
	lines_arguments(w, c, rank, lines);
}

/* ---- programs ---- */

struct rank_arguments {
	struct packets_args packets;
	struct lines_args lines;
};

void world_start(const struct world *w, const struct world_call *c, int rank, struct launch *launch,
		 void *args)
{
	struct rank_arguments *a = args;

	world_args(w, c, rank, &a->packets, &a->lines);
	if (c->by_packets)
		launch_start(launch, launch_packets_block, &a->packets, c->blocks);
	else
		launch_start(launch, launch_lines_block, &a->lines, c->blocks);
}

struct rank_program {
	const struct world *world;
	struct world_call *calls;
	int rank, n;
	pthread_t thread;
};

static void use_buffers(struct world_call *c, int r)
{
	memcpy(c->got[r], c->recv[r], c->recv_bytes[r]);
	if (c->is_repeated)
		return;
	memset(c->send[r], 0x5a, c->send_bytes[r]);
	memset(c->recv[r], 0x5a, c->recv_bytes[r]);
}

static void *run_program(void *arg)
{
	struct rank_program *p = arg;

	for (int i = 0; i < p->n; i++) {
		struct rank_arguments args;
		struct launch launch;
		world_start(p->world, &p->calls[i], p->rank, &launch, &args);
		launch_wait(&launch);
		use_buffers(&p->calls[i], p->rank);
	}
	return NULL;
}

void world_run(const struct world *w, struct world_call *calls, int n)
{
	struct rank_program programs[WORLD_RANKS];

	for (int r = 0; r < w->size; r++) {
		programs[r] = (struct rank_program){w, calls, r, n, 0};
		assert_int_equal(
			pthread_create(&programs[r].thread, NULL, run_program, &programs[r]), 0);
	}
	for (int r = 0; r < w->size; r++)
		pthread_join(programs[r].thread, NULL);
}

void world_abort(struct channel_host *host, uint64_t value)
{
	for (int i = 0; i < CHANNELS_MOST; i++)
		atomic_store((_Atomic uint64_t *)&host->aborts[i].word, value);
}
