/* What Tutti costs apart from the data it moves: figures for docs/performance.md. */
#ifndef PERF_LIMITS_H
#define PERF_LIMITS_H

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <stdint.h>

#define LIMITS_RANKS 8

/* One rank's line of the plainest possible small all_reduce: see raw_all_reduce. */
struct raw_line {
	_Alignas(128) _Atomic uint32_t sequence;
	float payload[4];
};

/* Memory that all ranks of a trial share, apart from the library. */
struct shared {
	_Atomic int arrived[4];                       /* meeting points, each used once           */
	struct raw_line lines[2][LIMITS_RANKS];       /* by parity                                */
	double figures[LIMITS_RANKS][4];              /* what each rank found                     */
};

struct trial {
	int rank, ranks;
	struct shared *shared;
	tutti_config config;                          /* for tutti_init                           */
};

/* Waits until all ranks of the trial have come to this point. */
void limits_meet(struct trial *trial, int point);
/* Runs body as that many processes; false after a sentence when one failed. */
int limits_run(int ranks, struct shared *shared, int (*body)(struct trial *trial));
double limits_now(void);

/* The measurements: each prints its line. They return 0, or 1 when something failed. */
int limits_call(void);        /* one blocking call against the fastest path */
int limits_join(void);        /* how long 8 ranks take to join              */
int limits_idle(void);        /* what the helper thread uses                */
int limits_memory(void);      /* of each rank                               */

#endif
