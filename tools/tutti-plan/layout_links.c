/* Prices of collectives and messages: the cheapest algorithm by its cost formula (predict.h). */
#include "layout_links.h"

#include "cases.h"
#include "predict.h"

#include "tools/must.h"

#include <math.h>
#include <string.h>

static int ranks_of_node(const struct layout_question *q)
{
	return q->ranks / q->nodes;
}

bool cores_are_shared(const struct layout_question *q)
{
	return q->machine->links.cores > 0 && ranks_of_node(q) > q->machine->links.cores;
}

bool cores_are_taken(const struct layout_question *q)
{
	return q->machine->links.cores > 0 && ranks_of_node(q) >= q->machine->links.cores;
}

/* Where they do not lie evenly, each is taken to be alone on its node. */
struct axis_ranks axis_ranks_of(const struct layout_question *q, int size, int stride)
{
	int node = ranks_of_node(q);
	int together = size > 1 && stride < node && node % stride == 0 ? node / stride : 1;
	struct axis_ranks ranks = {.size = size, .stride = stride, .nodes = size};

	if (q->nodes == 1 || size == 1 || together % size == 0) {
		ranks.nodes = 1;
		together = size;
	} else if (size % together == 0) {
		ranks.nodes = size / together;
	} else {
		together = 1;
	}
	ranks.beta = fmax(q->machine->links.link[LINK_NET].beta,
			  q->machine->node_beta * node / together);
	return ranks;
}

/* The part of one rank, while others of the node compute or do the same. */
static struct spent with_cores(const struct layout_question *q, const struct axis_ranks *ranks,
			       double seconds)
{
	double here = (double)ranks->size / ranks->nodes;

	if (!cores_are_shared(q))
		return (struct spent){seconds, 0};
	return (struct spent){seconds, seconds * fmin(1, q->machine->links.cores / here)};
}

/* The last price for each place of a table. */
enum { PRICES = 4096 };
struct price {
	enum collective collective;
	int size, nodes;
	double beta, bytes, seconds;
};
struct price_book {
	struct price of[PRICES];
};

struct price_book *price_book_open(void)
{
	return must_alloc(1, sizeof(struct price_book));
}

static struct price *layout_links_place_of(struct price_book *book, const struct price *p)
{
	uint64_t beta, bytes, sum = (uint64_t)p->collective * 31 + (uint64_t)p->size;

	memcpy(&beta, &p->beta, sizeof beta);
	memcpy(&bytes, &p->bytes, sizeof bytes);
	sum = (sum * 31 + (uint64_t)p->nodes) ^ beta ^ (bytes * UINT64_C(0x9e3779b97f4a7c15));
	return &book->of[sum * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

static double least_seconds(const struct layout_question *q, const struct price *p)
{
	struct machine machine = *q->machine;
	double least = INFINITY;

	machine.links.link[LINK_NET].beta = p->beta;
	for (int i = 0; algorithm_at(i); i++) {
		struct question question = {.algorithm = algorithm_at(i),
					    .ranks = p->size,
					    .nodes = p->nodes,
					    .bytes = p->bytes,
					    .machine = &machine};
		if (question.algorithm->collective != p->collective || !question.algorithm->cost ||
		    cases_why_not(question.algorithm, p->size, p->nodes))
			continue;
		least = fmin(least, predict_formula(&question));
	}
	return least;
}

struct spent collective_spent(const struct layout_question *q, const struct axis_ranks *ranks,
			      enum collective collective, double bytes)
{
	struct price price = {collective, ranks->size, ranks->nodes, ranks->beta, bytes, 0};
	struct price *known = q->prices ? layout_links_place_of(q->prices, &price) : NULL;

	if (ranks->size == 1 || bytes <= 0)
		return (struct spent){0, 0};
	if (known && known->collective == collective && known->size == price.size &&
	    known->nodes == price.nodes && known->beta == price.beta && known->bytes == bytes)
		return with_cores(q, ranks, known->seconds);
	price.seconds = least_seconds(q, &price);
	if (known)
		*known = price;
	return with_cores(q, ranks, price.seconds);
}

struct spent message_spent(const struct layout_question *q, const struct axis_ranks *ranks,
			   double bytes)
{
	const struct link_speed *link = &q->machine->links.link[LINK_LOCAL];

	if (ranks->size == 1)
		return (struct spent){0, 0};
	if (ranks->nodes == 1)
		return with_cores(q, ranks, link->alpha + bytes * link->beta);
	link = &q->machine->links.link[LINK_NET];
	return with_cores(q, ranks, link->alpha + bytes * ranks->beta);
}
