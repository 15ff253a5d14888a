/* What would break: a trainer that is destroyed in the middle of a step and waits for gradients
 * that the other ranks do not send, while they wait for it until their deadline. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <pthread.h>
#include <stdbool.h>

#include "tests/unit.h"

struct scene {
	tutti_train_config config;
	pthread_barrier_t is_gone;
};

static tutti_status backward(struct toy *toy, tutti_status status)
{
	for (int u = TOY_UNITS - 1; u >= 0 && status == TUTTI_OK; u--) {
		status = tutti_backward_begin(toy->trainer, u);
		if (status == TUTTI_OK)
			status = tutti_backward_end(toy->trainer, u);
	}
	return status;
}

static tutti_status forward(struct toy *toy)
{
	tutti_status status = tutti_micro_batch(toy->trainer, TUTTI_PASS_LAST, 1, NULL);

	for (int u = 0; u < TOY_UNITS && status == TUTTI_OK; u++) {
		status = tutti_forward_begin(toy->trainer, u);
		if (status == TUTTI_OK)
			status = tutti_forward_end(toy->trainer, u);
	}
	return status;
}

/* Rank 0 starts its gradients and gives up before the others have started theirs. */
static void give_up(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;
	bool leaves = tutti_rank(comm) == 0;

	toy_make(&toy, comm, &scene->config);
	CHECK(forward(&toy) == TUTTI_OK);
	if (leaves) {
		CHECK(tutti_backward_begin(toy.trainer, TOY_UNITS - 1) == TUTTI_OK);
		CHECK(tutti_backward_end(toy.trainer, TOY_UNITS - 1) == TUTTI_OK);
		toy_destroy(&toy);
	}
	pthread_barrier_wait(&scene->is_gone);
	if (leaves)
		return;
	tutti_status status = backward(&toy, TUTTI_OK);
	if (status == TUTTI_OK)
		status = tutti_grads_finish(toy.trainer, NULL);
	CHECK_ERROR(status, TUTTI_ERR_ABORTED, "ank 0");
	toy_destroy(&toy);
}

static void test_given_up(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO2, TUTTI_FSDP};

	for (int s = 0; s < 3; s++)
		for (int n = 2; n <= 3; n++) {
			struct scene scene = {
				.config = {.strategy = strategies[s], .bucket_bytes = 200}};
			pthread_barrier_init(&scene.is_gone, NULL, (unsigned)n);
			assert_int_equal(ranks_as_threads(n, give_up, &scene), 0);
			pthread_barrier_destroy(&scene.is_gone);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_given_up)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
