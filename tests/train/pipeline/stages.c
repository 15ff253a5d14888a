/* Stages that check what they get: see stages.h. */
#include "tests/train/pipeline/stages.h"

#include "tests/random.h"
#include "tests/train/ranks.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Byte i of what stage makes of micro-batch m: each stage multiplies and adds. */
static unsigned char activation(int stage, int m, size_t i)
{
	unsigned char value = (unsigned char)(7 * m + (int)i);

	for (int s = 0; s <= stage; s++)
		value = (unsigned char)(3 * value + s + m);
	return value;
}

/* Of the gradient that stage sends back. */
static unsigned char gradient(const struct stages *stages, int stage, int m, size_t i)
{
	int last = schedule_stages(&stages->shape) - 1;
	unsigned char value = activation(last, m, i);

	for (int s = last; s >= stage; s--)
		value = (unsigned char)(5 * value + activation(s - 1, m, i));
	return value;
}

/* Byte i depends on i modulo 256 only: a row has all. */
static void activation_row(unsigned char row[256], int stage, int m)
{
	for (size_t i = 0; i < 256; i++)
		row[i] = activation(stage, m, i);
}

static void gradient_row(unsigned char row[256], const struct stages *stages, int stage, int m)
{
	for (size_t i = 0; i < 256; i++)
		row[i] = gradient(stages, stage, m, i);
}

static int micro_batches(const struct stages *stages)
{
	return stages->evaluated ? stages->evaluated : stages->shape.micro_batches;
}

static int task_of(const struct stages *stages, int stage, int m)
{
	return stage / stages->shape.ranks * micro_batches(stages) + m;
}

static void check_in(const struct stages *stages, int stage, int m)
{
	const unsigned char *in = stages->in[task_of(stages, stage, m)];
	unsigned char row[256];

	CHECK((in == NULL) == (stage == 0));
	CHECK((uintptr_t)in % 64 == 0);
	activation_row(row, stage - 1, m);
	for (size_t i = 0; in && i < stages->bytes; i++)
		if (in[i] != row[i % 256]) {
			CHECK(!"in has other bytes");
			return;
		}
}

static void check_out_grad(const struct stages *stages, int stage, int m)
{
	const unsigned char *grad = stages->out_grad[task_of(stages, stage, m)];
	unsigned char row[256];

	CHECK((grad == NULL) == (stage == schedule_stages(&stages->shape) - 1));
	CHECK((uintptr_t)grad % 64 == 0);
	gradient_row(row, stages, stage + 1, m);
	for (size_t i = 0; grad && i < stages->bytes; i++)
		if (grad[i] != row[i % 256]) {
			CHECK(!"out_grad has other bytes");
			return;
		}
}

/* Each callback begins here: the status that it returns. */
static tutti_status begin(struct stages *stages, enum action_kind kind, int stage, int m)
{
	struct action action = {kind, stage, m};

	CHECK(stage % stages->shape.ranks == stages->rank);
	CHECK(m >= 0 && m < micro_batches(stages));
	stages->calls[stages->call_count++] = action;
	if (stages->before)
		stages->before(stages, &action);
	for (uint64_t n = random_below(&stages->seed, 4); n > 2; n--)
		sched_yield();
	if (stages->failing_status == TUTTI_OK ||
	    memcmp(&action, &stages->failing, sizeof action) != 0)
		return TUTTI_OK;
	return stages->failing_message
		       ? tutti_set_error(stages->failing_status, stages->failing_message)
		       : stages->failing_status;
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	struct stages *stages = arg;
	enum action_kind kind = stages->evaluated ? ACTION_EVALUATE : ACTION_FORWARD;
	tutti_status status = begin(stages, kind, stage, m);
	unsigned char *to = out, row[256];

	stages->in[task_of(stages, stage, m)] = in;
	check_in(stages, stage, m);
	CHECK((out == NULL) == (stage == schedule_stages(&stages->shape) - 1));
	activation_row(row, stage, m);
	for (size_t i = 0; out && i < stages->bytes; i++)
		to[i] = row[i % 256];
	return status;
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct stages *stages = arg;
	bool splits = stages->shape.schedule == TUTTI_ZERO_BUBBLE;
	tutti_status status =
		begin(stages, splits ? ACTION_BACKWARD_INPUTS : ACTION_BACKWARD, stage, m);
	unsigned char *to = in_grad, row[256];

	stages->out_grad[task_of(stages, stage, m)] = out_grad;
	check_in(stages, stage, m);
	check_out_grad(stages, stage, m);
	CHECK((in_grad == NULL) == (stage == 0));
	gradient_row(row, stages, stage, m);
	for (size_t i = 0; in_grad && i < stages->bytes; i++)
		to[i] = row[i % 256];
	return status;
}

static tutti_status backward_weights(void *arg, int stage, int m)
{
	struct stages *stages = arg;
	tutti_status status = begin(stages, ACTION_BACKWARD_WEIGHTS, stage, m);

	check_in(stages, stage, m);
	check_out_grad(stages, stage, m);
	return status;
}

void stages_evaluate(struct stages *stages, int micro_batches_of_it)
{
	stages->evaluated = micro_batches_of_it;
	size_t tasks = (size_t)stages->shape.chunks * (size_t)micro_batches(stages);
	stages_destroy(stages);
	stages->call_count = 0;
	stages->calls = calloc(3 * tasks, sizeof *stages->calls);
	stages->in = calloc(tasks, sizeof *stages->in);
	stages->out_grad = calloc(tasks, sizeof *stages->out_grad);
	if (!stages->calls || !stages->in || !stages->out_grad)
		abort();
}

tutti_pipeline_config stages_create(struct stages *stages, struct pipeline_shape shape, int rank,
				    size_t bytes, uint64_t seed)
{
	*stages = (struct stages){.shape = shape, .rank = rank, .bytes = bytes, .seed = seed};
	stages_evaluate(stages, 0);
	return (tutti_pipeline_config){.schedule = shape.schedule,
				       .micro_batches = shape.micro_batches,
				       .chunks = shape.chunks,
				       .count = bytes,
				       .dtype = TUTTI_U8,
				       .arg = stages,
				       .forward = forward,
				       .backward = backward,
				       .backward_weights = backward_weights};
}

void stages_destroy(struct stages *stages)
{
	free(stages->calls);
	free(stages->in);
	free(stages->out_grad);
}

void stages_check_order(struct stages *stages)
{
	struct pipeline_shape shape = stages->shape;

	shape.micro_batches = micro_batches(stages);
	struct action_list list = stages->evaluated ? schedule_evaluation(&shape, stages->rank)
						    : schedule_list(&shape, stages->rank);

	CHECK(list.at && stages->call_count == list.count &&
	      memcmp(stages->calls, list.at, (size_t)list.count * sizeof *list.at) == 0);
	stages->call_count = 0;
	free(list.at);
}
