/* One agreement among ranks of which some may die: which ranks take part, and the record of each. A
 * state machine without I/O and without a clock: its owner passes it the time, the messages of
 * other ranks and the ranks that are known to be dead, and sends its messages.
 *
 * The leader of a rank is the lowest rank that it believes to be alive. It follows its leader
 * alone.
 *
 *     CALL     leader -> all      who is there? Opens a ballot, a number that only it uses
 *     JOIN     rank -> leader     I am, with this record, and the value that I have accepted, if
 *                                 any. I accept nothing under an older ballot any more
 *     PROPOSE  leader -> joined   the value: members, missing and dead ranks, the members' records
 *     ACCEPT   rank -> leader
 *     DECIDE   leader -> all      all ranks that had joined have accepted the value
 *     REFUSE   rank -> leader     I have promised more to a later ballot
 *     HOPELESS leader -> all      too few ranks to decide anything, and none left to wait for
 *     ASK      rank -> leader     I hear nothing from you: call me, or say what was decided
 *     KNOWN    rank -> leader     I know the decision; until then it is repeated if it may be lost
 *
 * It is Paxos whose quorum is all ranks that have joined, where these are enough (quorum.h).
 * docs/consensus.md says which ranks may have different values in the end: none whose groups both
 * have all of their members alive. */
#ifndef COLLECTIVES_CONTROL_AGREEMENT_H
#define COLLECTIVES_CONTROL_AGREEMENT_H

#include "collectives/control/quorum.h"

#include <stddef.h>
#include <stdint.h>

enum agreement_kind {
	AGREEMENT_NOTHING, AGREEMENT_CALL, AGREEMENT_JOIN, AGREEMENT_PROPOSE, AGREEMENT_ACCEPT,
	AGREEMENT_DECIDE, AGREEMENT_REFUSE, AGREEMENT_HOPELESS, AGREEMENT_ASK, AGREEMENT_KNOWN,
	AGREEMENT_KINDS
};

enum agreement_end {
	AGREEMENT_OPEN,
	AGREEMENT_DECIDED,      /* this rank is a member                                       */
	AGREEMENT_LEFT_OUT,     /* decided without this rank                                   */
	AGREEMENT_NO_QUORUM     /* not decided here, and it never will be                      */
};

/* A value's entry for each rank. */
enum agreement_mark { MARK_NO_CANDIDATE, MARK_MEMBER, MARK_DEAD, MARK_MISSING };

struct agreement_message {
	enum agreement_kind kind;
	bool is_fresh;          /* JOIN with accepted, PROPOSE: of the value: see agreement.c     */
	uint64_t ballot;
	uint64_t accepted;      /* JOIN: the ballot under which value was accepted, or 0        */
	const uint8_t *record;  /* JOIN                                                        */
	const uint8_t *value;   /* JOIN with accepted, PROPOSE, DECIDE; HOPELESS: marks only */
	const uint8_t *gone;    /* PROPOSE: by rank, 1 if the leader knows it to be dead        */
};

struct agreement_config {
	int rank, size;
	const bool *candidates;         /* by rank, this one among them; copied                 */
	const void *record;             /* copied                                              */
	size_t record_bytes;            /* the same on all ranks                               */
	const struct quorum *quorum;  /* copied; NULL: the ranks are its voters             */
	uint64_t grace_ns;              /* how long a silent rank is waited for                 */
	uint64_t late_ns;               /* and so much longer for one that has yet to begin     */
	uint64_t now_ns;
};

/* A value: a mark for each rank, then a record for each, of which the members' count. */
static inline size_t agreement_value_bytes(int size, size_t record_bytes)
{
	return (size_t)size * (1 + record_bytes);
}

struct agreement_seat {
	bool is_candidate, is_dead;
	bool is_suspect;                /* silent for too long                                 */
	bool has_joined, has_accepted;  /* the current ballot of this rank                     */
	bool knows;                     /* the decision                                        */
	enum agreement_kind due;        /* the next message to it                              */
	uint64_t heard_ns, told_ns;     /* 0 before the first time                             */
	uint64_t accepted;              /* the ballot of the value that it joined with         */
	uint64_t called;                /* the ballot of its CALL, or 0                         */
};

enum agreement_phase { AGREEMENT_FOLLOWS, AGREEMENT_COLLECTS, AGREEMENT_PROPOSES };

struct agreement {
	int rank, size;
	size_t record_bytes, value_bytes;
	uint64_t start_ns, grace_ns, beat_ns;
	uint64_t begun_ns;              /* all ranks that take part have begun by then         */
	enum agreement_end end;
	struct agreement_seat *seats;
	uint8_t *gone;                  /* is_dead, as messages carry it                       */
	uint8_t *here;                  /* has_joined, to be counted                           */
	struct quorum quorum;
	int leader;
	uint64_t since_ns;              /* when it became this rank's leader                   */

	uint64_t promised, accepted;    /* ballots                                             */
	bool accepted_is_fresh;
	uint8_t *own;                   /* record                                              */
	uint8_t *accepted_value;

	enum agreement_phase phase;     /* as leader: of ballot                                */
	uint64_t ballot;
	uint64_t best;                  /* the latest ballot accepted by any who joined        */
	bool is_fresh, best_is_fresh;
	uint8_t *proposal, *best_value;

	uint8_t *value;                 /* the decision; NO_QUORUM: its marks                   */
	int decided_by;                 /* the rank that told it, or -1: this rank found it    */
};

tutti_status agreement_init(struct agreement *a, const struct agreement_config *config);
void agreement_finish(struct agreement *a);

/* The message m has come from rank from. Copies what m points to. */
void agreement_hear(struct agreement *a, int from, const struct agreement_message *m,
		    uint64_t now_ns);
/* The process of this rank has ended, or it has left: proved, not guessed. */
void agreement_mark_dead(struct agreement *a, int rank, uint64_t now_ns);
/* To be called after each of these, and from time to time. */
void agreement_step(struct agreement *a, uint64_t now_ns);
/* Whether there is a message for rank, which the caller then sends: m. The memory that m
 * points to stays as it is until the next call for a. */
bool agreement_say(struct agreement *a, int rank, struct agreement_message *m, uint64_t now_ns);
/* Messages to rank and from rank may be lost: those that matter are sent again. All messages may
 * come twice, and late: ballots tell which count. */
void agreement_repeat(struct agreement *a, int rank);
/* Whether a has ended and rank still relies on this rank to hear of it. */
bool agreement_owes(const struct agreement *a, int rank);
/* Whether this rank, as far as it knows, waits for rank: as its leader, or to hear of it as its
 * leader. */
bool agreement_awaits(const struct agreement *a, int rank);
/* Whether a connection to rank is of use. */
bool agreement_needs(const struct agreement *a, int rank);

#endif
