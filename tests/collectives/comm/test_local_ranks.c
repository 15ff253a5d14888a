/* Would break: p processes of t ranks each do not make one communicator, or not on all of them; one
 * that dies does not take its t ranks with it, or takes others; new processes cannot come in its
 * place. */
#include "processes_of_threads.h"

#include "tests/ports.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static const struct {
	int processes, local_ranks;
} shapes[] = {
#if defined(__SANITIZE_THREAD__) /* it sees the threads of one process */
	{2, 2},
	{2, 4},
#else
	{1, 4}, {2, 1}, {2, 2}, {4, 1}, {2, 4}, {3, 2},
#endif
};
#define SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

/* body in every shape and way; at least so many processes. */
static void everywhere(void (*body)(const struct team *team), int least, unsigned may_die,
		       int restarts)
{
	for (int s = 0; s < SHAPES; s++)
		for (int w = 0; w < link_way_count && shapes[s].processes >= least; w++)
			team_run((struct team){.processes = shapes[s].processes,
					       .local_ranks = shapes[s].local_ranks,
					       .way = &link_ways[w]},
				 body, may_die, restarts);
}

static void check_sum(tutti_comm *comm)
{
	bool is_right;

	TEAM_OK(team_sum(comm, &is_right));
	TEAM_CHECK(is_right, "the sum over %d ranks is wrong", tutti_size(comm));
}

/* Where it is, as the topology of the processes has it. */
static void check_place(const struct team_rank *r)
{
	int t = r->team->local_ranks, p = r->team->processes;
	bool is_apart = r->team->way->is_apart;

	TEAM_CHECK(tutti_local_size(r->comm) == (is_apart ? t : p * t), "local size %d",
		   tutti_local_size(r->comm));
	TEAM_CHECK(tutti_local_rank(r->comm) == (is_apart ? r->local : r->rank), "local rank %d",
		   tutti_local_rank(r->comm));
	TEAM_CHECK(tutti_node_rank(r->comm) == (is_apart ? r->team->process : 0), "node %d",
		   tutti_node_rank(r->comm));
	TEAM_CHECK(tutti_num_nodes(r->comm) == (is_apart ? p : 1), "%d nodes",
		   tutti_num_nodes(r->comm));
}

/* Children across processes and inside one. */
static void check_children(const struct team_rank *r)
{
	tutti_comm *child;
	int last = tutti_size(r->comm) - 1, ends[] = {last, 0}, n = last > 0 ? 2 : 1;

	TEAM_OK(tutti_comm_split(r->comm, r->local, 0, NULL, &child));
	TEAM_CHECK(tutti_size(child) == r->team->processes, "%d in a child", tutti_size(child));
	check_sum(child);
	tutti_comm_destroy(child);
	TEAM_OK(tutti_comm_split(r->comm, r->team->process, -r->rank, NULL, &child));
	TEAM_CHECK(tutti_size(child) == r->team->local_ranks, "%d in a process's child",
		   tutti_size(child));
	check_sum(child);
	tutti_comm_destroy(child);
	TEAM_OK(tutti_comm_dup(r->comm, &child));
	check_sum(child);
	tutti_comm_destroy(child);
	if (r->rank != 0 && r->rank != last)
		return;
	TEAM_OK(tutti_comm_create_from(r->comm, ends, n, 7, NULL, &child));
	TEAM_CHECK(tutti_parent_rank(child, 0) == last, "rank 0 was %d",
		   tutti_parent_rank(child, 0));
	check_sum(child);
	tutti_comm_destroy(child);
}

/* Memory of all ranks, reached by threads and by processes. */
static void check_memory(const struct team_rank *r)
{
	tutti_mem_place place, all[PROCESSES_MOST * LOCAL_RANKS_MOST];
	int size = tutti_size(r->comm);
	int32_t *mine;

	for (int round = 0; round < 5; round++) {
		TEAM_OK(tutti_mem_alloc((void **)&mine, 4096 * sizeof *mine, r->comm));
		for (int i = 0; i < 4096; i++)
			mine[i] = r->rank + 1;
		tutti_status status = tutti_mem_place_of(&place, mine, 4096, r->comm);
		if (status == TUTTI_OK && place.allocation) {
			TEAM_OK(tutti_all_gather(&place, all, sizeof place, TUTTI_U8, r->comm,
						 NULL));
			for (int k = 0; k < size; k++) {
				const int32_t *at = tutti_mem_at(&all[k], 4096, r->comm);
				TEAM_CHECK(at && at[9] == k + 1, "rank %d's memory is %p", k,
					   (const void *)at);
			}
		}
		TEAM_OK(tutti_barrier(r->comm, NULL));
		TEAM_OK(tutti_all_reduce(mine, mine, 4096, TUTTI_I32, TUTTI_SUM, r->comm, NULL));
		TEAM_CHECK(mine[77] == size * (size + 1) / 2, "the sum is %d", (int)mine[77]);
		TEAM_OK(tutti_mem_free(mine));
	}
}

static void whole_rank(struct team_rank *r)
{
	check_place(r);
	check_sum(r->comm);
	check_children(r);
	check_memory(r);
}

static void whole_process(const struct team *team)
{
	team_ranks(team, whole_rank);
}

static void one_communicator_of_all(void **state)
{
	everywhere(whole_process, 1, 0, 0);
}

static void shrink(struct team_rank *r)
{
	tutti_comm *survivors = NULL;

	TEAM_OK(tutti_comm_shrink(r->comm, &survivors));
	tutti_comm_destroy(r->comm);
	r->comm = survivors;
}

/* The last process is killed once all its ranks have made a call; the others' next one fails. */
static void die_or_shrink(struct team_rank *r)
{
	static atomic_int here;
	int p = r->team->processes, t = r->team->local_ranks, failed[LOCAL_RANKS_MOST];
	bool is_right;

	check_sum(r->comm);
	TEAM_OK(tutti_barrier(r->comm, NULL));
	if (r->team->process == p - 1) {
		atomic_fetch_add(&here, 1);
		while (atomic_load(&here) < t)
			sched_yield();
		kill(getpid(), SIGKILL);
	}
	while (team_sum(r->comm, &is_right) == TUTTI_OK)
		TEAM_CHECK(is_right, "a wrong sum");
	TEAM_CHECK(tutti_comm_status(r->comm) == TUTTI_ERR_PEER, "%d",
		   (int)tutti_comm_status(r->comm));
	int n = tutti_comm_failed(r->comm, failed, LOCAL_RANKS_MOST);
	TEAM_CHECK(n >= 1 && n <= t && failed[0] >= (p - 1) * t, "%d failed, the first is %d", n,
		   failed[0]);
	shrink(r);
	TEAM_CHECK(tutti_size(r->comm) == (p - 1) * t, "%d go on", tutti_size(r->comm));
	TEAM_CHECK(tutti_rank(r->comm) == r->rank, "it is rank %d now", tutti_rank(r->comm));
	check_sum(r->comm);
}

static void dying_process(const struct team *team)
{
	team_ranks(team, die_or_shrink);
}

static void a_process_that_dies_takes_its_ranks(void **state)
{
	everywhere(dying_process, 2, ~0u, 0);
}

static void grow_again(struct team_rank *r)
{
	tutti_config config = {.rendezvous = r->team->rendezvous, .secret = "not much of a secret"};
	tutti_comm *grown = NULL;

	if (!r->team->is_new) {
		die_or_shrink(r);
		TEAM_OK(tutti_comm_grow(r->comm, r->team->processes * r->team->local_ranks, &config,
					&grown));
		tutti_comm_destroy(r->comm);
		r->comm = grown;
	}
	TEAM_CHECK(tutti_size(r->comm) == r->team->processes * r->team->local_ranks, "size %d",
		   tutti_size(r->comm));
	TEAM_CHECK(tutti_rank(r->comm) == r->rank, "it is rank %d now", tutti_rank(r->comm));
	check_place(r);
	check_sum(r->comm);
	check_memory(r);
}

static void growing_process(const struct team *team)
{
	team_ranks(team, grow_again);
}

static void a_new_process_brings_as_many(void **state)
{
	everywhere(growing_process, 2, ~0u, 1);
}

/* A rank aborts: all ranks of all processes hear of it. */
static void abort_rank(struct team_rank *r)
{
	bool is_right;
	tutti_status status;

	if (r->rank == 1) {
		check_sum(r->comm); /* of others it may fail: they may hear of the abort in it */
		TEAM_OK(tutti_comm_abort(r->comm));
	}
	while ((status = team_sum(r->comm, &is_right)) == TUTTI_OK)
		;
	TEAM_CHECK(status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_PEER, "%d", (int)status);
}

static void aborting_process(const struct team *team)
{
	team_ranks(team, abort_rank);
}

static void an_abort_ends_all(void **state)
{
	everywhere(aborting_process, 2, 0, 0);
}

/* As many ranks of the job, each a thread that calls tutti_init by itself. */
static void *init_alone(void *arg)
{
	struct team_rank *r = arg;
	tutti_config config = team_config(r->team);

	config.local_ranks = 0;
	config.rank = r->rank;
	config.world_size = r->team->processes * r->team->local_ranks;
	TEAM_OK(tutti_init(&r->comm, &config));
	whole_rank(r);
	tutti_comm_destroy(r->comm);
	return NULL;
}

static void process_of_single_ranks(const struct team *team)
{
	struct team_rank ranks[LOCAL_RANKS_MOST];
	pthread_t threads[LOCAL_RANKS_MOST];
	int t = team->local_ranks;

	for (int i = 0; i < t; i++) {
		ranks[i] = (struct team_rank){team, NULL, team->process * t + i, i};
		TEAM_CHECK(pthread_create(&threads[i], NULL, init_alone, &ranks[i]) == 0, "thread");
	}
	for (int i = 0; i < t; i++)
		pthread_join(threads[i], NULL);
}

static void threads_that_join_by_themselves(void **state)
{
	everywhere(process_of_single_ranks, 2, 0, 0);
}

/* The status and message of a tutti_init_all that fails, whose comms stay as they were. */
static void expect_error(int n, const tutti_config *config, tutti_status wanted, const char *says)
{
	tutti_comm *comms[LOCAL_RANKS_MOST] = {NULL};
	tutti_status status = tutti_init_all(comms, n, config);

	TEAM_CHECK(status == wanted, "%s, not %s", tutti_status_string(status),
		   tutti_status_string(wanted));
	TEAM_CHECK(strstr(tutti_comm_error(NULL), says), "it does not say \"%s\"", says);
	for (int i = 0; i < LOCAL_RANKS_MOST; i++)
		TEAM_CHECK(!comms[i], "a communicator after an error");
}

/* Both processes are told of both, in the order in which they came. */
static void check_both_are_named(int first, int second)
{
	char forms[2][80];

	snprintf(forms[0], sizeof forms[0],
		 "process 0 makes %d rank%s of the job, process 1 makes %d", first,
		 first == 1 ? "" : "s", second);
	snprintf(forms[1], sizeof forms[1],
		 "process 1 makes %d rank%s of the job, process 0 makes %d", second,
		 second == 1 ? "" : "s", first);
	TEAM_CHECK(strstr(tutti_comm_error(NULL), forms[0]) ||
			   strstr(tutti_comm_error(NULL), forms[1]),
		   "it names not both");
}

static void uneven_process(const struct team *team)
{
	tutti_config config = team_config(team);

	config.local_ranks += team->process;
	expect_error(config.local_ranks, &config, TUTTI_ERR_MISMATCH, "config.local_ranks");
	if (team->processes == 2)
		check_both_are_named(2, 3);
}

static void as_uneven_single_rank(const struct team *team)
{
	tutti_config config = team_config(team);
	tutti_comm *comm = NULL;

	if (team->process == 0) {
		expect_error(2, &config, TUTTI_ERR_MISMATCH, "config.local_ranks");
	} else {
		config.local_ranks = 0;
		TEAM_CHECK(tutti_init(&comm, &config) == TUTTI_ERR_MISMATCH && !comm, "joined");
	}
	check_both_are_named(2, 1);
}

static void uneven_processes_are_told(void **state)
{
	struct team team = {.processes = 2, .local_ranks = 2, .way = &link_ways[0]};

	team_run(team, uneven_process, 0, 0);
	/* More ranks come than the first process counts: the last ones are told, too. */
	team.processes = 3;
	team_run(team, uneven_process, 0, 0);
	team.processes = 2;
	team_run(team, as_uneven_single_rank, 0, 0);
}

/* A process never comes: the others name its ranks at the deadline. */
static void waiting_process(const struct team *team)
{
	tutti_config config = team_config(team);

	config.timeout_ms = 400;
	if (team->process == 0)
		expect_error(2, &config, TUTTI_ERR_TIMEOUT, "ranks 2, 3 missing");
}

static void a_process_that_is_missing_is_named(void **state)
{
	team_run((struct team){.processes = 2, .local_ranks = 2, .way = &link_ways[0]},
		 waiting_process, 0, 0);
}

static void wrong_numbers_process(const struct team *team)
{
	tutti_config config = team_config(team);
	tutti_comm *comm = NULL;

	expect_error(3, &config, TUTTI_ERR_INVALID, "config.local_ranks is 2");
	config.local_ranks = -1;
	expect_error(1, &config, TUTTI_ERR_INVALID, "must not be negative");
	config.local_ranks = 2;
	TEAM_CHECK(tutti_init(&comm, &config) == TUTTI_ERR_INVALID && !comm, "joined");
	config.world_size = 40000;
	expect_error(2, &config, TUTTI_ERR_INVALID, "a world has 65536 ranks at most");
	config.world_size = 2;
	config.rank = 2;
	expect_error(2, &config, TUTTI_ERR_INVALID, "config.rank is 2");
}

static void wrong_numbers_are_refused(void **state)
{
	team_run((struct team){.processes = 1, .local_ranks = 2, .way = &link_ways[0]},
		 wrong_numbers_process, 0, 0);
}

/* Without local_ranks the config's rank and world_size, and the environment, are not looked at. */
static void old_process(const struct team *team)
{
	tutti_config config = team_config(team);
	tutti_comm *comms[3];

	setenv("RANK", "5", 1);
	setenv("WORLD_SIZE", "7", 1);
	config.local_ranks = 0;
	config.rank = 9;
	TEAM_OK(tutti_init_all(comms, 3, &config));
	for (int i = 0; i < 3; i++) {
		TEAM_CHECK(tutti_rank(comms[i]) == i && tutti_size(comms[i]) == 3, "not alone");
		tutti_comm_destroy(comms[i]);
	}
}

static void without_it_the_process_is_alone(void **state)
{
	team_run((struct team){.processes = 1, .local_ranks = 3, .way = &link_ways[0]}, old_process,
		 0, 0);
}

/* TF_CONFIG of 2 workers, or of a chief and 2 workers, whose processes have 2 replicas each. */
static void tf_process(const struct team *team, const char *lists, const char *type, int index)
{
	char text[400];
	struct team mine = *team;

	snprintf(text, sizeof text,
		 "{\"cluster\": {%s}, \"task\": {\"type\": \"%s\", \"index\": %d}}", lists, type,
		 index);
	setenv("TF_CONFIG", text, 1);
	setenv("TUTTI_SECRET", "not much of a secret", 1);
	mine.rendezvous[0] = '\0';
	team_ranks(&mine, whole_rank);
}

static void tf_workers(const struct team *team)
{
	char lists[200];
	int port = atoi(strrchr(team->rendezvous, ':') + 1);

	snprintf(lists, sizeof lists, "\"worker\": [\"127.0.0.1:%d\", \"127.0.0.1:1\"]", port);
	tf_process(team, lists, "worker", team->process);
}

static void tf_chief(const struct team *team)
{
	char lists[200];
	int port = atoi(strrchr(team->rendezvous, ':') + 1), process = team->process;

	snprintf(lists, sizeof lists,
		 "\"worker\": [\"127.0.0.1:1\", \"127.0.0.1:2\"], \"chief\": [\"127.0.0.1:%d\"]",
		 port);
	tf_process(team, lists, process ? "worker" : "chief", process ? process - 1 : 0);
}

static void workers_of_several_replicas(void **state)
{
	for (int w = 0; w < link_way_count; w++) {
		struct team team = {.processes = 2, .local_ranks = 2, .way = &link_ways[w]};
		team_run(team, tf_workers, 0, 0);
		team.processes = 3;
		team_run(team, tf_chief, 0, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_communicator_of_all),
		cmocka_unit_test(a_process_that_dies_takes_its_ranks),
		cmocka_unit_test(a_new_process_brings_as_many),
		cmocka_unit_test(an_abort_ends_all),
		cmocka_unit_test(threads_that_join_by_themselves),
		cmocka_unit_test(uneven_processes_are_told),
		cmocka_unit_test(a_process_that_is_missing_is_named),
		cmocka_unit_test(wrong_numbers_are_refused),
		cmocka_unit_test(without_it_the_process_is_alone),
		cmocka_unit_test(workers_of_several_replicas),
	};

	test_ports();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
