/* The machine's limits, and what Tutti costs apart from the data it moves: figures for
 * docs/performance.md and for the lines in perf/compare's curves. */
#ifndef PERF_LIMITS_H
#define PERF_LIMITS_H

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMITS_RANKS 8
#define LIMITS_MOST  128 /* of scale_point */

/* One rank's line of the plainest possible small all_reduce: see limits_call_raw_all_reduce. */
struct raw_line {
	_Alignas(128) _Atomic uint32_t sequence;
	float payload[4];
};

/* The results of many tries of one thing. */
struct spread {
	double best, low, middle, high; /* quartiles; best: least time, highest rate */
};

/* Memory that all ranks of a trial share, apart from the library. */
struct shared {
	struct {
		_Alignas(128) _Atomic int count;
	} met[LIMITS_MOST];                     /* meetings that each rank has come to */
	_Atomic bool is_over[2];                /* of limits_again */
	struct raw_line lines[2][LIMITS_RANKS]; /* by parity */
	double figures[LIMITS_MOST][8];         /* what each rank found */
	struct spread found;                    /* by rank 0 */
};

struct trial {
	int rank, ranks;
	bool is_pinned; /* each rank to a core of its own, as far as there are so many */
	struct shared *shared;
	void *arg;
	int looks;    /* a wait's, before each gives up the core: 0 where ranks share one */
	double until; /* when limits_again ends it */
};

/* Runs body as that many processes (tutti_spawn), in which tutti_init joins the others. Not 0 after a
 * message when one failed, died, or they took longer than limits_timeout_s; then all have been ended.
 * So a rank may wait for another without looking at a clock. */
int limits_run(struct trial *trial, int (*body)(struct trial *trial));
extern int limits_timeout_s;
/* tutti_init; the rank ends with a message when that fails. */
tutti_comm *limits_join(const struct trial *trial);
/* Waits until all ranks of the trial have come here as often as this one. */
void limits_meet(struct trial *trial);
/* Meets, before try number tries; false when there have been most of them, or a few and it takes
 * long. */
bool limits_again(struct trial *trial, int tries, int most);
/* Between two looks at what another rank is to write, which have their numbers. */
void limits_wait(const struct trial *trial, int look);
/* That many have no core each; asked of the process that starts them. */
bool limits_share_cores(int ranks);
void *limits_map(size_t bytes); /* shared with the processes it starts; NULL after a message */
int limits_cores(void);         /* that this process may use, at most LIMITS_RANKS */
double limits_now(void);
struct spread limits_lowest(double *values, int n); /* of times; sorts */
struct spread limits_rate(struct spread seconds, double amount);

/* For -J: what the measurements found. */
void limits_figure(const char *name, double value);
void limits_figure_spread(const char *name, struct spread found);
void limits_bandwidth_figure(const char *pattern, int cores, size_t bytes, struct spread gigabytes);
/* Prints that something cannot be measured here, which is no failure. */
void limits_skip(const char *what, const char *why);
bool limits_open(const char *path); /* before measuring; NULL: no file. False after a message */
int limits_close(bool is_complete); /* writes them, if they are complete */

/* The measurements, which have a trial's memory: each prints its lines. They return 0, or 1 when
 * something failed. */
int limits_bandwidth(struct trial *trial); /* memory, in the access patterns of collectives */
int limits_flag(struct trial *trial);      /* one signal from core to core */
int limits_loopback(struct trial *trial);  /* TCP */
int limits_call(struct trial *trial);      /* one blocking call against the fastest path */
int limits_idle(struct trial *trial);      /* what the helper thread uses */
int limits_gpu(struct trial *trial);       /* a GPU's memory, and its way to the host; skipped without one */

#if defined(__x86_64__)
#define pause_core() __builtin_ia32_pause()
#else
#define pause_core() __asm__ volatile("yield")
#endif

#endif
