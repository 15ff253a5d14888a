/* Channels: made, connected to those of the other ranks, watched, and ended. */
#include "cuda/channels_internal.h"
#include "cuda/regions.h"
#include "cuda/residency.h"
#include "cuda/streams.h"
#include "cuda/turns.h"

#include "core/auth.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_ALIGN    ((size_t)4096)
#define LEADERS_END_MS 500 /* after a failure: for leaders to leave our buffers alone */

static uint8_t own_process[16];

static void channels_draw_process(void)
{
	auth_random(own_process, sizeof own_process);
}

int cuda_channels_device(int wanted)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUcontext context = NULL;
	struct cuda_device *device;

	if (wanted >= 0)
		return wanted;
	if (!cuda || cuda->ctx_get_current(&context) != CUDA_SUCCESS || !context)
		return -1;
	/* A context that is no device's primary one has no channels. */
	return cuda_device_of_stream(&device, NULL, NULL) == TUTTI_OK ? device->ordinal : -1;
}

static size_t channels_staging_unit(int size)
{
	return (size_t)4 * CHANNEL_ALIGN * (size_t)size;
}

static size_t channel_staging(int size, size_t staging_bytes)
{
	size_t unit = channels_staging_unit(size);
	size_t units = staging_bytes / CHANNELS_MOST / unit;

	return (units ? units : 1) * unit;
}

/* Behind what kernels use; alike on all ranks, whose windows are. */
static size_t channels_place_stages(struct cuda_channels *c, int size)
{
	size_t used = channel_segment_bytes((uint32_t)size, CHANNELS_MOST, c->staging);

	c->stages_offset = (used + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
	c->stage_bytes = c->staging_config / CUDA_STAGES / STAGE_ALIGN * STAGE_ALIGN;
	if (c->stage_bytes == 0)
		c->stage_bytes = STAGE_ALIGN;
	return c->stages_offset + CUDA_STAGES * c->stage_bytes;
}

void *cuda_channels_stages(const struct cuda_channels *c, int rank, size_t *bytes)
{
	*bytes = c->stage_bytes;
	return (void *)(uintptr_t)(c->segments[rank] + c->stages_offset);
}

static tutti_status channels_describe(struct cuda_channels *c, struct cuda_part *part)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice number;
	CUuuid uuid;

	pthread_once(&once, channels_draw_process);
	CUDA_TRY(device_get, &number, c->device->ordinal);
	CUDA_TRY(device_get_uuid, &uuid, number);
	memcpy(part->process, own_process, sizeof part->process);
	memcpy(part->gpu, uuid.bytes, sizeof part->gpu);
	memcpy(part->handle, c->segment->handle.reserved, sizeof part->handle);
	part->segment = c->segment->memory;
	part->has_multicast = c->device->pieces.has_multicast;
	part->blocks = (uint32_t)c->device->blocks_at_once[CUDA_KERNEL_turn];
	part->most_waiting = cuda_residency_most(c->device);
	part->free_waiting = cuda_residency_free(c->device);
	if (c->device->pieces.types && cuda_door_open(&c->door, part->door) != TUTTI_OK) {
		log_info("GPU memory by IPC handles: %s", last_error());
		last_error_clear();
	}
	cuda_turns_describe(c, part);
	part->is_there = 1;
	return TUTTI_OK;
}

static tutti_status channels_make_events(struct cuda_channels *c)
{
	const struct cuda_driver *cuda = cuda_driver();

	TRY(cuda_stream_take(c->device, &c->stream));
	CUDA_TRY(event_create, &c->fork, CU_EVENT_DISABLE_TIMING);
	CUDA_TRY(event_create, &c->latest, CU_EVENT_DISABLE_TIMING);
	CUDA_TRY(event_create, &c->captured, CU_EVENT_DISABLE_TIMING);
	return TUTTI_OK;
}

static tutti_status channels_make_stream(struct cuda_channels *c)
{
	struct cuda_visit visit;

	TRY(cuda_enter(c->device, &visit));
	tutti_status status = channels_make_events(c);
	cuda_leave(&visit);
	return status;
}

tutti_status cuda_channels_create(struct cuda_channels **out, struct cuda_part *part, int ordinal,
				  int most, size_t staging_bytes)
{
	struct cuda_channels *c;
	int size = most < CHANNEL_RANKS ? most : CHANNEL_RANKS;

	if (!(c = calloc(1, sizeof *c)))
		return fail(TUTTI_ERR_MEMORY, "no memory for the channels of a rank");
	c->staging = channel_staging(size, staging_bytes);
	c->staging_config = staging_bytes;
	tutti_status status = cuda_device_open(&c->device, ordinal);
	if (status == TUTTI_OK)
		status = cuda_segment_take(&c->segment, c->device, channels_place_stages(c, size));
	if (status == TUTTI_OK)
		status = channels_make_stream(c);
	if (status == TUTTI_OK)
		status = channels_describe(c, part);
	if (status != TUTTI_OK) {
		cuda_channels_destroy(c);
		return status;
	}
	*out = c;
	return TUTTI_OK;
}

static bool channels_is_same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, 16) == 0;
}

/* The smallest number of blocks that any rank may ask for. */
static unsigned channels_count_wanted(const struct cuda_channels *c, const struct cuda_part *parts)
{
	unsigned wanted = CHANNELS_MOST;

	for (int r = 0; r < c->size; r++) {
		unsigned sharing = 0, free = parts[r].free_waiting;
		for (int k = 0; k < c->size; k++) {
			if (!channels_is_same(parts[k].gpu, parts[r].gpu))
				continue;
			sharing++;
			free = parts[k].free_waiting < free ? parts[k].free_waiting : free;
		}
		unsigned share = cuda_residency_share(parts[r].most_waiting, free, sharing);
		wanted = share < wanted ? share : wanted;
	}
	return wanted;
}

/* The blocks of kernels that wait for no other rank. */
static unsigned channels_count_blocks(const struct cuda_channels *c, const struct cuda_part *parts)
{
	unsigned most = c->size == 1 ? CHANNELS_MOST : TURN_BLOCKS_MOST;

	for (int r = 0; r < c->size; r++)
		most = parts[r].blocks < most ? parts[r].blocks : most;
	return most;
}

/* All kernels that wait must be resident at once, so they may use only the blocks that are taken
 * here; without any the engine serves the communicator. */
static tutti_status channels_take_blocks(struct cuda_channels *c, unsigned wanted)
{
	c->count = c->resident = cuda_residency_take(c->device, wanted);
	if (c->count > 0)
		return TUTTI_OK;
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "rank %d: other communicators, made at the same time, have taken all "
		    "multiprocessors of CUDA device %d that waiting kernels may occupy",
		    c->named, c->device->ordinal);
}

static void channels_give_blocks(struct cuda_channels *c)
{
	if (c->resident)
		cuda_residency_give(c->device, c->resident);
	c->resident = 0;
}

void cuda_channels_limit(struct cuda_channels *c, unsigned count)
{
	if (c->turns || count >= c->count)
		return;
	if (c->resident) {
		cuda_residency_give(c->device, c->resident - count);
		c->resident = count;
	}
	c->count = count;
}

/* With 2 ranks the links of a GPU carry more by a switch than without: docs/cuda.md. */
#define MULTICAST_FEWEST 3

/* A GPU joins a multicast object once. */
static const char *channels_find_no_multicast(const struct cuda_channels *c,
					      const struct cuda_part *parts)
{
	for (int r = 0; r < c->size; r++) {
		if (!parts[r].has_multicast)
			return "a rank's GPU has no multicast, or is older than sm_90";
		for (int k = 0; k < r; k++)
			if (channels_is_same(parts[k].gpu, parts[r].gpu))
				return "two ranks share a GPU";
	}
	return c->size >= MULTICAST_FEWEST ? NULL : "it is for three ranks or more";
}

const char *cuda_channels_no_multicast(const struct cuda_channels *c)
{
	return c->no_multicast;
}

static tutti_status channels_check_parts(const struct cuda_channels *c,
					 const struct cuda_part *parts)
{
	for (int r = 0; r < c->size; r++)
		if (!parts[r].is_there)
			return fail(TUTTI_ERR_UNSUPPORTED, "rank %d has no GPU", r);
	return TUTTI_OK;
}

/* A GPU that this process does not see (CUDA_VISIBLE_DEVICES) cannot be mapped. */
static tutti_status channels_find_gpu(const struct cuda_part *part, int rank, int *ordinal)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice number;
	CUuuid uuid;

	for (*ordinal = 0; *ordinal < cuda_device_count(); ++*ordinal) {
		CUDA_TRY(device_get, &number, *ordinal);
		CUDA_TRY(device_get_uuid, &uuid, number);
		if (memcmp(uuid.bytes, part->gpu, sizeof uuid.bytes) == 0)
			return TUTTI_OK;
	}
	return fail(TUTTI_ERR_UNSUPPORTED, "the GPU of rank %d is not visible to this process",
		    rank);
}

static tutti_status channels_may_reach(const struct cuda_channels *c, int ordinal, int rank)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice mine, theirs;
	int can = 0;

	CUDA_TRY(device_get, &mine, c->device->ordinal);
	CUDA_TRY(device_get, &theirs, ordinal);
	CUDA_TRY(device_can_access_peer, &can, mine, theirs);
	return can ? TUTTI_OK
		   : fail(TUTTI_ERR_UNSUPPORTED,
			  "the GPUs of ranks %d and %d do not reach each other's memory", c->named,
			  rank);
}

static tutti_status channels_reach_thread(struct cuda_channels *c, const struct cuda_part *part,
					  int ordinal)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_device *peer;

	TRY(cuda_device_open(&peer, ordinal));
	if (peer != c->device) {
		CUresult error = cuda->ctx_enable_peer_access(peer->context, 0);
		if (error != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
			TRY(cuda_status(error, "ctx_enable_peer_access"));
	}
	return part->segment ? TUTTI_OK : fail(TUTTI_ERR_INTERNAL, "a rank has no segment");
}

static tutti_status channels_map_process(struct cuda_channels *c, const struct cuda_part *part,
					 int r)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUipcMemHandle handle;

	memcpy(handle.reserved, part->handle, sizeof handle.reserved);
	CUDA_TRY(ipc_open_mem_handle, &c->segments[r], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	c->is_opened[r] = true;
	return TUTTI_OK;
}

static tutti_status channels_connect_to(struct cuda_channels *c, const struct cuda_part *own,
					const struct cuda_part *part, int r)
{
	int ordinal;

	c->segments[r] = part->segment;
	c->is_one_gpu &= channels_is_same(part->gpu, own->gpu);
	memcpy(c->doors[r], part->door, sizeof c->doors[r]);
	if (r == c->rank)
		return TUTTI_OK;
	TRY(channels_find_gpu(part, r, &ordinal));
	if (ordinal != c->device->ordinal)
		TRY(channels_may_reach(c, ordinal, r));
	if (channels_is_same(part->process, own_process))
		return channels_reach_thread(c, part, ordinal);
	c->is_one_process = false;
	return channels_map_process(c, part, r);
}

/* Tells later communicators that other processes share the device: kernels must not wait there. */
static void channels_note_processes(struct cuda_channels *c, const struct cuda_part *parts)
{
	for (int r = 0; r < c->size; r++)
		c->shares_device |= channels_is_same(parts[r].gpu, parts[c->rank].gpu) &&
				    !channels_is_same(parts[r].process, own_process);
	if (c->shares_device)
		cuda_residency_share_device(c->device);
}

/* Logs why calls take turns, unless the reason is that processes share a GPU. */
static void channels_explain_turns(const struct cuda_channels *c, const struct cuda_part *parts)
{
	int full = 0;

	if (cuda_turns_are_needed(parts, c->size))
		return;
	for (int r = 0; r < c->size; r++)
		if (parts[r].free_waiting < parts[full].free_waiting)
			full = r;
	log_info("rank %d: calls on GPUs take turns, and the engine replays captured ones: of the "
		 "multiprocessors that waiting kernels may occupy, the GPU of rank %d of the %d "
		 "on this host has %u of %u left (none if other processes share the GPU)",
		 c->named, full, c->size, parts[full].free_waiting, parts[full].most_waiting);
}

void cuda_channels_open_buffers(struct cuda_channels *c, bool opens_buffers)
{
	c->opens_buffers = opens_buffers;
}

tutti_status cuda_channels_connect(struct cuda_channels *c, const struct cuda_part *parts, int rank,
				   int size, int named)
{
	struct cuda_visit visit;
	tutti_status status = TUTTI_OK;

	if (size > CHANNEL_RANKS)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "kernels of %d ranks do not wait for each other: %d are the most", size,
			    CHANNEL_RANKS);
	c->rank = rank;
	c->size = size;
	c->named = named;
	c->staging -= c->staging % channels_staging_unit(size); /* it was made for more ranks */
	TRY(channels_check_parts(c, parts));
	unsigned wanted = c->size == 1 ? 0 : channels_count_wanted(c, parts);
	bool by_turns = c->size > 1 && (cuda_turns_are_needed(parts, c->size) || wanted == 0);
	c->is_one_process = c->is_one_gpu = true;
	c->count = channels_count_blocks(c, parts);
	c->no_multicast = channels_find_no_multicast(c, parts);
	if (!c->no_multicast && by_turns)
		c->no_multicast = "its calls take turns";
	channels_note_processes(c, parts);
	if (by_turns)
		channels_explain_turns(c, parts);
	else if (wanted > 0)
		TRY(channels_take_blocks(c, wanted));
	if (c->count == 0)
		return fail(TUTTI_ERR_UNSUPPORTED, "a GPU does not hold a block of our kernels");
	TRY(cuda_enter(c->device, &visit));
	for (int r = 0; status == TUTTI_OK && r < c->size; r++)
		status = channels_connect_to(c, &parts[rank], &parts[r], r);
	if (status == TUTTI_OK && by_turns)
		status = cuda_turns_connect(c, parts);
	cuda_leave(&visit);
	for (int r = 0; r < c->size; r++)
		c->shares_default |= r != c->rank &&
				     channels_is_same(parts[r].gpu, parts[c->rank].gpu) &&
				     channels_is_same(parts[r].process, own_process);
	if (c->shares_default)
		cuda_streams_share(c->device->ordinal);
	return status;
}

int cuda_channels_ordinal(const struct cuda_channels *c)
{
	return c->device->ordinal;
}

void *cuda_channels_stream(const struct cuda_channels *c)
{
	return c->stream;
}

unsigned cuda_channels_count(const struct cuda_channels *c)
{
	return c->count;
}

bool cuda_channels_share_default(const struct cuda_channels *c)
{
	return c->shares_default;
}

void cuda_channels_abort(struct cuda_channels *c)
{
	for (int i = 0; i < CHANNELS_MOST; i++)
		atomic_store((_Atomic uint64_t *)&c->segment->host->aborts[i].word, 1);
	if (c->turns)
		cuda_turns_release(c);
	atomic_store(&c->has_failed, true);
}

/* Then no kernel runs, and none will say that it has ended. */
static bool channels_has_broken(const struct cuda_channels *c)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUresult error = cuda->stream_query(c->stream);

	return error != CUDA_SUCCESS && error != CUDA_ERROR_NOT_READY;
}

/* False: this communicator's kernels do not end. */
static bool channels_settle(const struct cuda_channels *c)
{
	uint64_t deadline_ns = deadline_after_ms(CUDA_END_MS);

	while (cuda_channels_is_running(c, NULL) && !channels_has_broken(c)) {
		if (clock_now_ns() > deadline_ns) {
			log_notice("rank %d: kernels of a call that has failed do not end on CUDA "
				   "device %d: its buffers may still change",
				   c->named, c->device->ordinal);
			return false;
		}
		sched_yield();
	}
	uint64_t leaders_until_ns = deadline_after_ms(LEADERS_END_MS); /* they may have died */
	while (cuda_turns_use_buffers(c) && clock_now_ns() < leaders_until_ns)
		sched_yield();
	return true;
}

void cuda_channels_settle(struct cuda_channels *c)
{
	struct cuda_visit visit;

	if (cuda_enter(c->device, &visit) != TUTTI_OK)
		return;
	if (channels_settle(c)) /* kernels that start later end at once */
		channels_give_blocks(c);
	cuda_leave(&visit);
}

static void channels_close_device(struct cuda_channels *c)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;

	if (cuda_enter(c->device, &visit) != TUTTI_OK)
		return;
	for (int r = 0; r < c->size && !c->has_failed; r++)
		if (c->is_opened[r])
			cuda->ipc_close_mem_handle(c->segments[r]);
	cuda_turns_close(c, !c->has_failed);
	cuda_regions_unmap(c);
	if (c->fork)
		cuda->event_destroy(c->fork);
	if (c->latest)
		cuda->event_destroy(c->latest);
	if (c->captured)
		cuda->event_destroy(c->captured);
	cuda_stream_give(c->device, c->stream);
	cuda_leave(&visit);
}

void cuda_channels_destroy(struct cuda_channels *c)
{
	if (!c)
		return;
	/* A captured call has no work that somebody has waited for: its kernel must not see the
	 * segment's next use. */
	if (c->segment && cuda_channels_is_running(c, NULL)) {
		cuda_channels_abort(c);
		cuda_channels_settle(c);
	}
	cuda_regions_forget(c);
	cuda_door_close(c->door);
	if (c->device)
		channels_close_device(c);
	if (!c->has_failed) /* else kernels that have not ended may still wait */
		channels_give_blocks(c);
	if (c->shares_device)
		cuda_residency_unshare_device(c->device);
	if (c->segment && !c->has_failed)
		cuda_segment_end_turns(c->segment);
	/* Kernels that a stream has not begun yet will look at it, after a failure. */
	if (c->segment)
		(c->has_failed ? cuda_segment_keep : cuda_segment_give)(c->segment);
	free(c);
}
