/* The order in which a tensor's elements follow each other: C order, or piece after piece of a
 * split along one dimension, each piece in C order. Plain arithmetic. */
#ifndef TRAIN_TENSOR_ORDER_H
#define TRAIN_TENSOR_ORDER_H

#include <stddef.h>
#include <stdint.h>

struct tensor_order {
	int dim, parts; /* parts 0 or 1: C order, and dim is not used */
};

/* A dimension of size elements in so many pieces: the first ones have one element more. */
static inline int64_t split_first(int64_t size, int parts, int part)
{
	int64_t more = size % parts;

	return size / parts * part + (part < more ? part : more);
}

static inline int64_t split_count(int64_t size, int parts, int part)
{
	return size / parts + (part < size % parts);
}

/* The elements before the piece, in its order. */
size_t order_first(struct tensor_order order, int ndim, const int64_t *shape, int part);
/* The place in order to of the element at place index of order from. *run: it and those after it,
 * at least 1, that follow each other in both. */
size_t order_map(struct tensor_order from, struct tensor_order to, int ndim, const int64_t *shape,
		 size_t index, size_t *run);

#endif
