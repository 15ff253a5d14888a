/* Ranks in words, for messages: "rank 3", "ranks 1, 3 to 5", "ranks 0, 2 and 60 more". */
#ifndef CORE_RANK_LIST_H
#define CORE_RANK_LIST_H

#include <stddef.h>

#define RANK_LIST_LEAST 48 /* bytes of a text: room for one run of ranks and how many more there are */

struct rank_list {
	int count; /* of ranks that were added */
	char *text;
	size_t text_bytes, used;
	int first, last, left_out; /* the run of ranks that is not written yet; how many had no room */
};

/* text: of RANK_LIST_LEAST bytes or more; "" as long as no rank is added. */
void rank_list_begin(struct rank_list *list, char *text, size_t text_bytes);
/* In any order; ranks that follow one another by one are written as a run. */
void rank_list_add(struct rank_list *list, int rank);
/* Once, after the last. Returns text. */
const char *rank_list_end(struct rank_list *list);

#endif
