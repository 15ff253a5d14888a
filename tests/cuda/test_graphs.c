/* Every collective in one graph, of ranks that are threads, by kernels that meet and by the engine;
 * a rank that is alone. */
#include "graph_scene.h"

#include "gpu.h"
#include "tests/limit.h"

#include <stdlib.h>

#include "tests/unit.h"

#define ROUNDS 3

static void body(struct rank *r)
{
	gpu_use(r->rank % gpu_count());
	graph_scene_replay(r, 60, ROUNDS);
	graph_scene_replay(r, 20011, ROUNDS);
}

static void run(void)
{
	static const int sizes[] = {1, 2, 3, 5, 8};

	if (!gpu_open())
		skip();
	gpu_use(0);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		with_ranks(gpu_threads(sizes[i], 5), NULL, 1, body);
}

static void test_kernels(void **state)
{
	run();
}

static void test_engine(void **state)
{
	setenv("TUTTI_CUDA", "1", 1);
	run();
	unsetenv("TUTTI_CUDA");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels),
					   cmocka_unit_test(test_engine)};

	test_limit(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
