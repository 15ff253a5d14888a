/* Memory of a GPU, and copies in the order of a stream. */
#include "train/device/train_device_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static tutti_status train_device_allocate(struct train_device *d)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr words;

	CUDA_TRY(event_create, &d->here, CU_EVENT_DISABLE_TIMING);
	CUDA_TRY(mem_host_alloc, &d->staging, DEVICE_VIEW_BYTES, CU_MEMHOSTALLOC_PORTABLE);
	CUDA_TRY(mem_alloc, &words, DEVICE_SUMS * TRAIN_SQUARES_WORDS * sizeof *d->words);
	d->words = (uint64_t *)(uintptr_t)words;
	return TUTTI_OK;
}

/* Each thread has a default stream of its own, and hooks may be called by several. */
static tutti_status check_stream(void *stream)
{
	if (!cuda_driver())
		return fail(TUTTI_ERR_UNSUPPORTED, "tutti_train_config: on_device needs CUDA: %s.",
			    cuda_driver_missing());
	if (stream == CU_STREAM_PER_THREAD)
		return fail_invalid("tutti_train_config: stream is the default stream of a "
				    "thread: pass one of your own.");
	return TUTTI_OK;
}

tutti_status train_device_open(struct train_device **device, void *stream)
{
	struct cuda_device *cuda;
	struct cuda_visit visit;

	TRY(check_stream(stream));
	TRY(cuda_device_of_stream(&cuda, stream, NULL));
	struct train_device *d = calloc(1, sizeof *d);
	if (!d)
		return fail_no_memory("a trainer's device");
	*d = (struct train_device){.cuda = cuda, .stream = stream};
	tutti_status status = cuda_enter(cuda, &visit);
	if (status == TUTTI_OK) {
		status = train_device_allocate(d);
		cuda_leave(&visit);
	}
	if (status == TUTTI_OK)
		*device = d;
	else
		train_device_close(d);
	return status;
}

void train_device_close(struct train_device *d)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;

	if (d && cuda_enter(d->cuda, &visit) == TUTTI_OK) {
		if (d->words) {
			cuda->stream_synchronize(d->stream);
			cuda->mem_free(train_device_address(d->words));
		}
		if (d->staging)
			cuda->mem_free_host(d->staging);
		if (d->here)
			cuda->event_destroy(d->here);
		tiles_free(&d->tiles);
		cuda_leave(&visit);
	}
	free(d);
}

tutti_status train_device_failure(const struct train_device *d)
{
	return kept_error_return(&d->failed);
}

int train_device_ordinal(const struct train_device *d)
{
	return d->cuda->ordinal;
}

int train_device_of(const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr address = train_device_address(ptr);
	unsigned type = 0;
	int ordinal;

	if (!cuda ||
	    cuda->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
		    CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE ||
	    cuda->pointer_get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) !=
		    CUDA_SUCCESS)
		return -1;
	return ordinal;
}

tutti_status train_device_alloc(struct train_device *d, void **ptr, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;
	CUdeviceptr pointer = 0;

	TRY(cuda_enter(d->cuda, &visit));
	CUresult error = cuda->mem_alloc(&pointer, bytes);
	cuda_leave(&visit);
	*ptr = (void *)(uintptr_t)pointer;
	if (error == CUDA_ERROR_OUT_OF_MEMORY)
		return fail(TUTTI_ERR_MEMORY, "CUDA device %d has no %zu bytes left.",
			    d->cuda->ordinal, bytes);
	return cuda_status(error, "mem_alloc");
}

void train_device_free(struct train_device *d, void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;

	if (!ptr || cuda_enter(d->cuda, &visit) != TUTTI_OK)
		return; /* the context is gone, and the memory with it */
	cuda->stream_synchronize(d->stream);
	cuda->mem_free(train_device_address(ptr));
	cuda_leave(&visit);
}

static tutti_status device_train_device_fill(struct train_device *d, void *to, unsigned char value,
					     size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(memset_d8_async, train_device_address(to), value, bytes, d->stream);
	return TUTTI_OK;
}

static tutti_status device_train_device_copy(struct train_device *d, void *to, const void *from,
					     size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(memcpy_async, train_device_address(to), train_device_address(from), bytes,
		 d->stream);
	return TUTTI_OK;
}

static tutti_status device_train_device_wait(struct train_device *d)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(stream_synchronize, d->stream);
	return TUTTI_OK;
}

bool train_device_enter(struct train_device *d, struct cuda_visit *visit)
{
	if (d->failed.status == TUTTI_OK)
		kept_error_note(&d->failed, cuda_enter(d->cuda, visit));
	return d->failed.status == TUTTI_OK;
}

void train_device_leave(struct train_device *d, struct cuda_visit *visit, tutti_status status)
{
	kept_error_note(&d->failed, status);
	cuda_leave(visit);
}

void train_device_wait(struct train_device *d)
{
	struct cuda_visit visit;

	if (train_device_enter(d, &visit))
		train_device_leave(d, &visit, device_train_device_wait(d));
}

static tutti_status train_device_record(struct train_device *d)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(event_record, d->here, d->stream);
	return TUTTI_OK;
}

static tutti_status wait_for(struct train_device *d, CUevent event)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(stream_wait_event, d->stream, event, 0);
	return TUTTI_OK;
}

void train_device_follow(struct train_device *d, struct train_device *other)
{
	struct cuda_visit visit;

	if (train_device_enter(other, &visit))
		train_device_leave(other, &visit, train_device_record(other));
	if (train_device_enter(d, &visit))
		train_device_leave(d, &visit, wait_for(d, other->here));
}

void train_device_fill(struct train_device *d, void *to, unsigned char value, size_t bytes)
{
	struct cuda_visit visit;

	if (bytes && train_device_enter(d, &visit))
		train_device_leave(d, &visit, device_train_device_fill(d, to, value, bytes));
}

void train_device_copy(struct train_device *d, void *to, const void *from, size_t bytes)
{
	struct cuda_visit visit;

	if (bytes && train_device_enter(d, &visit))
		train_device_leave(d, &visit, device_train_device_copy(d, to, from, bytes));
}

static tutti_status read_staged(struct train_device *d, const void *from, size_t bytes)
{
	TRY(device_train_device_copy(d, d->staging, from, bytes));
	return device_train_device_wait(d);
}

const void *train_device_view(struct train_device *d, const void *from, size_t bytes)
{
	struct cuda_visit visit;

	assert(bytes <= DEVICE_VIEW_BYTES);
	if (bytes && train_device_enter(d, &visit))
		train_device_leave(d, &visit, read_staged(d, from, bytes));
	if (d->failed.status != TUTTI_OK)
		memset(d->staging, 0, bytes);
	return d->staging;
}

static tutti_status write_part(struct train_device *d, char *to, const char *host, size_t bytes)
{
	memcpy(d->staging, host, bytes);
	TRY(device_train_device_copy(d, to, d->staging, bytes));
	return device_train_device_wait(d);
}

void train_device_read(struct train_device *d, void *host, const void *from, size_t bytes)
{
	for (size_t at = 0, n; at < bytes; at += n) {
		n = smaller(DEVICE_VIEW_BYTES, bytes - at);
		memcpy((char *)host + at, train_device_view(d, (const char *)from + at, n), n);
	}
}

void train_device_write(struct train_device *d, void *to, const void *host, size_t bytes)
{
	struct cuda_visit visit;

	for (size_t at = 0, n; at < bytes; at += n) {
		n = smaller(DEVICE_VIEW_BYTES, bytes - at);
		if (train_device_enter(d, &visit))
			train_device_leave(
				d, &visit,
				write_part(d, (char *)to + at, (const char *)host + at, n));
	}
}
