/* A stage's life: its layers and their parameters are made when another rank asks for them, and go
 * with the last reference. A micro-batch's visit to a stage: forward or backward of its layers,
 * then the next stage's turn. A stage that has called another one holds no thread: the answer is
 * relayed when it comes. */
#include "stage.h"

#include "layers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

/* Between forward and backward of a micro-batch: what each layer had and made, in one block. */
struct kept {
	int rows;
	float *block;
	float *x[LAYERS + 1]; /* x[i + 1] is the result of layer i of the stage */
	float *hidden[LAYERS];
};

struct stage {
	tutti_rpc *rpc;
	int num_layers, num_params;
	struct layer layers[LAYERS];
	int params[LAYERS * LAYER_PARAMS]; /* numbers in the rpc, layer by layer */
	pthread_mutex_t lock;              /* of kept */
	struct kept *kept[PARTS_MOST];
};

static tutti_status stage_no_memory(void)
{
	return tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for a stage.");
}

/* NULL is fine. */
static void kept_free(struct kept *kept)
{
	if (kept)
		free(kept->block);
	free(kept);
}

/* Room for all that a micro-batch has in this stage; NULL: there is no memory. */
static struct kept *kept_make(const struct stage *stage, int rows)
{
	struct kept *kept = calloc(1, sizeof *kept);
	size_t floats = (size_t)stage->layers[0].inputs;

	for (int l = 0; l < stage->num_layers; l++)
		floats += HIDDEN + (size_t)stage->layers[l].outputs;
	if (!kept || !(kept->block = malloc(floats * (size_t)rows * sizeof(float)))) {
		free(kept);
		return NULL;
	}
	float *next = kept->block;
	kept->rows = rows;
	kept->x[0] = next;
	next += rows * stage->layers[0].inputs;
	for (int l = 0; l < stage->num_layers; l++) {
		kept->hidden[l] = next;
		kept->x[l + 1] = next + rows * HIDDEN;
		next = kept->x[l + 1] + rows * stage->layers[l].outputs;
	}
	return kept;
}

/* Stores it for backward. Returns what was there: of a batch that failed. NULL takes it out. */
static struct kept *kept_exchange(struct stage *stage, int part, struct kept *kept)
{
	pthread_mutex_lock(&stage->lock);
	struct kept *before = stage->kept[part];
	stage->kept[part] = kept;
	pthread_mutex_unlock(&stage->lock);
	return before;
}

/* ---- making and ending -------------------------------------------------------------------- */
/* Called when the last reference has gone; the library frees the values when no step uses them. */
static void stage_destroy(void *object)
{
	struct stage *stage = object;

	for (int p = 0; p < stage->num_params; p++)
		tutti_rpc_param_remove(stage->rpc, stage->params[p]);
	for (int part = 0; part < PARTS_MOST; part++)
		kept_free(stage->kept[part]);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
}

/* From here on the values are the library's, if it is OK. */
static tutti_status add_params(struct stage *stage, struct layer *layer)
{
	tutti_status status = TUTTI_OK;

	for (int p = 0; p < LAYER_PARAMS && layer->param[p]; p++) {
		char name[32];
		snprintf(name, sizeof name, "layer %d.%d", layer->number, p);
		if (status == TUTTI_OK)
			status = tutti_rpc_param_add(
				stage->rpc,
				&(tutti_rpc_param){.name = name,
						   .values = layer->param[p],
						   .count = layer->count[p],
						   .release = free,
						   .release_arg = layer->param[p]},
				&stage->params[stage->num_params]);
		if (status == TUTTI_OK)
			stage->num_params++;
		else
			free(layer->param[p]);
	}
	return status;
}

static tutti_status stage_add_layer(struct stage *stage, int number)
{
	struct layer *layer = &stage->layers[stage->num_layers++];

	if (layer_make(layer, number))
		return add_params(stage, layer);
	for (int p = 0; p < LAYER_PARAMS; p++)
		free(layer->param[p]);
	return stage_no_memory();
}

static tutti_status stage_make(tutti_rpc *rpc, const struct stage_layers *layers,
			       struct stage **stage)
{
	struct stage *made = calloc(1, sizeof *made);
	tutti_status status = TUTTI_OK;

	if (!made)
		return stage_no_memory();
	made->rpc = rpc;
	pthread_mutex_init(&made->lock, NULL);
	for (int number = layers->first; status == TUTTI_OK && number <= layers->last; number++)
		status = stage_add_layer(made, number);
	if (status == TUTTI_OK)
		*stage = made;
	else
		stage_destroy(made);
	return status;
}

static tutti_status on_make(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	tutti_rpc *rpc = request->rpc;
	struct stage_layers layers;
	struct stage *stage = NULL;
	tutti_rpc_ref ref;

	(void)arg;
	if (request->bytes != sizeof layers)
		return tutti_set_error(TUTTI_ERR_INVALID, "This is no list of layers.");
	memcpy(&layers, request->data, sizeof layers);
	if (layers.first < 0 || layers.last < layers.first || layers.last >= LAYERS)
		return tutti_set_error(TUTTI_ERR_INVALID, "There are no such layers.");
	TRY(stage_make(rpc, &layers, &stage));
	tutti_status status = tutti_rpc_ref_create(rpc, stage, stage_destroy, &ref);
	if (status != TUTTI_OK) {
		stage_destroy(stage);
		return status;
	}
	/* The caller's count instead of this rank's. */
	status = tutti_rpc_ref_share(rpc, &ref, request->rank);
	if (status == TUTTI_OK)
		status = tutti_rpc_reply_copy(reply, &ref, sizeof ref);
	tutti_rpc_ref_release(rpc, &ref);
	return status;
}

/* ---- visits ------------------------------------------------------------------------------ */
/* One call of forward or backward, until it is answered. */
struct visit {
	tutti_rpc *rpc;
	tutti_rpc_reply *reply;
	struct stage *stage; /* this rank has a count on it, as own */
	tutti_rpc_ref own;
	struct ticket ticket; /* for the next stage */
	float *dx;            /* backward: what is sent there */
	tutti_rpc_answer answer;
	double loss;
};

static void visit_end(struct visit *visit)
{
	tutti_rpc_ref_release(visit->rpc, &visit->own);
	free(visit->dx);
	free(visit);
}

/* Another rank's bytes: what is used later is checked here. */
static int visit_is_sound(const struct ticket *t, size_t bytes)
{
	return t->part >= 0 && t->part < PARTS_MOST && t->rows > 0 && t->rows < 1 << 20 &&
	       t->stages > 0 && t->stages <= STAGES_MOST && t->at >= 0 && t->at < t->stages &&
	       bytes >= sizeof *t;
}

static tutti_status visit_begin(const tutti_rpc_request *request, tutti_rpc_reply *reply,
				struct visit **visit)
{
	struct visit *made = calloc(1, sizeof *made);
	void *stage;

	if (!made)
		return stage_no_memory();
	made->rpc = request->rpc;
	made->reply = reply;
	memcpy(&made->ticket, request->data,
	       request->bytes < sizeof made->ticket ? request->bytes : sizeof made->ticket);
	if (!visit_is_sound(&made->ticket, request->bytes)) {
		free(made);
		return tutti_set_error(TUTTI_ERR_INVALID, "This is no ticket of a micro-batch.");
	}
	made->own = made->ticket.stage[made->ticket.at];
	tutti_status status = tutti_rpc_ref_get(made->rpc, &made->own, &stage);
	if (status != TUTTI_OK) {
		free(made);
		return status;
	}
	made->stage = stage;
	*visit = made;
	return TUTTI_OK;
}

/* Of the call to the next stage. */
static void relay_answer(void *arg, tutti_status status)
{
	struct visit *visit = arg;
	tutti_rpc_reply *reply = visit->reply;

	if (status == TUTTI_OK)
		status = tutti_rpc_reply_copy(reply, &visit->loss, visit->answer.bytes);
	visit_end(visit);
	tutti_rpc_reply_end(reply, status);
}

/* Calls the stage that is the ticket's turn; what is sent stays until relay_answer. */
static tutti_status call_next(struct visit *visit, const char *function,
			      const tutti_rpc_piece *data, const tutti_rpc_piece *more)
{
	const tutti_rpc_piece pieces[] = {{&visit->ticket, sizeof visit->ticket}, *data, *more};
	const tutti_rpc_options options = {.done = relay_answer, .done_arg = visit};

	visit->answer = (tutti_rpc_answer){.data = &visit->loss, .bytes = sizeof visit->loss};
	TRY(tutti_rpc_call_async(visit->rpc, visit->ticket.stage[visit->ticket.at].owner, function,
				 pieces, more->bytes ? 3 : 2, &visit->answer, &options, NULL));
	return TUTTI_IN_PROGRESS;
}

/* ---- forward ------------------------------------------------------------------------------ */
static tutti_status visit_forward(struct visit *visit, const float *x, const int32_t *labels)
{
	struct stage *stage = visit->stage;
	int rows = visit->ticket.rows, last = stage->num_layers;
	struct kept *kept = kept_make(stage, rows);

	if (!kept)
		return stage_no_memory();
	memcpy(kept->x[0], x, (size_t)(rows * stage->layers[0].inputs) * sizeof *x);
	tutti_status status = tutti_rpc_param_lock(visit->rpc, stage->params, stage->num_params, 0);
	if (status != TUTTI_OK) {
		kept_free(kept);
		return status;
	}
	for (int l = 0; l < last; l++)
		layer_forward(&stage->layers[l], rows, kept->x[l], kept->hidden[l], kept->x[l + 1]);
	tutti_rpc_param_unlock(visit->rpc, stage->params, stage->num_params);
	kept_free(kept_exchange(stage, visit->ticket.part, kept));
	if (++visit->ticket.at < visit->ticket.stages)
		return call_next(
			visit, "stage.forward",
			&(tutti_rpc_piece){kept->x[last], (size_t)(rows * WIDTH) * sizeof(float)},
			&(tutti_rpc_piece){labels, (size_t)rows * sizeof *labels});
	visit->loss = cross_entropy(rows, kept->x[last], labels);
	return tutti_rpc_reply_copy(visit->reply, &visit->loss, sizeof visit->loss);
}

static tutti_status stage_on_forward(void *arg, const tutti_rpc_request *request,
				     tutti_rpc_reply *reply)
{
	struct visit *visit;

	(void)arg;
	TRY(visit_begin(request, reply, &visit));
	size_t rows = (size_t)visit->ticket.rows, inputs = (size_t)visit->stage->layers[0].inputs;
	const char *data = (const char *)request->data + sizeof visit->ticket;
	const float *x = (const float *)data;
	const int32_t *labels = (const int32_t *)(data + rows * inputs * sizeof *x);
	tutti_status status;

	if (request->bytes == sizeof visit->ticket + rows * (inputs * sizeof *x + sizeof *labels))
		status = visit_forward(visit, x, labels);
	else
		status = tutti_set_error(TUTTI_ERR_INVALID,
					 "These are no samples of a micro-batch.");
	if (status != TUTTI_IN_PROGRESS)
		visit_end(visit);
	return status;
}

/* ---- backward ----------------------------------------------------------------------------- */
/* Adds the gradients of a layer, whose first parameter is the stage's number first. */
static tutti_status add_grads(struct stage *stage, const struct layer *layer, int first,
			      float *const grad[LAYER_PARAMS])
{
	for (int p = 0; p < LAYER_PARAMS && layer->count[p]; p++)
		TRY(tutti_rpc_context_add(stage->rpc, stage->params[first + p], grad[p],
					  layer->count[p]));
	return TUTTI_OK;
}

static int params_before(const struct stage *stage, int layer)
{
	int count = 0;

	for (int l = 0; l < layer; l++)
		for (int p = 0; p < LAYER_PARAMS; p++)
			count += stage->layers[l].count[p] != 0;
	return count;
}

/* dy becomes the gradient of the layer's input. */
static tutti_status layer_visit(struct stage *stage, int l, const struct kept *kept, float *dy)
{
	const struct layer *layer = &stage->layers[l];
	float *grad[LAYER_PARAMS], *dx = malloc((size_t)(kept->rows * layer->inputs) * sizeof *dx);
	size_t floats = 0;

	for (int p = 0; p < LAYER_PARAMS; p++)
		floats += layer->count[p];
	float *all = malloc(floats * sizeof *all);
	tutti_status status = all && dx ? TUTTI_OK : stage_no_memory();
	if (status == TUTTI_OK) {
		grad[0] = all;
		for (int p = 1; p < LAYER_PARAMS; p++)
			grad[p] = grad[p - 1] + layer->count[p - 1];
		layer_backward(layer, kept->rows, kept->x[l], kept->hidden[l], dy, dx, grad);
		memcpy(dy, dx, (size_t)(kept->rows * layer->inputs) * sizeof *dx);
		status = add_grads(stage, layer, params_before(stage, l), grad);
	}
	free(all);
	free(dx);
	return status;
}

static tutti_status visit_backward(struct visit *visit, const struct kept *kept, const float *dy)
{
	struct stage *stage = visit->stage;
	size_t rows = (size_t)kept->rows;
	size_t width = (size_t)stage->layers[stage->num_layers - 1].outputs;

	visit->dx = malloc(rows * WIDTH * sizeof *visit->dx); /* the widest */
	if (!visit->dx)
		return stage_no_memory();
	memcpy(visit->dx, dy, rows * width * sizeof *dy);
	TRY(tutti_rpc_param_lock(visit->rpc, stage->params, stage->num_params, 0));
	tutti_status status = TUTTI_OK;
	for (int l = stage->num_layers - 1; status == TUTTI_OK && l >= 0; l--)
		status = layer_visit(stage, l, kept, visit->dx);
	tutti_rpc_param_unlock(visit->rpc, stage->params, stage->num_params);
	if (status != TUTTI_OK || --visit->ticket.at < 0)
		return status;
	return call_next(visit, "stage.backward",
			 &(tutti_rpc_piece){visit->dx, rows * WIDTH * sizeof *visit->dx},
			 &(tutti_rpc_piece){NULL, 0});
}

/* The last stage gets no gradient: forward has left it in place of the logits. */
static tutti_status stage_on_backward(void *arg, const tutti_rpc_request *request,
				      tutti_rpc_reply *reply)
{
	struct visit *visit;

	(void)arg;
	TRY(visit_begin(request, reply, &visit));
	struct kept *kept = kept_exchange(visit->stage, visit->ticket.part, NULL);
	size_t bytes = request->bytes - sizeof visit->ticket;
	int is_last = visit->ticket.at == visit->ticket.stages - 1;
	const float *dy = (const float *)((const char *)request->data + sizeof visit->ticket);
	tutti_status status;

	if (kept && bytes == (is_last ? 0 : (size_t)kept->rows * WIDTH * sizeof *dy))
		status = visit_backward(visit, kept,
					is_last ? kept->x[visit->stage->num_layers] : dy);
	else
		status = tutti_set_error(TUTTI_ERR_INVALID, "There was no forward before.");
	kept_free(kept);
	if (status != TUTTI_IN_PROGRESS)
		visit_end(visit);
	return status;
}

const tutti_rpc_function stage_functions[STAGE_FUNCTIONS] = {
	{.name = "stage.make", .fn = on_make},
	{.name = "stage.forward", .fn = stage_on_forward},
	{.name = "stage.backward", .fn = stage_on_backward},
};
