/* tutti_means: weighted means over ranks. */
#include "train/base/base.h"
#include "train/state/trainer_state.h"

#include <string.h>

enum { MEANS_AT_ONCE = 256 };

static tutti_status means_of_some(tutti_trainer *trainer, const double *sums, const double *items,
				  double *means, size_t n)
{
	double both[2 * MEANS_AT_ONCE];

	memcpy(both, sums, n * sizeof *both);
	memcpy(both + n, items, n * sizeof *both);
	TRY(job_all_reduce(trainer, both, 2 * n, TUTTI_SUM));
	for (size_t i = 0; i < n; i++)
		means[i] = both[i] / both[n + i];
	return TUTTI_OK;
}

tutti_status tutti_means(tutti_trainer *trainer, const double *sums, const double *items,
			 double *means, int n)
{
	TRY(trainer_check(trainer, "tutti_means"));
	if (n < 0 || (n > 0 && (!sums || !items || !means)))
		return fail_invalid("tutti_means needs sums, items and means for %d values.", n);
	for (int i = 0; i < n; i += MEANS_AT_ONCE) {
		int some = n - i < MEANS_AT_ONCE ? n - i : MEANS_AT_ONCE;
		TRY(means_of_some(trainer, sums + i, items + i, means + i, (size_t)some));
	}
	return TUTTI_OK;
}
