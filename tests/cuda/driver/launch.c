/* The processors of the devices: a thread stands for the place of one block. So a block that waits
 * for one that has no place waits for ever, as on a GPU. */
#include "tests/cuda/driver/kernel.h"
#include "tests/cuda/driver/op.h"
#include "tests/cuda/driver/region.h"
#include "tests/cuda/driver/turn.h"

#include <setjmp.h>
#include <stdlib.h>

#define KNOWN 16 /* regions that a block remembers */

/* Lives on the stack of the stream's thread, until its blocks have ended. */
struct launch {
	const struct op *op;
	CUcontext context;
	unsigned begun, ended;
	struct launch *next;
};

static struct processors {
	pthread_cond_t launched;
	struct launch *launches; /* whose blocks have not all begun; in order */
	unsigned threads;
} processors[MAX_GPUS] = {[0 ... MAX_GPUS - 1] = {.launched = PTHREAD_COND_INITIALIZER}};

/* The block that this thread runs. */
static _Thread_local struct {
	CUcontext context;
	jmp_buf end;
	uint64_t generation;
	unsigned next;
	struct {
		uintptr_t user;
		size_t bytes;
		char *shadow;
	} known[KNOWN];
} running;

static void run_block(const struct launch *launch, unsigned index)
{
	struct kernel_block block = {.index = index, .count = launch->op->blocks};

	running.context = launch->context;
	running.generation = region_generation();
	for (int i = 0; i < KNOWN; i++)
		running.known[i].bytes = 0;
	if (setjmp(running.end) == 0)
		launch->op->kernel->run_block(launch->op->arguments, &block);
}

static void *processor_thread(void *argument)
{
	struct processors *p = argument;

	pthread_mutex_lock(&driver_lock);
	for (;;) {
		struct launch *launch = p->launches;
		if (launch == NULL) {
			pthread_cond_wait(&p->launched, &driver_lock);
			continue;
		}
		unsigned index = launch->begun++;
		if (launch->begun == launch->op->blocks)
			p->launches = launch->next;
		pthread_mutex_unlock(&driver_lock);
		driver_delay();
		run_block(launch, index);
		pthread_mutex_lock(&driver_lock);
		if (++launch->ended == launch->op->blocks)
			pthread_cond_broadcast(&driver_changed);
	}
	return NULL;
}

/* As many as there are places, and no more than blocks that want one. */
static void start_threads(struct processors *p, unsigned blocks)
{
	unsigned places = settings.sms * settings.blocks_per_sm;
	pthread_attr_t detached;
	pthread_t thread;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	for (; blocks > 0 && p->threads < places; blocks--, p->threads++)
		if (driver_thread(&thread, &detached, processor_thread, p) != 0)
			abort();
	pthread_attr_destroy(&detached);
}

CUresult launch_run(const struct op *op, CUcontext context)
{
	struct launch launch = {.op = op, .context = context};
	struct processors *p = &processors[context->gpu];
	struct launch **end = &p->launches;
	CUresult error;

	turn_take(context->gpu);
	pthread_mutex_lock(&driver_lock);
	while (*end)
		end = &(*end)->next;
	*end = &launch;
	start_threads(p, op->blocks);
	pthread_cond_broadcast(&p->launched);
	while (launch.ended < op->blocks)
		pthread_cond_wait(&driver_changed, &driver_lock);
	error = context->error;
	pthread_mutex_unlock(&driver_lock);
	turn_give(context->gpu);
	return error;
}

/* The address of the memory for the driver. What may not be reached ends the kernel, and the
 * context; an error of the context ends all of its kernels. */
static void *find(const void *pointer, size_t bytes)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
	unsigned next = running.next++ % KNOWN;
	char *shadow = NULL;

	pthread_mutex_lock(&driver_lock);
	if (running.context->error == CUDA_SUCCESS) {
		shadow = region_reach(running.context->gpu, address, bytes);
		if (shadow == NULL)
			context_fail(running.context, CUDA_ERROR_ILLEGAL_ADDRESS);
	}
	if (shadow) {
		const struct region *region = region_find(address);
		running.known[next].user = region->user;
		running.known[next].bytes = region->bytes;
		running.known[next].shadow = region->shadow;
	}
	pthread_mutex_unlock(&driver_lock);
	if (shadow == NULL)
		longjmp(running.end, 1);
	return shadow;
}

void *kernel_reach(const void *device_pointer, size_t bytes, int writes)
{
	uintptr_t address = (uintptr_t)device_pointer;
	uint64_t generation = region_generation();

	(void)writes; /* all memory can be written that can be read */
	if (generation != running.generation) {
		running.generation = generation;
		for (int i = 0; i < KNOWN; i++)
			running.known[i].bytes = 0;
	}
	for (int i = 0; i < KNOWN; i++) {
		size_t offset = address - running.known[i].user;
		if (offset < running.known[i].bytes && bytes <= running.known[i].bytes - offset)
			return running.known[i].shadow + offset;
	}
	return find(device_pointer, bytes);
}
