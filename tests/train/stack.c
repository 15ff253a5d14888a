/* The model of equal units. */
#include "tests/train/stack.h"

#include "tests/train/ranks.h"

#include <stdio.h>
#include <string.h>

enum { LINE_ELEMENTS = 16 };

static size_t padded(size_t elements)
{
	return (elements + LINE_ELEMENTS - 1) / LINE_ELEMENTS * LINE_ELEMENTS;
}

size_t stack_elements(const struct stack *stack)
{
	return STACK_UNITS * (stack->weight + stack->bias);
}

size_t stack_padded(const struct stack *stack)
{
	return STACK_UNITS * (padded(stack->weight) + padded(stack->bias));
}

tutti_model *stack_register(const struct stack *stack)
{
	const int64_t shapes[2] = {(int64_t)stack->weight, (int64_t)stack->bias};
	tutti_model *model = NULL;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < STACK_UNITS; u++) {
		snprintf(name, sizeof name, "h.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		for (int i = 0; i < 2; i++) {
			snprintf(name, sizeof name, "h.%d.%s", u, i == 0 ? "w" : "b");
			CHECK(tutti_model_param(model, u, name, 1, &shapes[i], 0) == 2 * u + i);
		}
	}
	return model;
}

tutti_trainer *stack_create(const struct stack *stack, tutti_comm *comm,
			    const tutti_train_config *config)
{
	tutti_model *model = stack_register(stack);
	tutti_trainer *trainer = NULL;

	CHECK(tutti_trainer_create(&trainer, model, comm, config) == TUTTI_OK);
	tutti_model_destroy(model);
	for (int p = 0; trainer && p < STACK_PARAMS; p++)
		CHECK(tutti_param_init_constant(trainer, p, 1) == TUTTI_OK);
	return trainer;
}

static float gradient(const struct stack *stack, int number, int param, size_t i)
{
	if (stack->salt == 0)
		return (float)(i % 4) - 1;
	uint32_t drawn = tutti_random(stack->salt, (uint64_t)number, (uint64_t)param, i);
	return (float)(drawn % 65536) / 65536 - 0.5f;
}

/* Small integers, which BF16 holds as the upper half of f32. */
static void add_to(void *grad, tutti_dtype dtype, size_t i, float what)
{
	uint32_t bits;
	float sum;

	if (dtype == TUTTI_F32) {
		((float *)grad)[i] += what;
		return;
	}
	bits = (uint32_t)((uint16_t *)grad)[i] << 16;
	memcpy(&sum, &bits, sizeof sum);
	sum += what;
	memcpy(&bits, &sum, sizeof bits);
	((uint16_t *)grad)[i] = (uint16_t)(bits >> 16);
}

static void backward(tutti_trainer *trainer, const struct stack *stack, int number, int unit)
{
	for (int p = 2 * unit; p < 2 * unit + 2; p++) {
		size_t count = p % 2 == 0 ? stack->weight : stack->bias;
		void *grad = tutti_param_grad(trainer, p);
		CHECK(grad != NULL);
		for (size_t i = 0; grad && i < count; i++)
			add_to(grad, stack->grad_dtype, i, gradient(stack, number, p, i));
	}
}

static void micro_batch(tutti_trainer *trainer, const struct stack *stack, int number,
			tutti_pass pass)
{
	CHECK(tutti_micro_batch(trainer, pass, 1, NULL) == TUTTI_OK);
	for (int u = 0; u < STACK_UNITS; u++) {
		CHECK(tutti_forward_begin(trainer, u) == TUTTI_OK);
		CHECK(tutti_param_data(trainer, 2 * u) != NULL);
		CHECK(tutti_forward_end(trainer, u) == TUTTI_OK);
	}
	for (int u = STACK_UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(trainer, u) == TUTTI_OK);
		backward(trainer, stack, number, u);
		CHECK(tutti_backward_end(trainer, u) == TUTTI_OK);
	}
}

void stack_step(tutti_trainer *trainer, const struct stack *stack, int micro_batches)
{
	const tutti_optimizer adamw = {
		.kind = TUTTI_ADAMW, .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};

	for (int m = 0; m < micro_batches; m++)
		micro_batch(trainer, stack, m,
			    m + 1 < micro_batches ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST);
	CHECK(tutti_step(trainer, &adamw, 1, NULL) == TUTTI_OK);
	for (int p = 0; p < STACK_PARAMS; p++)
		tutti_param_data(trainer, p); /* waits for updated values on their way */
}
