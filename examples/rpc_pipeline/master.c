/* Training from one rank: forward of all micro-batches, backward of all, one step. */
#include "master.h"
#include "layers.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

/* A micro-batch in flight. Its memory is the call's until it is waited for. */
struct part {
	struct ticket ticket;
	tutti_rpc_future *future;
	tutti_rpc_answer answer;
	double loss;
};

struct master {
	tutti_rpc *rpc;
	const struct training *training;
	tutti_rpc_ref stage[STAGES_MOST];
	int made;
	float *x;
	int32_t *labels;
	struct part part[PARTS_MOST];
};

/* ---- data --------------------------------------------------------------------------------- */
static float random_number(int batch, int stream, int index)
{
	uint32_t bits = tutti_random(11, (uint64_t)batch, (uint64_t)stream, (uint64_t)index);

	return (float)(bits >> 8) / (1 << 23) - 1;
}

/* The class of a sample is where a fixed random matrix, squared by element, sends it. */
static int32_t label_of(const float *x)
{
	int32_t best = 0;
	float most = -1e30f;

	for (int c = 0; c < CLASSES; c++) {
		float sum = 0;
		for (int i = 0; i < INPUTS; i++)
			sum += random_number(-1, c, i) * x[i] * (1 + x[(i + c) % INPUTS]);
		if (sum > most) {
			most = sum;
			best = c;
		}
	}
	return best;
}

static void master_draw(struct master *master, int batch)
{
	for (int r = 0; r < master->training->batch; r++) {
		float *x = master->x + r * INPUTS;
		for (int i = 0; i < INPUTS; i++)
			x[i] = random_number(batch, r, i);
		master->labels[r] = label_of(x);
	}
}

/* ---- micro-batches ------------------------------------------------------------------------ */
/* Samples first to first + count of a part; parts differ by one sample at most. */
static int master_first_of(const struct training *t, int part)
{
	return (int)((int64_t)t->batch * part / t->split);
}

static tutti_status master_begin(struct master *master, const char *function, int at, int p,
				 const tutti_rpc_piece *data, int num_data)
{
	const struct training *t = master->training;
	struct part *part = &master->part[p];
	tutti_rpc_piece pieces[3] = {{&part->ticket, sizeof part->ticket}};

	part->ticket = (struct ticket){.part = p,
				       .rows = master_first_of(t, p + 1) - master_first_of(t, p),
				       .at = at,
				       .stages = t->stages};
	memcpy(part->ticket.stage, master->stage, sizeof master->stage);
	part->answer = (tutti_rpc_answer){.data = &part->loss, .bytes = sizeof part->loss};
	for (int i = 0; i < num_data; i++)
		pieces[i + 1] = data[i];
	return tutti_rpc_call_async(master->rpc, master->stage[at].owner, function, pieces,
				    1 + num_data, &part->answer, NULL, &part->future);
}

static tutti_status begin_forward(struct master *master, int p)
{
	int first = master_first_of(master->training, p);
	size_t rows = (size_t)(master_first_of(master->training, p + 1) - first);
	const tutti_rpc_piece data[] = {
		{master->x + first * INPUTS, rows * INPUTS * sizeof *master->x},
		{master->labels + first, rows * sizeof *master->labels},
	};

	return master_begin(master, "stage.forward", 0, p, data, 2);
}

/* The first failure's message is kept: that of calls which follow says less. */
static tutti_status wait_all(struct master *master, tutti_status status)
{
	char message[512] = "";

	if (status != TUTTI_OK)
		strncpy(message, tutti_comm_error(NULL), sizeof message - 1);
	for (int p = 0; p < master->training->split; p++) {
		tutti_status own = tutti_rpc_wait(&master->part[p].future, 0);
		if (own != TUTTI_OK && status == TUTTI_OK) {
			strncpy(message, tutti_comm_error(NULL), sizeof message - 1);
			status = own;
		}
	}
	return status == TUTTI_OK ? TUTTI_OK : tutti_set_error(status, message);
}

static tutti_status master_forward(struct master *master, double *loss)
{
	tutti_status status = TUTTI_OK;

	for (int p = 0; status == TUTTI_OK && p < master->training->split; p++)
		status = begin_forward(master, p);
	TRY(wait_all(master, status));
	*loss = 0;
	for (int p = 0; p < master->training->split; p++)
		*loss += master->part[p].loss / master->training->batch;
	return TUTTI_OK;
}

static tutti_status master_backward(struct master *master)
{
	tutti_status status = TUTTI_OK;

	for (int p = 0; status == TUTTI_OK && p < master->training->split; p++)
		status = master_begin(master, "stage.backward", master->training->stages - 1, p,
				      NULL, 0);
	return wait_all(master, status);
}

/* ---- a step ------------------------------------------------------------------------------- */
static tutti_status master_step(struct master *master, uint64_t context, double *loss)
{
	const struct training *t = master->training;
	const tutti_optimizer adamw = {
		.kind = TUTTI_ADAMW, .lr = t->lr, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f};
	const tutti_rpc_step_config config = {
		.groups = &adamw, .num_groups = 1, .items = t->batch, .max_grad_norm = t->max_norm};

	TRY(master_forward(master, loss));
	TRY(master_backward(master)); /* the calls carry the context */
	return tutti_rpc_context_step(master->rpc, context, &config, NULL);
}

/* The first failure, with its message. */
static tutti_status step_in_context(struct master *master, double *loss)
{
	uint64_t context;
	char message[512];

	TRY(tutti_rpc_context_begin(master->rpc, &context));
	tutti_status status = master_step(master, context, loss);
	strncpy(message, tutti_comm_error(NULL), sizeof message - 1);
	message[sizeof message - 1] = '\0';
	tutti_status ended = tutti_rpc_context_end(master->rpc, context, 0);
	return status == TUTTI_OK ? ended : tutti_set_error(status, message);
}

static double master_seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static tutti_status rpc_pipeline_master_train(struct master *master, struct training_result *result)
{
	double loss = 0, begun = master_seconds_now();

	for (int s = 0; s < master->training->steps; s++) {
		master_draw(master, s);
		TRY(step_in_context(master, &loss));
		if (s == 0)
			result->first_loss = loss;
		result->last_loss = loss;
	}
	result->seconds = master_seconds_now() - begun;
	return TUTTI_OK;
}

/* ---- stages ------------------------------------------------------------------------------- */
static tutti_status make_stages(struct master *master)
{
	int stages = master->training->stages, ranks = tutti_rpc_size(master->rpc);

	for (int s = 0; s < stages; s++) {
		const struct stage_layers layers = {LAYERS * s / stages,
						    LAYERS * (s + 1) / stages - 1};
		const tutti_rpc_piece piece = {&layers, sizeof layers};
		tutti_rpc_answer answer = {.data = &master->stage[s],
					   .bytes = sizeof *master->stage};
		TRY(tutti_rpc_call(master->rpc, ranks == 1 ? 0 : 1 + s % (ranks - 1), "stage.make",
				   &piece, 1, &answer, NULL));
		master->made++;
	}
	return TUTTI_OK;
}

tutti_status master_train(tutti_rpc *rpc, const struct training *training,
			  struct training_result *result)
{
	struct master master = {.rpc = rpc, .training = training};
	tutti_status status;

	master.x = malloc((size_t)(training->batch * INPUTS) * sizeof *master.x);
	master.labels = malloc((size_t)training->batch * sizeof *master.labels);
	if (!master.x || !master.labels)
		status = tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for a batch.");
	else
		status = make_stages(&master);
	if (status == TUTTI_OK)
		status = rpc_pipeline_master_train(&master, result);
	char message[512] = "";
	strncpy(message, tutti_comm_error(NULL), sizeof message - 1);
	for (int s = 0; s < master.made; s++)
		tutti_rpc_ref_release(rpc, &master.stage[s]);
	free(master.x);
	free(master.labels);
	return status == TUTTI_OK ? TUTTI_OK : tutti_set_error(status, message);
}
