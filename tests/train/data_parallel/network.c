/* The network: outputs = out * tanh(in * inputs) + bias + shift; shift is frozen. */
#include "tests/train/data_parallel/network.h"

#include "tests/train/ranks.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "tests/unit.h"

enum { IN_W, OUT_W, OUT_B, SHIFT };
static const int64_t counts[] = {NET_IN * NET_HIDDEN, NET_HIDDEN *NET_OUT, NET_OUT, NET_OUT};

static float uniform(uint64_t seed, uint64_t index)
{
	return (float)(tutti_random(seed, 0, 0, index) >> 8) / 8388608.0f - 1;
}

void net_batch(struct net_batch *batch, int step, int items)
{
	for (int i = 0; i < items; i++) {
		uint64_t sample = (uint64_t)(step * NET_ITEMS + i);
		for (int k = 0; k < NET_IN; k++)
			batch->inputs[i][k] = uniform(3, sample * NET_IN + (uint64_t)k);
		batch->targets[i][0] = sinf(3 * batch->inputs[i][0]) * batch->inputs[i][1];
		batch->targets[i][1] = cosf(2 * batch->inputs[i][2]);
	}
}

tutti_model *net_model(void)
{
	static const char *const names[] = {"in.w", "out.w", "out.b", "shift"};
	tutti_model *model;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	int in = tutti_model_unit(model, "in"), out = tutti_model_unit(model, "out");
	for (int p = 0; p < NET_PARAMS; p++)
		CHECK(tutti_model_param(model, p == IN_W ? in : out, names[p], 1, &counts[p],
					p == SHIFT ? TUTTI_PARAM_FROZEN : 0) == p);
	return model;
}

tutti_status net_init(tutti_trainer *trainer, int replica, void *arg)
{
	float values[NET_IN * NET_HIDDEN];

	for (int p = 0; p < NET_PARAMS; p++) {
		for (int64_t i = 0; i < counts[p]; i++)
			values[i] = 0.7f * uniform(5 + (uint64_t)p, (uint64_t)i);
		tutti_status status = tutti_param_write(trainer, p, 0, (size_t)counts[p], values);
		if (status != TUTTI_OK)
			return status;
	}
	return TUTTI_OK;
}

tutti_status net_read(tutti_trainer *trainer, int replica, void *values)
{
	float *to = values, unused[NET_COUNT];

	if (replica > 0) /* it takes part */
		to = unused;
	for (int p = 0; p < NET_PARAMS; to += counts[p], p++) {
		tutti_status status = tutti_param_read(trainer, p, 0, (size_t)counts[p], to);
		if (status != TUTTI_OK)
			return status;
	}
	return TUTTI_OK;
}

/* Parameters of one replica, in f32. */
struct weights {
	float in[NET_IN * NET_HIDDEN], out[NET_HIDDEN * NET_OUT], bias[NET_OUT], shift[NET_OUT];
};

/* from is f32, or BF16, the upper half of an f32. */
static void widen(float *to, const void *from, int64_t count, int is_bf16)
{
	for (int64_t i = 0; i < count; i++) {
		uint32_t bits = is_bf16 ? (uint32_t)((const uint16_t *)from)[i] << 16
					: ((const uint32_t *)from)[i];
		memcpy(&to[i], &bits, sizeof bits);
	}
}

static struct weights weights_of(const void *const values[NET_PARAMS], int is_bf16)
{
	struct weights w;

	widen(w.in, values[IN_W], counts[IN_W], is_bf16);
	widen(w.out, values[OUT_W], counts[OUT_W], is_bf16);
	widen(w.bias, values[OUT_B], counts[OUT_B], is_bf16);
	widen(w.shift, values[SHIFT], counts[SHIFT], is_bf16);
	return w;
}

static struct weights replica_weights(const tutti_replica *r)
{
	const struct network *network = r->arg;
	const void *values[NET_PARAMS];

	for (int p = 0; p < NET_PARAMS; p++)
		values[p] = tutti_replica_param(r, p);
	return weights_of(values, network->is_bf16);
}

static void forward_item(const struct weights *w, const float *x, float *hidden, float *y)
{
	for (int h = 0; h < NET_HIDDEN; h++) {
		float sum = 0;
		for (int k = 0; k < NET_IN; k++)
			sum += w->in[h * NET_IN + k] * x[k];
		hidden[h] = tanhf(sum);
	}
	for (int o = 0; o < NET_OUT; o++) {
		y[o] = w->bias[o] + w->shift[o];
		for (int h = 0; h < NET_HIDDEN; h++)
			y[o] += w->out[o * NET_HIDDEN + h] * hidden[h];
	}
}

static double loss_item(const float *y, const float *target, float *dy)
{
	double loss = 0;

	for (int o = 0; o < NET_OUT; o++) {
		float error = y[o] - target[o];
		loss += (double)(error * error);
		dy[o] = 2 * error;
	}
	return loss;
}

static void backward_item(const float *out, float *const grads[], const float *x,
			  const float *hidden, const float *dy)
{
	for (int o = 0; o < NET_OUT; o++)
		grads[OUT_B][o] += dy[o];
	for (int h = 0; h < NET_HIDDEN; h++) {
		float dz = 0;
		for (int o = 0; o < NET_OUT; o++) {
			grads[OUT_W][o * NET_HIDDEN + h] += dy[o] * hidden[h];
			dz += dy[o] * out[o * NET_HIDDEN + h];
		}
		dz *= 1 - hidden[h] * hidden[h];
		for (int k = 0; k < NET_IN; k++)
			grads[IN_W][h * NET_IN + k] += dz * x[k];
	}
}

static tutti_status fail_or_not(const tutti_replica *r, int where)
{
	struct network *network = r->arg;

	if (r->index == 0) /* other replicas are other threads */
		network->calls[where - 1]++;
	if (network->is_killed && where == 3 && r->index == 1)
		raise(SIGKILL);
	if (network->fails_in != where || network->fails_at != r->index)
		return TUTTI_OK;
	return network->why ? tutti_set_error(TUTTI_ERR_SYSTEM, network->why) : TUTTI_ERR_SYSTEM;
}

static tutti_status forward(tutti_replica *r)
{
	struct network *network = r->arg;
	const float(*x)[NET_IN] = r->inputs;
	float(*y)[NET_OUT] = (float(*)[NET_OUT])(void *)r->outputs;
	const struct weights w = replica_weights(r);

	for (size_t i = 0; i < r->items; i++)
		forward_item(&w, x[i], network->hidden[r->first + i], y[i]);
	if (network->dp)
		return tutti_data_parallel_stats(network->dp, 0, &(tutti_train_stats){0});
	return fail_or_not(r, 1);
}

static tutti_status loss(tutti_replica *r)
{
	const struct network *network = r->arg;
	const float(*target)[NET_OUT] = r->targets;

	r->loss = 0;
	for (size_t i = 0; i < r->items; i++)
		r->loss += loss_item(r->outputs + i * NET_OUT, target[i],
				     r->output_grads + i * NET_OUT);
	if (network->is_infinite)
		r->output_grads[r->items * NET_OUT - 1] = INFINITY;
	return fail_or_not(r, 2);
}

static tutti_status backward(tutti_replica *r)
{
	struct network *network = r->arg;
	const float(*x)[NET_IN] = r->inputs;
	const struct weights w = replica_weights(r);
	float *const grads[] = {tutti_replica_grad(r, IN_W), tutti_replica_grad(r, OUT_W),
				tutti_replica_grad(r, OUT_B)};

	for (size_t i = 0; i < r->items; i++)
		backward_item(w.out, grads, x[i], network->hidden[r->first + i],
			      r->output_grads + i * NET_OUT);
	for (int p = OUT_W; p <= OUT_B; p++) {
		tutti_status status = tutti_replica_grad_ready(r, p);
		if (status != TUTTI_OK)
			return status;
	}
	return fail_or_not(r, 3);
}

tutti_data_parallel_config net_config(struct network *network)
{
	return (tutti_data_parallel_config){.forward = forward,
					    .loss = loss,
					    .backward = backward,
					    .arg = network,
					    .input_bytes = NET_IN * sizeof(float),
					    .target_bytes = NET_OUT * sizeof(float),
					    .output_count = NET_OUT};
}

double net_ddp_step(tutti_trainer *trainer, struct network *network, const struct net_batch *batch,
		    const int part[2], const tutti_optimizer *optimizer)
{
	const void *const values[] = {
		tutti_param_data(trainer, IN_W), tutti_param_data(trainer, OUT_W),
		tutti_param_data(trainer, OUT_B), tutti_param_data(trainer, SHIFT)};
	const struct weights w = weights_of(values, network->is_bf16);
	float *const grads[] = {tutti_param_grad(trainer, IN_W), tutti_param_grad(trainer, OUT_W),
				tutti_param_grad(trainer, OUT_B)};
	double items = part[1] - part[0], sum = 0;

	CHECK(tutti_micro_batch(trainer, TUTTI_PASS_LAST, items, NULL) == TUTTI_OK);
	for (int i = part[0]; i < part[1]; i++) {
		float y[NET_OUT], dy[NET_OUT];
		forward_item(&w, batch->inputs[i], network->hidden[i], y);
		sum += loss_item(y, batch->targets[i], dy);
		for (int o = 0; o < NET_OUT; o++)
			dy[o] *= tutti_grad_scale(trainer);
		backward_item(w.out, grads, batch->inputs[i], network->hidden[i], dy);
	}
	for (int p = 0; p < SHIFT; p++)
		CHECK(tutti_grad_ready(trainer, p) == TUTTI_OK);
	CHECK(tutti_step(trainer, optimizer, 1, NULL) == TUTTI_OK);
	CHECK(tutti_means(trainer, &sum, &items, &sum, 1) == TUTTI_OK);
	return sum;
}

void net_start(struct net_replicas *replicas, bool is_mirrored, int n,
	       const tutti_data_parallel_config *config)
{
	tutti_data_parallel_config own = *config;

	replicas->n = n;
	if (!own.model)
		own.model = net_model();
	assert_int_equal(tutti_init_all(replicas->comms, n, &(tutti_config){.timeout_ms = 30000}),
			 TUTTI_OK);
	tutti_status made =
		is_mirrored ? tutti_mirrored_create(&replicas->dp, replicas->comms, n, &own)
			    : tutti_data_parallel_create(&replicas->dp, replicas->comms, n, &own);
	if (made != TUTTI_OK)
		fail_msg("%s", tutti_comm_error(NULL));
	tutti_model_destroy(own.model);
}

void net_stop(struct net_replicas *replicas)
{
	tutti_data_parallel_destroy(replicas->dp);
	for (int r = 0; r < replicas->n; r++)
		tutti_comm_destroy(replicas->comms[r]);
}
