/* Buffers on a GPU: written and compared on the host, and moved as a whole. */
#include "bench_gpu.h"

static tutti_status area_alloc(const struct bench *b, void **area)
{
	return b->options->zero_copy ? tutti_mem_alloc(area, b->area_bytes, b->comm)
				     : gpu_rank_alloc(b->gpu, area, b->area_bytes);
}

static void area_free(const struct bench *b, void *area)
{
	if (area && b->options->zero_copy)
		tutti_mem_free(area);
	else
		gpu_rank_free(b->gpu, area);
}

tutti_status bench_gpu_open(struct bench *b)
{
	void *send = NULL, *recv = NULL;

	TRY(gpu_rank_open(&b->gpu, tutti_local_rank(b->comm), b->comm));
	TRY(area_alloc(b, &send));
	b->gpu_send = send;
	TRY(area_alloc(b, &recv));
	b->gpu_recv = recv;
	return TUTTI_OK;
}

void bench_gpu_close(struct bench *b)
{
	if (!b->gpu)
		return;
	area_free(b, b->gpu_send);
	area_free(b, b->gpu_recv);
	gpu_rank_close(b->gpu);
	b->gpu = NULL;
}

static void *perf_bench_gpu_place(const struct bench *b, const unsigned char *image)
{
	if (!image)
		return NULL;
	if (image >= b->send && image < b->send + b->area_bytes)
		return b->gpu_send + (image - b->send);
	return b->gpu_recv + (image - b->recv);
}

struct operation bench_gpu_place(const struct bench *b, struct operation o)
{
	o.send = perf_bench_gpu_place(b, o.send);
	o.recv = perf_bench_gpu_place(b, o.recv);
	return o;
}

tutti_status bench_gpu_put(struct bench *b, size_t bytes)
{
	TRY(gpu_rank_copy(b->gpu, b->gpu_send, b->send, bytes));
	TRY(gpu_rank_copy(b->gpu, b->gpu_recv, b->recv, bytes));
	return gpu_rank_wait(b->gpu);
}

tutti_status bench_gpu_get(struct bench *b, size_t bytes)
{
	TRY(gpu_rank_copy(b->gpu, b->send, b->gpu_send, bytes));
	TRY(gpu_rank_copy(b->gpu, b->recv, b->gpu_recv, bytes));
	return gpu_rank_wait(b->gpu);
}

tutti_status bench_gpu_stamps(struct bench *b, int n)
{
	b->stamps.enter[0] = 0;
	for (int i = 0; i < n; i++) {
		double seconds;

		TRY(gpu_rank_seconds(b->gpu, 0, i + 1, &seconds));
		b->stamps.leave[i] = (uint64_t)(seconds * 1e9);
		if (i + 1 < n)
			b->stamps.enter[i + 1] = b->stamps.leave[i];
	}
	return TUTTI_OK;
}

int bench_ranks_per_gpu(const struct bench *b)
{
	const char *why;
	int gpus = gpu_rank_count(&why);

	return (tutti_local_size(b->comm) + gpus - 1) / gpus;
}
