/* What one number stands for: a job of a few ranks, what they do, and what happens to them. A pure
 * function of the seed and of what was asked for: the same on every machine. */
#ifndef TESTS_FAULTS_SCENARIO_H
#define TESTS_FAULTS_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MOST    8
#define SEGMENTS_MOST 3
#define FAULTS_MOST   2

/* How the ranks are connected. */
enum way {
	WAY_WINDOW, /* one node, shared memory            */
	WAY_SHM,    /* one node, messages by shm          */
	WAY_TCP,    /* one node, messages by tcp          */
	WAY_NODES,  /* two or three nodes by TUTTI_HOST_ID: shm within, tcp across            */
	WAY_HOSTS,  /* the same, but each node has a network of its own, and a wire joins them */
	WAY_VERBS,  /* one node, messages by verbs: no seed draws it, it is asked for by name */
	WAY_UCX,    /* one node, messages by ucx: likewise                                    */
	WAY_GPUS,   /* one node, a GPU for each rank, whose kernels meet: likewise            */
	WAYS,
};

enum kind {
	KIND_KILL,   /* SIGKILL of one rank, or of several at once                           */
	KIND_STOP,   /* SIGSTOP, for longer than others wait; SIGCONT when they have gone on */
	KIND_NAP,    /* ... for so short a time that nobody may notice                       */
	KIND_ABORT,  /* tutti_comm_abort by one rank                                         */
	KIND_CLOSE,  /* a socket between two living ranks is shut down from outside          */
	KIND_RESET,  /* a tcp connection between two living ranks is reset from outside      */
	KIND_LOSS,   /* packets between hosts are dropped and delayed                        */
	KIND_FLAP,   /* a host's link goes down, and soon up again                           */
	KIND_CUT,    /* the hosts fall into two groups that do not reach each other          */
	KIND_VANISH, /* a host's link goes down for good, and its ranks with it              */
	KIND_LATE,   /* KIND_STOP where deadlines pass before TUTTI_SILENCE_MS               */
	KINDS,
};

/* Where it happens: at or soon after the beginning of... */
enum point {
	POINT_INIT,
	POINT_CALL,
	POINT_SPLIT,
	POINT_AGREE,
	POINT_SHRINK, /* the shrink after another rank was killed in a call */
	POINT_DESTROY,
	POINT_GROW, /* the grow after that shrink, or the tutti_init of who comes in the dead one's
		       place */
	POINTS,
};

struct fault {
	enum kind kind;
	enum point point;
	int segment, step; /* of the first generation, where the point is in its program */
	uint32_t victims;  /* ranks; of KIND_CUT all on one side                         */
	int trigger;       /* whose coming to the point lets it happen                   */
	bool holds;        /* that rank waits until it has happened                      */
	uint64_t after_ns[RANKS_MOST]; /* from the point on; by victim, [trigger] where it has none
					*/
	uint32_t lasts_ms; /* KIND_NAP, KIND_FLAP                                        */
	int loss_permille, delay_us; /* KIND_LOSS */
	bool wakes_late; /* KIND_STOP: when the others have ended                      */
};

struct scenario {
	uint64_t seed;
	enum way way;
	int ranks, hosts;
	bool grows;  /* in the place of the first victim comes another, by the number `ranks`   */
	bool agrees; /* each segment ends with tutti_comm_agree; else failures go to shrink */
	bool has_memory; /* of tutti_mem_alloc                                                  */
	int segments, steps;
	bool is_summed;             /* TUTTI_CHECKSUM=1                                           */
	int reconnect;              /* TUTTI_RECONNECT; -1: as the library has it                 */
	int timeout_ms, silence_ms; /* TUTTI_TIMEOUT_MS, TUTTI_SILENCE_MS                         */
	struct fault faults[FAULTS_MOST];
	int fault_count;
};

/* What is asked for; -1: whatever the seed says. */
struct wish {
	int way, kind, point, reconnect;
};

void scenario_draw(struct scenario *s, uint64_t seed, const struct wish *wish);
/* Whether a seed can have that: a socket's fault needs sockets, a host's needs hosts. */
bool scenario_is_possible(const struct wish *wish);
/* How many processes there may be: the ranks, and those that join later. */
int scenario_seats(const struct scenario *s);
/* SIGSTOP until the others have gone on. */
static inline bool is_long_stop(enum kind kind)
{
	return kind == KIND_STOP || kind == KIND_LATE;
}

/* The fault that the run is about: the last one. */
const struct fault *scenario_fault(const struct scenario *s);
int scenario_host(const struct scenario *s, int rank);
uint32_t scenario_ranks_of(const struct scenario *s, int host);
/* One line. */
#define SCENARIO_TEXT 400
const char *scenario_words(const struct scenario *s, char *text);

extern const char *const way_names[WAYS], *const kind_names[KINDS], *const point_names[POINTS];
/* -1: there is none of that name. */
int name_find(const char *const *names, int count, const char *name);

#endif
