/* The rates of a GPU's memory and of its way to the host: the parameters of perf/gpu_model.py. */
#include "gpu_rank.h"
#include "limits.h"

#include <stdio.h>

#define MOST  ((size_t)256 << 20) /* bytes of a copy */
#define LEAST ((size_t)1 << 20)
#define TRIES 12
#define TURNS 200 /* of the shortest work */

struct copies {
	struct gpu_rank *gpu;
	void *here, *there, *host;
	size_t bytes;
};

/* The best of all tries, since the first ones wake the clocks. */
static tutti_status limits_gpu_copy(const struct copies *c, void *to, const void *from,
				    const char *figure, double passes)
{
	double best = 0;

	for (int i = 0; i < TRIES; i++) {
		double seconds;

		TRY(gpu_rank_mark(c->gpu, 0));
		TRY(gpu_rank_copy(c->gpu, to, from, c->bytes));
		TRY(gpu_rank_mark(c->gpu, 1));
		TRY(gpu_rank_wait(c->gpu));
		TRY(gpu_rank_seconds(c->gpu, 0, 1, &seconds));
		if (seconds > 0 && passes * (double)c->bytes / seconds * 1e-9 > best)
			best = passes * (double)c->bytes / seconds * 1e-9;
	}
	printf("%-26s %10.2f GB/s, of %zu MiB\n", figure, best, c->bytes >> 20);
	limits_figure(figure, best);
	return TUTTI_OK;
}

/* From the CPU to the GPU and back: the least work, and the wait for it. */
static tutti_status limits_gpu_turn(const struct copies *c)
{
	double best = 1;

	for (int i = 0; i < TURNS; i++) {
		double start = limits_now();

		TRY(gpu_rank_copy(c->gpu, c->there, c->here, 4));
		TRY(gpu_rank_wait(c->gpu));
		if (limits_now() - start < best)
			best = limits_now() - start;
	}
	printf("%-26s %10.2f us\n", "gpu_turn", best * 1e6);
	limits_figure("gpu_turn_us", best * 1e6);
	return TUTTI_OK;
}

static tutti_status limits_gpu_measure(struct copies *c)
{
	tutti_status status = TUTTI_ERR_DEVICE;

	printf("GPU: %s\n", c->gpu->name);
	for (c->bytes = MOST; status != TUTTI_OK && c->bytes >= LEAST; c->bytes /= 4)
		status = gpu_rank_alloc(c->gpu, &c->here, 2 * c->bytes);
	TRY(status);
	c->bytes = c->bytes * 4;
	c->there = (char *)c->here + c->bytes;
	TRY(gpu_rank_alloc_host(c->gpu, &c->host, c->bytes));
	TRY(limits_gpu_copy(c, c->there, c->here, "gpu_copy_gbs", 2));
	TRY(limits_gpu_copy(c, c->host, c->here, "gpu_to_host_gbs", 1));
	TRY(limits_gpu_copy(c, c->here, c->host, "gpu_from_host_gbs", 1));
	return limits_gpu_turn(c);
}

int limits_gpu(struct trial *trial)
{
	struct copies c = {0};
	const char *why;

	(void)trial;
	if (gpu_rank_count(&why) == 0) {
		limits_skip("GPU", why);
		return 0;
	}
	tutti_status status = gpu_rank_open(&c.gpu, 0, NULL);
	if (status == TUTTI_OK)
		status = limits_gpu_measure(&c);
	if (status != TUTTI_OK)
		fprintf(stderr, "limits: %s.\n", tutti_comm_error(NULL));
	gpu_rank_free(c.gpu, c.here);
	gpu_rank_free_host(c.gpu, c.host);
	gpu_rank_close(c.gpu);
	return status != TUTTI_OK;
}
