/* The operations: a constant table of those built in, and a table of those created. */
#include "core/memory/ops.h"

#include "core/status.h"
#include "core/memory/dtype.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define IDENTITY_SCALED UINT32_C(32)        /* no built-in op, and no hash */
#define IDENTITY_USER   (UINT32_C(1) << 31) /* set in every hash           */

#define TEXT(name, text, ...) [TUTTI_##name] = text,
static const char *const built_in[OPS_BUILT_IN] = {OPS_LIST(TEXT)};
_Static_assert((int)OPS_BUILT_IN <= (int)OPS_FIRST && OPS_BUILT_IN <= IDENTITY_SCALED,
	       "built-in ops come before created ones");

/* A place for a created op. An op's number is OPS_FIRST + place + OPS_MOST * turn, and turn grows
 * with each op of the place. Places are given in turn, so that a number is used again only after
 * two thousand million other ops. */
struct created {
	/* The op that the fields below belong to, or 0. Stored last, released; find acquires. A
	 * place is written only while it is neither live nor held, so a thread that may look at an
	 * op finds it whole. */
	_Atomic uint32_t number;
	atomic_bool is_live;  /* not destroyed */
	uint32_t turn, holds; /* under the lock */
	uint32_t identity;
	bool is_scaled;
	tutti_dtype dtype; /* of the scalar */
	_Alignas(8) char scalar[8];
	struct op_user user;
	char name[OPS_NAME_BYTES + 16];
};

static struct created table[OPS_MOST];
static uint32_t next_place;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* A negative number is a large one here, and has no op either. */
static bool op_is_created(tutti_op op)
{
	return (uint32_t)op >= OPS_FIRST && (uint32_t)op <= INT32_MAX;
}

/* Also a destroyed one, until its place is given away. */
static struct created *ops_find(tutti_op op)
{
	if (!op_is_created(op))
		return NULL;
	struct created *c = &table[((uint32_t)op - OPS_FIRST) % OPS_MOST];
	return atomic_load_explicit(&c->number, memory_order_acquire) == (uint32_t)op ? c : NULL;
}

static struct created *op_find_live(tutti_op op)
{
	struct created *c = ops_find(op);
	return c && atomic_load_explicit(&c->is_live, memory_order_relaxed) ? c : NULL;
}

bool op_is_known(tutti_op op)
{
	return (uint32_t)op < OPS_BUILT_IN || op_find_live(op);
}

bool op_fits(tutti_op op, tutti_dtype dtype)
{
	if (dtype_bytes(dtype) == 0)
		return false;
	if ((uint32_t)op < OPS_BUILT_IN)
		return !op_is_bitwise(op) || !dtype_is_float(dtype);
	const struct created *c = op_find_live(op);
	return c && (!c->is_scaled || c->dtype == dtype);
}

const char *op_name(tutti_op op)
{
	if ((uint32_t)op < OPS_BUILT_IN)
		return built_in[op];
	const struct created *c = ops_find(op);
	return c ? c->name : "?";
}

uint32_t op_identity(tutti_op op)
{
	const struct created *c = ops_find(op);
	return c ? c->identity : (uint32_t)op;
}

const char *op_identity_name(uint32_t identity, char *name, size_t name_bytes)
{
	const char *found = identity < OPS_BUILT_IN       ? built_in[identity]
			    : identity & IDENTITY_USER    ? "a user op not known on this rank"
			    : identity == IDENTITY_SCALED ? "scaled sum"
							  : "?";

	pthread_mutex_lock(&table_lock);
	for (int i = 0; i < OPS_MOST; i++)
		if (table[i].number && table[i].identity == identity)
			found = table[i].name;
	snprintf(name, name_bytes, "%s", found);
	pthread_mutex_unlock(&table_lock);
	return name;
}

tutti_op op_kernel(tutti_op op)
{
	const struct created *c = ops_find(op);
	return c && c->is_scaled ? TUTTI_SUM : op;
}

const void *op_scalar(tutti_op op)
{
	const struct created *c = ops_find(op);
	return c && c->is_scaled ? c->scalar : NULL;
}

const struct op_user *op_user(tutti_op op)
{
	const struct created *c = ops_find(op);
	return c && !c->is_scaled ? &c->user : NULL;
}

/* FNV-1a. */
static uint32_t ops_hash(const char *text)
{
	uint32_t h = UINT32_C(2166136261);
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * UINT32_C(16777619);
	return h;
}

/* The least recently given place that is free, with nothing in it; or NULL. */
static struct created *ops_take_place(void)
{
	for (int i = 0; i < OPS_MOST; i++) {
		struct created *c = &table[next_place];
		next_place = (next_place + 1) % OPS_MOST;
		if (atomic_load_explicit(&c->is_live, memory_order_relaxed) || c->holds)
			continue;
		atomic_store_explicit(&c->number, 0, memory_order_relaxed);
		return c;
	}
	return NULL;
}

static tutti_op ops_number_of(struct created *c)
{
	uint32_t number = OPS_FIRST + (uint32_t)(c - table) + OPS_MOST * c->turn++;

	if (number > INT32_MAX - OPS_MOST)
		c->turn = 0;
	return (tutti_op)number;
}

static tutti_status ops_add(tutti_op *op, const struct created *made)
{
	pthread_mutex_lock(&table_lock);
	struct created *c = ops_take_place();
	if (!c) {
		pthread_mutex_unlock(&table_lock);
		return fail(TUTTI_ERR_MEMORY,
			    "%s: %d operations were created and not destroyed, or are in use by "
			    "calls in flight; there is room for no more",
			    made->name, OPS_MOST);
	}
	c->identity = made->identity;
	c->is_scaled = made->is_scaled;
	c->dtype = made->dtype;
	memcpy(c->scalar, made->scalar, sizeof c->scalar);
	c->user = made->user;
	memcpy(c->name, made->name, sizeof c->name);
	*op = ops_number_of(c);
	atomic_store_explicit(&c->is_live, true, memory_order_relaxed);
	atomic_store_explicit(&c->number, (uint32_t)*op, memory_order_release);
	pthread_mutex_unlock(&table_lock);
	return TUTTI_OK;
}

tutti_status op_add_user(tutti_op *op, const char *name, struct op_user user)
{
	struct created made = {.identity = ops_hash(name) | IDENTITY_USER, .user = user};

	assert(strlen(name) < OPS_NAME_BYTES && user.fn);
	snprintf(made.name, sizeof made.name, "user op '%s'", name);
	return ops_add(op, &made);
}

tutti_status op_add_scaled(tutti_op *op, const void *scalar, tutti_dtype dtype)
{
	struct created made = {.identity = IDENTITY_SCALED,
			       .is_scaled = true,
			       .dtype = dtype,
			       .name = "scaled sum"};

	assert(dtype_bytes(dtype) > 0);
	memcpy(made.scalar, scalar, dtype_bytes(dtype));
	return ops_add(op, &made);
}

void op_remove(tutti_op op)
{
	struct created *c;

	pthread_mutex_lock(&table_lock);
	if ((c = ops_find(op)))
		atomic_store_explicit(&c->is_live, false, memory_order_relaxed);
	pthread_mutex_unlock(&table_lock);
}

void op_hold(tutti_op op)
{
	struct created *c;

	if (!op_is_created(op))
		return;
	pthread_mutex_lock(&table_lock);
	if ((c = ops_find(op)))
		c->holds++;
	pthread_mutex_unlock(&table_lock);
}

void op_release(tutti_op op)
{
	struct created *c;

	if (!op_is_created(op))
		return;
	pthread_mutex_lock(&table_lock);
	if ((c = ops_find(op))) {
		assert(c->holds > 0);
		c->holds--;
	}
	pthread_mutex_unlock(&table_lock);
}
