/* Gradients of the toy, on the host or in a stream. */
#include "tests/train/device/device_rank.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 20 };

_Thread_local struct device_rank device_rank;

/* A sum in pinned memory, which has the gradient meanwhile. */
struct addition {
	size_t n;
	tutti_dtype dtype;
	float what[TOY_MAX], grad[TOY_MAX];
};

/* Small integers, which bf16 holds as the upper half of f32. */
static void add_numbers(tutti_dtype dtype, void *grad, const float *what, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint16_t *low = (uint16_t *)grad + i;
		uint32_t bits = (uint32_t)*low << 16;
		float sum;
		if (dtype == TUTTI_F32) {
			((float *)grad)[i] += what[i];
			continue;
		}
		memcpy(&sum, &bits, sizeof sum);
		sum += what[i];
		memcpy(&bits, &sum, sizeof sum);
		*low = (uint16_t)(bits >> 16);
	}
}

static void add_on_host(void *grad, const float *what, size_t n)
{
	add_numbers(device_rank.grad_dtype, grad, what, n);
}

static void run_addition(void *data)
{
	struct addition *a = data;

	add_numbers(a->dtype, a->grad, a->what, a->n);
}

static bool is_second(int unit)
{
	return device_rank.second && device_rank.is_spread && unit >= TOY_UNITS / 2;
}

CUstream device_rank_stream(int unit)
{
	return is_second(unit) ? device_rank.second : device_rank.stream;
}

/* Without waiting. A tied parameter is on the other GPU. */
static void add_in_stream(void *grad, const float *what, size_t n)
{
	struct device_rank *rank = &device_rank;
	struct addition *a = (struct addition *)(void *)(rank->room + rank->used);
	size_t bytes = n * (rank->grad_dtype == TUTTI_F32 ? 4 : 2);

	rank->used += sizeof *a;
	if (rank->used > ROOM)
		abort();
	*a = (struct addition){.n = n, .dtype = rank->grad_dtype};
	memcpy(a->what, what, n * sizeof *what);
	CUstream stream = device_rank_stream(rank->unit);
	gpu_copy_in(stream, a->grad, grad, bytes);
	GPU(launch_host_func, stream, run_addition, a);
	gpu_copy_in(stream, grad, a->grad, bytes);
}

static void enter(int unit)
{
	if (device_rank.second)
		gpu_use(device_rank_gpu(device_rank.rank, is_second(unit)));
	device_rank.unit = unit;
}

static void *unit_stream(int unit)
{
	return is_second(unit) ? device_rank.second : NULL;
}

static const struct toy_memory of_host = {.add = add_on_host},
			       of_device = {unit_stream, enter, gpu_alloc, add_in_stream};

int device_rank_gpu(int rank, int i)
{
	int count = gpu_count();

	return (rank * (count > 2 ? 2 : 1) + i) % count;
}

static void open_driver(void)
{
	CHECK(gpu_open());
}

/* Units on one GPU may use a parameter on the other: memory of device peer, from the current one.
 */
static void reach(int device, int peer)
{
	CUcontext context;

	gpu_use(peer);
	GPU(ctx_get_current, &context);
	gpu_use(device);
	CUresult error = gpu.ctx_enable_peer_access(context, 0);
	if (error != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
		gpu_must(error, "ctx_enable_peer_access");
}

void device_rank_begin(tutti_comm *comm, tutti_train_config *config, bool on_device)
{
	device_rank_begin_on(comm, config, on_device);
}

void device_rank_begin_on(tutti_comm *comm, tutti_train_config *config, int gpus)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int rank = tutti_rank(comm);

	device_rank = (struct device_rank){.rank = rank, .grad_dtype = config->grad_dtype};
	toy_memory = gpus > 0 ? &of_device : &of_host;
	config->on_device = gpus > 0;
	config->stream = NULL;
	if (gpus == 0)
		return;
	pthread_once(&once, open_driver);
	int first = device_rank_gpu(rank, 0), second = device_rank_gpu(rank, 1);
	if (gpus > 1 && first != second) { /* all units of a GPU have one stream */
		reach(first, second);
		reach(second, first);
		device_rank.second = gpu_stream();
		device_rank.is_spread = true;
	}
	gpu_use(first);
	config->stream = device_rank.stream = gpu_stream();
	device_rank.room = gpu_alloc_pinned(ROOM);
}

static void sync_both(void)
{
	gpu_sync(device_rank.stream);
	if (device_rank.second)
		gpu_sync(device_rank.second);
}

void device_rank_end(void)
{
	if (!device_rank.stream)
		return;
	sync_both();
	gpu_free_pinned(device_rank.room);
	gpu_stream_free(device_rank.stream);
	if (device_rank.second)
		gpu_stream_free(device_rank.second);
}

void device_rank_reuse(void)
{
	if (device_rank.stream)
		sync_both();
	device_rank.used = 0;
}
