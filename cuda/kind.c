/* The kind's table: its memory, queues of operations, dma-bufs. And streams: checks, gates,
 * captures. */
#include "cuda/kind.h"

#include "core/log.h"
#include "core/memory/dma_buf.h"
#include "core/status.h"
#include "cuda/blocks.h"
#include "cuda/device.h"
#include "cuda/line.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A queue of the kind: a line for each device that its operations came to, and memory for later
 * use. */

struct cuda_queue {
	struct memory_queue base;
	struct cuda_line *lines[CUDA_DEVICES_MAX]; /* by ordinal; NULL: not needed yet */
	struct cuda_blocks blocks;
};

static struct cuda_queue *cuda_queue_of(struct memory_queue *queue)
{
	return (struct cuda_queue *)queue;
}

static tutti_status cuda_queue_open(struct memory_queue **queue)
{
	struct cuda_queue *q = calloc(1, sizeof *q);

	if (!q)
		return fail(TUTTI_ERR_MEMORY, "no memory for a queue of CUDA operations");
	q->base.kind = memory_kind(TUTTI_MEMORY_CUDA);
	*queue = &q->base;
	return TUTTI_OK;
}

static tutti_status kind_line_on(struct cuda_queue *q, struct cuda_device *device,
				 struct cuda_line **line)
{
	if (!q->lines[device->ordinal])
		TRY(cuda_line_create(&q->lines[device->ordinal], device));
	*line = q->lines[device->ordinal];
	return TUTTI_OK;
}

/* Where it is to run: at its destination, or at the source of a copy to the host. */
static tutti_status kind_device_for(const struct memory_io *io, struct cuda_device **device)
{
	if (io->op == MEMORY_AFTER)
		return cuda_device_of_stream(device, io->dst, io->src[0]);
	if (io->op == MEMORY_COPY && memory_of(io->dst)->id != TUTTI_MEMORY_CUDA)
		return cuda_device_of(device, io->src[0]);
	return cuda_device_of(device, io->dst);
}

static tutti_status kind_queue_post(struct cuda_queue *q, struct memory_io *io)
{
	struct cuda_device *device;
	struct cuda_line *line;

	TRY(kind_device_for(io, &device));
	if (io->op == MEMORY_ALLOC)
		return cuda_blocks_take(&q->blocks, device, false, io->io.bytes, &io->io.buf);
	TRY(kind_line_on(q, device, &line));
	return cuda_line_post(line, io);
}

static void cuda_queue_post(struct memory_queue *queue, struct memory_io *io,
			    struct tutti_done *done)
{
	struct cuda_queue *q = cuda_queue_of(queue);
	tutti_status status = TUTTI_OK;

	if (io->op == MEMORY_FREE)
		cuda_blocks_give(&q->blocks, io->io.buf);
	else if ((status = kind_queue_post(q, io)) != TUTTI_OK)
		snprintf(q->base.error, sizeof q->base.error, "%s", last_error());
	if (status != TUTTI_OK || io->op == MEMORY_FREE || io->op == MEMORY_ALLOC)
		tutti_done_push(done, &io->io, status);
}

static int cuda_queue_progress(struct memory_queue *queue, struct tutti_done *done)
{
	struct cuda_queue *q = cuda_queue_of(queue);
	int count = 0;

	for (int i = 0; i < CUDA_DEVICES_MAX; i++)
		if (q->lines[i])
			count += cuda_line_progress(q->lines[i], done, q->base.error,
						    sizeof q->base.error);
	return count;
}

static void cuda_queue_cancel(struct memory_queue *queue)
{
	struct cuda_queue *q = cuda_queue_of(queue);

	for (int i = 0; i < CUDA_DEVICES_MAX; i++)
		if (q->lines[i])
			cuda_line_cancel(q->lines[i]);
}

static void cuda_queue_close(struct memory_queue *queue)
{
	struct cuda_queue *q = cuda_queue_of(queue);

	for (int i = 0; i < CUDA_DEVICES_MAX; i++)
		cuda_line_destroy(q->lines[i]);
	cuda_blocks_leave(&q->blocks);
	free(q);
}

static void *kind_queue_take(struct memory_queue *queue, bool is_host, size_t bytes,
			     const void *near)
{
	struct cuda_queue *q = cuda_queue_of(queue);
	struct cuda_device *device;
	void *ptr = NULL;
	tutti_status status = cuda_device_of(&device, near);

	if (status == TUTTI_OK)
		status = cuda_blocks_take(&q->blocks, device, is_host, bytes, &ptr);
	return status == TUTTI_OK ? ptr : NULL;
}

/* near is memory of the device that is to copy from and to it. */
static void *cuda_host_alloc(struct memory_queue *queue, size_t bytes, const void *near)
{
	return kind_queue_take(queue, true, bytes, near);
}

static void *cuda_device_alloc(struct memory_queue *queue, size_t bytes, const void *near)
{
	return kind_queue_take(queue, false, bytes, near);
}

static void cuda_device_free(struct memory_queue *queue, void *ptr)
{
	cuda_blocks_give(&cuda_queue_of(queue)->blocks, ptr);
}

static void cuda_host_free(struct memory_queue *queue, void *ptr)
{
	cuda_blocks_give(&cuda_queue_of(queue)->blocks, ptr);
}

tutti_status cuda_stream_join(const struct memory_io *io, void *stream, const void *near)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_device *device;
	struct cuda_visit visit;

	TRY(cuda_device_of_stream(&device, stream, near));
	TRY(cuda_enter(device, &visit));
	CUresult error = cuda->stream_wait_event(stream, io->ticket, 0);
	cuda_leave(&visit);
	return cuda_status(error, "stream_wait_event");
}

/* The driver's dma-bufs: descriptors by which an RDMA adapter reaches a GPU's memory; and when what
 * an adapter has written there may be read. */

/* A blocking copy of the program's, from pageable memory, may return before its bytes are there,
 * and an adapter does not wait in the driver's order. (What this is refused for has no such
 * copies.) */
static void kind_order_copies(const void *ptr)
{
	unsigned yes = 1;

	cuda_driver()->pointer_set_attribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
					     (CUdeviceptr)(uintptr_t)ptr);
}

/* The driver takes whole pages. Memory that it has handed out always has them. */
static tutti_status cuda_dma_buf(struct memory_dma_buf *out, void *ptr, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)ptr / page * page;
	uintptr_t end = ((uintptr_t)ptr + bytes + page - 1) / page * page;
	const char *name = NULL;
	CUresult error = cuda->mem_get_handle_for_address_range(
		&out->fd, from, end - from, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	out->offset = (uintptr_t)ptr - from;
	if (error == CUDA_SUCCESS) {
		kind_order_copies(ptr);
		return TUTTI_OK;
	}
	cuda->get_error_name(error, &name);
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "the GPU's driver gives no dma-buf of %zu bytes at %p "
		    "(cuMemGetHandleForAddressRange: %s, %u); it takes Linux 5.12 and the open "
		    "kernel modules of driver 515 or later",
		    bytes, ptr, name ? name : "an unknown error", error);
}

static tutti_status kind_dma_buf_attribute(int ordinal, CUdevice_attribute which, int *value)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice number;

	CUDA_TRY(device_get, &number, ordinal);
	CUDA_TRY(device_get_attribute, value, which, number);
	return TUTTI_OK;
}

/* Below OWNER the device's own work may see old bytes behind an adapter's completion. */
static bool kind_needs_flush(int writes_ordering)
{
	return writes_ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

tutti_status cuda_dma_buf_offered(int ordinal)
{
	int has_dma_bufs, ordering, flushes;

	TRY(kind_dma_buf_attribute(ordinal, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, &has_dma_bufs));
	TRY(kind_dma_buf_attribute(ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
				   &ordering));
	TRY(kind_dma_buf_attribute(
		ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, &flushes));
	if (!has_dma_bufs)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "the driver gives no dma-bufs of CUDA device %d: it takes Linux 5.12 "
			    "and the open kernel modules of driver 515 or later",
			    ordinal);
	if (kind_needs_flush(ordering) && !(flushes & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST))
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "CUDA device %d neither orders nor flushes what adapters write",
			    ordinal);
	return TUTTI_OK;
}

static tutti_status cuda_dma_buf_check(int ordinal)
{
	struct cuda_device *device;

	if (ordinal < 0)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "no GPU is named or current when the communicator is made");
	TRY(cuda_device_open(&device, ordinal));
	return cuda_dma_buf_offered(ordinal);
}

static bool cuda_extent(struct memory_extent *out, const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr base, pointer = (CUdeviceptr)(uintptr_t)ptr;
	unsigned long long id;

	if (cuda->mem_get_address_range(&base, &out->bytes, pointer) != CUDA_SUCCESS ||
	    cuda->pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer) !=
		    CUDA_SUCCESS)
		return false;
	out->base = (void *)(uintptr_t)base;
	out->id = id;
	return true;
}

static tutti_status cuda_landed(const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_device *device;
	struct cuda_visit visit;

	TRY(cuda_device_of(&device, ptr));
	if (!kind_needs_flush(device->writes_ordering))
		return TUTTI_OK;
	TRY(cuda_enter(device, &visit));
	CUresult error = cuda->flush_gpu_direct_rdma_writes(
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
	cuda_leave(&visit);
	return cuda_status(error, "flush_gpu_direct_rdma_writes");
}

/* Streams that are captured: in a graph a call of the engine is a host function, by which a replay
 * tells the CPU that it has come there, and a wait at a gate.
 *
 * The start of a host function "has the same effect as synchronizing an event recorded in the same
 * stream immediately prior to the function" (cuLaunchHostFunc): so the stream's earlier work is
 * over, and what it wrote is there. */

/* The legacy stream cannot be captured, and must not be asked while others are. A stream that
 * cannot be asked is refused later, when it is used. */
bool cuda_is_captured(void *stream)
{
	uint64_t capture;

	return stream && stream != CU_STREAM_LEGACY &&
	       cuda_capture_of_any(stream, NULL, &capture) == TUTTI_OK && capture != 0;
}

static void kind_free_event(struct cuda_captured *latest)
{
	if (latest->event)
		cuda_driver()->event_destroy(latest->event);
	latest->event = NULL;
}

static tutti_status kind_note_latest(struct cuda_captured *latest, struct cuda_device *device,
				     CUstream stream, uint64_t capture)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUevent event;

	if (latest->device != device) /* an event is recorded in its own context */
		kind_free_event(latest);
	if (!latest->event) {
		CUDA_TRY(event_create, &event, CU_EVENT_DISABLE_TIMING);
		latest->event = event;
		latest->device = device;
	}
	CUDA_TRY(event_record, latest->event, stream);
	latest->capture = capture;
	return TUTTI_OK;
}

static tutti_status kind_put_gate(const struct cuda_gate *gate, CUstream stream,
				  void (*start)(void *), void *arg,
				  const struct cuda_captured *latest, uint64_t capture)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUstreamBatchMemOpParams wait = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
						       .value = gate->open,
						       .flags = CU_STREAM_WAIT_VALUE_GEQ}};

	if (latest->capture == capture)
		CUDA_TRY(stream_wait_event, stream, latest->event, 0);
	CUDA_TRY(launch_host_func, stream, start, arg);
	CUDA_TRY(mem_host_get_device_pointer, &wait.waitValue.address,
		 (void *)(uintptr_t)gate->word, 0);
	CUDA_TRY(stream_batch_mem_op, stream, 1, &wait, 0);
	return TUTTI_OK;
}

tutti_status cuda_gate_capture(const struct cuda_gate *gate, void *stream, void (*start)(void *),
			       void *arg, struct cuda_captured *latest)
{
	struct cuda_device *device;
	struct cuda_visit visit;
	uint64_t capture;

	TRY(cuda_device_of_stream(&device, stream, NULL));
	TRY(cuda_enter(device, &visit));
	tutti_status status = cuda_capture_of(stream, &capture);
	if (status == TUTTI_OK)
		status = kind_put_gate(gate, stream, start, arg, latest, capture);
	if (status == TUTTI_OK)
		status = kind_note_latest(latest, device, stream, capture);
	cuda_leave(&visit);
	return status;
}

void cuda_captured_free(struct cuda_captured *latest)
{
	kind_free_event(latest);
}

/* Gates: words of pinned memory at which streams wait, by the driver's stream memory operations.
 *
 * A word counts up. A stream waits until it has come to a value, so that a word may be used again
 * at once: a stream that is late sees a larger value, and goes on. The words stay to the process's
 * end, because nobody knows when a stream has passed. */

#define WORDS_PER_PAGE 1024u

static struct {
	pthread_mutex_t lock;
	_Atomic uint32_t *words; /* the latest page of them ... */
	unsigned used;           /* ... so many of which were taken once */
	_Atomic uint32_t **free; /* a stack with room for all that there are */
	size_t free_count, room;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .used = WORDS_PER_PAGE};

/* Pinned memory is some context's; this one's stays open. */
static tutti_status kind_pin_words(_Atomic uint32_t **words)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_device *device;
	struct cuda_visit visit;
	void *memory = NULL;

	TRY(cuda_device_open(&device, 0));
	TRY(cuda_enter(device, &visit));
	tutti_status status = cuda_status(
		cuda->mem_host_alloc(&memory, WORDS_PER_PAGE * sizeof **words,
				     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
		"mem_host_alloc");
	cuda_leave(&visit);
	*words = memory;
	for (unsigned i = 0; status == TUTTI_OK && i < WORDS_PER_PAGE; i++)
		atomic_init(&(*words)[i], 0);
	return status;
}

static tutti_status kind_add_page(void)
{
	_Atomic uint32_t **room =
		realloc(pool.free, (pool.room + WORDS_PER_PAGE) * sizeof *pool.free);

	if (!room)
		return fail(TUTTI_ERR_MEMORY, "no memory for the gates of streams");
	pool.free = room;
	TRY(kind_pin_words(&pool.words));
	pool.room += WORDS_PER_PAGE;
	pool.used = 0;
	return TUTTI_OK;
}

static tutti_status kind_take_word(_Atomic uint32_t **word)
{
	if (pool.free_count) {
		*word = pool.free[--pool.free_count];
		return TUTTI_OK;
	}
	if (pool.used == WORDS_PER_PAGE)
		TRY(kind_add_page());
	*word = &pool.words[pool.used++];
	return TUTTI_OK;
}

tutti_status cuda_gate_take(struct cuda_gate *gate)
{
	pthread_mutex_lock(&pool.lock);
	tutti_status status = kind_take_word(&gate->word);
	pthread_mutex_unlock(&pool.lock);
	if (status != TUTTI_OK)
		return status;
	gate->open = atomic_load_explicit(gate->word, memory_order_relaxed) + 1;
	return TUTTI_OK;
}

/* While a thread copies to or from pageable memory in the legacy default stream, the driver lets no
 * other thread in (seen with 580.159): so while it waits for what is in that stream, and in those
 * that are not non-blocking. What fails here fails in cuda_gate_wait, too, which says why. */
bool cuda_stream_blocks_others(void *stream, const void *near)
{
	struct cuda_device *device;
	struct cuda_visit visit;
	unsigned flags;

	if (cuda_stream_is_default(stream))
		return true;
	if (cuda_device_of_stream(&device, stream, near) != TUTTI_OK ||
	    cuda_enter(device, &visit) != TUTTI_OK)
		return false;
	CUresult error = cuda_driver()->stream_get_flags(stream, &flags);
	cuda_leave(&visit);
	return error == CUDA_SUCCESS && !(flags & CU_STREAM_NON_BLOCKING);
}

tutti_status cuda_gate_wait(const struct cuda_gate *gate, void *stream, const void *near)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_device *device;
	struct cuda_visit visit;
	CUdeviceptr word = 0;

	TRY(cuda_device_of_stream(&device, stream, near));
	TRY(cuda_enter(device, &visit));
	tutti_status status = cuda_status(
		cuda->mem_host_get_device_pointer(&word, (void *)(uintptr_t)gate->word, 0),
		"mem_host_get_device_pointer");
	if (status == TUTTI_OK)
		status = cuda_status(cuda->stream_wait_value32(stream, word, gate->open,
							       CU_STREAM_WAIT_VALUE_GEQ),
				     "stream_wait_value32");
	cuda_leave(&visit);
	return status;
}

void cuda_gate_open(struct cuda_gate *gate)
{
	/* Partner: the streams. What the host has seen as done comes before it. */
	atomic_store_explicit(gate->word, gate->open, memory_order_release);
	pthread_mutex_lock(&pool.lock);
	pool.free[pool.free_count++] = gate->word;
	pthread_mutex_unlock(&pool.lock);
	gate->word = NULL;
}

/* Memory that CUDA does not know, and a caller that has not initialised it, give an error. Pinned
 * host memory is the host's. */
static bool cuda_owns(const void *ptr)
{
	unsigned type = 0;
	CUresult error = cuda_driver()->pointer_get_attribute(
		&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)ptr);

	return error == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

tutti_status cuda_stream_check(void *stream, const void *near)
{
	uint64_t capture;

	return cuda_capture_of_any(stream, near, &capture);
}

static const struct memory_kind cuda_kind = {
	.name = "cuda",
	.id = TUTTI_MEMORY_CUDA,
	.owns = cuda_owns,
	.open = cuda_queue_open,
	.post = cuda_queue_post,
	.progress = cuda_queue_progress,
	.cancel = cuda_queue_cancel,
	.close = cuda_queue_close,
	.dma_buf = cuda_dma_buf,
	.dma_buf_check = cuda_dma_buf_check,
	.extent = cuda_extent,
	.landed = cuda_landed,
	.device_alloc = cuda_device_alloc,
	.device_free = cuda_device_free,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
};

static void kind_use(void)
{
	if (!cuda_driver())
		log_debug("no device buffers: %s", cuda_driver_missing());
	else if (memory_register(&cuda_kind) != TUTTI_OK)
		log_notice("no device buffers: %s", last_error());
}

void cuda_kind_use(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, kind_use);
}
