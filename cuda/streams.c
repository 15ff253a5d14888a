/* Idle streams, a stack for each device. */
#include "cuda/streams.h"

#include "core/log.h"
#include "core/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define KEPT_MOST 128 /* of a device */

static struct {
	CUstream streams[KEPT_MOST];
	unsigned count;
} kept[CUDA_DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUstream streams_pop(int ordinal)
{
	CUstream stream = NULL;

	pthread_mutex_lock(&lock);
	if (kept[ordinal].count)
		stream = kept[ordinal].streams[--kept[ordinal].count];
	pthread_mutex_unlock(&lock);
	return stream;
}

static bool streams_push(int ordinal, CUstream stream)
{
	pthread_mutex_lock(&lock);
	bool is_kept = kept[ordinal].count < KEPT_MOST;
	if (is_kept)
		kept[ordinal].streams[kept[ordinal].count++] = stream;
	pthread_mutex_unlock(&lock);
	return is_kept;
}

tutti_status cuda_stream_take(const struct cuda_device *device, CUstream *stream)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUstream found = streams_pop(device->ordinal);

	if (!found)
		CUDA_TRY(stream_create_with_priority, &found, CU_STREAM_NON_BLOCKING, 0);
	*stream = found;
	return TUTTI_OK;
}

void cuda_stream_give(const struct cuda_device *device, CUstream stream)
{
	const struct cuda_driver *cuda = cuda_driver();

	if (!stream)
		return;
	if (cuda->stream_query(stream) != CUDA_SUCCESS || !streams_push(device->ordinal, stream))
		cuda->stream_destroy(stream);
}

#define QUEUES_DEFAULT 8ul
#define QUEUES_MOST    32ul

void cuda_streams_share(int ordinal)
{
	static atomic_flag is_said = ATOMIC_FLAG_INIT;
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	unsigned long queues = text ? strtoul(text, NULL, 10) : 0;

	if (queues >= QUEUES_MOST || atomic_flag_test_and_set(&is_said))
		return;
	log_info("ranks of this process share CUDA device %d, and their streams %lu queues to it: "
		 "a stream that waits keeps off all that is behind it in its queue. Set "
		 "CUDA_DEVICE_MAX_CONNECTIONS=%lu before CUDA is initialised",
		 ordinal, queues ? queues : QUEUES_DEFAULT, QUEUES_MOST);
}
