/* See ddp.h. Every rank has all rows, and the gradients of all rows are reduced, used or not. */
#include "ddp.h"

#include <stdlib.h>
#include <tutti/train.h>

struct replica {
	const struct job *job;
	tutti_trainer *trainer;
	struct model model;
	int32_t slot_of[ROWS];
	float rows[ROWS][DIM], rows_grad[ROWS][DIM];
};

static void set_first_values(struct replica *r)
{
	r->model.rows = r->rows;
	r->model.rows_grad = r->rows_grad;
	r->model.slot_of = r->slot_of;
	for (int i = 0; i < DENSE; i++)
		r->model.dense[i] = dense_init(i);
	for (int row = 0; row < ROWS; row++) {
		r->slot_of[row] = row;
		for (int i = 0; i < DIM; i++)
			r->rows[row][i] = row_init(row, i);
	}
}

/* Two parameters of one unit: each has a rate of its own. */
static tutti_status ddp_create_trainer(struct replica *r, tutti_comm *comm)
{
	tutti_model *model;

	TRY(tutti_model_create(&model));
	int unit = tutti_model_unit(model, "model");
	tutti_model_param_extern(model, unit, "dense", 1, (int64_t[]){DENSE}, TUTTI_F32,
				 r->model.dense, r->model.dense_grad, 0);
	int rows = tutti_model_param_extern(model, unit, "rows", 2, (int64_t[]){ROWS, DIM},
					    TUTTI_F32, r->rows, r->rows_grad, 0);
	tutti_status status = rows < 0 ? TUTTI_ERR_MEMORY : tutti_model_param_group(model, rows, 1);
	if (status == TUTTI_OK)
		status = tutti_trainer_create(&r->trainer, model, comm, NULL);
	tutti_model_destroy(model);
	return status;
}

static tutti_status print_loss(struct replica *r, int64_t step, double loss, double samples)
{
	double mean;

	TRY(tutti_means(r->trainer, &loss, &samples, &mean, 1));
	if (r->job->rank == 0)
		job_print_loss(step, mean);
	return TUTTI_OK;
}

static tutti_status ddp_step_once(struct replica *r, int64_t step)
{
	struct share share = share_of(BATCH, r->job->rank, r->job->size);
	int count = share.end - share.begin;
	struct sample samples[BATCH];
	tutti_optimizer sgd[2] = {{.kind = TUTTI_SGD, .lr = r->job->lr},
				  {.kind = TUTTI_SGD, .lr = r->job->lr * ROW_RATE}};

	for (int i = 0; i < count; i++)
		samples[i] = sample_of(step, share.begin + i);
	TRY(tutti_micro_batch(r->trainer, TUTTI_PASS_LAST, count, NULL));
	TRY(tutti_forward_begin(r->trainer, 0));
	TRY(tutti_forward_end(r->trainer, 0));
	TRY(tutti_backward_begin(r->trainer, 0));
	double loss = model_gradients(&r->model, samples, count, ROWS);
	TRY(tutti_backward_end(r->trainer, 0));
	TRY(tutti_step(r->trainer, sgd, 2, NULL));
	return step % r->job->print_every ? TUTTI_OK : print_loss(r, step, loss, count);
}

static void ddp_evaluate(const struct replica *r)
{
	struct sample samples[EVALUATED];

	for (int i = 0; i < EVALUATED; i++)
		samples[i] = sample_of(-1, i);
	if (r->job->rank == 0)
		job_print_final(model_loss(&r->model, samples, EVALUATED) / EVALUATED);
}

tutti_status ddp_run(tutti_comm *comm, const struct job *job)
{
	struct replica *r = calloc(1, sizeof *r);

	if (!r)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a replica");
	r->job = job;
	set_first_values(r);
	tutti_status status = ddp_create_trainer(r, comm);
	for (int64_t step = 0; step < job->steps && status == TUTTI_OK; step++)
		status = ddp_step_once(r, step);
	if (status == TUTTI_OK)
		ddp_evaluate(r);
	tutti_trainer_destroy(r->trainer);
	free(r);
	return status;
}
