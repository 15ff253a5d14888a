/* How long the calls of a communicator wait before it fails, and while it does: the tables of
 * docs/failure.md and docs/consensus.md, which tests/lint compares with this file. Times of
 * joining are in core/join/, those of a connection in its transport. Users may set
 * TUTTI_TIMEOUT_MS and TUTTI_SILENCE_MS (core/env.h). */
#ifndef COLLECTIVES_CONTROL_DEADLINES_H
#define COLLECTIVES_CONTROL_DEADLINES_H

/* Waits. */
#define SLOW_MS                 20   /* a wait looks around from here on ... */
#define LOOK_AROUND_MS          1    /* ... as often as this */
#define DEATH_MATTERS_MS        1000 /* a death fails any wait that lasts longer */
#define ANSWER_MS               1000 /* a neighbour that is asked after a deadline answers */
#define ANSWERS_MS              2000 /* a call waits past its deadline for all answers, at most */
#define END_WELL_MS             200  /* calls that the failed rank has finished may end */

/* Suspicions. */
#define EXPLAIN_LOST_MS         2000 /* a broken connection of a collective waits for its reason */
#define EXPLAIN_LOST_MESSAGE_MS 200  /* the same where a send or recv alone uses it */
#define EXPLAIN_MISMATCH_MS     1000 /* shorter than EXPLAIN_LOST_MS, so that it comes first */

/* The board. */
#define BOARD_COMPARE_MS        20   /* between two comparisons of call records */
#define BOARD_DEATHS_MS         5    /* between two looks for deaths */
#define BOARD_WATCH_MS          250  /* between two looks at processes, at most */

/* The ring. */
#define RING_LOOK_MS            50   /* kept call records, and silence, are looked at */
#define WATCH_MS                1000 /* between two questions to a neighbour, at most */
#define LAST_WORD_MS            200  /* while joining: a reason may come by the other neighbour */
#define GOODBYE_MS              500  /* last words; a decision that others do not know yet */

/* Consensus. */
#define BEAT_LEAST_MS           2    /* a leader repeats itself ... */
#define BEAT_MOST_MS            100  /* ... and waits this long at the most to do so */
#define NEXT_LEADER_MS          5000 /* a next leader may take to speak, at the most */
#define AGREEMENT_TIMEOUTS      6    /* timeouts that end an agreement without a decision */
#define LINK_REST_MS            50   /* between two connections, after eight that failed */

/* Others. */
#define REPLAYS_MS              100  /* between two looks at kernels of captured calls */
#define WAKE_OTHERS_MS          200  /* a shrink fails a communicator in which others may wait */
#define LEAVING_MS              1000 /* a rank's last words to the peers of its sends and recvs */

#endif
