/* Segments: taken from those that are free, or allocated. */
#include "cuda/segment.h"

#include "core/log.h"
#include "core/status.h"
#include "cuda/streams.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct cuda_segment *free_segments, *kept_segments;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the lists */

#define REGION_BYTES (CHANNEL_REGION_WORDS * sizeof(uint64_t))

static bool segment_is_read(const struct cuda_segment *s)
{
	for (int r = 0; r < CHANNEL_RANKS; r++) {
		struct turn_page *page = (struct turn_page *)(uintptr_t)s->readers[r].page;
		if (page && atomic_load((_Atomic uint64_t *)&page->token) == s->readers[r].token &&
		    !atomic_load((_Atomic uint64_t *)&page->is_over))
			return true;
	}
	return false;
}

void cuda_segment_end_turns(struct cuda_segment *s)
{
	if (s->page.page)
		atomic_store((_Atomic uint64_t *)&s->page.page->is_over, 1);
}

static struct cuda_segment *segment_find_free(const struct cuda_device *device, size_t bytes)
{
	struct cuda_segment **at = &free_segments, *segment;

	pthread_mutex_lock(&lock);
	while (*at && ((*at)->device != device || (*at)->bytes != bytes || segment_is_read(*at)))
		at = &(*at)->next;
	if ((segment = *at))
		*at = segment->next;
	pthread_mutex_unlock(&lock);
	return segment;
}

static void segment_put(struct cuda_segment **list, struct cuda_segment *segment)
{
	pthread_mutex_lock(&lock);
	segment->next = *list;
	*list = segment;
	pthread_mutex_unlock(&lock);
}

void cuda_segment_give(struct cuda_segment *segment)
{
	segment_put(&free_segments, segment);
}

void cuda_segment_keep(struct cuda_segment *segment)
{
	segment_put(&kept_segments, segment);
}

/* A GPU without IPC (some virtual ones) still serves ranks of one process. */
static tutti_status segment_allocate(struct cuda_segment *s)
{
	const struct cuda_driver *cuda = cuda_driver();
	void *host;

	CUDA_TRY(mem_alloc, &s->memory, s->bytes + REGION_BYTES);
	CUDA_TRY(mem_host_alloc, &host, sizeof *s->host,
		 CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	CUDA_TRY(mem_host_get_device_pointer, &s->host_address, host, 0);
	s->host = host;
	s->regions = s->memory + s->bytes;
	cuda->ipc_get_mem_handle(&s->handle, s->memory);
	return TUTTI_OK;
}

static tutti_status segment_clear(struct cuda_segment *s)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUstream stream;

	memset(s->host, 0, sizeof *s->host);
	TRY(cuda_stream_take(s->device, &stream));
	tutti_status status =
		cuda_status(cuda->memset_d8_async(s->memory, 0, s->bytes + REGION_BYTES, stream),
			    "memset_d8_async");
	if (status == TUTTI_OK)
		status = cuda_status(cuda->stream_synchronize(stream), "stream_synchronize");
	cuda_stream_give(s->device, stream);
	return status;
}

/* Of another size, since the environment has changed, it stays taken. */
tutti_status cuda_segment_stage(struct cuda_segment *s, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();

	if (s->staging && s->staging_bytes == bytes)
		return TUTTI_OK;
	CUDA_TRY(mem_alloc, &s->staging, bytes);
	CUDA_TRY(ipc_get_mem_handle, &s->staging_handle, s->staging);
	s->staging_bytes = bytes;
	return TUTTI_OK;
}

/* Without a page there are no turns. */
static void segment_make_page(struct cuda_segment *s)
{
	if (s->page.page)
		cuda_turn_page_renew(&s->page);
	else if (cuda_turn_page_make(&s->page) != TUTTI_OK)
		log_info("CUDA device %d: %s", s->device->ordinal, last_error());
}

/* An error leaves memory behind: the device's state is in doubt then. */
static tutti_status segment_make(struct cuda_segment *s, bool is_new)
{
	struct cuda_visit visit;

	TRY(cuda_enter(s->device, &visit));
	tutti_status status = is_new ? segment_allocate(s) : TUTTI_OK;
	if (status == TUTTI_OK)
		status = segment_clear(s);
	cuda_leave(&visit);
	return status;
}

tutti_status cuda_segment_take(struct cuda_segment **out, const struct cuda_device *device,
			       size_t bytes)
{
	struct cuda_segment *s = segment_find_free(device, bytes);
	bool is_new = s == NULL;

	if (is_new && !(s = calloc(1, sizeof *s)))
		return fail(TUTTI_ERR_MEMORY, "no memory for a segment of CUDA device %d",
			    device->ordinal);
	s->device = device;
	s->bytes = bytes;
	memset(s->readers, 0, sizeof s->readers);
	segment_make_page(s);
	tutti_status status = segment_make(s, is_new);
	if (status != TUTTI_OK) {
		free(s);
		return status;
	}
	*out = s;
	return TUTTI_OK;
}
