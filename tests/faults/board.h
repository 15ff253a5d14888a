/* The memory that the ranks of a job share with the process that drives it. Each rank writes down
 * what becomes of it, and asks here for a fault from outside. It outlives every rank. */
#ifndef TESTS_FAULTS_BOARD_H
#define TESTS_FAULTS_BOARD_H

#include "tests/faults/scenario.h"

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <sys/types.h>

#define EVENTS_MOST 160

enum happening {
	HAD_INIT,     /* tutti_init has returned                                            */
	HAD_FAILURE,  /* a call has failed, with the message                               */
	HAD_STEPS,    /* a segment's steps have ended well                                  */
	BEGAN_AGREE,  /* flag: what this rank says                                          */
	HAD_AGREE,    /* flag: the verdict                                                  */
	BEGAN_SHRINK, /* */
	HAD_SHRINK,   /* members: the new communicator                                      */
	BEGAN_GROW,   /* */
	HAD_GROW,     /* members: the new communicator                                      */
	HAD_ABORT,    /* tutti_comm_abort was called here                                   */
	LEAVES,       /* is about to destroy its last communicator                          */
};

/* Ranks are those of the first communicator, "ids", but in messages. */
struct event {
	enum happening what;
	int generation, segment;
	tutti_status status;
	uint32_t members, flag;
	uint32_t failed; /* the ranks that tutti_comm_failed names                            */
	uint64_t at_ns;
	int size;               /* of the communicator that the message is about         */
	int8_t ids[RANKS_MOST]; /* of its ranks                                           */
	bool is_child;          /* that communicator is a child of the present one        */
	char call[32];          /* what this rank called; "": several                     */
	char message[560];
};

struct seat {
	_Atomic pid_t pid;
	atomic_int count; /* of events; each takes the next place                          */
	atomic_int generation;
	atomic_bool is_over;
	_Atomic uint64_t inject_ns[FAULTS_MOST]; /* when its own fault is due, planned      */
	struct event events[EVENTS_MOST];
};

enum request { REQUEST_NONE, REQUEST_WANTED, REQUEST_DONE };

struct board {
	struct seat seats[RANKS_MOST];
	/* To the driver: a fault from outside is due. */
	struct {
		atomic_int state;
		_Atomic uint64_t due_ns;
	} requests[FAULTS_MOST];
	/* To the wire. */
	struct {
		atomic_int loss_permille, delay_us;
		_Atomic uint32_t down, side; /* hosts: unreachable; on one side of a cut, 0: none */
		_Atomic uint64_t carried, lost;
	} wire;
};

/* NULL: no memory. */
struct board *board_open(void);
void board_clear(struct board *board);
/* The next place for an event, filled in but for what is special; NULL: there are too many. */
struct event *board_note(struct seat *seat, enum happening what);
/* How many can be read. */
int board_count(const struct seat *seat);
void board_show(const struct board *board, int ranks, uint64_t since_ns);

#endif
