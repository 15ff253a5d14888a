/* The contents of a chunk while a plan is executed symbolically: whose contributions to which
 * block, and whether they are complete and scaled. Values are numbers; 0 is nothing at all. */
#ifndef TUTTI_PLAN_VALUE_H
#define TUTTI_PLAN_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ranks first to last. */
struct range {
	int first, last;
};

struct value {
	uint32_t block;        /* of the call's layout                                       */
	uint32_t range, count; /* whose contributions: slice of values->ranges, ascending    */
	bool is_finished, is_scaled;
};

struct values {
	struct value *value;
	struct range *ranges, *bin;
	size_t count, used, room, ranges_room, bin_room;
};

void values_open(struct values *values);
void values_close(struct values *values);
uint32_t value_of_rank(struct values *values, uint32_t block, int rank);
/* The union of n values of one block; *twice is the first rank that is in two of them, or -1. */
uint32_t value_union(struct values *values, const uint32_t *of, uint32_t n, int *twice);
/* The same contributions with other marks. */
uint32_t value_marked(struct values *values, uint32_t of, bool is_finished, bool is_scaled);
/* The first rank of 0 .. ranks - 1 that value lacks, or -1. */
int value_lacks(const struct values *values, uint32_t of, int ranks);
/* Is it rank's contribution alone? */
bool value_is_of(const struct values *values, uint32_t of, uint32_t block, int rank);
/* "block 3 of ranks 0 to 2, 5"; bytes: 80 or more. */
const char *value_in_words(const struct values *values, uint32_t of, char *text, size_t bytes);

#endif
