/* What the tests of the driver share: calls that must succeed, and data to and from a device. */
#ifndef TESTS_CUDA_CHECK_H
#define TESTS_CUDA_CHECK_H

#include "tests/cuda/driver/prototypes.h"
#include "tests/unit.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define ok(call)          assert_int_equal(call, CUDA_SUCCESS)
#define fails(call, with) assert_int_equal(call, with)

/* Loaded before any capture, which forbids that. */
static CUlibrary kernel_library;

static inline CUfunction kernel(const char *name)
{
	CUkernel found;
	CUfunction function;

	ok(cuLibraryGetKernel(&found, kernel_library, name));
	ok(cuKernelGetFunction(&function, found));
	return function;
}

/* The first use of the driver, in this environment; the context of the device is current then. */
static inline CUcontext use_gpu(int gpu)
{
	CUcontext context;

	ok(cuInit(0));
	ok(cuDevicePrimaryCtxRetain(&context, gpu));
	ok(cuCtxSetCurrent(context));
	if (kernel_library == NULL)
		ok(cuLibraryLoadData(&kernel_library, "any", NULL, NULL, 0, NULL, NULL, 0));
	kernel("fake_fill"); /* loads it, which waits for the kernels that run */
	kernel("fake_meet");
	kernel("fake_wait");
	return context;
}

/* Gives what should not happen a chance. */
static inline void let_others_run(void)
{
	for (int i = 0; i < 1000; i++)
		sched_yield();
}

static inline CUdeviceptr device_memory(size_t bytes)
{
	CUdeviceptr p;

	ok(cuMemAlloc_v2(&p, bytes));
	return p;
}

static inline void *pinned_memory(size_t bytes)
{
	void *p;

	ok(cuMemHostAlloc(&p, bytes, CU_MEMHOSTALLOC_PORTABLE));
	memset(p, 0, bytes);
	return p;
}

static inline CUstream new_stream(unsigned flags)
{
	CUstream s;

	ok(cuStreamCreateWithPriority(&s, flags, 0));
	return s;
}

static inline CUevent new_event(void)
{
	CUevent e;

	ok(cuEventCreate(&e, CU_EVENT_DEFAULT));
	return e;
}

static inline CUdeviceptr address(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

/* The word there; what is in the stream has ended then. */
static inline uint32_t read_word(CUdeviceptr from, CUstream stream)
{
	uint32_t word = 0;

	ok(cuMemcpyAsync(address(&word), from, sizeof word, stream));
	return word;
}

static inline void launch(const char *name, unsigned blocks, void *arguments, CUstream stream)
{
	ok(cuLaunchKernel(kernel(name), blocks, 1, 1, 32, 1, 1, 0, stream, &arguments, NULL));
}

#endif
