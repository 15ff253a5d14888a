/* See remains.h. */
#include "tests/faults/remains.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* UCX's own shared memory has a name for a moment before UCX takes the name away: a rank that is
 * killed there leaves it (docs/transports.md). */
static bool is_name(const char *name)
{
	return name[0] != '.' && strncmp(name, "ucx_shm_posix_", 14) != 0;
}

static int count_in(const char *path)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int count = 0;

	while (folder && (entry = readdir(folder)))
		count += is_name(entry->d_name);
	if (folder)
		closedir(folder);
	return count;
}

int remains_count(bool is_private)
{
	return is_private ? count_in("/dev/shm") + count_in("/tmp") : 0;
}

void remains_judge(struct verdict *v, int before, bool is_private)
{
	int count = remains_count(is_private);
	pid_t pid;

	if (count > before)
		judge_complain(v, "%d names are left in /dev/shm or /tmp", count - before);
	while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
		judge_complain(v, "a process is left%s", pid == 0 ? " that runs" : "");
		if (pid == 0)
			return;
	}
}

static void show(const char *command)
{
	fflush(stdout);
	if (system(command) != 0)
		printf("  (%s: failed)\n", command);
}

void remains_dump(const pid_t *pids, int ranks, const char *tutti_trace)
{
	char command[600];

	for (int r = 0; r < ranks; r++) {
		if (!pids[r])
			continue;
		printf("---- rank %d, process %d\n", r, (int)pids[r]);
		snprintf(
			command, sizeof command,
			"grep -H -e State -e Threads /proc/%d/status; for t in /proc/%d/task/*; do "
			"echo \"$t $(cat $t/wchan) $(cat $t/syscall)\"; done",
			(int)pids[r], (int)pids[r]);
		show(command);
		snprintf(command, sizeof command,
			 "if command -v gdb >/dev/null; then timeout 30 gdb -p %d -batch -ex "
			 "'thread "
			 "apply all bt 16' 2>/dev/null </dev/null | grep -e '^#' -e '^Thread'; fi",
			 (int)pids[r]);
		show(command);
		if (!tutti_trace)
			continue;
		snprintf(command, sizeof command, "timeout 20 '%s' dump %d -o - | tail -c 3000",
			 tutti_trace, (int)pids[r]);
		show(command);
	}
}
