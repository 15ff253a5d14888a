/* scale_point: what one communicator of so many local ranks costs: time to join, memory of a rank,
 * and the latency of small calls. One point of perf/scale's table. */
#include "limits.h"
#include "measure.h"
#include "start.h"

#include "core/program/output.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define LARGEST ((size_t)1 << 20) /* bytes of the largest call before memory is looked at */
#define CALLS   100
#define ROUNDS  5

enum {
	INIT_S,
	INIT_CPU_S,
	INIT_KIB,
	USED_KIB,
	SHARED_KIB,
	DESCRIPTORS,
	ALL_REDUCE_S,
	BARRIER_S,
	FIGURES
};
static const char *const names[FIGURES] = {"init_ms",       "init_cpu_ms", "init_KiB",
					   "used_KiB",      "shared_KiB",  "descriptors",
					   "all_reduce_us", "barrier_us"};
static const double units[FIGURES] = {1e3, 1e3, 1, 1, 1, 1, 1e6, 1e6};

/* Kilobytes, of this process; what n processes share counts by an n-th. */
static double scale_point_pss(void)
{
	char line[200];
	double kilobytes = 0;
	FILE *file = fopen("/proc/self/smaps_rollup", "r");

	while (file && fgets(line, sizeof line, file))
		sscanf(line, "Pss: %lf", &kilobytes);
	if (file)
		fclose(file);
	return kilobytes;
}

/* Kilobytes of memory that ranks share: of all mappings of Tutti's memfds, each file counted once.
 */
static double scale_point_shared_kilobytes(void)
{
	char line[512];
	double bytes = 0;
	FILE *file = fopen("/proc/self/maps", "r");

	while (file && fgets(line, sizeof line, file)) {
		unsigned long from, to;

		if (strstr(line, "memfd:tutti-window") && sscanf(line, "%lx-%lx", &from, &to) == 2)
			bytes += (double)(to - from);
	}
	if (file)
		fclose(file);
	return bytes / 1024;
}

/* That the process has open. */
static double scale_point_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	double n = -3; /* itself, . and .. */

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static bool scale_point_use(tutti_comm *comm, unsigned char *buffer)
{
	for (size_t bytes = 8; bytes <= LARGEST; bytes *= 8) {
		if (tutti_all_reduce(buffer, buffer, bytes / 4, TUTTI_F32, TUTTI_SUM, comm, NULL) !=
		    TUTTI_OK)
			return false;
	}
	return tutti_barrier(comm, NULL) == TUTTI_OK;
}

static bool scale_point_call(tutti_comm *comm, bool is_barrier)
{
	float data[4] = {0};

	if (is_barrier)
		return tutti_barrier(comm, NULL) == TUTTI_OK;
	return tutti_all_reduce(data, data, 4, TUTTI_F32, TUTTI_SUM, comm, NULL) == TUTTI_OK;
}

/* The middle of a few rounds of many calls. */
static bool scale_point_latency(tutti_comm *comm, bool is_barrier, double *seconds)
{
	double rounds[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		double start = limits_now();

		for (int k = 0; k < CALLS; k++) {
			if (!scale_point_call(comm, is_barrier))
				return false;
		}
		rounds[i] = (limits_now() - start) / CALLS;
	}
	*seconds = measure_median(rounds, ROUNDS);
	return true;
}

/* All that is measured on a rank that has joined; memory by one rank of each process. */
static bool scale_point_measure(struct trial *t, tutti_comm *comm, double before, bool is_alone)
{
	double *figures = t->shared->figures[t->rank];
	unsigned char *buffer = calloc(1, LARGEST);
	bool is_well = buffer && tutti_barrier(comm, NULL) == TUTTI_OK;

	if (is_well && is_alone) {
		memset(buffer, 1, LARGEST); /* its own pages are not the library's */
		figures[INIT_KIB] = scale_point_pss() - before - LARGEST / 1024.0;
		figures[SHARED_KIB] = scale_point_shared_kilobytes() / t->ranks;
	}
	is_well = is_well && scale_point_use(comm, buffer);
	if (is_well && is_alone) {
		figures[USED_KIB] = scale_point_pss() - before - LARGEST / 1024.0;
		figures[DESCRIPTORS] += scale_point_descriptors();
	}
	is_well = is_well && tutti_barrier(comm, NULL) == TUTTI_OK &&
		  scale_point_latency(comm, false, &figures[ALL_REDUCE_S]) &&
		  scale_point_latency(comm, true, &figures[BARRIER_S]) &&
		  tutti_barrier(comm, NULL) == TUTTI_OK;
	if (!is_well)
		fprintf(stderr, "scale_point: rank %d: %s\n", t->rank,
			buffer ? tutti_comm_error(NULL) : "no memory for a buffer.");
	if (!is_well)
		tutti_comm_abort(comm); /* ranks that are threads need not wait for this one */
	free(buffer);
	return is_well;
}

static int scale_point_process(struct trial *t)
{
	double before = scale_point_pss(), start, cpu;
	double *figures = t->shared->figures[t->rank];
	tutti_comm *comm;
	bool is_well;

	limits_meet(t);
	figures[DESCRIPTORS] = -scale_point_descriptors();
	cpu = measure_seconds(CLOCK_PROCESS_CPUTIME_ID);
	start = limits_now();
	comm = limits_join(t);
	figures[INIT_S] = limits_now() - start;
	figures[INIT_CPU_S] = measure_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	is_well = scale_point_measure(t, comm, before, true);
	tutti_comm_destroy(comm);
	return !is_well;
}

static int scale_point_thread(tutti_comm *comm, const void *arg)
{
	struct trial t = *(const struct trial *)arg;

	t.rank = tutti_rank(comm);
	return !scale_point_measure(&t, comm, 0, false);
}

/* The process' memory is that of all ranks: each has its share of it. */
static int scale_point_threads(struct trial *t)
{
	tutti_comm *comms[LIMITS_MOST];
	double before = scale_point_pss(), start = limits_now();
	double cpu = measure_seconds(CLOCK_PROCESS_CPUTIME_ID);
	double share = 1.0 / t->ranks, opened = -scale_point_descriptors();
	double *figures = t->shared->figures[0];
	int code;

	if (tutti_init_all(comms, t->ranks, NULL) != TUTTI_OK) {
		fprintf(stderr, "scale_point: %s\n", tutti_comm_error(NULL));
		return 1;
	}
	figures[INIT_S] = limits_now() - start;
	figures[INIT_CPU_S] = (measure_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * share;
	figures[INIT_KIB] = (scale_point_pss() - before) * share;
	figures[SHARED_KIB] = scale_point_shared_kilobytes() * share;
	code = start_threads(comms, t->ranks, scale_point_thread, t);
	figures[USED_KIB] = (scale_point_pss() - before) * share;
	figures[DESCRIPTORS] = (opened + scale_point_descriptors()) * share;
	for (int i = 0; i < t->ranks; i++)
		tutti_comm_destroy(comms[i]);
	return code;
}

/* Joining is over with the slowest; memory is what a rank takes in the mean; time is rank 0's. */
static void scale_point_print(struct trial t, bool has_processes)
{
	printf("{\"ranks\": %d, \"kind\": \"%s\"", t.ranks,
	       has_processes ? "processes" : "threads");
	for (int figure = 0; figure < FIGURES; figure++) {
		double value = t.shared->figures[0][figure], sum = 0;

		for (int rank = 0; has_processes && rank < t.ranks; rank++) {
			double each = t.shared->figures[rank][figure];

			sum += each;
			value = figure == INIT_S && each > value ? each : value;
		}
		if (has_processes && figure != INIT_S && figure < ALL_REDUCE_S)
			value = sum / t.ranks;
		printf(", \"%s\": %.6g", names[figure], value * units[figure]);
	}
	printf("}\n");
}

int main(int argc, char **argv)
{
	bool has_processes = argc == 3 && strcmp(argv[1], "processes") == 0;
	struct trial t = {0};

	if (!output_open())
		return 1;
	if (argc == 3 && strspn(argv[2], "0123456789") == strlen(argv[2]))
		t.ranks = atoi(argv[2]);
	if ((!has_processes && (argc != 3 || strcmp(argv[1], "threads") != 0)) || t.ranks < 2 ||
	    t.ranks > LIMITS_MOST) {
		fprintf(stderr, "usage: scale_point processes|threads RANKS     (2 to %d)\n",
			LIMITS_MOST);
		return 2;
	}
	if (!has_processes) /* limits_run ends processes, and says why */
		alarm(120);
	t.shared = limits_map(sizeof *t.shared);
	if (!t.shared ||
	    (has_processes ? limits_run(&t, scale_point_process) : scale_point_threads(&t)) != 0)
		return 1;
	scale_point_print(t, has_processes);
	output_flush();
	return !output_is_well();
}
