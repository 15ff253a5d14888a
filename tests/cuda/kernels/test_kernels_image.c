/* Breaks when the library does not carry the kernels that were compiled: the image is no fatbin, or
 * not all of the file; or, without nvcc, no text that says so. */
#include "cuda/kernels/kernels_image.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* A fatbin's header: a magic number, a version, its own size, and the size of what follows. */
static void a_whole_fatbin(void **state)
{
	const uint32_t magic = 0xba55ed50;
	uint16_t header_bytes;
	uint64_t bytes;

	if (!cuda_kernels_are_built)
		skip_because("this build has no kernels for GPUs: there was no nvcc, or "
			     "TUTTI_CUDA is OFF");
	assert_memory_equal(cuda_kernels_image, &magic, sizeof magic);
	memcpy(&header_bytes, cuda_kernels_image + 6, sizeof header_bytes);
	memcpy(&bytes, cuda_kernels_image + 8, sizeof bytes);
	assert_int_equal(header_bytes + bytes, cuda_kernels_image_bytes);
	assert_int_equal((uintptr_t)cuda_kernels_image % 16, 0);
}

static void a_text_without_nvcc(void **state)
{
	if (!cuda_kernels_are_built)
		assert_string_equal(cuda_kernels_image, "built without nvcc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_fatbin),
		cmocka_unit_test(a_text_without_nvcc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
