/* Arithmetic on places of elements. */
#include "train/model/tensor_order.h"

#include <stdbool.h>

/* A tensor as outer blocks of size rows of inner elements. */
struct split_rows {
	size_t outer, size, inner;
};

static struct split_rows tensor_order_blocks_of(struct tensor_order order, int ndim,
						const int64_t *shape)
{
	struct split_rows blocks = {1, (size_t)shape[order.dim], 1};

	for (int i = 0; i < order.dim; i++)
		blocks.outer *= (size_t)shape[i];
	for (int i = order.dim + 1; i < ndim; i++)
		blocks.inner *= (size_t)shape[i];
	return blocks;
}

static bool tensor_order_is_plain(struct tensor_order order)
{
	return order.parts <= 1;
}

/* The piece that has row. */
static int tensor_order_part_of(struct tensor_order order, const struct split_rows *blocks,
				size_t row)
{
	size_t parts = (size_t)order.parts, least = blocks->size / parts;
	size_t long_rows = (blocks->size % parts) * (least + 1);

	if (row < long_rows)
		return (int)(row / (least + 1));
	return (int)(blocks->size % parts + (row - long_rows) / least);
}

static size_t tensor_order_first_of(struct tensor_order order, const struct split_rows *blocks,
				    int part)
{
	return (size_t)split_first((int64_t)blocks->size, order.parts, part);
}

static size_t tensor_order_count_of(struct tensor_order order, const struct split_rows *blocks,
				    int part)
{
	return (size_t)split_count((int64_t)blocks->size, order.parts, part);
}

static size_t tensor_order_elements(int ndim, const int64_t *shape)
{
	size_t count = 1;

	for (int i = 0; i < ndim; i++)
		count *= (size_t)shape[i];
	return count;
}

/* From C order. */
static size_t tensor_order_from_plain(struct tensor_order order, const struct split_rows *blocks,
				      size_t index, size_t *run)
{
	size_t block = index / (blocks->size * blocks->inner);
	size_t within = index % (blocks->size * blocks->inner);
	int part = tensor_order_part_of(order, blocks, within / blocks->inner);
	size_t first = tensor_order_first_of(order, blocks, part),
	       rows = tensor_order_count_of(order, blocks, part);

	*run = (first + rows) * blocks->inner - within;
	return (blocks->outer * first + block * rows) * blocks->inner +
	       (within - first * blocks->inner);
}

static size_t tensor_order_to_plain(struct tensor_order order, const struct split_rows *blocks,
				    size_t index, size_t *run)
{
	/* Every piece has all blocks: rows of one block that precede it, times blocks. */
	int part = tensor_order_part_of(order, blocks, index / (blocks->outer * blocks->inner));
	size_t first = tensor_order_first_of(order, blocks, part),
	       rows = tensor_order_count_of(order, blocks, part);
	size_t within = index - blocks->outer * first * blocks->inner;
	size_t block = within / (rows * blocks->inner), at = within % (rows * blocks->inner);

	*run = rows * blocks->inner - at;
	return (block * blocks->size + first) * blocks->inner + at;
}

size_t order_first(struct tensor_order order, int ndim, const int64_t *shape, int part)
{
	if (tensor_order_is_plain(order))
		return 0;
	struct split_rows blocks = tensor_order_blocks_of(order, ndim, shape);
	return blocks.outer * tensor_order_first_of(order, &blocks, part) * blocks.inner;
}

size_t order_map(struct tensor_order from, struct tensor_order to, int ndim, const int64_t *shape,
		 size_t index, size_t *run)
{
	bool is_same = from.parts == to.parts && from.dim == to.dim;
	size_t more;

	*run = tensor_order_elements(ndim, shape) - index;
	if (is_same || (tensor_order_is_plain(from) && tensor_order_is_plain(to)))
		return index;
	if (!tensor_order_is_plain(from)) {
		struct split_rows blocks = tensor_order_blocks_of(from, ndim, shape);
		index = tensor_order_to_plain(from, &blocks, index, run);
	}
	if (tensor_order_is_plain(to))
		return index;
	struct split_rows blocks = tensor_order_blocks_of(to, ndim, shape);
	index = tensor_order_from_plain(to, &blocks, index, &more);
	*run = *run < more ? *run : more;
	return index;
}
