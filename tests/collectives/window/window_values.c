/* What ranks contribute to a call of the window's tests, and what every element of its result must
 * be: see window_team.h. */
#include "window_team.h"

#include "core/status.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include "tests/core/memory/twin.h"

#include <string.h>

bool call_reduces(enum collective c)
{
	return c == COLL_ALL_REDUCE || c == COLL_REDUCE ||
	       collective_pattern(c) == COLL_REDUCE_SCATTER;
}

tutti_op team_op(uint64_t random, tutti_dtype dtype)
{
	uint64_t number = random % TEAM_OPS;
	tutti_op op = (tutti_op)number;

	if (number == OPS_BUILT_IN)
		return TEAM_SCALED;
	if (number > OPS_BUILT_IN)
		return dtype == TUTTI_I32 ? TEAM_USER : TUTTI_SUM;
	return op_fits(op, dtype) ? op : TUTTI_SUM;
}

static bool is_tiny(const struct call *call)
{
	return call->dtype == TUTTI_F8_E4M3 || call->dtype == TUTTI_F8_E5M2;
}

int64_t call_scalar(const struct call *call, int rank)
{
	if (call->op != TEAM_SCALED)
		return 1;
	return is_tiny(call) ? rank > 0 : 1 + rank % 3;
}

/* What rank contributes at index of its block for a rank (block 0, when it has one): small enough
 * to be exact in dtype, and so are all results. */
int64_t call_value(const struct call *call, int rank, int block, size_t index)
{
	uint64_t place = (uint64_t)block << 48 | index;
	uint64_t h = team_random(call->seed, (uint64_t)rank, place);

	if (!call_reduces(call->collective))
		return (int64_t)(h % 8);
	switch (call->op) {
	case TUTTI_PROD:
		return 1 + (int64_t)(h % 2);
	case TUTTI_AVG:
		if (dtype_is_float(call->dtype)) /* the same on all ranks */
			return (int64_t)(team_random(call->seed, 99, place) % 4);
		return (int64_t)(h % 100);
	case TUTTI_SUM:
		return (int64_t)(h % (is_tiny(call) ? 2 : 9));
	default:
		return (int64_t)(h % (call->op == TEAM_SCALED && is_tiny(call) ? 2 : 8));
	}
}

static int64_t combine(tutti_op op, int64_t a, int64_t b)
{
	switch ((uint32_t)op) {
	case TUTTI_SUM:
	case TUTTI_AVG:
	case (uint32_t)TEAM_SCALED:
	case (uint32_t)TEAM_USER:
		return a + b;
	case TUTTI_PROD:
		return a * b;
	case TUTTI_MIN:
		return a < b ? a : b;
	case TUTTI_MAX:
		return a > b ? a : b;
	case TUTTI_BAND:
		return a & b;
	case TUTTI_BOR:
		return a | b;
	case TUTTI_BXOR:
		return a ^ b;
	default:
		twin_lacks_op(op);
	}
}

int64_t call_reduced(const struct call *call, int size, int block, size_t index)
{
	int64_t result = call_scalar(call, 0) * call_value(call, 0, block, index);

	for (int rank = 1; rank < size; rank++)
		result = combine(call->op, result,
				 call_scalar(call, rank) * call_value(call, rank, block, index));
	return call->op == TUTTI_AVG ? result / size : result;
}

/* A float with so many bits; value is a small whole number that it holds exactly. */
static uint64_t small_float(int64_t value, int mantissa_bits, int bias)
{
	int exponent = 0;

	if (value == 0)
		return 0;
	while (value >> (exponent + 1))
		exponent++;
	return ((uint64_t)(exponent + bias) << mantissa_bits) |
	       (((uint64_t)value << mantissa_bits >> exponent) & ((1u << mantissa_bits) - 1));
}

void call_put(uint8_t *at, tutti_dtype dtype, int64_t value)
{
	uint64_t bits = (uint64_t)value;
	float f = (float)value;
	double d = (double)value;

	switch (dtype) {
	case TUTTI_F32:
		memcpy(at, &f, sizeof f);
		return;
	case TUTTI_F64:
		memcpy(at, &d, sizeof d);
		return;
	case TUTTI_F16:
		bits = small_float(value, 10, 15);
		break;
	case TUTTI_BF16:
		bits = small_float(value, 7, 127);
		break;
	case TUTTI_F8_E4M3:
		bits = small_float(value, 3, 7);
		break;
	case TUTTI_F8_E5M2:
		bits = small_float(value, 2, 15);
		break;
	default:
		break;
	}
	memcpy(at, &bits, dtype_bytes(dtype)); /* little-endian */
}

/* What all elements of a block are: what a rank contributes to it, or what all together do. */
struct source {
	bool is_reduced;
	int rank, block;
};

static struct source source_of(const struct made *m, int which, int block)
{
	if (which == SEND_SIDE)
		return (struct source){false, m->rank, m->send.blocks > 1 ? block : 0};
	switch (collective_pattern(m->call.collective)) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE:
		return (struct source){true, 0, 0};
	case COLL_REDUCE_SCATTER:
		return (struct source){true, 0, m->size > 1 ? m->rank : 0};
	case COLL_BROADCAST:
		return (struct source){false, m->call.root, 0};
	case COLL_SCATTER:
		return (struct source){false, m->call.root, m->rank};
	case COLL_ALL_TO_ALL:
		return (struct source){false, block, m->rank};
	default:
		return (struct source){false, block, 0};
	}
}

void made_fill(const struct made *m, int which)
{
	const struct side *side = which == SEND_SIDE ? &m->send : &m->recv;
	int room = m->rooms[which] ? which : !which;
	uint8_t *buffer = m->before[room] + (m->buffers[which] - m->rooms[room]);
	size_t each = dtype_bytes(m->call.dtype);

	for (int block = 0; block < side->blocks; block++) {
		struct source from = source_of(m, which, block);
		uint8_t *at = buffer + side->first[block] * each;
		for (size_t i = 0; i < side->count[block]; i++)
			call_put(at + i * each, m->call.dtype,
				 from.is_reduced ? call_reduced(&m->call, m->size, from.block, i)
						 : call_value(&m->call, from.rank, from.block, i));
	}
}
