/* Kernels that run and wait, by GPU, and how many of their blocks have not ended. */
#include "tests/cuda/driver/residents.h"

#include "tests/cuda/driver/kernel.h"
#include "tests/cuda/driver/region.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct residents *lists[MAX_GPUS];

static bool is_messages(const struct op *op)
{
	return strcmp(op->kernel->name, "tutti_messages") == 0;
}

static bool waits(const struct op *op)
{
	return strcmp(op->kernel->name, "tutti_packets") == 0 ||
	       strcmp(op->kernel->name, "tutti_lines") == 0 || is_messages(op);
}

/* Then it waits for nobody: a communicator that has failed gives back its room at once. */
static bool is_aborted(const struct residents *r, int gpu)
{
	const struct channel_host *host =
		(const void *)region_reach(gpu, (CUdeviceptr)(uintptr_t)r->host, sizeof *host);

	return !host || atomic_load((_Atomic uint64_t *)(uintptr_t)&host->aborts[0].word) != 0;
}

static unsigned count(int gpu)
{
	unsigned blocks = 0;

	for (const struct residents *r = lists[gpu]; r; r = r->next)
		blocks += is_aborted(r, gpu) ? 0 : atomic_load(&r->blocks);
	return blocks;
}

bool residents_add(struct residents *r, const struct op *op, int gpu)
{
	unsigned places = settings.sms * settings.blocks_per_sm, blocks;

	*r = (struct residents){.op = op};
	if (!waits(op) || ((const struct channel_args *)op->arguments)->size == 1)
		return false;
	r->host = ((const struct channel_args *)op->arguments)->host;
	atomic_init(&r->blocks, op->blocks);
	r->next = lists[gpu];
	lists[gpu] = r;
	if ((blocks = count(gpu)) < places)
		return true;
	fprintf(stderr,
		"fake cuda: GPU %d has %u places, and kernels that wait for others have %u "
		"blocks:\n",
		gpu, places, blocks);
	for (r = lists[gpu]; r; r = r->next)
		fprintf(stderr, "fake cuda: %s, %u blocks\n", r->op->kernel->name, r->op->blocks);
	abort();
}

void residents_remove(struct residents *r, int gpu)
{
	struct residents **at = &lists[gpu];

	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
}

const void *residents_end(const struct residents *r, unsigned index)
{
	const struct channel_host *host = r->host;

	return is_messages(r->op) ? &host->messages_finished[index] : &host->finished[index];
}
