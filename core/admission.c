/* One count for the whole process. */
#include "core/admission.h"

#include <assert.h>
#include <stdatomic.h>
#include <sys/resource.h>

static atomic_int strangers;

static int most_of_all(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
	    limit.rlim_cur / ADMISSION_SHARE > ADMISSION_MOST)
		return ADMISSION_MOST;
	return (int)(limit.rlim_cur / ADMISSION_SHARE);
}

bool admission_enter(int mine, int most)
{
	if (mine >= most)
		return false;
	/* Two that enter at the same time may be one too many: it is no exact bound. */
	if (mine >= ADMISSION_LEAST && atomic_load(&strangers) >= most_of_all())
		return false;
	atomic_fetch_add(&strangers, 1);
	return true;
}

void admission_leave(void)
{
	int before = atomic_fetch_sub(&strangers, 1);

	assert(before > 0);
	(void)before;
}
