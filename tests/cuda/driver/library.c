/* Kernels as programs load and launch them. Each takes one parameter: a struct. */
#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/kernel.h"
#include "tests/cuda/driver/region.h"
#include "tests/cuda/driver/stream.h"
#include "tests/cuda/kernels/gpt_blocks.h"

#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 1024 /* of a block */
#define SM_THREADS   2048

#define RUN(name, threads)                                                                         \
	static void run_##name(const void *arguments, struct kernel_block *block)                  \
	{                                                                                          \
		name##_block(arguments, block);                                                    \
	}
OWN_KERNELS(RUN)
CUDA_KERNELS(RUN)
GPT_KERNELS(RUN)
#undef RUN

static const struct kernel kernels[] = {
#define LINE(name, threads) {"tutti_" #name, threads, sizeof(struct name##_args), run_##name},
#define OWN(name, threads)  {#name, threads, sizeof(struct name##_args), run_##name},
	CUDA_KERNELS(LINE) GPT_KERNELS(LINE) OWN_KERNELS(OWN)
#undef LINE
#undef OWN
};
#define N_KERNELS (sizeof kernels / sizeof *kernels)

static struct CUfunc_st functions[MAX_GPUS][N_KERNELS];

struct CUlib_st {
	const void *code;
};

/* Any image will do: the kernels are in here. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
			   void **jit_values, unsigned jit_count, CUlibraryOption *options,
			   void **values, unsigned count)
{
	(void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values;
	(void)count;
	TRY(driver_enter());
	if (library == NULL || code == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(capture_forbids());
	*library = must_alloc(sizeof **library);
	(*library)->code = code;
	return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
	TRY(driver_enter());
	if (library == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	free(library);
	return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	TRY(driver_enter());
	if (kernel == NULL || library == NULL || name == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < N_KERNELS; i++)
		if (strcmp(kernels[i].name, name) == 0) {
			*kernel = (CUkernel)(uintptr_t)&kernels[i];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

/* The kernel in the current context. The first time loads it, for which a driver may wait until the
 * context is idle ("lazy loading" in CUDA's programming guide); so this one does. */
CUresult cuKernelGetFunction(CUfunction *function, CUkernel handle)
{
	const struct kernel *kernel = (const struct kernel *)handle;
	CUcontext context;

	TRY(context_working(&context));
	if (function == NULL || kernel == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver_lock);
	CUfunction f = &functions[context->gpu][kernel - kernels];
	if (f->kernel == NULL)
		context_wait(context);
	f->kernel = kernel;
	f->context = context;
	pthread_mutex_unlock(&driver_lock);
	*function = f;
	return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
						     size_t shared_bytes)
{
	CUcontext context;

	(void)shared_bytes;
	TRY(context_working(&context));
	if (blocks == NULL || function == NULL || threads <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	int by_threads = threads <= MOST_THREADS ? SM_THREADS / threads : 0;
	int places = (int)settings.blocks_per_sm;
	*blocks = by_threads < places ? by_threads : places;
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
			unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
			CUstream handle, void **parameters, void **extra)
{
	CUstream stream;
	CUresult error;

	(void)shared_bytes;
	TRY(stream_of(handle, &stream));
	if (function == NULL || function->context != stream->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || extra ||
	    parameters == NULL || block_x != function->kernel->threads)
		return CUDA_ERROR_INVALID_VALUE;
	struct op op = {.kind = OP_KERNEL, .kernel = function->kernel, .blocks = grid_x};
	op.arguments = parameters[0];
	op = op_copy(&op);
	error = stream_enqueue(stream, &op);
	if (error != CUDA_SUCCESS)
		op_finish(&op);
	return error;
}
