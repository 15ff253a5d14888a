/* A user's program of all three libraries: a call on the next rank, and a step of a model of one
 * parameter. */
#include <tutti/rpc.h>
#include <tutti/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(tutti_status status)
{
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "%s\n", tutti_comm_error(NULL));
	exit(1);
}

static tutti_status add_one(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	int32_t number;

	(void)arg;
	memcpy(&number, request->data, sizeof number);
	number++;
	return tutti_rpc_reply_copy(reply, &number, sizeof number);
}

static void call_next(tutti_comm *comm)
{
	const tutti_rpc_function function = {.name = "add one", .fn = add_one};
	const tutti_rpc_config config = {.functions = &function, .num_functions = 1};
	int32_t number = 41;
	tutti_rpc_answer answer = {.data = &number, .bytes = sizeof number};
	const tutti_rpc_piece piece = {&number, sizeof number};
	tutti_rpc *rpc;

	must(tutti_rpc_create(&rpc, comm, &config));
	must(tutti_rpc_call(rpc, (tutti_rank(comm) + 1) % tutti_size(comm), "add one", &piece, 1,
			    &answer, NULL));
	must(tutti_rpc_shutdown(rpc, 0));
	tutti_rpc_destroy(rpc);
	must(number == 42 ? TUTTI_OK : TUTTI_ERR_INTERNAL);
}

/* The gradients are rank + 1; their mean is subtracted from 1. */
static void step(tutti_comm *comm)
{
	const tutti_train_config config = {.strategy = TUTTI_DDP};
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 1};
	const int64_t one = 1;
	float value = 1;
	tutti_model *model;
	tutti_trainer *trainer;

	must(tutti_model_create(&model));
	tutti_model_unit(model, "unit");
	tutti_model_param(model, 0, "weight", 1, &one, 0);
	must(tutti_trainer_create(&trainer, model, comm, &config));
	tutti_model_destroy(model);
	must(tutti_param_write(trainer, 0, 0, 1, &value));
	must(tutti_micro_batch(trainer, TUTTI_PASS_LAST, 1, NULL));
	must(tutti_forward_begin(trainer, 0));
	must(tutti_forward_end(trainer, 0));
	must(tutti_backward_begin(trainer, 0));
	float *grad = tutti_param_grad(trainer, 0);
	*grad = (float)(tutti_rank(comm) + 1);
	must(tutti_backward_end(trainer, 0));
	must(tutti_step(trainer, &sgd, 1, NULL));
	must(tutti_param_read(trainer, 0, 0, 1, &value));
	tutti_trainer_destroy(trainer);
	if (value != 1 - (float)(tutti_size(comm) + 1) / 2) {
		fprintf(stderr, "a step gave %g\n", (double)value);
		exit(1);
	}
}

int main(void)
{
	tutti_comm *comm;

	must(tutti_init(&comm, NULL));
	int rank = tutti_rank(comm), size = tutti_size(comm);
	call_next(comm);
	step(comm);
	printf("rank %d of %d, tutti %s: ok\n", rank, size, tutti_version());
	tutti_comm_destroy(comm);
	return 0;
}
