/* What would break: gradients of the pipeline's layers that are not those of its loss. */
#include "examples/rpc_pipeline/layers.h"

#include "tests/unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, MOST = LAYER_PARAMS * WIDTH * HIDDEN };

static double as_number(uint32_t i)
{
	return sin(1.7 * (double)i + 0.3);
}

/* The loss: the sum of results, each times a number. */
static double loss_of(const struct layer *layer, const float *x, float *hidden, float *y)
{
	double sum = 0;

	layer_forward(layer, ROWS, x, hidden, y);
	for (int i = 0; i < ROWS * layer->outputs; i++)
		sum += as_number((uint32_t)i) * (double)y[i];
	return sum;
}

/* The slope that a small change of *at has. */
static double slope_at(const struct layer *layer, float *at, const float *x)
{
	float hidden[ROWS * HIDDEN], y[ROWS * WIDTH], before = *at, step = 1.0f / 64;

	*at = before + step;
	double more = loss_of(layer, x, hidden, y);
	*at = before - step;
	double less = loss_of(layer, x, hidden, y);
	*at = before;
	return (more - less) / (2 * (double)step);
}

static void check_slopes(const struct layer *layer, float *values, const float *grad, size_t count,
			 const float *x)
{
	for (size_t i = 0; i < count; i += 1 + count / 50)
		assert_true(fabs(slope_at(layer, &values[i], x) - (double)grad[i]) < 2e-3);
}

static void check_layer(int number)
{
	static float all[MOST];
	float x[ROWS * WIDTH], hidden[ROWS * HIDDEN], y[ROWS * WIDTH], dy[ROWS * WIDTH];
	float dx[ROWS * WIDTH], *grad[LAYER_PARAMS];
	struct layer layer;

	assert_true(layer_make(&layer, number));
	for (int i = 0; i < ROWS * layer.inputs; i++)
		x[i] = (float)as_number((uint32_t)(i + 1000));
	for (int i = 0; i < ROWS * layer.outputs; i++)
		dy[i] = (float)as_number((uint32_t)i);
	for (int p = 0; p < LAYER_PARAMS; p++)
		grad[p] = p ? grad[p - 1] + layer.count[p - 1] : all;
	loss_of(&layer, x, hidden, y);
	layer_backward(&layer, ROWS, x, hidden, dy, dx, grad);
	for (int p = 0; p < LAYER_PARAMS; p++)
		check_slopes(&layer, layer.param[p], grad[p], layer.count[p], x);
	check_slopes(&layer, x, dx, (size_t)(ROWS * layer.inputs), x);
	for (int p = 0; p < LAYER_PARAMS; p++)
		free(layer.param[p]);
}

static void test_layers(void **state)
{
	check_layer(0);
	check_layer(1);
	check_layer(LAYERS - 1);
}

static void test_cross_entropy(void **state)
{
	const int32_t labels[ROWS] = {3, 7};
	float logits[ROWS * CLASSES], grad[ROWS * CLASSES], moved[ROWS * CLASSES];

	for (int i = 0; i < ROWS * CLASSES; i++)
		logits[i] = (float)(3 * as_number((uint32_t)i));
	memcpy(grad, logits, sizeof grad);
	double loss = cross_entropy(ROWS, grad, labels);
	for (int i = 0; i < ROWS * CLASSES; i++) {
		memcpy(moved, logits, sizeof moved);
		moved[i] += 1.0f / 256;
		double slope = (cross_entropy(ROWS, moved, labels) - loss) * 256;
		assert_true(fabs(slope - (double)grad[i]) < 2e-3);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layers),
		cmocka_unit_test(test_cross_entropy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
