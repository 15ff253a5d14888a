/* See job.h. Everything it needs itself is there before anything can be refused. */
#include "tests/limits/job.h"

#include "core/net.h"
#include "tests/ports.h"

#include <assert.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LONG  30000
#define WORKS 3
#define MOST  8

/* Ranks may be threads. */
static _Thread_local int64_t in[LONG], out[LONG], works[WORKS][512];

static bool has_failed(struct job_of *job, const char *where, tutti_status status, tutti_comm *comm)
{
	if (status == TUTTI_OK)
		return false;
	if (job->where)
		return true; /* the first says why */
	job->where = where;
	job->status = status;
	snprintf(job->error, sizeof job->error, "%s", tutti_comm_error(comm));
	return true;
}

static void expect(struct job_of *job, int64_t value, int64_t right)
{
	job->wrong += value != right;
}

static bool reduce(struct job_of *job, tutti_comm *comm, size_t count)
{
	int size = tutti_size(comm), rank = tutti_rank(comm);

	for (size_t i = 0; i < count; i++)
		in[i] = (int64_t)i + rank;
	if (has_failed(job, "all_reduce",
		       tutti_all_reduce(in, out, count, TUTTI_I64, TUTTI_SUM, comm, NULL), comm))
		return false;
	for (size_t i = 0; i < count; i++)
		expect(job, out[i], (int64_t)i * size + size * (size - 1) / 2);
	return true;
}

static bool others(struct job_of *job, tutti_comm *comm)
{
	int size = tutti_size(comm), rank = tutti_rank(comm);
	size_t counts[MOST], offsets[MOST];

	for (int i = 0; i < size; i++) {
		counts[i] = 100;
		offsets[i] = (size_t)i * 100;
	}
	for (int i = 0; i < LONG; i++)
		in[i] = rank;
	if (has_failed(job, "broadcast",
		       tutti_broadcast(in, out, 1000, TUTTI_I64, size - 1, comm, NULL), comm))
		return false;
	expect(job, out[999], size - 1);
	if (has_failed(job, "all_gather", tutti_all_gather(in, out, 500, TUTTI_I64, comm, NULL),
		       comm))
		return false;
	expect(job, out[500 * (size - 1)], size - 1);
	if (has_failed(job, "all_to_allv",
		       tutti_all_to_allv(in, counts, offsets, out, counts, offsets, TUTTI_I64, comm,
					 NULL),
		       comm))
		return false;
	expect(job, out[offsets[size - 1]], size - 1);
	return !has_failed(job, "barrier", tutti_barrier(comm, NULL), comm);
}

static bool asynchronous(struct job_of *job, tutti_comm *comm)
{
	int size = tutti_size(comm);
	tutti_work *work[WORKS] = {NULL};
	bool is_well = true;

	for (int w = 0; w < WORKS && is_well; w++) {
		tutti_call call = {.work = &work[w]};
		for (int i = 0; i < 512; i++)
			works[w][i] = w + i;
		is_well = !has_failed(job, "an asynchronous all_reduce",
				      tutti_all_reduce(works[w], works[w], 512, TUTTI_I64,
						       TUTTI_SUM, comm, &call),
				      comm);
	}
	for (int w = 0; w < WORKS; w++) {
		if (!work[w])
			continue;
		if (has_failed(job, "wait", tutti_work_wait(&work[w], 0), comm))
			is_well = false;
		else
			expect(job, works[w][511], (w + 511) * size);
	}
	return is_well;
}

static bool messages(struct job_of *job, tutti_comm *comm, size_t count)
{
	int size = tutti_size(comm), rank = tutti_rank(comm);
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	tutti_status status = tutti_group_begin();

	for (size_t i = 0; i < count; i++)
		in[i] = rank;
	if (has_failed(job, "group_begin", status, NULL))
		return false;
	has_failed(job, "send", tutti_send(in, count, TUTTI_I64, to, comm, NULL), comm);
	has_failed(job, "recv", tutti_recv(out, count, TUTTI_I64, from, comm, NULL), comm);
	has_failed(job, "group_end", tutti_group_end(NULL), comm);
	if (job->where)
		return false;
	expect(job, out[count - 1], from);
	return true;
}

static bool shared_memory(struct job_of *job, tutti_comm *comm)
{
	void *memory = NULL;
	tutti_status status = tutti_mem_alloc(&memory, 100000, comm);

	if (status == TUTTI_ERR_UNSUPPORTED)
		return true;
	if (has_failed(job, "mem_alloc", status, comm))
		return false;
	job->kept = 4;
	return !has_failed(job, "mem_free", tutti_mem_free(memory), NULL);
}

static bool children(struct job_of *job, tutti_comm *comm)
{
	tutti_comm *child = NULL;
	bool is_well;

	if (has_failed(job, "split", tutti_comm_split(comm, 0, -tutti_rank(comm), NULL, &child),
		       comm))
		return false;
	job->in_child = true;
	is_well = reduce(job, child, 50) && reduce(job, child, LONG);
	job->in_child = !is_well;
	tutti_comm_destroy(child);
	return is_well;
}

void job_use(struct job_of *job, tutti_comm *comm)
{
	bool is_well = reduce(job, comm, 1) && reduce(job, comm, 1000) && reduce(job, comm, LONG) &&
		       others(job, comm) && asynchronous(job, comm) && messages(job, comm, 10) &&
		       messages(job, comm, LONG) && shared_memory(job, comm) &&
		       children(job, comm) && reduce(job, comm, 3);

	(void)is_well; /* job->where says */
}

void job_run(struct job_of *job)
{
	char where[64];
	tutti_config config = {.rank = job->rank,
			       .world_size = job->size,
			       .rendezvous = where,
			       .secret = "of the limits",
			       .transports = job->transports,
			       .timeout_ms = job->timeout_ms};
	tutti_comm *comm = NULL;

	job->where = NULL;
	job->in_child = false;
	job->wrong = 0;
	job->kept = 0;
	job->error[0] = '\0';
	snprintf(where, sizeof where, "tcp://127.0.0.1:%d", job->port);
	if (!has_failed(job, "init", tutti_init(&comm, &config), NULL))
		job_use(job, comm);
	tutti_comm_destroy(comm);
}

/* Looking takes a descriptor, which a low limit would refuse. */
int job_open_files(void)
{
	struct rlimit limit, lifted;
	DIR *dir;
	int n = 0;

	assert(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	lifted = limit;
	lifted.rlim_cur = limit.rlim_max;
	assert(setrlimit(RLIMIT_NOFILE, &lifted) == 0);
	dir = opendir("/proc/self/fd");
	assert(dir);
	for (struct dirent *e; (e = readdir(dir));)
		n += e->d_name[0] != '.';
	closedir(dir);
	assert(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	return n - 1;
}

int job_free_port(void)
{
	static int used;
	int port, fd;

	do
		port = test_ports() + used++ % TEST_PORTS;
	while (net_listen("127.0.0.1", port, 1, &fd, NULL) != TUTTI_OK);
	close(fd);
	return port;
}
