/* Would break: a descriptor of device memory that leads to other bytes than those that were asked
 * for, or a refusal that does not say what is missing. With a GPU at hand it is asked of its
 * driver, for memory of every size and place. */
#include "tests/core/memory/proof_kind.h"

#include "core/status.h"
#include "cuda/kind.h"
#include "core/memory/dma_buf.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit.h"

#define PAGE ((size_t)4096)

/* What the tests need of the CUDA driver. */
static struct {
	int (*init)(unsigned flags);
	int (*device)(int *device, int ordinal);
	int (*retain)(void **context, int device);
	int (*set)(void *context);
	int (*alloc)(unsigned long long *ptr, size_t bytes);
	int (*free)(unsigned long long ptr);
	int (*to_device)(unsigned long long to, const void *from, size_t bytes);
} cuda;
static bool is_emulated; /* by tests/cuda/driver */

static bool find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	memcpy(function, &symbol, sizeof symbol);
	return symbol != NULL;
}

/* Whether there is a GPU; its context is this thread's then. */
static bool open_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int device;

	is_emulated = library && dlsym(library, "fake_cuda_connections");
	return library && find(library, "cuInit", &cuda.init) &&
	       find(library, "cuDeviceGet", &cuda.device) &&
	       find(library, "cuDevicePrimaryCtxRetain", &cuda.retain) &&
	       find(library, "cuCtxSetCurrent", &cuda.set) &&
	       find(library, "cuMemAlloc_v2", &cuda.alloc) &&
	       find(library, "cuMemFree_v2", &cuda.free) &&
	       find(library, "cuMemcpyHtoD_v2", &cuda.to_device) && cuda.init(0) == 0 &&
	       cuda.device(&device, 0) == 0 && cuda.retain(&context, device) == 0 &&
	       cuda.set(context) == 0;
}

/* The same bytes through the descriptor. -1: it cannot be mapped by the CPU. */
static int is_same(const struct memory_dma_buf *dma_buf, const uint8_t *bytes, size_t n)
{
	size_t before = dma_buf->offset % PAGE, all = before + n;
	const uint8_t *seen = mmap(NULL, all, PROT_READ, MAP_SHARED, dma_buf->fd,
				   (off_t)(dma_buf->offset - before));

	if (seen == MAP_FAILED)
		return -1;
	int is_equal = memcmp(seen + before, bytes, n) == 0;
	munmap((void *)(uintptr_t)seen, all);
	return is_equal;
}

static void test_own_kind(void **state)
{
	uint8_t bytes[10000], *ptr = proof_alloc(3 * sizeof bytes);
	struct memory_dma_buf dma_buf;

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	for (size_t at = 0; at < 9000; at += 4095) {
		proof_write(ptr + at, bytes, sizeof bytes);
		assert_int_equal(memory_dma_buf(&dma_buf, PROOF_KIND, ptr + at, sizeof bytes),
				 TUTTI_OK);
		assert_int_equal(is_same(&dma_buf, bytes, sizeof bytes), 1);
		close(dma_buf.fd);
	}
	proof_free(ptr);
}

static void test_refusals(void **state)
{
	struct memory_dma_buf dma_buf;
	uint8_t host[64];

	assert_int_equal(memory_dma_buf(&dma_buf, TUTTI_MEMORY_HOST, host, sizeof host),
			 TUTTI_ERR_UNSUPPORTED);
	assert_non_null(strstr(last_error(), "host memory"));
	assert_int_equal(memory_dma_buf(&dma_buf, TUTTI_MEMORY_CUDA, host, sizeof host),
			 TUTTI_ERR_UNSUPPORTED);
	assert_non_null(strstr(last_error(), "GPU"));
	print_message("of CUDA's: %s\n", last_error());
}

static void ask_driver(unsigned long long base, size_t at, const uint8_t *bytes, size_t n)
{
	struct memory_dma_buf dma_buf;
	char name[64], link[64] = "";
	off_t begin;

	assert_int_equal(cuda.to_device(base + at, bytes, n), 0);
	if (memory_dma_buf(&dma_buf, TUTTI_MEMORY_CUDA, (void *)(uintptr_t)(base + at), n) !=
	    TUTTI_OK)
		fail_msg("%zu bytes at %zu: %s", n, at, last_error());
	snprintf(name, sizeof name, "/proc/self/fd/%d", dma_buf.fd);
	assert_true(readlink(name, link, sizeof link - 1) > 0);
	assert_true(is_emulated || strstr(link, "dmabuf"));
	/* The emulated driver's are files, open at their place. */
	if (is_emulated && (begin = lseek(dma_buf.fd, 0, SEEK_CUR)) > 0)
		dma_buf.offset += (size_t)begin;
	int same = is_same(&dma_buf, bytes, n);
	assert_true(same == 1 || (same < 0 && !is_emulated));
	assert_true(lseek(dma_buf.fd, 0, SEEK_END) >= (off_t)(dma_buf.offset + n));
	close(dma_buf.fd);
}

static void test_gpu(void **state)
{
	static const size_t sizes[] = {1, 8, 1000, 4096, 5000, 1 << 20, (2 << 20) + 12};
	static uint8_t bytes[(2 << 20) + 12];
	unsigned long long base, other;

	if (!open_cuda())
		skip_because("there is no GPU whose driver could be asked");
	cuda_kind_use();
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 31 + i / 4096);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		size_t n = sizes[i];
		assert_int_equal(cuda.alloc(&other, 300), 0);
		assert_int_equal(cuda.alloc(&base, n), 0);
		ask_driver(base, 0, bytes, n);
		ask_driver(base, n / 2, bytes, n - n / 2);
		ask_driver(base, n / 3, bytes, 1);
		assert_int_equal(cuda.free(base), 0);
		assert_int_equal(cuda.free(other), 0);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_kind),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_gpu),
	};

	if (proof_kind_use(1) != TUTTI_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
