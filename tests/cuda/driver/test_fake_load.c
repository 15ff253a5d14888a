/* The driver as the library finds it: by name, with every function, and with the settings of
 * tutti_fake_cuda(). */
#include "cuda/api.h"

#include <dlfcn.h>

#include "tests/unit.h"

static void every_function_is_there(void **state)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CUresult (*init)(unsigned);
	CUresult (*get_count)(int *);
	int count;

	assert_non_null(driver);
#define IS_THERE(name, symbol, parameters) assert_non_null(dlsym(driver, #symbol));
	CUDA_FUNCTIONS(IS_THERE)
	CUDA_PROGRAM_FUNCTIONS(IS_THERE)
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&get_count = dlsym(driver, "cuDeviceGetCount");
	assert_int_equal(init(0), CUDA_SUCCESS);
	assert_int_equal(get_count(&count), CUDA_SUCCESS);
	assert_int_equal(count, 4);
	dlclose(driver);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_function_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
