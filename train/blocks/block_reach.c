#include "train/blocks/block_reach.h"

/* Blocks that differ are left to the broadcasts, which notice and say it. */
static bool is_reached(const struct block_call *c, const struct block_offer *offers)
{
	for (int rank = 0; rank < c->size; rank++)
		if (offers[rank].place.allocation == 0 || offers[rank].count != c->count ||
		    offers[rank].dtype != (uint64_t)c->dtype)
			return false;
	return true;
}

enum block_way block_reach(struct block_call *c, const void *own, struct block_offer *offers)
{
	struct block_offer *offer = &offers[c->rank];

	*offer = (struct block_offer){.count = c->count, .dtype = (uint64_t)c->dtype};
	if (tutti_mem_place_of(&offer->place, own, c->bytes, c->comm) != TUTTI_OK)
		return BLOCKS_BY_MESSAGES;
	c->part.work = NULL;
	if (!block_call_is_well(
		    c, -1,
		    tutti_all_gather(offer, offers, sizeof *offer, TUTTI_U8, c->comm, &c->part)))
		return BLOCKS_NOT;
	return is_reached(c, offers) ? BLOCKS_REACHED : BLOCKS_BY_WINDOW;
}
