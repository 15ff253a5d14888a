/* Trains through the deaths of ranks in place: no process but the dead one starts again, and no
 * step is lost.
 *
 *     recover
 *         alone
 *     tuttirun -n 4 --max-restarts 9 --restart rank recover
 *         on four ranks, of which nine may die
 *     tuttirun -n 4 --max-restarts 9 --restart rank recover --strategy fsdp
 *         each rank holds a part of the model, and a shadow of its neighbour's
 *
 * Every function returns the status of its first call that failed, so that it arrives in main.
 * There tutti_recover makes a communicator of the ranks that live and those that are started again,
 * and remake a trainer that goes on where the one before has come to. */
#include "perceptron.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, EVALUATED = 256, JOIN_TRIES = 100 };

#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

struct run {
	tutti_train_config config;
	int64_t steps;
	tutti_comm *comm;
	tutti_trainer *trainer; /* the last one that was whole, or NULL */
	int ranks;              /* that there should be */
	int64_t step;           /* that comes next */
	double loss;
};

/* Ranks that have no part anywhere else: the newest checkpoint is what is left, or the beginning.
 */
static tutti_status in_place_take_over(struct run *run, tutti_trainer *trainer)
{
	tutti_status status = tutti_trainer_continue(trainer, run->trainer, &run->step);

	if (status != TUTTI_ERR_UNSUPPORTED)
		return status;
	if (tutti_rank(run->comm) == 0)
		fprintf(stderr, "recover: from the beginning: %s\n", tutti_comm_error(NULL));
	run->step = 0;
	return TUTTI_OK;
}

/* A trainer on run->comm. The one before stays until this one has all it needs. */
static tutti_status in_place_remake(struct run *run)
{
	tutti_trainer *trainer = NULL;
	tutti_model *model;

	TRY(perceptron_register(&model));
	tutti_status status = tutti_trainer_create(&trainer, model, run->comm, &run->config);
	tutti_model_destroy(model);
	if (status == TUTTI_OK)
		status = perceptron_init(trainer);
	if (status == TUTTI_OK)
		status = in_place_take_over(run, trainer);
	tutti_trainer *gone = status == TUTTI_OK ? run->trainer : trainer;
	if (status == TUTTI_OK)
		run->trainer = trainer;
	char why[512];
	snprintf(why, sizeof why, "%s", tutti_comm_error(NULL));
	tutti_trainer_destroy(gone);
	return tutti_set_error(status, why);
}

/* This rank's part of so many samples. */
static int in_place_share(const struct run *run, int samples, int more)
{
	return samples * (tutti_rank(run->comm) + more) / tutti_size(run->comm);
}

static tutti_status in_place_step_once(struct run *run)
{
	const tutti_optimizer adamw = {
		.kind = TUTTI_ADAMW, .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};
	double loss;

	TRY(perceptron_pass(run->trainer, TUTTI_PASS_LAST, run->step, in_place_share(run, BATCH, 0),
			    in_place_share(run, BATCH, 1), &loss));
	TRY(tutti_step(run->trainer, &adamw, 1, NULL));
	run->step++;
	return TUTTI_OK;
}

/* The mean loss over samples that no step has seen. */
static tutti_status in_place_evaluate(struct run *run)
{
	int first = in_place_share(run, EVALUATED, 0), last = in_place_share(run, EVALUATED, 1);
	double sum, items = last - first;

	TRY(perceptron_pass(run->trainer, TUTTI_PASS_EVAL, -1, first, last, &sum));
	return tutti_means(run->trainer, &sum, &items, &run->loss, 1);
}

static tutti_status in_place_train(struct run *run)
{
	while (run->step < run->steps) {
		if (run->step % 20 == 0) {
			TRY(in_place_evaluate(run));
			if (tutti_rank(run->comm) == 0)
				printf("step %lld   loss %.6f\n", (long long)run->step, run->loss);
			fflush(stdout);
		}
		TRY(in_place_step_once(run));
	}
	return in_place_evaluate(run);
}

/* From the beginning, or where the trainer before has come to, to the end. */
static tutti_status in_place_go_on(struct run *run)
{
	int is_new = !run->trainer && !getenv("TUTTI_RESTARTED");

	TRY(in_place_remake(run));
	if (tutti_rank(run->comm) == 0 && !is_new)
		fprintf(stderr, "recover: %d ranks go on from step %lld\n", tutti_size(run->comm),
			(long long)run->step);
	return in_place_train(run);
}

/* Other ranks may die while one that was started again joins: it tries once more. */
static tutti_status in_place_join(struct run *run)
{
	int tries = getenv("TUTTI_RESTARTED") ? JOIN_TRIES : 1;
	tutti_status status = TUTTI_ERR_PEER;

	while (tries-- > 0 && status == TUTTI_ERR_PEER)
		status = tutti_init(&run->comm, NULL);
	return status;
}

static int is_death(tutti_status status)
{
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED ||
	       status == TUTTI_ERR_TIMEOUT;
}

static int in_place_fail(const char *why)
{
	fprintf(stderr, "recover: %s\n", why);
	return 1;
}

static int in_place_read_options(struct run *run, int argc, char **argv)
{
	static const char *const strategies[] = {"ddp", "zero1", "zero2", "fsdp", "hsdp"};
	const struct option options[] = {{"steps", 1, NULL, 'n'}, {"strategy", 1, NULL, 's'}, {0}};
	int option;

	run->config = (tutti_train_config){.deterministic = 1, .shadow = 1};
	run->steps = 400;
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		int s = 5;
		if (option == 'n')
			run->steps = atoll(optarg);
		for (s = 0; option == 's' && s < 5 && strcmp(optarg, strategies[s]) != 0;)
			s++;
		if (option == '?' || s == 5)
			return 2;
		if (option == 's')
			run->config.strategy = (tutti_strategy)s;
	}
	return 0;
}

static int in_place_run_rank(int argc, char **argv)
{
	struct run run = {0};

	if (in_place_read_options(&run, argc, argv) != 0)
		return in_place_fail("options are --ranks N, --steps N and --strategy "
				     "ddp|zero1|zero2|fsdp|hsdp");
	tutti_status status = in_place_join(&run);
	if (status != TUTTI_OK)
		return in_place_fail(tutti_comm_error(NULL));
	run.ranks = tutti_size(run.comm);
	status = in_place_go_on(&run);
	while (is_death(status)) {
		status = tutti_recover(&run.comm, run.ranks);
		if (status == TUTTI_OK)
			status = in_place_go_on(&run);
	}
	if (status != TUTTI_OK)
		return in_place_fail(tutti_comm_error(NULL));
	if (tutti_rank(run.comm) == 0)
		printf("final loss %a on %d ranks\n", run.loss, tutti_size(run.comm));
	tutti_trainer_destroy(run.trainer);
	tutti_comm_destroy(run.comm);
	return 0;
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, in_place_run_rank);
}
