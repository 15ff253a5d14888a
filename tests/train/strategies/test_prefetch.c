/* What would break: FSDP and HSDP that gather fewer units ahead than prefetch_units, or more, which
 * costs memory. When a unit has begun, its values and those of exactly the next units are there or
 * in flight: in forward, at the turn to backward, in backward, and in evaluation. Nothing is
 * gathered twice. */
#include "tests/train/ranks.h"
#include "tests/train/stack.h"

#include "train/state/trainer_state.h"

#include <stdbool.h>
#include <stdio.h>

#include "tests/unit.h"

enum { PASSES = 2 * STACK_UNITS };

struct run {
	tutti_train_config config;
	int ahead;
};

/* Forward in the order of registration, and back. */
static int unit_of(int event)
{
	return event < STACK_UNITS ? event : PASSES - 1 - event;
}

/* Bit u: unit u's values are there or asked for. */
static unsigned asked_for(const tutti_trainer *t)
{
	unsigned units = 0;

	for (int u = 0; u < STACK_UNITS; u++)
		for (const int *s = t->layout.unit_spans[u]; *s >= 0; s++)
			if (t->buckets[*s].data) {
				CHECK(t->buckets[*s].span->is_sharded);
				units |= 1u << u;
			}
	return units;
}

static unsigned expected_at(int event, int ahead, int events)
{
	unsigned units = 0;

	for (int e = event; e <= event + ahead && e < events; e++)
		units |= 1u << unit_of(e);
	return units;
}

static uint64_t count(unsigned units)
{
	uint64_t sum = 0;

	for (; units; units >>= 1)
		sum += units & 1;
	return sum;
}

static tutti_status begin(tutti_trainer *t, int event)
{
	return event < STACK_UNITS ? tutti_forward_begin(t, unit_of(event))
				   : tutti_backward_begin(t, unit_of(event));
}

static tutti_status end(tutti_trainer *t, int event)
{
	return event < STACK_UNITS ? tutti_forward_end(t, unit_of(event))
				   : tutti_backward_end(t, unit_of(event));
}

/* Units to be gathered when this event begins. Where the one before it has ended in forward that
 * unit was freed, though it may come soon again. */
static unsigned to_gather(int event, unsigned before, unsigned expected)
{
	if (event > 0 && unit_of(event - 1) != unit_of(event))
		before &= ~(1u << unit_of(event - 1));
	return expected & ~before;
}

/* A gather is one collective: ranks compare what it is for with the call itself. With replicas a
 * gradient's way to them may begin at any time. */
static void micro_batch(tutti_trainer *t, const struct run *run, tutti_pass pass, const char *what)
{
	int events = pass == TUTTI_PASS_EVAL ? STACK_UNITS : PASSES;
	unsigned before = 0;

	CHECK(tutti_micro_batch(t, pass, 1, NULL) == TUTTI_OK);
	for (int e = 0; e < events; e++) {
		unsigned expected = expected_at(e, run->ahead, events);
		uint64_t had = collectives(t);
		uint64_t wanted = count(to_gather(e, before, expected));
		CHECK(begin(t, e) == TUTTI_OK);
		uint64_t started = collectives(t) - had;
		if (asked_for(t) != expected || started < wanted ||
		    (started > wanted && !t->homes[0].replicas)) {
			fprintf(stderr,
				"%s, prefetch_units %d, event %d: units %x by %d collectives, not "
				"%x by %d\n",
				what, run->config.prefetch_units, e, asked_for(t), (int)started,
				expected, (int)wanted);
			CHECK(asked_for(t) == expected && started == wanted);
		}
		CHECK(end(t, e) == TUTTI_OK);
		before = expected;
	}
}

static void train(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};
	const struct stack stack = {.weight = 64, .bias = 5};
	tutti_trainer *t = stack_create(&stack, comm, &run->config);

	for (int step = 0; step < 2; step++) {
		micro_batch(t, run, TUTTI_PASS_ACCUMULATE, "first micro-batch");
		micro_batch(t, run, TUTTI_PASS_EVAL, "evaluation");
		micro_batch(t, run, TUTTI_PASS_LAST, "last micro-batch");
		CHECK(tutti_step(t, &sgd, 1, NULL) == TUTTI_OK);
		CHECK(asked_for(t) == 0);
	}
	tutti_trainer_destroy(t);
}

static void test_ahead(void **state)
{
	for (int prefetch = 0; prefetch <= 3; prefetch++)
		for (int n = 2; n <= 4; n += 2)
			for (tutti_strategy s = TUTTI_FSDP; s <= TUTTI_HSDP; s++) {
				struct run run = {.config = {.strategy = s,
							     .shard_size = 2,
							     .prefetch_units = prefetch},
						  .ahead = prefetch ? prefetch : 1};
				assert_int_equal(ranks_as_threads(n, train, &run), 0);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_ahead)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
