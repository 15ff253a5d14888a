/* The toy model. */
#include "tests/train/toy.h"

#include "tests/train/ranks.h"

#include "train/base/base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const tutti_optimizer toy_adamw = {.kind = TUTTI_ADAMW,
				   .lr = 0.05f,
				   .beta1 = 0.9f,
				   .beta2 = 0.95f,
				   .eps = 1e-8f,
				   .weight_decay = 0.1f};
static const int64_t counts[TOY_PARAMS] = {33, 5, 1, 64, 17, 40, 3, 0};
static const int units[TOY_PARAMS] = {0, 0, 1, 1, 2, 3, 3, 3};

size_t toy_count(int param)
{
	return (size_t)counts[param];
}

int toy_unit(int param)
{
	return units[param];
}

_Thread_local const struct toy_memory *toy_memory;

static void enter(int unit)
{
	if (toy_memory && toy_memory->enter)
		toy_memory->enter(unit);
}

/* What has no elements has no memory. */
static void *extern_memory(int param, float *own)
{
	if (counts[param] == 0)
		return NULL;
	return toy_memory && toy_memory->alloc ? toy_memory->alloc(TOY_MAX * sizeof *own) : own;
}

void toy_register(struct toy *toy, tutti_comm *comm, int is_extern)
{
	char name[32];

	memset(toy, 0, sizeof *toy);
	toy->rank = tutti_rank(comm);
	toy->size = tutti_size(comm);
	toy->is_extern = is_extern;
	CHECK(tutti_model_create(&toy->model) == TUTTI_OK);
	for (int u = 0; u < TOY_UNITS; u++) {
		snprintf(name, sizeof name, "unit.%d", u);
		CHECK(tutti_model_unit(toy->model, name) == u);
		if (toy_memory && toy_memory->stream)
			CHECK(tutti_model_unit_stream(toy->model, u, toy_memory->stream(u)) ==
			      TUTTI_OK);
	}
	for (int p = 0; p < TOY_PARAMS; p++) {
		snprintf(name, sizeof name, "param.%d", p);
		enter(units[p]);
		int id = is_extern
				 ? tutti_model_param_extern(toy->model, units[p], name, 1,
							    &counts[p], TUTTI_F32,
							    extern_memory(p, toy->data[p]),
							    extern_memory(p, toy->grad[p]), 0)
				 : tutti_model_param(toy->model, units[p], name, 1, &counts[p], 0);
		CHECK(id == p);
	}
	CHECK(tutti_model_unit_uses(toy->model, TOY_UNITS - 1, 0) == TUTTI_OK);
}

void toy_train(struct toy *toy, tutti_comm *comm, const tutti_train_config *config)
{
	CHECK(tutti_trainer_create(&toy->trainer, toy->model, comm, config) == TUTTI_OK);
	tutti_model_destroy(toy->model);
	toy->model = NULL;
	for (int p = 0; p < TOY_PARAMS; p++)
		CHECK(tutti_param_init_normal(toy->trainer, p, 0.5f, 2) == TUTTI_OK);
}

void toy_make(struct toy *toy, tutti_comm *comm, const tutti_train_config *config)
{
	toy_register(toy, comm, 0);
	toy_train(toy, comm, config);
}

void toy_destroy(struct toy *toy)
{
	tutti_trainer_destroy(toy->trainer);
	tutti_model_destroy(toy->model);
}

static int piece(int param, size_t index, int unit, int sample)
{
	return (sample * 31 + param * 7 + (int)index * 3 + unit * 5) % 17 - 8;
}

static int uses(int unit, int param)
{
	return units[param] == unit || (param == 0 && unit == TOY_UNITS - 1);
}

static void add(float *grad, const float *what, size_t n)
{
	if (toy_memory)
		toy_memory->add(grad, what, n);
	for (size_t i = 0; i < n && !toy_memory; i++)
		grad[i] += what[i];
}

void toy_backward(struct toy *toy, int unit, int first, int last)
{
	enter(unit);
	for (int p = 0; p < TOY_PARAMS; p++) {
		float *grad = tutti_param_grad(toy->trainer, p), sums[TOY_MAX] = {0};
		for (size_t i = 0; i < toy_count(p); i++)
			for (int sample = first; sample < last; sample++)
				sums[i] += (float)piece(p, i, unit, sample);
		if (uses(unit, p) && grad)
			add(grad, sums, toy_count(p));
	}
}

tutti_status toy_try_micro_batch(struct toy *toy, tutti_pass pass, int batch, int samples)
{
	tutti_trainer *t = toy->trainer;
	int first = batch * 1000 + samples * toy->rank / toy->size;
	int last = batch * 1000 + samples * (toy->rank + 1) / toy->size;

	TRY(tutti_micro_batch(t, pass, last - first, NULL));
	TRY(units_forward(t, TOY_UNITS));
	for (int u = TOY_UNITS - 1; u >= 0 && pass != TUTTI_PASS_EVAL; u--) {
		TRY(tutti_backward_begin(t, u));
		toy_backward(toy, u, first, last);
		if (u == 1 && batch > 0 && batch == toy->infinite_batch)
			((float *)tutti_param_grad(t, 3))[9] = INFINITY;
		TRY(tutti_backward_end(t, u));
	}
	return TUTTI_OK;
}

void toy_micro_batch(struct toy *toy, tutti_pass pass, int batch, int samples)
{
	CHECK(toy_try_micro_batch(toy, pass, batch, samples) == TUTTI_OK);
}

tutti_status toy_step(struct toy *toy, int batch, int samples)
{
	TRY(toy_try_micro_batch(toy, TUTTI_PASS_LAST, batch, samples));
	return tutti_step(toy->trainer, &toy_adamw, 1, NULL);
}

void toy_read(tutti_trainer *trainer, float values[TOY_PARAMS][TOY_MAX])
{
	memset(values, 0, sizeof(float[TOY_PARAMS][TOY_MAX]));
	for (int p = 0; p < TOY_PARAMS; p++)
		CHECK(tutti_param_read(trainer, p, 0, toy_count(p), values[p]) == TUTTI_OK);
}

void toy_keep(const struct toy *toy, float values[TOY_PARAMS][TOY_MAX])
{
	float read[TOY_PARAMS][TOY_MAX];

	toy_read(toy->trainer, read);
	if (toy->rank == 0)
		memcpy(values, read, sizeof read);
}

double toy_sum(int param, size_t index, int batch, int samples)
{
	int sum = 0;

	for (int unit = 0; unit < TOY_UNITS; unit++)
		for (int s = 0; uses(unit, param) && s < samples; s++)
			sum += piece(param, index, unit, batch * 1000 + s);
	return sum;
}
