/* The layers compute on a GPU: the driver, which is loaded at run time, the kernels, memory,
 * copies. */
#include "examples/gpt_cuda/stream.h"

#include "cuda/kernels/kernels_image.h"
#include "examples/gpt/place.h"
#include "examples/gpt_cuda/matmul.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_PER_SM 8 /* of GPT_THREADS threads */
#define UPLOADS       8 /* on their way at once: those of four micro-batches */

const char place_program[] = "gpt_cuda";
const char place_usage[] =
	"  --matmul M            cublas, or plain: kernels of its own (cublas where it is found)\n"
	"Each rank computes on GPU number LOCAL_RANK, modulo their number.\n";

/* Pinned memory that grows. */
struct pinned {
	void *host;
	size_t room;
};

/* Until the process ends. */
static struct gpu {
	struct {
#define MEMBER(name, symbol, parameters) CUresult(*name) parameters;
		CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
	} cuda;
	int ordinal;
	CUstream stream;
	CUlibrary library;
	CUfunction kernels[GPT_KERNEL_COUNT];
	unsigned most_blocks;
	struct upload {
		struct pinned from;
		CUevent arrived;
	} uploads[UPLOADS];
	unsigned next_upload;
	struct pinned view;
} gpu;

static const char *const names[] = {
#define NAME(name, threads) "tutti_" #name,
	GPT_KERNELS(NAME)
#undef NAME
};

static const char *gpu_symbol_of(const char *name)
{
#define SYMBOL(function, symbol, parameters)                                                       \
	if (strcmp(name, #function) == 0)                                                          \
		return #symbol;
	CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
	return name;
}

static void gpu_must(CUresult error, const char *function)
{
	const char *name = NULL;

	if (error == CUDA_SUCCESS)
		return;
	gpu.cuda.get_error_name(error, &name);
	fprintf(stderr, "gpt_cuda: %s failed with %s (%u) on GPU %d\n", gpu_symbol_of(function),
		name ? name : "an unknown error", error, gpu.ordinal);
	exit(1);
}

#define GPU(function, ...) gpu_must(gpu.cuda.function(__VA_ARGS__), #function)

static int gpu_refuse(const char *why)
{
	fprintf(stderr, "gpt_cuda: no GPU: %s\n", why);
	return -1;
}

static int load_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;

	if (!library)
		return gpu_refuse(dlerror());
#define FIND(name, function, parameters)                                                           \
	symbol = dlsym(library, #function);                                                        \
	memcpy(&gpu.cuda.name, &symbol, sizeof symbol);                                            \
	if (!symbol)                                                                               \
		return gpu_refuse("libcuda.so.1 has no " #function ": the driver is too old");
	CUDA_FUNCTIONS(FIND)
#undef FIND
	return 0;
}

/* The number of this rank on its machine, as launchers say it before tutti_init. */
static int local_rank(void)
{
	static const char *const variables[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
						"MPI_LOCALRANKID", "SLURM_LOCALID"};

	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		if (getenv(variables[i]))
			return atoi(getenv(variables[i]));
	return 0;
}

static int gpu_load_kernels(void)
{
	CUkernel kernel;
	CUresult error = gpu.cuda.library_load_data(&gpu.library, cuda_kernels_image, NULL, NULL, 0,
						    NULL, NULL, 0);

	if (error != CUDA_SUCCESS && !cuda_kernels_are_built) {
		fprintf(stderr, "gpt_cuda: this build has no CUDA kernels: there was no nvcc\n");
		return -1;
	}
	gpu_must(error, "library_load_data");
	for (int i = 0; i < GPT_KERNEL_COUNT; i++) {
		GPU(library_get_kernel, &kernel, gpu.library, names[i]);
		GPU(kernel_get_function, &gpu.kernels[i], kernel);
	}
	return 0;
}

/* The GPU is current before tutti_init, so that collectives of ranks with GPUs of their own run
 * there. */
int place_open(struct options *options)
{
	int devices = 0, multiprocessors;
	CUcontext context;
	CUdevice device;

	if (options->tp > 1 || options->cp > 1 || options->pp > 1 || options->experts)
		return gpu_refuse(
			"--tp, --cp, --pp and --experts are for the CPU: see examples/gpt");
	if (load_driver() != 0)
		return -1;
	if (gpu.cuda.init(0) != CUDA_SUCCESS ||
	    gpu.cuda.device_get_count(&devices) != CUDA_SUCCESS || devices == 0)
		return gpu_refuse("the driver has no device");
	gpu.ordinal = local_rank() % devices;
	GPU(device_get, &device, gpu.ordinal);
	GPU(device_get_attribute, &multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
	    device);
	GPU(primary_ctx_retain, &context, device);
	GPU(ctx_push_current, context);
	GPU(stream_create_with_priority, &gpu.stream, CU_STREAM_NON_BLOCKING, 0);
	gpu.most_blocks = (unsigned)multiprocessors * BLOCKS_PER_SM;
	for (int i = 0; i < UPLOADS; i++)
		GPU(event_create, &gpu.uploads[i].arrived, CU_EVENT_DISABLE_TIMING);
	options->flags.config.on_device = 1;
	options->flags.config.stream = gpu.stream;
	return gpu_load_kernels() != 0 ? -1 : matmul_open(options->matmul);
}

int place_device(void)
{
	return gpu.ordinal + 1;
}

CUstream stream_handle(void)
{
	return gpu.stream;
}

void stream_launch(enum gpt_kernel kernel, uint64_t blocks, const void *args)
{
	unsigned grid = blocks < gpu.most_blocks ? (unsigned)blocks : gpu.most_blocks;
	void *parameters[] = {(void *)(uintptr_t)args};

	if (grid > 0)
		GPU(launch_kernel, gpu.kernels[kernel], grid, 1, 1, GPT_THREADS, 1, 1, 0,
		    gpu.stream, parameters, NULL);
}

static CUdeviceptr gpu_address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

void stream_clear(void *to, size_t bytes)
{
	if (bytes > 0)
		GPU(memset_d8_async, gpu_address(to), 0, bytes, gpu.stream);
}

void *place_alloc(size_t bytes)
{
	CUdeviceptr pointer;

	if (gpu.cuda.mem_alloc(&pointer, bytes) != CUDA_SUCCESS)
		return NULL;
	stream_clear((void *)(uintptr_t)pointer, bytes);
	return (void *)(uintptr_t)pointer;
}

void place_free(void *ptr)
{
	if (!ptr)
		return;
	GPU(stream_synchronize, gpu.stream);
	GPU(mem_free, gpu_address(ptr));
}

static void *gpu_make_room(struct pinned *memory, size_t bytes)
{
	if (memory->room < bytes) {
		if (memory->host)
			GPU(mem_free_host, memory->host);
		GPU(mem_host_alloc, &memory->host, bytes, 0);
		memory->room = bytes;
	}
	return memory->host;
}

/* Waits where the CPU is UPLOADS ahead of the GPU. */
void place_upload(void *to, const void *host, size_t bytes)
{
	struct upload *upload = &gpu.uploads[gpu.next_upload++ % UPLOADS];

	if (bytes == 0)
		return;
	GPU(event_synchronize, upload->arrived);
	memcpy(gpu_make_room(&upload->from, bytes), host, bytes);
	GPU(memcpy_async, gpu_address(to), gpu_address(upload->from.host), bytes, gpu.stream);
	GPU(event_record, upload->arrived, gpu.stream);
}

const void *place_view(const void *from, size_t bytes)
{
	void *host = gpu_make_room(&gpu.view, bytes);

	if (bytes > 0)
		GPU(memcpy_async, gpu_address(host), gpu_address(from), bytes, gpu.stream);
	GPU(stream_synchronize, gpu.stream);
	return host;
}
