/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: a strategy that sends other bytes than its arithmetic says, and statistics that
 * say what was meant instead of what was sent. The trainer counts by formula; here its
 * communicators are asked what really left this rank as messages. Rings send exactly what a
 * collective has to. */
#include "tests/train/ranks.h"
#include "tests/train/stack.h"

#include "train/state/trainer_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

enum { STEPS = 2, LOCAL_STEPS = 2 };

#define BF16_PARAMS .param_dtype = TUTTI_BF16
#define BF16_SUMS   .reduce_dtype = TUTTI_BF16
#define BF16_GRADS  .grad_dtype = TUTTI_BF16

static const struct {
	const char *name;
	tutti_train_config config;
	int least, most; /* ranks */
} variants[] = {
	{"ddp", {.strategy = TUTTI_DDP}, 1, 8},
	{"zero1", {.strategy = TUTTI_ZERO1}, 1, 8},
	{"zero2", {.strategy = TUTTI_ZERO2}, 1, 8},
	{"fsdp", {.strategy = TUTTI_FSDP}, 1, 8},
	{"fsdp far ahead", {.strategy = TUTTI_FSDP, .prefetch_units = 3}, 1, 4},
	{"fsdp of whole tensors", {.strategy = TUTTI_FSDP, .whole_tensors = 1}, 1, 4},
	{"hsdp", {.strategy = TUTTI_HSDP, .shard_size = 2}, 2, 8},
	{"zero2 in order", {.strategy = TUTTI_ZERO2, .deterministic = 1}, 1, 4},
	{"fsdp in order", {.strategy = TUTTI_FSDP, .deterministic = 1}, 1, 4},
	{"hsdp in order", {.strategy = TUTTI_HSDP, .shard_size = 2, .deterministic = 1}, 2, 4},
	{"local sgd", {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = LOCAL_STEPS}, 1, 8},
	{"ddp, sums of bf16", {.strategy = TUTTI_DDP, BF16_PARAMS, BF16_SUMS}, 1, 4},
	{"zero1 of bf16", {.strategy = TUTTI_ZERO1, BF16_PARAMS}, 1, 4},
	{"zero1, sums of bf16", {.strategy = TUTTI_ZERO1, BF16_PARAMS, BF16_SUMS}, 1, 4},
	{"zero2, sums of bf16", {.strategy = TUTTI_ZERO2, BF16_PARAMS, BF16_SUMS}, 1, 4},
	{"fsdp of bf16", {.strategy = TUTTI_FSDP, BF16_PARAMS}, 1, 4},
	{"fsdp, sums of bf16", {.strategy = TUTTI_FSDP, BF16_PARAMS, BF16_SUMS}, 1, 4},
	{"fsdp, all of bf16", {.strategy = TUTTI_FSDP, BF16_PARAMS, BF16_SUMS, BF16_GRADS}, 1, 4},
	{"hsdp, all of bf16",
	 {.strategy = TUTTI_HSDP, .shard_size = 2, BF16_PARAMS, BF16_SUMS, BF16_GRADS},
	 2,
	 4},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

struct run {
	int variant, micro_batches;
	struct stack stack;
};

/* Bytes that all ranks together have sent. */
enum { GATHER, REDUCE, REPLICAS, OWN, BY_WINDOW, STATS_GRAD, STATS_PARAM, STATS_OTHER, COUNTS };

static void add_comm(uint64_t counts[COUNTS], int which, const tutti_comm *comm)
{
	tutti_stats stats;

	if (!comm)
		return;
	CHECK(tutti_comm_stats(comm, &stats) == TUTTI_OK);
	counts[which] += stats.sent_bytes;
	counts[BY_WINDOW] += stats.window_bytes + stats.staged_bytes;
}

static void count(uint64_t counts[COUNTS], const tutti_trainer *trainer)
{
	tutti_train_stats stats;

	for (int i = 0; i < COUNTS; i++)
		counts[i] = 0;
	add_comm(counts, GATHER, trainer->homes[0].gather);
	add_comm(counts, REDUCE, trainer->homes[0].reduce);
	add_comm(counts, REPLICAS, trainer->homes[0].replicas);
	add_comm(counts, OWN, trainer->comm);
	CHECK(tutti_trainer_stats(trainer, &stats) == TUTTI_OK);
	counts[STATS_GRAD] = stats.sent_grad_bytes;
	counts[STATS_PARAM] = stats.sent_param_bytes;
	counts[STATS_OTHER] = stats.sent_other_bytes;
}

/* What the steps of a run have sent, all ranks together. */
static void measure(tutti_trainer *trainer, const struct run *run, uint64_t sent[COUNTS])
{
	uint64_t before[COUNTS], after[COUNTS];

	count(before, trainer);
	for (int step = 0; step < STEPS; step++)
		stack_step(trainer, &run->stack, run->micro_batches);
	count(after, trainer);
	for (int i = 0; i < COUNTS; i++)
		sent[i] = after[i] - before[i];
	CHECK(tutti_all_reduce(sent, sent, COUNTS, TUTTI_U64, TUTTI_SUM, trainer->comm, NULL) ==
	      TUTTI_OK);
}

/* The table of docs/training.md, for all ranks and steps, from the elements of the model: what is
 * fetched or summed by n ranks of one group is sent n - 1 times. */
struct formula {
	uint64_t grad, param;
};

static uint64_t width_of(tutti_dtype dtype)
{
	return dtype == TUTTI_F32 ? 4 : 2;
}

static struct formula formula_of(const struct run *run, uint64_t elements, uint64_t ranks)
{
	const tutti_train_config *config = &variants[run->variant].config;
	uint64_t values = elements * width_of(config->param_dtype);
	uint64_t grads = elements * width_of(config->reduce_dtype);
	uint64_t m = (uint64_t)run->micro_batches, fetched = 2 * values - values / STACK_UNITS;
	uint64_t others = ranks - 1, groups = ranks / 2;
	/* In order: micro-batches are added before they travel. */
	uint64_t sums = config->deterministic ? 1 : m;

	switch (config->strategy) {
	case TUTTI_DDP:
		return (struct formula){STEPS * 2 * others * grads, 0};
	case TUTTI_ZERO1:
		return (struct formula){STEPS * others * grads, STEPS * others * values};
	case TUTTI_ZERO2:
		return (struct formula){STEPS * sums * others * grads, STEPS * others * values};
	case TUTTI_FSDP:
		return (struct formula){STEPS * sums * others * grads,
					STEPS * m * others * fetched};
	case TUTTI_HSDP: /* groups of two */
		return (struct formula){STEPS * (sums * groups * grads + 2 * (groups - 1) * grads),
					STEPS * m * groups * fetched};
	default:
		return (struct formula){0, STEPS / LOCAL_STEPS * 2 * others * values};
	}
}

static void check_bytes(const struct run *run, int ranks, const char *what, uint64_t got,
			uint64_t expected)
{
	if (got == expected)
		return;
	fprintf(stderr,
		"%s on %d ranks, %d micro-batches, units of %zu + %zu: %s: %" PRIu64
		" bytes instead of %" PRIu64 "\n",
		variants[run->variant].name, ranks, run->micro_batches, run->stack.weight,
		run->stack.bias, what, got, expected);
	CHECK(!"bytes");
}

/* What a rank says to every other rank of its group at a step's end: its part of the norm, and that
 * it gathers no more. The order of units costs nothing. */
static uint64_t small_bytes(const struct run *run, uint64_t ranks)
{
	tutti_strategy strategy = variants[run->variant].config.strategy;
	uint64_t group = strategy == TUTTI_HSDP ? 2 : ranks;
	bool is_by_unit = strategy == TUTTI_FSDP || strategy == TUTTI_HSDP;

	if (strategy == TUTTI_DDP || strategy == TUTTI_LOCAL_SGD)
		return 0;
	return STEPS * ranks * (group - 1) * (184 + (is_by_unit ? sizeof(int32_t) : 0));
}

static void check_sent(tutti_trainer *trainer, const struct run *run)
{
	int size = trainer->size;
	uint64_t sent[COUNTS], ranks = (uint64_t)size;
	bool is_local = variants[run->variant].config.strategy == TUTTI_LOCAL_SGD;
	uint64_t voted = is_local ? STEPS / LOCAL_STEPS : STEPS;
	uint64_t votes = voted * ranks * (ranks - 1) * (uint64_t)sizeof(struct step_report);
	struct formula exact = formula_of(run, stack_elements(&run->stack), ranks);
	struct formula padded = formula_of(run, stack_padded(&run->stack), ranks);

	measure(trainer, run, sent);
	if (trainer->rank > 0)
		return;
	/* On the wire: values and gradients with their padding, and what is small. */
	check_bytes(run, size, "by the window", sent[BY_WINDOW], 0);
	check_bytes(run, size, "gradients sent", sent[REDUCE] + (is_local ? 0 : sent[REPLICAS]),
		    padded.grad);
	check_bytes(run, size, "values sent", sent[GATHER] + (is_local ? sent[REPLICAS] : 0),
		    padded.param + sent[STATS_OTHER] - votes);
	check_bytes(run, size, "ballots sent", sent[OWN], votes);
	/* In the statistics: the same without padding. */
	check_bytes(run, size, "sent_grad_bytes", sent[STATS_GRAD], exact.grad);
	check_bytes(run, size, "sent_param_bytes", sent[STATS_PARAM], exact.param);
	check_bytes(run, size, "sent_other_bytes", sent[STATS_OTHER],
		    votes + small_bytes(run, ranks));
}

static int is_in_order; /* which of the variants are looked at */

static void check_all(tutti_comm *comm, void *arg)
{
	const struct stack *stack = arg;
	int size = tutti_size(comm);

	for (int v = 0; v < VARIANTS; v++) {
		tutti_train_config config = variants[v].config;
		if (size % variants[v].least != 0 || size > variants[v].most ||
		    config.deterministic != is_in_order)
			continue;
		config.bucket_bytes = 5000; /* two units are one */
		tutti_trainer *trainer = stack_create(stack, comm, &config);
		for (int micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
			struct run run = {v, micro_batches, *stack};
			run.stack.grad_dtype = config.grad_dtype;
			check_sent(trainer, &run);
		}
		tutti_trainer_destroy(trainer);
	}
}

/* A weight and a bias that fill their lines, and ones that do not, of 1008 and 16 with padding.
 * Both can be cut into as many equal parts of whole bytes as there are ranks. */
static const char rings[] = "all_reduce=ring,reduce_scatter=ring,all_gather=ring";
static struct stack full = {.weight = 1008, .bias = 16}, ragged = {.weight = 1002, .bias = 6};

static void over_tcp(void **state)
{
	setenv("TUTTI_TRANSPORTS", "tcp", 1);
	assert_int_equal(ranks_as_processes(2, check_all, &full), 0);
	unsetenv("TUTTI_TRANSPORTS");
}

static void of_threads(void **state)
{
	for (int n = 1; n <= 8; n *= 2)
		assert_int_equal(ranks_as_threads(n, check_all, n % 4 == 0 ? &ragged : &full), 0);
}

/* A ring adds in an order of its own, so it is not for these; direct exchange sends as much. */
static void in_order(void **state)
{
	setenv("TUTTI_ALGO", "all_reduce=direct,reduce_scatter=direct,all_gather=direct", 1);
	is_in_order = 1;
	for (int n = 1; n <= 4; n *= 2)
		assert_int_equal(ranks_as_threads(n, check_all, n == 4 ? &ragged : &full), 0);
	is_in_order = 0;
	setenv("TUTTI_ALGO", rings, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_tcp),
		cmocka_unit_test(of_threads),
		cmocka_unit_test(in_order),
	};
	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_ALGO", rings, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
