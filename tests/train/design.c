/* Models that are a table. */
#include "tests/train/design.h"

#include "tests/train/ranks.h"

#include <tutti/parallel.h>

#include <stdio.h>

tutti_model *design_build(const struct design *design)
{
	tutti_model *model = NULL;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < design->units; u++) {
		snprintf(name, sizeof name, "u%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_unit_stage(model, u, design->stage[u]) == TUTTI_OK);
	}
	for (int p = 0; p < design->params; p++) {
		snprintf(name, sizeof name, "p%d", p);
		CHECK(tutti_model_param(model, design->unit[p], name, 1, &design->count[p],
					design->flags[p]) == p);
	}
	for (int p = 0; p < design->params; p++)
		if (design->tied_to[p] >= 0)
			CHECK(tutti_model_unit_uses(model, design->tied_to[p], p) == TUTTI_OK);
	return model;
}

struct design design_equal(int units, int64_t count, unsigned flags)
{
	struct design design = {.units = units, .params = units};

	for (int p = 0; p < units; p++) {
		design.unit[p] = p;
		design.tied_to[p] = -1;
		design.count[p] = count;
		design.flags[p] = flags;
	}
	return design;
}

int design_draw_below(uint64_t *drawn, int below)
{
	return (int)(tutti_random((*drawn)++, 1, 2, 3) % (uint32_t)below);
}

struct design design_draw(uint64_t *drawn, int stages, int most, int64_t grain)
{
	struct design design = {.units = stages + design_draw_below(drawn, most - stages + 1)};
	int units = design.units, spread = 1 + design_draw_below(drawn, 20);

	design.params = units + design_draw_below(drawn, DESIGN_PARAMS - units + 1);
	for (int u = 0; u < units; u++)
		design.stage[u] = u < stages ? u : design_draw_below(drawn, stages);
	for (int p = 0; p < design.params; p++) {
		int most_grains = design_draw_below(drawn, 3) == 0 ? spread : 2;
		design.unit[p] = p < units ? p : design_draw_below(drawn, units);
		design.tied_to[p] =
			design_draw_below(drawn, 4) == 0 ? design_draw_below(drawn, units) : -1;
		design.count[p] = grain * (1 + design_draw_below(drawn, most_grains));
		if (design_draw_below(drawn, 6) == 0)
			design.count[p] = 0;
		design.flags[p] = design_draw_below(drawn, 4) == 0   ? TUTTI_PARAM_FROZEN
				  : design_draw_below(drawn, 6) == 0 ? TUTTI_PARAM_NO_SHARD
								     : 0;
	}
	return design;
}
