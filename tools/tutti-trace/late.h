/* The parts of the report of late.c. */
#ifndef TUTTI_TRACE_LATE_H
#define TUTTI_TRACE_LATE_H

#include "merge.h"

/* A rank of a communicator that was seen, over all its collectives. */
struct tally {
	const struct trace_process *process;
	const struct trace_comm *comm;
	int64_t newest; /* of its collectives; -1: none */
	size_t times;   /* it came last */
	double alone_ns; /* all others were there */
};

/* The ranks that are not in a collective, of those that were seen elsewhere. */
struct absence {
	size_t unknown; /* they may have come: their traces end before, or begin after it */
	size_t count;   /* they have not come; the first of them: */
	const struct tally *missing;
	const struct part *waiter; /* has been in it longest, and is not done; NULL: all are done */
	int64_t waited_ns;         /* and how long */
};

/* Times in ns, on the time line of all hosts. */
int64_t begin_of(const struct part *part);

/* missing.c: of a collective of n parts. The tallies are all of the log. */
struct absence absence_of(const struct tally *tallies, size_t tally_count, const struct part *part,
			  size_t n);
void absence_print(const struct absence *absence, FILE *report);

/* The ranks of a communicator of which there is no trace at all; tallies are all of its own, by rank. */
void unseen_print(const struct tally *tallies, size_t tally_count, FILE *report);

#endif
