/* survive_main kills|agree|stop|memory [rounds [killed]]: a rank of a job in which ranks are killed
 * or stopped, and the others go on. Run by `ranks -k`, which takes a SIGKILL for a good end. SEED
 * decides who goes when: all ranks know it.
 *
 * What it must never see: a rank that hangs (ranks has a deadline), a group that differs between
 * its members, a sum that is wrong, a rank that was stopped and goes on by itself, a descriptor
 * that stays open. */
#include "../random.h"
#include "../entries.h"

#include <tutti/tutti.h>

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MOST 64
#define COUNT      20000
#define MEMORY     (3u << 20)

struct job {
	tutti_comm *comm;
	int id, rank, size;     /* id: the rank of the first communicator, for good       */
	int ids[RANKS_MOST];    /* of the present ones                                    */
	pid_t pids[RANKS_MOST]; /* by id                                                  */
	bool goes[RANKS_MOST];  /* by id: in this round                                   */
	uint64_t random;        /* the same on all ranks                                  */
	int32_t *data;
};

static struct job job;

#define CHECK(condition, ...)                                                                      \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%s:%d: rank %d of %d (first %d): %s: ", __FILE__, __LINE__,        \
			       job.rank, job.size, job.id, #condition);                            \
			printf(__VA_ARGS__);                                                       \
			printf(" [%s]\n", tutti_comm_error(NULL));                                 \
			fflush(stdout);                                                            \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)
#define CHECK_OK(call) CHECK((call) == TUTTI_OK, "failed")

static int below(int n)
{
	return (int)random_below(&job.random, (uint64_t)n);
}

/* Whether what lies at ptr is mapped for this process alone. */
static bool is_private(const void *ptr)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], kind[8] = "";
	unsigned long first, end;
	bool found = false;

	CHECK(maps, "/proc/self/maps");
	while (!found && fgets(line, sizeof line, maps))
		found = sscanf(line, "%lx-%lx %7s", &first, &end, kind) == 3 &&
			first <= (unsigned long)ptr && (unsigned long)ptr < end;
	fclose(maps);
	CHECK(found, "%p is not mapped", ptr);
	return kind[3] == 'p';
}

/* The ranks that are here, and a sum of theirs. Any error but a death is wrong; false if a rank has
 * died. */
static bool work_once(void)
{
	int ids[RANKS_MOST], sum = 0;
	tutti_status status = tutti_all_gather(&job.id, ids, 1, TUTTI_I32, job.comm, NULL);

	if (status == TUTTI_OK) {
		for (int r = 0; r < job.size; r++) {
			CHECK(ids[r] == job.ids[r], "rank %d is %d, was %d", r, ids[r], job.ids[r]);
			sum += ids[r] + 1;
		}
		for (int i = 0; i < COUNT; i++)
			job.data[i] = (job.id + 1) * (i % 7 + 1);
		status = tutti_all_reduce(job.data, job.data, COUNT, TUTTI_I32, TUTTI_SUM, job.comm,
					  NULL);
	}
	CHECK(status == TUTTI_OK || status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED ||
		      status == TUTTI_ERR_TIMEOUT,
	      "%s", tutti_status_string(status));
	for (int i = 0; status == TUTTI_OK && i < COUNT; i++)
		CHECK(job.data[i] == sum * (i % 7 + 1), "element %d is %d", i, job.data[i]);
	return status == TUTTI_OK;
}

/* The new communicator: of ranks of the old one, in their order, this one among them. */
static bool meet(void)
{
	int before[RANKS_MOST], n = 0;
	bool is_here = false;

	memcpy(before, job.ids, sizeof before);
	job.rank = tutti_rank(job.comm);
	job.size = tutti_size(job.comm);
	for (int r = 0; r < job.size; r++) {
		int old = tutti_parent_rank(job.comm, r);
		CHECK(old >= n, "rank %d was %d", r, old);
		n = old + 1;
		job.ids[r] = before[old];
		is_here |= before[old] == job.id && r == job.rank;
	}
	CHECK(is_here, "not one of its own communicator");
	return work_once();
}

static void shrink(void)
{
	tutti_comm *survivors = NULL;
	tutti_status status = tutti_comm_shrink(job.comm, &survivors);

	CHECK(status == TUTTI_OK, "shrink: %s", tutti_status_string(status));
	tutti_comm_destroy(job.comm);
	job.comm = survivors;
}

static bool anybody_goes(void)
{
	bool any = false;
	for (int r = 0; r < job.size; r++)
		any |= job.goes[job.ids[r]];
	return any;
}

static void *die_soon(void *arg)
{
	const struct timespec *t = arg;
	nanosleep(t, NULL); /* the point of the shrink at which this rank dies */
	kill(getpid(), SIGKILL);
	return NULL;
}

static void arrange_death(bool at_once, long after_ns)
{
	static struct timespec t;
	pthread_t thread;

	if (at_once)
		kill(getpid(), SIGKILL);
	t = (struct timespec){after_ns / 1000000000, after_ns % 1000000000};
	CHECK(pthread_create(&thread, NULL, die_soon, &t) == 0, "a thread");
	pthread_detach(thread);
}

/* Chooses which ranks die; never all. They die now, or while the others agree. */
static void choose(void)
{
	int count = below(3) ? 1 : 1 + below(job.size - 1);
	bool lowest = below(3) == 0, at_once = below(2);
	long most_ns = 200000l << below(8), after_ns = below((int)most_ns);

	memset(job.goes, 0, sizeof job.goes);
	for (int i = 0; i < count; i++)
		job.goes[job.ids[lowest && i == 0 ? 0 : below(job.size)]] = true;
	job.goes[job.ids[below(job.size)]] = false;
	if (job.goes[job.id])
		arrange_death(at_once, after_ns);
}

static void round_of_kills(void)
{
	choose();
	while (anybody_goes()) {
		while (work_once())
			;
		shrink();
		while (!meet())
			shrink();
	}
}

static void kills(int rounds)
{
	for (int i = 0; i < rounds && job.size > 1; i++)
		round_of_kills();
	/* Healthy: a copy. */
	shrink();
	CHECK(meet(), "a shrink in which nobody died");
}

/* What a rank was told must be what all others were told. */
static void compare(tutti_status status, int flag)
{
	int own[2] = {(int)status, flag}, all[2 * RANKS_MOST];

	while (tutti_all_gather(own, all, 2, TUTTI_I32, job.comm, NULL) != TUTTI_OK) {
		shrink();
		while (!meet())
			shrink();
	}
	for (int r = 0; r < job.size; r++)
		CHECK(all[2 * r] == own[0] && all[2 * r + 1] == own[1],
		      "told %d and %d, rank %d was told %d and %d", own[0], own[1], r, all[2 * r],
		      all[2 * r + 1]);
}

static void agree(int rounds)
{
	for (int i = 0; i < rounds && job.size > 1; i++) {
		int dissent = below(3) ? -1 : job.ids[below(job.size)], flag;
		for (int k = 0; k < 20; k++) {
			flag = job.id == dissent ? 2 : 3;
			CHECK_OK(tutti_comm_agree(job.comm, &flag));
			CHECK(flag == (dissent < 0 ? 3 : 2), "the verdict is %d", flag);
		}
		choose();
		tutti_status status = TUTTI_OK;
		while (status == TUTTI_OK && anybody_goes()) {
			flag = job.id == dissent ? 2 : 3;
			status = tutti_comm_agree(job.comm, &flag);
			CHECK(status == TUTTI_OK || status == TUTTI_ERR_PEER, "agree: %s",
			      tutti_status_string(status));
			CHECK(flag == 2 || flag == 3, "the verdict is %d", flag);
		}
		do
			shrink();
		while (!meet());
		compare(status, flag);
		while (anybody_goes()) {
			while (work_once())
				;
			shrink();
			while (!meet())
				shrink();
		}
	}
}

static void exchange_pids(void)
{
	int own = (int)getpid(), all[RANKS_MOST];

	CHECK_OK(tutti_all_gather(&own, all, 1, TUTTI_I32, job.comm, NULL));
	for (int r = 0; r < job.size; r++)
		job.pids[r] = all[r];
}

/* A rank is stopped until the others have gone on, and finds out that it is out. With two ranks, or
 * four of which two are stopped, only those with the lowest rank go on. Some die as well: of three
 * of which one is stopped and one is dead, the third goes on. */
static void stop(int stopped, int killed)
{
	int size = job.size - killed, first = size - stopped;
	tutti_comm *none = NULL;

	exchange_pids();
	if (job.id >= size)
		kill(getpid(), SIGKILL);
	if (job.id >= first) {
		raise(SIGSTOP);
		tutti_status status = tutti_comm_shrink(job.comm, &none);
		CHECK(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_PEER,
		      "stopped, and then: %s", tutti_status_string(status));
		CHECK(none == NULL, "a communicator after an error");
		CHECK(strlen(tutti_comm_error(NULL)) > 30, "no message");
		return;
	}
	while (work_once())
		;
	shrink();
	CHECK(meet(), "the first call");
	CHECK(job.size == first, "%d go on, not %d", job.size, first);
	if (job.rank == 0)
		for (int id = first; id < first + stopped; id++)
			kill(job.pids[id], SIGCONT);
	for (int i = 0; i < 200; i++)
		CHECK(work_once(), "who has woken up disturbs the others");
	/* They ask until their time is over: nobody may seem to have left until then. */
	for (int id = first; id < first + stopped; id++)
		while (kill(job.pids[id], 0) == 0 && work_once())
			nanosleep(&(struct timespec){0, 20000000}, NULL);
}

/* What lies in shared memory is there after a shrink, and may be used and freed. */
static void memory(int rounds)
{
	for (int round = 0; round < rounds && job.size > 1; round++) {
		void *ptr;
		CHECK_OK(tutti_mem_alloc(&ptr, MEMORY, job.comm));
		uint8_t *bytes = ptr;
		for (size_t i = 0; i < MEMORY; i++)
			bytes[i] = (uint8_t)(i * 7 + (size_t)job.id);
		CHECK_OK(tutti_barrier(job.comm, NULL));
		int before = job.size;
		round_of_kills();
		CHECK(job.size == before || (is_private(bytes) && is_private(bytes + MEMORY - 1)),
		      "who was left behind can write here");
		for (size_t i = 0; i < MEMORY; i++)
			CHECK(bytes[i] == (uint8_t)(i * 7 + (size_t)job.id), "byte %zu is %d", i,
			      bytes[i]);
		int32_t *numbers = ptr;
		int sum = 0;
		for (int r = 0; r < job.size; r++)
			sum += job.ids[r];
		for (int i = 0; i < COUNT; i++)
			numbers[i] = job.id;
		CHECK_OK(tutti_all_reduce(numbers, numbers, COUNT, TUTTI_I32, TUTTI_SUM, job.comm,
					  NULL));
		for (int i = 0; i < COUNT; i++)
			CHECK(numbers[i] == sum, "element %d is %d", i, numbers[i]);
		CHECK_OK(tutti_mem_free(ptr));
	}
}

int main(int argc, char **argv)
{
	const char *seed = getenv("SEED"), *pass = argc > 1 ? argv[1] : "kills";
	int number = argc > 2 ? atoi(argv[2]) : 100, descriptors = open_descriptors();

	job.random = seed ? strtoull(seed, NULL, 0) : 1;
	job.data = malloc(COUNT * sizeof *job.data);
	CHECK(job.data, "no memory");
	CHECK_OK(tutti_init(&job.comm, NULL));
	job.id = job.rank = tutti_rank(job.comm);
	job.size = tutti_size(job.comm);
	for (int r = 0; r < job.size; r++)
		job.ids[r] = r;
	CHECK(work_once(), "the first call");
	if (strcmp(pass, "kills") == 0)
		kills(number);
	else if (strcmp(pass, "agree") == 0)
		agree(number);
	else if (strcmp(pass, "stop") == 0)
		stop(number, argc > 3 ? atoi(argv[3]) : 0);
	else if (strcmp(pass, "memory") == 0)
		memory(number);
	else
		CHECK(false, "no pass is named %s", pass);
	tutti_comm_destroy(job.comm);
	CHECK(open_descriptors() == descriptors, "%d descriptors are open, at first %d",
	      open_descriptors(), descriptors);
	free(job.data);
	return 0;
}
