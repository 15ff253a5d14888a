/* Gates: words of pinned memory at which streams wait, by the driver's stream memory operations.
 *
 * A word counts up. A stream waits until it has come to a value, so that a word may be used again
 * at once: a stream that is late sees a larger value, and goes on. The words stay to the process's
 * end, because nobody knows when a stream has passed. */
#include "cuda/kind.h"

#include "core/status.h"
#include "cuda/device.h"

#include <pthread.h>
#include <stdlib.h>

#define WORDS_PER_PAGE 1024u

static struct {
	pthread_mutex_t lock;
	_Atomic uint32_t *words; /* the latest page of them ... */
	unsigned used;           /* ... so many of which were taken once */
	_Atomic uint32_t **free; /* a stack with room for all that there are */
	size_t free_count, room;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .used = WORDS_PER_PAGE};

/* Pinned memory is some context's; this one's stays open. */
static tutti_status gates_pin(_Atomic uint32_t **words)
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

static tutti_status add_page(void)
{
	_Atomic uint32_t **room =
		realloc(pool.free, (pool.room + WORDS_PER_PAGE) * sizeof *pool.free);

	if (!room)
		return fail(TUTTI_ERR_MEMORY, "no memory for the gates of streams");
	pool.free = room;
	TRY(gates_pin(&pool.words));
	pool.room += WORDS_PER_PAGE;
	pool.used = 0;
	return TUTTI_OK;
}

static tutti_status take_word(_Atomic uint32_t **word)
{
	if (pool.free_count) {
		*word = pool.free[--pool.free_count];
		return TUTTI_OK;
	}
	if (pool.used == WORDS_PER_PAGE)
		TRY(add_page());
	*word = &pool.words[pool.used++];
	return TUTTI_OK;
}

tutti_status cuda_gate_take(struct memory_gate *gate)
{
	pthread_mutex_lock(&pool.lock);
	tutti_status status = take_word(&gate->word);
	pthread_mutex_unlock(&pool.lock);
	if (status != TUTTI_OK)
		return status;
	gate->kind = memory_kind(TUTTI_MEMORY_CUDA);
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

tutti_status cuda_gate_wait(const struct memory_gate *gate, void *stream, const void *near)
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

void cuda_gate_open(struct memory_gate *gate)
{
	/* Partner: the streams. What the host has seen as done comes before it. */
	atomic_store_explicit(gate->word, gate->open, memory_order_release);
	pthread_mutex_lock(&pool.lock);
	pool.free[pool.free_count++] = gate->word;
	pthread_mutex_unlock(&pool.lock);
	gate->kind = NULL;
}
