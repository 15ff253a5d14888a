/* Processes know their parent: from /proc, of all of them, those below a tuttirun are found. */
#include "tools/job.h"

#include "core/machine.h"
#include "tools/must.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All processes that there are. */
struct family {
	int (*member)[2]; /* a process and its parent */
	size_t count, room;
};

static bool job_read_file(int pid, const char *file, char *text, size_t bytes)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
	return machine_text(path, text, bytes);
}

bool job_is_launcher(int pid)
{
	char name[32];

	return job_read_file(pid, "comm", name, sizeof name) && strcmp(name, "tuttirun\n") == 0;
}

/* The field behind the name, which may have brackets in it, and the state: proc(5). */
static int job_parent_of(int pid)
{
	char stat[1024];
	const char *end = job_read_file(pid, "stat", stat, sizeof stat) ? strrchr(stat, ')') : NULL;

	return end && strlen(end) > 4 ? atoi(end + 4) : 0;
}

static struct family job_read_family(void)
{
	struct family f = {0};
	struct dirent *entry;
	DIR *dir = opendir("/proc");

	while (dir && (entry = readdir(dir))) {
		int pid = atoi(entry->d_name);

		if (pid <= 0)
			continue;
		f.member = must_grow(f.member, f.count, &f.room, sizeof *f.member);
		f.member[f.count][0] = pid;
		f.member[f.count++][1] = job_parent_of(pid);
	}
	if (dir)
		closedir(dir);
	return f;
}

/* RANK in the environment that the process was started with. */
static int tools_job_rank_of(int pid)
{
	char path[64], *entry = NULL;
	size_t bytes = 0;
	int rank = -1;

	snprintf(path, sizeof path, "/proc/%d/environ", pid);
	FILE *file = fopen(path, "re");
	while (file && getdelim(&entry, &bytes, '\0', file) > 0)
		if (strncmp(entry, "RANK=", 5) == 0)
			rank = atoi(entry + 5);
	free(entry);
	if (file)
		fclose(file);
	return rank;
}

/* Adds a process and those below it. */
static void job_add(struct job_list *list, const struct family *f, struct job_process process)
{
	list->processes =
		must_have(realloc(list->processes, (list->count + 1) * sizeof *list->processes));
	list->processes[list->count++] = process;
	for (size_t i = 0; i < f->count; i++) {
		struct job_process child = process;

		child.pid = f->member[i][0];
		if (f->member[i][1] == process.pid && child.pid != process.pid)
			job_add(list, f, child);
	}
}

static int job_by_rank(const void *a, const void *b)
{
	const struct job_process *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

/* tuttirun's guard is no rank, nor is this process, if tuttirun has started it. The tuttirun of a
 * host that another one has started here (--hosts) has ranks. */
static void job_add_leaders(struct job_list *leaders, const struct family *f, int launcher)
{
	for (size_t i = 0; i < f->count; i++) {
		int pid = f->member[i][0];

		if (f->member[i][1] != launcher || pid == getpid())
			continue;
		if (job_is_launcher(pid)) {
			job_add_leaders(leaders, f, pid);
			continue;
		}
		leaders->processes = must_have(realloc(
			leaders->processes, (leaders->count + 1) * sizeof *leaders->processes));
		leaders->processes[leaders->count++] =
			(struct job_process){pid, pid, tools_job_rank_of(pid)};
	}
}

struct job_list job_list(int launcher)
{
	struct job_list list = {0}, leaders = {0};
	struct family f = job_read_family();

	job_add_leaders(&leaders, &f, launcher);
	if (leaders.count)
		qsort(leaders.processes, leaders.count, sizeof *leaders.processes, job_by_rank);
	for (size_t i = 0; i < leaders.count; i++)
		job_add(&list, &f, leaders.processes[i]);
	free(leaders.processes);
	free(f.member);
	return list;
}
