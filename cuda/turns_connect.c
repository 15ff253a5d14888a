/* Turns of a communicator: whether it takes them, who leads, and where the others' pages and
 * staging are. */
#include "cuda/turns.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/machine.h"
#include "core/status.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of staging, so many times what a window has: a turn costs the time slices of all processes. */
#define STAGING_FACTOR 16
#define ENDING_MS      500 /* of a process that is ending: a guess */

static bool turns_connect_is_same(const uint8_t *a, const uint8_t *b)
{
	return memcmp(a, b, 16) == 0;
}

bool cuda_turns_are_needed(const struct cuda_part *parts, int size)
{
	for (int r = 0; r < size; r++)
		for (int k = 0; k < r; k++)
			if (turns_connect_is_same(parts[k].gpu, parts[r].gpu) &&
			    !turns_connect_is_same(parts[k].process, parts[r].process))
				return true;
	return false;
}

/* A flag is a word of 64 bits. */
static bool streams_await_flags(const struct cuda_channels *c)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice number;
	int can = 0;

	if (cuda->device_get(&number, c->device->ordinal) == CUDA_SUCCESS &&
	    cuda->device_get_attribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
				       number) == CUDA_SUCCESS &&
	    can)
		return true;
	log_info("CUDA device %d: streams do not wait for words of 64 bits, and so take no turns "
		 "with other processes",
		 c->device->ordinal);
	return false;
}

void cuda_turns_describe(const struct cuda_channels *c, struct cuda_part *part)
{
	const struct cuda_turn_page *own = &c->segment->page;

	part->pid = (uint32_t)getpid();
	if (!own->page || !streams_await_flags(c))
		return;
	part->page = (uint64_t)(uintptr_t)own->page;
	part->page_token = own->page->token;
	part->page_fd = own->fd;
	part->page_slot = own->slot;
}

static tutti_status find_page(struct cuda_channels *c, const struct cuda_part *parts, int r)
{
	struct cuda_turns *turns = c->turns;
	bool is_here = turns_connect_is_same(parts[r].process, parts[c->rank].process);

	if (!parts[r].page)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "rank %d has no flags for which streams of other processes wait", r);
	turns->is_here[r] = is_here;
	turns->pids[r] = parts[r].pid;
	turns->views[r] = (struct turn_page *)(uintptr_t)parts[r].page;
	if (!is_here)
		TRY(cuda_turn_page_open(&turns->views[r], parts[r].pid, parts[r].page_fd,
					parts[r].page_slot, parts[r].page_token));
	if (r != c->rank)
		c->segment->readers[r] = (struct cuda_reader){turns->views[r], parts[r].page_token};
	return cuda_turn_page_pin(turns->views[r], &turns->pages[r]);
}

/* The first rank on r's GPU. */
static int leader_of(const struct cuda_part *parts, int r)
{
	int leader = 0;

	while (!turns_connect_is_same(parts[leader].gpu, parts[r].gpu))
		leader++;
	return leader;
}

static void find_leaders(struct cuda_channels *c, const struct cuda_part *parts)
{
	struct cuda_turns *turns = c->turns;

	turns->leader = leader_of(parts, c->rank);
	for (int r = 0; r < c->size; r++) {
		int leader = leader_of(parts, r);
		if (leader == r)
			turns->leaders |= 1u << r;
		if (leader == c->rank)
			turns->locals |= 1u << r;
	}
}

size_t cuda_turns_staging(const struct cuda_channels *c)
{
	size_t bytes = c->staging_config * STAGING_FACTOR / CHANNEL_ALIGN * CHANNEL_ALIGN;

	return bytes > TURN_STAGING_LEAST ? bytes : TURN_STAGING_LEAST;
}

/* The leaders map it when they need it: then all ranks have come this far. */
static tutti_status publish_staging(struct cuda_channels *c)
{
	struct turn_page *own = c->segment->page.page;

	TRY(cuda_segment_stage(c->segment, cuda_turns_staging(c)));
	memcpy(own->handle, c->segment->staging_handle.reserved, sizeof own->handle);
	own->staging = c->segment->staging;
	return TUTTI_OK;
}

static tutti_status turns_connect(struct cuda_channels *c, const struct cuda_part *parts)
{
	for (int r = 0; r < c->size; r++)
		TRY(find_page(c, parts, r));
	find_leaders(c, parts);
	TRY(publish_staging(c));
	c->turns->staging[c->rank] = c->segment->staging;
	return TUTTI_OK;
}

tutti_status cuda_turns_connect(struct cuda_channels *c, const struct cuda_part *parts)
{
	if (!(c->turns = calloc(1, sizeof *c->turns)))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its turns", c->named);
	tutti_status status = turns_connect(c, parts);
	if (status != TUTTI_OK) {
		free(c->turns);
		c->turns = NULL;
	}
	return status;
}

/* ---- the staging of others ---- */

static tutti_status map_staging(struct cuda_turns *turns, int r)
{
	const struct cuda_driver *cuda = cuda_driver();
	const struct turn_page *page = turns->views[r];
	CUipcMemHandle handle;

	turns->staging[r] = page->staging;
	if (turns->is_here[r])
		return TUTTI_OK;
	memcpy(handle.reserved, page->handle, sizeof handle.reserved);
	CUDA_TRY(ipc_open_mem_handle, &turns->staging[r], handle,
		 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	turns->is_mapped[r] = true;
	return TUTTI_OK;
}

/* The driver gives back what a process has while that ends. */
static bool ends_now(int pid)
{
	uint64_t deadline_ns = deadline_after_ms(ENDING_MS);

	while (!process_has_ended(pid)) {
		if (clock_now_ns() > deadline_ns)
			return false;
		poll(NULL, 0, 1);
	}
	return true;
}

/* A process that has died has no memory to map: the call then waits for it, until the failure is
 * known. One that lives would wait for this rank until a deadline. */
static tutti_status turns_connect_cut(const struct cuda_channels *c, int r, tutti_status status)
{
	struct cuda_turns *turns = c->turns;
	char before[120];

	if (ends_now((int)turns->pids[r])) {
		turns->is_cut[r] = true;
		log_notice("rank %d cannot map the staging of rank %d, which has ended: %s",
			   c->named, r, last_error());
		last_error_clear(); /* of no call */
		return TUTTI_OK;
	}
	snprintf(before, sizeof before,
		 "the staging of process %u, rank %d of those on this host, cannot be mapped: ",
		 turns->pids[r], r);
	return fail_before(status, before);
}

tutti_status cuda_turns_map(struct cuda_channels *c)
{
	struct cuda_turns *turns = c->turns;

	for (int r = 0; r < c->size && turns->locals && !turns->is_complete; r++) {
		tutti_status status = map_staging(turns, r);
		if (status != TUTTI_OK)
			TRY(turns_connect_cut(c, r, status));
	}
	turns->is_complete = true;
	return TUTTI_OK;
}

void cuda_turns_close(struct cuda_channels *c, bool unmaps)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_turns *turns = c->turns;

	for (int r = 0; turns && unmaps && r < CHANNEL_RANKS; r++)
		if (turns->is_mapped[r])
			cuda->ipc_close_mem_handle(turns->staging[r]);
	if (turns && unmaps)
		cuda_turn_offers_close(c->segment->page.page);
	free(turns);
	c->turns = NULL;
}
