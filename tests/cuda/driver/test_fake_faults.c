/* Errors on purpose come at the call that the environment names, and once. */
#include "tests/cuda/driver/check.h"
#include "tests/cuda/driver/own_kernels.h"
#include "tests/limit.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The number of the first of ten calls that fails, counted from 1, and its error. */
static CUresult first_failure(const char *what, int *at)
{
	CUresult error = CUDA_SUCCESS;
	CUcontext peer;

	use_gpu(0);
	CUdeviceptr p = device_memory(4);
	uint32_t *pinned = pinned_memory(4);
	ok(cuDevicePrimaryCtxRetain(&peer, 1));
	for (*at = 1; *at <= 10 && error == CUDA_SUCCESS; ++*at) {
		CUdeviceptr q;
		struct fake_fill_args fill = {pinned, 1, 1};
		if (strncmp(what, "memory", 6) == 0)
			error = cuMemAlloc_v2(&q, 64);
		else if (strncmp(what, "peer", 4) == 0)
			error = cuCtxEnablePeerAccess(peer, 0);
		else if (strncmp(what, "copy", 4) == 0)
			ok(cuMemcpyAsync(p, address(pinned), 4, NULL));
		else
			launch("fake_fill", 1, &fill, NULL);
		if (error == CUDA_SUCCESS)
			error = cuStreamSynchronize(NULL);
		if (error == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
			error = CUDA_SUCCESS;
	}
	--*at;
	return error;
}

/* In a process of its own, since the driver reads the environment once. */
static int fails_at(const char *faults, CUresult expected)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		char text[16];
		setenv("FAKE_CUDA_FAULTS", faults, 1);
		snprintf(text, sizeof text, "%u", expected);
		execl("/proc/self/exe", "test_fake_faults", strchr(faults, ':') + 1, text, NULL);
		_exit(100);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void the_call_that_was_named(void **state)
{
	/* The first two allocations are the test's own. */
	assert_int_equal(fails_at("0:memory=5", CUDA_ERROR_OUT_OF_MEMORY), 3);
	assert_int_equal(fails_at("0:peer=2", CUDA_ERROR_PEER_ACCESS_UNSUPPORTED), 2);
	assert_int_equal(fails_at("0:copy_illegal=4", CUDA_ERROR_ILLEGAL_ADDRESS), 4);
	assert_int_equal(fails_at("0:copy_ecc=1", CUDA_ERROR_ECC_UNCORRECTABLE), 1);
	assert_int_equal(fails_at("0:launch_ecc=3,copy_ecc=1", CUDA_ERROR_ECC_UNCORRECTABLE), 3);
	assert_int_equal(fails_at("0:launch_illegal=10", CUDA_ERROR_ILLEGAL_ADDRESS), 10);
	assert_int_equal(fails_at("0:launch_illegal=11", CUDA_SUCCESS), 10);
}

/* One of the first n; the same seed chooses the same one. */
static void a_call_that_the_seed_chooses(void **state)
{
	int seen[6] = {0};

	for (int seed = 1; seed <= 5; seed++) {
		char faults[32];
		snprintf(faults, sizeof faults, "%d:launch_ecc=5", seed);
		int at = fails_at(faults, CUDA_ERROR_ECC_UNCORRECTABLE);
		assert_in_range(at, 1, 5);
		assert_int_equal(at, fails_at(faults, CUDA_ERROR_ECC_UNCORRECTABLE));
		seen[at] = 1;
	}
	assert_true(seen[1] + seen[2] + seen[3] + seen[4] + seen[5] >= 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_call_that_was_named),
		cmocka_unit_test(a_call_that_the_seed_chooses),
	};

	test_limit(120);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	if (argc == 3) {
		int at;
		return first_failure(argv[1], &at) == strtoul(argv[2], NULL, 10) ? at : 100;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
