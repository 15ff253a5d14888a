/* A parameter server: servers hold the parameters, workers pull them and push gradients, each at
 * its own pace. What PyTorch's tutorial on parameter servers and TensorFlow's
 * ParameterServerStrategy do; docs/parameter-server.md has both beside this.
 *
 *     parameter_server --ranks 5 --servers 2
 *         rank 0 and 1 are servers, three workers train synchronously
 *     parameter_server --ranks 5 --servers 2 --staleness 4
 *         a worker may be 4 steps ahead of the slowest one
 *     parameter_server --ranks 3 --ddp
 *         the same training by all_reduce
 *     tuttirun -n 5 --max-restarts 1 --restart rank parameter_server --staleness 4
 *         the others go on when a worker is killed
 *
 * Every function returns the status of its first call that failed, so that it arrives in main. */
#include "ddp.h"
#include "server.h"
#include "worker.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void job_print_loss(int64_t step, double loss)
{
	printf("step %lld   loss %.9f\n", (long long)step, loss);
	fflush(stdout);
}

void job_print_final(double loss)
{
	printf("final loss %.9f\n", loss);
	fflush(stdout);
}

/* Serves, works, or both, until all ranks are done. */
static tutti_status parameter_server_main_take_part(struct server *server, tutti_comm *comm,
						    const struct job *job)
{
	tutti_rpc_function functions[SERVER_FUNCTIONS];
	tutti_rpc_config config = {0};
	tutti_rpc *rpc;
	tutti_status status = TUTTI_OK;

	if (server) {
		server_functions(server, functions);
		config.functions = functions;
		config.num_functions = SERVER_FUNCTIONS;
		config.died = server_died;
		config.died_arg = server;
	}
	TRY(tutti_rpc_create(&rpc, comm, &config));
	if (job->rank >= job_first_worker(job))
		status = worker_run(rpc, job);
	if (status == TUTTI_OK && server)
		server_wait(server);
	if (status == TUTTI_OK)
		status = tutti_rpc_shutdown(rpc, -1);
	if (status != TUTTI_OK) {
		char why[512];
		snprintf(why, sizeof why, "%s", tutti_comm_error(NULL));
		tutti_rpc_abort(rpc);
		if (server)
			server_stop(server);
		tutti_rpc_destroy(rpc);
		return tutti_set_error(status, why);
	}
	tutti_rpc_destroy(rpc);
	return server ? server_end(server) : TUTTI_OK;
}

static tutti_status serve_and_work(tutti_comm *comm, const struct job *job)
{
	struct server *server = NULL;

	if (job->servers > job->size)
		return tutti_set_error(TUTTI_ERR_INVALID, "there are more servers than ranks");
	if (job_workers(job) > BATCH)
		return tutti_set_error(TUTTI_ERR_INVALID, "a batch has fewer samples than workers");
	if (job->rank < job->servers)
		TRY(server_create(&server, job));
	tutti_status status = parameter_server_main_take_part(server, comm, job);
	server_destroy(server);
	return status;
}

static int parameter_server_main_fail(const char *why)
{
	fprintf(stderr, "parameter_server: %s\n", why);
	return 1;
}

/* One rank of the job. */
static int parameter_server_main_run(struct job job)
{
	tutti_comm *comm;

	if (getenv("TUTTI_RESTARTED")) {
		fprintf(stderr, "parameter_server: a rank that was killed cannot come back; if it "
				"was a worker the others go on\n");
		return 0;
	}
	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return parameter_server_main_fail(tutti_comm_error(NULL));
	job.rank = tutti_rank(comm);
	job.size = tutti_size(comm);
	tutti_status status = job.ddp ? ddp_run(comm, &job) : serve_and_work(comm, &job);
	if (status != TUTTI_OK)
		parameter_server_main_fail(tutti_comm_error(NULL));
	tutti_comm_destroy(comm);
	return status != TUTTI_OK;
}

/* A whole number from least to most; *is_good stays 0 after a wrong one. */
static int64_t parameter_server_main_number(const char *text, int64_t least, int64_t most,
					    int *is_good)
{
	char *end;
	long long value = strtoll(text, &end, 10);

	if (end == text || *end || value < least || value > most)
		*is_good = 0;
	return value;
}

static float main_rate(const char *text, int *is_good)
{
	char *end;
	float value = strtof(text, &end);

	if (end == text || *end || !(value > 0 && value < 100))
		*is_good = 0;
	return value;
}

static int parameter_server_main_read_options(struct job *job, int argc, char **argv)
{
	const struct option options[] = {{"servers", 1, NULL, 's'},
					 {"staleness", 1, NULL, 'S'},
					 {"steps", 1, NULL, 'n'},
					 {"lr", 1, NULL, 'l'},
					 {"print-every", 1, NULL, 'p'},
					 {"ddp", 0, &job->ddp, 1},
					 {0}};
	int option, is_good = 1;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 's')
			job->servers = (int)parameter_server_main_number(optarg, 1, MOST_SERVERS,
									 &is_good);
		else if (option == 'S')
			job->staleness =
				(int)parameter_server_main_number(optarg, 0, MOST_STEPS, &is_good);
		else if (option == 'n')
			job->steps = parameter_server_main_number(optarg, 1, MOST_STEPS, &is_good);
		else if (option == 'p')
			job->print_every =
				parameter_server_main_number(optarg, 1, MOST_STEPS, &is_good);
		else if (option == 'l')
			job->lr = main_rate(optarg, &is_good);
		else if (option == '?')
			is_good = 0;
	}
	return is_good && optind == argc;
}

static const char usage[] =
	"usage: parameter_server [options], or with tuttirun -n N before it\n"
	"  --ranks N           starts so many ranks of itself\n"
	"  --servers K         ranks that hold the parameters, the first ones: 1 to 16 (1). The\n"
	"                      others are workers; with none left the servers are\n"
	"  --staleness S       steps that a worker may be ahead of the slowest one (0)\n"
	"  --steps N           (600)\n"
	"  --lr RATE           of SGD (0.1)\n"
	"  --print-every N     steps between losses that are printed (50)\n"
	"  --ddp               no servers: all ranks reduce their gradients\n";

static int parameter_server_main_work(int argc, char **argv)
{
	struct job job = {.servers = 1, .steps = 600, .print_every = 50, .lr = 0.1f};

	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (!parameter_server_main_read_options(&job, argc, argv))
		return parameter_server_main_fail(
			"a wrong option or number; --help says which there are");
	return parameter_server_main_run(job);
}

int main(int argc, char **argv)
{
	return tutti_main(argc, argv, parameter_server_main_work); /* with --ranks N: N of them */
}
