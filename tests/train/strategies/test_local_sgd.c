/* What would break: local SGD whose ranks keep optimizer state that was to be averaged, or average
 * state of their own; 16-bit parameters that do not match their averaged master copy; and a rank
 * that is blamed for differences between averages.
 *
 * Every rank's training is computed again in double precision, for all ranks at once. */
#include "tests/train/design.h"
#include "tests/train/plain_update.h"
#include "tests/train/ranks.h"

#include "train/state/trainer_state.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { COUNT = 37, RANKS = 4, EVERY = 2, STEPS = 5 }; /* ends one step after the second average */

static const tutti_optimizer adamw = {.kind = TUTTI_ADAMW,
				      .lr = 0.05f,
				      .beta1 = 0.75f,
				      .beta2 = 0.5f,
				      .eps = 1e-8f,
				      .weight_decay = 0.125f};
static const tutti_optimizer momentum = {.kind = TUTTI_SGD, .lr = 0.25f, .momentum = 0.5f};

struct run {
	tutti_optimizer optimizer;
	tutti_dtype dtype;
	int with_state;
	uint64_t sent_bytes; /* by rank 0, of values */
};

/* What a rank's one item of a step adds. */
static float gradient(int rank, int step, size_t i)
{
	return (float)((rank * 13 + step * 7 + (int)i * 3) % 11) - 5;
}

static void average_plainly(struct plain ranks[RANKS], int size, bool with_state)
{
	struct plain mean = {0};

	for (int r = 0; r < size; r++) {
		mean.value += ranks[r].value / size;
		mean.m += ranks[r].m / size;
		mean.v += ranks[r].v / size;
	}
	for (int r = 0; r < size; r++) {
		ranks[r].value = mean.value;
		if (with_state)
			ranks[r] = mean;
	}
}

static struct plain expected(const struct run *run, int rank, int size, size_t i, int steps)
{
	struct plain ranks[RANKS];

	for (int r = 0; r < size; r++)
		ranks[r] = (struct plain){.value = 1};
	for (int step = 0; step < steps; step++) {
		for (int r = 0; r < size; r++)
			plain_update(&ranks[r], (double)gradient(r, step, i), &run->optimizer,
				     step);
		if ((step + 1) % EVERY == 0)
			average_plainly(ranks, size, run->with_state);
	}
	return ranks[rank];
}

static void check_near(double got, double wanted)
{
	CHECK(fabs(got - wanted) <= 1e-5 * (1 + fabs(wanted)));
}

static void check_rank(tutti_trainer *t, const struct run *run, int steps)
{
	const struct piece *piece = &t->pieces[0];
	bool is_adamw = run->optimizer.kind == TUTTI_ADAMW;

	CHECK(t->piece_count == 1 && piece->count == COUNT && piece->m);
	CHECK((piece->v != NULL) == is_adamw);
	for (size_t i = 0; i < COUNT; i++) {
		struct plain wanted = expected(run, t->rank, t->size, i, steps);
		check_near((double)piece->value[i], wanted.value);
		check_near((double)piece->m[i], wanted.m);
		if (is_adamw)
			check_near((double)piece->v[i], wanted.v);
	}
}

/* What forward sees is the value, rounded to the nearest of 16 bits. */
static void check_seen(tutti_trainer *t, const struct run *run)
{
	const void *data = tutti_param_data(t, 0);

	for (size_t i = 0; i < COUNT && run->dtype == TUTTI_BF16; i++) {
		uint32_t bits;
		memcpy(&bits, &t->pieces[0].value[i], sizeof bits);
		bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
		CHECK(((const uint16_t *)data)[i] == bits);
	}
	CHECK(run->dtype != TUTTI_F32 || data == t->pieces[0].value);
}

static void one_step(tutti_trainer *t, const struct run *run, int step)
{
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(tutti_forward_begin(t, 0) == TUTTI_OK);
	check_seen(t, run);
	CHECK(tutti_forward_end(t, 0) == TUTTI_OK);
	CHECK(tutti_backward_begin(t, 0) == TUTTI_OK);
	for (size_t i = 0; i < COUNT; i++)
		((float *)tutti_param_grad(t, 0))[i] += gradient(t->rank, step, i);
	CHECK(tutti_backward_end(t, 0) == TUTTI_OK);
	CHECK(tutti_step(t, &run->optimizer, 1, NULL) == TUTTI_OK);
}

/* Between averages ranks differ, which is no fault. */
static void check_compared(tutti_trainer *t, int steps)
{
	uint64_t before = collectives(t);
	char message[160];

	if (t->size == 1 || steps % EVERY == 0) {
		CHECK(tutti_check_replicas(t) == TUTTI_OK);
		return;
	}
	snprintf(message, sizeof message,
		 "tutti_check_replicas: after %d steps each rank has values of its own: ranks "
		 "average every %d",
		 steps, EVERY);
	CHECK_ERROR(tutti_check_replicas(t), TUTTI_ERR_INVALID, message);
	CHECK(collectives(t) == before);
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	const tutti_train_config config = {.strategy = TUTTI_LOCAL_SGD,
					   .param_dtype = run->dtype,
					   .local_sgd_steps = EVERY,
					   .local_sgd_state = run->with_state};
	const struct design design = design_equal(1, COUNT, 0);
	tutti_train_stats stats;
	tutti_model *model = design_build(&design);
	tutti_trainer *t;

	CHECK(tutti_trainer_create(&t, model, comm, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	CHECK(tutti_param_init_constant(t, 0, 1) == TUTTI_OK);
	CHECK(tutti_check_replicas(t) == TUTTI_OK);
	for (int step = 0; step < STEPS; step++) {
		uint64_t before = collectives(t);
		one_step(t, run, step);
		CHECK((collectives(t) > before) == ((step + 1) % EVERY == 0));
		check_rank(t, run, step + 1);
		check_compared(t, step + 1);
	}
	CHECK(tutti_trainer_stats(t, &stats) == TUTTI_OK);
	if (t->rank == 0)
		run->sent_bytes = stats.sent_param_bytes;
	tutti_trainer_destroy(t);
}

static void all_sizes(const tutti_optimizer *optimizer, int states)
{
	static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16};

	for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
		for (int n = 1; n <= RANKS; n++) {
			struct run own = {.optimizer = *optimizer, .dtype = dtypes[d]}, all = own;
			all.with_state = 1;
			assert_int_equal(ranks_as_threads(n, train, &own), 0);
			assert_int_equal(ranks_as_threads(n, train, &all), 0);
			assert_true((own.sent_bytes > 0) == (n > 1));
			assert_int_equal(all.sent_bytes, own.sent_bytes * (uint64_t)(1 + states));
		}
}

static void test_adamw(void **state)
{
	all_sizes(&adamw, 2);
}

static void test_momentum(void **state)
{
	all_sizes(&momentum, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_adamw),
		cmocka_unit_test(test_momentum),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
