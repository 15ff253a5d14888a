/* Ranks in words, for messages: "rank 3", "ranks 1, 3 to 5", "ranks 0, 2 and 60 more". */
#ifndef CORE_RANK_LIST_H
#define CORE_RANK_LIST_H

#include <stddef.h>

/* Bytes of a text: room for one run of ranks and how many more there are. */
#define RANK_LIST_LEAST 48

struct rank_list {
	int count; /* of ranks that were added */
	char *text;
	size_t text_bytes, used;
	int first, last; /* the run of ranks that is not written yet */
	int left_out;    /* ranks that had no room */
};

/* text: of RANK_LIST_LEAST bytes or more; "" as long as no rank is added. */
void rank_list_begin(struct rank_list *list, char *text, size_t text_bytes);
/* In any order; ranks that follow one another by one are written as a run. */
void rank_list_add(struct rank_list *list, int rank);
void rank_list_add_run(struct rank_list *list, int first, int last);
/* Once, after the last. Returns text. */
const char *rank_list_end(struct rank_list *list);

#endif
