/* The processors of the devices: a thread stands for the place of one block. So a block that waits
 * for one that has no place waits for ever, as on a GPU. */
#include "tests/cuda/driver/kernel.h"
#include "tests/cuda/driver/op.h"
#include "tests/cuda/driver/piece.h"
#include "tests/cuda/driver/region.h"
#include "tests/cuda/driver/residents.h"
#include "tests/cuda/driver/turn.h"

#include "core/memory/small_float.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#define KNOWN 16 /* regions that a block remembers */

/* Lives on the stack of the stream's thread, until its blocks have ended. */
struct launch {
	const struct op *op;
	CUcontext context;
	unsigned begun, ended;
	struct residents *residents; /* NULL: its blocks wait for no other kernel's */
	pthread_cond_t has_ended;
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
	struct residents *residents; /* while this block may wait, ... */
	uintptr_t said;              /* ... until it says there that it has ended */
	struct {
		uintptr_t user;
		size_t bytes;
		char *shadow;
	} known[KNOWN];
} running;

static void end_waiting(void)
{
	if (running.residents)
		atomic_fetch_sub(&running.residents->blocks, 1);
	running.residents = NULL;
}

static void run_block(const struct launch *launch, unsigned index)
{
	struct kernel_block block = {.index = index, .count = launch->op->blocks};

	running.residents = launch->residents;
	running.said = launch->residents ? (uintptr_t)residents_end(launch->residents, index) : 0;
	running.context = launch->context;
	running.generation = region_generation();
	for (int i = 0; i < KNOWN; i++)
		running.known[i].bytes = 0;
	if (setjmp(running.end) == 0)
		launch->op->kernel->run_block(launch->op->arguments, &block);
	end_waiting();
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
			pthread_cond_signal(&launch->has_ended);
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
	struct launch launch = {
		.op = op, .context = context, .has_ended = PTHREAD_COND_INITIALIZER};
	struct processors *p = &processors[context->gpu];
	struct launch **end = &p->launches;
	struct residents residents;
	CUresult error;

	turn_take(context->gpu);
	pthread_mutex_lock(&driver_lock);
	if (residents_add(&residents, op, context->gpu))
		launch.residents = &residents;
	while (*end)
		end = &(*end)->next;
	*end = &launch;
	start_threads(p, op->blocks);
	/* To wake all of the 128 or more places for each kernel takes longer than the kernel. */
	for (unsigned block = 0; block < op->blocks; block++)
		pthread_cond_signal(&p->launched);
	while (launch.ended < op->blocks)
		pthread_cond_wait(&launch.has_ended, &driver_lock);
	if (launch.residents)
		residents_remove(&residents, context->gpu);
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
	if (address == running.said)
		end_waiting();
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

/* ---- the switch ---- */

static atomic_uint sums; /* of multicast addresses */

/* For tests: how many vectors were summed by multicast. */
__attribute__((visibility("default"))) unsigned fake_cuda_sums(void);
unsigned fake_cuda_sums(void)
{
	return atomic_load(&sums);
}

/* Where the members' memory is; returns how many there are. What is no address of a multicast
 * object that this device may use, all of whose devices have bound memory, ends the kernel. */
static int find_members(const void *pointer, char *members[MAX_GPUS])
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
	int gpu = running.context->gpu, n = 0;
	bool is_well = false;

	pthread_mutex_lock(&driver_lock);
	const struct region *region = region_find(address);
	if (running.context->error == CUDA_SUCCESS && region && region->kind == REGION_MULTICAST &&
	    region->access >> gpu & 1U && address % 16 == 0) {
		const struct piece *piece = region->owner;
		unsigned added = atomic_load(&piece->team->added);
		is_well = true;
		for (int i = 0; i < MAX_GPUS; i++)
			if (added >> i & 1U)
				is_well &= (members[n++] = team_reach(
						    piece, i, address - region->user)) != NULL;
	}
	if (!is_well)
		context_fail(running.context, CUDA_ERROR_ILLEGAL_ADDRESS);
	pthread_mutex_unlock(&driver_lock);
	if (!is_well)
		longjmp(running.end, 1);
	return n;
}

static float widen(const char *element, int bytes, enum multicast_type type)
{
	uint32_t bits = 0;

	memcpy(&bits, element, (size_t)bytes);
	return type == MULTICAST_F32   ? f32_of_bits(bits)
	       : type == MULTICAST_F16 ? small_widen(bits, SMALL_F16)
				       : bf16_widen((uint16_t)bits);
}

static uint32_t narrow(float x, enum multicast_type type)
{
	if (x != x)
		x = f32_of_bits(0x7fc00000);
	return type == MULTICAST_F32   ? bits_of_f32(x)
	       : type == MULTICAST_F16 ? small_narrow(x, SMALL_F16)
				       : bf16_narrow(x);
}

void kernel_multicast_sum(const void *pointer, enum multicast_type type, void *out)
{
	char *members[MAX_GPUS];
	float values[MAX_GPUS];
	int n = find_members(pointer, members), bytes = type == MULTICAST_F32 ? 4 : 2;

	atomic_fetch_add(&sums, 1);
	for (int e = 0; e < 16; e += bytes) {
		for (int i = 0; i < n; i++)
			values[i] = widen(members[i] + e, bytes, type);
		for (int far = 1; far < n; far *= 2)
			for (int i = 0; i + far < n; i += 2 * far)
				values[i] += values[i + far];
		uint32_t bits = narrow(values[0], type);
		memcpy((char *)out + e, &bits, (size_t)bytes);
	}
}

void kernel_multicast_store(void *pointer, const void *vector)
{
	char *members[MAX_GPUS];
	int n = find_members(pointer, members);

	for (int i = 0; i < n; i++)
		memcpy(members[i], vector, 16);
}
