/* Remote references: the objects of this rank, with a count for each rank that has some. */
#include "rpc/rpc_internal.h"

#include <stdlib.h>
#include <string.h>

#define SHARE   "tutti.ref.share"
#define RELEASE "tutti.ref.release"

struct holder {
	int rank;
	uint64_t count;
};

struct object {
	uint64_t number; /* its place in the table, and how often that was used; 0: free */
	void *object;
	struct rpc_release *destroy; /* NULL: nothing is called */
	struct holder *holders;
	size_t num_holders;
	uint32_t uses, next_free; /* next_free: 1 + its place; 0: none */
};

struct rpc_refs {
	struct object *objects;
	size_t count;
	uint32_t free;
};

/* A message to the owner. */
struct ref_message {
	uint64_t number;
	int32_t rank, reserved; /* share: who gets a count */
};

static struct object *refs_find(const tutti_rpc *rpc, uint64_t number)
{
	const struct rpc_refs *refs = rpc->refs;
	uint64_t place = (number & UINT32_MAX) - 1;

	if ((number & UINT32_MAX) == 0 || place >= refs->count)
		return NULL;
	return refs->objects[place].number == number ? &refs->objects[place] : NULL;
}

static struct holder *refs_find_holder(const struct object *o, int rank)
{
	for (size_t i = 0; i < o->num_holders; i++)
		if (o->holders[i].rank == rank)
			return &o->holders[i];
	return NULL;
}

static tutti_status refs_add_count(struct object *o, int rank)
{
	struct holder *h = refs_find_holder(o, rank);

	if (!h) {
		TRY(array_grow(&o->holders, o->num_holders, sizeof *o->holders,
			       "a rank that holds a reference"));
		h = &o->holders[o->num_holders++];
		*h = (struct holder){.rank = rank};
	}
	h->count++;
	return TUTTI_OK;
}

/* The object goes when no holder is left. */
static void refs_drop_holder(tutti_rpc *rpc, struct object *o, struct holder *h)
{
	struct rpc_refs *refs = rpc->refs;

	*h = o->holders[--o->num_holders];
	if (o->num_holders)
		return;
	if (o->destroy) {
		o->destroy->next = rpc->releases;
		rpc->releases = o->destroy;
	}
	free(o->holders);
	*o = (struct object){.uses = o->uses, .next_free = refs->free};
	refs->free = (uint32_t)(o - refs->objects) + 1;
}

static tutti_status refs_no_object(const tutti_rpc *rpc, uint64_t number, int rank)
{
	return fail_invalid("rank %d has no object of number %llu, or rank %d has no count on it",
			    rpc->rank, (unsigned long long)number, rank);
}

/* ---- at the owner; lock ---- */

/* rank has a count, and gives one to another. */
static tutti_status refs_share(tutti_rpc *rpc, int rank, const struct ref_message *w)
{
	struct object *o = refs_find(rpc, w->number);

	if (!o || !refs_find_holder(o, rank))
		return refs_no_object(rpc, w->number, rank);
	if (w->rank < 0 || w->rank >= rpc->size)
		return fail_invalid("rank %d is not in 0..%d", w->rank, rpc->size - 1);
	if (!rpc->peers[w->rank].is_alive)
		return fail(TUTTI_ERR_PEER,
			    "rank %d, which is to get a reference, has died, or left", w->rank);
	return refs_add_count(o, w->rank);
}

static tutti_status refs_release(tutti_rpc *rpc, int rank, uint64_t number)
{
	struct object *o = refs_find(rpc, number);
	struct holder *h = o ? refs_find_holder(o, rank) : NULL;

	if (!h)
		return refs_no_object(rpc, number, rank);
	if (--h->count == 0)
		refs_drop_holder(rpc, o, h);
	return TUTTI_OK;
}

void rpc_refs_rank_died(tutti_rpc *rpc, int rank)
{
	for (size_t i = 0; i < rpc->refs->count; i++) {
		struct object *o = &rpc->refs->objects[i];
		struct holder *h = o->number ? refs_find_holder(o, rank) : NULL;
		if (h)
			refs_drop_holder(rpc, o, h);
	}
}

void rpc_refs_take_back(struct tutti_rpc_reply *entry)
{
	for (size_t i = 0; i < entry->num_shared; i++)
		refs_release(entry->rpc, entry->rank,
			     entry->shared[i]); /* the caller may have done so */
	entry->num_shared = 0;
}

/* Shares a reference of this rank. If the running function's caller gets it, the count belongs to
 * the answer. */
static tutti_status refs_share_here(tutti_rpc *rpc, const struct ref_message *w)
{
	struct tutti_rpc_reply *entry = rpc_reply_running(rpc, w->rank);

	if (entry)
		TRY(array_grow(&entry->shared, entry->num_shared, sizeof *entry->shared,
			       "a reference of an answer"));
	TRY(refs_share(rpc, rpc->rank, w));
	if (entry)
		entry->shared[entry->num_shared++] = w->number;
	return TUTTI_OK;
}

static tutti_status refs_on_share(void *arg, const tutti_rpc_request *request,
				  tutti_rpc_reply *reply)
{
	tutti_rpc *rpc = arg;

	(void)reply;
	if (request->bytes != sizeof(struct ref_message))
		return fail_invalid("a message of %zu bytes", request->bytes);
	rpc_lock(rpc);
	tutti_status status = refs_share(rpc, request->rank, request->data);
	rpc_unlock(rpc);
	return status;
}

static tutti_status refs_on_release(void *arg, const tutti_rpc_request *request,
				    tutti_rpc_reply *reply)
{
	tutti_rpc *rpc = arg;

	(void)reply;
	if (request->bytes != sizeof(struct ref_message))
		return fail_invalid("a message of %zu bytes", request->bytes);
	rpc_lock(rpc);
	tutti_status status = refs_release(rpc, request->rank,
					   ((const struct ref_message *)request->data)->number);
	rpc_unlock(rpc);
	return status;
}

tutti_status rpc_refs_init(tutti_rpc *rpc)
{
	const tutti_rpc_function own[] = {
		{.name = SHARE, .fn = refs_on_share, .arg = rpc, .flags = TUTTI_RPC_SHORT},
		{.name = RELEASE, .fn = refs_on_release, .arg = rpc, .flags = TUTTI_RPC_SHORT}};

	if (!(rpc->refs = calloc(1, sizeof *rpc->refs)))
		return fail_no_memory("an rpc of %d ranks", rpc->size);
	TRY(rpc_functions_add(rpc, &own[0], true));
	return rpc_functions_add(rpc, &own[1], true);
}

void rpc_refs_end(tutti_rpc *rpc)
{
	for (size_t i = 0; rpc->refs && i < rpc->refs->count; i++) {
		struct rpc_release *due = rpc->refs->objects[i].destroy;
		rpc->refs->objects[i].destroy = NULL;
		if (!due)
			continue;
		rpc_release_call(rpc, due);
	}
}

void rpc_refs_free(tutti_rpc *rpc)
{
	struct rpc_refs *refs = rpc->refs;

	for (size_t i = 0; refs && i < refs->count; i++)
		free(refs->objects[i].holders);
	if (refs)
		free(refs->objects);
	free(refs);
}

/* ---- the functions of rpc.h ---- */

static tutti_status refs_check(const char *what, const tutti_rpc *rpc, const tutti_rpc_ref *ref)
{
	if (!rpc || !ref)
		return fail_invalid("%s: %s is NULL", what, rpc ? "ref" : "rpc");
	if (ref->owner < 0 || ref->owner >= rpc->size)
		return fail_invalid("%s: the owner of ref is rank %d, not in 0..%d", what,
				    ref->owner, rpc->size - 1);
	return TUTTI_OK;
}

/* A free place of the table. */
static tutti_status refs_take_place(struct rpc_refs *refs, struct object **out)
{
	if (!refs->free) {
		TRY(array_grow(&refs->objects, refs->count, sizeof *refs->objects,
			       "a remote reference"));
		refs->objects[refs->count] = (struct object){0};
		refs->free = (uint32_t)++refs->count;
	}
	*out = &refs->objects[refs->free - 1];
	return TUTTI_OK;
}

static tutti_status refs_create(tutti_rpc *rpc, void *object, struct rpc_release *destroy,
				tutti_rpc_ref *ref)
{
	struct rpc_refs *refs = rpc->refs;
	struct object *o;

	TRY(refs_take_place(refs, &o));
	TRY(refs_add_count(o, rpc->rank));
	refs->free = o->next_free;
	o->number = (uint64_t)++o->uses << 32 | (uint64_t)(o - refs->objects + 1);
	o->object = object;
	o->destroy = destroy;
	*ref = (tutti_rpc_ref){.owner = rpc->rank, .number = o->number};
	return TUTTI_OK;
}

tutti_status tutti_rpc_ref_create(tutti_rpc *rpc, void *object, void (*destroy)(void *object),
				  tutti_rpc_ref *ref)
{
	struct rpc_release *due = NULL;

	if (!rpc || !ref)
		return fail_invalid("tutti_rpc_ref_create: %s is NULL", rpc ? "ref" : "rpc");
	if (destroy && !(due = malloc(sizeof *due)))
		return fail_no_memory("a remote reference");
	if (due)
		*due = (struct rpc_release){"destroy", "tutti_rpc_ref_create", destroy, object,
					    NULL};
	rpc_lock(rpc);
	tutti_status status = refs_create(rpc, object, due, ref);
	rpc_unlock(rpc);
	if (status != TUTTI_OK)
		free(due);
	return status;
}

tutti_status tutti_rpc_ref_get(tutti_rpc *rpc, const tutti_rpc_ref *ref, void **object)
{
	TRY(refs_check("tutti_rpc_ref_get", rpc, ref));
	if (!object)
		return fail_invalid("tutti_rpc_ref_get: object is NULL");
	if (ref->owner != rpc->rank)
		return fail_invalid("tutti_rpc_ref_get: the object is on rank %d, and this is "
				    "rank %d",
				    ref->owner, rpc->rank);
	rpc_lock(rpc);
	struct object *o = refs_find(rpc, ref->number);
	tutti_status status =
		o ? refs_add_count(o, rpc->rank) : refs_no_object(rpc, ref->number, rpc->rank);
	if (status == TUTTI_OK)
		*object = o->object;
	rpc_unlock(rpc);
	return status;
}

tutti_status tutti_rpc_ref_share(tutti_rpc *rpc, const tutti_rpc_ref *ref, int rank)
{
	TRY(refs_check("tutti_rpc_ref_share", rpc, ref));
	struct ref_message w = {.number = ref->number, .rank = rank};
	if (ref->owner != rpc->rank) {
		TRY(rpc_may_wait("tutti_rpc_ref_share"));
		return tutti_rpc_call(rpc, ref->owner, SHARE, &(tutti_rpc_piece){&w, sizeof w}, 1,
				      NULL, NULL);
	}
	rpc_lock(rpc);
	tutti_status status = refs_share_here(rpc, &w);
	rpc_unlock(rpc);
	return status;
}

tutti_status tutti_rpc_ref_release(tutti_rpc *rpc, const tutti_rpc_ref *ref)
{
	if (!ref)
		return TUTTI_OK;
	TRY(refs_check("tutti_rpc_ref_release", rpc, ref));
	struct ref_message w = {.number = ref->number};
	if (ref->owner != rpc->rank) {
		TRY(tutti_group_refuse("tutti_rpc_ref_release"));
		return tutti_rpc_send(rpc, ref->owner, RELEASE, &(tutti_rpc_piece){&w, sizeof w}, 1,
				      NULL);
	}
	rpc_lock(rpc);
	tutti_status status = refs_release(rpc, rpc->rank, ref->number);
	rpc_unlock(rpc);
	return status;
}
