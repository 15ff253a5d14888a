/* Reads the messages of errors: whom they name, and what they claim of them. */
#ifndef TESTS_FAULTS_WORDS_H
#define TESTS_FAULTS_WORDS_H

#include <stdbool.h>
#include <stddef.h>

enum claim_kind {
	CLAIM_NAMED,  /* only mentioned                                              */
	CLAIM_DEAD,   /* has died, has ended: its process                            */
	CLAIM_GONE,   /* has left, is lost, was lost, closed a connection           */
	CLAIM_SILENT, /* is stopped, is silent                                       */
	CLAIM_FAILED, /* "has failed": and why is said next                          */
};

struct claim {
	enum claim_kind kind;
	int rank; /* as the message counts them */
	long pid; /* 0: not said                 */
};

#define CLAIMS_MOST 32
/* Returns how many. */
int words_read(const char *message, struct claim *claims);
/* Whether it says "Rank <rank> was in <call>" of another call than this. */
bool words_misplace(const char *message, int rank, const char *call);

#endif
