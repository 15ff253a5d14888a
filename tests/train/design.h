/* Models that are a table, drawn or written down: units "u0" to, parameters "p0" to, of one dimension. */
#ifndef TESTS_TRAIN_DESIGN_H
#define TESTS_TRAIN_DESIGN_H

#include <tutti/train.h>

enum { DESIGN_UNITS = 10, DESIGN_PARAMS = 16 };

struct design {
	int units, params;
	int stage[DESIGN_UNITS];
	int unit[DESIGN_PARAMS], tied_to[DESIGN_PARAMS]; /* a unit that uses it, too; -1: none */
	int64_t count[DESIGN_PARAMS];
	unsigned flags[DESIGN_PARAMS];
};

/* The caller destroys it. */
tutti_model *design_build(const struct design *design);
/* As many parameters, each of a unit of its own. */
struct design design_equal(int units, int64_t count, unsigned flags);
/* The next number below that; *drawn is the seed, and moves on. */
int design_draw_below(uint64_t *drawn, int below);
/* Stages to most units; each stage and each unit has something. Counts are multiples of grain, some
 * of them 0, and of very different sizes. */
struct design design_draw(uint64_t *drawn, int stages, int most, int64_t grain);

#endif
