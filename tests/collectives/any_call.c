/* One collective of any kind with known values. */
#include "any_call.h"

#include "core/memory/dtype.h"

#include <stdlib.h>
#include <string.h>

/* Small integers, so that sums are exact in every dtype. */
static double value(int rank, size_t i)
{
	return (double)((rank + 1) * 10 + (int)(i % 13));
}

static void put(void *buf, size_t i, tutti_dtype dtype, double v)
{
	float f = (float)v;
	int32_t n = (int32_t)v;
	if (dtype == TUTTI_F32)
		memcpy((char *)buf + 4 * i, &f, 4);
	else if (dtype == TUTTI_I32)
		memcpy((char *)buf + 4 * i, &n, 4);
	else
		memcpy((char *)buf + 8 * i, &v, 8);
}

static double get(const void *buf, size_t i, tutti_dtype dtype)
{
	float f;
	int32_t n;
	double d;
	if (dtype == TUTTI_F32)
		return memcpy(&f, (const char *)buf + 4 * i, 4), f;
	if (dtype == TUTTI_I32)
		return memcpy(&n, (const char *)buf + 4 * i, 4), n;
	return memcpy(&d, (const char *)buf + 8 * i, 8), d;
}

static double reduced(const struct any_made *m, size_t i)
{
	double result = value(0, i);
	for (int r = 1; r < m->size; r++)
		result = m->call.op == TUTTI_SUM ? result + value(r, i)
			 : result > value(r, i)  ? result
						 : value(r, i);
	return result;
}

static bool is_v(enum collective c)
{
	return c >= COLL_ALL_GATHERV && c <= COLL_ALL_TO_ALLV;
}

static size_t first_of(const struct any_made *m, int rank)
{
	size_t first = 0;
	for (int r = 0; r < rank; r++)
		first += m->counts[r];
	return first;
}

/* How many elements send and recv have here. */
static void measure(struct any_made *m)
{
	enum collective pattern = collective_pattern(m->call.collective);
	size_t all = first_of(m, m->size), mine = m->counts[m->rank];
	bool is_root = m->rank == m->call.root;

	m->send_count = m->recv_count = m->call.count;
	if (pattern == COLL_ALL_GATHER || pattern == COLL_GATHER) {
		m->send_count = mine;
		m->recv_count = pattern == COLL_ALL_GATHER || is_root ? all : 0;
	} else if (pattern == COLL_REDUCE_SCATTER || pattern == COLL_SCATTER) {
		m->send_count = pattern == COLL_REDUCE_SCATTER || is_root ? all : 0;
		m->recv_count = mine;
	} else if (pattern == COLL_ALL_TO_ALL) {
		m->send_count = m->recv_count = all;
	} else if (pattern == COLL_BARRIER) {
		m->send_count = m->recv_count = 0;
	}
}

static tutti_status start(struct any_made *m, tutti_comm *comm, const tutti_call *call)
{
	const struct any_call *c = &m->call;

	switch (c->collective) {
	case COLL_ALL_REDUCE:
		return tutti_all_reduce(m->send, m->recv, c->count, c->dtype, c->op, comm, call);
	case COLL_ALL_GATHER:
		return tutti_all_gather(m->send, m->recv, c->count, c->dtype, comm, call);
	case COLL_REDUCE_SCATTER:
		return tutti_reduce_scatter(m->send, m->recv, c->count, c->dtype, c->op, comm,
					    call);
	case COLL_BROADCAST:
		return tutti_broadcast(m->send, m->recv, c->count, c->dtype, c->root, comm, call);
	case COLL_BARRIER:
		return tutti_barrier(comm, call);
	case COLL_REDUCE:
		return tutti_reduce(m->send, m->recv, c->count, c->dtype, c->op, c->root, comm,
				    call);
	case COLL_GATHER:
		return tutti_gather(m->send, m->recv, c->count, c->dtype, c->root, comm, call);
	case COLL_SCATTER:
		return tutti_scatter(m->send, m->recv, c->count, c->dtype, c->root, comm, call);
	case COLL_ALL_TO_ALL:
		return tutti_all_to_all(m->send, m->recv, c->count, c->dtype, comm, call);
	case COLL_ALL_GATHERV:
		return tutti_all_gatherv(m->send, m->recv, m->counts, NULL, c->dtype, comm, call);
	case COLL_REDUCE_SCATTERV:
		return tutti_reduce_scatterv(m->send, m->recv, m->counts, NULL, c->dtype, c->op,
					     comm, call);
	case COLL_GATHERV:
		return tutti_gatherv(m->send, m->recv, m->counts, NULL, c->dtype, c->root, comm,
				     call);
	case COLL_SCATTERV:
		return tutti_scatterv(m->send, m->recv, m->counts, NULL, c->dtype, c->root, comm,
				      call);
	case COLL_ALL_TO_ALLV:
		return tutti_all_to_allv(m->send, m->counts, NULL, m->recv, m->counts, NULL,
					 c->dtype, comm, call);
	default:
		abort();
	}
}

tutti_status any_start(struct any_made *m, const struct any_call *c, tutti_comm *comm,
		       tutti_work **work)
{
	tutti_call call = {.work = work};

	*m = (struct any_made){.call = *c, .rank = tutti_rank(comm), .size = tutti_size(comm)};
	for (int r = 0; r < m->size; r++)
		m->counts[r] = c->count + (is_v(c->collective) ? (size_t)r * c->shift : 0);
	measure(m);
	m->send = calloc(m->send_count + 1, 8);
	m->recv = calloc(m->recv_count + 1, 8);
	if (!m->send || !m->recv)
		abort();
	for (size_t i = 0; i < m->send_count; i++)
		put(m->send, i, c->dtype, value(m->rank, i));
	return start(m, comm, work ? &call : NULL);
}

/* Which rank and which of its elements recv's element i comes from, or that it is reduced. */
static double expected(const struct any_made *m, size_t i)
{
	size_t at = i;
	int from = 0;

	switch (collective_pattern(m->call.collective)) {
	case COLL_BROADCAST:
		return value(m->call.root, i);
	case COLL_SCATTER:
		return value(m->call.root, first_of(m, m->rank) + i);
	case COLL_REDUCE_SCATTER:
		return reduced(m, first_of(m, m->rank) + i);
	case COLL_ALL_GATHER:
	case COLL_GATHER:
	case COLL_ALL_TO_ALL:
		while (at >= m->counts[from])
			at -= m->counts[from++];
		if (collective_pattern(m->call.collective) == COLL_ALL_TO_ALL)
			at += first_of(m, m->rank);
		return value(from, at);
	default:
		return reduced(m, i);
	}
}

bool any_is_right(const struct any_made *m)
{
	if (m->call.collective == COLL_REDUCE && m->rank != m->call.root)
		return true;
	for (size_t i = 0; i < m->recv_count; i++)
		if (get(m->recv, i, m->call.dtype) != expected(m, i))
			return false;
	return true;
}

void any_free(struct any_made *m)
{
	free(m->send);
	free(m->recv);
}

const char *any_words(const struct any_call *c, int size, uint64_t sequence, char *text,
		      size_t text_bytes)
{
	struct call_summary summary = {.collective = (int)c->collective,
				       .dtype = c->dtype,
				       .op = c->op,
				       .root = c->root,
				       .count = c->count,
				       .sequence = sequence};
	if (is_v(c->collective))
		for (int r = 1; r < size; r++)
			summary.count += c->count + (size_t)r * c->shift;
	return call_in_words(&summary, text, text_bytes);
}
