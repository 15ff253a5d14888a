/* Copies, memsets, waits for words and host functions. */
#include "tests/cuda/driver/op.h"

#include "tests/cuda/driver/kernel.h"
#include "tests/cuda/driver/region.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOKS    64     /* at a word, before a thread waits between two looks */
#define PAUSE_NS 100000 /* nobody says when the CPU writes a word */

int driver_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
		  void *argument)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGABRT);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, attributes, function, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

struct op op_copy(const struct op *op)
{
	struct op copy = *op;

	if (op->kind == OP_KERNEL) {
		copy.arguments = must_alloc(op->kernel->argument_bytes);
		memcpy(copy.arguments, op->arguments, op->kernel->argument_bytes);
	}
	return copy;
}

void op_finish(struct op *op)
{
	free(op->arguments);
	op->arguments = NULL;
}

/* Memory that the driver does not know is the process's own. */
static char *reach_any(int gpu, CUdeviceptr address, size_t bytes)
{
	if (region_find(address) == NULL && !region_is_reserved(address))
		return (char *)(uintptr_t)address;
	return region_reach(gpu, address, bytes);
}

static bool clear(CUdeviceptr address, char *shadow, size_t bytes)
{
	const struct region *region = region_find(address);

	return region && memory_clear(region, shadow, bytes);
}

static CUresult run_copy(const struct op *op, int gpu)
{
	TRY(fault_here(FAULT_COPY));
	pthread_mutex_lock(&driver_lock);
	char *to = reach_any(gpu, op->to, op->bytes);
	char *from = op->kind == OP_COPY ? reach_any(gpu, op->from, op->bytes) : to;
	bool is_clear = to && op->kind == OP_SET && op->value == 0 && clear(op->to, to, op->bytes);
	pthread_mutex_unlock(&driver_lock);
	if (to == NULL || from == NULL)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (op->kind == OP_COPY)
		memmove(to, from, op->bytes);
	else if (!is_clear)
		memset(to, (int)op->value, op->bytes);
	return CUDA_SUCCESS;
}

static bool has_come(uint32_t word, uint32_t value, unsigned flags)
{
	if (flags == CU_STREAM_WAIT_VALUE_AND)
		return (word & value) != 0;
	return flags == CU_STREAM_WAIT_VALUE_EQ ? word == value : (int32_t)(word - value) >= 0;
}

static bool has_come_64(uint64_t word, uint64_t value, unsigned flags)
{
	if (flags == CU_STREAM_WAIT_VALUE_AND)
		return (word & value) != 0;
	return flags == CU_STREAM_WAIT_VALUE_EQ ? word == value : (int64_t)(word - value) >= 0;
}

static bool pause_unless_failed(CUcontext context)
{
	struct timespec until;
	bool has_failed;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += PAUSE_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&driver_lock);
	has_failed = context->error != CUDA_SUCCESS;
	if (!has_failed)
		pthread_cond_timedwait(&driver_failed, &driver_lock, &until);
	pthread_mutex_unlock(&driver_lock);
	return !has_failed;
}

static bool is_awaited(const struct op *op, void *word)
{
	if (op->kind == OP_WAIT_64)
		return !has_come_64(atomic_load((_Atomic uint64_t *)word), op->value64, op->flags);
	return !has_come(atomic_load((_Atomic uint32_t *)word), op->value, op->flags);
}

static CUresult run_word(const struct op *op, CUcontext context)
{
	size_t bytes = op->kind == OP_WAIT_64 ? sizeof(uint64_t) : sizeof(uint32_t);

	pthread_mutex_lock(&driver_lock);
	void *word = region_reach(context->gpu, op->to, bytes);
	pthread_mutex_unlock(&driver_lock);
	if (word == NULL)
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	if (op->kind == OP_WRITE) {
		atomic_store((_Atomic uint32_t *)word, op->value);
		return CUDA_SUCCESS;
	}
	for (int looks = 0; is_awaited(op, word); looks++) {
		if (looks < LOOKS)
			sched_yield();
		else if (!pause_unless_failed(context))
			break;
	}
	return CUDA_SUCCESS;
}

/* For tests: kernels and copies of this process, which cost it time slices of a GPU. */
static atomic_uint works;
__attribute__((visibility("default"))) unsigned fake_cuda_works(void);
unsigned fake_cuda_works(void)
{
	return atomic_load(&works);
}

static bool is_work(enum op_kind kind)
{
	return kind == OP_COPY || kind == OP_SET || kind == OP_KERNEL;
}

CUresult op_run(const struct op *op, CUcontext context)
{
	atomic_fetch_add(&works, is_work(op->kind));
	switch (op->kind) {
	case OP_NOTHING:
		break;
	case OP_COPY:
	case OP_SET:
		return run_copy(op, context->gpu);
	case OP_WAIT:
	case OP_WAIT_64:
	case OP_WRITE:
		return run_word(op, context);
	case OP_HOST:
		driver_in_host_function(true);
		op->function(op->data);
		driver_in_host_function(false);
		break;
	case OP_KERNEL:
		TRY(fault_here(FAULT_LAUNCH));
		return launch_run(op, context);
	}
	return CUDA_SUCCESS;
}
