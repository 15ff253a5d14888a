/* Kills ranks of examples/recover, linked into it: DEATHS deaths, one each EVERY steps, on another
 * rank each time. Where a rank dies goes by what all ranks have done, not by the clock: a rank can
 * do no step before all have recovered from the death before. When it dies within the step, or the
 * recovery, is left to a timer. At each third death another rank dies while the rest recovers.
 *
 * The file death.N in the working folder says that death N has begun, so that no rank begins it
 * again: processes come and go, and their numbers change. */
#include <tutti/train.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { EVERY = 40, STEP_US = 2000, RECOVERY_US = 100000 };

static tutti_comm *comm;
static int64_t steps;
static int will_die; /* in the next step, if its timer did not end it sooner */

/* At a random moment. SIGALRM ends the process as SIGKILL does: nothing catches it. */
static void die_within(long us)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	struct itimerval timer = {.it_value.tv_usec = 1 + now.tv_nsec / 100 % us};
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Whether this rank is the one that dies number's death. */
static int begins(int number, const char *which, int rank)
{
	char name[40];

	snprintf(name, sizeof name, "death.%d%s", number, which);
	if (tutti_rank(comm) != rank % tutti_size(comm))
		return 0;
	return open(name, O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
}

static int has_begun(int number)
{
	char name[40];

	snprintf(name, sizeof name, "death.%d", number);
	return access(name, F_OK) == 0;
}

tutti_status __real_tutti_trainer_create(tutti_trainer **, tutti_model *, tutti_comm *,
					 const tutti_train_config *);
tutti_status __wrap_tutti_trainer_create(tutti_trainer **trainer, tutti_model *model,
					 tutti_comm *of, const tutti_train_config *config);
tutti_status __wrap_tutti_trainer_create(tutti_trainer **trainer, tutti_model *model,
					 tutti_comm *of, const tutti_train_config *config)
{
	comm = of;
	return __real_tutti_trainer_create(trainer, model, of, config);
}

tutti_status __real_tutti_trainer_continue(tutti_trainer *, const tutti_trainer *, int64_t *);
tutti_status __wrap_tutti_trainer_continue(tutti_trainer *trainer, const tutti_trainer *before,
					   int64_t *from);
tutti_status __wrap_tutti_trainer_continue(tutti_trainer *trainer, const tutti_trainer *before,
					   int64_t *from)
{
	tutti_status status = __real_tutti_trainer_continue(trainer, before, from);

	steps = status == TUTTI_OK ? *from : 0;
	return status;
}

tutti_status __real_tutti_step(tutti_trainer *, const tutti_optimizer *, int, tutti_step_info *);
tutti_status __wrap_tutti_step(tutti_trainer *trainer, const tutti_optimizer *groups,
			       int num_groups, tutti_step_info *info);
tutti_status __wrap_tutti_step(tutti_trainer *trainer, const tutti_optimizer *groups,
			       int num_groups, tutti_step_info *info)
{
	const char *deaths = getenv("DEATHS");
	int next = 0;

	if (will_die)
		raise(SIGKILL);
	while (has_begun(next))
		next++;
	if (deaths && next < atoi(deaths) && steps >= (int64_t)EVERY * (next + 1) &&
	    begins(next, "", next)) {
		will_die = 1;
		die_within(STEP_US);
	}
	tutti_status status = __real_tutti_step(trainer, groups, num_groups, info);
	steps += status == TUTTI_OK;
	return status;
}

tutti_status __real_tutti_recover(tutti_comm **, int);
tutti_status __wrap_tutti_recover(tutti_comm **of, int size);
tutti_status __wrap_tutti_recover(tutti_comm **of, int size)
{
	int last = 0;

	comm = *of;
	while (has_begun(last + 1))
		last++;
	if (last % 3 == 2 && begins(last, ".again", last + 1)) {
		will_die = 1;
		die_within(RECOVERY_US);
	}
	return __real_tutti_recover(of, size);
}
