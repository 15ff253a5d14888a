/* A child computes until its rank ends it or dies. */
#include "load.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The rank's connections are not kept open by its children. */
static _Noreturn void load_compute(pid_t rank)
{
	cpu_set_t all;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != rank)
		_exit(0);
	memset(&all, 0xff, sizeof all);
	sched_setaffinity(0, sizeof all, &all);
	closefrom(0);
	for (volatile unsigned long i = 0;; i++)
		;
}

bool load_start(struct load *load, int count)
{
	pid_t rank = getpid();

	load->processes = calloc((size_t)count + 1, sizeof *load->processes);
	for (load->count = 0; load->processes && load->count < count; load->count++) {
		pid_t child = fork();
		if (child == 0)
			load_compute(rank);
		if (child < 0)
			break;
		load->processes[load->count] = child;
	}
	if (load->count == count)
		return true;
	fprintf(stderr, "%s: %d of %d busy processes could be made: %s\n",
		program_invocation_short_name, load->count, count, strerror(errno));
	return false;
}

void load_stop(struct load *load)
{
	for (int i = 0; i < load->count; i++) {
		kill(load->processes[i], SIGKILL);
		waitpid(load->processes[i], NULL, 0);
	}
	free(load->processes);
	*load = (struct load){0};
}
