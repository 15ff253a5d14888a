/* An inference server: rank 0 has a model, the other ranks ask it, and requests that wait are
 * computed together. What PyTorch's tutorial on batch RPC processing does with asynchronous
 * execution; docs/parameter-server.md has it beside this.
 *
 *     inference_server --ranks 4
 *         one server, three clients
 *     inference_server --ranks 4 --batch 32 --delay-us 500 --in-flight 32
 *         larger batches, for which a request may wait longer
 *     inference_server --export mlp.safetensors; inference_server --ranks 4 --model mlp.safetensors
 *         a model from a file
 *
 * Rounds with one request at a time and batched ones take turns, and the server prints how many
 * requests it answered a second, and how long they took. */
#include "client.h"
#include "rounds.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of rank 0; NULL on the other ranks. */
struct server {
	struct batcher *batcher;
	struct rounds *rounds;
};

static int main_fail(const char *why)
{
	fprintf(stderr, "inference_server: %s\n", why);
	return 1;
}

/* Asks, serves, or both, until all is done, and waits for the other ranks. */
static tutti_status main_use(const struct server *s, tutti_rpc *rpc, const struct job *job,
			     const struct mlp *mlp)
{
	if (job->rank >= job_first_client(job))
		TRY(client_run(rpc, job, mlp));
	if (s->rounds)
		rounds_wait(s->rounds);
	return tutti_rpc_shutdown(rpc, -1);
}

static tutti_status main_take_part(const struct server *s, tutti_comm *comm, const struct job *job,
				   const struct mlp *mlp)
{
	tutti_rpc_function functions[] = {
		{.name = INFER, .fn = batcher_infer, .arg = s->batcher},
		{.name = ROUND_END, .fn = rounds_end_one, .arg = s->rounds}};
	tutti_rpc_config config = {.calls = job->in_flight + 1};
	char why[512];
	tutti_rpc *rpc;

	if (s->rounds) {
		config.functions = functions;
		config.num_functions = 2;
		config.died = rounds_died;
		config.died_arg = s->rounds;
	}
	tutti_status status = tutti_rpc_create(&rpc, comm, &config);
	if (status == TUTTI_OK)
		status = main_use(s, rpc, job, mlp);
	else
		rpc = NULL;
	snprintf(why, sizeof why, "%s", tutti_comm_error(NULL));
	if (status != TUTTI_OK && rpc)
		tutti_rpc_abort(rpc);
	if (s->batcher) {
		batcher_stop(s->batcher);
		rounds_stop(s->rounds);
	}
	tutti_rpc_destroy(rpc);
	return status == TUTTI_OK ? status : tutti_set_error(status, why);
}

static tutti_status serve_or_ask(tutti_comm *comm, const struct job *job, const struct mlp *mlp)
{
	struct server s = {NULL, NULL};
	tutti_status status = TUTTI_OK;

	if (job->rank == SERVER)
		TRY(batcher_create(&s.batcher, job, mlp));
	if (s.batcher)
		status = rounds_create(&s.rounds, job, s.batcher);
	if (status == TUTTI_OK)
		status = main_take_part(&s, comm, job, mlp);
	else
		batcher_stop(s.batcher);
	if (status == TUTTI_OK && s.rounds)
		status = rounds_print(s.rounds);
	rounds_destroy(s.rounds);
	batcher_destroy(s.batcher);
	return status;
}

static tutti_status with_model(struct job *job)
{
	struct mlp mlp;
	tutti_comm *comm;
	char why[512];

	tutti_status status = mlp_create(&mlp, job->model);
	if (status == TUTTI_OK && job->export)
		status = mlp_export(&mlp, job->export);
	else if (status == TUTTI_OK)
		status = tutti_init(&comm, NULL);
	if (status == TUTTI_OK && !job->export) {
		job->rank = tutti_rank(comm);
		job->size = tutti_size(comm);
		status = serve_or_ask(comm, job, &mlp);
		snprintf(why, sizeof why, "%s", tutti_comm_error(NULL));
		tutti_comm_destroy(comm);
		tutti_set_error(status, why);
	}
	snprintf(why, sizeof why, "%s", tutti_comm_error(NULL));
	mlp_destroy(&mlp);
	return tutti_set_error(status, why);
}

/* One rank of the job. */
static int inference_server_main_run(struct job job)
{

	if (getenv("TUTTI_RESTARTED")) {
		fprintf(stderr, "inference_server: a rank that was killed cannot come back; if it "
				"was a client the others go on\n");
		return 0;
	}
	return with_model(&job) == TUTTI_OK ? 0 : main_fail(tutti_comm_error(NULL));
}

/* A whole number from least to most; *is_good becomes 0 after a wrong one. */
static int main_number(const char *text, int least, int most, int *is_good)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < least || value > most)
		*is_good = 0;
	return (int)value;
}

static int main_read_options(struct job *job, int argc, char **argv)
{
	static const struct option options[] = {
		{"batch", 1, NULL, 'b'},     {"delay-us", 1, NULL, 'd'}, {"queue", 1, NULL, 'q'},
		{"in-flight", 1, NULL, 'f'}, {"requests", 1, NULL, 'n'}, {"rounds", 1, NULL, 'R'},
		{"model", 1, NULL, 'm'},     {"export", 1, NULL, 'e'},   {0}};
	int option, is_good = 1;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'b')
			job->batch = main_number(optarg, 1, MOST_BATCH, &is_good);
		else if (option == 'd')
			job->delay_us = main_number(optarg, 0, 1000000, &is_good);
		else if (option == 'q')
			job->queue = main_number(optarg, 1, MOST_QUEUE, &is_good);
		else if (option == 'f')
			job->in_flight = main_number(optarg, 1, MOST_IN_FLIGHT, &is_good);
		else if (option == 'n')
			job->requests = main_number(optarg, 1, MOST_REQUESTS, &is_good);
		else if (option == 'R')
			job->rounds = main_number(optarg, 1, 1000, &is_good);
		else if (option == 'm')
			job->model = optarg;
		else if (option == 'e')
			job->export = optarg;
		else
			is_good = 0;
	}
	return is_good && optind == argc;
}

static const char usage[] =
	"usage: inference_server [options], or with tuttirun -n N before it\n"
	"  --ranks N           starts so many ranks of itself: rank 0 serves, the others ask\n"
	"  --batch B           requests that are computed together, at most: 1 to 64 (16)\n"
	"  --delay-us US       that a request waits for others, at most (200)\n"
	"  --queue Q           requests that wait, at most; others are refused (256)\n"
	"  --in-flight C       requests of one client at once: 1 to 256 (16)\n"
	"  --requests N        of one client in one round (500)\n"
	"  --rounds R          of both modes, one at a time and batched (8)\n"
	"  --model FILE        parameters from a safetensors file; otherwise seeded ones\n"
	"  --export FILE       writes the parameters, and ends\n";

static int inference_server_main_work(int argc, char **argv)
{
	struct job job = {.batch = 16,
			  .delay_us = 200,
			  .queue = 256,
			  .in_flight = 16,
			  .requests = 500,
			  .rounds = 8};

	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (!main_read_options(&job, argc, argv))
		return main_fail("a wrong option or number; --help says which there are");
	return inference_server_main_run(job);
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, inference_server_main_work); /* with --ranks N: N of them */
}
