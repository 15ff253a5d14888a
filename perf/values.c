/* Fills buffers with the values of a rank, and checks what must arrive. */
#include "values.h"

#include "core/memory/ops.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Iterations begin at different places of the period, far apart: it is prime, so all of them
 * differ. */
#define ITERATION_STRIDE 2887

struct maker {
	int ranks;
	tutti_dtype dtype;
	tutti_op op;
	bool is_reduced;
	int active;    /* ranks whose contribution at an index matters; the others' is neutral */
	int64_t limit; /* of a value's magnitude, in units                                     */
	int64_t unit;
};

/* splitmix64's finishing steps. */
static uint64_t values_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t values_random_bits(uint64_t a, uint64_t b)
{
	return values_mix(a * 0x9e3779b97f4a7c15u + values_mix(b + 0x632be59bd9b4e019u));
}

static int64_t values_at_least_1(int64_t n)
{
	return n > 1 ? n : 1;
}

static int values_at_most(int n, int64_t max)
{
	return n < max ? n : (int)max;
}

/* Sums: active * limit * unit integers are exact, so every partial sum is. Averages of floats are
 * sums of multiples of the number of ranks, where the type has room for that. */
static void values_plan_sums(struct maker *m)
{
	int64_t exact = element_exact(m->dtype);

	m->unit = 1;
	if (m->op == TUTTI_AVG && element_is_float(m->dtype) && m->ranks <= exact)
		m->unit = m->ranks;
	m->limit = values_at_least_1(exact / m->unit / m->ranks);
	m->active = values_at_most(m->ranks, exact / m->unit / m->limit);
}

static struct maker values_plan(int ranks, tutti_dtype dtype, tutti_op op, bool is_reduced)
{
	struct maker m = {ranks, dtype, op, is_reduced, ranks, element_exact(dtype), 1};

	if (op == TUTTI_SUM || op == TUTTI_AVG)
		values_plan_sums(&m);
	else if (op == TUTTI_PROD)
		m.active = values_at_most(ranks, 5); /* 3 * 2^5 fits in 7 bits */
	return m;
}

static int64_t values_integer_in(uint64_t bits, int64_t limit, bool is_signed)
{
	uint64_t span = (uint64_t)limit * (is_signed ? 2 : 1) + 1;

	return (int64_t)(bits % span) - (is_signed ? limit : 0);
}

/* Powers of two from a few ranks, 3 from one, signs from all where there are signs. */
static double values_factor(const struct maker *m, int turn, uint64_t bits)
{
	double value = turn == 0 ? 3 : 1;

	if (turn < m->active && (bits & 1))
		value *= 2;
	else if (turn < m->active && (bits & 2) && element_is_float(m->dtype))
		value /= 2;
	return (bits & 4) && element_is_signed(m->dtype) ? -value : value;
}

/* Of many ands or ors of plain random bits little would be left: rare zeros, or rare ones. */
static uint64_t values_bit_pattern(tutti_op op, uint64_t bits)
{
	uint64_t rare = bits & values_mix(bits) & values_mix(bits + 1);

	return op == TUTTI_BAND ? ~rare : op == TUTTI_BOR ? rare : bits;
}

/* Rank's value at index. long double holds every number that is used here, of floats and integers
 * within 2^63. */
static long double values_number(const struct maker *m, int rank, size_t index)
{
	uint64_t bits = values_random_bits((uint64_t)rank + 1, index);
	int turn = (int)(((uint64_t)rank + values_random_bits(0, index)) % (uint64_t)m->ranks);

	if (op_is_bitwise(m->op))
		return (long double)(int64_t)values_bit_pattern(m->op, bits);
	if (m->op == TUTTI_PROD)
		return values_factor(m, turn, bits);
	if (turn >= m->active)
		return 0;
	return (long double)(values_integer_in(bits, m->limit, element_is_signed(m->dtype)) *
			     m->unit);
}

static uint64_t values_bits(const struct maker *m, long double number)
{
	return element_is_float(m->dtype) ? float_bits(m->dtype, (double)number)
					  : (uint64_t)(int64_t)number;
}

static long double values_combine(tutti_op op, long double a, long double b)
{
	int64_t x = (int64_t)a, y = (int64_t)b;

	switch (op) { /* without a default: an op that has no case does not compile */
	case TUTTI_SUM:
	case TUTTI_AVG:
		return a + b;
	case TUTTI_PROD:
		return a * b;
	case TUTTI_MIN:
		return a < b ? a : b;
	case TUTTI_MAX:
		return a > b ? a : b;
	case TUTTI_BAND:
		return (long double)(x & y);
	case TUTTI_BOR:
		return (long double)(x | y);
	case TUTTI_BXOR:
		return (long double)(x ^ y);
	case TUTTI_OP_MAX_:
		break;
	}
	/* A sum in its place would verify every run as wrong, or a wrong one as right. */
	fprintf(stderr, "values.c does not know what op %d makes\n", (int)op);
	abort();
}

/* The quotient in the precision that the library accumulates in. */
static long double values_average(const struct maker *m, long double sum)
{
	if (!element_is_float(m->dtype))
		return (long double)((int64_t)sum / m->ranks);
	if (m->dtype == TUTTI_F64)
		return (double)sum / m->ranks;
	return (float)sum / (float)m->ranks;
}

static uint64_t values_result(const struct maker *m, size_t index)
{
	long double r = values_number(m, 0, index);

	for (int rank = 1; rank < m->ranks; rank++)
		r = values_combine(m->op, r, values_number(m, rank, index));
	return values_bits(m, m->op == TUTTI_AVG ? values_average(m, r) : r);
}

/* Of a copy any bits. */
static uint64_t values_element(const struct maker *m, int rank, size_t index)
{
	if (rank == VALUES_RESULT)
		return m->is_reduced ? values_result(m, index) : 0;
	return m->is_reduced ? values_bits(m, values_number(m, rank, index))
			     : values_random_bits((uint64_t)rank + 1, index);
}

/* Ranks that are threads use the same: each would take as long to make them as their number
 * squared. */
struct tables {
	struct tables *next;
	int ranks, users;
	tutti_dtype dtype;
	tutti_op op;
	bool is_reduced;
	_Alignas(16) unsigned char bytes[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tables *all_tables; /* under lock */

static size_t values_table_at(int ranks, int rank, size_t element)
{
	size_t number = rank == VALUES_RESULT ? (size_t)ranks : (size_t)rank;

	return number * VALUES_PERIOD * element;
}

static const unsigned char *values_table_of(const struct values *v, int rank)
{
	return v->tables + values_table_at(v->ranks, rank, v->element_bytes);
}

size_t values_bytes(int ranks, tutti_dtype dtype)
{
	return ((size_t)ranks + 1) * VALUES_PERIOD * element_bytes(dtype);
}

static void values_make_table(const struct maker *m, int rank, unsigned char *table)
{
	size_t element = element_bytes(m->dtype);

	for (size_t i = 0; i < VALUES_PERIOD; i++) {
		uint64_t bits = values_element(m, rank, i);

		/* Little-endian, as are all machines that Tutti runs on: the low bytes. */
		memcpy(table + i * element, &bits, element);
	}
}

static struct tables *values_make_tables(const struct maker *m)
{
	struct tables *t = malloc(sizeof *t + values_bytes(m->ranks, m->dtype));

	if (!t)
		return NULL;
	*t = (struct tables){all_tables, m->ranks, 0, m->dtype, m->op, m->is_reduced};
	for (int rank = VALUES_RESULT; rank < m->ranks; rank++)
		values_make_table(m, rank,
				  t->bytes +
					  values_table_at(m->ranks, rank, element_bytes(m->dtype)));
	all_tables = t;
	return t;
}

static struct tables *values_find_tables(const struct maker *m)
{
	struct tables *t = all_tables;

	while (t && (t->ranks != m->ranks || t->dtype != m->dtype || t->op != m->op ||
		     t->is_reduced != m->is_reduced))
		t = t->next;
	return t;
}

bool values_init(struct values *v, int ranks, tutti_dtype dtype, tutti_op op, bool is_reduced)
{
	struct maker m = values_plan(ranks, dtype, op, is_reduced);
	struct tables *t;

	*v = (struct values){.ranks = ranks, .element_bytes = element_bytes(dtype)};
	pthread_mutex_lock(&lock);
	t = values_find_tables(&m);
	if (!t)
		t = values_make_tables(&m);
	if (t) {
		t->users++;
		v->tables = t->bytes;
	}
	pthread_mutex_unlock(&lock);
	return t != NULL;
}

void values_finish(struct values *v)
{
	struct tables **at = &all_tables, *t;

	pthread_mutex_lock(&lock);
	while (*at && (*at)->bytes != v->tables)
		at = &(*at)->next;
	t = *at;
	if (t && --t->users == 0) {
		*at = t->next;
		free(t);
	}
	pthread_mutex_unlock(&lock);
	v->tables = NULL;
}

/* The next piece of a span that lies in one period: where in the table, and how many elements. */
static size_t values_piece(struct span span, size_t done, size_t *at)
{
	size_t rest = span.count - done;

	*at = (size_t)((span.iteration * ITERATION_STRIDE + span.first + done) % VALUES_PERIOD);
	return rest < VALUES_PERIOD - *at ? rest : VALUES_PERIOD - *at;
}

void values_fill(const struct values *v, int rank, struct span span, void *data)
{
	const unsigned char *table = values_table_of(v, rank);
	size_t size = v->element_bytes, at, n;

	for (size_t done = 0; done < span.count; done += n) {
		n = values_piece(span, done, &at);
		memcpy((unsigned char *)data + done * size, table + at * size, n * size);
	}
}

static uint64_t values_differing(const unsigned char *a, const unsigned char *b, size_t n,
				 size_t size)
{
	uint64_t wrong = 0;

	if (memcmp(a, b, n * size) == 0)
		return 0;
	for (size_t i = 0; i < n; i++)
		wrong += memcmp(a + i * size, b + i * size, size) != 0;
	return wrong;
}

uint64_t values_wrong(const struct values *v, int rank, struct span span, const void *data)
{
	const unsigned char *table = values_table_of(v, rank);
	size_t size = v->element_bytes, at, n;
	uint64_t wrong = 0;

	for (size_t done = 0; done < span.count; done += n) {
		n = values_piece(span, done, &at);
		wrong += values_differing((const unsigned char *)data + done * size,
					  table + at * size, n, size);
	}
	return wrong;
}
