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

/* Without waiting. */
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
	gpu_copy_in(rank->stream, a->grad, grad, bytes);
	GPU(launch_host_func, rank->stream, run_addition, a);
	gpu_copy_in(rank->stream, grad, a->grad, bytes);
}

static const struct toy_memory of_host = {NULL, add_on_host},
			       of_device = {gpu_alloc, add_in_stream};

static void open_driver(void)
{
	CHECK(gpu_open());
}

void device_rank_begin(tutti_comm *comm, tutti_train_config *config, bool on_device)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	device_rank = (struct device_rank){.grad_dtype = config->grad_dtype};
	toy_memory = on_device ? &of_device : &of_host;
	config->on_device = on_device;
	config->stream = NULL;
	if (!on_device)
		return;
	pthread_once(&once, open_driver);
	gpu_use(tutti_rank(comm) % gpu_count());
	config->stream = device_rank.stream = gpu_stream();
	device_rank.room = gpu_alloc_pinned(ROOM);
}

void device_rank_end(void)
{
	if (!device_rank.stream)
		return;
	gpu_sync(device_rank.stream);
	gpu_free_pinned(device_rank.room);
	gpu_stream_free(device_rank.stream);
}

void device_rank_reuse(void)
{
	if (device_rank.stream)
		gpu_sync(device_rank.stream);
	device_rank.used = 0;
}
