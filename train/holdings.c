/* Tables of which rank holds which elements. */
#include "train/holdings.h"

#include "train/base/base.h"

#include <stdlib.h>
#include <string.h>

static struct holding *holdings_at(const struct holdings *holdings, int rank, int param, int kind)
{
	size_t row = (size_t)rank * (size_t)holdings->params + (size_t)param;

	return &holdings->all[row * HELD_KINDS + (size_t)kind];
}

tutti_status holdings_make(struct holdings *holdings, const tutti_trainer *trainer)
{
	size_t rows = (size_t)trainer->size * (size_t)(trainer->model.param_count + 1);

	*holdings = (struct holdings){calloc(rows * HELD_KINDS, sizeof *holdings->all),
				      trainer->size, trainer->model.param_count};
	return holdings->all ? TUTTI_OK : fail_no_memory("what ranks hold");
}

void holdings_free(struct holdings *holdings)
{
	free(holdings->all);
}

tutti_status holdings_gather(struct holdings *holdings, tutti_trainer *trainer,
			     const tutti_trainer *before)
{
	size_t bytes = (size_t)holdings->params * HELD_KINDS * sizeof *holdings->all;

	for (int p = 0; before && p < holdings->params; p++) {
		const struct piece *own = piece_of(before, p), *shadow = shadow_piece_of(before, p);
		if (own)
			*holdings_at(holdings, trainer->rank, p, HELD_OWN) =
				(struct holding){own->first, own->first + own->count};
		if (shadow && before->shadow.is_current)
			*holdings_at(holdings, trainer->rank, p, HELD_SHADOW) =
				(struct holding){shadow->first, shadow->first + shadow->count};
	}
	return bytes ? trainer_all_gather(trainer, holdings->all, bytes) : TUTTI_OK;
}

static bool holdings_has(const struct holdings *holdings, int rank, int param, size_t element,
			 struct source *source)
{
	for (int kind = 0; kind < HELD_KINDS; kind++) {
		const struct holding *held = holdings_at(holdings, rank, param, kind);
		if (held->first > element || held->last <= element)
			continue;
		*source = (struct source){rank, kind, (size_t)held->last};
		return true;
	}
	return false;
}

bool holdings_find(const struct holdings *holdings, int param, size_t element, int preferred,
		   struct source *source)
{
	if (holdings_has(holdings, preferred, param, element, source))
		return true;
	for (int r = 0; r < holdings->ranks; r++)
		if (holdings_has(holdings, r, param, element, source))
			return true;
	return false;
}

bool holdings_miss(const struct holdings *holdings, const struct tutti_model *model, int *param,
		   size_t *element)
{
	struct source source;

	for (int p = 0; p < model->param_count; p++)
		for (size_t i = 0; i < model->params[p].count; i = source.last)
			if (!holdings_find(holdings, p, i, 0, &source)) {
				*param = p;
				*element = i;
				return true;
			}
	return false;
}
