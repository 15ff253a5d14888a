/* The time of communication between ranks of an axis, wherever these lie on the nodes. */
#ifndef TUTTI_PLAN_LAYOUT_LINKS_H
#define TUTTI_PLAN_LAYOUT_LINKS_H

#include "layout_question.h"

/* Ranks that communicate: size of them, stride apart. */
struct axis_ranks {
	int size, stride;
	int nodes;    /* on which they lie, equally many on each; 1: they do not leave one */
	double beta;  /* between nodes, if all ranks of the node use it at once */
};
struct axis_ranks axis_ranks_of(const struct layout_question *question, int size, int stride);

/* Prices of collectives that were asked for before, on one machine: thousands of candidates ask for
 * the same ones. The caller frees it. */
struct price_book *price_book_open(void);

/* Seconds; and how long each rank keeps a core busy where ranks share cores, else 0. */
struct spent {
	double seconds, busy;
};
/* A collective of bytes, as the API counts them, by the cheapest plan; nothing among one rank. */
struct spent collective_spent(const struct layout_question *question, const struct axis_ranks *ranks,
			      enum collective collective, double bytes);
/* A message to the next rank. */
struct spent message_spent(const struct layout_question *question, const struct axis_ranks *ranks,
			   double bytes);

/* Ranks have to share the cores of their node; none is left for communication beside computing. */
bool cores_are_shared(const struct layout_question *question);
bool cores_are_taken(const struct layout_question *question);

static inline void spend(struct spent *sum, struct spent one, double times)
{
	sum->seconds += one.seconds * times;
	sum->busy += one.busy * times;
}

#endif
